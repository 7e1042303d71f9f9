"""Repetition: `top.Tile` and `tpu.Tile` (numerics.md 9.0)."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import ints, ints_attr
from tpusim.ir.types import element_of, shape_of, storage_element, stored_bytes
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import gmem_strides
from tpusim.isa.region import View
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import Unary, broadcast_shape, shorter_axes
from tpusim.ops.interfaces import GlobalBuffer, Room
from tpusim.ops.rescale import lower_as_stored
from tpusim.ops.view import TopReshape


def tiled_shape(shape: Shape, times: tuple[int, ...]) -> Shape:
    """The repeated extents. Raises ValueError unless `times` has a count of 1 or more for each axis."""
    if len(times) != len(shape) or min(times, default=1) < 1:
        raise ValueError(f"{len(shape)} repeats of 1 or more are required for {shape}, got {list(times)}")
    return tuple(size * count for size, count in zip(shape, times, strict=True))


class Tile(Unary):
    """The operand repeated `tile` times along every axis."""

    tile = attr_def(ArrayAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (tiled_shape(shape_of(self.input), ints(self.tile)),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (moved(lambda m, x: m.tile(x, ints(self.tile)), operands[0]),)


@irdl_op_definition
class TopTile(Tile, TopOp):
    """`top.Tile`: the operand repeated `tile` times along every axis."""

    name = "top.Tile"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)
    MOVES: ClassVar[bool] = True

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, tile: Sequence[int], name: str) -> SSAValue:
        """tile: repetitions along every axis. Without any, the result is the operand."""
        if all(times == 1 for times in tile) and len(tile) == len(shape_of(x)):
            return x
        return builder.build(cls, [x], {"tile": ints_attr(tile)}, name)

    @classmethod
    @names_op
    def broadcast(cls, builder: Builder, x: SSAValue, *, shape: Sequence[int], name: str) -> SSAValue:
        """Broadcast the operand with a shape: add leading axes of length 1, then repeat."""
        target = broadcast_shape([shape_of(x), tuple(shape)])
        full = (1,) * (len(target) - len(shape_of(x))) + shape_of(x)
        tile = [b // a for a, b in zip(full, target, strict=True)]
        if full != shape_of(x):
            last = all(times == 1 for times in tile)
            x = TopReshape.make(builder, x, shape=full, name=name if last else f"{name}_reshape")
        return cls.make(builder, x, tile=tile, name=name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Remove a Tile before an op that broadcasts."""
        del weights
        return (TopFuseTile(),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_as_stored(self, ctx, TpuTile, {"tile": self.tile})


@irdl_op_definition
class TpuTile(Tile, TpuOp, GlobalBuffer):
    """`tpu.Tile`: a byte move, the same stored type."""

    name = "tpu.Tile"

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "repetition runs in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One GDMA copy that reads with stride 0 along the repetitions; a macro command for packed batches.

        The library gathers one axis after the other.
        """
        source, target, times = ctx.input(0), ctx.output(), ints(self.tile)
        if target.interleave > 1 and times[0] > 1:
            ctx.emit(isa.Fn, function=functions.Tile(times), inputs=(source,), output=target)
            return
        ctx.move(*shorter_axes(*repeated(source, target, times)), kind="repeats")

    @override
    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """As many elements as the result has bytes, by the fewest repetitions of an axis, if several axes repeat."""
        del chip
        times = ints(self.tile)
        if sum(count > 1 for count in times) <= 1:
            return None
        return Room((stored_bytes(self.output) // min(times),), storage_element(element_of(self.input)))


def repeated(source: View, target: View, times: tuple[int, ...]) -> tuple[View, View]:
    """Both views with one more axis before every repeated axis: the repetitions."""
    sizes: list[int] = []
    reads: list[int] = []
    writes: list[int] = []
    for size, count, read, write in zip(source.shape, times, gmem_strides(source), gmem_strides(target), strict=True):
        if count > 1:
            sizes.append(count)
            reads.append(0)
            writes.append(size * write)
        sizes.append(size)
        reads.append(read)
        writes.append(write)
    made = (
        msgspec.structs.replace(view, shape=tuple(sizes), layout="strided", strides=tuple(strides))
        for view, strides in ((source, reads), (target, writes))
    )
    return next(made), next(made)


class TopFuseTile(RewritePattern):
    """Tile of axes of length 1 -> Add, Sub, Mul, Min or Max: the Tile goes, because the op broadcasts."""

    BROADCAST: ClassVar[tuple[str, ...]] = ("top.Add", "top.Sub", "top.Mul", "top.Min", "top.Max")

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the op that broadcasts; its result must keep its shape."""
        if op.name not in self.BROADCAST:
            return
        for index, value in enumerate(op.operands):
            tile = value.owner
            if not isinstance(tile, TopTile) or not _repeats_ones(tile):
                continue
            values = [tile.input if i == index else v for i, v in enumerate(op.operands)]
            if broadcast_shape([shape_of(v) for v in values]) == shape_of(op.results[0]):
                op.operands[index] = tile.input
                rewriter.notify_op_modified(op)
                return


def _repeats_ones(tile: TopTile) -> bool:
    return all(times == 1 or size == 1 for size, times in zip(shape_of(tile.input), ints(tile.tile), strict=True))
