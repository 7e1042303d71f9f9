"""`tpu.RequantIntAxis`: the requant of int32 accumulators by one multiplier, shift and zero point per channel.

It follows an INT8 Deconv or Conv3D on chips with requant multipliers (numerics.md 6, 9.1). Before weight-reorder,
multipliers and shifts are attributes and the zero point is that of the result. Weight-reorder packs all three into the
words that the chip reads, three or two per channel (DN-10).
"""

from collections.abc import Sequence

import numpy as np
from tpusim_kernels import arith as kernels
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, NoneType, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints, ints_attr, op_name
from tpusim.ir.modes import RequantModeAttr, RoundModeAttr, requant_mode, round_mode
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.ops.framework.base import (
    Array,
    Axis,
    EmitContext,
    LoweringContext,
    ReorderContext,
    Shape,
    TopOp,
    Window,
    is_none,
)
from tpusim.ops.framework.families import ElementwiseTpu, value_dtype, zero_point
from tpusim.ops.interfaces import PackedWeights, Reorder

PACKED_WORDS = 2
"""Words per channel if shift and zero point share one; such a table is compact in local memory (hardware.md 2.3)."""


@irdl_op_definition
class TpuRequantIntAxis(ElementwiseTpu, PackedWeights, Reorder):
    """`tpu.RequantIntAxis`: sat(z_out + RSR(q*m[c], r[c], HALF_AWAY)), channels on axis 1.

    input: int32 (n, c, ...). table: `none`, or int32 (1, c, 1, words) after weight-reorder. multiplier, rshift: one per
    channel before weight-reorder. quant_mode and round_mode are the same for all.
    """

    name = "tpu.RequantIntAxis"

    input = operand_def(TensorType)
    table = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    multiplier = opt_attr_def(ArrayAttr)
    rshift = opt_attr_def(ArrayAttr)
    quant_mode = opt_attr_def(RequantModeAttr)
    round_mode = opt_attr_def(RoundModeAttr)

    @override
    def integer_forms(self) -> tuple[tuple[str, ...], ...]:
        """Multiplier and shift before weight-reorder; the table replaces them."""
        return (("multiplier", "rshift"),) if is_none(self.table) else ((),)

    @override
    def infer(self) -> tuple[Shape, ...]:
        shape = shape_of(self.input)
        for values in (self.multiplier, self.rshift):
            if values is not None and len(ints(values)) != shape[1]:
                raise ValueError(f"one multiplier and shift for each of {shape[1]} channels is required")
        return (shape,)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        x, table = operands
        m, r = self._unpacked(np.asarray(table)) if table is not None else self._constants()
        y = kernels.requant_int(x, m, r, 0, zero_point(self.output), out_dtype=value_dtype(self.output))
        return (y,)

    def _constants(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.multiplier is not None and self.rshift is not None  # until weight-reorder
        return np.array(ints(self.multiplier), np.int64), np.array(ints(self.rshift), np.int64)

    def _unpacked(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        words = table.reshape(table.shape[1], -1)
        left = words[:, 1]
        if words.shape[1] == PACKED_WORDS:
            left = (left & 0xFF).astype(np.uint8).view(np.int8)
        return words[:, 0].astype(np.int64), -left.astype(np.int64)

    @override
    def needs_concrete_weights(self) -> bool:
        """Whether the table is packed: it is unpacked on the host."""
        return isinstance(self.table.type, TensorType)

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack words (m, -r, z), or (m, -r in the low byte and z in the high half) (numerics.md 6, DN-10)."""
        m, r = self._constants()
        zero = np.full_like(m, zero_point(self.output))
        words = [m, -r, zero] if ctx.chip.requant_words > PACKED_WORDS else [m, (-r & 0xFF) | (zero & 0xFFFF) << 16]
        table = np.stack(words, axis=1).astype(np.uint64).astype(np.uint32).view(np.int32)
        self.operands[1] = ctx.weight(op_name(self) + "_requant", table.reshape(1, len(m), 1, -1))
        self.multiplier = self.rshift = None

    # local memory

    @override
    def compact_operands(self, chip: ChipSpec) -> tuple[int, ...]:
        """The table, if it has two words per channel (hardware.md 2.3)."""
        del chip
        return (1,) if shape_of(self.table)[-1] == PACKED_WORDS else ()

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The same window of the input; of the table the same channels with all their words."""
        if operand == 0 or axis == "c":
            return window
        return (0, shape_of(self.table)[-1]) if axis == "w" else (0, 1)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """RQ rq1, which reads one row of the table per channel."""
        ctx.emit(isa.ChannelRescale, input=ctx.input(0), table=ctx.input(1), output=ctx.output())


def requantised_axis(
    ctx: LoweringContext, op: TopOp, accumulators: SSAValue, multiplier: np.ndarray, rshift: np.ndarray
) -> SSAValue:
    """Build the result of `op` from its int32 accumulators, with the op's name and stored type."""
    attributes: dict[str, Attribute] = {
        "multiplier": ints_attr(multiplier), "rshift": ints_attr(rshift),
        "quant_mode": requant_mode("MultiplierShift"), "round_mode": round_mode("HalfAwayFromZero"),
    }  # fmt: skip
    element, shape = ctx.quantised_type(op.results[0]), shape_of(accumulators)
    return ctx.build(TpuRequantIntAxis, [accumulators, ctx.none()], attributes, element, shape, op_name(op))
