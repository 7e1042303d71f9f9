"""Activation functions: the 256-entry lookup table and the float functions (numerics 9.8, 10)."""

from __future__ import annotations

import math
from collections.abc import Callable

from tpusim_kernels.base import Array, f32, kernel
from tpusim_kernels.lazy import jnp, lax


@kernel()
def lut(x: Array, table: Array) -> Array:
    """Compute y = table[byte of x]: x int8|uint8, any shape.

    table (256,), any dtype, which is the output dtype (numerics 10).

    The index is the stored byte, so the entry of a negative value i is at 256 + i.
    """
    x, table = jnp.asarray(x), jnp.asarray(table)
    if table.shape != (256,) or x.dtype not in (jnp.int8, jnp.uint8):
        raise ValueError(f"lut needs a table of 256 entries and byte input, got {table.shape} and {x.dtype}")
    index = lax.bitcast_convert_type(x, jnp.uint8)
    return table.at[index].get(mode="promise_in_bounds")


@kernel()
def channel_lut(x: Array, tables: Array) -> Array:
    """Compute y[n, c, ...] = tables[c, byte of x[n, c, ...]]: x int8|uint8 (n, c, ...).

    tables (c, 256), any dtype, which is the output dtype: one table per channel (numerics 10, ScaleLut).
    """
    x, tables = jnp.asarray(x), jnp.asarray(tables)
    if x.ndim < 2 or tables.shape != (x.shape[1], 256) or x.dtype not in (jnp.int8, jnp.uint8):
        raise ValueError(f"channel_lut needs 256 entries per channel and bytes, got {tables.shape} and {x.dtype}")
    index = lax.bitcast_convert_type(x, jnp.uint8).astype(jnp.int32)
    channel = jnp.arange(x.shape[1], dtype=jnp.int32).reshape(1, -1, *[1] * (x.ndim - 2))
    return tables.reshape(-1).at[channel * 256 + index].get(mode="promise_in_bounds")


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + jnp.exp(-x))


def _softplus(x: Array) -> Array:
    return jnp.where(x > 20.0, x, jnp.log(jnp.exp(jnp.minimum(x, 20.0)) + 1.0))


def _mish(x: Array) -> Array:
    """Compute MISH in f32 throughout and without the x > 20 guard (U-41).

    e^x may be infinite: then s is too, and the result is x*(2/1 - 1) = x.
    """
    narrow = x.astype(jnp.float32)
    one, two = jnp.float32(1), jnp.float32(2)
    s = jnp.log(jnp.exp(narrow) + one)
    return narrow * (two / (one + jnp.exp(-two * s)) - one)


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "ABSVAL": lambda x: jnp.abs(x),
    "CEIL": lambda x: jnp.ceil(x),
    "FLOOR": lambda x: jnp.floor(x),
    "ROUND": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "ROUND_EVEN": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "SQRT": lambda x: jnp.sqrt(x),
    "RSQRT": lambda x: 1.0 / jnp.sqrt(x),
    "SQUARE": lambda x: x * x,
    "EXP": lambda x: jnp.exp(x),
    "LN": lambda x: jnp.log(x),
    "LOG2": lambda x: jnp.log(x) / math.log(2.0),
    "ERF": lambda x: lax.erf(x),
    "SIN": lambda x: jnp.sin(x),
    "COS": lambda x: jnp.cos(x),
    "TAN": lambda x: jnp.tan(x),
    "SINH": lambda x: jnp.sinh(x),
    "COSH": lambda x: jnp.cosh(x),
    "TANH": lambda x: jnp.tanh(x),
    "ARCCOS": lambda x: jnp.arccos(x),
    "ARCTANH": lambda x: jnp.arctanh(x),
    "ARCSIN": lambda x: jnp.arcsin(x),
    "ARCTAN": lambda x: jnp.arctan(x),
    "TRUNC": lambda x: jnp.trunc(x),
    "SIGMOID": _sigmoid,
    "LOG_SIGMOID": lambda x: jnp.where(x < -700.0, x, jnp.log(_sigmoid(jnp.maximum(x, -700.0)))),
    "SILU": lambda x: x / (1.0 + jnp.exp(-x)),
    "SWISH": lambda x, beta: x / (1.0 + jnp.exp(-x * beta)),
    "GELU": lambda x: 0.5 * x * (1.0 + lax.erf(x / math.sqrt(2.0))),
    "TGELU": lambda x: 0.5 * x * (1.0 + jnp.tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x))),
    "QGELU": lambda x: x * _sigmoid(1.702 * x),
    "ELU": lambda x, alpha: jnp.where(x > 0, x, alpha * (jnp.exp(jnp.minimum(x, 0.0)) - 1.0)),
    "HSIGMOID": lambda x, beta, alpha: jnp.maximum(0.0, jnp.minimum(1.0, alpha * x + beta)),
    "HSWISH": lambda x: x * jnp.maximum(0.0, jnp.minimum(1.0, (x + 3.0) / 6.0)),
    "SOFT_PLUS": _softplus,
    "SOFT_SIGN": lambda x: x / (1.0 + jnp.abs(x)),
    "MISH": _mish,
    "SIGN": lambda x: jnp.sign(x),
    "RECIPROCAL": lambda x, c: c / x,
    "POW": lambda x, exponent: jnp.power(x, exponent),
}


@kernel(static=("mode", "coeffs"))
def activation_float(x: Array, *, mode: str, coeffs: tuple[float, ...] = ()) -> Array:
    """Compute y = f(x), computed in double from f32 `x` and rounded once to f32; any shape (numerics 9.8).

    `mode` is the upstream name (FUNCTIONS); upstream lacks ROUND_EVEN, ARCSIN, ARCTAN and TRUNC.
    coeffs: SWISH (beta,), ELU (alpha,), HSIGMOID (beta, alpha), RECIPROCAL (numerator,), POW (exponent,), others none.
    MISH is computed in f32; SIGN(0) = 0 (DN-18). Rounding the f32 to F16 or BF16 is the caller's
    (`prim.smallfloat`): two roundings (U-42).
    """
    if mode not in FUNCTIONS:
        raise ValueError(f"activation mode must be one of {', '.join(FUNCTIONS)}, got {mode!r}")
    y = FUNCTIONS[mode](f32(x).astype(jnp.float64), *coeffs)
    return y.astype(jnp.float32)


__all__ = ["FUNCTIONS", "activation_float", "lut"]
