"""Element-wise arithmetic (AR): its command, legality and cycles."""

from typing import Literal

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command, Need
from tpusim.isa.commands.broadcast import arith_strides, elementwise_steps, row_passes
from tpusim.isa.finding import Finding, first
from tpusim.isa.region import FLOATS, NARROW, View, itemsize
from tpusim.isa.steps import DIVISION_STEPS, limits


class Arith(Command, frozen=True, tag="arith"):
    """Element-wise arithmetic of two operands (AR); numpy broadcasting of axes of length 1.

    b may be a constant. Integers: exact, saturated to the output type; f32: one IEEE operation. relu: max(0, .), then
    min(., relu_limit) if relu_limit >= 0. kind "div" is for floats only. "copy" and
    "truncate" ignore b; "truncate" keeps the upper 16 bits of an f32, which is how a BF16 unit casts. away: a copy from
    f32 to a narrower float rounds halves away from zero.
    """

    inputs_ = ("a", "b")
    local_rules = (arith_strides,)
    one_lane = True
    elementwise = True
    shapes = "broadcast"

    kind: Literal["add", "sub", "mul", "div", "max", "min", "copy", "truncate"]
    a: View
    output: View
    b: View | float = 0.0
    relu: bool = False
    relu_limit: float = -1.0
    away: bool = False

    def needs(self) -> tuple[Need, ...]:
        """Truncation needs a BF16 float unit."""
        cut = self.kind == "truncate"
        return (Need("bf16", "a kind other than truncate", "truncate"),) if cut else ()

    @property
    def casts(self) -> bool:
        """Whether this is a copy."""
        return self.kind == "copy"

    def type_misfit(self) -> Finding | None:
        """An integer result needs integer operands and cannot be a quotient."""
        if self.kind == "truncate" and self.a.dtype != "f32":
            return Finding("an f32 to truncate", self.a.dtype, "copy it")
        if self.away and not (self.kind == "copy" and self.a.dtype == "f32" and self.output.dtype in NARROW):
            return Finding(
                "a copy from f32 to a narrower float to round away from zero", f"{self.kind} of {self.a.dtype}", ""
            )
        if self.output.dtype in FLOATS:
            return None
        if self.kind in ("div", "truncate"):
            return Finding(f"a float result of {self.kind}", self.output.dtype, "compute it in f32")
        constant = 0.0 if isinstance(self.b, View) else self.b
        if constant != int(constant):
            return Finding("an integral constant b", str(constant), "quantise the constant")
        return first(
            Finding(f"{name} of an integer type", view.dtype, "convert it with Quantize")
            for name, view in self.operands()
            if view.dtype in FLOATS
        )

    def cycles(self, chip: ChipSpec) -> int:
        """Steps of the widest operand; a division of floats takes many."""
        passes, views = self._passes, [view for _, view in self.operands()]
        if self.kind == "copy" and not self.fills_lanes(chip):
            passes *= max(row_passes(view, chip) for view in views)
        steps = elementwise_steps(self, self.output, passes, chip)
        if self.kind in ("copy", "truncate"):
            return steps
        return steps + limits(views, self.output, chip, relu=self.relu, above=self.relu_limit >= 0)

    @property
    def _passes(self) -> int:
        """How often AR goes over the tensor; a sum of 16 bits with relu is limited afterwards."""
        if self.kind == "div":
            return DIVISION_STEPS
        limited = self.kind == "add" and self.relu and itemsize(self.output.dtype) == 1
        return 3 if limited and itemsize(self.a.dtype) == 2 else 1  # noqa: PLR2004  16 bits
