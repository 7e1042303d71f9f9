"""f32 products of XLA's library that add in order, established by a trial for each shape.

On a CPU most of the library's matrix products are what `prim.inorder` wants: one chain of fused multiply-adds per
element, in the order of k. Some shapes get other kernels, with several accumulators. XLA does not document which. So a
product of the same shape is computed from numbers whose sums reveal any other order, and compared with the chain. This
costs a few milliseconds while a kernel is traced; the library's product is up to four times as fast as a loop and needs
no compilation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpusim_kernels.base import pin
from tpusim_kernels.lazy import jax, jnp, lax

Array: TypeAlias = "jax.Array"
Shape = tuple[int, ...]

WIDTH = 64
"""The library's widest tile: products filled up to it, rows and columns, are in order."""
ENOUGH = 52
"""Rows that suffice where they were tried (AVX-512)."""
LAST = 16
"""Columns that may be missing in the last tile: the library then still uses its widest tile."""
SMALL = 1 << 15
"""For matrices of fewer elements, computing more rows costs less than compiling a product of one row."""
POOL = 8191
"""Different numbers in a trial; a prime, so that no row is like another."""
BATCHES, ROWS, COLUMNS = (1, 1), (10, 8), (20, 24)
"""The batches, rows and columns that a trial compares: (at either end, where the tiles differ; in between)."""


def product(a: Array, b: Array, *, upright: bool = True) -> Array | None:
    """Compute a @ b in f32, each element one chain over k from 0; None if the library adds in another order.

    a (B, M, K), or (B, K, M) if not upright, b (B, K, N), f32. On processors without AVX-512 only upright products add
    in order: then `a` is transposed.
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
    """A product that adds in order: upright, with a left operand (B, M, K), or not, (B, K, M); its rows and columns."""

    upright: bool
    rows: int
    columns: int


def in_order(count: int, m: int, k: int, n: int, *, upright: bool) -> Form | None:
    """The form in which `product` computes these extents, or None. upright: the layout of the given left operand."""
    if jax.default_backend() != "cpu" or k < 2 or not count * m * n:
        return None
    forms = (Form(stands, *ends) for stands in ((True,) if upright else (False, True)) for ends in _extents(m, k, n))
    return next((form for form in forms if keeps_order(count, form.rows, k, form.columns, form.upright)), None)


def _turned(a: Array) -> Array:
    """(B, K, M) stored as (B, M, K): the pin keeps XLA from merging the transposition into the product."""
    count, k, m = a.shape
    return pin(jnp.swapaxes(a, 1, 2).reshape(count, m * k)).reshape(count, m, k)


def filled(n: int) -> int:
    """`n` columns padded to whole tiles of the library: with a narrower last tile it adds in another order."""
    wide = -(-n // WIDTH) * WIDTH
    return n if wide - n < LAST else wide


def _extents(m: int, k: int, n: int) -> Iterator[tuple[int, int]]:
    """(rows, columns) to try: as given, then padded; a single small row first as a matrix, to save a compilation."""
    wide = -(-n // WIDTH) * WIDTH
    if m == 1 and k * n <= SMALL:
        yield WIDTH, wide
    yield m, n
    if wide > n:
        yield m, wide
    if m > 1:
        yield from ((rows, wide) for rows in (ENOUGH, WIDTH) if m < rows)


def _fenced(a: Array, b: Array, upright: bool) -> Array:
    """The product between barriers: XLA can merge nothing with it, so it is the same in every program."""
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
    """The required sums, computed by NumPy with one rounding per term."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((*a.shape[:2], b.shape[2]), np.float32)
    for k in range(a.shape[2]):
        total = (left[:, :, k : k + 1] * right[:, k : k + 1] + total).astype(np.float32)
    return total
