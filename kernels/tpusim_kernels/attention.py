"""Attention of 16-bit floats in one op (numerics 11.6)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tpusim_kernels.base import Array, divide, f32, kernel, pin
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.matmul import matmul_float
from tpusim_kernels.prim.bydepth import narrowing, product_by_depth
from tpusim_kernels.prim.smallfloat import to_bf16, to_f16

LEAST_SCORE = {"float16": -15000.0, "bfloat16": -1.5e10}
"""The maximum of the scores before the first block of keys."""


@kernel(static=("scale", "narrow"))
def flash_attention(q: Array, k: Array, v: Array, mask: Array | None, *, scale: float, narrow: str) -> Array:
    """Compute softmax(q k^T * scale + mask) v, q (B, M, H, D), k and v (B, N, H', D), H a multiple of H' (GQA).

    Returns (B, M, H*D) in f32, rounded to `narrow`, float16 or bfloat16. mask (1, 1, M, N) or None. In float16 scores,
    scale and scaled scores are rounded too; in bfloat16 the scores stay f32. In both the differences from the largest
    score, their exponentials, the sum (f32, in order), its reciprocal and the products are rounded.
    """
    rounded = to_f16 if narrow == "float16" else to_bf16
    heads, size = q.shape[2], q.shape[3]
    q, k, v = (_by_heads(f32(x), heads) for x in (q, k, v))
    scores = _product(q, k, right_transpose=True)
    if narrow == "float16":
        scores, scale = rounded(scores), float(np.float16(scale))
    scores = scores * jnp.float32(scale)
    scores = scores if mask is None else scores + f32(mask)
    scores = rounded(scores) if narrow == "float16" else scores
    weights = _softmax(scores, rounded)
    mixed = _product(weights, v, right_transpose=False)
    return rounded(mixed.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], heads * size))


@kernel(static=("scale", "narrow", "key_block", "depth"))
def flash_attention_by_blocks(
    q: Array, k: Array, v: Array, mask: Array | None, *, scale: float, narrow: str, key_block: int, depth: int
) -> Array:
    """Compute `flash_attention` as the chip does with high precision: in f32, over blocks of `key_block` keys.

    For each block s = f32(q k^T) * scale + mask; the largest score so far is m; sums and result are multiplied by
    exp(m before - m), and exp(s - m) is added, which is rounded to `narrow` for the product with the values. The
    result is multiplied by the reciprocal of the sum at the end, and rounded. Products are
    those of `product_by_depth`; exponentials and sums of a block are in f64 and rounded to f32 once.
    """
    rounded, heads = narrowing(narrow), q.shape[2]
    q, k, v = (_by_heads(f32(x), heads) for x in (q, k, v))
    scores = pin(product_by_depth(q, jnp.swapaxes(k, -1, -2), depth) * jnp.float32(scale))
    scores = scores if mask is None else pin(scores + f32(mask))
    scores, v = _in_blocks(scores, key_block, 3, -jnp.inf), _in_blocks(v, key_block, 2, 0.0)

    def add(state: tuple[Array, Array, Array], block: tuple[Array, Array]) -> tuple[tuple[Array, Array, Array], None]:
        (largest, total, mixed), (s, values) = state, block
        most = jnp.maximum(largest, jnp.max(s, axis=-1, keepdims=True))
        factor, powers = _exp(largest - most), _exp(s - most)
        total = pin(total * factor) + jnp.sum(powers.astype(jnp.float64), -1, keepdims=True).astype(jnp.float32)
        return (most, total, pin(mixed * factor) + product_by_depth(rounded(powers), values, depth)), None

    row = (*q.shape[:3], 1)
    start = jnp.full(row, LEAST_SCORE[narrow], jnp.float32), jnp.zeros(row, jnp.float32), jnp.zeros_like(q)
    (_, total, mixed), _ = lax.scan(add, start, (scores, v))
    y = rounded(mixed * divide(jnp.ones_like(total), total))
    return y.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


def _in_blocks(x: Array, block: int, axis: int, fill: float) -> Array:
    """The blocks of keys (blocks, ...) of an array whose `axis` has all keys; the last block is filled up."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % block)
    x = jnp.pad(x, widths, constant_values=fill)
    x = x.reshape(*x.shape[:axis], -1, block, *x.shape[axis + 1 :])
    return jnp.moveaxis(x, axis, 0)


def _exp(x: Array) -> Array:
    """The exponential in f64, rounded to f32."""
    return jnp.exp(x.astype(jnp.float64)).astype(jnp.float32)


def _by_heads(x: Array, heads: int) -> Array:
    """(B, heads, rows, D); each head of keys and values is repeated for its share of the heads of queries."""
    return jnp.repeat(x.transpose(0, 2, 1, 3), heads // x.shape[2], axis=1)


def _product(x: Array, w: Array, *, right_transpose: bool) -> Array:
    return matmul_float(x, w, None, left_transpose=False, right_transpose=right_transpose, do_relu=False)


def _softmax(scores: Array, rounded: Callable[[Array], Array]) -> Array:
    """The softmax of the scores, every step rounded; the maximum is taken of the rounded scores."""
    largest = jnp.max(rounded(scores), axis=-1, keepdims=True)
    powers = rounded(jnp.exp(rounded(scores - largest)))
    total = _sum_in_order(powers)
    inverse = rounded(divide(jnp.ones_like(total), rounded(total)))
    return rounded(powers * inverse)


def _sum_in_order(terms: Array) -> Array:
    """The f32 sum along the last axis (kept, of length 1) in index order: a loop, which no compiler may reorder."""
    columns = jnp.moveaxis(terms, -1, 0)
    start = jnp.zeros(columns.shape[1:], jnp.float32)
    total = lax.fori_loop(
        0, columns.shape[0], lambda i, s: s + lax.dynamic_index_in_dim(columns, i, 0, keepdims=False), start
    )
    return total[..., None]
