"""Macro command: a function made of SFU and AR sequences."""

from typing import Any, Literal, Self, cast

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.decoding import convert, kind_of
from tpusim.isa.finding import Finding
from tpusim.isa.functions.base import AnyFunction
from tpusim.isa.region import View, itemsize
from tpusim.isa.transfers import KernelTransfers
from tpusim.registry import FUNCTIONS


def functions(command: "Fn", chip: ChipSpec) -> Finding | None:
    """A macro function has the operands that its parameters require; their shapes fit the parameters and the result."""
    found = command.function.misfit([view.shape for view in command.inputs], command.output.shape)
    return found and Finding(found.requirement, found.got, "correct the parameters or the views")


_NEEDED: dict[str, Literal["qdm", "small_multiplier", "tables"]] = {
    "a function of this chip's requant": "qdm",
    "a function of this chip's multipliers": "small_multiplier",
    "a chip with BF16 tables": "tables",
}


class Fn(Command, frozen=True, tag="fn"):
    """Macro command: a function made of SFU and AR sequences, costed as the sum of its parts (DC-04).

    function: one of `tpusim.isa.functions`, with its parameters; its class says which operands it takes.
    """

    inputs_ = ("inputs",)
    rules = (functions,)
    elementwise = True

    function: AnyFunction
    inputs: tuple[View, ...]
    output: View

    @classmethod
    def decoded(cls, fields: dict[str, Any]) -> Self:
        """The command, whose function is an instance of the class with the given name."""
        if "function" not in fields:
            return super().decoded(fields)  # says that it is missing
        given = fields["function"]
        if not isinstance(given, dict):
            raise ValueError(f"Expected `object`, got `{type(given).__name__}` - at `$.function`")
        function = cast("dict[str, Any]", given)
        return super().decoded(fields | {"function": convert(function, kind_of(FUNCTIONS, function.get("name")))})

    def needs(self) -> tuple[Need, ...]:
        """The parts of the hardware that the function needs."""
        name, unit = type(self.function).__name__, self.function.needs()
        return tuple(Need(needed, wanted, name) for wanted, needed in _NEEDED.items() if needed == unit)

    @property
    def only_on_host(self) -> bool:
        """Whether the function is one of the host."""
        return not self.function.on_chip

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """The multiply-accumulates of the function."""
        return self.function.multiplications([view.shape for view in self.inputs])

    def traffic(self) -> tuple[int, int]:
        """Bytes that the function moves in addition to its operands."""
        shapes = [view.shape for view in self.inputs]
        return self.function.moved(shapes, self.output.shape, itemsize(self.output.dtype))

    @property
    def loads(self) -> bool:
        """Whether the function loads its operands."""
        return self.function.loads

    @property
    def counts_transfers(self) -> bool:
        """Whether the function's cycles count its kernel's transfers."""
        return self.function.counts_transfers

    def kernel_transfers(self, chip: ChipSpec) -> KernelTransfers | None:
        """The transfers that the function states."""
        return self.function.kernel_transfers(self.inputs, self.output, chip)

    def kernel_run(self, view: View, chip: ChipSpec) -> int:
        """The run that the function states."""
        return self.function.kernel_run(super().kernel_run(view, chip), view.shape, chip)

    def cycles(self, chip: ChipSpec) -> int:
        """The sum of the function's parts (DC-04)."""
        return self.function.cycles(self.inputs, self.output, chip)
