"""A function of arrays that only the host computes: its code is an operand."""

from collections.abc import Sequence

from tpusim.isa.functions.base import Function, Misfit, Shape, Steps


class HostFunction(Function, frozen=True, tag="host_function"):
    """What the StableHLO in the first operand computes of the others.

    The first operand is a constant of bytes, as `jax.export` serialises a function of arrays without custom calls. The
    other operands are its arguments and the result is its only result; views may fold their axes.
    symbol: the function's name in the module, for people.
    """

    on_chip = False

    symbol: str = ""

    def made_of(self, operands: int) -> Steps:
        """No step of the chip."""
        return Steps(arithmetic=0)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """At least the code; the code states the shapes, which are checked when it is read."""
        return None if operands else Misfit("code as the first operand", "no operand")
