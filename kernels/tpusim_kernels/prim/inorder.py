"""f32 sums of products in a stated order, one rounding per term.

The float interpreter of TPU-MLIR computes convolutions and products by oneDNN on x86 (U-34): every element is a chain
of fused multiply-adds in the order of k, in blocks of k whose sums are added in order. Established by comparing bits
with `model_runner.py` for K up to 4,608 (tests/upstream). A stated order also gives the same bits alone and
inside a larger jit, on any number of threads and for any batch.

The chain relies on XLA contracting `acc + a * b` into one fused multiply-add, which XLA does on processors with that
instruction. In a sum of two products the compiler could contract either one, so the chain starts from zeros that the
compiler cannot see.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from tpusim_kernels.base import Array, pin
from tpusim_kernels.lazy import jax, jnp, lax
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.library import product

STEPS = 16
"""Terms that one iteration of a loop adds between reading and writing the accumulators."""


def convolution_blocks(k: int) -> tuple[int, ...]:
    """The block sizes of a convolution's k: 384 each; a rest between one and two blocks is cut into two halves."""
    blocks: list[int] = []
    while k:
        blocks.append(k if k <= 384 else 384 if k >= 768 else (k + 1) // 2)
        k -= blocks[-1]
    return tuple(blocks)


def matmul_blocks(k: int) -> tuple[int, ...]:
    """The block sizes of a matrix product's k: 1,024 each if k is larger than that, otherwise 512 each."""
    size = 1024 if k > 1024 else 512
    return (*[size] * (k // size), *[k % size] * bool(k % size))


def dot_in_order(a: Array, b: Array, blocks: Sequence[int]) -> Array:
    """Compute sum_k a[..., m, k] * b[..., k, n] in f32: a chain per block, the blocks added in order.

    a (..., M, K), b (..., K, N) f32 with batch axes that are equal or 1; blocks: sizes that add up to K. The chains of
    equal blocks advance together. Estimates (`prim.forms`) use the library's order instead.
    """
    if not blocks:
        return jnp.zeros((*a.shape[:-1], b.shape[-1]), jnp.float32)
    if estimating():
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
    total, start = None, 0
    for size, equal in groupby(blocks):
        count = len(list(equal))
        stop = start + count * size
        left, right = (_cut(x, start, stop, count, axis) for x, axis in ((a, a.ndim - 1), (b, b.ndim - 2)))
        sums = chains(left, right)
        first = sums[0] if total is None else total + sums[0]
        total = lax.fori_loop(1, count, lambda i, y, sums=sums: y + sums[i], first) if count > 1 else first
        start = stop
    assert total is not None
    return total


def _cut(x: Array, start: int, stop: int, count: int, axis: int) -> Array:
    """A part of an axis as blocks of equal size on a new first axis."""
    part = lax.slice_in_dim(x, start, stop, axis=axis)
    shape = (*x.shape[:axis], count, (stop - start) // count, *x.shape[axis + 1 :])
    return jnp.moveaxis(part.reshape(shape), axis, 0)


def chains(a: Array, b: Array) -> Array:
    """All elements of a @ b as one chain each; a (..., M, K), b (..., K, N) f32 with batch axes that are equal or 1."""
    if estimating():
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b))
    return _chains(left, right).reshape(*batch, a.shape[-2], b.shape[-1])


def ordered_product(a: Array, b: Array, *, upright: bool = True) -> Array:
    """All elements of a @ b as one chain each; a (B, M, K), or (B, K, M) if not upright, b (B, K, N) f32."""
    if estimating():
        return jnp.matmul(a if upright else jnp.swapaxes(a, 1, 2), b, precision=lax.Precision.HIGHEST)
    found = product(a, b, upright=upright)
    return _chain(a if upright else jnp.swapaxes(a, 1, 2), b) if found is None else found


def total(sums: Sequence[Array]) -> Array:
    """The sum of blocks (blocks, M, N) in their order, without their first axis."""
    found = None
    for blocks in sums:
        for i in range(blocks.shape[0]):
            found = blocks[i] if found is None else found + blocks[i]
    assert found is not None
    return found


def added_up(terms: Array) -> Array:
    """The f32 sum over axis 0 in index order: a loop, so that no batch, vectorisation or fusion can reorder it."""
    count = len(terms)
    steps = next(steps for steps in range(min(count, STEPS), 0, -1) if count % steps == 0 or steps <= STEPS // 2)

    def step(i: Array, total: Array) -> Array:
        return total + lax.dynamic_index_in_dim(terms, i, 0, keepdims=False)

    return lax.fori_loop(0, count, step, jnp.zeros(terms.shape[1:], jnp.float32), unroll=steps)


def float_sum(terms: Array) -> Array:
    """`added_up`, or for estimates (`prim.forms`) the sum in any order."""
    return jnp.sum(terms, axis=0) if estimating() else added_up(terms)


def float_sum_of_squares(rows: Array) -> Array:
    """The f32 sum of squares over axis 0, a chain of fused multiply-adds; in any order for estimates."""
    if estimating():
        return jnp.sum(rows * rows, axis=0)
    if len(rows) == 1:
        return pin(rows[0] * rows[0])
    return lax.fori_loop(0, len(rows), lambda i, total: total + rows[i] * rows[i], jnp.zeros_like(rows[0]))


def sum_in_lanes(terms: Array, lanes: int) -> Array:
    """The f32 sum over axis 0 by vectors of `lanes`: each lane sums in index order, then halves are added."""
    padded = jnp.pad(terms, [(0, -len(terms) % lanes)] + [(0, 0)] * (terms.ndim - 1))
    total = added_up(padded.reshape(-1, lanes, *terms.shape[1:]))
    while len(total) > 1:
        total = total[: len(total) // 2] + total[len(total) // 2 :]
    return total[0]


@functools.cache
def _batchable() -> Callable[[Array, Array], Array]:
    run = jax.custom_batching.custom_vmap(ordered_product)
    run.def_vmap(_many_chains)
    return run


def _chains(a: Array, b: Array) -> Array:
    """`chains` of rank 3, by the library if it keeps the order for these extents."""
    return _batchable()(a, b)


def _many_chains(count: int, batched: Sequence[bool], a: Array, b: Array) -> tuple[Array, bool]:
    """The rule of `vmap`: all samples in one call, so that the library is tried with their combined extents."""
    left, right = (
        jnp.broadcast_to(x if has else x[None], (count, *x.shape[-3:])).reshape(-1, *x.shape[-2:])
        for x, has in zip((a, b), batched, strict=True)
    )
    found = _chains(left, right)
    return found.reshape(count, -1, *found.shape[1:]), True


def _chain(a: Array, b: Array) -> Array:
    """One block: acc = fma(a_k, b_k, acc) for all k, from acc = 0.

    The loop has at least two steps: XLA unrolls a loop of one step, and may then contract another product. The last
    step is padded with zeros, which leave the sum unchanged.
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


def matrix_vector(a: Array, b: Array) -> Array:
    """Compute sum_k a[..., k] * b[..., k] in f32, as oneDNN multiplies a matrix with one vector; axes broadcast.

    Eight chains run over the largest multiple of 16 elements of k; they are added by neighbours, halves and neighbours.
    The rest is cut into parts of 8, 4, 2 and 1 elements; the products of each part are added in the same way, and then
    the sums of the parts in this order.
    """
    k = a.shape[-1]
    whole = k - k % 16
    sums = [_by_eight(_eight_chains(a[..., :whole], b[..., :whole]))] if whole else []
    start = whole
    for size in (8, 4, 2, 1):
        if k & size:
            products = pin(a[..., start : start + size] * b[..., start : start + size])
            sums.append(_by_eight(jnp.pad(products, [(0, 0)] * (products.ndim - 1) + [(0, 8 - size)])))
            start += size
    total = sums[0]
    for part in sums[1:]:
        total = total + part
    return total


def _eight_chains(a: Array, b: Array) -> Array:
    """Chains over every eighth element of the last axis, on a last axis of eight."""
    left, right = (x.reshape(*x.shape[:-1], -1, 8) for x in (a, b))
    shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])

    def step(i: Array, total: Array) -> Array:
        one, other = (lax.dynamic_index_in_dim(x, i, x.ndim - 2, keepdims=False) for x in (left, right))
        return total + one * other

    return lax.fori_loop(0, left.shape[-2], step, jnp.zeros((*shape, 8), jnp.float32))


def _by_eight(lanes: Array) -> Array:
    """The sum of a last axis of eight: by neighbours, halves and neighbours."""
    pairs = lanes[..., 0::2] + lanes[..., 1::2]
    halves = pairs[..., :2] + pairs[..., 2:]
    return halves[..., 0] + halves[..., 1]
