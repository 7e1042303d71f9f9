"""Concatenation in integers; the op scales its operands (numerics.md 9.0)."""

from tpusim_kernels.prim.multiplier import small_multiplier
from typing_extensions import override
from xdsl.ir import Attribute, SSAValue

from tpusim.interfaces import Model
from tpusim.ir.attrs import ints_attr
from tpusim.ops.concat import TopConcat, TpuConcat
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.framework.families import built_in_integers
from tpusim.ops.interfaces import IntegerLowering
from tpusim.targets.cv18xx.multipliers import SAME, threshold, why_no_small_multipliers
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopConcat, IntegerLowering)
class ConcatWithMultipliers(Model[TopConcat], IntegerLowering):
    """An 8-bit multiplier and shift per operand; (1, 0) if its threshold is that of the output."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Concat; with constant or uncalibrated operands the answer of the op."""
        op = self.op
        if why_no_small_multipliers(ctx, op.inputs) is not None:
            return op.lower_integer(ctx)
        out, fits = threshold(op.output), list[tuple[int, int]]()
        for value in op.inputs:
            th = threshold(value)
            fits.append((1, 0) if abs(th - out) <= SAME else small_multiplier(th / out))
        attributes: dict[str, Attribute] = {"axis": op.axis}
        if any(ctx.quant(v) != ctx.quant(op.output) for v in op.inputs):
            attributes["multipliers"] = ints_attr(m for m, _ in fits)
            attributes["rshifts"] = ints_attr(r for _, r in fits)
        operands = [ctx.operand(v, "int8", op) for v in op.inputs]
        return built_in_integers(op, ctx, TpuConcat, operands, attributes)
