"""Ops that move elements by one JAX function and change no value (numerics 9.0)."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from tpusim_kernels.base import Array


def pad(x: Array, widths: Sequence[tuple[int, int]], *, mode: str, value: float) -> Array:
    """Pad every axis by (before, after): mode "constant" (value, in the dtype of x), "reflect" or "edge"."""
    if mode == "constant":
        return jnp.pad(x, widths, constant_values=jnp.asarray(value, x.dtype))
    return jnp.pad(x, widths, mode=mode)
