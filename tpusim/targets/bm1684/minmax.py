"""The maximum or minimum of tensors."""

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
    """Bytes without zero point; by a quirk their type states one."""

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """The tpu op on bytes of one scale."""
        return self.op.on_bytes(ctx, self._stored_type)

    def _stored_type(self, ctx: LoweringContext) -> Attribute:
        """The type of the output; by the quirk with the asymmetric scale and zero point of its range."""
        measured = calibrated_range(self.op.output)
        if measured is None or not ctx.reproduces(Quirk.ASYMMETRIC_MAX_ON_BM1684):
            return ctx.quantised_type(self.op.output)
        scale, zero_point, signed = asymmetric_scale(*measured)
        return UniformType.of(scale, zero_point, signed=signed)
