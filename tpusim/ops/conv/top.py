"""`top.Conv`: import, shape, float function, and lowering by numerics.md 5.4, 7.1, 7.2 and 9.1."""

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
from tpusim_kernels import conv as kernels
from tpusim_kernels.prim.multiplier import best_fit_array, bm1684_conv_shift
from tpusim_kernels.prim.scale import round_half_away, saturate_np
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, NoneType, TensorType, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import attr_def, irdl_op_definition, operand_def, opt_attr_def, result_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import flag, float_attr, int_attr, ints, ints_attr, op_name, set_op_name, text, value_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.base import (
    Array,
    FloatRule,
    ImportContext,
    LoweringContext,
    OnnxNode,
    QuantInfo,
    Shape,
    TopOp,
    is_none,
)
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.families import conv_extent, only_user, onnx_window, relu_limit_of, relu_of
from tpusim.ops.view import TopReshape

SATURATED_BIAS_RATIO = 0.03
"""Share of saturated biases above which the BM1684 shift is lowered (numerics.md 5.4)."""


@irdl_op_definition
class TopConv(TopOp):
    """`top.Conv`: 2-D convolution, input (n, ic, h, w), filter (oc, ic/group, kh, kw), bias (oc,) or none."""

    name = "top.Conv"
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32")
    ONNX: ClassVar[tuple[str, ...]] = ("Conv",)

    input = operand_def(TensorType)
    filter = operand_def(TensorType)
    bias = operand_def(TensorType | NoneType)
    output = result_def(TensorType)
    kernel_shape = attr_def(ArrayAttr)
    strides = attr_def(ArrayAttr)
    pads = attr_def(ArrayAttr)
    dilations = opt_attr_def(ArrayAttr)
    group = opt_attr_def(IntegerAttr)
    do_relu = opt_attr_def(BoolAttr)
    relu_limit = opt_attr_def(FloatAttr)

    @classmethod
    def from_onnx(cls, ctx: ImportContext, node: OnnxNode) -> SSAValue:
        """ONNX Conv with a constant or computed filter; 1-D as 2-D over (w, 1)."""
        x, filter = ctx.value(node.inputs[0]), ctx.value(node.inputs[1])
        rank = len(shape_of(x))
        if rank not in (3, 4) or len(shape_of(filter)) != rank:
            raise node.refuse(f"a 1-D or 2-D convolution is required, got a filter of shape {shape_of(filter)}")
        bias = ctx.value(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else ctx.none()
        attributes = onnx_window(node, shape_of(x)[2:], kernel=shape_of(filter)[2:])
        attributes |= {"group": int_attr(node.take("group", 1)), "do_relu": flag(False), "relu_limit": float_attr(-1.0)}
        name = node.outputs[0]
        if rank == 4:
            return ctx.build(cls, [x, filter, bias], attributes, name)
        x, filter = (_as_image(ctx, node.inputs[i], f"{name}_{k}") for i, k in ((0, "input"), (1, "filter")))
        y = ctx.build(cls, [x, filter, bias], attributes, name + "_2d")
        return ctx.build(TopReshape, [y], {"shape": ints_attr(shape_of(y)[:3])}, name)

    @property
    def geometry(self) -> dict[str, tuple[int, ...] | int]:
        """strides, pads, dilations, groups as the kernels take them."""
        return {
            "strides": ints(self.strides),
            "pads": ints(self.pads),
            "dilations": ints(self.dilations) if self.dilations else (1, 1),
            "groups": self.group.value.data if self.group else 1,
        }

    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, oh, ow)."""
        kernel, spatial = ints(self.kernel_shape), shape_of(self.filter)[2:]
        if kernel != spatial:
            raise ValueError(f"a filter of kernel_shape {kernel} is required, got {spatial}")
        return (conv_shape(shape_of(self.input), shape_of(self.filter), self.geometry),)

    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """f32 convolution, bias, relu."""
        x, w, b = operands
        relu = {"do_relu": relu_of(self), "relu_limit": relu_limit_of(self)}
        y = kernels.conv2d_float(x, w, b, **relu, **self.geometry)  # type: ignore[arg-type]
        return (y,)

    def flops(self) -> int:
        """Out * (2*kh*kw*ic/g + bias + relu) (numerics.md 16)."""
        out, per = prod(shape_of(self.output)), 2 * prod(shape_of(self.filter)[1:])
        return out * (per + (not is_none(self.bias)) + relu_of(self))

    @classmethod
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """What follows a 1-D convolution works on the image."""
        del weights
        return (ReshapeBehindChannelOp(),)

    def lower(self, ctx: LoweringContext) -> SSAValue:
        """tpu.Conv2D in integers if the op is calibrated and its filter constant, else in float."""
        if ctx.mode(self) == "int8":
            why = self._why_not_int8(ctx)
            if why is None:
                multiplied = ctx.chip.requant_words > 0
                lowered = _lower_multiplier(self, ctx) if multiplied else _lower_shift(self, ctx)
                if lowered is not None:
                    return lowered
                why = "the right shift of the requant would be negative"
            ctx.fallback(self, why)
        return self._lower_float(ctx)

    def _why_not_int8(self, ctx: LoweringContext) -> str | None:
        if ctx.array(self.filter) is None or (not is_none(self.bias) and ctx.array(self.bias) is None):
            return "the filter is not constant"
        if ctx.quant(self.input) is None or ctx.quant(self.output) is None:
            return "input or output is not calibrated"
        if ctx.chip.requant_words == 0 and max(ints(self.strides)) > ctx.chip.max_stride:
            return f"stride above {ctx.chip.max_stride}"
        return None

    def _lower_float(self, ctx: LoweringContext) -> SSAValue:
        """In the op's float type, the bias in f32 (numerics.md 9.1); all in f32 if the filter is computed."""
        constant = ctx.array(self.filter) is not None and (is_none(self.bias) or ctx.array(self.bias) is not None)
        mode, element = (ctx.float_mode(self), ctx.float_type(self)) if constant else ("f32", f32)
        operands = [ctx.operand(self.input, mode, self), ctx.operand(self.filter, mode, self)]
        operands.append(ctx.none() if is_none(self.bias) else ctx.operand(self.bias, "f32", self))
        return self.build_tpu(ctx, operands, element, {"relu_limit": float_attr(relu_limit_of(self))})

    def build_tpu(
        self, ctx: LoweringContext, operands: list[SSAValue], element: Attribute, more: dict[str, Attribute]
    ) -> SSAValue:
        """A tpu.Conv2D with this op's geometry and the given operands, type and further attributes."""
        keep = ("kernel_shape", "strides", "pads")
        attributes = {k: self.attributes[k] for k in keep}
        attributes["dilations"] = ints_attr(self.geometry["dilations"])  # type: ignore[arg-type]
        attributes["group"] = int_attr(self.geometry["groups"])  # type: ignore[arg-type]
        attributes["do_relu"] = flag(relu_of(self))
        attributes |= {"relu_limit": float_attr(-1.0), **more}
        return ctx.build(TpuConv2D, operands, attributes, element, shape_of(self.output), op_name(self))


class ReshapeBehindChannelOp(RewritePattern):
    """Conv -> Reshape that keeps n and c -> Relu or Scale: the Reshape goes last, so that the op can become the Conv's.

    Such a Reshape stands behind a 1-D convolution.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Reshape takes the op's name, the op one of its own (no such tensor in ONNX)."""
        view = op.operands[0].owner if op.name in ("top.Relu", "top.Scale") else None
        if not isinstance(view, TopReshape) or not isinstance(view.input.owner, TopConv):
            return
        wide, narrow = shape_of(view.input), shape_of(view.output)
        if wide[:2] != narrow[:2] or only_user(view.input) is None or only_user(view.output) is None:
            return
        operands = [view.input, *op.operands[1:]]
        moved = type(op).create(operands=operands, result_types=[view.input.type], attributes=dict(op.attributes))
        last = TopReshape.create(
            operands=[moved.results[0]], result_types=[op.results[0].type], attributes=dict(view.attributes)
        )
        set_op_name(moved, op_name(op) + "_2d")
        set_op_name(last, op_name(op))
        rewriter.replace(op, [moved, last])
        rewriter.erase(view)


def _as_image(ctx: ImportContext, source: str, name: str) -> SSAValue:
    """A tensor (n, c, w) as (n, c, w, 1); a constant is reshaped at once."""
    constant = ctx.constant(source)
    if constant is not None:
        return ctx.weight(name, constant[..., None])
    value = ctx.value(source)
    return ctx.build(TopReshape, [value], {"shape": ints_attr((*shape_of(value), 1))}, name)


def conv_shape(x: Shape, filter: Shape, geometry: dict[str, tuple[int, ...] | int]) -> Shape:
    """(n, oc, oh, ow). Raises ValueError for operands that do not fit."""
    strides, pads, dilations, groups = (geometry[k] for k in ("strides", "pads", "dilations", "groups"))
    if len(x) != 4 or len(filter) != 4:
        raise ValueError(f"a 4-D input and filter are required, got {x} and {filter}")
    if x[1] != filter[1] * groups or filter[0] % groups:  # type: ignore[operator]
        raise ValueError(f"input of {x[1]} channels does not fit filter {filter} in {groups} groups")
    spatial = (
        conv_extent(x[2 + i], filter[2 + i], strides[i], pads[i], pads[2 + i], dilations[i])  # type: ignore[index]
        for i in range(2)
    )
    return (x[0], filter[0], *spatial)


def _filter_scales(op: TopConv, ctx: LoweringContext, w: np.ndarray, signed: bool) -> np.ndarray:
    """Per output channel f64 scale of the filter (numerics.md 7.1), with the all-int8 shortcut."""
    shortcut = _power_of_two_scale(w, signed)
    if shortcut is not None:
        return np.full(len(w), shortcut, np.float64)
    largest: np.ndarray = np.abs(w.reshape(w.shape[0], -1)).max(axis=1)
    return np.maximum(largest.astype(np.float32).astype(np.float64) / (127 if signed else 255), 1e-5)


def _power_of_two_scale(w: np.ndarray, signed: bool) -> float | None:
    """2^-i for the smallest i in 0..6 such that w * 2^i is all (u)int8 integers (numerics.md 7.1)."""
    low, high = (-128, 127) if signed else (0, 255)
    for i in range(7):
        scaled = np.ldexp(w.astype(np.float64), i)
        if np.array_equal(scaled, np.round(scaled)) and scaled.min() >= low and scaled.max() <= high:
            return 2.0**-i
    return None


def _input_scale(x: QuantInfo, w: np.ndarray, bias: np.ndarray | None) -> float:
    """s_in, replaced when it is tiny (numerics.md 7.1)."""
    if x.scale > 1e-5:
        return x.scale
    largest = 1e-6 if bias is None else float(np.abs(bias).max())
    return float(np.abs(w).max()) / 127 if largest <= 1e-5 else largest / 127


def _lower_multiplier(op: TopConv, ctx: LoweringContext) -> SSAValue:
    """X family: per-channel filter scale, int32 bias, 32-bit multiplier and shift per channel."""
    x, y = ctx.quant(op.input), ctx.quant(op.output)
    w = ctx.array(op.filter)
    bias = None if is_none(op.bias) else ctx.array(op.bias)
    assert x is not None and y is not None and w is not None  # held by _why_not_int8
    signed = bool((w < 0).any()) or bias is not None
    scales = _filter_scales(op, ctx, w, signed)
    s_in = _input_scale(x, w, bias)
    filter = saturate_np(round_half_away(w / scales.reshape(-1, 1, 1, 1)), "int8" if signed else "uint8")
    int_bias = _int32_bias(bias, filter if signed else np.zeros_like(filter), scales * s_in, x.zero_point)
    m, r = best_fit_array(scales * s_in / y.scale)
    name = value_name(op.filter)
    operands = [
        ctx.operand(op.input, "int8", op),
        ctx.weight(name + "_int8", filter),
        ctx.none() if int_bias is None else ctx.weight(name + "_bias_int32", int_bias),
    ]
    more: dict[str, Attribute] = {
        "multiplier": ints_attr(m), "rshift": ints_attr(r), "quant_mode": text("MultiplierShift")
    }  # fmt: skip
    return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), more)


def _int32_bias(bias: np.ndarray | None, filter: np.ndarray, scale: np.ndarray, z_in: int) -> np.ndarray | None:
    """round-half-away(b/(s_w*s_in) - z_in*sum(W_q)) (numerics.md 7.2); None if there is neither bias nor zero point."""
    if bias is None and z_in == 0:
        return None
    offset = z_in * filter.reshape(filter.shape[0], -1).astype(np.int64).sum(axis=1)
    real = np.zeros(filter.shape[0]) if bias is None else bias.astype(np.float64) / scale
    return saturate_np(round_half_away(real - offset), "int32")


def _lower_shift(op: TopConv, ctx: LoweringContext) -> SSAValue | None:
    """BM1684: one right shift per tensor, int16 bias (numerics.md 5.4); None if the shift would be negative."""
    x, y = ctx.quant(op.input), ctx.quant(op.output)
    w = ctx.array(op.filter)
    bias = None if is_none(op.bias) else ctx.array(op.bias)
    assert x is not None and y is not None and w is not None  # held by _why_not_int8
    r = bm1684_conv_shift(float(np.abs(w).max()), x.scale, y.scale)
    if r < 0:
        return None
    r, int_bias = shift_and_bias(r, bias, y.scale)
    filter = saturate_np(round_half_away(w.astype(np.float64) * 2.0**r * x.scale / y.scale), "int8")
    name = value_name(op.filter)
    operands = [
        ctx.operand(op.input, "int8", op),
        ctx.weight(name + "_int8", filter),
        ctx.none() if int_bias is None else ctx.weight(name + "_bias_int16", int_bias),
    ]
    more: dict[str, Attribute] = {
        "multiplier": ints_attr([1]),
        "rshift": ints_attr([r]),
        "quant_mode": text("OnlyShift"),
    }
    return op.build_tpu(ctx, operands, ctx.quantised_type(op.output), more)


def shift_and_bias(r: int, bias: np.ndarray | None, s_out: float) -> tuple[int, np.ndarray | None]:
    """Lower r while more than 3 % of the int16 biases saturate (numerics.md 5.4)."""
    if bias is None:
        return r, None
    while True:
        wide = round_half_away(bias.astype(np.float64) * 2.0**r / s_out)
        stored = saturate_np(wide, "int16")
        if r == 0 or np.mean(wide != stored) <= SATURATED_BIAS_RATIO:
            return r, stored
        r -= 1
