"""Exact products of byte matrices: any mix of int8 and uint8 through int8 x int8 -> int32 products."""

from __future__ import annotations

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.products import dot

OFFSET = 128


def signed(x: Array) -> tuple[Array, int]:
    """(int8 array, offset) with x = array + offset: int8 as it is, uint8 moved down by 128 (flip the top bit)."""
    if x.dtype == jnp.int8:
        return x, 0
    if x.dtype == jnp.uint8:
        return lax.bitcast_convert_type(x ^ jnp.asarray(OFFSET, jnp.uint8), jnp.int8), OFFSET
    raise ValueError(f"a quantised operand must be int8 or uint8, got {x.dtype}")


def byte_dot(x: Array, w: Array) -> Array:
    """Multiply x (..., M, K) by w (..., K, N), bytes of either sign, exact in int32 (DN-01, DN-03).

    `w` has rank 2, or the rank and batch of `x`. With x = x' + a and w = w' + b (a, b in {0, 128}):
    sum x*w = sum x'*w' + a * sum w + b * sum x'. Every term is taken modulo 2^32, so the result is exact whenever the
    true sum fits int32: K < 2^31/(255*255), about 33,000 products, for any bytes, and about 131,000 for int8 x int8.
    """
    xs, a = signed(x)
    ws, b = signed(w)
    if b:
        ws = jnp.concatenate([ws, jnp.ones((*ws.shape[:-1], 1), jnp.int8)], axis=-1)  # the extra column sums x'
    batch = tuple(range(w.ndim - 2)) if w.ndim > 2 else ()
    rows = x.shape[-2]
    if a or rows == 1:  # the extra row sums w'; XLA gives no product of a single row to its library
        xs = jnp.concatenate([xs, jnp.ones((*xs.shape[:-2], 1, xs.shape[-1]), jnp.int8)], axis=-2)
    acc = dot(xs, ws, (x.ndim - 1, w.ndim - 2), (batch, batch))
    if a:
        acc = acc + a * acc[..., rows:, :]
    acc = acc[..., :rows, :]
    if b:
        acc = acc[..., :-1] + b * (acc[..., -1:])
    return acc
