"""BF16 lookup tables (numerics 10), host side: NumPy doubles, used once per op at lowering.

Two kinds, each a pair of 256 BF16 entries. A slope table has a base and a slope per step of a range +-R. An
exponent+mantissa table has one factor (or summand) per exponent and one per mantissa; it serves powers and logarithms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tpusim_kernels.prim.bf16 import LARGEST, stored_bf16
from tpusim_kernels.prim.table import FUNCTIONS

ENTRIES, HALF = 256, 128
LOWEST_EXPONENT = -62
"""The exponent of entry 1; entry 127 has exponent 64."""

SLOPE_RANGES: Mapping[str, float] = {
    "SIGMOID": 12.0,
    "LOG_SIGMOID": 8.0,
    "TANH": 15.0,
    "EXP": 15.0,
    "ELU": 15.0,
    "MISH": 8.0,
    "SOFT_PLUS": 8.0,
    "SILU": 12.0,
    "SWISH": 12.0,
    "GELU": 8.0,
    "TGELU": 8.0,
    "SOFT_SIGN": 6.0,
}
"""R per function with a slope table (numerics 10).

SOFT_SIGN is not in numerics 10; its range is that of TPU-MLIR's lowering of Softsign to such tables (U-58). Decision:
the tanh form of GELU has a separate table with GELU's range.
"""

POWERS: Mapping[str, float] = {"SQRT": 0.5, "RSQRT": -0.5, "SQUARE": 2.0, "RECIPROCAL": -1.0}
"""Exponent per function that is a power of x, by exponent+mantissa table (numerics 10)."""


class TablePair(NamedTuple):
    """Two bfloat16 arrays (256,): (base, slope), or (exponent, mantissa)."""

    table: NDArray[np.generic]
    mantissa: NDArray[np.generic]


def _bits(value: int) -> Any:
    return np.array(value, np.uint16).view(ml_dtypes.bfloat16)


def slope_table(function: Callable[[NDArray[np.float64]], Any], limit: float) -> TablePair:
    """(base, slope) of `function` over +-limit (numerics 10).

    base: entry i < 128 is BF16(f(i*d)), entry i >= 128 BF16(f(-R + (i - 128)*d)), d = 2R/256. slope: entry i < 127 is
    BF16(base[i+1] - base[i]), entry i > 128 BF16(base[i] - base[i-1]); beyond the range entry 127 has
    BF16((f(3R) - f(R))/256) and entry 128 BF16((f(-R) - f(-3R))/256).
    """
    steps = np.arange(HALF, dtype=np.float64) * (2.0 * limit / ENTRIES)
    base = stored_bf16(function(np.concatenate([steps, steps - limit])))
    wide = base.astype(np.float64)
    slope = np.zeros(ENTRIES, np.float64)
    slope[: HALF - 1] = np.diff(wide[:HALF])
    slope[HALF + 1 :] = np.diff(wide[HALF:])
    ends = np.asarray(function(np.array([-3.0, -1.0, 1.0, 3.0]) * limit), np.float64)
    slope[HALF - 1], slope[HALF] = (ends[3] - ends[2]) / ENTRIES, (ends[1] - ends[0]) / ENTRIES
    return TablePair(base, stored_bf16(slope))


def activation_table(mode: str, coeffs: tuple[float, ...] = ()) -> TablePair:
    """The slope table of the activation function `mode` over its range. Raises KeyError if it has none."""
    return slope_table(lambda x: FUNCTIONS[mode](x, *coeffs), SLOPE_RANGES[mode])


def gate_table(mode: str) -> TablePair:
    """The slope table of a gate of LSTM and GRU, SIGMOID or TANH (numerics 11.7). The exponential is in f32."""
    if mode != "SIGMOID":
        return activation_table(mode)
    return slope_table(lambda x: 1.0 / (np.float32(1) + np.exp(-x).astype(np.float32)), SLOPE_RANGES[mode])


def _mantissas() -> NDArray[np.float64]:
    """1 + i/128 for both halves: the index also contains the lowest bit of the exponent, which is ignored."""
    return np.tile(1.0 + np.arange(HALF) / HALF, 2)


def power_table(exponent: float, factor: float = 1.0) -> TablePair:
    """(exponent, mantissa) entries of factor * x^exponent (numerics 10, "pow").

    exponent entries: 0 and 128 (x = 0) are 0x7f7f for a negative exponent, 1 for 0, else 0; entry 1+i is
    BF16(2^(exponent*(-62+i))); entry 129+i the same for negative x if the exponent is whole, with the sign of an odd
    power, else 0. mantissa: BF16((1 + i/128)^exponent). Decision: the factor (numerator of a Reciprocal) is part of
    the exponent entries.
    """
    with np.errstate(over="ignore"):
        powers = factor * np.exp2(exponent * (LOWEST_EXPONENT + np.arange(HALF - 1, dtype=np.float64)))
        mantissas = _mantissas() ** exponent
    negative = np.zeros_like(powers)
    if exponent == int(exponent):
        negative = powers if int(exponent) % 2 == 0 else -powers
    at_zero = [1.0 if exponent == 0 else 0.0]
    table = stored_bf16(np.concatenate([at_zero, powers, at_zero, negative]))
    if exponent < 0:
        table[[0, HALF]] = _bits(LARGEST)
    return TablePair(table, stored_bf16(mantissas))


def log_table() -> TablePair:
    """(exponent, mantissa) entries of the natural logarithm (numerics 10, "log").

    exponent entry 0 and the negative half: -max BF16, except entry 128 (-0), which is 0: upstream does not set it;
    entry 1+i: BF16((-62+i)*ln 2). mantissa: BF16(ln(1+i/128)).
    """
    table = np.full(ENTRIES, _bits(LARGEST | 0x8000))
    table[HALF] = 0
    table[1:HALF] = stored_bf16((LOWEST_EXPONENT + np.arange(HALF - 1)) * np.log(2.0))
    return TablePair(table, stored_bf16(np.log(_mantissas())))
