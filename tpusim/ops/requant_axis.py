"""`tpu.RequantIntAxis`: the requant of int32 accumulators by one multiplier, shift and zero point per channel.

It follows an INT8 Deconv or Conv3D on chips with requant multipliers (numerics.md 6, 9.1). Lowering packs multipliers,
shifts and zero point into the words that the chip reads, three or two per channel (DN-10). In modules of earlier
releases multipliers and shifts are attributes until weight-reorder.
"""

from collections.abc import Sequence

import numpy as np
from tpusim_kernels import arith as kernels
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, NoneType, TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.modes import RequantModeAttr, RoundModeAttr, requant_mode, round_mode
from tpusim.ir.types import UniformType, shape_of
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

TABLE = "_requant"
"""The end of the table's name, after that of its op."""
PACKED_WORDS = 2
"""Words per channel if shift and zero point share one; such a table is compact in local memory (hardware.md 2.3)."""


@irdl_op_definition
class TpuRequantIntAxis(ElementwiseTpu, PackedWeights, Reorder):
    """`tpu.RequantIntAxis`: sat(z_out + RSR(q*m[c], r[c], HALF_AWAY)), channels on axis 1.

    input: int32 (n, c, ...). table: int32 (1, c, 1, words), or `none` with multiplier and rshift, one per channel.
    quant_mode and round_mode are the same for all.
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
        """Multiplier and shift, or the table."""
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
        m, r = self.unpacked(np.asarray(table)) if table is not None else self.constants()
        y = kernels.requant_int(x, m, r, 0, zero_point(self.output), out_dtype=value_dtype(self.output))
        return (y,)

    def constants(self) -> tuple[np.ndarray, np.ndarray]:
        """The multipliers and right shifts of the channels (int64) of a module before weight-reorder."""
        assert self.multiplier is not None and self.rshift is not None  # until weight-reorder
        return np.array(ints(self.multiplier), np.int64), np.array(ints(self.rshift), np.int64)

    def unpacked(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The multipliers and right shifts of the channels (int64) in a table of weight-reorder."""
        words = table.reshape(table.shape[1], -1)
        left = words[:, 1]
        if words.shape[1] == PACKED_WORDS:
            left = (left & 0xFFFF).astype(np.uint16).view(np.int16)
        return words[:, 0].astype(np.int64), -left.astype(np.int64)

    @override
    def needs_concrete_weights(self) -> bool:
        """Whether the table is packed: it is unpacked on the host."""
        return isinstance(self.table.type, TensorType)

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Pack multipliers and shifts that are attributes."""
        if is_none(self.table):
            table = packed_table(*self.constants(), zero_point(self.output), ctx.chip)
            self.operands[1] = ctx.weight(op_name(self) + TABLE, table)
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


def packed_table(m: np.ndarray, r: np.ndarray, zero: int, chip: ChipSpec) -> np.ndarray:
    """(m, -r, z), or (m, -r in the low half and z in the high half), as int32 (1, c, 1, words) (numerics.md 6)."""
    m, r, z = m.astype(np.int64), r.astype(np.int64), np.full(len(m), zero, np.int64)
    words = [m, -r, z] if chip.requant_words > PACKED_WORDS else [m, (-r & 0xFFFF) | (z & 0xFFFF) << 16]
    table = np.stack(words, axis=1).astype(np.uint64).astype(np.uint32).view(np.int32)
    return table.reshape(1, len(m), 1, -1)


def requantised_axis(
    ctx: LoweringContext, op: TopOp, accumulators: SSAValue, multiplier: np.ndarray, rshift: np.ndarray
) -> SSAValue:
    """Build the result of `op` from its int32 accumulators, with the op's name and stored type."""
    attributes: dict[str, Attribute] = {
        "quant_mode": requant_mode("MultiplierShift"), "round_mode": round_mode("HalfAwayFromZero"),
    }  # fmt: skip
    element, shape = ctx.quantised_type(op.results[0]), shape_of(accumulators)
    zero = element.zero_point.value.data if isinstance(element, UniformType) else 0
    table = ctx.weight(op_name(op) + TABLE, packed_table(multiplier, rshift, zero, ctx.chip))
    return ctx.build(TpuRequantIntAxis, [accumulators, table], attributes, element, shape, op_name(op))
