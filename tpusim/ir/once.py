"""Functions of a network's constants, computed once for many lowerings that differ in the ops that run in float.

Searches lower one network a hundred times; its filters are quantised, or rounded, in the same two ways every time.
Inside `remembering`, functions marked with `once` give what they gave for the same arguments before.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

Memory = dict[object, tuple[object, Any]]
"""Results by function and arguments, with the arguments, so that no other array takes the address of one of them."""
SMALL = 1 << 14
"""Bytes up to which arrays are the same if their contents are; larger ones, if they lie in the same place."""
P = ParamSpec("P")
T = TypeVar("T")
_memory: ContextVar[Memory | None] = ContextVar("memory", default=None)


@contextmanager
def remembering(memory: Memory) -> Generator[None]:
    """Functions marked with `once` look into this memory first, and add to it what they compute."""
    token = _memory.set(memory)
    try:
        yield
    finally:
        _memory.reset(token)


def once(function: Callable[P, T]) -> Callable[P, T]:
    """A function of hashable values and of arrays that nobody writes to, whose results nobody writes to either."""

    @wraps(function)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> T:
        memory = _memory.get()
        if memory is None:
            return function(*args, **kwargs)
        key = (function, *map(_known, args), *((name, _known(kwargs[name])) for name in sorted(kwargs)))
        if key not in memory:
            found = function(*args, **kwargs)
            _freeze(found)
            memory[key] = (args, kwargs), found
        return memory[key][1]

    return remembered


def _known(value: object) -> object:
    return _array_key(cast("np.ndarray", value)) if isinstance(value, np.ndarray) else value


def _array_key(array: np.ndarray) -> object:
    same = array.tobytes() if array.nbytes <= SMALL else (array.strides, array.ctypes.data)
    return array.shape, array.dtype.str, same


def _freeze(value: object) -> None:
    if isinstance(value, np.ndarray):
        cast("np.ndarray", value).flags.writeable = False
