"""f32 sums of products in a stated order, one rounding per term.

The float interpreter of TPU-MLIR computes convolutions and matrix products by oneDNN on x86: every element is a chain
of fused multiply-adds in the order of k, in blocks of k whose sums are added in order. Found by comparing bits with
`model_runner.py` 1.30.2 for K up to 4,608 (tests/upstream). A stated order also gives the same bits alone and inside a
larger jit, on any number of threads and for any batch.

The chain relies on XLA contracting `acc + a * b` into one fused multiply-add, which it does on processors that have
one. Where two products meet (the first step) the choice would be the compiler's, so the first product is pinned.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax

from tpusim_kernels.base import Array, pin

STEPS = 16
"""Terms per loop iteration: the accumulators are read and written once for so many."""


def convolution_blocks(k: int) -> tuple[int, ...]:
    """How a convolution's k is cut: 384 at a time, two halves of what is between one and two blocks."""
    blocks: list[int] = []
    while k:
        blocks.append(k if k <= 384 else 384 if k >= 768 else (k + 1) // 2)
        k -= blocks[-1]
    return tuple(blocks)


def matmul_blocks(k: int) -> tuple[int, ...]:
    """How a matrix product's k is cut: 1,024 at a time if there are more, else 512 at a time."""
    size = 1024 if k > 1024 else 512
    return (*[size] * (k // size), *[k % size] * bool(k % size))


def dot_in_order(a: Array, b: Array, blocks: Sequence[int]) -> Array:
    """Compute sum_k a[..., m, k] * b[..., k, n] in f32: a chain per block, the blocks added in order.

    a (..., M, K), b (..., K, N) f32 with equal batch axes; blocks: sizes that add up to K.
    """
    total, start = None, 0
    for size in blocks:
        end = start + size
        part = _chain(a[..., start:end], b[..., start:end, :])
        total = part if total is None else pin(total) + pin(part)
        start = end
    return jnp.zeros((*a.shape[:-1], b.shape[-1]), jnp.float32) if total is None else total


def _chain(a: Array, b: Array) -> Array:
    """One block: acc = fma(a_k, b_k, acc) for k = 1 ..., from acc = a_0 * b_0."""
    acc = pin(a[..., :1] * b[..., :1, :])
    loops = (a.shape[-1] - 1) // STEPS

    def step(i: Array, acc: Array) -> Array:
        left = lax.dynamic_slice_in_dim(a, 1 + i * STEPS, STEPS, axis=-1)
        right = lax.dynamic_slice_in_dim(b, 1 + i * STEPS, STEPS, axis=-2)
        return _add_terms(acc, left, right)

    if loops:
        acc = lax.fori_loop(0, loops, step, acc)
    done = 1 + loops * STEPS
    return _add_terms(acc, a[..., done:], b[..., done:, :])


def _add_terms(acc: Array, a: Array, b: Array) -> Array:
    for k in range(a.shape[-1]):
        acc = acc + a[..., k : k + 1] * b[..., k : k + 1, :]
    return acc
