"""Three-dimensional transposed convolution, float and integer (numerics 9.1): as `deconv`, with one axis more."""

from __future__ import annotations

from tpusim_kernels.base import Array, ArrayLike, f32, kernel
from tpusim_kernels.conv import accumulate_nhwc, biased_int32, check_operands, finished_float, sum_nhwc
from tpusim_kernels.conv3d import Pads3, Triple, sum_volume
from tpusim_kernels.deconv import GEOMETRY, turned, widened
from tpusim_kernels.lazy import jnp, lax

ONES = (1, 1, 1)


@kernel(static=(*GEOMETRY, "do_relu"))
def deconv3d_accumulate(
    x: Array,
    w: Array,
    b: Array | None,
    z_in: ArrayLike,
    *,
    strides: Triple,
    pads: Pads3,
    output_padding: Triple,
    dilations: Triple,
    groups: int,
    do_relu: bool,
) -> Array:
    """Compute acc = relu(sum q_x * q_w + b) of a transposed convolution: int32 (n, oc, od, oh, ow) (numerics 9.1).

    x int8|uint8 (n, ic, d, h, w), inserted and padded values z_in; w int8|uint8 (oc, ic/groups, kd, kh, kw); b int32
    (oc,) or None; pads all befores, then all afters. Exact while every sum fits int32. RequantIntAxis follows.
    """
    check_operands(x, w, groups, 5)
    value = lax.convert_element_type(z_in, x.dtype)
    x = widened(x, w, value, strides, pads, output_padding, dilations)
    acc = sum_volume(accumulate_nhwc, x, turned(w), ONES, dilations, groups)
    return biased_int32(acc, b, do_relu)


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def deconv3d_float(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    strides: Triple,
    pads: Pads3,
    output_padding: Triple,
    dilations: Triple,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute y = relu(deconv(x, w) + b) in f32; operands as `deconv3d_accumulate`, what is inserted and padded is 0.

    f32 accumulation in an unspecified order; relu_limit < 0 means no upper limit. Source: numerics 9.1, ONNX
    ConvTranspose (whose filter is (ic, oc/groups, kd, kh, kw)).
    """
    x, w = f32(x), f32(w)
    check_operands(x, w, groups, 5)
    x = widened(x, w, jnp.float32(0), strides, pads, output_padding, dilations)
    y = sum_volume(sum_nhwc, x, turned(w), ONES, dilations, groups)
    return finished_float(y, b, do_relu, relu_limit)
