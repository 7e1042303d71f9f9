"""Powers and remainders of two tensors."""

from __future__ import annotations

from tpusim_kernels.base import Array, broadcast_all, kernel
from tpusim_kernels.lazy import jnp


@kernel()
def power(x: Array, exponent: Array) -> Array:
    """Compute y = x ** exponent in double, rounded once to f32; NumPy broadcasting."""
    a, b = broadcast_all([x.astype(jnp.float64), exponent.astype(jnp.float64)])
    return jnp.power(a, b).astype(jnp.float32)


@kernel(static=("fmod",))
def remainder(x: Array, divisor: Array, *, fmod: bool) -> Array:
    """Compute the remainder of x / divisor with the sign of the divisor, or of x (`fmod`), in double; broadcasting."""
    a, b = broadcast_all([x.astype(jnp.float64), divisor.astype(jnp.float64)])
    return (jnp.fmod if fmod else jnp.mod)(a, b).astype(jnp.float32)


__all__ = ["power", "remainder"]
