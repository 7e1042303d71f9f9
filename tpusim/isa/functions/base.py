"""The base class of macro functions, and the types of what they are made of and of misfitting shapes."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import TAYLOR_TERMS, padded_elements, widest
from tpusim.isa.transfers import KernelTransfers

Shape: TypeAlias = tuple[int, ...]
Unit: TypeAlias = Literal["", "qdm", "small_multiplier", "tables"]
"""Hardware that only some chips have: the QDM requant, multipliers of 8 bits with one shift, or BF16 tables."""


class Steps(NamedTuple):
    """What a function is made of, per element: AR steps, Taylor series, table accesses, requants (hardware.md 5.1).

    shorter: AR steps that 16-bit floats do not take. constants: cycles to make constants, independent of the
    size. shifts: lane copies of all channels to adjacent lanes.
    """

    arithmetic: int
    series: int = 0
    lookups: int = 0
    requants: int = 0
    shifts: int = 0
    shorter: int = 0
    constants: int = 0


class Misfit(NamedTuple):
    """What a function requires of its operands and result, and what it got."""

    requirement: str
    got: str


def _shift(view: View, chip: ChipSpec) -> int:
    """A lane copy of an f32 image by some channels."""
    n, c, *plane = view.shape
    return n * c * ceil_div(c, chip.lanes) * ceil_div(prod(plane) * 4, chip.eu_bytes)


class Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="name"):
    """A function of the `fn` command; subclasses are its opcodes."""

    OVER_INPUT: ClassVar[bool] = False
    """Whether `made_of` is per element of the first operand, not of the result."""
    on_chip: ClassVar[bool] = True
    """Whether the chip can compute it; if not, it is the body of a call of the host."""

    def made_of(self, operands: int) -> Steps:
        """What the clock counts per element, for that many operands."""
        raise NotImplementedError

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """TIU cycles: the sum of what the function is made of (DC-04)."""
        vector, made = widest((*inputs, output), chip), self.made_of(len(inputs))
        view = inputs[0] if self.OVER_INPUT else output
        elements, rate = padded_elements(view, chip, vector), vector * chip.lanes
        half = itemsize(view.dtype) == 2  # noqa: PLR2004  bytes
        return (
            made.constants
            + (made.arithmetic - half * made.shorter + made.requants) * ceil_div(elements, rate)
            + made.series * ceil_div(elements * (2 * TAYLOR_TERMS - 1), 2 * rate)
            + made.lookups * ceil_div(padded_elements(output, chip, 1), chip.lanes)
            + (made.shifts * _shift(view, chip) if made.shifts else 0)
        )

    @property
    def copies(self) -> bool:
        """Whether these parameters make it copy elements, though others do not."""
        return False

    @property
    def loads(self) -> bool:
        """Whether the kernel loads its operands; not if the command before has loaded them for this result too."""
        return True

    @property
    def counts_transfers(self) -> bool:
        """Whether `cycles` counts the time of the kernel's transfers too, and `moved` all further bytes of it."""
        return False

    def kernel_transfers(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> KernelTransfers | None:
        """The transfers of the library's kernel in sequence, if it moves other bytes than operands and result once."""
        del inputs, output, chip
        return None

    def kernel_run(self, run: int, shape: Shape, chip: ChipSpec) -> int:
        """Adjacent elements of a tensor that a library kernel moves at once; run: elements of a plane.

        If rows have one element, the kernel moves the whole tensor.
        """
        return prod(shape[1:] or shape) if run == 1 else run

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """Multiply-accumulates of its matrix products, given the shapes of its operands."""
        del operands
        return 0

    def moved(self, operands: Sequence[Shape], result: Shape, size: int) -> tuple[int, int]:
        """(bytes loaded, bytes stored) in addition to operands and result; size: bytes of an element."""
        del operands, result, size
        return 0, 0

    def needs(self) -> Unit:
        """The part of the hardware that it needs and that only some chips have; empty: none."""
        return ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Why these shapes do not fit the parameters and each other; None if they do."""
        raise NotImplementedError


if TYPE_CHECKING:
    AnyFunction: TypeAlias = Function
else:
    AnyFunction = Any
"""What a `fn` command computes. msgspec has no type for "any subclass": `tpusim.isa.text` makes it."""
