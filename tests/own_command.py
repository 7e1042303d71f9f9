"""A command and a macro function of a package: classes, rules, cycles, tile form, and what the machine does for them.

Nothing of tpusim names them.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command
from tpusim.isa.finding import Finding
from tpusim.isa.functions import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import equal_shapes
from tpusim.isa.region import View
from tpusim.isa.steps import steps
from tpusim.isa.transfers import transfer_ns
from tpusim.kernel_library.forms import Form, form_of
from tpusim.kernel_library.forms.elementwise import elementwise
from tpusim.simulator.memory import Machine


def whole_shift(command: "Blend", chip: ChipSpec) -> Finding | None:
    """Weights of a blend are bytes, its shift is 0 to 15."""
    if all(-128 <= weight <= 127 for weight in command.weights) and 0 <= command.shift < 16:
        return None
    return Finding("weights of 8 bits and a shift of 4", f"{command.weights} and {command.shift}", "scale the weights")


class Blend(Command, frozen=True, tag="blend"):
    """Sum of two weighted tensors of bytes: sat((a*weights[0] + b*weights[1]) >> shift)."""

    inputs_ = ("a", "b")
    rules = (whole_shift,)
    one_lane = True
    elementwise = True
    shapes = "broadcast"
    one_kind = ("a", "b", "output")

    a: View
    b: View
    output: View
    weights: tuple[int, int] = (1, 1)
    shift: int = 0

    def multiplications(self, outputs: int, inputs: int, depth: int = 1) -> int:
        """Two for each output."""
        return 2 * outputs

    def cycles(self, chip: ChipSpec) -> int:
        """Three steps of 16 bits."""
        return 3 * steps(self.output, 2, chip)


def blend(command: Blend, memory: Machine) -> None:
    """What the machine does for it."""
    a, b = (memory.load(view).astype(np.int64) for view in (command.a, command.b))
    total = (a * command.weights[0] + b * command.weights[1]) >> command.shift
    memory.store(command.output, np.clip(total, -128, 127).astype(np.int8))


@form_of(Blend)
def blend_form(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """As that of any elementwise command."""
    yield from elementwise(body, chip)


class Exchange(Command, frozen=True, tag="exchange"):
    """Two tensors that change places, each a copy of GDMA: new_a = b, new_b = a."""

    engine = "gdma"
    inputs_ = ("a", "b")
    outputs_ = ("new_a", "new_b")
    memory = None

    a: View
    b: View
    new_a: View
    new_b: View

    def traffic(self) -> tuple[int, int]:
        """Bytes of global memory among the operands and the results."""
        sides = (self.reads(), self.writes())
        load, store = (sum(v.nbytes for v in views if v.memory == "gmem") for views in sides)
        return load, store

    def dma_ns(self, chip: ChipSpec) -> float:
        """Two copies, one after the other."""
        return 2 * transfer_ns("l2l", self.a.nbytes, chip)


def exchange(command: Exchange, memory: Machine) -> None:
    """What the machine does for it."""
    a, b = memory.read(command.a), memory.read(command.b)
    memory.write(command.new_a, b)
    memory.write(command.new_b, a)


class Mirror(Function, frozen=True, tag="mirror"):
    """The elements along `axis` from the last to the first."""

    axis: int

    def made_of(self, operands: int) -> Steps:
        """One step, which copies an element."""
        return Steps(arithmetic=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return equal_shapes(operands, result)


def mirror(function: Mirror, operands: tuple[np.ndarray, ...], output: View) -> np.ndarray:
    """What the machine computes for it."""
    return np.flip(operands[0], function.axis)
