"""Channels that become blocks of pixels, and back: `top.Depth2Space`, `tpu.Depth2Space` (numerics.md 9.0).

Examples are pixel shuffle (DepthToSpace), its inverse (SpaceToDepth, reorg) and the focus layer of detectors. Exporters
write them as views around a Permute or as a Concat of Slices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, flag, int_attr, ints
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.concat import TopConcat
from tpusim.ops.framework.base import (
    Array,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.families import Unary, shorter_axes
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.framework.views import turned
from tpusim.ops.permute import TopPermute
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.slice import TopSlice
from tpusim.ops.view import TopReshape

ATTRIBUTES = ("block_h", "block_w", "is_CRD", "is_inversed", "swap_cr")
SHUFFLES: dict[tuple[int, ...], bool] = {(0, 1, 4, 2, 5, 3): True, (0, 3, 4, 1, 5, 2): False}
"""Orders of the Permute of a pixel shuffle -> is_CRD."""
REORGS: dict[tuple[int, ...], tuple[bool, bool]] = {
    (0, 1, 3, 5, 2, 4): (True, False),
    (0, 3, 5, 1, 2, 4): (False, False),
    (0, 5, 3, 1, 2, 4): (False, True),
}
"""Orders of the Permute of an inverse pixel shuffle -> (is_CRD, swap_cr)."""


class Depth2Space(Unary):
    """Channels become blocks of pixels; with is_inversed, pixels become channels.

    The channels are (c, block_h, block_w) with is_CRD, else (block_h, block_w, c). swap_cr: block_w comes before
    block_h.
    """

    block_h = attr_def(IntegerAttr)
    block_w = attr_def(IntegerAttr)
    is_crd = attr_def(BoolAttr, attr_name="is_CRD")
    is_inversed = attr_def(BoolAttr)
    swap_cr = attr_def(BoolAttr)

    @property
    def blocks(self) -> tuple[int, int]:
        """The block's extents (block_h, block_w), in elements."""
        return self.block_h.value.data, self.block_w.value.data

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, c*bh*bw, h, w) -> (n, c, h*bh, w*bw), or the inverse. Raises ValueError if the blocks do not fit."""
        (n, c, h, w), (rows, columns) = _image(shape_of(self.input)), self.blocks
        area = rows * columns
        if min(self.blocks) < 1 or (h % rows or w % columns if self._inverse else c % area):
            raise ValueError(f"blocks of {rows} x {columns} that divide {(n, c, h, w)} are required")
        if self._inverse:
            return ((n, c * area, h // rows, w // columns),)
        return ((n, c // area, h * rows, w * columns),)

    @property
    def _inverse(self) -> bool:
        return bool(self.is_inversed.value.data)

    @property
    def split(self) -> tuple[Shape, tuple[int, ...]]:
        """(the input's shape over six axes, the order of these axes in the result)."""
        (n, c, h, w), (rows, columns) = shape_of(self.input), self.blocks
        swapped, first = bool(self.swap_cr.value.data), bool(self.is_crd.value.data)
        if self._inverse:
            block = (5, 3) if swapped else (3, 5)
            order = (0, 1, *block, 2, 4) if first else (0, *block, 1, 2, 4)
            return (n, c, h // rows, rows, w // columns, columns), order
        block_shape, left = (columns, rows) if swapped else (rows, columns), c // (rows * columns)
        shape = (n, left, *block_shape, h, w) if first else (n, *block_shape, left, h, w)
        channel, block = (1, (2, 3)) if first else (3, (1, 2))
        row, column = block[::-1] if swapped else block
        return shape, (0, channel, 4, row, 5, column)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        shape, order = self.split
        return (operands[0].reshape(shape).transpose(order).reshape(self.infer()[0]),)


def _image(shape: Shape) -> Shape:
    if len(shape) != 4:
        raise ValueError(f"an input (n, c, h, w) is required, got {shape}")
    return shape


@irdl_op_definition
class TopDepth2Space(Depth2Space, TopOp):
    """`top.Depth2Space`: channels become blocks of pixels, or the inverse."""

    name = "top.Depth2Space"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True, backward=True)  # forward: if the input has other users
    MOVES: ClassVar[bool] = True

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Match what exporters write: a Permute between two Reshapes, or a Concat of strided Slices."""
        del weights
        return TopPermuteToPixelShuffle(), TopPermuteToReorg(), ConcatToDepth2SpacePattern()

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(self, ctx, TpuDepth2Space, {key: self.attributes[key] for key in ATTRIBUTES})


def attributes_of(blocks: tuple[int, int], crd: bool, inverse: bool, swapped: bool) -> dict[str, Attribute]:
    """The attributes of a Depth2Space or of its inverse."""
    flags = {"is_CRD": flag(crd), "is_inversed": flag(inverse), "swap_cr": flag(swapped)}
    return {"block_h": int_attr(blocks[0]), "block_w": int_attr(blocks[1]), **flags}


@irdl_op_definition
class TpuDepth2Space(Depth2Space, TpuOp):
    """`tpu.Depth2Space`: a byte move, the same stored type."""

    name = "tpu.Depth2Space"

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "pixels of a block lie in other lanes than its channels"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """One strided copy that reads the operand over six axes in the order of the result."""
        shape, order = self.split
        source, target = ctx.input(0), ctx.output()
        wide = msgspec.structs.replace(source, shape=shape, layout="dense", strides=None)
        parts = msgspec.structs.replace(
            target, shape=tuple(shape[axis] for axis in order), layout="dense", strides=None
        )
        ctx.move(*shorter_axes(turned(wide, order), parts))


# ------------------------------------------------------------------------------------------------------------ rewrites


def _replace(op: Operation, x: SSAValue, attributes: dict[str, Attribute], rewriter: PatternRewriter) -> None:
    new = TopDepth2Space.create(operands=[x], result_types=[op.results[0].type], attributes=attributes)
    copy_name(new, op)
    rewriter.replace(op, new)


def _around_permute(op: Operation) -> tuple[TopPermute, SSAValue] | None:
    """(Permute, image) if `op` is the last of Reshape -> Permute of six axes -> Reshape of an image, each used once."""
    permute = made_by(op.operands[0], "top.Permute") if isinstance(op, TopReshape) else None
    view = None if permute is None else made_by(permute.operands[0], "top.Reshape")
    if not isinstance(permute, TopPermute) or view is None:
        return None
    ranks = [len(shape_of(v)) for v in (view.operands[0], permute.input, op.results[0])]
    return (permute, view.operands[0]) if ranks == [4, 6, 4] else None


class TopPermuteToPixelShuffle(RewritePattern):
    """Reshape -> Permute of six axes -> Reshape: Depth2Space from channels to pixels."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second Reshape."""
        found = _around_permute(op)
        crd = None if found is None else SHUFFLES.get(ints(found[0].order))
        if found is None or crd is None:
            return
        permute, x = found
        n, *axes, h, w = shape_of(permute.input)
        c, rows, columns = axes if crd else (axes[2], axes[0], axes[1])
        same = shape_of(x) == (n, c * rows * columns, h, w)
        if same and shape_of(op.results[0]) == (n, c, h * rows, w * columns):
            _replace(op, x, attributes_of((rows, columns), crd, inverse=False, swapped=False), rewriter)


class TopPermuteToReorg(RewritePattern):
    """Reshape -> Permute of six axes -> Reshape: Depth2Space from pixels to channels."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second Reshape."""
        found = _around_permute(op)
        kind = None if found is None else REORGS.get(ints(found[0].order))
        if found is None or kind is None:
            return
        permute, x = found
        n, c, h, rows, w, columns = shape_of(permute.input)
        same = shape_of(x) == (n, c, h * rows, w * columns)
        if same and shape_of(op.results[0]) == (n, c * rows * columns, h, w):
            crd, swapped = kind
            _replace(op, x, attributes_of((rows, columns), crd, inverse=True, swapped=swapped), rewriter)


@dataclass
class ConcatToDepth2SpacePattern(RewritePattern):
    """Concat of all strided Slices of one image, by rows or by columns: Depth2Space from pixels to channels.

    TPU-MLIR has one pattern for each of the two orders, but makes the order by columns of both.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Concat."""
        if not isinstance(op, TopConcat) or op.axis.value.data != 1:
            return
        slices = [v.owner for v in op.inputs]
        first = slices[0]
        if not isinstance(first, TopSlice) or len(shape_of(first.input)) != 4:
            return
        x, (rows, columns) = first.input, first.cut[1][2:]
        n, c, h, w = shape_of(x)
        if rows * columns != len(slices) or len(slices) == 1 or h % rows or w % columns:
            return
        wanted = [((0, 0, i, j), (1, 1, rows, columns)) for i in range(rows) for j in range(columns)]
        got = [s.cut[:2] for s in slices if isinstance(s, TopSlice) and s.input is x]
        by_columns = [wanted[i * columns + j] for j in range(columns) for i in range(rows)]
        whole = all(shape_of(v) == (n, c, h // rows, w // columns) for v in op.inputs)
        if whole and got in (wanted, by_columns):
            swapped = got != wanted
            _replace(op, x, attributes_of((rows, columns), crd=False, inverse=True, swapped=swapped), rewriter)
