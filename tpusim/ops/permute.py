"""Transposition: `top.Permute` and `tpu.Permute`; a strided copy in global memory."""

from collections.abc import Sequence
from typing import ClassVar

from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.attrs import copy_name, ints, ints_attr
from tpusim.ir.module import is_returned
from tpusim.ir.pdl import DataPattern, Drawing
from tpusim.ir.types import element_of, shape_of, storage_element, stored_bytes
from tpusim.ir.weights import WeightStore
from tpusim.isa.transposition import keeps_order, transpositions
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    Builder,
    EmitContext,
    FloatRule,
    LoweringContext,
    RangeRule,
    Shape,
    TopOp,
    TpuOp,
    Way,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import Unary, shorter_axes
from tpusim.ops.framework.moves import permutation_map
from tpusim.ops.framework.views import turned
from tpusim.ops.interfaces import GlobalBuffer, KernelLibrary, LoweredRewrites, MovedByTransfers, Rearranges, Room
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.view import TpuReshape


class Permute(Unary):
    """Axis i of the result is axis order[i] of the operand."""

    order = attr_def(ArrayAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (permuted(shape_of(self.input), ints(self.order)),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (moved(lambda m, x: m.transpose(x, ints(self.order)), operands[0]),)


@irdl_op_definition
class TopPermute(Permute, TopOp):
    """`top.Permute`: axis i of the result is axis order[i] of the operand."""

    name = "top.Permute"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(forward_first=True, back_through=True, forward=True)
    MOVES: ClassVar[bool] = True

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, order: Sequence[int] | None = None, name: str) -> SSAValue:
        """order: the axis of the operand for each axis of the result; None reverses the axes."""
        rank = len(shape_of(x))
        order = tuple(range(rank - 1, -1, -1)) if order is None else tuple(order)
        return builder.build(cls, [x], {"order": ints_attr(order)}, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        del weights
        return (PermuteOfPermute(),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(self, ctx, TpuPermute, {"order": self.order})


class PermuteOfPermute(DataPattern):
    """Permute -> Permute: the second does both, and the first may stay. It runs before the import (U-20)."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        first = p.op("top.Permute", p.operand())
        p.rewrite(p.op("top.Permute", first), cls.permute_once, first)

    @classmethod
    def permute_once(cls, rewriter: PatternRewriter, op: TopPermute, first: TopPermute) -> None:
        """The second is removed if it undoes the first and is no result of the network."""
        before = ints(first.order)
        order = tuple(before[axis] for axis in ints(op.order))
        if order == tuple(range(len(order))) and not is_returned(op.output):
            rewriter.replace(op, [], [first.input])
            return
        op.operands[0] = first.input
        op.attributes["order"] = ints_attr(order)
        rewriter.notify_op_modified(op)


def permuted(shape: Shape, order: tuple[int, ...]) -> Shape:
    """The extents in the new order. Raises ValueError if `order` is no permutation of the axes."""
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"a permutation of {len(shape)} axes is required, got {list(order)}")
    return tuple(shape[axis] for axis in order)


@irdl_op_definition
class TpuPermute(Permute, TpuOp, LoweredRewrites, Rearranges, MovedByTransfers, GlobalBuffer):
    """`tpu.Permute`: a byte move, the same stored type."""

    name = "tpu.Permute"

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Remove Permutes that undo each other, which the lowering of products leaves; those of unit axes are views."""
        del weights
        # Chips that compute convolutions of patches as products permute the products.
        undone = (PermuteUndone(),) if chip.forms.patch_products else ()
        return (*undone, PermuteOfUnitAxes())

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "transposition moves data between lanes"

    @override
    def moves(self, way: Way) -> AffineMap | None:
        """A load or store can permute the axes if the last axis stays the last."""
        order = ints(self.order)
        return permutation_map(order, way) if order[-1] == len(order) - 1 else None

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One strided copy that reads the operand in the order of the result, or several transpositions of matrices."""
        order = ints(self.order)
        able = rules(ctx.chip, KernelLibrary).PERMUTES_BY_MATRICES
        several = able and len(transpositions(shape_of(self.input), order)) > 1
        ctx.move(*shorter_axes(turned(ctx.input(0), order), ctx.output()), kind="turns" if several else "")

    @override
    def global_buffer(self, chip: ChipSpec) -> Room | None:
        """As many elements as the operand has bytes, unless one transposition of matrices, or none, is enough."""
        del chip
        shape, order = shape_of(self.input), ints(self.order)
        if keeps_order(shape, order) or len(transpositions(shape, order)) == 1:
            return None
        return Room((stored_bytes(self.input),), storage_element(element_of(self.input)))


class PermuteUndone(RewritePattern):
    """tpu.Permute -> views -> tpu.Permute that restores the order of the elements: all are removed."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second; the operand of the first takes its name if nothing else reads that operand."""
        if not isinstance(op, TpuPermute):
            return
        between, first = _before_views(op.input)
        if not isinstance(first, TpuPermute) or shape_of(first.output) != shape_of(op.input):
            return
        before = ints(first.order)
        if tuple(before[axis] for axis in ints(op.order)) != tuple(range(len(before))):
            return
        source = first.input.owner
        if isinstance(source, Operation) and first.input.has_one_use():
            copy_name(source, op)
        rewriter.replace(op, [], [first.input])
        for dead in (*between, first):
            rewriter.erase(dead)


class PermuteOfUnitAxes(RewritePattern):
    """tpu.Permute that moves axes of length 1 only -> tpu.Reshape."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Permute."""
        if not isinstance(op, TpuPermute) or not keeps_order(shape_of(op.input), ints(op.order)):
            return
        shape = ints_attr(shape_of(op.output))
        view = TpuReshape.create(operands=[op.input], result_types=[op.output.type], attributes={"shape": shape})
        copy_name(view, op)
        rewriter.replace(op, view)


def _before_views(value: SSAValue) -> tuple[list[Operation], object]:
    """(the views that make a value, the last first; the op before them); None for an op that others read."""
    views, owner = list[Operation](), value.owner
    while isinstance(owner, TpuReshape) and value.has_one_use():
        views.append(owner)
        value = owner.input
        owner = value.owner
    return views, owner if value.has_one_use() else None
