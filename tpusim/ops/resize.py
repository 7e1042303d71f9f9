"""Resizing: `top.Upsample`, `tpu.Upsample` (nearest, whole factors), `top.Interp`, `tpu.Interp` (linear; 11.4)."""

from collections.abc import Iterator, Sequence
from itertools import product
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
    Builder,
    EmitContext,
    LoweringContext,
    RangeRule,
    Shape,
    ShapedOp,
    TopOp,
    TpuOp,
    Window,
)
from tpusim.ops.building import names_op
from tpusim.ops.families import shorter_axes
from tpusim.ops.rescale import lower_same_scale
from tpusim.ops.slice import TopGather

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

    @classmethod
    @names_op
    def make(cls, builder: Builder, x: SSAValue, *, scale_h: int, scale_w: int, name: str) -> SSAValue:
        """scale_h, scale_w: whole factors."""
        return builder.build(cls, [x], {"scale_h": int_attr(scale_h), "scale_w": int_attr(scale_w)}, name)

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

    input = operand_def(TensorType)
    output = result_def(TensorType)
    target_shape = attr_def(ArrayAttr)
    scale_h = attr_def(FloatAttr)
    scale_w = attr_def(FloatAttr)
    align_corners = opt_attr_def(BoolAttr)

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
            return _nearest(builder, x, [nearest_source(i, o, s, coord_mode, nearest_mode) for i, o, s in axes], name)
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

    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """Why not."""
        del ctx
        return "interpolation has no integer form (numerics.md 11.4, 12.1)"

    def lower_float(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Interp in float (numerics.md 11.4, 12)."""
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


# -------------------------------------------------------------------------------------------------------------- making


def _step(size_in: int, size_out: int, scale: float, coordinates: str) -> float:
    """Input per output element of a linear interpolation."""
    if coordinates == "align_corners":
        return (size_in - 1) / (size_out - 1) if size_out > 1 else 0.0
    if size_out == 1 and coordinates == "pytorch_half_pixel":
        return 1.0  # with step 1 the only element comes from place 0
    return 1.0 / scale


def nearest_source(size_in: int, size_out: int, scale: float, coordinates: str, rounding: str) -> np.ndarray:
    """The input index that each output index copies in a resize of mode nearest."""
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


def _nearest(builder: Builder, x: SSAValue, sources: list[np.ndarray], name: str) -> SSAValue:
    """Upsample where every index is repeated a whole number of times along h and w, else a Gather per axis."""
    shape = shape_of(x)
    changed = [axis for axis, s in enumerate(sources) if not np.array_equal(s, np.arange(shape[axis]))]
    factors = [len(s) // shape[axis] for axis, s in enumerate(sources)]
    whole = all(np.array_equal(s, np.repeat(np.arange(shape[a]), factors[a])) for a, s in enumerate(sources))
    if len(shape) == 4 and whole and factors[:2] == [1, 1]:
        return x if not changed else TopUpsample.make(builder, x, scale_h=factors[2], scale_w=factors[3], name=name)
    for axis in changed:
        place = name if axis == changed[-1] else f"{name}_axis{axis}"
        x = TopGather.make(builder, x, sources[axis], axis=axis, name=place)
    return x
