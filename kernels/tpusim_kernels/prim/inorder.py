"""f32 sums of products in a stated order, one rounding per term.

The float interpreter of TPU-MLIR computes convolutions and matrix products by oneDNN on x86: every element is a chain
of fused multiply-adds in the order of k, in blocks of k whose sums are added in order. Found by comparing bits with
`model_runner.py` 1.30.2 for K up to 4,608 (tests/upstream). A stated order also gives the same bits alone and inside a
larger jit, on any number of threads and for any batch.

The chain relies on XLA contracting `acc + a * b` into one fused multiply-add, which it does on processors that have
one. Where two products meet the choice would be the compiler's, so the chain begins with zeros that it does not see.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from tpusim_kernels.base import Array, pin
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.library import product

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

    a (..., M, K), b (..., K, N) f32 with batch axes that are equal or 1; blocks: sizes that add up to K. The chains of
    all blocks advance side by side. Only estimates (`prim.forms`) have the library's order.
    """
    if not blocks:
        return jnp.zeros((*a.shape[:-1], b.shape[-1]), jnp.float32)
    if estimating():
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
    sums = chains(_cut(a, blocks, a.ndim - 1), _cut(b, blocks, b.ndim - 2))
    return lax.fori_loop(1, len(blocks), lambda i, total: total + sums[i], sums[0])


def chains(a: Array, b: Array) -> Array:
    """All elements of a @ b as one chain each; a (..., M, K), b (..., K, N) f32 with batch axes that are equal or 1."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b))
    found = product(left, right)
    return _chain(a, b) if found is None else found.reshape(*batch, *found.shape[1:])


def _cut(x: Array, blocks: Sequence[int], axis: int) -> Array:
    """The blocks of an axis on a new first axis, filled with zeros to equal size: they leave a sum as it is."""
    if len(set(blocks)) == 1:
        shape = (*x.shape[:axis], len(blocks), blocks[0], *x.shape[axis + 1 :])
        return jnp.moveaxis(x.reshape(shape), axis, 0)
    ends = np.cumsum(blocks)
    parts = [lax.slice_in_dim(x, end - size, end, axis=axis) for size, end in zip(blocks, ends.tolist(), strict=True)]
    fills = [[(0, max(blocks) - p.shape[axis]) if i == axis else (0, 0) for i in range(x.ndim)] for p in parts]
    return jnp.stack([jnp.pad(part, fill) for part, fill in zip(parts, fills, strict=True)])


def _chain(a: Array, b: Array) -> Array:
    """One block: acc = fma(a_k, b_k, acc) for all k, from acc = 0.

    A loop of one step would be taken apart, and two products without a sum between them meet: there are two at least.
    Zeros fill the last step: they leave the sum as it is.
    """
    k = a.shape[-1]
    if k == 1:
        return pin(a * b)
    steps = min(STEPS, -(-k // 2))
    loops = -(-k // steps)
    if fill := loops * steps - k:
        a = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, fill)])
        b = jnp.pad(b, [(0, 0)] * (b.ndim - 2) + [(0, fill), (0, 0)])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])

    def step(i: Array, acc: Array) -> Array:
        left = lax.dynamic_slice_in_dim(a, i * steps, steps, axis=-1)
        right = lax.dynamic_slice_in_dim(b, i * steps, steps, axis=-2)
        for k in range(steps):
            acc = acc + left[..., k : k + 1] * right[..., k : k + 1, :]
        return acc

    return lax.fori_loop(0, loops, step, jnp.zeros((*batch, a.shape[-2], b.shape[-1]), jnp.float32))
