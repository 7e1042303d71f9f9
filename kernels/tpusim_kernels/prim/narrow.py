"""Requantisation to bytes in int32, bit for bit equal to int64 (numerics 4.4), for the multipliers that allow it.

RSR(v*m, r, HALF_UP) needs 64 bits, and vectors of 64-bit integers take three to four times as long as those of 32: they
have half as many lanes, and a product is several instructions. But the result is a byte, so operands beyond some bound
all saturate. Up to that bound the products with two parts of the multiplier stay below 2^31:

    with m*2^(30-r) = high*2^8 + low:  (v*m*2^(30-r) + 2^29) >> 30 = (v*high + (v*low >> 8) + 2^21) >> 22
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpusim_kernels.base import Array, ArrayLike
from tpusim_kernels.lazy import jnp, lax

SHIFT, LOW_BITS = 30, 8
SMALL_BITS = 15
BYTES = "int8", "uint8"


class Narrow(NamedTuple):
    """Bias and multiplier of every channel, made once on the host (`narrow`); all int32 (C,) or (1,).

    high, low: the multiplier in two parts. least, most: accumulators beyond them saturate, with the bias added.
    """

    high: Any
    low: Any
    bias: Any
    least: Any
    most: Any

    def in_channel_order(self, order: np.ndarray) -> Narrow:
        """The parameters of channels order[0], order[1] ..."""
        return Narrow(*(part if len(part) == 1 else part[order] for part in self))


def narrow(m: NDArray[Any], r: NDArray[Any], b: NDArray[Any] | None, zero_point: int, dtype: str) -> Narrow | None:
    """Multipliers m/2^r and int32 biases (C,) or (1,) of results stored as `dtype`; None where they need int64.

    zero_point: the zero point that is added to the result of `requantize_narrow`. int64 is needed if a multiplier is
    not positive, a shift is outside 0..30, the result is not a byte, or a scale is below about 2^-15.
    """
    m, r = np.broadcast_arrays(np.asarray(m, np.int64).reshape(-1), np.asarray(r, np.int64).reshape(-1))
    if dtype not in BYTES or m.min() <= 0 or m.max() >= 1 << 31 or r.min() < 0 or r.max() > SHIFT:
        return None
    wide = m << (SHIFT - r)
    info, half = np.iinfo(dtype), 1 << (SHIFT - 1)
    lowest, highest = int(info.min) - zero_point, int(info.max) - zero_point
    most = -((half - (highest << SHIFT)) // wide)  # the least v with v*wide + half >= highest * 2^30
    least = ((lowest << SHIFT) - half) // wide  # the largest with v*wide + half <= lowest * 2^30
    high, low = wide >> LOW_BITS, wide & ((1 << LOW_BITS) - 1)
    reach = np.maximum(np.abs(most), np.abs(least)) + 1
    limit = (1 << 31) - (1 << (SHIFT - LOW_BITS))
    if reach.max() >= 1 << (31 - LOW_BITS) or (high + 1 >= limit // reach).any():
        return None
    bias = np.zeros(1, np.int64) if b is None else np.asarray(b, np.int64).reshape(-1)
    ends = (np.clip(end - bias, -(1 << 31), (1 << 31) - 1) for end in (least, most))
    return Narrow(*(np.ascontiguousarray(part, np.int32) for part in (high, low, bias, *ends)))


def requantize_narrow(acc: Array, scale: Narrow) -> Array:
    """RSR((acc + b)*m, r, HALF_UP) of int32 accumulators (..., C), as int32; values that saturate may differ.

    The sum acc + b may leave int32.
    """
    high, low, bias, least, most = (jnp.asarray(p).reshape((1,) * (acc.ndim - 1) + (-1,)) for p in scale)
    v = jnp.minimum(jnp.maximum(acc, least), most) + bias
    rest = jnp.right_shift(v * low, jnp.int32(LOW_BITS))
    return jnp.right_shift(v * high + rest + jnp.int32(1 << (SHIFT - LOW_BITS - 1)), jnp.int32(SHIFT - LOW_BITS))


def all_small(ms: Iterable[int], rs: Iterable[int]) -> bool:
    """Whether multipliers of differences of bytes are small enough for `multiply_shift_small`: every 8-bit one is."""
    return all(abs(m) < 1 << SMALL_BITS for m in ms) and all(0 <= r <= SHIFT for r in rs)


def multiply_shift_small(v: Array, m: ArrayLike, r: ArrayLike) -> Array:
    """RSR(v*m, r, HALF_UP) in int32, for |v| < 2^13 and parameters that `all_small` accepts: |v*m| + 2^29 < 2^30."""
    m, r = (lax.convert_element_type(p, jnp.int32) for p in (m, r))
    half = jnp.right_shift(jnp.left_shift(jnp.int32(1), r), jnp.int32(1))
    return jnp.right_shift(v * m + half, r)
