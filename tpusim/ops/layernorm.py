"""LayerNorm, in float on every chip (numerics.md 11.2, 12)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from msgspec.structs import replace
from tpusim_kernels import norm as kernels
from tpusim_kernels.prim.floattable import POWERS, power_table
from typing_extensions import override
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, NoneType, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, result_def, var_operand_def
from xdsl.pattern_rewriter import RewritePattern

from tpusim.chips import ChipSpec
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import float_attr, int_attr, ints_attr, op_name, value_name
from tpusim.ir.types import element_of, shape_of, storage_dtype
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.region import View
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
    ShapedOp,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import checked_axis, float_operands, norm_work_bytes
from tpusim.ops.framework.logical import AXES, EVERY_TYPE, WHOLE
from tpusim.ops.interfaces import Reorder, Volumes
from tpusim.ops.patterns.affine import AffineOfOneElement
from tpusim.ops.structure import TopWeight


def layernorm_shape(op: Operation, axis: int) -> Shape:
    """The input's shape. Raises ValueError unless weight and bias broadcast to its axes from `axis` on.

    Weight and bias may have more axes, of length 1, before those, as in the chip's layout.
    """
    x = shape_of(op.operands[0])
    if not 0 <= axis < len(x):
        raise ValueError(f"an axis in [0, {len(x)}) is required, got {axis}")
    for value in op.operands[1:3]:
        wanted = (1,) * axis + x[axis:]
        if not is_none(value) and np.broadcast_shapes(shape_of(value), wanted) != wanted:
            raise ValueError(f"weight and bias must broadcast to {x[axis:]}, got {shape_of(value)}")
    return x


class LayerNorm(ShapedOp):
    """(x - mean)/sqrt(variance + eps)*weight + bias over the axes from `axis` on, with the biased variance."""

    input = operand_def(TensorType)
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    eps = attr_def(FloatAttr)

    @override
    def derived(self, name: str) -> Attribute | None:
        """`normalized_shape`: the extents of the axes from `axis` on."""
        stated = name == "normalized_shape" and self.operands and isinstance(self.attributes.get("axis"), IntegerAttr)
        return ints_attr(shape_of(self.operands[0])[self.axis.value.data :]) if stated else None

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (layernorm_shape(self, self.axis.value.data),)


@irdl_op_definition
class TopLayerNorm(LayerNorm, TopOp):
    """`top.LayerNorm`: normalisation over the axes from `axis` on, in f32."""

    name = "top.LayerNorm"
    SPEC: ClassVar[tuple[str, ...]] = ("11.2", "12.1")

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A scale and bias of one element are left out."""
        return (AffineOfOneElement(weights, cls),)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, weight: SSAValue | None = None, bias: SSAValue | None = None, *,
        axis: int = -1, eps: float = 1e-5, name: str,
    ) -> SSAValue:  # fmt: skip
        """weight, bias: broadcast to the axes from `axis` on. A negative axis counts from the end."""
        axis = checked_axis(axis, shape_of(x))
        absent = builder.none()
        operands = [x, *(absent if value is None else value for value in (weight, bias))]
        return builder.build(cls, operands, {"axis": int_attr(axis), "eps": float_attr(eps)}, name)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (kernels.layernorm_float(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)

    @override
    def flops(self) -> int:
        """Nine steps per element: two sums, difference, square, product, weight, bias and the root (DN-27)."""
        return 9 * prod(shape_of(self.output))

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        if ctx.float_mode(self) == "f16":
            ctx.decision(self, "DN-21")
        operands = float_operands(self, ctx)
        if ctx.chip.hardware.float_tables:
            operands += table_weights(ctx, op_name(self), power_table(POWERS["RSQRT"]))
        attributes: dict[str, Attribute] = {"axis": self.axis, "eps": self.eps}
        return ctx.build(TpuLayerNorm, operands, attributes, ctx.float_type(self), shape_of(self.output), op_name(self))


class RowsNormalisedTpu(TpuOp, Reorder, Volumes):
    """A norm of the axes from `first_axis` on: each sample of the axes before them is normalised separately."""

    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = EVERY_TYPE

    @property
    def first_axis(self) -> int:
        """The first axis that is normalised."""
        raise NotImplementedError

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Give constants the input's rank, so that their elements lie in the same lanes as those of the input."""
        rank = len(shape_of(self.operands[0]))
        for index in self.COMPACT_OPERANDS:
            value = self.operands[index]
            data = None if is_none(value) else ctx.array(value)
            if data is not None and data.ndim < rank:
                shape = (1,) * (rank - data.ndim) + data.shape
                self.operands[index] = ctx.weight(f"{value_name(value)}_rank{rank}", data.reshape(shape))

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local from axis 1 or later, up to rank 5, with constant weight and bias (layer_group.md 2)."""
        if chip.is_global(self.name):
            return f"the norm has no local form on {chip.name}"
        rank, axis = len(shape_of(self.operands[0])), self.first_axis
        if axis < 1 or rank > 5:
            return f"a norm of rank {rank} from axis {axis} on; local are axes 1 to 4"
        for value in (self.operands[index] for index in self.COMPACT_OPERANDS):
            if not is_none(value) and (not isinstance(value.owner, TopWeight) or len(shape_of(value)) != rank):
                return "weight or bias is not constant"
        return None

    @override
    def wants_3d(self) -> bool:
        """Five axes make a 3D group (layer_group.md 3)."""
        return len(shape_of(self.operands[0])) == 5

    def view_axis(self, kind: GroupType) -> int | None:
        """The first axis as one of (n, c, h, w) in local memory; None if d, which is a part of n, is normalised."""
        rank, axis = len(shape_of(self.operands[0])), self.first_axis
        if kind is GroupType.SMALL_C:
            return 2 if axis == rank - 1 else None
        if kind is GroupType.GROUP_3D and rank == 5:
            return axis - 1 if axis > 2 else None
        return axis if axis < 4 else None

    @override
    def why_not_in(self, kind: GroupType, chip: ChipSpec) -> str | None:
        """SMALL_C and MM groups take the last axis only, 3D groups h or w; NORMAL groups see axes 3 and 4 as one."""
        rank, axis = len(shape_of(self.operands[0])), self.first_axis
        last_only = kind in (GroupType.SMALL_C, GroupType.MM) and axis != rank - 1
        if last_only or self.view_axis(kind) is None:
            return f"a norm of rank {rank} from axis {axis} on has no form in {kind} groups"
        return super().why_not_in(kind, chip)

    @override
    def can_slice_in(self, axis: Axis, kind: GroupType) -> bool:
        """The axes before the first that is normalised; in SMALL_C groups the first two (layer_group.md 4)."""
        if kind is GroupType.SMALL_C:
            return axis in ("n", "c")
        order = AXES if kind is GroupType.GROUP_3D and len(shape_of(self.operands[0])) == 5 else ("n", "c", "h", "w")
        return axis in order[: self.first_axis]

    @override
    def can_slice(self, axis: Axis) -> bool:
        return self.can_slice_in(axis, GroupType.NORMAL)

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The window of the input; weight and bias are needed whole."""
        del axis
        return window if operand == 0 else WHOLE

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        del inputs
        return norm_work_bytes(output, chip)

    def rows_of(self, ctx: EmitContext, axis: int) -> tuple[View, ...]:
        """The operands that are given; in local memory, weight and bias have the input's axes from `axis` on.

        Modules of TPU-MLIR have them without the axes before, so that their elements lie one after another along n.
        Raises UnsupportedError if they lie in other lanes than the input's.
        """
        views = {i: ctx.input(i) for i, v in enumerate(self.operands) if not is_none(v)}
        row = (1,) * axis + views[0].shape[axis:]
        for i in views.keys() & {*self.COMPACT_OPERANDS} if ctx.local else ():
            view = views[i]
            if view.elements == prod(row) and view.shape != row:
                if view.shape[1] != 1 or row[1] != 1:
                    required = f"constants with the rank of the input, {len(shape_of(self.operands[0]))}, are required"
                    raise UnsupportedError(f"{self.name} '{op_name(self)}': {required} for a norm over the channels")
                views[i] = replace(view, shape=row)
        return tuple(views.values())


@irdl_op_definition
class TpuLayerNorm(LayerNorm, RowsNormalisedTpu):
    """`tpu.LayerNorm`: in f32 with one rounding at the output (DN-21), or with every step rounded to BF16 (11.2).

    tables: exponent and mantissa entries of x^-0.5 on a chip that computes the root by tables, else empty.
    """

    name = "tpu.LayerNorm"
    COMPACT_OPERANDS: ClassVar[tuple[int, ...]] = (1, 2)

    input = operand_def(TensorType)  # these again, because inherited operands come last
    weight = operand_def(TensorType | NoneType)
    bias = operand_def(TensorType | NoneType)
    tables = var_operand_def(TensorType)

    @property
    @override
    def first_axis(self) -> int:
        return self.axis.value.data

    @property
    def _in_bf16(self) -> bool:
        return storage_dtype(element_of(self.output)).name == "bfloat16"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        if self.tables:
            return (kernels.layernorm_tables(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)
        compute = kernels.layernorm_bf16 if self._in_bf16 else kernels.layernorm_float
        return (compute(*operands, axis=self.axis.value.data, epsilon=self.eps.value.data),)

    @override
    def emit(self, ctx: EmitContext) -> None:
        axis = self.view_axis(ctx.group_type) if ctx.local else self.axis.value.data
        assert axis is not None  # why_not_in refuses such groups
        given = [i for i, v in enumerate(self.operands) if not is_none(v)]
        function = functions.LayerNorm(
            axis, self.eps.value.data, 1 in given, 2 in given, bf16_steps=self._in_bf16, tables=bool(self.tables)
        )
        ctx.emit(isa.Fn, function=function, inputs=self.rows_of(ctx, axis), output=ctx.output())
