"""Comparisons, selection and the index of an extreme (numerics 9.0, rows Compare, CompareConst and Where)."""

from __future__ import annotations

from collections.abc import Callable

from tpusim_kernels.base import Array, ArrayLike, broadcast_all, kernel
from tpusim_kernels.lazy import jnp, lax

RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "Equal": lambda a, b: a == b,
    "NotEqual": lambda a, b: a != b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "And": lambda a, b: (a != 0) & (b != 0),
    "Or": lambda a, b: (a != 0) | (b != 0),
    "Xor": lambda a, b: (a != 0) ^ (b != 0),
}


@kernel(static=("mode", "out_dtype"))
def compare(a: Array, b: Array, *, mode: str, out_dtype: str) -> Array:
    """Compute y = 1 where `a` mode `b` holds, else 0; NumPy broadcasting (numerics 9.0).

    a, b: the stored integers of one scale and zero point, or f32. Integers are compared as int32, so that signed and
    unsigned bytes mix; And, Or and Xor take a value other than 0 as true. With NaN only NotEqual is true.
    """
    if mode not in RELATIONS:
        raise ValueError(f"a mode of {', '.join(RELATIONS)} is required, got {mode!r}")
    a, b = broadcast_all([_widened(a), _widened(b)])
    return RELATIONS[mode](a, b).astype(out_dtype)


def compare_const(x: Array, number: ArrayLike, *, mode: str, inversed: bool, out_dtype: str) -> Array:
    """Compute y = 1 where `x` mode `number` holds (`number` mode `x` if inversed), else 0 (numerics 9.0).

    number: the integer sat(round(c/s + z)) for stored integers x, else c as f32.
    """
    other = jnp.full((1,) * x.ndim, number, jnp.float32 if jnp.issubdtype(x.dtype, jnp.floating) else jnp.int32)
    return compare(*((other, x) if inversed else (x, other)), mode=mode, out_dtype=out_dtype)


@kernel()
def where(condition: Array, on_true: Array, on_false: Array) -> Array:
    """Compute y = on_true where condition is not 0, else on_false; NumPy broadcasting, equal dtypes (numerics 9.0).

    Nothing is rounded: the bytes (floats) of the branch are the result.
    """
    condition, on_true, on_false = broadcast_all([condition, on_true, on_false])
    return jnp.where(condition != 0, on_true, on_false)


@kernel(static=("axis", "mode", "select_last"))
def arg(x: Array, *, axis: int, mode: str, select_last: bool) -> Array:
    """Compute the index (int32) of the largest (mode ArgMax) or smallest (ArgMin) element along `axis`.

    x: f32 or integers; of equal elements the first index, or the last with select_last. The axis stays with length 1.
    """
    if mode not in ("ArgMax", "ArgMin"):
        raise ValueError(f"mode ArgMax or ArgMin is required, got {mode!r}")
    best = lax.argmax if mode == "ArgMax" else lax.argmin
    # int32 throughout: JAX lowers an index of 64 bits inside a derivative as one of 32, which it then refuses.
    index = jnp.expand_dims(best(jnp.flip(x, axis) if select_last else x, axis, jnp.int32), axis)
    return x.shape[axis] - 1 - index if select_last else index


def _widened(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.int32)
