"""Constants on the chip: what belongs to a channel is a row of bytes in its lane (hardware.md 2.3)."""

import numpy as np
from typing_extensions import override

from tpusim.chips import ChipSpec
from tpusim.interfaces import Model
from tpusim.ir.attrs import flag, ints
from tpusim.ops.activation.slope import TpuPRelu
from tpusim.ops.conv.coeff import bias_planes, pack_channels
from tpusim.ops.conv.packed import PackedConvTpu
from tpusim.ops.framework.base import ReorderContext, is_none
from tpusim.ops.interfaces import Alignment, Reorder
from tpusim.targets.cv18xx.target import TARGET


@TARGET.attach(PackedConvTpu, Reorder)
@TARGET.attach(PackedConvTpu, Alignment)
class RowsOfChannels(Model[PackedConvTpu], Reorder, Alignment):
    """Bias, multiplier and shift of a channel, or the two planes of a float bias."""

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack the filter and what belongs to channels."""
        op = self.op
        bias = None if is_none(op.bias) else ctx.array(op.bias)
        name = op.reorder_filter(ctx)
        if name is None or (bias is None and not op.integer):
            return
        op.attributes["channel_packed"] = flag(True)
        if not op.integer:
            assert bias is not None  # asked above
            op.operands[2] = ctx.weight(name + "_bias_planes", bias_planes(bias))
            return
        m, r = (np.array(ints(a), np.int64) for a in (op.multiplier, op.rshift) if a is not None)
        op.operands[2] = ctx.weight(name + "_channels", pack_channels(bias, m, r))
        for key in ("multiplier", "rshift"):
            del op.attributes[key]

    @override
    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """Rows of a channel are aligned with a grouped INT8 op, and so are depthwise filters (hardware.md 2.3)."""
        del chip
        if self.op.depthwise:
            return (2,)
        return (1,) if self.op.groups > 1 and self.op.integer else (1, 2)


@TARGET.attach(TpuPRelu, Alignment)
class AlignedSlopes(Model[TpuPRelu], Alignment):
    """Slopes are rows of a channel, which are aligned."""

    @override
    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """No operand is compact."""
        del chip
        return ()
