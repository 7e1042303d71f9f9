"""Max and average pooling (numerics 9.6). Global pooling is a kernel of the full size; ceil_mode is larger end pads.

Windows have two axes on NCHW tensors or three on NCDHW; kernel and strides have one entry per axis, pads all befores
and then all afters.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, divide, f32, i64, kernel, pin
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.forms import is_plain
from tpusim_kernels.prim.requant import multiply_shift, multiply_shift_f32
from tpusim_kernels.prim.rounding import RoundMode, saturate, to_int

Extents = tuple[int, ...]
WINDOW = ("kernel", "strides", "pads")
NARROW = 2000
"""Windows of up to so many elements are averaged in int32."""
UNROLLED = 64
"""Windows of up to so many elements are summed without a loop."""


def _slide(
    x: Array, kernel: Extents, strides: Extents, combine: Callable[[Array, Array], Array], whole: Callable
) -> Array:
    """Reduce every window of padded `x`, one axis after the other, width first."""
    for axis in reversed(range(2, x.ndim)):
        length, size, stride = x.shape[axis], kernel[axis - 2], strides[axis - 2]
        if size > length:
            raise ValueError(f"a pooling window of {size} does not fit the padded axis of {length}")
        if size == length:
            x = whole(x, axis=axis, keepdims=True)
            continue
        last = (length - size) // stride * stride
        views = [lax.slice_in_dim(x, i, i + last + 1, stride, axis) for i in range(size)]
        while len(views) > 1:  # a balanced tree: short dependency chains
            pairs = [combine(a, b) for a, b in zip(views[::2], views[1::2], strict=False)]
            views = pairs + views[len(pairs) * 2 :]
        x = views[0]
    return x


def _padded(x: Array, value: Array, pads: Extents) -> Array:
    before, after = pads[: x.ndim - 2], pads[x.ndim - 2 :]
    sides = ((low, high, 0) for low, high in zip(before, after, strict=True))
    return lax.pad(x, value, ((0, 0, 0), (0, 0, 0), *sides))


def _counts(size: int, kernel: int, stride: int, before: int, after: int) -> np.ndarray:
    """How many elements of each window along one axis lie inside the unpadded tensor."""
    start = np.arange((size + before + after - kernel) // stride + 1) * stride - before
    return np.minimum(start + kernel, size) - np.maximum(start, 0)


def _divisors(x: Array, kernel: Extents, strides: Extents, pads: Extents, count_include_pad: bool) -> np.ndarray:
    """The number of averaged elements per output place, (1, 1, ...); all extents are 1 if the number is constant."""
    if count_include_pad or not any(pads):
        return np.full((1,) * x.ndim, prod(kernel), np.int64)
    counts = np.ones((1, 1), np.int64)
    for i, size in enumerate(x.shape[2:]):
        inside = _counts(size, kernel[i], strides[i], pads[i], pads[x.ndim - 2 + i])
        counts = counts[..., None] * np.maximum(inside, 0)
    return np.maximum(counts, 1)  # a window wholly inside the padding averages to zero


@kernel(static=(*WINDOW, "do_relu"))
def maxpool2d(x: Array, *, kernel: Extents, strides: Extents, pads: Extents, do_relu: bool = False) -> Array:
    """Compute y = max over each window, any dtype; with `do_relu`, then max(y, 0).

    Padded elements never win (DN-17), whatever the zero point. The output has the dtype (and, in INT8, the scale) of
    the input. Source: numerics 9.6, ONNX MaxPool.
    """
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        padding = jnp.asarray(-jnp.inf, x.dtype)
    else:
        padding = jnp.asarray(jnp.iinfo(x.dtype).min, x.dtype)
    y = _slide(_padded(x, padding, pads), kernel, strides, jnp.maximum, jnp.max)
    return jnp.maximum(y, jnp.asarray(0, y.dtype)) if do_relu else y


@kernel(static=(*WINDOW, "count_include_pad", "do_relu"))
def avgpool2d_float(
    x: Array, *, kernel: Extents, strides: Extents, pads: Extents, count_include_pad: bool, do_relu: bool
) -> Array:
    """Compute y = (sum over each window) / count in f32; count = the whole window, or its unpadded elements only.

    The window is summed element by element in its order (U-35). Source: numerics 9.6, ONNX
    AveragePool.
    """
    total = _sum_in_order(_padded(f32(x), jnp.float32(0), pads), kernel, strides)
    y = divide(total, jnp.asarray(_divisors(x, kernel, strides, pads, count_include_pad), jnp.float32))
    return jnp.maximum(y, jnp.float32(0)) if do_relu else y


def _sum_in_order(x: Array, kernel: Extents, strides: Extents) -> Array:
    """f32 sums of every window of padded `x`, one element after the other, the last axis fastest.

    Large windows are a loop, so that there is less to compile.
    """
    if is_plain():
        zero, ones = np.zeros((), x.dtype), (1, 1)
        return lax.reduce_window(x, zero, lax.add, (*ones, *kernel), (*ones, *strides), "VALID")
    lasts = [(n - k) // s * s for n, k, s in zip(x.shape[2:], kernel, strides, strict=True)]
    steps = (1, 1, *strides)
    places = (last // stride + 1 for last, stride in zip(lasts, strides, strict=True))
    total = jnp.zeros((*x.shape[:2], *places), x.dtype)
    if prod(kernel) <= UNROLLED:
        total = lax.optimization_barrier(total)
        for start in np.ndindex(*kernel):
            stops = (at + last + 1 for at, last in zip(start, lasts, strict=True))
            total = total + lax.slice(x, (0, 0, *start), (*x.shape[:2], *stops), steps)
        return total

    def add(i: Array, total: Array) -> Array:
        starts = [jnp.asarray(0, i.dtype), jnp.asarray(0, i.dtype), *jnp.unravel_index(i, kernel)]
        view = lax.dynamic_slice(x, [s.astype(i.dtype) for s in starts], (*x.shape[:2], *(n + 1 for n in lasts)))
        return total + lax.slice(view, (0,) * x.ndim, view.shape, steps)

    return lax.fori_loop(0, prod(kernel), add, total)


@kernel(static=(*WINDOW, "count_include_pad", "do_relu", "out_dtype", "first_round"))
def avgpool2d_int(
    x: Array,
    m: ArrayLike,
    r: ArrayLike,
    *,
    kernel: Extents,
    strides: Extents,
    pads: Extents,
    count_include_pad: bool,
    do_relu: bool,
    out_dtype: str,
    first_round: str = "half_away",
) -> Array:
    """Compute y = sat(relu(RSR(v*m, r, HALF_UP))), v = round(sum * kh*kw / count), symmetric INT8 (numerics 9.6).

    x int8|uint8 NCHW, padding 0; m, r scalars: the 8-bit best fit of s_in/(s_out*kh*kw), or `avgpool_table` of 1/k
    (there s_in = s_out). v is exact integer arithmetic. Upstream rounds f32(f32(sum/count) * kh*kw): the same v for
    full windows, and otherwise except at exact halves of cut windows whose padding is not counted (5x5, 7x7, not 3x3),
    where its f32 average may fall on either side (tested). The factor stays kh*kw when the padding is not counted
    (U-04). first_round: "half_away", or "half_up" with a requant in the f32 form of numerics 4.4.
    """
    if first_round not in ("half_away", "half_up"):
        raise ValueError(f"first_round must be 'half_away' or 'half_up', got {first_round!r}")
    x = jnp.asarray(x, jnp.int32)
    total = _slide(_padded(x, jnp.int32(0), pads), kernel, strides, jnp.add, jnp.sum)
    count = _divisors(x, kernel, strides, pads, count_include_pad)
    size = prod(kernel)
    v = total
    if not (count == size).all():
        wide = jnp.int32 if size <= NARROW else jnp.int64  # twice the sum of size * size bytes
        v = _rounded_ratio(total.astype(wide) * size, jnp.asarray(count, wide), first_round)
    y = multiply_shift(v, i64(m), i64(r)) if first_round == "half_away" else multiply_shift_f32(v, m, r)
    if do_relu:
        y = jnp.maximum(y, jnp.int64(0))
    return saturate(y, out_dtype)


def _rounded_ratio(a: Array, b: Array, rounding: str) -> Array:
    """Compute a / b for integers and b > 0, halves away from zero or up, exact."""
    if rounding == "half_up":
        return jnp.floor_divide(2 * a + b, 2 * b)
    return jnp.sign(a) * jnp.floor_divide(2 * jnp.abs(a) + b, 2 * b)


@kernel(static=(*WINDOW, "count_include_pad", "do_relu", "out_dtype"))
def avgpool2d_asym(
    x: Array,
    scale: ArrayLike,
    offset: ArrayLike,
    z_in: ArrayLike,
    z_out: ArrayLike,
    *,
    kernel: Extents,
    strides: Extents,
    pads: Extents,
    count_include_pad: bool,
    do_relu: bool,
    out_dtype: str,
) -> Array:
    """Compute y = sat(relu(round-half-away(sum*kh*kw/count * scale + offset))), asymmetric INT8 (numerics 9.6).

    x int8|uint8 NCHW padded with z_in; scale = s_in/(kh*kw*s_out) and offset = z_out - s_in/s_out*z_in are doubles from
    the lowering. sum*kh*kw/count is one double division; the product is rounded to double before the offset is added
    (`pin` keeps it from becoming a fused multiply-add). Relu is max(y, z_out).
    """
    x = jnp.asarray(x)
    padded = _padded(x, lax.convert_element_type(z_in, x.dtype), pads).astype(jnp.int32)
    total = i64(_slide(padded, kernel, strides, jnp.add, jnp.sum)) * prod(kernel)
    count = _divisors(x, kernel, strides, pads, count_include_pad)
    mean = divide(total.astype(jnp.float64), jnp.asarray(count, jnp.float64))
    product = pin(mean * lax.convert_element_type(scale, jnp.float64))
    y = to_int(product + lax.convert_element_type(offset, jnp.float64), RoundMode.HALF_AWAY_FROM_ZERO)
    if do_relu:
        y = jnp.maximum(y, i64(z_out))
    return saturate(y, out_dtype)
