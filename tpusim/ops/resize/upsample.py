"""`top.Upsample`, `tpu.Upsample`: every element repeated by whole factors."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import ClassVar

import msgspec
from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_operand_def, result_def

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.attrs import int_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import element_bytes, gmem_strides, lmem_strides
from tpusim.ops.framework.base import (
    Array,
    Axis,
    Builder,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    ShapedOp,
    SliceTable,
    TopOp,
    TpuOp,
    Window,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.contexts import ReorderContext
from tpusim.ops.framework.families import shorter_axes
from tpusim.ops.interfaces import (
    ChipSlicing,
    GroupRules,
    KernelLibrary,
    LibraryKernel,
    OperandSlices,
    Reorder,
    SliceTables,
)
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.resize.indices import IndexTable
from tpusim.ops.structure import TopWeight


def upsampled_shape(shape: Shape, factors: tuple[int, int]) -> Shape:
    """(n, c, h*fh, w*fw). Raises ValueError for another rank or factors below 1."""
    if len(shape) != 4 or min(factors) < 1:
        raise ValueError(f"an input (n, c, h, w) and factors of 1 or more are required, got {shape} and {factors}")
    return shape[0], shape[1], shape[2] * factors[0], shape[3] * factors[1]


def upsampled(x: Array, factors: tuple[int, int]) -> Array:
    """Every element repeated along h and w."""
    return moved(lambda m, x: m.repeat(m.repeat(x, factors[0], axis=2), factors[1], axis=3), x)


class Upsampling(ShapedOp):
    """Every element repeated scale_h x scale_w times, in both dialects."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    scale_h = attr_def(IntegerAttr)
    scale_w = attr_def(IntegerAttr)

    @property
    def factors(self) -> tuple[int, int]:
        """The factors along (h, w)."""
        return self.scale_h.value.data, self.scale_w.value.data

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (upsampled_shape(shape_of(self.input), self.factors),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (upsampled(operands[0], self.factors),)


@irdl_op_definition
class TopUpsample(Upsampling, TopOp):
    """`top.Upsample`: nearest neighbour by the whole factors scale_h and scale_w, input (n, c, h, w)."""

    name = "top.Upsample"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, scale_h: int, scale_w: int, name: str) -> SSAValue:
        """scale_h, scale_w: whole factors."""
        return builder.build(cls, [x], {"scale_h": int_attr(scale_h), "scale_w": int_attr(scale_w)}, name)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Upsample with the operand's stored type."""
        return lower_same_scale(self, ctx, TpuUpsample, dict(self.attributes))


@irdl_op_definition
class TpuUpsample(Upsampling, TpuOp, ChipSlicing, LibraryKernel, OperandSlices, Reorder, SliceTables):
    """`tpu.Upsample`: a byte move, the same stored type.

    indices: the table of `IndexTable`, (1, lanes, h, w) i16, in layer groups of chips that gather by it.
    """

    name = "tpu.Upsample"

    input = operand_def(TensorType)
    indices = opt_operand_def(TensorType)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """It always has a local form (layer_group.md 2)."""
        del chip

    @override
    def why_rather_global(self, chip: ChipSpec) -> str | None:
        """On chips that gather by a table: alone it is copied, which needs no table."""
        by_indices = rules(chip, KernelLibrary).UPSAMPLES_BY_INDICES
        return "alone it is copied without a table of indices" if by_indices else None

    @override
    def reorder_weights(self, ctx: ReorderContext) -> None:
        """Add the table for the whole result, on chips that gather by one."""
        if not rules(ctx.chip, KernelLibrary).UPSAMPLES_BY_INDICES or self.indices is not None:
            return
        _, _, h, w = shape_of(self.output)
        table = IndexTable(self.factors, ctx.chip.lanes).data(((0, h),), ((0, w),))
        self.operands = [self.input, ctx.weight(f"{op_name(self)}_indices", table)]

    @override
    def slice_table(self) -> SliceTable | None:
        """The table, whose indices count from the start of a slice."""
        return None if self.indices is None else IndexTable(self.factors, shape_of(self.indices)[1])

    @override
    def drop_local_constants(self) -> None:
        """Remove the table: a global layer copies."""
        if self.indices is None:
            return
        weight = self.indices.owner
        self.operands = [self.input]
        if isinstance(weight, TopWeight) and not weight.output.uses:
            weight.detach()
            weight.erase()

    @override
    def splits_weight(self, operand: int) -> bool:
        """The table has a part for every slice."""
        return operand == IndexTable.operand

    @override
    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: from o div k to (o + s - 1) div k (7.2)."""
        del operand
        if axis not in ("h", "w"):
            return window
        factor = self.factors["hw".index(axis)]
        first = window[0] // factor
        return first, (window[0] + window[1] - 1) // factor - first + 1

    @override
    def backward_slice_on(self, chip: ChipSpec, axis: Axis, window: Window, operand: int) -> Window | None:
        """None for windows that are not multiples of k, on chips that copy whole cells (7.2)."""
        factor = self.factors["hw".index(axis)] if axis in ("h", "w") else 1
        if rules(chip, GroupRules).WHOLE_UPSAMPLE and (window[0] % factor or window[1] % factor):
            return None
        return self.backward_slice(axis, window, operand)

    @override
    def emit(self, ctx: EmitContext) -> None:
        """A gather by the table, a function as a global layer, or a copy for each place of a cell of the factors."""
        if self.indices is not None and ctx.local:
            ctx.emit(isa.Pick, input=ctx.input(0), indices=ctx.input(1), output=ctx.output())
        elif rules(ctx.chip, KernelLibrary).UPSAMPLES_BY_INDICES and not ctx.local:
            function = functions.Upsample(*self.factors)
            ctx.emit(isa.Fn, function=function, inputs=(ctx.input(0),), output=ctx.output())
        else:
            self._emit_copies(ctx)

    def _emit_copies(self, ctx: EmitContext) -> None:
        """AR copies in local memory, GDMA copies in global memory."""
        (fh, fw), part, target = self.factors, ctx.output_slice(), ctx.output()
        strides = lmem_strides(target, ctx.chip) if target.laned else gmem_strides(target)
        unit = element_bytes(target)
        for (top, rows), (left, columns) in product(_places(part.h, fh), _places(part.w, fw)):
            source = ctx.input(0, h=rows, w=columns)
            place = msgspec.structs.replace(
                target, address=target.address + (top * strides[2] + left * strides[3]) * unit,
                shape=source.shape, layout="strided",
                strides=(*strides[:2], strides[2] * fh, strides[3] * fw),
            )  # fmt: skip
            if ctx.local:
                ctx.emit(isa.Arith, kind="copy", a=source, output=place)
            else:
                ctx.move(*shorter_axes(source, place))


def _places(out: Window, factor: int) -> Iterator[tuple[int, Window]]:
    """(first place in an output window, operand window that is copied to it and to every factor-th place after)."""
    for cell in range(factor):
        first = (cell - out[0]) % factor
        count = -(-(out[1] - first) // factor)
        if count > 0:
            yield first, ((out[0] + first) // factor, count)
