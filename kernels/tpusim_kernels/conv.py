"""Two-dimensional convolution, float and integer (numerics 9.1).

Layout: tensors are NCHW; inside, NHWC. On a CPU an integer convolution is int8 x int8 -> int32 with NHWC images and
HWIO filters, or one matrix product for a 1x1 kernel. For these forms XLA calls a library, which is 100 times as fast as
the code that XLA generates for other forms, and needs no compilation. On a GPU another library computes most of them
(`prim.images`); the others are products of patches (`prim.forms` chooses). Depthwise convolutions are shifted
multiply-adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, along_axis, f32, i64, kernel
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.bytedot import signed
from tpusim_kernels.prim.forms import form
from tpusim_kernels.prim.images import convolved_by_library, require_room, views_of
from tpusim_kernels.prim.narrow import Narrow, requantize_narrow
from tpusim_kernels.prim.products import dot, of_patches
from tpusim_kernels.prim.requant import requantize
from tpusim_kernels.prim.rounding import saturate

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
GEOMETRY = ("strides", "pads", "dilations", "groups")


class Filter(NamedTuple):
    """An int8 filter in the form that the library reads, made once on the host (`filter_of`).

    values: int8 (kh, kw, ic/groups, oc); with one group, ic is padded to a multiple of four. Of a 1x1 filter (oc, ic),
    with zeros between channels of different groups, because one product is faster than many small ones. Of a depthwise
    filter the taps as rows, int32 (kh, kw, oc). sums: the sum of each output channel's weights, int32 (oc,).
    """

    values: Array | np.ndarray
    sums: Array | np.ndarray

    def in_channel_order(self, order: np.ndarray, groups: int) -> Filter | None:
        """The filter of output channels order[0], order[1] ...; None if grouped and not 1x1."""
        if self.values.ndim == 2:
            return Filter(self.values[order], self.sums[order])
        return Filter(self.values[..., order], self.sums[order]) if groups == 1 else None


def filter_of(w: np.ndarray, groups: int) -> Filter | np.ndarray:
    """An int8 filter (oc, ic/groups, kh, kw) in the form that its convolution reads; other dtypes unchanged."""
    if w.dtype != np.int8:
        return w
    sums = w.sum(axis=(1, 2, 3), dtype=np.int32)
    if _is_depthwise(w, groups) and w.shape[0] == groups:
        return Filter(np.ascontiguousarray(w[:, 0].transpose(1, 2, 0), np.int32), sums)
    if w.shape[2:] == (1, 1) and (groups == 1 or w.size * groups <= DENSE):
        return Filter(_dense(w.reshape(w.shape[:2]), groups), sums)
    filled = np.pad(w, ((0, 0), (0, -w.shape[1] % 4 if groups == 1 else 0), (0, 0), (0, 0)))
    return Filter(np.ascontiguousarray(filled.transpose(2, 3, 1, 0)), sums)


DENSE = 1 << 20
"""Bytes of a grouped 1x1 filter expanded to (oc, ic), above which it stays grouped."""


def _dense(w: np.ndarray, groups: int) -> np.ndarray:
    """A grouped filter (oc, ic/groups) as a dense matrix (oc, ic), zeros between groups."""
    oc, icg = w.shape
    dense = np.zeros((groups, oc // groups, groups, icg), w.dtype)
    for group, rows in enumerate(w.reshape(groups, -1, icg)):
        dense[group, :, group] = rows
    return dense.reshape(oc, groups * icg)


def _is_depthwise(w: Array | np.ndarray, groups: int) -> bool:
    return groups > 1 and w.shape[:2] == (groups, 1)


def relu_with_limit(x: Array, do_relu: bool, relu_limit: float) -> Array:
    """Apply max(x, 0) when `do_relu`, then min(x, relu_limit) when the limit is positive; float only."""
    if do_relu:
        x = jnp.maximum(x, jnp.asarray(0, x.dtype))
        if relu_limit > 0:
            x = jnp.minimum(x, jnp.asarray(relu_limit, x.dtype))
    return x


@kernel(static=("inserts",))
def dilated(x: Array, value: ArrayLike, *, inserts: tuple[int, ...]) -> Array:
    """`x` (n, c, h, w) with inserts[0] rows of `value` between its rows and inserts[1] columns between its columns."""
    between = [(0, 0, 0), (0, 0, 0), *((0, 0, more) for more in inserts)]
    return lax.pad(x, lax.convert_element_type(value, x.dtype), between)


def nhwc(x: Array) -> Array:
    """NHWC of an NCHW image, by a transposition of rank 3.

    XLA would fold a transposition of rank 4 into the convolution, and then not use the library for it.
    """
    n, c, h, w = x.shape
    return jnp.transpose(x.reshape(n, c, h * w), (0, 2, 1)).reshape(n, h, w, c)


def nchw(x: Array) -> Array:
    """NCHW of an NHWC image; the inverse of `nhwc`."""
    n, h, w, c = x.shape
    return jnp.transpose(x.reshape(n, h * w, c), (0, 2, 1)).reshape(n, c, h, w)


def _hwio(w: Array) -> Array:
    """HWIO of an OIHW filter, by a transposition of rank 3 as in `nhwc`."""
    oc, ic, kh, kw = w.shape
    return jnp.transpose(w.reshape(oc, ic, kh * kw), (2, 1, 0)).reshape(kh, kw, ic, oc)


def _depthwise(x: Array, w: Array, strides: Pair, dilations: Pair) -> Array:
    """One filter per channel: sum over taps of x_shifted * w_tap, in the dtype of `w`, int32 or f32 (kh, kw, oc)."""
    kh, kw, c = w.shape
    taps = w.reshape(kh * kw, 1, 1, 1, c)
    views = [view.astype(w.dtype) for view in views_of(x, (kh, kw), strides, dilations)]
    acc = views[0] * taps[0]
    for view, tap in zip(views[1:], taps[1:], strict=True):
        acc = acc + view * tap
    return acc


def _as_taps(w: Array) -> Array:
    """(kh, kw, oc) of a depthwise filter (oc, 1, kh, kw)."""
    return jnp.transpose(w, (2, 3, 1, 0))[:, :, 0]


def check_operands(x: Array, w: Array, groups: int, rank: int = 4) -> None:
    """Raise ValueError unless x (n, ic, ...) and w (oc, ic/groups, ...) have `rank` axes and fit."""
    if x.ndim != rank or w.ndim != rank or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        axes = "h, w" if rank == 4 else "d, h, w"
        raise ValueError(
            f"a convolution needs x (n, ic, {axes}) and w (oc, ic/groups, {axes}), got x {x.shape}, w {w.shape}, "
            f"groups {groups}"
        )


def _accumulate(
    x: Array, w: Array | Filter, z_in: ArrayLike, strides: Pair, pads: Pads, dilations: Pair, groups: int
) -> Array:
    """int32 accumulators in NHWC, padding value z_in."""
    if not isinstance(w, Filter):
        check_operands(x, w, groups)
    top, left, bottom, right = pads
    moved, offset = signed(nhwc(x))
    value, _ = signed(lax.convert_element_type(z_in, x.dtype))
    padded = lax.pad(moved, value, ((0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)))
    return _sum_of_products(padded, offset, w, strides, dilations, groups)


def accumulate_nhwc(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> Array:
    """int32 accumulators in NHWC of an NHWC byte image that is padded already; w (oc, ic/groups, kh, kw)."""
    return _sum_of_products(*signed(x), w, strides, dilations, groups)


def _sum_of_products(x: Array, a: int, w: Array | Filter, strides: Pair, dilations: Pair, groups: int) -> Array:
    """int32 accumulators of the image x + a, modulo 2^32 as in `prim.bytedot.byte_dot`; x int8, w int8|uint8."""
    if isinstance(w, Filter):
        return _with_offset(convolved(x, w.values, strides, dilations, groups), a, w.sums)
    ws, b = signed(w)
    if _is_depthwise(w, groups):
        return _depthwise(x.astype(jnp.int32) + a, _as_taps(w.astype(jnp.int32)), strides, dilations)
    acc = _with_offset(convolved(x, _form(ws, groups), strides, dilations, groups), a, _sums(w))
    if b:  # w is ws + b: add b times the sum of each window, per group
        ones = _form(jnp.ones((groups, *w.shape[1:]), jnp.int8), groups)
        acc = acc + b * jnp.repeat(convolved(x, ones, strides, dilations, groups), len(w) // groups, axis=3)
    return acc


def _sums(w: Array) -> Array:
    return jnp.sum(w, axis=(1, 2, 3), dtype=jnp.int32)


def _with_offset(acc: Array, a: int, sums: Array | np.ndarray) -> Array:
    return acc + a * jnp.asarray(sums).reshape(1, 1, 1, -1) if a else acc


def _form(w: Array, groups: int) -> Array:
    """`Filter.values` of an int8 filter (oc, ic/groups, kh, kw), computed inside a trace."""
    if w.shape[2:] == (1, 1) and groups == 1:
        return w.reshape(w.shape[:2])
    return _hwio(jnp.pad(w, ((0, 0), (0, -w.shape[1] % 4 if groups == 1 else 0), (0, 0), (0, 0))))


def convolved(x: Array, w: Array | np.ndarray, strides: Pair, dilations: Pair, groups: int) -> Array:
    """int32 sums of products in NHWC of a padded NHWC int8 image and the values of a `Filter`."""
    if w.ndim == 2:
        (tap,) = views_of(x, (1, 1), strides, dilations)
        return dot(tap, jnp.asarray(w), (3, 1))
    if w.ndim == 3:
        x = lax.optimization_barrier(x)  # otherwise XLA computes the unpadded image again for each tap
        return _depthwise(x, jnp.asarray(w), strides, dilations)
    require_room(x, (w.shape[0], w.shape[1]), dilations)
    if groups == 1:  # channels are padded to a multiple of four, as in `Filter.values`
        x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, w.shape[2] - x.shape[3])))
    if form() == "bfloat16" and groups == 1 and dilations == (1, 1):
        acc = convolved_by_library(x, jnp.asarray(w), strides)
        if acc is not None:
            return acc
    if form() != "library":
        return of_patches(views_of(x, (w.shape[0], w.shape[1]), strides, dilations), jnp.asarray(w), groups)
    x = lax.optimization_barrier(x)  # XLA computes wrong sums if it moves pads into an int8 convolution (jaxlib 0.10.2)
    return lax.conv_general_dilated(
        x, jnp.asarray(w), strides, "VALID", rhs_dilation=dilations, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups, preferred_element_type=jnp.int32,
    )  # fmt: skip


@kernel(static=GEOMETRY)
def conv2d_accumulate(
    x: Array, w: Array, z_in: ArrayLike, *, strides: Pair, pads: Pads, dilations: Pair, groups: int
) -> Array:
    """Compute acc = sum q_x * q_w over each window, padding value z_in: int32 (n, oc, oh, ow) (numerics 9.1).

    x int8|uint8 (n, ic, h, w); w int8|uint8 (oc, ic/groups, kh, kw). Exact while the sum fits int32, the accumulator of
    the chip (DN-01, DN-03): windows of up to about 33,000 bytes of either sign.
    """
    return jnp.transpose(_accumulate(x, w, z_in, strides, pads, dilations, groups), (0, 3, 1, 2))


@kernel(static=(*GEOMETRY, "do_relu", "out_dtype", "requant"))
def conv2d_int(
    x: Array,
    w: Array | Filter,
    b: Array | Narrow | None,
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

    x int8|uint8 NCHW padded with z_in; w int8|uint8 (oc, ic/groups, kh, kw), or a `Filter` of it; b int32 (oc,) or
    None, the zero point of x already folded in; m, r integer (oc,) or (1,). acc is int32, the rest int64. Requant:
    `prim.requant.requantize` (multiply_shift and only_shift round HALF_UP; qdm HALF_AWAY). Relu comes after the
    requant. If b is a `Narrow`, it contains bias and multiplier: m and r are not read, and everything is int32.
    """
    acc = _accumulate(x, w, z_in, strides, pads, dilations, groups)
    return finished_int(acc, b, m, r, z_out, do_relu, out_dtype, requant)


def finished_int(
    acc: Array,
    b: Array | Narrow | None,
    m: ArrayLike,
    r: ArrayLike,
    z_out: ArrayLike,
    do_relu: bool,
    out_dtype: str,
    requant: str,
) -> Array:
    """Bias, requant, relu at z_out and saturation of int32 accumulators (n, oh, ow, oc); the result is NCHW."""
    if isinstance(b, Narrow):
        v = requantize_narrow(acc, b) + lax.convert_element_type(z_out, jnp.int32)
    else:
        wide = i64(acc) if b is None else i64(acc) + along_axis(i64(b), 4, 3)
        v = requantize(wide, along_axis(i64(m), 4, 3), along_axis(i64(r), 4, 3), requant) + i64(z_out)
    if do_relu:
        v = jnp.maximum(v, lax.convert_element_type(z_out, v.dtype))
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


def finished_float(y: Array, b: Array | None, do_relu: bool, relu_limit: float) -> Array:
    """Bias (oc,), relu and limit of f32 sums (n, ..., oc), with the channels moved to axis 1."""
    if b is not None:
        y = y + along_axis(f32(b), y.ndim, y.ndim - 1)
    return jnp.moveaxis(relu_with_limit(y, do_relu, relu_limit), -1, 1)


def sum_nhwc(x: Array, w: Array, strides: Pair, dilations: Pair, groups: int) -> Array:
    """f32 sums in NHWC of an NHWC f32 image that is padded already; w (oc, ic/groups, kh, kw)."""
    if groups > 1 and w.shape[:2] == (groups, 1):
        return _depthwise(x, _as_taps(w), strides, dilations)
    return by_library(x, _hwio(w), strides, (0, 0, 0, 0), dilations, groups)


def by_library(x: Array, w: Array, strides: Pair, pads: Pads, dilations: Pair, groups: int) -> Array:
    """f32 sums in NHWC of an NHWC image and an HWIO filter."""
    top, left, bottom, right = pads
    return lax.conv_general_dilated(
        x, w, strides, ((top, bottom), (left, right)), rhs_dilation=dilations,
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups, precision=lax.Precision.HIGHEST,
    )  # fmt: skip


def by_product(x: Array, w: Array, strides: Pair, pads: Pads, dilations: Pair) -> Array:
    """f32 sums in NHWC of an NHWC image and an OHWI filter, as one matrix product whose left rows are the windows."""
    top, left, bottom, right = pads
    oc, *kernel, _ = w.shape
    if any(pads):
        x = lax.pad(x, jnp.float32(0), ((0, 0, 0), (top, bottom, 0), (left, right, 0), (0, 0, 0)))
    taps = views_of(x, (kernel[0], kernel[1]), strides, dilations)
    rows = jnp.concatenate(taps, axis=3)
    dims = (((1,), (1,)), ((), ()))
    sums = lax.dot_general(rows.reshape(-1, w[0].size), w.reshape(oc, -1), dims, precision=lax.Precision.HIGHEST)
    return sums.reshape(*rows.shape[:3], oc)
