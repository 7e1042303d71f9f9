"""Exact sums of products, through BLAS wherever a float can carry them.

Integers are carried by floats that represent every partial sum exactly: float32 while K products stay below 2**24,
float64 below 2**53; only then int64, which has no BLAS. f32 operands are accumulated in float64 and rounded to f32
once, by the caller: the most exact choice, and independent of blocking.
"""

import numpy as np

_FLOAT32_EXACT, _FLOAT64_EXACT = 2**24, 2**53


def _magnitude(dtype: np.dtype) -> int:
    """Largest absolute value of an integer dtype."""
    return max(int(np.iinfo(dtype).max), -int(np.iinfo(dtype).min))


def carrier(left: np.dtype, right: np.dtype, terms: int) -> np.dtype:
    """The dtype that sums `terms` products of the two dtypes exactly (float operands: float64)."""
    if left.kind not in "iu" or right.kind not in "iu":
        return np.dtype(np.float64)
    largest = _magnitude(left) * _magnitude(right) * terms
    if largest < _FLOAT32_EXACT:
        return np.dtype(np.float32)
    return np.dtype(np.float64 if largest < _FLOAT64_EXACT else np.int64)


def product_by_depth(x: np.ndarray, w: np.ndarray, depth: int) -> np.ndarray:
    """Sums of `depth` products in float64, rounded to f32 and added up in f32."""
    starts = range(0, x.shape[-1], depth)
    x, w = x.astype(np.float64), w.astype(np.float64)
    parts = ((x[..., k : k + depth] @ w[..., k : k + depth, :]).astype(np.float32) for k in starts)
    total = next(parts)
    for part in parts:
        total = total + part
    return total
