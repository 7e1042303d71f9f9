"""Transposition: `top.Permute` and `tpu.Permute`; a strided copy in global memory."""

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, copy_name, ints, ints_attr
from tpusim.ir.module import is_returned
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.isa.transposition import transpositions
from tpusim.ops.framework.base import (
    Array,
    Builder,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    TopOp,
    TpuOp,
    Way,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import shorter_axes
from tpusim.ops.framework.moves import permutation_map
from tpusim.ops.framework.views import turned
from tpusim.ops.interfaces import LoweredRewrites, MovedByTransfers, Rearranges
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.view import TpuReshape


@irdl_op_definition
class TopPermute(TopOp):
    """`top.Permute`: axis i of the result is axis order[i] of the operand."""

    name = "top.Permute"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward_first=True, forward=True)
    MOVES: ClassVar[bool] = True

    input = operand_def(TensorType)
    output = result_def(TensorType)
    order = attr_def(ArrayAttr)

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, order: Sequence[int] | None = None, name: str) -> SSAValue:
        """order: which axis of the operand each of the result is; None reverses them."""
        rank = len(shape_of(x))
        order = tuple(range(rank - 1, -1, -1)) if order is None else tuple(order)
        return builder.build(cls, [x], {"order": ints_attr(order)}, name)

    def infer(self) -> tuple[Shape, ...]:
        """The operand's extents in the new order."""
        return (permuted(shape_of(self.input), ints(self.order)),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Transpose the array by the order."""
        return (operands[0].transpose(ints(self.order)),)

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """A Permute of a Permute."""
        del weights
        return (PermuteOfPermute(),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Permute with the operand's stored type."""
        return lower_same_scale(self, ctx, TpuPermute, {"order": self.order})


class PermuteOfPermute(RewritePattern):
    """Permute -> Permute: the second by both orders, before the import (U-20); the first may stay."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second; if it undoes the first and is no result of the network, it goes."""
        first = op.input.owner if isinstance(op, TopPermute) else None
        if not isinstance(op, TopPermute) or not isinstance(first, TopPermute):
            return
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
class TpuPermute(TpuOp, LoweredRewrites, Rearranges, MovedByTransfers):
    """`tpu.Permute`: a byte move, the same stored type."""

    name = "tpu.Permute"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    order = attr_def(ArrayAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Of what the chip's products leave: a Permute that undoes another."""
        del weights
        # Chips that compute convolutions of patches as products, whose results are permuted.
        return (PermuteUndone(),) if chip.forms.patch_products else ()

    def infer(self) -> tuple[Shape, ...]:
        """The operand's extents in the new order."""
        return (permuted(shape_of(self.input), ints(self.order)),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Transpose the array by the order."""
        return (operands[0].transpose(ints(self.order)),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "transposition moves data between lanes"

    def moves(self, way: Way) -> AffineMap | None:
        """The other order of the axes, if rows stay whole."""
        order = ints(self.order)
        return permutation_map(order, way) if order[-1] == len(order) - 1 else None

    def emit(self, ctx: EmitContext) -> None:
        """One strided copy, the operand read in the order of the result; or as several transpositions of matrices."""
        order = ints(self.order)
        several = ctx.chip.permutes_by_matrices and len(transpositions(shape_of(self.input), order)) > 1
        ctx.move(*shorter_axes(turned(ctx.input(0), order), ctx.output()), kind="turns" if several else "")


class PermuteUndone(RewritePattern):
    """tpu.Permute -> views -> tpu.Permute that gives back the order of the elements: none of them."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second; what the first was given takes its name if nobody else reads it."""
        if not isinstance(op, TpuPermute):
            return
        between, first = _behind_views(op.input)
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


def _behind_views(value: SSAValue) -> tuple[list[Operation], object]:
    """(views in front of a value that nothing else reads, the nearest first; the op in front of them)."""
    views, owner = list[Operation](), value.owner
    while isinstance(owner, TpuReshape) and value.has_one_use():
        views.append(owner)
        value = owner.input
        owner = value.owner
    return views, owner if value.has_one_use() else None
