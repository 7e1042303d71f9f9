"""Element-wise arithmetic (AR)."""

from typing import Literal

from tpusim.isa.commands.base import Command
from tpusim.isa.region import View


class Arith(Command, frozen=True, tag="arith"):
    """Element-wise arithmetic of two operands (AR); numpy broadcasting of axes of length 1.

    b may be a constant. Integers: exact, saturated to the output type; f32: one IEEE operation. relu: max(0, .), then
    min(., relu_limit) if relu_limit >= 0. kind "div" is for floats only, "copy" ignores b; so does "truncate", which
    keeps the upper 16 bits of an f32 (CV18xx casts to BF16 so).
    """

    inputs_ = ("a", "b")

    kind: Literal["add", "sub", "mul", "div", "max", "min", "copy", "truncate"]
    a: View
    output: View
    b: View | float = 0.0
    relu: bool = False
    relu_limit: float = -1.0
