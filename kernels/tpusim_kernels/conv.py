"""Two-dimensional convolution, float and integer (numerics 9.1).

Layout: tensors are NCHW; inside, NHWC. The integer convolution gathers its windows by slicing and concatenating along
the channels and multiplies them as one byte matrix product (`prim.bytedot`), because XLA's own integer convolution is
about 70 times slower on a CPU. Depthwise convolutions are shifted multiply-adds.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tpusim_kernels.base import Array, ArrayLike, along_axis, f32, i64, kernel
from tpusim_kernels.prim.bytedot import byte_dot
from tpusim_kernels.prim.inorder import convolution_blocks, dot_in_order
from tpusim_kernels.prim.requant import requantize
from tpusim_kernels.prim.rounding import saturate

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
GEOMETRY = ("strides", "pads", "dilations", "groups")


def relu_with_limit(x: Array, do_relu: bool, relu_limit: float) -> Array:
    """Apply max(x, 0) when `do_relu`, then min(x, relu_limit) when the limit is positive; float only."""
    if do_relu:
        x = jnp.maximum(x, jnp.asarray(0, x.dtype))
        if relu_limit > 0:
            x = jnp.minimum(x, jnp.asarray(relu_limit, x.dtype))
    return x


def _padded_nhwc(x: Array, value: Array, pads: Pads) -> Array:
    top, left, bottom, right = pads
    x = jnp.transpose(x, (0, 2, 3, 1))
    return lax.pad(x, value, ((0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)))


@kernel(static=("inserts",))
def spread(x: Array, value: ArrayLike, *, inserts: tuple[int, ...]) -> Array:
    """`x` (n, c, h, w) with inserts[0] rows of `value` between its rows and inserts[1] columns between its columns."""
    between = [(0, 0, 0), (0, 0, 0), *((0, 0, more) for more in inserts)]
    return lax.pad(x, lax.convert_element_type(value, x.dtype), between)


def _taps(x: Array, kernel: Pair, strides: Pair, dilations: Pair) -> list[Array]:
    """The kh*kw shifted views of padded NHWC `x`, each (n, oh, ow, c), row by row."""
    n, h, w, c = x.shape
    (kh, kw), (sh, sw), (dh, dw) = kernel, strides, dilations
    last_h = (h - dh * (kh - 1) - 1) // sh * sh
    last_w = (w - dw * (kw - 1) - 1) // sw * sw
    if last_h < 0 or last_w < 0:
        raise ValueError(f"a {kh}x{kw} window dilated by {dilations} does not fit the padded input of {h}x{w}")
    return [
        lax.slice(x, (0, y, z, 0), (n, y + last_h + 1, z + last_w + 1, c), (1, sh, sw, 1))
        for y in range(0, dh * kh, dh)
        for z in range(0, dw * kw, dw)
    ]


def _windows(x: Array, kernel: Pair, strides: Pair, dilations: Pair) -> Array:
    """Gather the windows (im2col): (n, oh, ow, kh*kw*c), channels fastest.

    With few channels rows are gathered first (fewer, longer copies).
    """
    if kernel == (1, 1):
        return _taps(x, kernel, strides, dilations)[0]
    if x.shape[3] <= 8:
        x = jnp.concatenate(_taps(x, (1, kernel[1]), (1, strides[1]), (1, dilations[1])), axis=3)
        return jnp.concatenate(_taps(x, (kernel[0], 1), (strides[0], 1), (dilations[0], 1)), axis=3)
    return jnp.concatenate(_taps(x, kernel, strides, dilations), axis=3)


def _grouped(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> tuple[Array, Array, tuple[int, ...]]:
    """Window matrix (g, n*oh*ow, K), weight matrix (g, K, oc/g) and the (n, oh, ow) of a grouped convolution."""
    oc, icg, kh, kw = w.shape
    cols = _windows(x, (kh, kw), strides, dilations)
    cols = cols.reshape(-1, kh * kw, groups, icg) if groups > 1 else cols
    places = tuple(_taps(x[:, :, :, :1], (kh, kw), strides, dilations)[0].shape[:3])
    left = jnp.transpose(cols, (2, 0, 1, 3)).reshape(groups, -1, kh * kw * icg)
    right = jnp.transpose(w.reshape(groups, oc // groups, icg, kh, kw), (0, 3, 4, 2, 1)).reshape(
        groups, -1, oc // groups
    )
    return left, right, places


def _ungrouped(acc: Array, places: tuple[int, ...]) -> Array:
    """(g, n*oh*ow, oc/g) back to (n, oh, ow, oc)."""
    return jnp.transpose(acc, (1, 0, 2)).reshape(*places, -1)


def _depthwise(x: Array, w: Array, strides: Pair, dilations: Pair) -> Array:
    """One filter per channel: sum over taps of x_shifted * w_tap, in the dtype of `x` and `w` (int32 or f32)."""
    c, _, kh, kw = w.shape
    taps = jnp.transpose(w, (2, 3, 1, 0)).reshape(kh * kw, 1, 1, 1, c)
    views = _taps(x, (kh, kw), strides, dilations)
    acc = views[0] * taps[0]
    for view, tap in zip(views[1:], taps[1:], strict=True):
        acc = acc + view * tap
    return acc


def check_operands(x: Array, w: Array, groups: int, rank: int = 4) -> None:
    """Raise ValueError unless x (n, ic, ...) and w (oc, ic/groups, ...) have `rank` axes and fit."""
    if x.ndim != rank or w.ndim != rank or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        axes = "h, w" if rank == 4 else "d, h, w"
        raise ValueError(
            f"a convolution needs x (n, ic, {axes}) and w (oc, ic/groups, {axes}), got x {x.shape}, w {w.shape}, "
            f"groups {groups}"
        )


def _accumulate(x: Array, w: Array, z_in: ArrayLike, strides: Pair, pads: Pads, dilations: Pair, groups: int) -> Array:
    """int32 accumulators in NHWC, padding value z_in."""
    check_operands(x, w, groups)
    x = _padded_nhwc(x, lax.convert_element_type(z_in, x.dtype), pads)
    return accumulate_nhwc(x, w, strides, dilations, groups)


def accumulate_nhwc(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> Array:
    """int32 accumulators in NHWC of an NHWC byte image that is padded already; w (oc, ic/groups, kh, kw)."""
    if groups == 1:
        oc, ic, kh, kw = w.shape
        return byte_dot(_windows(x, (kh, kw), strides, dilations), jnp.transpose(w, (2, 3, 1, 0)).reshape(-1, oc))
    if w.shape[:2] == (groups, 1):
        return _depthwise(x.astype(jnp.int32), w.astype(jnp.int32), strides, dilations)
    left, right, places = _grouped(x, w, strides, dilations, groups)
    return _ungrouped(byte_dot(left, right), places)


@kernel(static=GEOMETRY)
def conv2d_accumulate(
    x: Array, w: Array, z_in: ArrayLike, *, strides: Pair, pads: Pads, dilations: Pair, groups: int
) -> Array:
    """Compute acc = sum q_x * q_w over each window, padding value z_in: int32 (n, oc, oh, ow) (numerics 9.1).

    x int8|uint8 (n, ic, h, w); w int8|uint8 (oc, ic/groups, kh, kw). Exact while the sum fits int32, the accumulator of
    the chip (DN-01, DN-03); with b bytes per window of any sign that holds up to about 33,000 bytes.
    """
    return jnp.transpose(_accumulate(x, w, z_in, strides, pads, dilations, groups), (0, 3, 1, 2))


@kernel(static=(*GEOMETRY, "do_relu", "out_dtype", "requant"))
def conv2d_int(
    x: Array,
    w: Array,
    b: Array | None,
    m: ArrayLike,
    r: ArrayLike,
    z_in: ArrayLike,
    z_out: ArrayLike,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    out_dtype: str,
    requant: str = "multiply_shift",
) -> Array:
    """Compute y = sat(relu(requant(acc + b, m, r) + z_out)), relu meaning max(v, z_out) (numerics 9.1).

    x int8|uint8 NCHW padded with z_in; w int8|uint8 (oc, ic/groups, kh, kw); b int32 (oc,) or None, the zero point of x
    already folded in; m, r integer (oc,) or (1,). acc is int32, the rest int64. Requant: `prim.requant.requantize`
    (multiply_shift and only_shift round HALF_UP; qdm HALF_AWAY). Relu comes after the requant.
    """
    acc = _accumulate(x, w, z_in, strides, pads, dilations, groups)
    return finished_int(acc, b, m, r, z_out, do_relu, out_dtype, requant)


def finished_int(
    acc: Array,
    b: Array | None,
    m: ArrayLike,
    r: ArrayLike,
    z_out: ArrayLike,
    do_relu: bool,
    out_dtype: str,
    requant: str,
) -> Array:
    """Bias, requant, relu at z_out and saturation of int32 accumulators (n, oh, ow, oc); the result is NCHW."""
    wide = i64(acc)
    if b is not None:
        wide = wide + along_axis(i64(b), 4, 3)
    v = requantize(wide, along_axis(i64(m), 4, 3), along_axis(i64(r), 4, 3), requant) + i64(z_out)
    if do_relu:
        v = jnp.maximum(v, i64(z_out))
    return jnp.transpose(saturate(v, out_dtype), (0, 3, 1, 2))


def biased_int32(acc: Array, b: Array | None, do_relu: bool) -> Array:
    """int32 accumulators (n, ..., oc) plus an int32 bias (oc,), then max(., 0), with the channels moved to axis 1.

    The sum wraps where it leaves int32, which the chip's accumulator may not (DN-03).
    """
    if b is not None:
        acc = acc + along_axis(lax.convert_element_type(b, jnp.int32), acc.ndim, acc.ndim - 1)
    if do_relu:
        acc = jnp.maximum(acc, jnp.int32(0))
    return jnp.moveaxis(acc, -1, 1)


@kernel(static=(*GEOMETRY, "do_relu", "relu_limit"))
def conv2d_float(
    x: Array,
    w: Array,
    b: Array | None,
    *,
    strides: Pair,
    pads: Pads,
    dilations: Pair,
    groups: int,
    do_relu: bool,
    relu_limit: float = -1.0,
) -> Array:
    """Compute y = relu(conv(x, w) + b) in f32, zero padding.

    x (n, ic, h, w), w (oc, ic/groups, kh, kw), b (oc,) or None.

    f32 accumulation in upstream's order (`prim.inorder`), then the bias; relu_limit < 0 means no upper limit. Source:
    numerics 9.1, ONNX Conv.
    """
    x, w = f32(x), f32(w)
    check_operands(x, w, groups)
    top, left, bottom, right = pads
    x = lax.pad(x, jnp.float32(0), ((0, 0, 0), (0, 0, 0), (top, bottom, 0), (left, right, 0)))
    y = _sum_in_order(x, w, strides, dilations, groups)
    y = y if b is None else y + along_axis(f32(b), y.ndim, 1)
    return relu_with_limit(y, do_relu, relu_limit)


def _sum_in_order(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> Array:
    """f32 sums in NCHW of a padded NCHW image, term by term over (channel, row, column) of the window."""
    (n, c, h, width), (oc, icg, kh, kw) = x.shape, w.shape
    (sh, sw), (dh, dw) = strides, dilations
    oh, ow = (h - dh * (kh - 1) - 1) // sh + 1, (width - dw * (kw - 1) - 1) // sw + 1
    rows = jnp.stack([x[:, :, i : i + (oh - 1) * sh + 1 : sh] for i in range(0, dh * kh, dh)], axis=2)
    taps = jnp.stack([rows[..., j : j + (ow - 1) * sw + 1 : sw] for j in range(0, dw * kw, dw)], axis=3)
    windows = taps.reshape(n, groups, c // groups * kh * kw, oh * ow)
    filters = w.reshape(1, groups, oc // groups, icg * kh * kw)
    return dot_in_order(filters, windows, convolution_blocks(icg * kh * kw)).reshape(n, oc, oh, ow)


def finished_float(y: Array, b: Array | None, do_relu: bool, relu_limit: float) -> Array:
    """Bias (oc,), relu and limit of f32 sums (n, ..., oc), with the channels moved to axis 1."""
    if b is not None:
        y = y + along_axis(f32(b), y.ndim, y.ndim - 1)
    return jnp.moveaxis(relu_with_limit(y, do_relu, relu_limit), -1, 1)


def sum_nhwc(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> Array:
    """f32 sums in NHWC of an NHWC f32 image that is padded already; w (oc, ic/groups, kh, kw)."""
    if groups == 1:
        return lax.conv_general_dilated(
            x,
            jnp.transpose(w, (2, 3, 1, 0)),
            strides,
            "VALID",
            rhs_dilation=dilations,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            precision=lax.Precision.HIGHEST,
        )
    if w.shape[:2] == (groups, 1):
        return _depthwise(x, w, strides, dilations)
    left, right, places = _grouped(x, w, strides, dilations, groups)
    return _ungrouped(jnp.matmul(left, right, precision=lax.Precision.HIGHEST), places)
