"""Channels that become blocks of pixels, and back: `top.Depth2Space`, `tpu.Depth2Space` (numerics.md 9.0).

Examples are pixel shuffle (DepthToSpace), its inverse (SpaceToDepth, reorg) and the focus layer of detectors. Exporters
write them as views around a Permute or as a Concat of Slices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, TypeAlias

import msgspec
from tpusim_kernels.movement import moved
from typing_extensions import override
from xdsl.dialects.builtin import BoolAttr, IntegerAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import copy_name, flag, int_attr, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands import TransferKind
from tpusim.ops.concat import TopConcat
from tpusim.ops.framework.base import (
    NARROWEST,
    Array,
    EmitContext,
    FloatRule,
    LoweringContext,
    RangeRule,
    Shape,
    TopOp,
    TpuOp,
)
from tpusim.ops.framework.families import Unary, constant_of, only_user, shorter_axes
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.framework.views import turned
from tpusim.ops.permute import TopPermute
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.slice import TopSlice
from tpusim.ops.structure import make_weight
from tpusim.ops.view import TopReshape

Axes: TypeAlias = tuple[str, ...]
"""The parts of each axis, the outermost first, by their letters."""
ATTRIBUTES = ("block_h", "block_w", "is_CRD", "is_inversed", "swap_cr", "in_is_NCHW", "out_is_NCHW")
SHUFFLES: dict[tuple[int, ...], bool] = {(0, 1, 4, 2, 5, 3): True, (0, 3, 4, 1, 5, 2): False}
"""Orders of the Permute of a pixel shuffle -> is_CRD."""
REORGS: dict[tuple[int, ...], tuple[bool, bool]] = {
    (0, 1, 3, 5, 2, 4): (True, False),
    (0, 3, 5, 1, 2, 4): (False, False),
    (0, 5, 3, 1, 2, 4): (False, True),
}
"""Orders of the Permute of an inverse pixel shuffle -> (is_CRD, swap_cr)."""
MERGING = (0, 1, 3, 4, 2, 5)
"""The order of the Permute that merges patches of images (n, h, w, c): block_w comes before block_h."""


class Depth2Space(Unary):
    """Channels become blocks of pixels; with is_inversed, pixels become channels.

    The channels are (c, block_h, block_w) with is_CRD, else (block_h, block_w, c). swap_cr: block_w comes before
    block_h. in_is_NCHW, out_is_NCHW: whether the channels of operand and result are axis 1 (so if absent) or the last.
    """

    block_h = attr_def(IntegerAttr)
    block_w = attr_def(IntegerAttr)
    is_crd = attr_def(BoolAttr, attr_name="is_CRD")
    is_inversed = attr_def(BoolAttr)
    swap_cr = attr_def(BoolAttr)
    in_is_nchw = opt_attr_def(BoolAttr, attr_name="in_is_NCHW")
    out_is_nchw = opt_attr_def(BoolAttr, attr_name="out_is_NCHW")

    @property
    def blocks(self) -> tuple[int, int]:
        """The block's extents (block_h, block_w), in elements."""
        return self.block_h.value.data, self.block_w.value.data

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, c*bh*bw, h, w) -> (n, c, h*bh, w*bw), or the inverse. Raises ValueError if the blocks do not fit."""
        size, axes = self._sizes(), self._axes[1]
        return (tuple(prod(size[part] for part in axis) for axis in axes),)

    @property
    def _inverse(self) -> bool:
        return bool(self.is_inversed.value.data)

    @property
    def _axes(self) -> tuple[Axes, Axes]:
        """The parts of each axis of the operand and of the result; rows i and columns j of a block are parts."""
        block = "ji" if self.swap_cr.value.data else "ij"
        deep = "c" + block if self.is_crd.value.data else block + "c"
        channels, planes = ("c", deep), (("hi", "wj"), ("h", "w"))
        ends = (0, 1) if self._inverse else (1, 0)
        made: list[Axes] = []
        for end, layout in zip(ends, (self.in_is_nchw, self.out_is_nchw), strict=True):
            first = layout is None or bool(layout.value.data)
            made.append(("n", channels[end], *planes[end]) if first else ("n", *planes[end], channels[end]))
        return made[0], made[1]

    def _sizes(self) -> dict[str, int]:
        """The extent of each part of an axis. Raises ValueError if the blocks do not fit."""
        shape, (rows, columns) = _image(shape_of(self.input)), self.blocks
        sizes = {"i": rows, "j": columns}
        for axis, size in zip(self._axes[0], shape, strict=True):
            inner = prod(sizes[part] for part in axis if part in "ij")
            if min(self.blocks) < 1 or size % inner:
                raise ValueError(f"blocks of {rows} x {columns} that divide {shape} are required")
            sizes |= {part: size // inner for part in axis if part not in "ij"}
        return sizes

    @property
    def split(self) -> tuple[Shape, tuple[int, ...]]:
        """(the input's shape over six axes, the order of these axes in the result)."""
        sizes, (source, target) = self._sizes(), ("".join(axes) for axes in self._axes)
        return tuple(sizes[part] for part in source), tuple(source.index(part) for part in target)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        shape, order = self.split
        return (moved(lambda _, x: x.reshape(shape).transpose(order).reshape(self.infer()[0]), operands[0]),)


def _image(shape: Shape) -> Shape:
    if len(shape) != 4:
        raise ValueError(f"an input (n, c, h, w) is required, got {shape}")
    return shape


@irdl_op_definition
class TopDepth2Space(Depth2Space, TopOp):
    """`top.Depth2Space`: channels become blocks of pixels, or the inverse."""

    name = "top.Depth2Space"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    FLOAT: ClassVar[FloatRule] = NARROWEST
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True, backward=True, back_through=True)
    """It goes forward if the input has other users."""
    MOVES: ClassVar[bool] = True

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Match what exporters write: a Permute between two Reshapes, or a Concat of strided Slices."""
        return (
            TopPermuteToPixelShuffle(),
            TopPermuteToReorg(),
            Reshape4Depth2SpacePattern(),
            ConcatToDepth2SpacePattern(weights),
        )

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        return lower_same_scale(
            self, ctx, TpuDepth2Space, {k: v for k, v in self.attributes.items() if k in ATTRIBUTES}
        )


def attributes_of(
    blocks: tuple[int, int], crd: bool, inverse: bool, swapped: bool, *, last: bool = False
) -> dict[str, Attribute]:
    """The attributes of a Depth2Space or of its inverse; last: the channels are the last axis."""
    flags = {"is_CRD": flag(crd), "is_inversed": flag(inverse), "swap_cr": flag(swapped)}
    if last:
        flags |= {"in_is_NCHW": flag(False), "out_is_NCHW": flag(False)}
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
        ctx.move(*shorter_axes(turned(wide, order), parts), kind=self._transfers)

    @property
    def _transfers(self) -> TransferKind:
        """How the library moves an image (n, c, h, w): blocks through local memory, or single elements (U-88)."""
        sizes, by_channels = self._sizes(), bool(self.is_crd.value.data)
        images = self.in_is_nchw is None or bool(self.in_is_nchw.value.data)
        if not images or min(sizes[part] for part in "hwij") == 1:
            return ""
        if self._inverse == by_channels:
            return "elements"
        return "planes" if self._inverse else "blocks"


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


class Reshape4Depth2SpacePattern(RewritePattern):
    """Reshape -> Permute of six axes -> Reshape of an image (n, h, w, c): Depth2Space from pixels to channels.

    Exporters write the merging of patches so. If the image has three axes, the first Reshape stays and makes them four.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second Reshape."""
        permute = made_by(op.operands[0], "top.Permute") if isinstance(op, TopReshape) else None
        view = None if permute is None else made_by(permute.operands[0], "top.Reshape")
        if not isinstance(permute, TopPermute) or view is None or ints(permute.order) != MERGING:
            return
        n, h, rows, w, columns, c = shape_of(permute.input)
        x, image = view.operands[0], (n, h * rows, w * columns, c)
        if shape_of(op.results[0]) != (n, h, w, c * rows * columns):
            return
        if shape_of(x) == (n, h * rows * w * columns, c):
            four = TopReshape.create(operands=[x], result_types=[tensor(image)], attributes={"shape": ints_attr(image)})
            copy_name(four, view)
            rewriter.insert(four, InsertPoint.before(op))
            x = four.output
        if shape_of(x) == image:
            _replace(op, x, attributes_of((rows, columns), crd=False, inverse=True, swapped=True, last=True), rewriter)


@dataclass
@dataclass
class ConcatToDepth2SpacePattern(RewritePattern):
    """Concat of all strided Slices of one image, by rows or by columns: Depth2Space from pixels to channels.

    The image is (n, c, h, w) or (n, h, w, c). For a Conv that alone reads the result, Depth2Space is by rows, and the
    Conv's filters take any order of the Slices.
    """

    weights: WeightStore

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Concat."""
        if not isinstance(op, TopConcat) or op.axis.value.data not in (1, 3):
            return
        slices = [v.owner for v in op.inputs]
        first = slices[0]
        if not isinstance(first, TopSlice) or len(shape_of(first.input)) != 4:
            return
        last = op.axis.value.data == 3
        channel, rows_at, columns_at = (3, 1, 2) if last else (1, 2, 3)
        x, steps = first.input, first.cut[1]
        rows, columns = steps[rows_at], steps[columns_at]
        shape = list(shape_of(x))
        if rows * columns != len(slices) or len(slices) == 1 or shape[rows_at] % rows or shape[columns_at] % columns:
            return
        shape[rows_at] //= rows
        shape[columns_at] //= columns

        def placed(row: int, column: int, channels: int) -> tuple[int, ...]:
            by_axis = {rows_at: row, columns_at: column, channel: channels, 0: channels}
            return tuple(by_axis[axis] for axis in range(4))

        wanted = [(placed(i, j, 0), placed(rows, columns, 1)) for i in range(rows) for j in range(columns)]
        got = [s.cut[:2] for s in slices if isinstance(s, TopSlice) and s.input is x]
        if any(shape_of(v) != tuple(shape) for v in op.inputs) or sorted(got) != sorted(wanted):
            return
        order, by_rows = [wanted.index(places) for places in got], list(range(len(wanted)))
        by_columns = [i * columns + j for j in range(columns) for i in range(rows)]
        conv = only_user(op.output)
        for_conv = not last and conv is not None and conv.name == "top.Conv" and conv.operands[0] is op.output
        if for_conv and conv is not None and order != by_rows and not self._reorder(op, conv, order, rewriter):
            return
        if order in (by_rows, by_columns) or for_conv:
            swapped = order != by_rows and not for_conv
            attributes = attributes_of((rows, columns), crd=False, inverse=True, swapped=swapped, last=last)
            _replace(op, x, attributes, rewriter)

    def _reorder(self, op: Operation, conv: Operation, order: Sequence[int], rewriter: PatternRewriter) -> bool:
        """Reorder the Conv's filters for blocks by rows and rename the Concat; return whether that is possible.

        TPU-MLIR takes old block `order[i]` as new block i, which is right if the order equals its inverse.
        """
        filters, group = constant_of(conv.operands[1], self.weights), conv.attributes["group"]
        own_inverse = [order[place] for place in order] == list(range(len(order)))
        if filters is None or not own_inverse or group.value.data != 1:  # type: ignore[attr-defined]
            return False
        blocks = filters.reshape(filters.shape[0], len(order), -1, *filters.shape[2:])
        made = make_weight(self.weights, f"{op_name(conv)}_filter_S2D", blocks[:, list(order)].reshape(filters.shape))
        rewriter.insert(made, InsertPoint.before(conv))
        conv.operands[1] = made.output
        set_op_name(op, f"{op_name(op)}_r_Depth2Space")
        return True
