"""Sums of int8 products in int32, in the form of the backend (`prim.forms`)."""

from __future__ import annotations

from collections.abc import Sequence

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.forms import CHUNK, form

Pair = tuple[int, int]
Axes = tuple[tuple[int, ...], tuple[int, ...]]


def dot(x: Array, w: Array, contracting: Pair, batch: Axes = ((), ())) -> Array:
    """`lax.dot_general` of int8 arrays in int32, modulo 2^32; contracting: one axis of each."""
    dims = (((contracting[0],), (contracting[1],)), batch)
    chosen = form()
    if chosen in ("library", "int8"):
        return lax.dot_general(x, w, dims, preferred_element_type=jnp.int32)
    size = x.shape[contracting[0]]
    acc = None
    for start in range(0, max(size, 1), CHUNK):
        stop = min(start + CHUNK, size)
        left = lax.slice_in_dim(x, start, stop, axis=contracting[0]).astype(chosen)
        right = lax.slice_in_dim(w, start, stop, axis=contracting[1]).astype(chosen)
        part = lax.dot_general(
            left, right, dims, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32
        ).astype(jnp.int32)
        acc = part if acc is None else acc + part
    assert acc is not None
    return acc


def of_patches(taps: Sequence[Array], w: Array, groups: int) -> Array:
    """A convolution in NHWC as a dot; taps: the shifted int8 views (n, oh, ow, ic); w int8 (kh, kw, ic/groups, oc)."""
    *rows, channels = taps[0].shape
    kh, kw, icg, oc = w.shape
    if groups == 1:
        return dot(jnp.concatenate(taps, axis=-1), w.reshape(kh * kw * icg, oc), (3, 0))
    parts = [tap.reshape(*rows, groups, channels // groups) for tap in taps]
    filters = w.reshape(kh * kw * icg, groups, oc // groups)
    acc = dot(jnp.concatenate(parts, axis=-1), filters, (4, 0), ((3,), (1,)))
    return jnp.moveaxis(acc, 0, 3).reshape(*rows, oc)
