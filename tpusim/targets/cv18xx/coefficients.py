"""Constants on the chip: the numbers of a channel are a row of bytes in its lane (hardware.md 2.3)."""

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
    """A row is bias, multiplier and shift of a channel; a float bias is two planes."""

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack the filter, and the numbers of the channels."""
        op = self.op
        bias = None if is_none(op.bias) else ctx.array(op.bias)
        name = op.reorder_filter(ctx)
        if name is None or (bias is None and not op.integer):
            return
        op.channel_packed = flag(True)
        if not op.integer:
            assert bias is not None  # checked above
            op.operands[2] = ctx.weight(name + "_bias_planes", bias_planes(bias))
            return
        m, r = (np.array(ints(a), np.int64) for a in (op.multiplier, op.rshift) if a is not None)
        op.operands[2] = ctx.weight(name + "_channels", pack_channels(bias, m, r))
        for key in ("multiplier", "rshift"):
            del op.attributes[key]

    @override
    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """Aligned are the filter of a depthwise op and the rows of a grouped INT8 op (hardware.md 2.3)."""
        del chip
        if self.op.depthwise:
            return (2,)
        return (1,) if self.op.groups > 1 and self.op.integer else (1, 2)


@TARGET.attach(TpuPRelu, Alignment)
class AlignedSlopes(Model[TpuPRelu], Alignment):
    """Slopes are rows of channels, which are aligned."""

    @override
    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        del chip
        return ()
