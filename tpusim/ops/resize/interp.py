"""`top.Interp`, `tpu.Interp`: linear interpolation of rows and columns (numerics.md 11.4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np
from tpusim_kernels.resize import interp_linear, interp_on_host
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.chips import ChipSpec
from tpusim.compat import Quirk
from tpusim.ir.attrs import (
    LayerGroupAttr,
    copy_name,
    flag,
    float_attr,
    int_attr,
    ints,
    ints_attr,
    op_name,
    set_op_name,
    text,
    value_name,
)
from tpusim.ir.types import element_of, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import gmem_strides
from tpusim.isa.region import View
from tpusim.ops.base import Array, Builder, EmitContext, LoweringContext, Shape, ShapedOp, TopOp, TpuOp
from tpusim.ops.building import names_op
from tpusim.ops.conv import TopConv
from tpusim.ops.families import is_set, relu_attributes
from tpusim.ops.interfaces import ChipRewrites
from tpusim.ops.pad import TopPad
from tpusim.ops.resize.nearest import make_nearest, nearest_source
from tpusim.ops.resize.upsample import TopUpsample
from tpusim.ops.structure import make_none, make_weight

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
LARGEST_FACTOR = 13
"""Largest factor of an extent that CV18xx's compiler counts as one step of an enlargement."""
WHOLE_WITHIN = 1e-9
"""How far the step of a whole factor may be from its reciprocal, relatively."""


def resized_shape(shape: Shape, size: tuple[int, ...]) -> Shape:
    """(n, c, *size). Raises ValueError for another rank."""
    if len(shape) != 4 or len(size) != 2 or min(size) < 1:
        raise ValueError(f"an input (n, c, h, w) and two extents are required, got {shape} and {list(size)}")
    return shape[0], shape[1], size[0], size[1]


class Interpolation(ShapedOp):
    """Linear interpolation to `target_shape` (h, w), in either dialect; scale_h, scale_w: input per output element."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    target_shape = attr_def(ArrayAttr)
    scale_h = attr_def(FloatAttr)
    scale_w = attr_def(FloatAttr)
    align_corners = opt_attr_def(BoolAttr)

    @property
    def geometry(self) -> tuple[tuple[int, int], tuple[float, float], bool]:
        """The geometry as (size, scales, align_corners)."""
        h, w = ints(self.target_shape)
        return (h, w), (self.scale_h.value.data, self.scale_w.value.data), is_set(self.align_corners)

    def infer(self) -> tuple[Shape, ...]:
        """(n, c, h, w) of the result."""
        return (resized_shape(shape_of(self.input), ints(self.target_shape)),)


@irdl_op_definition
class TopInterp(Interpolation, TopOp, ChipRewrites):
    """`top.Interp`: resizing by linear interpolation."""

    name = "top.Interp"
    SPEC: ClassVar[tuple[str, ...]] = ("11.4", "12.1")

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, *, size: Sequence[int], scales: Sequence[float] | None = None,
        mode: str = "nearest", coord_mode: str = "half_pixel", nearest_mode: str = "round_prefer_floor", name: str,
    ) -> SSAValue:  # fmt: skip
        """A resize to `size`, extents of every axis: nearest as Upsample or Gathers, linear as Interp of h and w.

        scales: output per input element where that is not the quotient of the extents. coord_mode: one of COORDINATES,
        nearest_mode: one of NEAREST.
        """
        shape = shape_of(x)
        scales = [o / i for i, o in zip(shape, size, strict=True)] if scales is None else scales
        if coord_mode not in COORDINATES or nearest_mode not in NEAREST:
            raise ValueError(f"coordinates {', '.join(COORDINATES)} are required, got {coord_mode}, {nearest_mode}")
        axes = list(zip(shape, size, scales, strict=True))
        if mode == "nearest":
            return make_nearest(
                builder, x, [nearest_source(i, o, s, coord_mode, nearest_mode) for i, o, s in axes], name
            )
        if mode != "linear" or len(shape) != 4 or tuple(size[:2]) != shape[:2]:
            raise ValueError(f"mode nearest, or linear along the last two of four axes is required, got {mode}")
        if coord_mode == "asymmetric":
            raise ValueError("linear with asymmetric coordinates is not supported; export with half_pixel")
        steps = [_step(*axis, coord_mode) for axis in axes[2:]]
        attributes = {
            "target_shape": ints_attr(size[2:]), "scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1]),
            "align_corners": flag(coord_mode == "align_corners"),
        }  # fmt: skip
        return builder.build(cls, [x], attributes, name)

    def whole_factors(self) -> tuple[int, int] | None:
        """Output per input element along h and w; None if one is not a whole number."""
        (fh, fw), (h, w) = (round(1 / s) if s else 0 for s in self.geometry[1]), shape_of(self.input)[2:]
        exact = all(abs(f * s - 1) < WHOLE_WITHIN for f, s in zip((fh, fw), self.geometry[1], strict=True))
        return (fh, fw) if exact and (h * fh, w * fw) == self.geometry[0] else None

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in f32."""
        size, scales, align = self.geometry
        return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)

    @classmethod
    def chip_patterns(cls, weights: WeightStore, chip: ChipSpec) -> tuple[RewritePattern, ...]:
        """Convolutions and copies where the chip has no op of its own, as far as they can be."""
        # CV18xx.
        return () if chip.forms.resize else (InterpToConv(weights, chip),)

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """Say why there is no integer form."""
        del ctx
        return "interpolation has no integer form (numerics.md 11.4, 12.1)"

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Interp in float (numerics.md 11.4, 12)."""
        operand, attributes = ctx.operand(self.input, ctx.float_mode(self), self), dict(self.attributes)
        if not self.geometry[2]:
            steps = self._steps(ctx)
            attributes |= {"scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1])}
        # CV18xx has no interpolation: the host computes it in f32 (DN-22).
        if self.name in ctx.chip.forms.on_host:
            attributes["on_host"] = flag(True)
        return ctx.build(TpuInterp, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _steps(self, ctx: LoweringContext) -> list[float]:
        """Input per output element in f32: by U-05 of the sizes, whatever scales the model gives."""
        sizes = zip(shape_of(self.input)[2:], shape_of(self.output)[2:], strict=True)
        theirs = np.array([np.float32(before) / np.float32(after) for before, after in sizes])
        return ctx.quirked(self, Quirk.RESIZE_STEPS_OF_SIZES, theirs, np.array(self.geometry[1], np.float32)).tolist()


@irdl_op_definition
class TpuInterp(Interpolation, TpuOp):
    """`tpu.Interp`: linear interpolation in float; `on_host`: as the host of CV18xx computes it."""

    name = "tpu.Interp"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    on_host = opt_attr_def(BoolAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it in f32."""
        size, scales, align = self.geometry
        compute = interp_on_host if is_set(self.on_host) else interp_linear
        return (compute(operands[0], size=size, scales=scales, align_corners=align),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Always: interpolation has no local form here."""
        del chip
        return "interpolation runs in global memory"

    def emit(self, ctx: EmitContext) -> None:
        """Emit Fn `interp` with the steps in f32 that the op was given (numerics.md 11.4)."""
        _, (scale_h, scale_w), align = self.geometry
        function = functions.Interp(scale_h, scale_w, align, is_set(self.on_host))
        source = _needed(ctx.input(0), shape_of(self.output)[2:], function)
        ctx.emit(isa.Fn, function=function, inputs=(source,), output=ctx.output())


def _needed(source: View, size: tuple[int, ...], function: functions.Interp) -> View:
    """The operand without what lies behind the last row and column that a result of this size (h, w) needs."""
    if function.host or function.whole_factors() or source.interleave > 1:
        return source
    axes = zip(source.shape[2:], size, (function.scale_h, function.scale_w), strict=True)
    rows, columns = (_reach(*axis, function.align_corners) for axis in axes)
    if (rows, columns) == source.shape[2:]:
        return source
    return msgspec.structs.replace(
        source, shape=(*source.shape[:2], rows, columns), layout="strided", strides=gmem_strides(source)
    )


def _reach(length: int, count: int, scale: float, align: bool) -> int:
    """Elements of an axis from the first to the last neighbour of the last of `count` places, in f32."""
    half, place = np.float32(0.5), np.float32(count - 1)
    source = place * np.float32(scale) if align else (place + half) * np.float32(scale) - half
    return min(length, int(np.ceil(max(source, np.float32(0)))) + 1)


def _step(size_in: int, size_out: int, scale: float, coordinates: str) -> float:
    """Input per output element of a linear interpolation."""
    if coordinates == "align_corners":
        return (size_in - 1) / (size_out - 1) if size_out > 1 else 0.0
    if size_out == 1 and coordinates == "pytorch_half_pixel":
        return 1.0  # with step 1 the only element comes from place 0
    return 1.0 / scale


# ---------------------------------------------------------------------------------------- chips without interpolation


@dataclass
class InterpToConv(RewritePattern):
    """Interp -> depthwise Conv: by whole factors, by a half, every second place; a single element -> Upsample.

    So CV18xx has it (U-45). Any other stays.
    """

    weights: WeightStore
    chip: ChipSpec

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Name and range of the result stay."""
        if not isinstance(op, TopInterp):
            return
        if op.geometry[2]:
            self._align_corners(op, rewriter)
        elif (factors := op.whole_factors()) and min(factors) > 1 and max(factors) <= self.chip.max_stride:
            self._enlarge(op, factors, rewriter)
        elif op.geometry[1] == (2.0, 2.0):
            self._convolve(op, op.input, np.full((2, 2), 0.25, np.float32), {"strides": ints_attr((2, 2))}, rewriter)

    def _align_corners(self, op: TopInterp, rewriter: PatternRewriter) -> None:
        """Every second place, from the first to the last; a single element by extents that cannot be made in steps."""
        before, after = shape_of(op.input)[2:], shape_of(op.output)[2:]
        if before == (1, 1) and min(after) > 1 and any(_largest_prime(size) > LARGEST_FACTOR for size in after):
            repeated = {"scale_h": int_attr(after[0]), "scale_w": int_attr(after[1])}
            new = TopUpsample.create(operands=[op.input], result_types=[op.output.type], attributes=repeated)
            copy_name(new, op)
            rewriter.replace(op, new)
        elif min(after) > 1 and all(i == 2 * o - 1 for i, o in zip(before, after, strict=True)):
            first = np.array([[1, 0], [0, 0]], np.float32)
            more = {"strides": ints_attr((2, 2)), "pads": ints_attr((0, 0, 1, 1))}
            self._convolve(op, op.input, first, more, rewriter)

    def _enlarge(self, op: TopInterp, factors: tuple[int, int], rewriter: PatternRewriter) -> None:
        """The border is repeated once; zeros stand between the elements, and a hat goes over them."""
        edged = self._edged(op, rewriter)
        taps = np.outer(*(hat(f) for f in factors))
        before = [f // 2 - 1 for f in factors]
        after = [f - b - 2 for f, b in zip(factors, before, strict=True)]
        more = {"pads": ints_attr((*before, *after)), "inserts": ints_attr([f - 1 for f in factors])}
        self._convolve(op, edged, taps, more, rewriter)

    def _edged(self, op: TopInterp, rewriter: PatternRewriter) -> SSAValue:
        """The input with its border once more around it; of several enlargements there is one."""
        name, x = f"{value_name(op.input)}_pad_edge", op.input
        for use in x.uses:
            if isinstance(use.operation, TopPad) and op_name(use.operation) == name:
                return use.operation.output
        n, c, h, w = shape_of(x)
        attributes = {"paddings": ints_attr((0, 0, 1, 1) * 2), "mode": text("edge"), "val": float_attr(0.0)}
        pad = TopPad.create(
            operands=[x], result_types=[tensor((n, c, h + 2, w + 2), element_of(x))], attributes=attributes
        )
        set_op_name(pad, name)
        rewriter.insert(pad, InsertPoint.before(op))
        return pad.output

    def _convolve(
        self, op: TopInterp, x: SSAValue, taps: np.ndarray, more: Mapping[str, Attribute], rewriter: PatternRewriter
    ) -> None:
        channels, none = shape_of(x)[1], make_none()
        filter = np.tile(taps, (channels, 1, 1, 1))
        weight = make_weight(self.weights, f"{op_name(op)}_filter", filter)
        attributes = {
            "kernel_shape": ints_attr(taps.shape), "strides": ints_attr((1, 1)), "pads": ints_attr((0, 0, 0, 0)),
            "dilations": ints_attr((1, 1)), "group": int_attr(channels), **relu_attributes(), **more,
        }  # fmt: skip
        new = TopConv.create(
            operands=[x, weight.output, none.output], result_types=[op.output.type], attributes=attributes
        )
        copy_name(new, op)
        rewriter.insert([weight, none], InsertPoint.before(op))
        rewriter.replace(op, new)


def hat(factor: int) -> np.ndarray:
    """2*factor weights, f32, of linear interpolation in an image with factor - 1 zeros between its elements.

    The element before a place counts 1 - d, the one after it d, by the distance d; every step in f32.
    """
    phase = np.arange(factor)
    distance = ((phase + 0.5) / factor + 0.5).astype(np.float32)
    distance -= np.floor(distance)
    place = (factor // 2 - 1 - phase) % factor
    taps = np.empty(2 * factor, np.float32)
    taps[place], taps[factor + place] = np.float32(1) - distance, distance
    return taps


def _largest_prime(number: int) -> int:
    """The largest prime factor of a number above 1."""
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor:
            divisor += 1
        else:
            number //= divisor
    return number
