"""Concatenation: `top.Concat` and `tpu.Concat`, of operands requantised to the output's scale (numerics.md 9.0)."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

from tpusim_kernels.arith import mulshift_int
from tpusim_kernels.movement import joined
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def, result_def, var_operand_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import int_attr, ints, value_name
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
from tpusim.ops.framework.families import (
    built_in_float,
    built_in_integers,
    checked_axis,
    command_dtype,
    part_of,
    shorter_axes,
    value_dtype,
)
from tpusim.ops.framework.logical import WITH_MM, GroupType
from tpusim.ops.interfaces import Joins, LibraryKernel, Margins, SharedWindows
from tpusim.ops.rescale import lowered_once, requantised_operand

LOGICAL: tuple[Axis, ...] = ("n", "c", "h", "w")


def joined_shape(shapes: Sequence[Shape], axis: int) -> Shape:
    """The shape of tensors joined along `axis`. Raises ValueError if they differ along another axis."""
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
        """A negative axis counts from the end. The result of a single operand is the operand."""
        axis = checked_axis(axis, shape_of(inputs[0]) if inputs else ())
        return inputs[0] if len(inputs) == 1 else builder.build(cls, inputs, {"axis": int_attr(axis)}, name)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (joined_shape([shape_of(v) for v in self.inputs], self.axis.value.data),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (joined(operands, self.axis.value.data),)

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Concat of operands with the output's scale, zero point and sign, or why that is not possible."""
        operands = self._integer_operands(ctx)
        if isinstance(operands, str):
            return operands
        return built_in_integers(self, ctx, TpuConcat, operands, {"axis": self.axis})

    @override
    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        return built_in_float(self, ctx, TpuConcat, {"axis": self.axis})

    def _integer_operands(self, ctx: LoweringContext) -> list[SSAValue] | str:
        """The operands as the output's integers, or why that is not possible."""
        if ctx.quant(self.output) is None:
            return "the output is not calibrated"
        for value in self.inputs:
            if ctx.array(value) is not None:
                return f"operand '{value_name(value)}' is constant (numerics.md 12.1)"
            if ctx.quant(value) is None:
                return f"operand '{value_name(value)}' is not calibrated"
        return lowered_once(self.inputs, lambda value: requantised_operand(ctx, self, value))


@irdl_op_definition
class TpuConcat(TpuOp, LibraryKernel, SharedWindows):
    """`tpu.Concat`: a byte move of operands that have the output's stored type.

    With multipliers each operand first becomes sat(RSR(q*m_i, r_i, HALF_UP)).
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

    @property
    def along(self) -> int:
        """The axis along which the operands are joined."""
        return self.axis.value.data

    @override
    def take_form(self) -> str:
        """TPU-MLIR states factors of 1 where bytes are only moved."""
        moved = all(element_of(value) == element_of(self.output) for value in self.inputs)
        if moved and self.scaling is not None and set(self.scaling) == {(1, 0)}:
            self.multipliers = self.rshifts = None
        return super().take_form()

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The joined shape. Raises ValueError for operands of another element type that are not scaled."""
        if self.multipliers is None and any(element_of(v) != element_of(self.output) for v in self.inputs):
            raise ValueError("operands of the output's element type are required; requantise the others first")
        return (joined_shape([shape_of(v) for v in self.inputs], self.along),)

    @property
    def scaling(self) -> tuple[tuple[int, int], ...] | None:
        """(multiplier, right shift) of each operand; None if bytes are only moved."""
        if self.multipliers is None or self.rshifts is None:
            return None
        return tuple(zip(ints(self.multipliers), ints(self.rshifts), strict=True))

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        if self.scaling is not None:
            dtype = value_dtype(self.output)
            operands = [
                mulshift_int(x, m, r, 0, 0, out_dtype=dtype) for x, (m, r) in zip(operands, self.scaling, strict=True)
            ]
        return (joined(operands, self.along),)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each operand begins along the axis."""
        sizes = [shape_of(v)[self.along] for v in self.inputs]
        return tuple(sum(sizes[:i]) for i in range(len(sizes)))

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local along axis 1, 2 or 3 of at most four axes (layer_group.md 2)."""
        del chip
        if len(shape_of(self.output)) > 4:
            return "rank above 4"
        return "the batch is joined" if self.along == 0 else None

    @override
    def why_rather_global(self, chip: ChipSpec) -> str | None:
        """Not if the operands are computed directly into the bytes of the result, which costs nothing (U-82).

        That is possible if each operand is contiguous in the result, and nothing else reads it.
        """
        contiguous = prod(shape_of(self.output)[: self.along]) == 1
        only_joined = all(isinstance(v.owner, TpuOp) and v.has_one_use() for v in self.inputs)
        return None if contiguous and only_joined else super().why_rather_global(chip)

    @override
    def can_slice(self, axis: Axis) -> bool:
        """Every axis can be cut except the joined axis."""
        return axis != LOGICAL[min(self.along, 3)]

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """The same window; along the joined axis the whole result needs the whole operand."""
        if self.can_slice(axis):
            return window
        index = LOGICAL.index(axis)
        if window != (0, logical_shape(shape_of(self.output))[index]):
            return None
        return 0, logical_shape(shape_of(self.inputs[operand]))[index]

    @override
    def buffer_bytes(self, chip: ChipSpec, output: TensorSlice, inputs: Sequence[TensorSlice | None]) -> int:
        """The largest scaled operand; without scaling, out along axis 1 with margins, else 0 (layer_group.md 9.3)."""
        if self.scaling is not None:
            return max(lmem_bytes(x.shape, "i8", chip) for x in inputs if x is not None)
        margins = any(x is not None and x.shape[2:] != output.shape[2:] for x in inputs)
        if self.along != 1 or not margins:
            return 0
        return lmem_bytes(output.shape, command_dtype(element_of(self.output)), chip)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Copy each operand into its window of the result: lanes in local memory, else by GDMA.

        A macro command joins batches that share words (4N).
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
        """An operand at the output's scale; an operand with another scale is requantised into the work area."""
        if self.scaling is None or self.scaling[index] == (1, 0):
            return view
        target = activation_view(ctx.buffer(), view.shape, view.dtype, ctx.chip)  # type: ignore[arg-type]
        ctx.emit(isa.Rescale, input=view, output=target, requant=isa.Requant(*self.scaling[index]))
        return target
