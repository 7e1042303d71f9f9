"""Three-dimensional convolution, float and integer (numerics 9.1).

The kd depth slices that one output depth needs are gathered as channels, so that a 3-D convolution becomes one 2-D
convolution of n*od images with kd times the channels: the fast byte product of `conv`. Depthwise convolutions are the
sum of kd depthwise 2-D convolutions.
"""

from __future__ import annotations

from collections.abc import Callable

from tpusim_kernels.base import Array, ArrayLike, f32, kernel
from tpusim_kernels.conv import accumulate_nhwc, biased_int32, check_operands, finished_float, sum_nhwc
from tpusim_kernels.lazy import jnp, lax

Triple = tuple[int, int, int]
Pads3 = tuple[int, int, int, int, int, int]
GEOMETRY = ("strides", "pads", "dilations", "groups")
Convolve = Callable[[Array, Array, tuple[int, int], tuple[int, int], int], Array]


def _padded_ndhwc(x: Array, value: Array, pads: Pads3) -> Array:
    front, top, left, back, bottom, right = pads
    sides = ((0, 0, 0), (front, back, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0))
    return lax.pad(jnp.transpose(x, (0, 2, 3, 4, 1)), value, sides)


def _depth_taps(x: Array, kernel: int, stride: int, dilation: int) -> list[Array]:
    """The kd shifted views of padded NDHWC `x`, (n*od, h, w, c) each."""
    last = (x.shape[1] - dilation * (kernel - 1) - 1) // stride * stride
    if last < 0:
        raise ValueError(f"a window of depth {kernel} dilated by {dilation} does not fit the padded {x.shape[1]}")
    views = (lax.slice_in_dim(x, i, i + last + 1, stride, 1) for i in range(0, dilation * kernel, dilation))
    return [view.reshape(-1, *view.shape[2:]) for view in views]


def sum_volume(convolve: Convolve, x: Array, w: Array, strides: Triple, dilations: Triple, groups: int) -> Array:
    """NDHWC sums of padded NDHWC `x` and `w` (oc, ic/groups, kd, kh, kw), by a 2-D convolution."""
    n, (oc, icg, kd, kh, kw) = x.shape[0], w.shape
    taps = _depth_taps(x, kd, strides[0], dilations[0])
    flat = (strides[1:], dilations[1:], groups)
    if w.shape[:2] == (groups, 1):
        sums = [convolve(tap, w[:, :, i], *flat) for i, tap in enumerate(taps)]
        y = sums[0]
        for more in sums[1:]:
            y = y + more
    else:
        by_group = [tap.reshape(*tap.shape[:3], groups, 1, icg) for tap in taps]
        images = jnp.concatenate(by_group, axis=4).reshape(*taps[0].shape[:3], groups * kd * icg)
        filters = jnp.transpose(w, (0, 2, 1, 3, 4)).reshape(oc, kd * icg, kh, kw)
        y = convolve(images, filters, *flat)
    return y.reshape(n, -1, *y.shape[1:])


@kernel(static=(*GEOMETRY, "do_relu"))
def conv3d_accumulate(
    x: Array,
    w: Array,
    b: Array | None,
    z_in: ArrayLike,
    *,
    strides: Triple,
    pads: Pads3,
    dilations: Triple,
    groups: int,
    do_relu: bool,
) -> Array:
    """Compute acc = relu(sum q_x * q_w + b) over each window: int32 (n, oc, od, oh, ow) (numerics 9.1).

    x int8|uint8 (n, ic, d, h, w), padding value z_in; w int8|uint8 (oc, ic/groups, kd, kh, kw); b int32 (oc,) or None.
    pads: front, top, left, back, bottom, right. Exact while every sum fits int32. RequantIntAxis follows.
    """
    check_operands(x, w, groups, 5)
    x = _padded_ndhwc(x, lax.convert_element_type(z_in, x.dtype), pads)
    return biased_int32(sum_volume(accumulate_nhwc, x, w, strides, dilations, groups), b, do_relu)


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def conv3d_float(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    strides: Triple,
    pads: Pads3,
    dilations: Triple,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute y = relu(conv(x, w) + b) in f32, zero padding; operands as `conv3d_accumulate`, b f32.

    f32 accumulation in an unspecified order; relu_limit < 0 means no upper limit. Source: numerics 9.1, ONNX Conv.
    """
    x, w = f32(x), f32(w)
    check_operands(x, w, groups, 5)
    x = _padded_ndhwc(x, jnp.float32(0), pads)
    return finished_float(sum_volume(sum_nhwc, x, w, strides, dilations, groups), b, do_relu, relu_limit)
