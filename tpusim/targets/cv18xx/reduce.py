"""Reductions of integers (numerics.md 11.3)."""

from tpusim_kernels.arith_shift import EXACT_SUM, REDUCTIONS
from tpusim_kernels.prim.multiplier import small_multiplier
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import ints_attr
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import built_in_integers
from tpusim.ops.interfaces import IntegerLowering, RangeRule, Ranges
from tpusim.ops.reduce import ATTRIBUTES, TopReduce, TpuReduce, reduced_count
from tpusim.targets.cv18xx.multipliers import ratio
from tpusim.targets.cv18xx.target import TARGET

_KEEP_RANGES = ("ReduceMax", "ReduceMin")


@TARGET.attach(TopReduce, Ranges)
class ExtremesKeepRanges(Model[TopReduce], Ranges):
    """ReduceMax and ReduceMin give bytes of the input."""

    @override
    def range_rule(self) -> RangeRule:
        """ReduceMax and ReduceMin give the output the range of the input (step 9)."""
        return RangeRule(forward=self.op.mode.data in _KEEP_RANGES)


@TARGET.attach(TopReduce, IntegerLowering)
class ReduceByMultiplier(Model[TopReduce], IntegerLowering):
    """A multiplier and shift for th_in/th_out; for a mean for th_in/(n*th_out)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        op, mode, count = self.op, self.op.mode.data, reduced_count(self.op)
        if mode not in REDUCTIONS:
            return op.lower_integer(ctx)
        if ctx.quant(op.input) is None or ctx.quant(op.output) is None:
            return "input or output is not calibrated"
        if mode not in _KEEP_RANGES and count * 128 > EXACT_SUM:
            return f"a sum of {count:,} bytes leaves the 24 bits of f32"
        m, r = small_multiplier(ratio(op.input, op.output) / (count if mode == "ReduceMean" else 1))
        attributes = {key: op.attributes[key] for key in ATTRIBUTES}
        attributes |= {"multiplier": ints_attr([m]), "rshift": ints_attr([r])}
        operands = [ctx.operand(op.input, "int8", op)]
        return built_in_integers(op, ctx, TpuReduce, operands, attributes)
