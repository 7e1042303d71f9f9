"""Ops that move elements by one function of JAX or NumPy and change no value (numerics 9.0)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import is_traced, jax, jnp


def moved(move: Callable[[Any, Any], Any], x: Array) -> Array:
    """The elements of an array where `move` puts them: by NumPy on a CPU, where JAX would compile every new shape.

    move: a function of (numpy or jax.numpy, array) that changes no value; in a trace and on a GPU it is given JAX's.
    """
    return _moved(move, x, [x])


def joined(parts: Sequence[Array], axis: int) -> Array:
    """Arrays of one dtype one after the other along an axis, as by `moved`."""
    return _moved(lambda m, xs: m.concatenate(xs, axis=axis), list(parts), parts)


def _moved(move: Callable[[Any, Any], Any], given: Any, arrays: Sequence[Array]) -> Array:
    if jax.default_backend() != "cpu" or any(is_traced(x) for x in arrays):
        from jax import numpy as module  # `move` may be anyone's: it is given the module itself

        return move(module, given)
    found = move(np, jax.tree.map(np.asarray, given))
    with jax.enable_x64(True):
        return jax.device_put(found if found.flags.owndata else found.copy())  # a view may be of the caller's array


def pad(x: Array, widths: Sequence[tuple[int, int]], *, mode: str, value: float) -> Array:
    """Pad every axis by (before, after): mode "constant" (value, in the dtype of x), "reflect" or "edge"."""
    if mode == "constant":
        return jnp.pad(x, widths, constant_values=jnp.asarray(value, x.dtype))
    return jnp.pad(x, widths, mode=mode)
