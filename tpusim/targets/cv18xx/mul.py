"""Products of tensors, with the requant of matrix products (numerics.md 5.2, 5.5)."""

from tpusim_kernels.prim.multiplier import tflite_multiplier
from typing_extensions import override
from xdsl.ir import SSAValue

from tpusim.interfaces import Model
from tpusim.ir.modes import requant_mode
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.mul import TopMul
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(TopMul, IntegerLowering)
class MulByQdm(Model[TopMul], IntegerLowering):
    """Only the first operand may be constant (numerics.md 12.1)."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        op = self.op
        if ctx.quant(op.output) is not None and any(ctx.array(v) is not None for v in op.inputs[1:]):
            return "the second operand is not calibrated (numerics.md 12.1)"
        return op.with_multiplier(ctx, _qdm, signed=True, more={"quant_mode": requant_mode("QDM")})


def _qdm(scale: float) -> tuple[int, int]:
    """(m, r) with m/2^(31 + r) = scale, m in 2^30..2^31-1; a scale of 1 or more becomes 0.999999 (numerics.md 5.5)."""
    m, e = tflite_multiplier(0.999999 if scale >= 1 else scale)
    return m, -e
