"""Lookup tables of 256 entries (numerics 10), host side: NumPy doubles, used once per op at lowering.

A table is a constant of the compiled model, so it is made here and not by XLA: its entries do not depend on a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim_kernels.prim.scale import round_half_away, saturate_np

F64 = NDArray[np.float64]


def _erf(x: F64) -> F64:
    return np.array([math.erf(v) for v in x.ravel()]).reshape(x.shape)


def _mish(x: F64) -> F64:
    return x * (2.0 / (1.0 + np.exp(-2.0 * np.log(np.exp(x) + 1.0))) - 1.0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ABSVAL": np.abs,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND": round_half_away,
    "ROUND_EVEN": np.rint,
    "SQRT": np.sqrt,
    "RSQRT": lambda x: 1.0 / np.sqrt(x),
    "SQUARE": np.square,
    "EXP": np.exp,
    "LN": np.log,
    "LOG2": np.log2,
    "ERF": _erf,
    "SIN": np.sin,
    "COS": np.cos,
    "TAN": np.tan,
    "SINH": np.sinh,
    "COSH": np.cosh,
    "TANH": np.tanh,
    "SIGMOID": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "LOG_SIGMOID": lambda x: -np.logaddexp(0.0, -x),
    "SILU": lambda x: x / (1.0 + np.exp(-x)),
    "SWISH": lambda x, beta: x / (1.0 + np.exp(-x * beta)),
    "GELU": lambda x: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
    "TGELU": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))),
    "QGELU": lambda x: x / (1.0 + np.exp(-1.702 * x)),
    "ELU": lambda x, alpha: np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0.0)) - 1.0)),
    "HSIGMOID": lambda x, beta, alpha: np.clip(alpha * x + beta, 0.0, 1.0),
    "HSWISH": lambda x: x * np.clip((x + 3.0) / 6.0, 0.0, 1.0),
    "SOFT_PLUS": lambda x: np.where(x > 20.0, x, np.log(np.exp(np.minimum(x, 20.0)) + 1.0)),
    "SOFT_SIGN": lambda x: x / (1.0 + np.abs(x)),
    "MISH": _mish,
    "SIGN": np.sign,
    "RECIPROCAL": lambda x, c: c / x,
    "POW": np.power,
}
"""The functions of numerics 9.8 that have a table, and c/x. SIGN(0) = 0 (DN-18)."""


@dataclass(frozen=True)
class Bytes:
    """How stored bytes stand for numbers: scale * (q - zero_point), q int8 if signed, else uint8."""

    scale: float
    zero_point: int
    signed: bool


def table_values(mode: str, coeffs: tuple[float, ...], source: Bytes) -> F64:
    """(256,) f(x) in double for every byte b of the source; not finite where f has no value (numerics 10).

    q is b as the source's stored type, so a negative q has its entry at 256 + q.
    """
    if mode not in FUNCTIONS:
        raise ValueError(f"a table's function must be one of {', '.join(FUNCTIONS)}, got {mode!r}")
    return function_values(lambda x: FUNCTIONS[mode](x, *coeffs), source)


def function_values(function: Callable[[F64], F64], source: Bytes) -> F64:
    """`table_values` of any function of doubles: (256,)."""
    q = np.arange(256, dtype=np.uint8).view(np.int8 if source.signed else np.uint8).astype(np.float64)
    with np.errstate(all="ignore"):
        return function((q - source.zero_point) * source.scale)


def lookup_table(mode: str, coeffs: tuple[float, ...], source: Bytes, target: Bytes) -> NDArray[np.integer]:
    """(256,) int8 or uint8: the entry of byte b is sat(round-half-away(f((q - z_in)*s_in)/s_out + z_out)).

    All in double, f by `table_values`. An entry beyond 64 bits, infinite or no number is the smallest byte (U-54):
    x86 gives the smallest 64-bit integer for it (DN-19).
    """
    return _stored(table_values(mode, coeffs, source), target)


def byte_table(function: Callable[[F64], F64], source: Bytes, target: Bytes) -> NDArray[np.integer]:
    """`lookup_table` of any function of doubles: (256,) (numerics 10)."""
    return _stored(function_values(function, source), target)


def _stored(values: F64, target: Bytes) -> NDArray[np.integer]:
    with np.errstate(all="ignore"):
        y = round_half_away(values / target.scale + target.zero_point)
        fits = np.abs(y) < 2.0**63
    return saturate_np(np.where(fits, y, -(2.0**63)), "int8" if target.signed else "uint8")


def power_table(exponent: float, largest: float, source: Bytes, target: Bytes) -> NDArray[np.integer]:
    """(256,) the table of x**exponent: `largest`, the calibrated maximum, for 0**negative; 0 for no real number."""

    def power(x: F64) -> F64:
        no_number, infinite = (x < 0) & (exponent != int(exponent)), (x == 0) & (exponent < 0)
        return np.where(infinite, largest, np.where(no_number, 0.0, x**exponent))

    return byte_table(power, source, target)


def reciprocal_table(numerator: float, largest: float, source: Bytes, target: Bytes) -> NDArray[np.integer]:
    """(256,) the table of numerator/x in which x == 0 gives `largest`, the calibrated maximum (numerics 10)."""
    return byte_table(lambda x: np.where(x == 0, largest, numerator / np.where(x == 0, 1.0, x)), source, target)
