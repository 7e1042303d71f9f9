"""BF16 arithmetic and lookup tables in NumPy (numerics.md 8.2, 10, 11.1, 11.2).

Arrays are f32 with BF16 values. After every product and every sum a zero exponent becomes +0, and infinities and NaN
become the positive largest finite value.
"""

from typing import Any

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.region import View, numpy_dtype

Operands = tuple[np.ndarray, ...]

_BF16 = numpy_dtype("bf16")
_LARGEST = np.float32((2 - 2**-7) * 2.0**127)
_SMALLEST = np.finfo(np.float32).tiny
_FIRST_EXPONENT, _LAST_EXPONENT = -62, 64


def rounded(values: Any) -> np.ndarray:
    """f32 rounded half to even to BF16; infinities and NaN become the positive largest value."""
    narrow = np.asarray(values, np.float32).astype(_BF16).astype(np.float32)
    return np.where(np.isfinite(narrow), narrow, _LARGEST)


def _normal(values: np.ndarray) -> np.ndarray:
    """Values with +0 for everything below the smallest normal number; NaN stays."""
    return np.where(np.abs(values) < _SMALLEST, np.float32(0), values)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The f32 product rounded to BF16; values below the smallest normal number become +0."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return rounded(_normal(_normal(a) * _normal(b)))


def total(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The f32 sum rounded to BF16; values below the smallest normal number become +0."""
    with np.errstate(over="ignore", invalid="ignore"):
        return rounded(_normal(_normal(a) + _normal(b)))


def _sum(terms: np.ndarray, factor: np.ndarray | np.float32) -> np.ndarray:
    """BF16 of the f32 sum over axis 0, in index order, of terms*factor."""
    found = np.zeros(terms.shape[1:], np.float32)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for term in terms:
            found = _normal(found + _normal(_normal(term) * factor))
    return rounded(found)


def _byte(values: np.ndarray) -> np.ndarray:
    """The low byte of every BF16 value."""
    return (values.view(np.uint32) >> 16) & 0xFF


def by_slope(x: np.ndarray, base: np.ndarray, slope: np.ndarray, low: float, high: float) -> np.ndarray:
    """base[j] + (t - j)*slope[j], t = (x - middle)*256/(high - low), j its whole part within int8 (numerics.md 10)."""
    middle, scale = rounded((low + high) / 2), rounded(256 / (high - low))
    t = product(total(x, -middle), scale)
    j = np.trunc(np.minimum(np.maximum(t, np.float32(-128)), np.float32(127)))
    index = j.astype(np.int8).view(np.uint8)
    return total(base.ravel()[index], product(rounded(t - j), slope.ravel()[index]))


def by_mantissa(x: np.ndarray, table: np.ndarray, mantissa: np.ndarray, *, log: bool) -> np.ndarray:
    """table[exponent] times (log: plus) mantissa[low byte] (numerics.md 10); subnormals count as zero.

    Exponents outside the table, those of infinities and NaN too, take its first or last entry.
    """
    finite = np.isfinite(x)
    exponent = np.where(finite, np.frexp(np.where(finite, x, 1))[1] - 1, _LAST_EXPONENT)
    place = np.clip(exponent, _FIRST_EXPONENT, _LAST_EXPONENT) - _FIRST_EXPONENT + 1
    place = np.where(np.signbit(x), place + 128, place)
    place = np.where(np.abs(x) < _SMALLEST, 0, place)
    combine = total if log else product
    return combine(table.ravel()[place], mantissa.ravel()[_byte(x)])


def softmax_tables(function: fn.SoftmaxTables, operands: Operands, output: View) -> np.ndarray:
    """D = x - max; e = exp d; S = sum of e*K, K = BF16(BF16(n)/n); e * 1/S, or d - ln S (numerics.md 11.1)."""
    x, base, slope, exponents, mantissas = operands
    axis, limit, log = function.axis, function.limit, function.log
    length = np.float32(x.shape[axis])
    d = total(x, -x.max(axis=axis, keepdims=True))
    e = by_slope(d, base, slope, -limit, limit)
    s = np.expand_dims(_sum(np.moveaxis(e, axis, 0), rounded(rounded(length) / length)), axis)
    found = by_mantissa(s, exponents, mantissas, log=log)
    return total(d, -found) if log else product(e, found)


def lrn_tables(function: fn.LrnTables, operands: Operands, output: View) -> np.ndarray:
    """X * (bias + sum of alpha/size * x^2)^-beta; neighbours are added outwards, the later channel first."""
    (x, exponents, mantissas), size = operands, function.size
    squares = product(rounded(function.alpha / size), product(x, x))
    found = squares.copy()
    for step in range(1, size // 2 + 1):
        found[:, :-step] = total(found[:, :-step], squares[:, step:])
        found[:, step:] = total(found[:, step:], squares[:, :-step])
    found = total(found, rounded(function.bias))
    return product(by_mantissa(found, exponents, mantissas, log=False), x)


def layernorm_tables(
    x: np.ndarray, parameters: tuple[np.ndarray | None, ...], tables: Operands, axis: int, epsilon: float
) -> np.ndarray:
    """Layer norm over the axes from `axis` on, every step in BF16, x^-0.5 by `tables` (numerics.md 11.2).

    parameters: weight and bias, None if there is none.
    """
    weight, bias = parameters
    rows = x.reshape(*x.shape[:axis], -1)
    average = rounded(1.0 / rows.shape[-1])
    d = total(rows, -_sum(np.moveaxis(rows, -1, 0), average)[..., None])
    squares = product(product(d, d), average)
    variance = total(_sum(np.moveaxis(squares, -1, 0), np.float32(1))[..., None], rounded(epsilon))
    y = product(d, by_mantissa(variance, *tables, log=False)).reshape(x.shape)
    y = y if weight is None else product(y, weight)
    return y if bias is None else total(y, bias)
