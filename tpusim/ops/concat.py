"""Concatenation: `top.Concat` and `tpu.Concat`; operands of another scale are requantised first (numerics.md 9.0)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import jax.numpy as jnp
from tpusim_kernels.arith import mulshift_int
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, result_def, var_operand_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, int_attr, ints, op_name, value_name
from tpusim.ir.types import element_of, shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import activation_view, lmem_bytes
from tpusim.isa.region import View
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    TensorSlice,
    TopOp,
    TpuOp,
    Window,
    logical_shape,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import command_dtype, part_of, shorter_axes, value_dtype
from tpusim.ops.framework.logical import WITH_MM, GroupType
from tpusim.ops.interfaces import Joins, LibraryKernel, Margins, SharedWindows
from tpusim.ops.rescale import requantised

LOGICAL: tuple[Axis, ...] = ("n", "c", "h", "w")


def joined_shape(shapes: Sequence[Shape], axis: int) -> Shape:
    """The shape of shapes put together along `axis`. Raises ValueError if they differ elsewhere."""
    first = shapes[0]
    if not 0 <= axis < len(first):
        raise ValueError(f"an axis in [0, {len(first)}) is required, got {axis}")
    for shape in shapes[1:]:
        if len(shape) != len(first) or any(i != axis and a != b for i, (a, b) in enumerate(zip(first, shape))):  # noqa: B905 - the lengths were compared
            raise ValueError(f"operands equal outside axis {axis} are required, got {first} and {shape}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


@irdl_op_definition
class TopConcat(TopOp, Joins):
    """`top.Concat`: the operands one after the other along `axis`."""

    name = "top.Concat"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0", "5.6")
    RANGE: ClassVar[RangeRule] = RangeRule(unify=True, unify_skips_mixed_signs=True)

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, inputs: Sequence[SSAValue], *, axis: int = 1, name: str) -> SSAValue:
        """A negative axis counts from the end; one operand is the result itself."""
        rank = len(shape_of(inputs[0])) if inputs else 0
        if not -rank <= axis < rank:
            raise ValueError(f"an axis in [{-rank}, {rank}) is required, got {axis}")
        return inputs[0] if len(inputs) == 1 else builder.build(cls, inputs, {"axis": int_attr(axis % rank)}, name)

    def infer(self) -> tuple[Shape, ...]:
        """Extents added up along the axis."""
        return (joined_shape([shape_of(v) for v in self.inputs], self.axis.value.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Join the operands along the axis."""
        return (jnp.concatenate(list(operands), axis=self.axis.value.data),)

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Concat of operands brought to the output's scale, zero point and sign, or why not (a constant)."""
        operands = self._integer_operands(ctx)
        if isinstance(operands, str):
            return operands
        element = ctx.quantised_type(self.output)
        return ctx.build(TpuConcat, operands, {"axis": self.axis}, element, shape_of(self.output), op_name(self))

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Concat in the float type of the mode."""
        operands, element = [ctx.operand(v, ctx.float_mode(self), self) for v in self.inputs], ctx.float_type(self)
        return ctx.build(TpuConcat, operands, {"axis": self.axis}, element, shape_of(self.output), op_name(self))

    def _integer_operands(self, ctx: LoweringContext) -> list[SSAValue] | str:
        """The operands as the output's integers, or why that is not possible."""
        if ctx.quant(self.output) is None:
            return "the output is not calibrated"
        for value in self.inputs:
            if ctx.array(value) is not None:
                return f"operand '{value_name(value)}' is constant (numerics.md 12.1)"
            if ctx.quant(value) is None:
                return f"operand '{value_name(value)}' is not calibrated"
        found: dict[SSAValue, SSAValue] = {}
        for value in dict.fromkeys(self.inputs):  # one that is there twice is requantised once
            source = ctx.quant(value)
            assert source is not None  # asked above
            operand = requantised(ctx, self, ctx.operand(value, "int8", self), source, self.output)
            if operand is None:
                return f"the scale of operand '{value_name(value)}' is more than 126 times the output's"
            found[value] = operand
        return [found[value] for value in self.inputs]


@irdl_op_definition
class TpuConcat(TpuOp, LibraryKernel, SharedWindows):
    """`tpu.Concat`: a byte move; all operands have the output's stored type.

    With multipliers each operand is sat(RSR(q*m_i, r_i, HALF_UP)) first.
    """

    name = "tpu.Concat"
    ALONE: ClassVar[str] = "a concatenation"
    MARGINS: ClassVar[Margins] = "read"
    GROUP_TYPES: ClassVar[tuple[GroupType, ...]] = WITH_MM

    inputs = var_operand_def(TensorType)
    output = result_def(TensorType)
    axis = attr_def(IntegerAttr)
    multipliers = opt_attr_def(ArrayAttr)
    rshifts = opt_attr_def(ArrayAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @property
    def along(self) -> int:
        """The axis along which tensors are joined."""
        return self.axis.value.data

    def infer(self) -> tuple[Shape, ...]:
        """Extents added up along the axis, element types equal unless the operands are scaled."""
        if self.multipliers is None and any(element_of(v) != element_of(self.output) for v in self.inputs):
            raise ValueError("operands of the output's element type are required; requantise the others first")
        return (joined_shape([shape_of(v) for v in self.inputs], self.along),)

    @property
    def scaling(self) -> tuple[tuple[int, int], ...] | None:
        """(multiplier, right shift) of each operand, None where bytes are only moved."""
        if self.multipliers is None or self.rshifts is None:
            return None
        return tuple(zip(ints(self.multipliers), ints(self.rshifts), strict=True))

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Join the operands along the axis."""
        if self.scaling is not None:
            dtype = value_dtype(self.output)
            operands = [
                mulshift_int(x, m, r, 0, 0, out_dtype=dtype) for x, (m, r) in zip(operands, self.scaling, strict=True)
            ]
        return (jnp.concatenate(list(operands), axis=self.along),)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each operand begins along the axis."""
        sizes = [shape_of(v)[self.along] for v in self.inputs]
        return tuple(sum(sizes[:i]) for i in range(len(sizes)))

    def why_global(self, chip: ChipSpec) -> str | None:
        """Local along axes 1 to 3 of at most four (layer_group.md 2)."""
        del chip
        if len(shape_of(self.output)) > 4:
            return "rank above 4"
        return "the batch is joined" if self.along == 0 else None

    def why_rather_global(self, chip: ChipSpec) -> str | None:
        """Not where its operands are made in the result's bytes, which costs nothing (U-82).

        That is where they are one behind the other, and each is made for it alone.
        """
        behind = prod(shape_of(self.output)[: self.along]) == 1
        made = all(isinstance(v.owner, TpuOp) and v.has_one_use() for v in self.inputs)
        return None if behind and made else super().why_rather_global(chip)

    def can_slice(self, axis: Axis) -> bool:
        """Every axis may be cut but the one that is joined."""
        return axis != LOGICAL[min(self.along, 3)]

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The same window; along its own axis only the whole, which needs the whole operand."""
        if self.can_slice(axis):
            return window
        index = LOGICAL.index(axis)
        if window != (0, logical_shape(shape_of(self.output))[index]):
            return None
        return 0, logical_shape(shape_of(self.inputs[operand]))[index]

    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """Axis 1 with margins: out, else 0 (layer_group.md 9.3); a scaled operand on its way into the result."""
        if self.scaling is not None:
            return max(lmem_bytes(x.shape, "i8", chip) for x in inputs if x is not None)
        margins = any(x is not None and x.shape[2:] != output.shape[2:] for x in inputs)
        if self.along != 1 or not margins:
            return 0
        return lmem_bytes(output.shape, command_dtype(element_of(self.output)), chip)

    def emit(self, ctx: EmitContext) -> None:
        """Local: a lane copy per operand into its window of the result; global: a GDMA copy per operand.

        Batches that share words (4N) can only be joined by a macro command.
        """
        out = ctx.output()
        views = [ctx.input(i) for i in range(len(self.inputs))]
        if self.scaling is not None and not ctx.local:
            multipliers, rshifts = zip(*self.scaling, strict=True)
            function = functions.ConcatShift(self.along, multipliers, rshifts)
            ctx.emit(isa.Fn, function=function, inputs=tuple(views), output=out)
            return
        if not ctx.local and self.along == out.batch_axis and out.interleave > 1:
            ctx.emit(isa.Fn, function=functions.Concat(self.along), inputs=tuple(views), output=out)
            return
        for i, (view, offset) in enumerate(zip(views, self.offsets, strict=True)):
            view = self._scaled(ctx, i, view)
            part = part_of(out, self.along, offset, view.shape, ctx.chip)
            if ctx.local:
                ctx.emit(isa.LaneCopy, input=view, output=part)
            else:
                ctx.move(*shorter_axes(view, part))

    def _scaled(self, ctx: EmitContext, index: int, view: View) -> View:
        """An operand at the output's scale, in the work buffer where it has another one."""
        if self.scaling is None or self.scaling[index] == (1, 0):
            return view
        target = activation_view(ctx.buffer(), view.shape, view.dtype, ctx.chip)  # type: ignore[arg-type]
        ctx.emit(isa.Rescale, input=view, output=target, requant=isa.Requant(*self.scaling[index]))
        return target
