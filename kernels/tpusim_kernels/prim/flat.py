"""Elementwise kernels outside a trace: one executable for all shapes of about one size.

A network has tensors of dozens of shapes, and each would need a compilation. So the elements are copied into a row that
is padded to a power of two; a large tensor takes several rows. The compiled function is the same and treats every
element alone, so the bits are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, cast

import numpy as np

from tpusim_kernels.base import Array
from tpusim_kernels.lazy import is_traced, jax

P = ParamSpec("P")
LEAST, MOST = 1 << 12, 1 << 20
"""The shortest and the longest row, in elements; a longer tensor takes several rows."""
Elementwise = Callable[Concatenate[Array, P], Array]


def in_rows(function: Elementwise[P]) -> Elementwise[P]:
    """The same kernel, applied in rows: elementwise in its first argument, of any shape; all others are scalars.

    Outside a trace and on a CPU it runs on rows, which NumPy fills and cuts without a compilation. A NumPy argument
    gives a NumPy result, so that a large weight exists twice in memory and not four times.
    """

    @functools.wraps(function)
    def call(x: Array, *args: P.args, **kwargs: P.kwargs) -> Array:
        if not _in_rows(x, *args):
            return function(x, *args, **kwargs)
        array = np.asarray(x)
        flat = array.reshape(-1)
        row = np.zeros(_filled(min(flat.size, MOST)), array.dtype)
        out: np.ndarray | None = None
        for start in range(0, max(flat.size, 1), MOST):
            part = flat[start : start + MOST]
            row[: part.size] = part
            done = np.asarray(function(cast("Array", row[: _filled(part.size)]), *args, **kwargs))
            out = np.empty(flat.size, done.dtype) if out is None else out
            out[start : start + part.size] = done[: part.size]
        found = cast("np.ndarray", out).reshape(array.shape)
        return cast("Array", found) if isinstance(x, np.ndarray) else jax.device_put(found)

    return call


def _in_rows(*arguments: Any) -> bool:
    traced = any(is_traced(value) for value in arguments)
    scalars = all(np.ndim(value) == 0 for value in arguments[1:])
    return not traced and scalars and jax.default_backend() == "cpu"


def _filled(size: int) -> int:
    return max(1 << (size - 1).bit_length(), LEAST) if size else LEAST
