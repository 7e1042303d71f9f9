"""Matrix multiplication, float and integer (numerics 9.2)."""

from __future__ import annotations

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, along_axis, f32, i64, kernel
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.bydepth import narrowing, product_by_depth
from tpusim_kernels.prim.bytedot import byte_dot
from tpusim_kernels.prim.inorder import dot_in_order, matmul_blocks
from tpusim_kernels.prim.narrow import Narrow, requantize_narrow
from tpusim_kernels.prim.requant import requantize
from tpusim_kernels.prim.rounding import saturate


def _operands(x: Array, w: Array, left_transpose: bool, right_transpose: bool) -> tuple[Array, Array]:
    """Apply the transposes and broadcast the batch axes; a rank-2 right operand stays as it is."""
    x, w = jnp.asarray(x), jnp.asarray(w)
    if x.ndim < 2 or w.ndim < 2:
        raise ValueError(f"matmul needs operands of rank 2 or more, got {x.shape} and {w.shape}")
    x = jnp.swapaxes(x, -1, -2) if left_transpose else x
    w = jnp.swapaxes(w, -1, -2) if right_transpose else w
    if x.shape[-1] != w.shape[-2]:
        raise ValueError(f"matmul needs equal inner sizes, got {x.shape} times {w.shape} (after the transposes)")
    if w.ndim > 2:
        batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
        x = jnp.broadcast_to(x, (*batch, *x.shape[-2:]))
        w = jnp.broadcast_to(w, (*batch, *w.shape[-2:]))
    return x, w


@kernel(static=("left_transpose", "right_transpose", "do_relu"))
def matmul_float(
    x: Array, w: Array, b: Array | None, *, left_transpose: bool, right_transpose: bool, do_relu: bool
) -> Array:
    """Compute y = relu(x @ w + b) in f32.

    x (..., M, K), w (..., K, N) with NumPy batch broadcasting, b None, (1,) or (N,).

    The transposes swap the last two axes first. f32 accumulation in a stated order (U-34, `prim.inorder`). Source:
    numerics 9.2.
    """
    x, w = _operands(f32(x), f32(w), left_transpose, right_transpose)
    rows = x.shape[:-1]
    y = dot_in_order(x if w.ndim > 2 else x.reshape(-1, x.shape[-1]), w, matmul_blocks(x.shape[-1]))
    y = y.reshape(*rows, w.shape[-1])
    if b is not None:
        y = y + along_axis(f32(b), y.ndim, y.ndim - 1)
    return jnp.maximum(y, jnp.float32(0)) if do_relu else y


@kernel(static=("left_transpose", "right_transpose", "do_relu", "narrow", "depth", "twice"))
def matmul_chip(
    x: Array, w: Array, b: Array | None, *, left_transpose: bool, right_transpose: bool, do_relu: bool, narrow: str,
    depth: int, twice: bool,
) -> Array:  # fmt: skip
    """Compute relu(R(x @ w + b)) of 16-bit floats as BM chips do; R rounds to `narrow` (numerics 9.2, 14).

    Operands as of `matmul_float`; the sums are those of `product_by_depth`. twice: the product is rounded before the
    bias is added.
    """
    rounded = narrowing(narrow)
    x, w = _operands(f32(x), f32(w), left_transpose, right_transpose)
    rows = x.shape[:-1]
    y = product_by_depth(x if w.ndim > 2 else x.reshape(-1, x.shape[-1]), w, depth)
    y = y.reshape(*rows, w.shape[-1])
    if b is not None:
        y = (rounded(y) if twice else y) + along_axis(f32(b), y.ndim, y.ndim - 1)
    y = rounded(y)
    return jnp.maximum(y, jnp.float32(0)) if do_relu else y


@kernel(static=("left_transpose", "right_transpose"))
def matmul_accumulate(x: Array, w: Array, *, left_transpose: bool, right_transpose: bool) -> Array:
    """Compute acc = x @ w of bytes (int8|uint8 each), exact in int32 (DN-01, DN-03; see `prim.bytedot.byte_dot`)."""
    return byte_dot(*_operands(x, w, left_transpose, right_transpose))


@kernel(static=("left_transpose", "right_transpose", "do_relu", "out_dtype", "requant"))
def matmul_int(
    x: Array,
    w: Array,
    b: Array | Narrow | None,
    m: ArrayLike,
    r: ArrayLike,
    z_out: ArrayLike,
    *,
    left_transpose: bool,
    right_transpose: bool,
    do_relu: bool,
    out_dtype: str,
    requant: str = "multiply_shift",
) -> Array:
    """Compute y = sat(requant(relu(x @ w + b), m, r) + z_out) (numerics 9.2).

    Relu acts on the accumulator, before the requant.

    x (..., M, K), w (..., K, N) int8|uint8; b int32 None, (1,) or (N,), the zero point of x already folded in; m, r
    integer scalars, (1,) or (N,). With a row per right matrix: b (..., 1, N), m, r (..., 1, 1), batch axes as w's.
    acc is int32, the rest int64; requant as in `prim.requant.requantize`. If b is a `Narrow`, it contains bias and
    multiplier: m and r are not read, and everything is int32.
    """
    sums = byte_dot(*_operands(x, w, left_transpose, right_transpose))
    if isinstance(b, Narrow):
        v = requantize_narrow(sums, b)
        v = jnp.maximum(v, jnp.int32(0)) if do_relu else v  # same as before the requant, which is monotonic and keeps 0
        return saturate(v + lax.convert_element_type(z_out, jnp.int32), out_dtype)
    acc = i64(sums)
    if b is not None:
        acc = acc + _for_columns(b, acc.ndim)
    if do_relu:
        acc = jnp.maximum(acc, jnp.int64(0))
    v = requantize(acc, _for_columns(m, acc.ndim), _for_columns(r, acc.ndim), requant)
    return saturate(v + i64(z_out), out_dtype)


def _for_columns(p: ArrayLike, ndim: int) -> Array:
    """A parameter (one, per column, or per right matrix) with the rank of the accumulator."""
    p = i64(p)
    return p.reshape((1,) * (ndim - p.ndim) + p.shape) if p.ndim > 1 else along_axis(p, ndim, ndim - 1)
