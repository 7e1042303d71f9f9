"""Integer element-wise arithmetic with one common shift, and casts through BF16 (numerics 8.1, 9.0, 9.6, 9.7, 11.3).

Bytes are multiplied by 8-bit multipliers of one common shift and rounded once: floor(v/2^r + 0.5), product and quotient
in f32 (numerics 4.4). The product is exact in f32 below 2^24, and floor(. + 0.5) is taken of the exact value. So for
v < 2^24 this equals the rounding right shift HALF_UP; beyond it the f32 product is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpusim_kernels.base import Array, ArrayLike, along_axis, broadcast_all, f32, i64, kernel
from tpusim_kernels.lazy import jnp
from tpusim_kernels.prim.requant import multiply_shift_f32
from tpusim_kernels.prim.rounding import RoundMode, saturate, to_int
from tpusim_kernels.prim.smallfloat import to_finite_bf16

EXACT_SUM = 1 << 24
"""Integers below this are exact in f32."""
REDUCTIONS: dict[str, Callable[..., Array]] = {
    "ReduceMean": lambda x, axis, keepdims: jnp.sum(x, axis=axis, keepdims=keepdims),
    "ReduceSum": lambda x, axis, keepdims: jnp.sum(x, axis=axis, keepdims=keepdims),
    "ReduceMax": lambda x, axis, keepdims: jnp.max(x, axis=axis, keepdims=keepdims),
    "ReduceMin": lambda x, axis, keepdims: jnp.min(x, axis=axis, keepdims=keepdims),
    "ReduceL1": lambda x, axis, keepdims: jnp.sum(jnp.abs(x), axis=axis, keepdims=keepdims),
}
"""Reductions with an integer form, on int64."""


def _relu(v: Array, do_relu: bool) -> Array:
    return jnp.maximum(v, jnp.int64(0)) if do_relu else v


def _products(xs: Sequence[Array], ms: Sequence[int]) -> list[Array]:
    return broadcast_all([i64(x) * i64(m) for x, m in zip(xs, ms, strict=True)])


@kernel(static=("ms", "do_relu", "out_dtype"))
def sum_int(xs: Sequence[Array], r: ArrayLike, *, ms: tuple[int, ...], do_relu: bool, out_dtype: str) -> Array:
    """Compute y = sat(floor(relu(sum_i q_i*m_i)/2^r + 0.5)) (numerics 9.0 Add; Sub with a negative multiplier).

    xs: n int8 tensors with NumPy broadcasting; ms: n 8-bit multipliers; r: their common shift.
    """
    first, *rest = _products(xs, ms)
    total = _relu(sum(rest, start=first), do_relu)
    return saturate(multiply_shift_f32(total, 1, r), out_dtype)


@kernel(static=("ms", "largest", "do_relu", "out_dtype"))
def extreme_int(
    xs: Sequence[Array], r: ArrayLike, *, ms: tuple[int, ...], largest: bool, do_relu: bool, out_dtype: str
) -> Array:
    """Compute y = sat(relu(max_i floor(q_i*m_i/2^r + 0.5))), or the minimum (numerics 9.0 Max, Min).

    xs: n int8 tensors with NumPy broadcasting; ms: n 8-bit multipliers; r: their common shift.
    """
    first, *rest = [multiply_shift_f32(p, 1, r) for p in _products(xs, ms)]
    for x in rest:
        first = jnp.maximum(first, x) if largest else jnp.minimum(first, x)
    return saturate(_relu(first, do_relu), out_dtype)


@kernel(static=("out_dtype",))
def sloped_int(
    x: Array, m_pos: ArrayLike, r_pos: ArrayLike, m_neg: ArrayLike, r_neg: ArrayLike, *, out_dtype: str
) -> Array:
    """Compute y = sat(q >= 0 ? floor(q*m_pos/2^r_pos + 0.5) : floor(q*m_neg/2^r_neg + 0.5)) (numerics 9.7).

    x int8, channels on axis 1; m_neg one number (LeakyRelu) or (C,) (PRelu); the others are scalars.
    """
    q = i64(x)
    slope = i64(m_neg)
    slope = along_axis(slope, q.ndim, 1) if slope.ndim else slope
    negative = multiply_shift_f32(q * slope, 1, r_neg)
    return saturate(jnp.where(q >= 0, multiply_shift_f32(q, m_pos, r_pos), negative), out_dtype)


@kernel(static=("mode", "axes", "keepdims", "out_dtype"))
def reduce_int(
    x: Array, m: ArrayLike, r: ArrayLike, *, mode: str, axes: tuple[int, ...], keepdims: bool, out_dtype: str
) -> Array:
    """Compute y = sat(floor(f32(v*m)/2^r + 0.5)), v the sum, largest or smallest q over `axes` (numerics 11.3).

    x int8; m, r scalars, of a mean with 1/n inside. v is exact: the caller keeps sums below 2^24.
    """
    if mode not in REDUCTIONS:
        raise ValueError(f"an integer reduction must be one of {', '.join(REDUCTIONS)}, got {mode!r}")
    return saturate(multiply_shift_f32(REDUCTIONS[mode](i64(x), axis=axes, keepdims=keepdims), m, r), out_dtype)


@kernel(static=("out_dtype",))
def quantize_bf16(x: Array, inv_scale: ArrayLike, *, out_dtype: str) -> Array:
    """Compute q = sat(RNE(BF16(x * inv_scale))) (numerics 8.1, float -> int): no zero points.

    x f32 that holds BF16 values; inv_scale = BF16(1/s) as f32. Half to even twice: to BF16, then to an integer.
    """
    return saturate(to_int(to_finite_bf16(f32(x) * f32(inv_scale)), RoundMode.HALF_TO_EVEN), out_dtype)
