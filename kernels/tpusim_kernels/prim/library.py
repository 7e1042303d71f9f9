"""f32 products of XLA's library that add up in order: found by asking the library, shape by shape.

On a CPU most of the library's matrix products are what `prim.inorder` wants: one chain of fused multiply-adds per
element, in the order of k. Some shapes get other kernels, with several accumulators. Nothing that XLA documents tells
them apart, so a product of the same shape is computed from numbers whose sums show any other order, and compared with
the chain. This costs a few milliseconds while a kernel is traced; the library's product is up to four times as fast as
a loop, and there is nothing of it to compile.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from tpusim_kernels.base import pin

Array = jax.Array
Shape = tuple[int, ...]

WIDTH = 64
"""The library's widest tile: products filled up to it, rows and columns, are in order."""
ENOUGH = 52
"""Rows that suffice where they were tried (AVX-512)."""
LAST = 16
"""Columns that may be missing in the last tile: it is then still the widest."""
SMALL = 1 << 15
"""Elements of a matrix below which more rows cost less than compiling a product of one row."""
POOL = 8191
"""Different numbers in a trial; a prime, so that no row is like another."""
BATCHES, ROWS, COLUMNS = (1, 1), (10, 8), (20, 24)
"""What is looked at: so many at either end, where the library's tiles differ, and so many in between."""


def product(a: Array, b: Array, *, upright: bool = True) -> Array | None:
    """Compute a @ b in f32, each element one chain over k from 0; None where the library has another order.

    a (B, M, K), or (B, K, M) if not upright, b (B, K, N), f32. On processors without AVX-512 only upright products were
    found in order: then `a` is transposed.
    """
    (count, k, n), m = b.shape, a.shape[1 if upright else 2]
    form = in_order(count, m, k, n, upright=upright)
    if form is None:
        return None
    left = a if form.upright == upright else _turned(a)
    more = (0, form.rows - m)
    left = jnp.pad(left, ((0, 0), more, (0, 0)) if form.upright else ((0, 0), (0, 0), more))
    right = jnp.pad(b, ((0, 0), (0, 0), (0, form.columns - n)))
    return _fenced(left, right, form.upright)[:, :m, :n]


class Form(NamedTuple):
    """A product that is in order: its left operand as (B, M, K), or else as (B, K, M); its rows and columns."""

    upright: bool
    rows: int
    columns: int


def in_order(count: int, m: int, k: int, n: int, *, upright: bool) -> Form | None:
    """The form in which `product` computes such extents, None if there is none. upright: how the left operand comes."""
    if jax.default_backend() != "cpu" or k < 2 or not count * m * n:
        return None
    forms = (Form(stands, *ends) for stands in ((True,) if upright else (False, True)) for ends in _extents(m, k, n))
    return next((form for form in forms if keeps_order(count, form.rows, k, form.columns, form.upright)), None)


def _turned(a: Array) -> Array:
    """(B, K, M) as (B, M, K), and stored so: pinned as rows, or the transposition would become part of the product."""
    count, k, m = a.shape
    return pin(jnp.swapaxes(a, 1, 2).reshape(count, m * k)).reshape(count, m, k)


def filled(n: int) -> int:
    """Columns that the library's tiles hold: with fewer in the last one, it has another order."""
    wide = -(-n // WIDTH) * WIDTH
    return n if wide - n < LAST else wide


def _extents(m: int, k: int, n: int) -> Iterator[tuple[int, int]]:
    """(rows, columns) to try: as they are, then filled up; of a small row first as a matrix, which is not compiled."""
    wide = -(-n // WIDTH) * WIDTH
    if m == 1 and k * n <= SMALL:
        yield WIDTH, wide
    yield m, n
    if wide > n:
        yield m, wide
    if m > 1:
        yield from ((rows, wide) for rows in (ENOUGH, WIDTH) if m < rows)


def _fenced(a: Array, b: Array, upright: bool) -> Array:
    """The product with nothing that XLA could merge with it, so that it is the same in every program."""
    lone = a.shape[0] == 1
    if lone:
        a, b = a.reshape(a.shape[1:]), b.reshape(b.shape[1:])
    a, b = lax.optimization_barrier((a, b))
    batch = () if lone else (0,)
    contracted = (a.ndim - (1 if upright else 2),), (b.ndim - 2,)
    product = lax.dot_general(a, b, (contracted, (batch, batch)), precision=lax.Precision.HIGHEST)
    product = lax.optimization_barrier(product)
    return product[None] if lone else product


@functools.cache
def keeps_order(count: int, m: int, k: int, n: int, upright: bool) -> bool:
    """Whether the library's product of these extents is a chain per element, bit for bit."""
    a, b = _trial((count, m, k), 1), _trial((count, k, n), 2)
    left = a if upright else np.ascontiguousarray(a.swapaxes(1, 2))
    run = jax.jit(_fenced, static_argnums=2).lower(left, b, upright).compile()
    found = np.asarray(run(left, b))
    batch, rows, columns = _looked_at(count, *BATCHES), _looked_at(m, *ROWS), _looked_at(n, *COLUMNS)
    wanted = _chain(a[np.ix_(batch, rows)], b[np.ix_(batch, np.arange(k), columns)])
    if wanted.tobytes() != found[np.ix_(batch, rows, columns)].tobytes():
        return False
    b.fill(0)
    return not np.signbit(np.asarray(run(-abs(left), b))).any()  # a chain from 0 does not end in -0


def _trial(shape: Shape, seed: int) -> NDArray[np.float32]:
    """Integers of 15 bits times powers of 2 up to 2^6: in f32 almost every product and sum is rounded, in f64 none."""
    rng = np.random.default_rng(seed)
    pool = rng.integers(-16383, 16384, POOL) * np.exp2(rng.integers(0, 7, POOL))
    return np.resize(pool.astype(np.float32), shape)


def _looked_at(extent: int, ends: int, middle: int) -> NDArray[np.int64]:
    between = np.linspace(ends, max(extent - ends, ends), middle).astype(np.int64)
    places = np.concatenate([np.arange(ends), between, np.arange(extent - ends, extent)])
    return np.unique(places[(places >= 0) & (places < extent)])


def _chain(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sums as they must be, one rounding per term."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((*a.shape[:2], b.shape[2]), np.float32)
    for k in range(a.shape[2]):
        total = (left[:, :, k : k + 1] * right[:, k : k + 1] + total).astype(np.float32)
    return total
