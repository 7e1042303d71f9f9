"""Activation functions of the machine (FN active) in NumPy: float64 from f32, rounded to f32 (numerics.md 9.8, D16)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa import functions as fn
from tpusim.isa.region import View
from tpusim.simulator.integer import is_float, round_half_away

_ERF: Callable[[Any], Any] = np.frompyfunc(math.erf, 1, 1)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(_ERF(x), np.float64)


def _logistic(x: np.ndarray) -> np.ndarray:
    """1/(1 + e^-x); the exponential may overflow to infinity, which gives 0."""
    return 1.0 / (1.0 + np.exp(-x))


def _mish(x: np.ndarray) -> np.ndarray:
    """All in f32, without a guard for large x (numerics.md 9.8)."""
    narrow, one, two = x.astype(np.float32), np.float32(1), np.float32(2)
    s = np.log(np.exp(narrow) + one)
    return narrow * (two / (one + np.exp(-two * s)) - one)


def _soft_plus(x: np.ndarray) -> np.ndarray:
    return np.where(x > 20.0, x, np.log(np.exp(np.minimum(x, 20.0)) + 1.0))


def _swish(x: np.ndarray, beta: float) -> np.ndarray:
    return x / (1.0 + np.exp(-x * beta))


def _elu(x: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0.0)) - 1.0))


def _hard_sigmoid(x: np.ndarray, beta: float, alpha: float) -> np.ndarray:
    return np.maximum(0.0, np.minimum(1.0, alpha * x + beta))


def _reciprocal(x: np.ndarray, numerator: float) -> np.ndarray:
    return numerator / x


_OF_ONE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ABSVAL": np.abs,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "ROUND": round_half_away,
    "ROUND_EVEN": np.rint,
    "SQRT": np.sqrt,
    "RSQRT": lambda x: 1.0 / np.sqrt(x),
    "SQUARE": lambda x: x * x,
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
    "ARCCOS": np.arccos,
    "ARCTANH": np.arctanh,
    "ARCSIN": np.arcsin,
    "ARCTAN": np.arctan,
    "TRUNC": np.trunc,
    "SIGMOID": _logistic,
    "LOG_SIGMOID": lambda x: -np.logaddexp(0.0, -x),
    "SILU": lambda x: x / (1.0 + np.exp(-x)),
    "GELU": lambda x: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
    "TGELU": lambda x: 0.5 * x * (1.0 + np.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x))),
    "QGELU": lambda x: x * _logistic(1.702 * x),
    "HSWISH": lambda x: x * np.maximum(0.0, np.minimum(1.0, (x + 3.0) / 6.0)),
    "SOFT_PLUS": _soft_plus,
    "SOFT_SIGN": lambda x: x / (1.0 + np.abs(x)),
    "MISH": _mish,
    "SIGN": np.sign,
}
ACTIVATIONS: dict[str, Callable[..., np.ndarray]] = {
    **_OF_ONE, "SWISH": _swish, "ELU": _elu, "HSIGMOID": _hard_sigmoid, "RECIPROCAL": _reciprocal, "POW": np.power
}  # fmt: skip
"""Mode -> function of values and coefficients. SIGN(0) = 0 (DN-18)."""


if unlike := fn.ACTIVATIONS ^ ACTIVATIONS.keys():
    raise ImportError(f"the machine's activations must be those of the isa, they differ in {', '.join(sorted(unlike))}")


def active(function: fn.Active, operands: tuple[np.ndarray, ...], output: View) -> np.ndarray:
    """The function in float64; integers only by ABSVAL, whose |-128| stays -128 or is its coefficient (DN-14).

    Raises SimulationError for another mode of integers.
    """
    (x,) = operands
    if not is_float(output.dtype):
        if function.mode != "ABSVAL":
            raise SimulationError(f"active: {function.mode} of integers is not defined; use a Lut command")
        magnitude = np.abs(x.astype(np.int64))
        for largest in function.coefficients:
            magnitude = np.minimum(magnitude, np.int64(largest))
        return magnitude.astype(x.dtype)
    with np.errstate(all="ignore"):  # exp overflows, log of negative numbers: infinities and NaN are the results
        return ACTIVATIONS[function.mode](x.astype(np.float64), *function.coefficients).astype(np.float32)
