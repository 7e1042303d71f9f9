"""Arrays of a `jax.vmap` that is not traced: a function of them can be called once on the arrays of the whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tpusim_kernels.lazy import is_traced, jax

Axis = int | None
"""The axis of an array that counts samples; None: the samples share the array."""
Whole = Callable[[Sequence[Any], Sequence[Axis]], Sequence[Any]]
"""From arrays of a whole batch, and their axes, to results with the samples along axis 0."""


def is_batched(x: Any) -> bool:
    """Whether `x` is one sample of a concrete array, in a `jax.vmap` that no other transform of JAX is around."""
    return is_traced(x) and type(x) is _kind() and not is_traced(getattr(x, "val", x))


def on_whole_batch(function: Whole, arrays: Sequence[Any]) -> list[Any]:
    """Results for one sample, of a function that is called on the whole batch; arrays: each `is_batched`."""
    return _whole().bind(*arrays, function=function)


@functools.cache
def _kind() -> type:
    """The class of one sample of a batch, which JAX gives no public name."""
    kinds: list[type] = []

    def seen(x: Any) -> Any:
        kinds.append(type(x))
        return x

    cast("Any", jax).vmap(seen)(np.zeros(1, np.int32))
    return kinds[0]


def _applied(arrays: Sequence[Any], axes: Sequence[Axis], *, function: Whole) -> tuple[Sequence[Any], list[int]]:
    results = function(arrays, axes)
    return results, [0] * len(results)


@functools.cache
def _whole() -> Any:
    """The primitive that a batch of arrays meets as a whole."""
    from jax.extend.core import Primitive
    from jax.interpreters import batching

    whole = Primitive("whole_batch")
    whole.multiple_results = True
    cast("Any", batching).primitive_batchers[whole] = _applied
    return whole
