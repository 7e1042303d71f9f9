"""How searches try ops in float."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tpusim.ops.framework.contexts import Array

Squares = Callable[[Sequence[Array], Array], Array]
"""By how much a float result changes when the operands are rounded by each of some scales: sums of squares, f32 (m,).

Called with the values of the operands that are no constants and scales f32 (m,).
"""


@dataclass(frozen=True)
class Estimate:
    """A float op as searches try it: its values but for rounding, on arrays stored in the order that is quickest.

    compute: as `inference`, sums in any order. operands: number of an operand -> the order of axes that it is stored in
    (of the others: their own); result: the same of the result, (): its own. trial: quicker `Squares`, made of the
    operands in their own order, None where they are no constants; it gives None for constants that it does not take.
    With them comes the norm of the error that they make in a constant, by that constant's norm: 0 but for rounding.
    """

    compute: Callable[[Sequence[Array]], tuple[Array, ...]]
    operands: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    result: tuple[int, ...] = ()
    trial: Callable[[Sequence[Array]], tuple[Squares, float] | None] | None = None


class Estimated:
    """An op that is tried in another way than by its `inference`."""

    def estimate(self) -> Estimate:
        """The op as searches try it, under `tpusim_kernels.prim.forms.estimates`."""
        raise NotImplementedError


class _Computes(Protocol):
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]: ...


def estimate_of(op: _Computes) -> Estimate:
    """How an op is tried: its `inference`, unless it says otherwise."""
    return op.estimate() if isinstance(op, Estimated) else Estimate(op.inference)
