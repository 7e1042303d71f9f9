"""LayerNorm, in float on every chip (numerics.md 11.2, 12)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import norm as kernels
from tpusim_kernels.prim.floattable import POWERS, power_table
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def, var_operand_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, float_attr, int_attr, op_name, value_name
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.ops.activation.lut_bf16 import table_weights
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    GroupType,
    LoweringContext,
    ReorderContext,
    Shape,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import norm_work_bytes
from tpusim.ops.framework.logical import AXES, EVERY_TYPE, WHOLE
from tpusim.ops.interfaces import Reorder, Volumes
from tpusim.ops.structure import TopWeight


def layernorm_shape(op: Operation, axis: int) -> Shape:
    """The input's shape. Raises ValueError unless weight and bias broadcast to its axes from `axis` on.

    They may have axes of length 1 before those, as the chip's layout does.
    """
    x = shape_of(op.operands[0])
    if not 0 <= axis < len(x):
        raise ValueError(f"an axis in [0, {len(x)}) is required, got {axis}")
    for value in op.operands[1:3]:
        wanted = (1,) * axis + x[axis:]
        if not is_none(value) and np.broadcast_shapes(shape_of(value), wanted) != wanted:
            raise ValueError(f"weight and bias must broadcast to {x[axis:]}, got {shape_of(value)}")
    return x


@irdl_op_definition
class TopLayerNorm(TopOp):
    """`top.LayerNorm`: (x - mean)/sqrt(variance + eps)*weight + bias over the axes from `axis` on, biased variance."""

    name = "top.LayerNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("11.2", "12.1")

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    eps = attr_def(FloatAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, weight: SSAValue | None = None, bias: SSAValue | None = None, *,
        axis: int = -1, eps: float = 1e-5, name: str,
    ) -> SSAValue:  # fmt: skip
        """Weight and bias: of the axes from `axis` on, which counts from the end if it is negative."""
        rank = len(shape_of(x))
        if not -rank <= axis < rank:
            raise ValueError(f"an axis in [{-rank}, {rank}) is required, got {axis}")
        absent = builder.none()
        operands = [x, *(absent if value is None else value for value in (weight, bias))]
        return builder.build(cls, operands, {"axis": int_attr(axis % rank), "eps": float_attr(eps)}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the input's shape."""
        return (layernorm_shape(self, self.axis.value.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in f32."""
        return (kernels.layernorm_float(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)

    def flops(self) -> int:
        """Nine steps per element: two sums, difference, square, product, weight, bias and the root (DN-27)."""
        return 9 * prod(shape_of(self.output))

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.LayerNorm in float in every mode."""
        mode = ctx.float_mode(self)
        if mode == "f16":
            ctx.decision(self, "DN-21")
        operands = [ctx.none() if is_none(v) else ctx.operand(v, mode, self) for v in self.operands]
        if ctx.chip.float_tables:
            operands += table_weights(ctx, op_name(self), power_table(POWERS["RSQRT"]))
        attributes: dict[str, Attribute] = {"axis": self.axis, "eps": self.eps}
        return ctx.build(TpuLayerNorm, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


class RowsNormalisedTpu(TpuOp, Reorder, Volumes):
    """Where the norm of the axes from one on can be: each sample of the axes before them by itself."""

    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    @property
    def first_axis(self) -> int:
        """The first of the axes that are normalised."""
        raise NotImplementedError

    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Constants get the input's rank, so that their elements lie where those of the input do."""
        rank = len(shape_of(self.operands[0]))
        for index in self.COMPACT_OPERANDS:
            value = self.operands[index]
            data = None if is_none(value) else ctx.array(value)
            if data is not None and data.ndim < rank:
                shape = (1,) * (rank - data.ndim) + data.shape
                self.operands[index] = ctx.weight(f"{value_name(value)}_rank{rank}", data.reshape(shape))

    def why_global(self, chip: ChipSpec) -> str | None:
        """Local along axes from 1 on, up to rank 5, with constant weight and bias (layer_group.md 2)."""
        if chip.is_global(self.name):
            return f"the norm has no local form on {chip.name}"
        rank, axis = len(shape_of(self.operands[0])), self.first_axis
        if axis < 1 or rank > 5:
            return f"a norm of rank {rank} from axis {axis} on; local are axes 1 to 4"
        for value in (self.operands[index] for index in self.COMPACT_OPERANDS):
            if not is_none(value) and (not isinstance(value.owner, TopWeight) or len(shape_of(value)) != rank):
                return "weight or bias is not constant"
        return None

    def wants_3d(self) -> bool:
        """Five axes make a 3D group (layer_group.md 3)."""
        return len(shape_of(self.operands[0])) == 5

    def view_axis(self, kind: GroupType) -> int | None:
        """Its axis among (n, c, h, w) as local memory has them; None where d, which lies with n, would be in it."""
        rank, axis = len(shape_of(self.operands[0])), self.first_axis
        if kind is GroupType.SMALL_C:
            return 2 if axis == rank - 1 else None
        if kind is GroupType.GROUP_3D and rank == 5:
            return axis - 1 if axis > 2 else None
        return axis if axis < 4 else None

    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """SMALL_C and MM: the last axis only; 3D: h or w; NORMAL sees axes 3 and 4 as one."""
        rank, axis = len(shape_of(self.operands[0])), self.first_axis
        last_only = kind in (GroupType.SMALL_C, GroupType.MM) and axis != rank - 1
        if last_only or self.view_axis(kind) is None:
            return f"a norm of rank {rank} from axis {axis} on has no form in {kind} groups"
        return super().why_not_in(kind, chip)

    def can_slice_in(self, axis: Axis, kind: GroupType) -> bool:
        """The axes before its own; SMALL_C: the first two (layer_group.md 4)."""
        if kind is GroupType.SMALL_C:
            return axis in ("n", "c")
        order = AXES if kind is GroupType.GROUP_3D and len(shape_of(self.operands[0])) == 5 else ("n", "c", "h", "w")
        return axis in order[: self.first_axis]

    def can_slice(self, axis: Axis) -> bool:
        """The answer for a NORMAL group; other types ask `can_slice_in`."""
        return self.can_slice_in(axis, GroupType.NORMAL)

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The input's window is the result's; weight and bias, which have the axes from its own on, are whole."""
        del axis
        return window if operand == 0 else WHOLE

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Two f32 work copies and two per-channel scalars (layer_group.md DL-05)."""
        del inputs
        return norm_work_bytes(output, chip)


@irdl_op_definition
class TpuLayerNorm(RowsNormalisedTpu):
    """`tpu.LayerNorm`: f32 with one rounding at the output (DN-21), or every step rounded to BF16 (11.2).

    tables: exponent and mantissa entries of x^-0.5, on a chip that finds the root by table; else none.
    """

    name = "tpu.LayerNorm"
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    tables = var_operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    eps = attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the input's shape."""
        return (layernorm_shape(self, self.axis.value.data),)

    @property
    def first_axis(self) -> int:
        """The axis that the op gives."""
        return self.axis.value.data

    @property
    def _in_bf16(self) -> bool:
        return storage_dtype(element_of(self.output)).name == "bfloat16"

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """By tables, else by the output's type."""
        if self.tables:
            return (kernels.layernorm_tables(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)
        compute = kernels.layernorm_bf16 if self._in_bf16 else kernels.layernorm_float
        return (compute(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)

    def emit(self, ctx: EmitContext) -> None:
        """Emit Fn `layernorm`, in steps of BF16 for that type, by tables where it has them."""
        axis = self.view_axis(ctx.group_type) if ctx.local else self.axis.value.data
        assert axis is not None  # held by why_not_in
        given = [i for i, v in enumerate(self.operands) if not is_none(v)]
        function = functions.LayerNorm(
            axis, self.eps.value.data, 1 in given, 2 in given, bf16_steps=self._in_bf16, tables=bool(self.tables)
        )
        ctx.emit(isa.Fn, function=function, inputs=tuple(ctx.input(i) for i in given), output=ctx.output())
