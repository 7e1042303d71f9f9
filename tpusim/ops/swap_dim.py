"""Cyclic shifts: `top.SwapDimInner` and `tpu.SwapDimInner`, the roll of shifted windows (numerics.md 9.0)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import msgspec
from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, ints, ints_attr
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa.layout import gmem_strides
from tpusim.isa.region import View
from tpusim.ops.concat import TopConcat
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    Axis,
    EmitContext,
    FloatRule,
    LoweringContext,
    Shape,
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.families import Unary, part_of, shorter_axes, value_dtype
from tpusim.ops.interfaces import ChipRewrites
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.slice import TopSlice

RANK = 4
"""Axes of a local SwapDimInner."""


class SwapDimInner(Unary):
    """The two parts of one axis, before and from `offset`, change places."""

    offset = attr_def(ArrayAttr)

    @property
    def swap(self) -> tuple[int, int]:
        """(axis, where its second part begins)."""
        return next((axis, offset) for axis, offset in enumerate(ints(self.offset)) if offset)

    @override
    def infer(self) -> tuple[Shape, ...]:
        """The operand's shape. Raises ValueError unless one axis has an offset inside its extent, the others 0."""
        shape, offsets = shape_of(self.input), ints(self.offset)
        inside = len(offsets) == len(shape) and all(0 <= o < size for o, size in zip(offsets, shape, strict=True))
        if not inside or sum(o > 0 for o in offsets) != 1:
            raise ValueError(f"an offset inside one axis of {shape} is required, 0 for the others, got {list(offsets)}")
        return (shape,)


@irdl_op_definition
class TopSwapDimInner(SwapDimInner, TopOp, ChipRewrites):
    """`top.SwapDimInner`: a cyclic shift along one axis."""

    name = "top.SwapDimInner"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    FLOAT: ClassVar[FloatRule] = NARROWEST
    MOVES: ClassVar[bool] = True

    @classmethod
    @override
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """A roll, as exporters write it."""
        del weights, chip
        return (ConcatToSwapDimInner(),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        axis, offset = self.swap
        return (moved(lambda m, x: m.roll(x, -offset, axis), operands[0]),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(self, ctx, TpuSwapDimInner, {"offset": self.offset})


@irdl_op_definition
class TpuSwapDimInner(SwapDimInner, TpuOp):
    """`tpu.SwapDimInner`: a byte move."""

    name = "tpu.SwapDimInner"

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The bytes, read as the type of the result."""
        axis, offset = self.swap
        rolled, dtype = moved(lambda m, x: m.roll(x, -offset, axis), operands[0]), value_dtype(self.output)
        return (rolled if value_dtype(self.input) == dtype else rolled.astype(dtype),)

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Local with four axes (layer_group.md 2)."""
        del chip
        rank = len(shape_of(self.input))
        return None if rank == RANK else f"rank {rank}; local are {RANK} axes"

    @override
    def can_slice(self, axis: Axis) -> bool:
        """Only the batch can be cut, unless it is shifted."""
        return axis == "n" and self.swap[0] != 0

    @override
    def emit(self, ctx: EmitContext) -> None:
        """Two copies: the first part of the axis to its end, then the second part to its beginning."""
        source = ctx.input(0)
        target = msgspec.structs.replace(ctx.output(), dtype=source.dtype)
        axis, offset = self.swap
        size = source.shape[axis]
        for begin, place, count in ((0, size - offset, offset), (offset, 0, size - offset)):
            shape = (*source.shape[:axis], count, *source.shape[axis + 1 :])
            part, into = part_of(source, axis, begin, shape, ctx.chip), part_of(target, axis, place, shape, ctx.chip)
            if ctx.local:
                ctx.emit(isa.LaneCopy, input=part, output=into)
            else:
                ctx.move(*shorter_axes(*(_rows(view, axis) for view in (part, into))), kind="rows")


def _rows(view: View, axis: int) -> View:
    """A part of a tensor over three axes: the axes before `axis`, `axis`, the axes after it. Packed batches stay."""
    if view.interleave > 1:
        return view
    strides, shape = gmem_strides(view), view.shape
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    return msgspec.structs.replace(
        view, shape=(outer, shape[axis], inner), strides=(strides[axis - 1] if axis else 0, strides[axis], 1)
    )


# ------------------------------------------------------------------------------------------------------------ rewrites


@dataclass
class ConcatToSwapDimInner(RewritePattern):
    """Concat of the second and the first part of one tensor along an axis: SwapDimInner."""

    first_axis: int = 0
    """The first axis that the chip can shift."""
    rank: int | None = None
    """The most axes that the chip can shift, None for any number."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Concat; the Slices may stay if others read them."""
        if not isinstance(op, TopConcat) or len(op.inputs) != 2:  # noqa: PLR2004  two parts
            return
        second, first = (v.owner for v in op.inputs)
        if not isinstance(second, TopSlice) or not isinstance(first, TopSlice) or second.input is not first.input:
            return
        shape, axis = shape_of(first.input), op.axis.value.data
        at = shape_of(first.output)[axis]
        if axis < self.first_axis or len(shape) > (self.rank or len(shape)):
            return
        offsets = tuple(at if i == axis else 0 for i in range(len(shape)))
        cuts = [(s.cut[:2], shape_of(s.output)) for s in (second, first)]
        steps = (1,) * len(shape)
        parts = [
            ((begin, steps), (*shape[:axis], count, *shape[axis + 1 :]))
            for begin, count in ((offsets, shape[axis] - at), ((0,) * len(shape), at))
        ]
        if cuts != parts:
            return
        new = TopSwapDimInner.create(
            operands=[first.input], result_types=[op.output.type], attributes={"offset": ints_attr(offsets)}
        )
        copy_name(new, op)
        rewriter.replace(op, new)
        for part in (second, first):
            if not part.output.uses:
                rewriter.erase(part)
