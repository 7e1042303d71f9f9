"""Padding: `top.Pad`, `tpu.Pad`, and its fusion into convolutions and pools (numerics.md 9.0)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from tpusim_kernels.movement import pad
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import attr_def, irdl_op_definition
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import flag, float_attr, ints, ints_attr, text
from tpusim.ir.modes import PaddingModeAttr
from tpusim.ir.types import element_of, set_type, shape_of, storage_dtype, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.region import View
from tpusim.ops.conv import TopConv
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
from tpusim.ops.framework.families import Unary, is_set, only_user, part_of, shorter_axes
from tpusim.ops.framework.moves import offset_map, pairs_of
from tpusim.ops.framework.rewriting import made_by
from tpusim.ops.interfaces import LoweredRewrites, MovedByTransfers
from tpusim.ops.patterns.wide_pads import PadsInSteps
from tpusim.ops.pool import PoolTop, TopAvgPool, TopMaxPool
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.view import TopReshape

_MOST_AXES = 4
"""The largest rank that has a view in local memory."""
MODES = ("constant", "reflect", "edge")
FLOAT_MAX = float(np.finfo(np.float32).max)


def padded_shape(shape: Shape, pads: tuple[int, ...], mode: str) -> Shape:
    """The padded extents. Raises ValueError for pads that do not fit."""
    rank = len(shape)
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise ValueError(f"{2 * rank} pads of 0 or more are required for {shape}, got {list(pads)}; crop with Slice")
    if mode not in MODES:
        raise ValueError(f"mode {', '.join(MODES)} is required, got {mode!r}")
    if mode == "reflect" and any(max(pads[i], pads[rank + i]) >= shape[i] for i in range(rank) if shape[i] > 1):
        raise ValueError(f"reflected pads below the extents {shape} are required, got {list(pads)}")
    return tuple(size + pads[i] + pads[rank + i] for i, size in enumerate(shape))


class Pad(Unary):
    """`paddings` elements before every axis, then after: `val`, the reflected tensor, or its edge repeated."""

    REPEATED: ClassVar[tuple[str, ...]] = ("paddingsT", "left_select", "right_select")

    paddings = attr_def(ArrayAttr)
    mode = attr_def(StringAttr)
    val = attr_def(FloatAttr)

    @override
    def infer(self) -> tuple[Shape, ...]:
        return (padded_shape(shape_of(self.input), ints(self.paddings), self.mode.data),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (pad(operands[0], pairs_of(ints(self.paddings)), mode=self.mode.data, value=self.val.value.data),)


@irdl_op_definition
class TopPad(Pad, TopOp):
    """`top.Pad`: padding with a real number, the reflected tensor, or its edge repeated."""

    name = "top.Pad"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)

    @classmethod
    @names_op
    def make(
        cls,
        builder: Builder,
        x: SSAValue,
        *,
        paddings: Sequence[int],
        mode: str = "constant",
        val: float = 0.0,
        name: str,
    ) -> SSAValue:
        """paddings: before every axis, then after. mode: one of MODES. val: the padding of mode constant."""
        if mode not in MODES:
            raise ValueError(f"mode {', '.join(MODES)} is required, got {mode!r}")
        attributes = {
            "paddings": ints_attr(paddings), "mode": text(mode),
            "val": float_attr(min(max(val, -FLOAT_MAX), FLOAT_MAX)),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Merge a Pad into the convolution or pool that reads it."""
        del weights
        return (TopFusePad(),)

    @override
    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pad on the stored bytes; the value is quantised to round-half-away(v/s + z)."""
        return self.lower_rounded(ctx, round_half_away)

    def lower_rounded(self, ctx: LoweringContext, rounded: Callable[[float], Any]) -> SSAValue:
        """tpu.Pad on the stored bytes; the value is quantised to `rounded`(v/s + z), saturated."""
        quant = ctx.quant(self.output)
        attributes: dict[str, Attribute] = dict(self.attributes)
        if quant is not None:
            real = rounded(self.val.value.data / quant.scale + quant.zero_point)
            attributes["val"] = float_attr(int(saturate_np(real, quant.dtype)))
        return lower_same_scale(self, ctx, TpuPad, attributes, float_attributes=dict(self.attributes))


@irdl_op_definition
class TpuPad(Pad, TpuOp, LoweredRewrites, MovedByTransfers):
    """`tpu.Pad`: a byte move; `val` is a stored value of the result."""

    name = "tpu.Pad"
    mode = attr_def(PaddingModeAttr)

    @classmethod
    @override
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Move padding that a convolution's command cannot do into Pads."""
        del weights
        return (PadsInSteps(cls, chip),)

    @override
    def moves(self, way: Way) -> AffineMap | None:
        """A store can pad with a constant; a load cannot pad."""
        if way == "s2l" or self.mode.data != "constant":
            return None
        return offset_map(ints(self.paddings)[: len(shape_of(self.input))])

    @override
    def padding(self) -> tuple[Shape, float] | None:
        """(widths, stored value) of the border, if that is a constant."""
        return (ints(self.paddings), self.stored) if self.mode.data == "constant" else None

    @override
    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "padding runs in global memory"

    @override
    def emit(self, ctx: EmitContext) -> None:
        """GDMA copies: first the middle, then the border axis by axis, the last axis first.

        A constant border is filled. A repeated edge is copied through local memory. A macro command pads tensors whose
        batches share words.
        """
        source, target, pads = ctx.input(0), ctx.output(), ints(self.paddings)
        rank = len(source.shape)
        shared = target.interleave > 1 and rank > 0 and (pads[0] > 0 or pads[rank] > 0)
        no_view = self.mode.data == "edge" and rank > _MOST_AXES
        if shared or no_view or (target.interleave > 1 and self.mode.data != "constant"):
            function = functions.Pad(cast("functions.PadMode", self.mode.data), pads[:rank], pads[rank:], self.stored)
            ctx.emit(isa.Fn, function=function, inputs=(source,), output=target)
            return
        border = _Border(source.shape, target, pads, ctx.chip)
        ctx.move(*shorter_axes(source, border.slab(-1, 0, 0)))
        if self.mode.data == "constant":
            for view in borders(source.shape, target, pads, ctx.chip):
                ctx.fill(view, self.stored)
            return
        for axis in reversed(range(rank)):
            self._surround(ctx, border, axis)

    def _surround(self, ctx: EmitContext, border: "_Border", axis: int) -> None:
        """Copy the border before and after the middle along one axis."""
        before, size, after = border.lengths(axis)
        for first, count, edge in ((0, before, before), (before + size, after, before + size - 1)):
            slab = border.slab(axis, first, count)
            if not count:
                continue
            if self.mode.data == "edge":
                ctx.emit(isa.Arith, kind="copy", a=border.slab(axis, edge, 1), output=slab)
            else:
                for place in range(first, first + count):
                    ctx.move(*shorter_axes(border.slab(axis, 2 * edge - place, 1), border.slab(axis, place, 1)))

    @property
    def stored(self) -> float:
        """The padding, rounded to the stored type."""
        with np.errstate(over="ignore"):
            return float(np.float32(self.val.value.data).astype(storage_dtype(element_of(self.output))))


def borders(middle: Shape, target: View, pads: Shape, chip: ChipSpec) -> Iterator[View]:
    """The border of a padded tensor in global memory in parts, axis by axis, the last axis first."""
    border = _Border(middle, target, pads, chip)
    for axis in reversed(range(len(middle))):
        before, size, after = border.lengths(axis)
        yield from (border.slab(axis, at, count) for at, count in ((0, before), (before + size, after)) if count)


@dataclass(frozen=True)
class _Border:
    """A padded tensor in global memory, around a middle of the operand's extents."""

    middle: Shape
    target: View
    pads: tuple[int, ...]
    chip: ChipSpec

    def lengths(self, axis: int) -> tuple[int, int, int]:
        """(elements before the middle, in it, after it)."""
        return self.pads[axis], self.middle[axis], self.pads[len(self.middle) + axis]

    def slab(self, axis: int, first: int, count: int) -> View:
        """`count` elements from `first` on along an axis; axis -1: the middle.

        The slab has the extents of the middle along earlier axes and those of the whole along later axes.
        """
        view = self.target
        for at, size in enumerate(self.middle):
            if axis < 0 or at < axis:
                view = part_of(view, at, self.pads[at], (*view.shape[:at], size, *view.shape[at + 1 :]), self.chip)
        if axis < 0 or not count:
            return view
        return part_of(view, axis, first, (*view.shape[:axis], count, *view.shape[axis + 1 :]), self.chip)


class TopFusePad(RewritePattern):
    """Pad of rows and columns -> the pads of the op that reads it: zeros of a Conv or AvgPool, -max of a MaxPool."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The convolution or pool keeps its name; it must be the only reader of the Pad."""
        if not isinstance(op, TopConv | PoolTop):
            return
        view = _as_image(op.input)
        before = (op if view is None else view).operands[0].owner
        if not isinstance(before, TopPad) or before.mode.data != "constant" or only_user(before.output) is None:
            return
        widths, present = _of_image(ints(before.paddings), view is not None), ints(op.pads)
        if widths is None:
            return
        pads = tuple(a + b for a, b in zip(present, widths, strict=True))
        if not _takes(op, before.val.value.data, pads):
            return
        if isinstance(op, TopAvgPool):
            op.attributes["count_include_pad"] = flag(True)
        op.attributes["pads"] = ints_attr(pads)
        if view is None:
            op.operands[0] = before.input
        else:
            _view_again(view, before.input)
        rewriter.erase(before)
        rewriter.notify_op_modified(op)


def _as_image(value: SSAValue) -> TopReshape | None:
    """The Reshape of a row (n, c, w) to the image (n, c, w, 1), which one op reads."""
    view = made_by(value, "top.Reshape")
    if not isinstance(view, TopReshape) or shape_of(view.output) != (*shape_of(view.input), 1):
        return None
    return view if len(shape_of(view.input)) == 3 else None


def _of_image(paddings: Sequence[int], of_row: bool) -> tuple[int, ...] | None:
    """(top, left, bottom, right) of the paddings of an image or of a row as an image; None if others are not 0."""
    rank = 3 if of_row else 4
    if len(paddings) != 2 * rank or any(paddings[i] for i in (0, 1, rank, rank + 1)):
        return None
    return (paddings[2], 0, paddings[5], 0) if of_row else (paddings[2], paddings[3], paddings[6], paddings[7])


def _view_again(view: TopReshape, x: SSAValue) -> None:
    """Let a Reshape to an image read another row."""
    shape = (*shape_of(x), 1)
    view.operands[0] = x
    view.attributes["shape"] = ints_attr(shape)
    set_type(view.output, tensor(shape, element_of(view.output)))


def _takes(op: TopConv | PoolTop, value: float, pads: tuple[int, ...]) -> bool:
    """Whether the op pads with this value, and may have pads this large."""
    if isinstance(op, PoolTop):
        kernel = ints(op.kernel_shape)
        if any(pads[i] >= kernel[i % 2] for i in range(4)):
            return False
    if isinstance(op, TopMaxPool):
        return value == -FLOAT_MAX
    if isinstance(op, TopAvgPool):
        return value == 0.0 and (is_set(op.count_include_pad) or not any(ints(op.pads)))
    return value == 0.0
