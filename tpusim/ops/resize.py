"""Resizing: `top.Upsample`, `tpu.Upsample` (nearest, whole factors), `top.Interp`, `tpu.Interp` (linear; 11.4)."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import floor
from typing import ClassVar

import jax.numpy as jnp
import msgspec
import numpy as np
from tpusim_kernels.resize import interp_linear
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import LayerGroupAttr, flag, float_attr, int_attr, ints, ints_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.layout import element_bytes, gmem_strides, lmem_strides
from tpusim.ops.base import (
    Array,
    Axis,
    EmitContext,
    ImportContext,
    LoweringContext,
    OnnxNode,
    RangeRule,
    Shape,
    ShapedOp,
    TopOp,
    TpuOp,
    Window,
)
from tpusim.ops.families import shorter_axes
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.slice import build_gather

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


# ------------------------------------------------------------------------------------------------------------- Upsample


def upsampled_shape(shape: Shape, factors: tuple[int, int]) -> Shape:
    """(n, c, h*fh, w*fw). Raises ValueError for another rank or factors below 1."""
    if len(shape) != 4 or min(factors) < 1:
        raise ValueError(f"an input (n, c, h, w) and factors of 1 or more are required, got {shape} and {factors}")
    return shape[0], shape[1], shape[2] * factors[0], shape[3] * factors[1]


def upsampled(x: Array, factors: tuple[int, int]) -> Array:
    """Every element repeated along h and w."""
    return jnp.repeat(jnp.repeat(x, factors[0], axis=2), factors[1], axis=3)


class Upsampling(ShapedOp):
    """Every element repeated scale_h x scale_w times, in either dialect."""

    input = operand_def(TensorType)
    output = result_def(TensorType)
    scale_h = attr_def(IntegerAttr)
    scale_w = attr_def(IntegerAttr)

    @property
    def factors(self) -> tuple[int, int]:
        """(h, w)."""
        return self.scale_h.value.data, self.scale_w.value.data

    def infer(self) -> tuple[Shape, ...]:
        """Extents times factors."""
        return (upsampled_shape(shape_of(self.input), self.factors),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """The repeated elements."""
        return (upsampled(operands[0], self.factors),)


@irdl_op_definition
class TopUpsample(Upsampling, TopOp):
    """`top.Upsample`: nearest neighbour by the whole factors scale_h and scale_w, input (n, c, h, w)."""

    name = "top.Upsample"
    SPEC: ClassVar[tuple[str, ...]] = ("9.0",)
    RANGE: ClassVar[RangeRule] = RangeRule(forward=True)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Upsample with the operand's stored type."""
        return lower_same_scale(self, ctx, TpuUpsample, dict(self.attributes))


@irdl_op_definition
class TpuUpsample(Upsampling, TpuOp):
    """`tpu.Upsample`: a byte move, the same stored type."""

    name = "tpu.Upsample"

    group_info = opt_attr_def(LayerGroupAttr)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Local (layer_group.md 2)."""
        del chip

    def backward_slice(self, axis: Axis, window: Window, operand: int) -> Window | None:
        """h, w: from o div k to (o + s - 1) div k (7.2)."""
        del operand
        if axis not in ("h", "w"):
            return window
        factor = self.factors["hw".index(axis)]
        first = window[0] // factor
        return first, (window[0] + window[1] - 1) // factor - first + 1

    def backward_slice_on(self, chip: ChipSpec, axis: Axis, window: Window, operand: int) -> Window | None:
        """Whole multiples of k only but on the 1684X family (7.2)."""
        factor = self.factors["hw".index(axis)] if axis in ("h", "w") else 1
        if chip.whole_upsample and (window[0] % factor or window[1] % factor):
            return None
        return super().backward_slice_on(chip, axis, window, operand)

    def emit(self, ctx: EmitContext) -> None:
        """A copy of the operand for each place in a factor_h x factor_w cell: AR copies locally, else GDMA copies."""
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
    """(first place in an output window, operand window that goes there and to every factor-th place after it)."""
    for cell in range(factor):
        first = (cell - out[0]) % factor
        count = -(-(out[1] - first) // factor)
        if count > 0:
            yield first, ((out[0] + first) // factor, count)


# --------------------------------------------------------------------------------------------------------------- Interp


def resized_shape(shape: Shape, size: tuple[int, ...]) -> Shape:
    """(n, c, *size). Raises ValueError for another rank."""
    if len(shape) != 4 or len(size) != 2 or min(size) < 1:
        raise ValueError(f"an input (n, c, h, w) and two extents are required, got {shape} and {list(size)}")
    return shape[0], shape[1], size[0], size[1]


@irdl_op_definition
class TopInterp(TopOp):
    """`top.Interp`: linear interpolation to `target_shape` (h, w); scale_h, scale_w: input per output element."""

    name = "top.Interp"
    SPEC: ClassVar[tuple[str, ...]] = ("11.4", "12.1")
    ONNX: ClassVar[tuple[str, ...]] = ("Resize", "Upsample")

    input = operand_def(TensorType)
    output = result_def(TensorType)
    target_shape = attr_def(ArrayAttr)
    scale_h = attr_def(FloatAttr)
    scale_w = attr_def(FloatAttr)
    align_corners = opt_attr_def(BoolAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """Resize and Upsample: nearest as Upsample or Gathers, linear as Interp."""
        x = ctx.value(node.inputs[0])
        shape = shape_of(x)
        scales, size = _target(ctx, node, shape)
        mode = node.take("mode", "nearest")
        old = ctx.opset < 11
        coordinates = "asymmetric" if old else node.take("coordinate_transformation_mode", "half_pixel")
        rounding = "floor" if old else node.take("nearest_mode", "round_prefer_floor")
        for key in ("cubic_coeff_a", "extrapolation_value"):  # of other modes
            node.take(key)
        if coordinates not in COORDINATES or rounding not in NEAREST:
            raise node.refuse(f"coordinates {', '.join(COORDINATES)} are required, got {coordinates}, {rounding}")
        if mode == "nearest":
            return _nearest(ctx, x, [
                nearest_source(i, o, s, coordinates, rounding) for i, o, s in zip(shape, size, scales, strict=True)
            ], node.outputs[0])  # fmt: skip
        if mode not in ("linear", "bilinear") or len(shape) != 4 or size[:2] != shape[:2]:
            raise node.refuse(f"mode nearest, or linear along the last two of four axes is required, got {mode}")
        if coordinates == "asymmetric":
            raise node.refuse("linear with asymmetric coordinates is not supported; export with half_pixel")
        align = coordinates == "align_corners"
        steps: list[float] = []
        for i, o, s in list(zip(shape, size, scales, strict=True))[2:]:
            if align:
                steps.append((i - 1) / (o - 1) if o > 1 else 0.0)
            else:  # with step 1 the only element comes from place 0
                steps.append(1.0 if o == 1 and coordinates == "pytorch_half_pixel" else 1.0 / s)
        attributes = {
            "target_shape": ints_attr(size[2:]), "scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1]),
            "align_corners": flag(align),
        }  # fmt: skip
        return ctx.build(cls, [x], attributes, node.outputs[0])

    @property
    def geometry(self) -> tuple[tuple[int, int], tuple[float, float], bool]:
        """(size, scales, align_corners)."""
        return _geometry(self)

    def infer(self) -> tuple[Shape, ...]:
        """(n, c, h, w) of the result."""
        return (resized_shape(shape_of(self.input), ints(self.target_shape)),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        size, scales, align = self.geometry
        return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Interp in float (numerics.md 11.4, 12)."""
        if ctx.mode(self) == "int8":
            ctx.fallback(self, "interpolation has no integer form (numerics.md 11.4, 12.1)")
        operand, attributes = ctx.operand(self.input, ctx.float_mode(self), self), dict(self.attributes)
        if not self.geometry[2]:
            steps = self._steps(ctx)
            attributes |= {"scale_h": float_attr(steps[0]), "scale_w": float_attr(steps[1])}
        return ctx.build(TpuInterp, [operand], attributes, ctx.float_type(self), shape_of(self.output), op_name(self))

    def _steps(self, ctx: LoweringContext) -> list[float]:
        """Input per output element in f32: upstream's are of the sizes, whatever scales the model gives."""
        sizes = zip(shape_of(self.input)[2:], shape_of(self.output)[2:], strict=True)
        theirs = np.array([np.float32(before) / np.float32(after) for before, after in sizes])
        return ctx.quirked(self, "resize_steps_of_sizes", theirs, np.array(self.geometry[1], np.float32)).tolist()


def _geometry(op: "TopInterp | TpuInterp") -> tuple[tuple[int, int], tuple[float, float], bool]:
    h, w = ints(op.target_shape)
    align = op.align_corners is not None and bool(op.align_corners.value.data)
    return (h, w), (op.scale_h.value.data, op.scale_w.value.data), align


@irdl_op_definition
class TpuInterp(TpuOp):
    """`tpu.Interp`: linear interpolation in float."""

    name = "tpu.Interp"
    INTEGER_FORMS: ClassVar[tuple[tuple[str, ...], ...]] = ()

    input = operand_def(TensorType)
    output = result_def(TensorType)
    target_shape = attr_def(ArrayAttr)
    scale_h = attr_def(FloatAttr)
    scale_w = attr_def(FloatAttr)
    align_corners = opt_attr_def(BoolAttr)
    group_info = opt_attr_def(LayerGroupAttr)

    @property
    def geometry(self) -> tuple[tuple[int, int], tuple[float, float], bool]:
        """(size, scales, align_corners)."""
        return _geometry(self)

    def infer(self) -> tuple[Shape, ...]:
        """(n, c, h, w) of the result."""
        return (resized_shape(shape_of(self.input), ints(self.target_shape)),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32."""
        size, scales, align = self.geometry
        return (interp_linear(operands[0], size=size, scales=scales, align_corners=align),)

    def why_global(self, chip: ChipSpec) -> str | None:
        """Runs in global memory."""
        del chip
        return "interpolation runs in global memory"

    def emit(self, ctx: EmitContext) -> None:
        """FN interp."""
        _, (scale_h, scale_w), align = self.geometry
        function = functions.Interp(scale_h, scale_w, align)
        ctx.emit(isa.Fn, function=function, inputs=(ctx.input(0),), output=ctx.output())


# --------------------------------------------------------------------------------------------------------------- import


def _target(ctx: ImportContext, node: OnnxNode, shape: Shape) -> tuple[list[float], Shape]:
    """(output per input element, extents) along every axis, from constant scales or sizes."""
    if node.op_type == "Upsample" and ctx.opset < 9:
        scales = node.take("scales")
        if scales is None:
            raise node.refuse("scales are required; opset 7 or later")
        return _from_scales(node, shape, [float(s) for s in scales])
    for key in ("antialias", "exclude_outside"):
        if node.take(key, 0):
            raise node.refuse(f"{key} = 0 is required")
    if node.take("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.refuse('keep_aspect_ratio_policy "stretch" is required')
    given = node.take("axes")
    axes = range(len(shape)) if given is None else [int(a) % len(shape) for a in given]
    index = 1 if node.op_type == "Upsample" or ctx.opset < 11 else 2
    scales = _values(ctx, node, index, "scales")
    if scales is not None:
        full = [1.0] * len(shape)
        for axis, scale in zip(axes, scales, strict=True):
            full[axis] = float(scale)
        return _from_scales(node, shape, full)
    sizes = _values(ctx, node, 3, "sizes")
    if sizes is None:
        raise node.refuse("scales or sizes are required")
    size = list(shape)
    for axis, extent in zip(axes, sizes, strict=True):
        size[axis] = int(extent)
    return [o / i for i, o in zip(shape, size, strict=True)], tuple(size)


def _values(ctx: ImportContext, node: OnnxNode, index: int, what: str) -> list[float] | None:
    if len(node.inputs) <= index or not node.inputs[index]:
        return None
    constant = ctx.constant(node.inputs[index])
    if constant is None:
        raise node.refuse(f"constant {what} are required, '{node.inputs[index]}' is computed")
    return [float(v) for v in constant.reshape(-1)] or None


def _from_scales(node: OnnxNode, shape: Shape, scales: list[float]) -> tuple[list[float], Shape]:
    if len(scales) != len(shape) or min(scales) <= 0:
        raise node.refuse(f"{len(shape)} scales above 0 are required, got {scales}")
    return scales, tuple(floor(size * scale) for size, scale in zip(shape, scales, strict=True))


def nearest_source(size_in: int, size_out: int, scale: float, coordinates: str, rounding: str) -> np.ndarray:
    """The input index that each output index copies (ONNX Resize, mode nearest)."""
    places = np.arange(size_out, dtype=np.float64)
    match coordinates:
        case "align_corners":
            source = places * ((size_in - 1) / (size_out - 1)) if size_out > 1 else places * 0
        case "asymmetric":
            source = places / scale
        case "pytorch_half_pixel" if size_out == 1:
            source = places * 0
        case _:
            source = (places + 0.5) / scale - 0.5
    rounded = {
        "round_prefer_floor": np.ceil(source - 0.5), "round_prefer_ceil": np.floor(source + 0.5),
        "floor": np.floor(source), "ceil": np.ceil(source),
    }[rounding]  # fmt: skip
    return np.clip(rounded, 0, size_in - 1).astype(np.int32)


def _nearest(ctx: ImportContext, x: SSAValue, sources: list[np.ndarray], name: str) -> SSAValue:
    """Upsample where every index is repeated a whole number of times along h and w, else a Gather per axis."""
    shape = shape_of(x)
    changed = [axis for axis, s in enumerate(sources) if not np.array_equal(s, np.arange(shape[axis]))]
    factors = [len(s) // shape[axis] for axis, s in enumerate(sources)]
    whole = all(np.array_equal(s, np.repeat(np.arange(shape[a]), factors[a])) for a, s in enumerate(sources))
    if len(shape) == 4 and whole and factors[:2] == [1, 1]:
        attributes = {"scale_h": int_attr(factors[2]), "scale_w": int_attr(factors[3])}
        return x if not changed else ctx.build(TopUpsample, [x], attributes, name)
    for axis in changed:
        x = build_gather(ctx, x, sources[axis], axis, name if axis == changed[-1] else f"{name}_axis{axis}")
    return x
