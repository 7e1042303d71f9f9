"""The arithmetic of a unit that has BF16 only (numerics 8.2): one product, one sum, each rounded to finite numbers.

Operands and results are f32 arrays that hold BF16 values. Both operations go through the bits of their result, so that
XLA can neither merge a product with a sum nor reorder a chain of them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike as HostArrayLike
from numpy.typing import NDArray

from tpusim_kernels.base import Array, ArrayLike, f32, kernel
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.smallfloat import rounded, to_finite_bf16

LARGEST = 0x7F7F
"""Bits of the largest finite BF16, which every overflow, infinity and NaN becomes, whatever its sign."""


@kernel(inline=True)
def flushed(x: ArrayLike) -> Array:
    """Replace f32 values with a zero exponent (subnormals and both zeros) by +0 (numerics 8.2).

    On the bits: backends differ in whether their float operations see subnormals.
    """

    def without_tiny(bits: Array) -> Array:
        tiny = (bits & jnp.asarray(0x7F800000, jnp.uint32)) == jnp.asarray(0, jnp.uint32)
        return jnp.where(tiny, jnp.asarray(0, jnp.uint32), bits)

    return rounded(without_tiny, x)


@kernel(inline=True)
def bf16_mul(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute BF16(a*b) of f32 arrays that hold BF16 values, of broadcast shapes (numerics 8.2).

    Operands and products with a zero exponent count as +0. A result that is infinite or no number becomes 0x7f7f, the
    positive largest finite value, whatever its sign: an infinite operand is an overflow, which the chip does not sign.
    """
    return to_finite_bf16(flushed(flushed(a) * flushed(b)))


@kernel(inline=True)
def bf16_add(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute BF16(a + b) of f32 arrays that hold BF16 values (numerics 8.2); as `bf16_mul`."""
    return to_finite_bf16(flushed(flushed(a) + flushed(b)))


@kernel(inline=True)
def sum_in_order(terms: ArrayLike, factor: ArrayLike) -> Array:
    """Compute the f32 sum over axis 0, in index order, of terms*factor (BF16 values: an exact f32 product).

    Products and partial sums with a zero exponent count as +0. A loop, so that no batch size, vectorisation or fusion
    can reorder it; the result is not rounded to BF16.
    """
    terms, factor = f32(terms), f32(factor)

    def step(i: Array, total: Array) -> Array:
        term = lax.dynamic_index_in_dim(terms, i, 0, keepdims=False)
        return flushed(total + flushed(flushed(term) * factor))

    return lax.fori_loop(0, terms.shape[0], step, jnp.zeros(terms.shape[1:], jnp.float32))


def stored_bf16(x: HostArrayLike) -> NDArray[np.generic]:
    """Doubles narrowed to f32 and rounded to finite BF16, host side: a bfloat16 array of the same shape.

    Half to even; what would be infinite or no number becomes 0x7f7f.
    """
    with np.errstate(over="ignore"):
        narrow = np.asarray(x, np.float64).astype(np.float32)
    bits = narrow.astype(ml_dtypes.bfloat16).view(np.uint16)
    return np.where((bits & 0x7F80) == 0x7F80, np.uint16(LARGEST), bits).astype(np.uint16).view(ml_dtypes.bfloat16)
