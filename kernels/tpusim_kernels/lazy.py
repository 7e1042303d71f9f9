"""JAX, imported when it is first used.

A compiler reads the tables and multipliers of this package, and computes no kernel: it should not wait for JAX, which
takes as long to import as everything else. Modules take `jax`, `jnp` and `lax` from here, and use them inside functions
only.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax import lax
else:

    class _Lazy:
        """A module that is imported when one of its attributes is first asked for."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module(self._name), name)

    jax, jnp, lax = map(_Lazy, ("jax", "jax.numpy", "jax.lax"))


def is_traced(x: Any) -> bool:
    """Whether `x` is an array inside a trace; nothing is where JAX is not loaded."""
    core = sys.modules.get("jax.core")
    return core is not None and isinstance(x, core.Tracer)


__all__ = ["is_traced", "jax", "jnp", "lax"]
