"""Softmax, float and by table (numerics 11.1)."""

from __future__ import annotations

import math

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, divide, f32, i64, kernel, pin
from tpusim_kernels.lazy import jnp
from tpusim_kernels.lut_bf16 import lut_mantissa, lut_slope
from tpusim_kernels.prim.bf16 import bf16_add, bf16_mul, stored_bf16, sum_in_order
from tpusim_kernels.prim.exponential import exp_of_libm, exp_of_onednn
from tpusim_kernels.prim.forms import estimating
from tpusim_kernels.prim.inorder import added_up, float_sum, sum_in_lanes
from tpusim_kernels.prim.rounding import RoundMode, saturate, to_int
from tpusim_kernels.prim.smallfloat import to_finite_bf16

LANES = 16
"""f32 numbers in a register of AVX-512."""


@kernel(static=("axis", "log", "beta"))
def softmax_float(x: Array, *, axis: int, log: bool = False, beta: float = 1.0) -> Array:
    """Compute y = e/sum e, e = exp((x - max x)*beta), along `axis`, in f32, as the tpu op (U-38).

    Source: numerics 11.1, ONNX Softmax and LogSoftmax.

    The exponential is the C library's, the sum in index order. The log form is the logarithm of the quotient, minus
    infinity where that underflows.
    """
    d = _below_largest(jnp.moveaxis(f32(x), axis, 0), beta)
    e, total = _exponentials(d)
    quotient = divide(e, total)
    return jnp.moveaxis(_log(quotient) if log else quotient, 0, axis)


@kernel(static=("axis", "log"))
def softmax_onednn(x: Array, *, axis: int, log: bool = False) -> Array:
    """Compute y = e/sum e, e = exp(x - max x), along `axis`, in f32, as the top op (U-38).

    Source: ONNX Softmax and LogSoftmax; the bits of oneDNN 3.1 with AVX-512.

    If `axis` is the innermost one, oneDNN uses vectors, with another exponential and a product with the reciprocal
    (`prim.exponential`); otherwise as `softmax_float`. The log form is x - max x - ln(sum e), the logarithm rounded
    once; oneDNN's vector logarithm differs by up to 2e-6.
    """
    rows = _below_largest(jnp.moveaxis(f32(x), axis, 0), 1.0)
    vectors = math.prod(x.shape[axis % x.ndim + 1 :]) == 1 and not estimating()
    e, total = _exponentials(rows, vectors=vectors)
    if log:
        return jnp.moveaxis(rows - _log(total), 0, axis)
    y = e * divide(jnp.ones_like(total), total) if vectors else divide(e, total)
    return jnp.moveaxis(y, 0, axis)


def _below_largest(rows: Array, beta: float) -> Array:
    """(x - max x)*beta along axis 0."""
    d = rows - jnp.max(rows, axis=0, keepdims=True)
    return d if beta == 1.0 else d * jnp.float32(beta)


def _exponentials(d: Array, *, vectors: bool = False) -> tuple[Array, Array]:
    """The exponentials of d <= 0 and their f32 sum along axis 0: by the C library and a loop, or by vectors."""
    exponential = jnp.exp if estimating() else exp_of_onednn if vectors else exp_of_libm
    e = pin(exponential(d))
    return e, (sum_in_lanes(e, LANES) if vectors else float_sum(e))[None]


def _log(x: Array) -> Array:
    """The logarithm in double, rounded once."""
    return jnp.log(x.astype(jnp.float64)).astype(jnp.float32)


@kernel(static=("axis", "out_dtype"))
def softmax_int(x: Array, table: Array, s_out: ArrayLike, z_out: ArrayLike, *, axis: int, out_dtype: str) -> Array:
    """Compute y = sat(round(p) + z_out), p = t / (S*f32(s_out)) in f32, t = table[max q - q], S = f32 sum of t.

    Source: numerics 11.1, INT8.

    x int8|uint8; table f32 (256,) with entry i = exp(-s_in*i*beta). S adds the f32 entries in index order along `axis`
    (a loop, so that no batch size, vectorisation or fusion can reorder it). The scale is narrowed to f32, S*s_out and
    the quotient are in f32 (U-56). p >= 0, so round-half-away (signed output) and trunc(p + 0.5) (unsigned) are
    the same.
    """
    q = jnp.moveaxis(jnp.asarray(x).astype(jnp.int32), axis, 0)
    y = to_int(_by_table(jnp.max(q, axis=0)[None] - q, table, s_out), RoundMode.HALF_AWAY_FROM_ZERO) + i64(z_out)
    return saturate(jnp.moveaxis(y, 0, axis), out_dtype)


def _by_table(index: Array, table: Array, s_out: ArrayLike) -> Array:
    """T / (S*f32(s_out)) in f32, t = table[index], S = f32 sum of t along axis 0 in index order."""
    t = f32(table).at[index].get(mode="promise_in_bounds")
    return divide(t, (added_up(t) * f32(s_out))[None])


@kernel(static=())
def softmax_attention(x: Array, mask: Array | None, table: Array, s_out: ArrayLike) -> Array:
    """Compute y = sat_u8(round(t / (S*f32(s_out)))) along the last axis, t = table[127 - d] (numerics 11.5).

    x int8; d = sat_s8(x - 255) where the mask, which broadcasts to x, is not 0, else x; table and S as `softmax_int`.
    """
    q = jnp.asarray(x).astype(jnp.int32)
    if mask is not None:
        q = jnp.where(jnp.broadcast_to(mask != 0, q.shape), jnp.maximum(q - 255, -128), q)
    p = _by_table(jnp.moveaxis(127 - q, -1, 0), table.reshape(-1), s_out)
    return saturate(jnp.moveaxis(to_int(p, RoundMode.HALF_AWAY_FROM_ZERO), 0, -1), "uint8")


@kernel(static=())
def softmax_scaled(x: Array, mask: Array | None, scale: ArrayLike) -> Array:
    """Compute the softmax of x*scale + mask along the last axis in f32; the mask broadcasts to x (numerics 11.5)."""
    d = f32(x) * f32(scale)
    return softmax_float(d if mask is None else d + jnp.broadcast_to(f32(mask), d.shape), axis=-1)


@kernel(static=("axis", "log", "limit"))
def softmax_tables(
    x: Array,
    table: Array,
    slope: Array,
    sum_table: Array,
    sum_mantissa: Array,
    *,
    axis: int,
    log: bool = False,
    limit: float,
) -> Array:
    """Compute a softmax along `axis` by BF16 tables: y = e*(1/S), or d - ln S for `log` (numerics 11.1).

    x f32 holding BF16 values. d = BF16(x - max x); e = slope table of exp over +-limit; S = BF16 of the f32 sum, in
    index order, of e*K, K = BF16(BF16(n)/n) for n = length of the axis; 1/S or ln S by exponent+mantissa table
    (sum_table, sum_mantissa); the last product or difference rounded to BF16. All four tables hold BF16 values.
    Decision: the differences and products are bf16_add and bf16_mul, which differ from a plain rounding in subnormals
    only (they count as zero).
    """
    x = f32(x)
    d = bf16_add(x, -jnp.max(x, axis=axis, keepdims=True))
    e = lut_slope(d, table, slope, low=-limit, high=limit)
    count = np.float32(x.shape[axis])
    k = jnp.float32(float(stored_bf16(np.float32(stored_bf16(count)) / count)))
    total = to_finite_bf16(jnp.expand_dims(sum_in_order(jnp.moveaxis(e, axis, 0), k), axis))
    found = lut_mantissa(total, sum_table, sum_mantissa, log=log)
    return bf16_add(d, -found) if log else bf16_mul(e, found)
