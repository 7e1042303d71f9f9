"""Integer element-wise arithmetic (numerics 9.0, 9.3 to 9.5) of BM chips: int64 inside, HALF_UP, saturated at the end.

q, m, r, z are stored integers, multipliers, right shifts and zero points; m, r, z are dynamic scalars (or per channel
on axis 1 where said). Tensors are int8 or uint8 (int32 where a requant reads accumulators).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from tpusim_kernels.base import Array, ArrayLike, along_axis, broadcast_all, i64, kernel
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.prim.narrow import multiply_shift_small
from tpusim_kernels.prim.requant import multiply_shift, requantize
from tpusim_kernels.prim.rounding import RoundMode, rsr, saturate

Scalars: TypeAlias = "Sequence[ArrayLike] | Array"


def _floor_at(v: Array, floor: ArrayLike, do_relu: bool) -> Array:
    return jnp.maximum(v, lax.convert_element_type(floor, v.dtype)) if do_relu else v


def _scaled_terms(xs: Sequence[Array], ms: Scalars, rs: Scalars, zs_in: Scalars, small: bool = False) -> list[Array]:
    """RSR((q_i - z_i)*m_i, r_i, HALF_UP) for every input, expanded to the common shape; small: in int32.

    Inputs of one shape and dtype are concatenated first, because XLA computes an operand of a concatenation only once.
    Otherwise it would compute a chain of residual sums again for each reader of the last sum.
    """
    count = len(xs)
    scaled, dtype = (multiply_shift_small, jnp.int32) if small else (multiply_shift, jnp.int64)
    wide = partial(lax.convert_element_type, new_dtype=dtype)
    if count > 1 and xs[0].ndim and len({(x.shape, x.dtype) for x in xs}) == 1:
        rows = len(xs[0])
        m, r, z = (wide(_for_rows(parameters, count, rows, xs[0].ndim)) for parameters in (ms, rs, zs_in))
        joined = scaled(wide(lax.concatenate(xs, 0)) - z, m, r)
        return [lax.slice_in_dim(joined, i * rows, (i + 1) * rows) for i in range(count)]
    terms = [scaled(wide(x) - wide(zs_in[i]), wide(ms[i]), wide(rs[i])) for i, x in enumerate(xs)]
    return broadcast_all(terms)


def _for_rows(parameters: Scalars, count: int, rows: int, ndim: int) -> Array:
    """A scalar for each of `count` tensors, repeated for all rows of their concatenation."""
    repeated = jnp.repeat(jnp.stack([i64(parameters[i]).reshape(()) for i in range(count)]), rows)
    return along_axis(repeated, ndim, 0)


@kernel(static=("do_relu", "out_dtype", "small"))
def add_int(
    xs: Sequence[Array],
    ms: Scalars,
    rs: Scalars,
    zs_in: Scalars,
    z_out: ArrayLike,
    *,
    do_relu: bool,
    out_dtype: str,
    small: bool = False,
) -> Array:
    """Compute y = sat(relu(sum_i RSR((q_i - z_i)*m_i, r_i, HALF_UP)) + z_out) (numerics 9.0 Add, 9.5).

    xs: n tensors int8|uint8 with NumPy broadcasting; ms, rs, zs_in: n integer scalars each. Each operand is rounded
    before the sum; relu acts on the sum before z_out. Symmetric mode: all zero points 0. small: compute in int32, which
    needs multipliers that `prim.narrow.all_small` accepts and at most 64 tensors.
    """
    first, *rest = _scaled_terms(xs, ms, rs, zs_in, small)
    total = sum(rest, start=first)
    return saturate(_floor_at(total, 0, do_relu) + lax.convert_element_type(z_out, total.dtype), out_dtype)


@kernel(static=("do_relu", "out_dtype"))
def sub_int(xs: Sequence[Array], ms: Scalars, rs: Scalars, *, do_relu: bool, out_dtype: str) -> Array:
    """Compute y = sat(relu(RSR(q_a*m_a, r_a, HALF_UP) - RSR(q_b*m_b, r_b, HALF_UP))).

    xs: two tensors int8|uint8; ms, rs: two scalars each; symmetric mode only (numerics 9.0 Sub).
    """
    first, *rest = _scaled_terms(xs, ms, rs, (0,) * len(xs))
    return saturate(_floor_at(first - sum(rest[1:], start=rest[0]), 0, do_relu), out_dtype)


@kernel(static=("do_relu", "out_dtype", "requant"))
def mul_int(
    xs: Sequence[Array],
    m: ArrayLike,
    r: ArrayLike,
    zs_in: Scalars,
    z_out: ArrayLike,
    *,
    do_relu: bool,
    out_dtype: str,
    requant: str = "multiply_shift",
) -> Array:
    """Compute y = sat(requant(relu(prod_i (q_i - z_i)), m, r) + z_out), by default RSR(v*m, r, HALF_UP).

    Relu acts on the raw product (numerics 9.0 Mul, 9.5). requant: as `prim.requant.requantize`.

    xs: n tensors int8|uint8 with NumPy broadcasting; m, r integer scalars. Exact for up to 6 byte operands.
    """
    first, *rest = broadcast_all([i64(x) - i64(zs_in[i]) for i, x in enumerate(xs)])
    for x in rest:
        first = first * x
    return saturate(requantize(_floor_at(first, 0, do_relu), i64(m), i64(r), requant) + i64(z_out), out_dtype)


@kernel(static=("out_dtype",))
def mulshift_int(x: Array, m: ArrayLike, r: ArrayLike, z_in: ArrayLike, z_out: ArrayLike, *, out_dtype: str) -> Array:
    """Compute y = sat(RSR((q - z_in)*m, r, HALF_UP) + z_out) (numerics 9.0 MulConst, MulShift).

    q int8|uint8 of any shape; m, r, z_in, z_out integer scalars.
    """
    return saturate(multiply_shift(i64(x) - i64(z_in), i64(m), i64(r)) + i64(z_out), out_dtype)


@kernel(static=("do_relu", "out_dtype"))
def mulconst_int(
    x: Array, m: ArrayLike, r: ArrayLike, z_in: ArrayLike = 0, z_out: ArrayLike = 0, *, do_relu: bool, out_dtype: str
) -> Array:
    """Compute y = sat(max(RSR((q - z_in)*m, r, HALF_UP) + z_out, z_out)), the maximum only with `do_relu`.

    q int8|uint8 of any shape; m, r, z_in, z_out integer scalars (numerics 9.3 MulConst).
    """
    v = multiply_shift(i64(x) - i64(z_in), i64(m), i64(r)) + i64(z_out)
    return saturate(_floor_at(v, z_out, do_relu), out_dtype)


@kernel(static=("mode", "out_dtype"))
def requant_int(
    x: Array,
    m: ArrayLike,
    r: ArrayLike,
    z_in: ArrayLike,
    z_out: ArrayLike,
    *,
    mode: RoundMode = RoundMode.HALF_AWAY_FROM_ZERO,
    out_dtype: str,
) -> Array:
    """Compute y = sat(z_out + RSR((q - z_in)*m, r, mode)) (numerics 6, RequantInt and RequantIntAxis).

    x any integer dtype; m, r, z_out integer scalars or (C,) for channels on axis 1.
    """
    v = i64(x) - i64(z_in)
    m, r, z = (along_axis(i64(p), v.ndim, 1) if np.ndim(p) else i64(p) for p in (m, r, z_out))
    return saturate(multiply_shift(v, m, r, mode) + z, out_dtype)


@kernel(static=("do_relu", "out_dtype", "clamp16"))
def scale_int(
    x: Array, m: Array, b: Array, r: Array, z_out: ArrayLike, *, do_relu: bool, out_dtype: str, clamp16: bool = False
) -> Array:
    """Compute y = sat(relu(RSR(q*m[c] + b[c], r[c], DOWN) + z_out)), relu meaning max(v, 0) (numerics 9.4).

    x int8|uint8, channels on axis 1; m int8, b int16 (the rounding constant is inside b), r integer, each (C,) or (1,).
    clamp16: q*m + b is clamped to int16 (signed output) or uint16 (unsigned output) before the shift.
    """
    m, b, r = (along_axis(i64(p), x.ndim, 1) for p in (m, b, r))
    v = i64(x) * m + b
    if clamp16:
        v = i64(saturate(v, "int16" if np.issubdtype(out_dtype, np.signedinteger) else "uint16"))
    return saturate(_floor_at(rsr(v, r, RoundMode.DOWN) + i64(z_out), 0, do_relu), out_dtype)


@kernel(static=("do_relu", "out_dtype"))
def addconst_int(
    x: Array, m: ArrayLike, r: ArrayLike, c: ArrayLike, z_in: ArrayLike = 0, *, do_relu: bool, out_dtype: str
) -> Array:
    """Compute y = sat(relu(RSR((q - z_in)*m + C, r, HALF_UP))), scalars m, r, C (numerics 9.3).

    AddConst of symmetric mode: z_out is not added.
    """
    v = (i64(x) - i64(z_in)) * i64(m) + i64(c)
    return saturate(_floor_at(rsr(v, i64(r), RoundMode.HALF_UP), 0, do_relu), out_dtype)


@kernel(static=("do_relu", "out_dtype", "is_reverse"))
def subconst_int(
    x: Array,
    m: ArrayLike,
    r: ArrayLike,
    c: ArrayLike,
    z_out: ArrayLike = 0,
    *,
    do_relu: bool,
    out_dtype: str,
    is_reverse: bool = False,
) -> Array:
    """Compute y = sat(max(RSR(relu(t), r, HALF_UP) + z_out, z_out)), t = q*m - C (numerics 9.3).

    SubConst; t = C - q*m with `is_reverse`.

    Both maxima only with `do_relu`. Scalars m, r, C; in asymmetric mode C contains z_in*m.
    """
    t = i64(x) * i64(m)
    t = i64(c) - t if is_reverse else t - i64(c)
    v = rsr(_floor_at(t, 0, do_relu), i64(r), RoundMode.HALF_UP) + i64(z_out)
    return saturate(_floor_at(v, z_out, do_relu), out_dtype)


def _const_int(x: Array, m: ArrayLike, r: ArrayLike, c: ArrayLike, pick: Callable[[Array, Array], Array]) -> Array:
    return rsr(pick(i64(x) * i64(m), i64(c)), i64(r), RoundMode.HALF_UP)


@kernel(static=("do_relu", "out_dtype"))
def maxconst_int(x: Array, m: ArrayLike, r: ArrayLike, c: ArrayLike, *, do_relu: bool = False, out_dtype: str) -> Array:
    """Compute y = sat(relu(RSR(max(q*m, C), r, HALF_UP))) (numerics 9.3).

    Asymmetric (DN-15): m = 1, r = 0, C = round(c/s) + z.
    """
    return saturate(_floor_at(_const_int(x, m, r, c, jnp.maximum), 0, do_relu), out_dtype)


@kernel(static=("do_relu", "out_dtype"))
def minconst_int(x: Array, m: ArrayLike, r: ArrayLike, c: ArrayLike, *, do_relu: bool = False, out_dtype: str) -> Array:
    """Compute y = sat(relu(RSR(min(q*m, C), r, HALF_UP))) (numerics 9.3).

    Asymmetric (DN-15): m = 1, r = 0, C = round(c/s) + z.
    """
    return saturate(_floor_at(_const_int(x, m, r, c, jnp.minimum), 0, do_relu), out_dtype)


@kernel(static=("out_dtype",))
def leaky_relu_int(x: Array, m: ArrayLike, r: ArrayLike, *, out_dtype: str) -> Array:
    """Compute y = sat(q >= 0 ? q : RSR(q*m, r, HALF_UP)), scalars m, r (numerics 9.0 LeakyRelu)."""
    q = i64(x)
    return saturate(jnp.where(q >= 0, q, multiply_shift(q, i64(m), i64(r))), out_dtype)


@kernel(static=("out_dtype",))
def prelu_int(x: Array, slope: Array, r: ArrayLike, *, out_dtype: str) -> Array:
    """Compute y = sat(q < 0 ? RSR(q*slope[c], r, HALF_UP) : q).

    x int8|uint8, slope int8 (C,) on axis 1, scalar r (numerics 9.0 PRelu).
    """
    q = i64(x)
    return saturate(jnp.where(q >= 0, q, multiply_shift(q, along_axis(i64(slope), q.ndim, 1), i64(r))), out_dtype)


@kernel(static=("out_dtype",))
def relu_int(x: Array, *, out_dtype: str | None = None) -> Array:
    """Compute y = sat(max(q, 0)); int8 input may have uint8 output of the same scale (numerics 9.7).

    Default: the dtype of x.
    """
    return saturate(jnp.maximum(x, jnp.asarray(0, x.dtype)), out_dtype or str(x.dtype))


@kernel(static=("out_dtype", "largest"))
def abs_int(x: Array, *, out_dtype: str | None = None, largest: int | None = None) -> Array:
    """Compute y = |q| in 8 bits: |-128| is -128 in int8, or at most `largest` (DN-14). Default output: x's dtype."""
    magnitude = jnp.abs(i64(x))
    return (magnitude if largest is None else jnp.minimum(magnitude, largest)).astype(out_dtype or x.dtype)


def _same_dtype(xs: Sequence[Array]) -> list[Array]:
    if len({x.dtype for x in xs}) != 1:
        raise ValueError(f"max and min of raw bytes need inputs of one dtype, got {[str(x.dtype) for x in xs]}")
    return broadcast_all([jnp.asarray(x) for x in xs])


def _raw(xs: Sequence[Array], pick: Callable[[Array, Array], Array], do_relu: bool) -> Array:
    first, *rest = _same_dtype(xs)
    for x in rest:
        first = pick(first, x)
    return jnp.maximum(first, jnp.asarray(0, first.dtype)) if do_relu else first


@kernel(static=("do_relu",))
def max_int(xs: Sequence[Array], *, do_relu: bool = False) -> Array:
    """Compute y = max of the raw bytes of all inputs, which share scale and dtype (numerics 9.0; 3.3 step 4)."""
    return _raw(xs, jnp.maximum, do_relu)


@kernel(static=("do_relu",))
def min_int(xs: Sequence[Array], *, do_relu: bool = False) -> Array:
    """Compute y = min of the raw bytes of all inputs, which share scale and dtype (numerics 9.0; 3.3 step 4)."""
    return _raw(xs, jnp.minimum, do_relu)
