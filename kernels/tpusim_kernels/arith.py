"""Float element-wise arithmetic (numerics 9.0, 9.3, 9.5). The integer forms are in `arith_int` and re-exported here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpusim_kernels.arith_int import (
    abs_int,
    add_int,
    addconst_int,
    leaky_relu_int,
    max_int,
    maxconst_int,
    min_int,
    minconst_int,
    mul_int,
    mulconst_int,
    mulshift_int,
    prelu_int,
    relu_int,
    requant_int,
    scale_int,
    sub_int,
    subconst_int,
)
from tpusim_kernels.base import Array, ArrayLike, along_axis, broadcast_all, divide, f32, kernel, pin
from tpusim_kernels.lazy import jnp

__all__ = [
    "abs_int",
    "add_float",
    "add_int",
    "addconst_float",
    "addconst_int",
    "clip_float",
    "div_float",
    "leaky_relu_float",
    "leaky_relu_int",
    "max_float",
    "max_int",
    "maxconst_int",
    "min_float",
    "min_int",
    "minconst_int",
    "mul_float",
    "mul_int",
    "mulconst_float",
    "mulconst_int",
    "mulshift_int",
    "prelu_float",
    "prelu_int",
    "relu_float",
    "relu_int",
    "requant_int",
    "scale_float",
    "scale_int",
    "sub_float",
    "sub_int",
    "subconst_float",
    "subconst_int",
]


def _relu(x: Array, do_relu: bool) -> Array:
    return jnp.maximum(x, jnp.float32(0)) if do_relu else x


def _fold(xs: Sequence[Array], combine: Callable[[Array, Array], Array]) -> Array:
    """combine(...combine(x0, x1)..., xn) of f32 operands with NumPy broadcasting, left to right."""
    first, *rest = broadcast_all([f32(x) for x in xs])
    for x in rest:
        first = combine(first, x)
    return first


def _weighted(x: Array, c: float) -> Array:
    return x if c == 1.0 else -x if c == -1.0 else x * jnp.float32(c)


@kernel(static=("coeff", "do_relu"))
def add_float(xs: Sequence[Array], *, coeff: tuple[float, ...] | None = None, do_relu: bool) -> Array:
    """Compute y = relu(sum coeff_i * x_i) in f32, left to right, NumPy broadcasting (numerics 9.5).

    `coeff` None means all 1.
    """
    coeff = coeff or (1.0,) * len(xs)
    if len(coeff) != len(xs):
        raise ValueError(f"add_float needs one coefficient per input, got {len(coeff)} for {len(xs)}")
    return _relu(_fold([_weighted(f32(x), c) for x, c in zip(xs, coeff, strict=True)], jnp.add), do_relu)


@kernel(static=("do_relu",))
def sub_float(xs: Sequence[Array], *, do_relu: bool) -> Array:
    """Compute y = relu(x0 - x1 - ...) in f32, NumPy broadcasting (numerics 9.5)."""
    return _relu(_fold(xs, jnp.subtract), do_relu)


@kernel(static=("do_relu",))
def mul_float(xs: Sequence[Array], *, do_relu: bool) -> Array:
    """Compute y = relu(x0 * x1 * ...) in f32, NumPy broadcasting (numerics 9.5)."""
    return _relu(_fold(xs, jnp.multiply), do_relu)


@kernel(static=("do_relu",))
def div_float(xs: Sequence[Array], *, do_relu: bool) -> Array:
    """Compute y = relu(x0 / x1) in f32, NumPy broadcasting (numerics 9.5)."""
    return _relu(_fold(xs, divide), do_relu)


@kernel()
def max_float(xs: Sequence[Array]) -> Array:
    """Compute y = max of all inputs in f32, NumPy broadcasting (numerics 9.0)."""
    return _fold(xs, jnp.maximum)


@kernel()
def min_float(xs: Sequence[Array]) -> Array:
    """Compute y = min of all inputs in f32, NumPy broadcasting (numerics 9.0)."""
    return _fold(xs, jnp.minimum)


@kernel(static=("do_relu",))
def scale_float(x: Array, s: Array, b: Array | None, *, do_relu: bool) -> Array:
    """Compute y = relu(x * s[c] + b[c]) in f32, channels on axis 1; s, b (C,) or (1,), b may be None (numerics 9.4).

    The product is rounded before the sum (U-36, tests/test_as_upstream.py).
    """
    x = f32(x)
    y = pin(x * along_axis(f32(s), x.ndim, 1))
    return _relu(y if b is None else y + along_axis(f32(b), x.ndim, 1), do_relu)


@kernel(static=("do_relu",))
def mulconst_float(x: Array, c: ArrayLike, *, do_relu: bool = False) -> Array:
    """Compute y = relu(x * f32(c)) in f32, c a scalar (numerics 9.0)."""
    return _relu(f32(x) * f32(c), do_relu)


@kernel(static=("do_relu",))
def addconst_float(x: Array, c: ArrayLike, *, do_relu: bool = False) -> Array:
    """Compute y = relu(x + f32(c)) in f32, c a scalar (numerics 9.0)."""
    return _relu(f32(x) + f32(c), do_relu)


@kernel(static=("do_relu", "is_reverse"))
def subconst_float(x: Array, c: ArrayLike, *, do_relu: bool = False, is_reverse: bool = False) -> Array:
    """Compute y = relu(x - f32(c)) in f32, or relu(f32(c) - x) with `is_reverse`, c a scalar (numerics 9.3)."""
    return _relu(f32(c) - f32(x) if is_reverse else f32(x) - f32(c), do_relu)


@kernel()
def clip_float(x: Array, lo: ArrayLike, hi: ArrayLike) -> Array:
    """Compute y = min(max(x, lo), hi) in f32, lo and hi scalars. Source: ONNX Clip."""
    return jnp.minimum(jnp.maximum(f32(x), f32(lo)), f32(hi))


@kernel(static=("limit",))
def relu_float(x: Array, *, limit: float = -1.0) -> Array:
    """Compute y = max(x, 0), then min(y, limit) when limit > 0; f32 (numerics 9.7)."""
    y = jnp.maximum(f32(x), jnp.float32(0))
    return jnp.minimum(y, jnp.float32(limit)) if limit > 0 else y


@kernel()
def leaky_relu_float(x: Array, alpha: ArrayLike) -> Array:
    """Compute y = x > 0 ? x : alpha*x in f32, alpha a scalar (numerics 9.7)."""
    x = f32(x)
    return jnp.where(x > 0, x, x * f32(alpha))


@kernel()
def prelu_float(x: Array, slope: Array) -> Array:
    """Compute y = x > 0 ? x : slope[c]*x in f32, channels on axis 1, slope (C,) or (1,) (numerics 9.0)."""
    x = f32(x)
    return jnp.where(x > 0, x, x * along_axis(f32(slope), x.ndim, 1))
