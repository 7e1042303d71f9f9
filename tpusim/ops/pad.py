"""Padding: `top.Pad`, `tpu.Pad`, and its fusion into convolutions and pools (numerics.md 9.0)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from tpusim_kernels.movement import pad
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, float_attr, ints, ints_attr, text
from tpusim.ir.types import element_of, shape_of, storage_dtype
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
from tpusim.ops.framework.families import is_set, only_user, part_of, shorter_axes
from tpusim.ops.framework.moves import offset_map, pairs_of
from tpusim.ops.interfaces import LoweredRewrites, MovedByTransfers
from tpusim.ops.patterns.wide_pads import PadsInSteps
from tpusim.ops.pool import PoolTop, TopAvgPool, TopMaxPool
from tpusim.ops.rescale import lower_same_scale

_MOST_AXES = 4
"""Of a tensor that has a view in local memory."""
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


def padded(x: Array, pads: tuple[int, ...], mode: str, value: float) -> Array:
    """The padded array, in the dtype of `x`."""
    return pad(x, pairs_of(pads), mode=mode, value=value)


@irdl_op_definition
class TopPad(TopOp):
    """`top.Pad`: `paddings` before every axis, then after; filled with `val`, reflected, or the edge repeated."""

    name = "top.Pad"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)

    input = operand_def(TensorType)
    output = result_def(TensorType)
    paddings = attr_def(ArrayAttr)
    mode = attr_def(StringAttr)
    val = attr_def(FloatAttr)

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
        """paddings: before every axis, then after. mode: one of MODES; val: of mode constant."""
        if mode not in MODES:
            raise ValueError(f"mode {', '.join(MODES)} is required, got {mode!r}")
        attributes = {
            "paddings": ints_attr(paddings), "mode": text(mode),
            "val": float_attr(min(max(val, -FLOAT_MAX), FLOAT_MAX)),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's extents plus the pads."""
        return (padded_shape(shape_of(self.input), ints(self.paddings), self.mode.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Pad the array on all sides."""
        return (padded(operands[0], ints(self.paddings), self.mode.data, self.val.value.data),)

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Into the convolution or pool behind it."""
        del weights
        return (TopFusePad(),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Pad on the stored bytes, the value quantised: round-half-away(v/s + z)."""
        return self.lower_rounded(ctx, round_half_away)

    def lower_rounded(self, ctx: LoweringContext, rounded: Callable[[float], Any]) -> SSAValue:
        """tpu.Pad on the stored bytes, the value quantised and `rounded`."""
        quant = ctx.quant(self.output)
        attributes: dict[str, Attribute] = dict(self.attributes)
        if quant is not None:
            real = rounded(self.val.value.data / quant.scale + quant.zero_point)
            attributes["val"] = float_attr(int(saturate_np(real, quant.dtype)))
        return lower_same_scale(self, ctx, TpuPad, attributes, float_attributes=dict(self.attributes))


@irdl_op_definition
class TpuPad(TpuOp, LoweredRewrites, MovedByTransfers):
    """`tpu.Pad`: a byte move; `val` is a stored value of the result."""

    name = "tpu.Pad"

    input = operand_def(TensorType)
    output = result_def(TensorType)
    paddings = attr_def(ArrayAttr)
    mode = attr_def(StringAttr)
    val = attr_def(FloatAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def infer(self) -> tuple[Shape, ...]:
        """The result has the operand's extents plus the pads."""
        return (padded_shape(shape_of(self.input), ints(self.paddings), self.mode.data),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Pad the array on all sides."""
        return (padded(operands[0], ints(self.paddings), self.mode.data, self.val.value.data),)

    @classmethod
    def lowered_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Pads for what a convolution pads by more than a command does."""
        del weights
        return (PadsInSteps(cls, chip),)

    def moves(self, way: Way) -> AffineMap | None:
        """A store can do it, and fill the border with a constant."""
        if way == "s2l" or self.mode.data != "constant":
            return None
        return offset_map(ints(self.paddings)[: len(shape_of(self.input))])

    def padding(self) -> tuple[Shape, float] | None:
        """Of a constant, the border."""
        return (ints(self.paddings), self.stored) if self.mode.data == "constant" else None

    def why_global(self, chip: ChipSpec) -> str | None:
        """Never local (layer_group.md 2)."""
        del chip
        return "padding runs in global memory"

    def emit(self, ctx: EmitContext) -> None:
        """GDMA copies: the middle, then axis by axis, the last first, what is before and behind all that is there.

        A constant is filled in; the edge goes through local memory. Where batches share words it is a macro command.
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
        """What is before and behind the middle along one axis."""
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
        """The value rounded to the stored type."""
        with np.errstate(over="ignore"):
            return float(np.float32(self.val.value.data).astype(storage_dtype(element_of(self.output))))


def borders(middle: Shape, target: View, pads: Shape, chip: ChipSpec) -> Iterator[View]:
    """The parts of a padded tensor in global memory around its middle: axis by axis, the last first."""
    border = _Border(middle, target, pads, chip)
    for axis in reversed(range(len(middle))):
        before, size, after = border.lengths(axis)
        yield from (border.slab(axis, at, count) for at, count in ((0, before), (before + size, after)) if count)


@dataclass(frozen=True)
class _Border:
    """A padded tensor in global memory: its middle has the operand's extents."""

    middle: Shape
    target: View
    pads: tuple[int, ...]
    chip: ChipSpec

    def lengths(self, axis: int) -> tuple[int, int, int]:
        """How much is before the middle, in it and behind it."""
        return self.pads[axis], self.middle[axis], self.pads[len(self.middle) + axis]

    def slab(self, axis: int, first: int, count: int) -> View:
        """From `first` on along an axis: of the axes before it the middle, behind it all. Axis -1: the middle."""
        view = self.target
        for at, size in enumerate(self.middle):
            if axis < 0 or at < axis:
                view = part_of(view, at, self.pads[at], (*view.shape[:at], size, *view.shape[at + 1 :]), self.chip)
        if axis < 0 or not count:
            return view
        return part_of(view, axis, first, (*view.shape[:axis], count, *view.shape[axis + 1 :]), self.chip)


class TopFusePad(RewritePattern):
    """Pad of zeros, rows and columns only -> the pads of the Conv or AvgPool behind it; of -max -> of a MaxPool."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The convolution or pool keeps its name; the Pad must have no other user."""
        if not isinstance(op, TopConv | PoolTop):
            return
        before = op.input.owner
        if not isinstance(before, TopPad) or before.mode.data != "constant" or only_user(before.output) is None:
            return
        widths, own = ints(before.paddings), ints(op.pads)
        if len(widths) != 8 or any(widths[i] for i in (0, 1, 4, 5)):
            return
        pads = tuple(a + b for a, b in zip(own, (widths[2], widths[3], widths[6], widths[7]), strict=True))
        if not _takes(op, before.val.value.data, pads):
            return
        if isinstance(op, TopAvgPool):
            op.attributes["count_include_pad"] = flag(True)
        op.attributes["pads"] = ints_attr(pads)
        op.operands[0] = before.input
        rewriter.erase(before)
        rewriter.notify_op_modified(op)


def _takes(op: TopConv | PoolTop, value: float, pads: tuple[int, ...]) -> bool:
    """Whether the op's own padding means the same as this value, and its pads may be so large."""
    if isinstance(op, PoolTop):
        kernel = ints(op.kernel_shape)
        if any(pads[i] >= kernel[i % 2] for i in range(4)):
            return False
    if isinstance(op, TopMaxPool):
        return value == -FLOAT_MAX
    if isinstance(op, TopAvgPool):
        return value == 0.0 and (is_set(op.count_include_pad) or not any(ints(op.pads)))
    return value == 0.0
