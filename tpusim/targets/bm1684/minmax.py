"""The larger or smaller of tensors."""

from tpusim_kernels.prim.scale import asymmetric_scale
from typing_extensions import override
from xdsl.ir import Attribute, SSAValue

from tpusim.compat import Quirk
from tpusim.interfaces import Model
from tpusim.ir.types import UniformType, calibrated_range
from tpusim.ops.framework.base import LoweringContext
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.minmax import ExtremeTop
from tpusim.targets.bm1684.target import TARGET


@TARGET.attach(ExtremeTop, IntegerLowering)
class ExtremeOfBytes(Model[ExtremeTop], IntegerLowering):
    """Raw bytes; by a quirk the type says otherwise."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The tpu op on bytes of one scale, or why not."""
        return self.op.on_bytes(ctx, self._stored_type)

    def _stored_type(self, ctx: LoweringContext) -> Attribute:
        """The output's type: scale and zero point of its range, though the bytes have none."""
        measured = calibrated_range(self.op.output)
        if measured is None or not ctx.reproduces(Quirk.ASYMMETRIC_MAX_ON_BM1684):
            return ctx.quantised_type(self.op.output)
        scale, zero_point, signed = asymmetric_scale(*measured)
        return UniformType.of(scale, zero_point, signed=signed)
