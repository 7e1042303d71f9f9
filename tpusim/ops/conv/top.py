"""`top.Conv`: shape, float function, patterns, and lowering by numerics.md 5.4, 7.1, 7.2 and 9.1."""

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, Unpack, cast

import numpy as np
from tpusim_kernels import conv as kernels
from tpusim_kernels.conv3d import conv3d_float
from tpusim_kernels.conv_float import conv2d_estimate, conv2d_float, is_product, is_vector
from tpusim_kernels.conv_graph import ordered_filter
from tpusim_kernels.conv_trial import RoundedFilter, conv2d_trial, factor_of, linear_trial, rounded_filter
from tpusim_kernels.lazy import jax
from tpusim_kernels.prim.forms import has_byte_products
from tpusim_kernels.prim.multiplier import best_fit_array
from tpusim_kernels.prim.scale import storage_range
from typing_extensions import override
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_attr_def
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, int_attr, ints, ints_attr, op_name, set_op_name
from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ir.modes import requant_mode
from tpusim.ir.once import once
from tpusim.ir.packing import PACKED_BITS
from tpusim.ir.types import shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.conv.base import ConvTop, widened_shape
from tpusim.ops.conv.merge import grows_too_much, merged_bias, merged_filter
from tpusim.ops.conv.quantize import (
    filter_is_signed,
    filter_scales,
    int32_bias,
    quantised_filter,
)
from tpusim.ops.conv.tpu import TpuConv2D
from tpusim.ops.conv.volume import TpuConv3D
from tpusim.ops.framework.base import (
    Array,
    Builder,
    Estimate,
    FloatRule,
    LoweringContext,
    OpT,
    QuantParams,
    Shape,
    Squares,
    TopOp,
    is_none,
)
from tpusim.ops.framework.building import names_op
from tpusim.ops.framework.families import constant_of, conv_extent, only_user, relu_attributes, relu_of
from tpusim.ops.framework.imported_scales import note_imported_scales
from tpusim.ops.framework.sliding import ConvWindow, window_attributes
from tpusim.ops.interfaces import Estimated, KernelConstants, Weighs
from tpusim.ops.patterns.cropped_conv import ConvSlice
from tpusim.ops.patterns.detector_head import before_float_head
from tpusim.ops.patterns.wide_output import stored_output
from tpusim.ops.requant_axis import requantised_axis
from tpusim.ops.structure import make_weight
from tpusim.ops.view import TopReshape, reshaped

NARROW = 16
"""With fewer channels of the image int8 products are not faster than f32 ones."""
FACTORED = {True: 128, False: 1024}
"""With more channels of the image, factoring a filter takes longer than its trial by int8 (True) or f32 products."""


@irdl_op_definition
class TopConv(ConvTop, Weighs, KernelConstants, Estimated):
    """`top.Conv`: 2-D convolution, input (n, ic, h, w), filter (oc, ic/group, kh, kw), bias (oc,) or none.

    3-D has one more axis: input (n, ic, d, h, w), filter (oc, ic/group, kd, kh, kw). pads: befores, then afters.
    inserts: numbers of zeros between the rows and between the columns of a 2-D input.
    """

    name = "top.Conv"
    SPEC: ClassVar[tuple[str, ...]] = ("9.1", "5.4", "5.6", "7.1", "7.2")
    FLOAT: ClassVar[FloatRule] = FloatRule(int8="f32", f8="f8")
    TPU: ClassVar[tuple[OpT, OpT]] = (TpuConv2D, TpuConv3D)
    KEPT: ClassVar[tuple[str, ...]] = ("kernel_shape", "strides", "pads", "inserts")

    dilations = opt_attr_def(ArrayAttr)
    group = opt_attr_def(IntegerAttr)
    inserts = opt_attr_def(ArrayAttr)

    @classmethod
    @names_op
    def make(
        cls, builder: Builder, x: SSAValue, filter: SSAValue, bias: SSAValue | None = None, *, group: int = 1,
        do_relu: bool = False, relu_limit: float = -1.0, name: str, **window: Unpack[ConvWindow],
    ) -> SSAValue:  # fmt: skip
        """X (n, ic, [[d,] h,] w), filter (oc, ic/group, ...), constant or computed; 1-D as 2-D over (w, 1)."""
        rank = len(shape_of(x))
        if rank not in (3, 4, 5) or len(shape_of(filter)) != rank:
            raise ValueError(f"a 1-D, 2-D or 3-D convolution is required, got a filter of shape {shape_of(filter)}")
        if group < 1:
            raise ValueError(f"a group of 1 or more is required, got {group}")
        bias = builder.none() if bias is None else bias
        window = {"kernel_shape": shape_of(filter)[2:], **window}
        attributes = dict[str, Attribute](window_attributes(shape_of(x)[2:], **window))
        attributes |= {"group": int_attr(group), **relu_attributes(do_relu, relu_limit)}
        if rank != 3:
            return builder.build(cls, [x, filter, bias], attributes, name)
        x, filter = (_as_image(builder, v, f"{name}_{k}") for v, k in ((x, "input"), (filter, "filter")))
        y = builder.build(cls, [x, filter, bias], attributes, name + "_2d")
        return TopReshape.make(builder, y, shape=shape_of(y)[:3], name=name)

    @property
    @override
    def geometry(self) -> dict[str, Any]:
        """strides, pads, dilations and groups, as the kernels take them."""
        return {
            "strides": ints(self.strides),
            "pads": ints(self.pads),
            "dilations": ints(self.dilations) if self.dilations else (1,) * len(ints(self.kernel_shape)),
            "groups": self.group.value.data if self.group else 1,
        }

    @override
    def infer(self) -> tuple[Shape, ...]:
        """(n, oc, oh, ow) or (n, oc, od, oh, ow)."""
        kernel, spatial = ints(self.kernel_shape), shape_of(self.filter)[2:]
        if kernel != spatial:
            raise ValueError(f"a filter of kernel_shape {kernel} is required, got {spatial}")
        x = widened_shape(shape_of(self.input), self.inserts)
        return (conv_shape(x, shape_of(self.filter), self.geometry),)

    @override
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]:
        """Convolution, bias and relu in f32."""
        x, w, b = operands
        if self.inserts is not None:
            x = kernels.dilated(x, 0, inserts=ints(self.inserts))
        convolution = conv3d_float if self.volume else conv2d_float
        return (convolution(x, w, b, **self.rectified, **self.geometry),)

    @override
    def for_kernel(self, index: int, constant: Array) -> Any:
        """The filter in the form that the product of this window reads."""
        if index != 1 or self.volume:
            return constant
        n, oc, oh, ow = shape_of(self.output)
        if is_vector((oh, ow), oc, self.geometry["groups"]):
            return constant
        alone = shape_of(self.filter)[2:] == (1, 1)
        return ordered_filter(np.asarray(constant), self.geometry["groups"], oh * ow * (n if alone else 1))

    @override
    def estimate(self) -> Estimate:
        """By XLA's library on NHWC images; with groups, volumes or inserted zeros by `inference`."""
        if self.volume or self.inserts is not None or self.geometry["groups"] != 1:
            return Estimate(self.inference)

        geometry = self.geometry
        window = {name: geometry[name] for name in ("strides", "pads", "dilations")}
        product = is_product(shape_of(self.input), shape_of(self.filter), **window)

        def compute(operands: Sequence[Array]) -> tuple[Array, ...]:
            return (conv2d_estimate(*operands, **self.rectified, **geometry, product=product),)

        filter = (0, 2, 3, 1) if product else (2, 3, 1, 0)
        return Estimate(compute, {0: (0, 2, 3, 1), 1: filter}, (0, 2, 3, 1), self._trial)

    def _trial(self, constants: Sequence[Array]) -> tuple[Squares, float] | None:
        """By a linear map, or by int8 products if these are fast and the image has enough channels; else none."""
        image, filter, bias = constants
        if filter is None or image is not None or (bias is None and not is_none(self.bias)):
            return None
        weights = np.asarray(filter)
        if weights.shape[1] < NARROW or not np.isfinite(weights).all():
            return None
        fast = has_byte_products()
        if self._is_linear_map and weights.shape[1] <= min(FACTORED[fast], weights.shape[0] // 2):
            factor, strides = cast("Any", jax).device_put(factor_of(weights)), self.geometry["strides"]
            return lambda values, scales: linear_trial(values[0], scales, factor, strides=strides), 0.0
        if not fast:
            return None
        found, error = rounded_filter(weights)
        w = RoundedFilter(*(cast("Any", jax).device_put(part) for part in found))

        def squares(values: Sequence[Array], scales: Array) -> Array:
            return conv2d_trial(values[0], scales, w, bias, **self.rectified, **self.geometry)

        return squares, error

    @property
    def _is_linear_map(self) -> bool:
        """Whether every pixel of the result is a matrix times a pixel of the image, plus the bias."""
        return ints(self.kernel_shape) == (1, 1) and not any(ints(self.pads)) and not relu_of(self)

    @override
    def flops(self) -> int:
        """Out * (2*kernel*ic/g + bias + relu) (numerics.md 16)."""
        out, per = prod(shape_of(self.output)), 2 * prod(shape_of(self.filter)[1:])
        return out * (per + (not is_none(self.bias)) + relu_of(self))

    @classmethod
    @override
    def canonicalization_patterns(cls, weights: WeightStore) -> tuple[RewritePattern, ...]:
        """Rewrites of 1-D and 3-D convolutions, and convolutions that absorb neighbours.

        The Reshape of a 1-D convolution is moved after the ops that follow it. A 3-D convolution whose kernel spans the
        depth becomes a 2-D one. A linear 1x1 convolution is merged into the next convolution. A Slice that only removes
        padding is merged into the convolution before it.
        """
        return ReshapeBeforeChannelOp(), Conv3dTo2d(weights), MergePointwiseConv(weights), ConvSlice(cls)

    @override
    def by_channel(self, weight: np.ndarray) -> np.ndarray | None:
        """One row of coefficients per output channel."""
        return weight.reshape(len(weight), -1)

    def integer_bits(self, ctx: LoweringContext) -> int:
        """Bits of the filter in integers; 8 of a volume's, and of a depthwise one (numerics.md 14)."""
        channels = shape_of(self.filter)[1] * self.geometry["groups"]
        depthwise = self.geometry["groups"] > 1 and channels == shape_of(self.filter)[0] == self.geometry["groups"]
        return 8 if self.volume or depthwise else ctx.format(self).integer_bits

    @override
    def lower_integer(self, ctx: LoweringContext) -> SSAValue | str:
        """tpu.Conv2D or tpu.Conv3D with a multiplier and shift per channel."""
        return self.why_not_integer(ctx) or _by_multipliers(self, ctx)


class ReshapeBeforeChannelOp(RewritePattern):
    """Conv -> Reshape that keeps n and c -> Relu, Scale or BatchNorm: the Reshape is moved to the end.

    Then the Conv can absorb the op. Such a Reshape follows a 1-D convolution or transposed convolution.
    """

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Reshape takes the name of the op; the op gets a new name, because the network has no such tensor."""
        view = op.operands[0].owner if op.name in ("top.Relu", "top.Scale", "top.BatchNorm") else None
        if not isinstance(view, TopReshape) or not isinstance(view.input.owner, TopOp):
            return
        if view.input.owner.name not in ("top.Conv", "top.Deconv"):
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
        copy_name(last, op)
        rewriter.replace(op, [moved, last])
        rewriter.erase(view)


class MergePointwiseConv(RewritePattern):
    """1x1 Conv -> Conv, both without groups, padding and relu, the first with one user -> one Conv.

    Sums are f32, in the order of the channels between the two (U-19, Conv1x1Convkxk2dMerge).
    """

    def __init__(self, weights: WeightStore) -> None:
        self._weights = weights

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """W' = sum over d of W[:, d]*V[d], b' = b + sum of V's bias times W; `op` is the second Conv."""
        first = op.operands[0].owner if isinstance(op, TopConv) else None
        if not isinstance(op, TopConv) or not isinstance(first, TopConv) or only_user(first.output) is None:
            return
        found = [constant_of(v, self._weights) for v in (op.filter, first.filter)]
        if found[0] is None or found[1] is None or not (_may_merge(op) and _may_merge(first) and _is_pointwise(first)):
            return
        filter, before = found[0], found[1][:, :, 0, 0]
        if grows_too_much(filter, before):
            return
        biases = [None if is_none(v) else constant_of(v, self._weights) for v in (op.bias, first.bias)]
        if any(b is None and not is_none(v) for b, v in zip(biases, (op.bias, first.bias), strict=True)):
            return
        merged = {"filter": merged_filter(filter, before), "bias": merged_bias(filter, *biases)}
        for place, (kind, array) in enumerate(merged.items(), 1):
            if array is not None:
                weight = make_weight(self._weights, f"{op_name(op)}_merged_{kind}", array)
                rewriter.insert(weight, InsertPoint.before(op))
                op.operands[place] = weight.output
        op.operands[0] = first.input
        rewriter.erase(first)
        rewriter.notify_op_modified(op)


def _may_merge(op: TopConv) -> bool:
    """Whether it is a 2-D convolution without groups, padding and relu."""
    return not op.volume and op.geometry["groups"] == 1 and not any(ints(op.pads)) and not relu_of(op)


def _is_pointwise(op: TopConv) -> bool:
    """Whether the kernel is 1x1 with stride 1."""
    return ints(op.kernel_shape) == (1, 1) and op.geometry["strides"] == (1, 1)


class Conv3dTo2d(RewritePattern):
    """A 3-D Conv whose kernel covers the whole unpadded depth, one group -> Reshape, 2-D Conv, Reshape.

    The depth of the input becomes channels: (n, ic, d, h, w) -> (n, ic*d, h, w).
    """

    def __init__(self, weights: WeightStore) -> None:
        self._weights = weights

    @override
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The last Reshape takes the name of the op; the other new tensors get new names."""
        if not isinstance(op, TopConv) or not op.volume or not _fills_depth(op):
            return
        filter = constant_of(op.filter, self._weights)
        if filter is None:
            return
        name, (n, ic, depth, h, w), oc = op_name(op), shape_of(op.input), len(filter)
        packed = make_weight(self._weights, name + "_filter_2d", filter.reshape(oc, ic * depth, *filter.shape[3:]))
        image = reshaped(op.input, (n, ic * depth, h, w), name + "_input_2d")
        _, _, _, oh, ow = shape_of(op.output)
        attributes = dict(op.attributes)
        for key in ("kernel_shape", "strides", "dilations"):
            attributes[key] = ints_attr(ints(attributes[key])[1:]) if key in attributes else ints_attr((1, 1))
        _, top, left, _, bottom, right = ints(op.pads)
        attributes["pads"] = ints_attr((top, left, bottom, right))
        flat = TopConv.create(
            operands=[image.output, packed.output, op.bias],
            result_types=[tensor((n, oc, oh, ow))],
            attributes=attributes,
        )
        set_op_name(flat, name + "_2d")
        result = reshaped(flat.output, shape_of(op.output), name)
        copy_name(result, op)
        rewriter.replace(op, [packed, image, flat, result])


def _fills_depth(op: TopConv) -> bool:
    """Whether the one output depth is computed from all input depths in order."""
    geometry, pads = op.geometry, ints(op.pads)
    kernel, depth = ints(op.kernel_shape)[0], shape_of(op.input)[2]
    dilated = kernel > 1 and geometry["dilations"][0] != 1
    return geometry["groups"] == 1 and kernel == depth and not dilated and pads[0] == pads[3] == 0


def _as_image(builder: Builder, value: SSAValue, name: str) -> SSAValue:
    """A tensor (n, c, w) as (n, c, w, 1): a constant as another weight, others by a Reshape."""
    constant = builder.array(value)
    if constant is not None:
        return builder.weight(name, constant[..., None])
    return TopReshape.make(builder, value, shape=(*shape_of(value), 1), name=name)


def conv_shape(x: Shape, filter: Shape, geometry: dict[str, Any]) -> Shape:
    """(n, oc, oh, ow) or (n, oc, od, oh, ow). Raises ValueError for operands that do not fit."""
    strides, pads, dilations, groups = (geometry[k] for k in ("strides", "pads", "dilations", "groups"))
    axes = len(x) - 2
    if axes not in (2, 3) or len(filter) != len(x) or len(pads) != 2 * axes:
        raise ValueError(
            f"an input and a filter of 4 or 5 axes, and two pads per axis, are required, got {x}, {filter}"
        )
    if x[1] != filter[1] * groups or filter[0] % groups:
        raise ValueError(f"input of {x[1]} channels does not fit filter {filter} in {groups} groups")
    spatial = (
        conv_extent(x[2 + i], filter[2 + i], strides[i], pads[i], pads[axes + i], dilations[i]) for i in range(axes)
    )
    return (x[0], filter[0], *spatial)


@once
def _scales(w: np.ndarray, signed: bool, bits: int) -> np.ndarray:
    """The f64 scale of each output channel of the filter, or one power of two for all (numerics.md 7.1)."""
    shortcut = _power_of_two_scale(w, signed, bits)
    if shortcut is not None:
        return np.full(len(w), shortcut, np.float64)
    return filter_scales(w, signed, bits)


def _power_of_two_scale(w: np.ndarray, signed: bool, bits: int) -> float | None:
    """2^-i for the smallest i in 0..6 such that w * 2^i is all integers of `bits` bits (numerics.md 7.1).

    Decision: of 4 bits too. TPU-MLIR takes integers of 8 bits there, whose upper halves the chip loses.
    """
    low, high = storage_range(bits, signed)
    finest = np.ldexp(w.reshape(-1)[:4096].astype(np.float64), 6)
    if not np.array_equal(finest, np.round(finest)):
        return None  # if some i gives integers, so does 6
    for i in range(7):
        scaled = np.ldexp(w.astype(np.float64), i)
        if np.array_equal(scaled, np.round(scaled)) and scaled.min() >= low and scaled.max() <= high:
            return 2.0**-i
    return None


def _input_scale(x: QuantParams, w: np.ndarray, bias: np.ndarray | None) -> float:
    """s_in; a tiny one is replaced (numerics.md 7.1)."""
    if x.scale > 1e-5:
        return x.scale
    largest = 1e-6 if bias is None else float(np.abs(bias).max())
    return float(np.abs(w).max()) / 127 if largest <= 1e-5 else largest / 127


def _by_multipliers(op: TopConv, ctx: LoweringContext) -> SSAValue:
    """A filter scale, an int32 bias, a 32-bit multiplier and a shift per channel.

    A 3-D convolution gives int32 accumulators `<name>_int32`; a requant follows (numerics.md 9.1).
    """
    x, w = ctx.quant(op.input), ctx.array(op.filter)
    y, element = stored_output(op, ctx, wide=before_float_head(op, ctx))
    bias = None if is_none(op.bias) else ctx.array(op.bias)
    assert x is not None and w is not None  # required by why_not_integer
    signed = filter_is_signed(w, bias)
    own, bits = imported_weight_scales(op.filter), op.integer_bits(ctx)
    if own and bits == PACKED_BITS:
        note_imported_scales(op, ctx, op.filter)
        own = ()
    scales, s_in = _scales(w, signed, bits) if not own else np.broadcast_to(own, len(w)), _input_scale(x, w, bias)
    filter = quantised_filter(w, scales, signed, bits)
    int_bias = int32_bias(op, ctx, bias, filter, scales * s_in, x.zero_point)
    m, r = best_fit_array(scales * s_in / y.scale)
    operands = op.integer_operands(ctx, filter, int_bias, "int32")
    if op.volume:
        accumulators = op.build_tpu(ctx, operands, i32, {}, op_name(op) + "_int32")
        return requantised_axis(ctx, op, accumulators, m, r)
    more: dict[str, Attribute] = {
        "multiplier": ints_attr(m), "rshift": ints_attr(r), "quant_mode": requant_mode("MultiplierShift"),
        **({"weight_bits": int_attr(bits)} if bits == PACKED_BITS else {}),
    }  # fmt: skip
    return op.build_tpu(ctx, operands, element, more)
