"""Float functions of elements, axes and images."""

from collections.abc import Sequence
from typing import Literal

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import broadcast, counted, equal_shapes, has_axis
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import ADDITION

_EXP, _LN = Steps(22, shorter=3, constants=1), Steps(37, shorter=8, constants=1)
_ACTIVATIONS: dict[str, Steps] = {
    "EXP": _EXP, "LN": _LN, "LOG2": Steps(38, shorter=8, constants=1), "POW": Steps(60, shorter=11, constants=2),
    "SIN": Steps(23, constants=2), "COS": Steps(21, constants=2), "TAN": Steps(62, constants=2),
    "SQRT": Steps(38), "RSQRT": Steps(38), "RECIPROCAL": Steps(31), "SOFT_SIGN": Steps(34),
    "SIGMOID": Steps(56, constants=1), "TANH": Steps(59, constants=1), "ELU": Steps(28, constants=1),
    **dict.fromkeys(("SINH", "COSH", "SILU"), Steps(58, constants=1)),
    **dict.fromkeys(("SWISH", "QGELU"), Steps(59, constants=1)),
    "TGELU": Steps(69, constants=1), "LOG_SIGMOID": Steps(93, constants=2), "SOFT_PLUS": Steps(61, constants=2),
    "MISH": Steps(122, constants=3), "ERF": Steps(76, constants=2), "GELU": Steps(81, constants=2),
    **dict.fromkeys(("ARCCOS", "ARCSIN", "ARCTAN"), Steps(108, constants=2)), "ARCTANH": Steps(73, constants=1),
    "HSIGMOID": Steps(5), "HSWISH": Steps(5), "SIGN": Steps(4), "SQUARE": Steps(2),
    **dict.fromkeys(("ABSVAL", "CEIL", "FLOOR", "ROUND", "ROUND_EVEN", "TRUNC"), Steps(1)),
}  # fmt: skip
"""The steps of each activation in the profile (U-91, F-20); series count as AR steps.

Decision: LOG2, RSQRT, ARCSIN, ARCTAN, TGELU, MISH and LOG_SIGMOID occur in no profiled network and take the steps of
their parts.
"""


ACTIVATIONS = frozenset(_ACTIVATIONS)
"""Modes of `Active`."""


class Active(Function, frozen=True, tag="active"):
    """Element-wise function `mode` with its coefficients, in float; only ABSVAL takes integers (numerics.md 9.8)."""

    mode: str
    coefficients: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in ACTIVATIONS:
            raise ValueError(f"mode '{self.mode}' is not one of {', '.join(sorted(ACTIVATIONS))}")

    def made_of(self, operands: int) -> Steps:
        """The steps of the function that the mode names."""
        return _ACTIVATIONS[self.mode]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return equal_shapes(operands, result)


class Cumulate(Function, frozen=True, tag="cumulate"):
    """Sums or products of all elements up to each place along `axis`."""

    axis: int
    mode: Literal["sum", "prod"] = "sum"
    exclusive: bool = False
    reverse: bool = False

    def made_of(self, operands: int) -> Steps:
        """One step per element."""
        return Steps(arithmetic=1)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Along h of an image an addition for each place after the first."""
        if len(output.shape) != 4 or self.axis != 2:  # noqa: PLR2004  n, c, h, w
            return super().cycles(inputs, output, chip)
        n, c, h, w = output.shape
        place = n * ceil_div(c, chip.lanes) * ceil_div(w, chip.eu_elements(itemsize(output.dtype)))
        return ADDITION * (h - 1) * place

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return equal_shapes(operands, result) or has_axis(self.axis, result)


class Power(Function, frozen=True, tag="power"):
    """The first operand to the power of the second."""

    def made_of(self, operands: int) -> Steps:
        """A logarithm, a product and an exponential."""
        return Steps(arithmetic=1, series=2)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Two operands that broadcast."""
        return broadcast(operands, result, 2)


class Remainder(Function, frozen=True, tag="remainder"):
    """The remainder of a division, with the divisor's sign; with `fmod` it has the dividend's sign."""

    fmod: bool = False

    def made_of(self, operands: int) -> Steps:
        """Divide (5), round, multiply, subtract."""
        return Steps(arithmetic=8)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Two operands that broadcast."""
        return broadcast(operands, result, 2)


class GridSample(Function, frozen=True, tag="grid_sample"):
    """The first operand (n, c, ...) at the places of the second (n, ..., coordinates), the last axis first."""

    mode: Literal["nearest", "linear", "cubic"]
    padding: Literal["zeros", "border", "reflection"]
    align_corners: bool = False

    def made_of(self, operands: int) -> Steps:
        """Per element 1, 4 or 16 table accesses, each with a product and a sum."""
        taps = {"nearest": 1, "linear": 4, "cubic": 16}[self.mode]
        return Steps(arithmetic=2 * taps, lookups=taps)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A coordinate for each axis after the channels, a place for each element of the result."""
        if (why := counted(operands, 2)) is not None:
            return why
        wanted = (*operands[0][:2], *operands[1][1:-1])
        if operands[1][-1] != len(operands[0]) - 2 or operands[0][0] != operands[1][0]:
            return Misfit(f"places (n, ..., {len(operands[0]) - 2})", f"{operands[1]}")
        return None if wanted == result else Misfit(f"a result of {wanted}", f"{result}")
