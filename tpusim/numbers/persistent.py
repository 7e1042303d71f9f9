"""Persistent tensors: the part of such a tensor that given values fill."""

from collections.abc import Collection
from typing import TypeAlias

import numpy as np

from tpusim.errors import ConfigError, SimulationError
from tpusim.numbers.border import converts, is_float, is_integer

Tensors: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]
"""Tensor -> its type and shape."""
Signature: TypeAlias = tuple[Tensors, Tensors]
"""Inputs and results of a net."""


def require_persistent(name: str, known: Collection[str]) -> None:
    """Raise ConfigError for a name that no persistent tensor has."""
    if name not in known:
        raise ConfigError(f"a persistent tensor of {', '.join(known) or 'none'} is required, got '{name}'")


def numbers_of(what: str, given: object) -> np.ndarray:
    """An array of real numbers. Raises ConfigError for anything else; `what` names it in the message."""
    try:
        found = np.asarray(given)
    except ValueError as error:
        raise ConfigError(f"{what}: an array is required, got rows of different lengths") from error
    if not (is_float(found.dtype) or is_integer(found.dtype)):
        raise ConfigError(f"{what}: real numbers are required, got {found.dtype}")
    return found


def stored_numbers(what: str, given: object, dtype: np.dtype) -> np.ndarray:
    """An array of numbers in the type of a tensor. Raises ConfigError for numbers that the type does not have."""
    found = numbers_of(what, given)
    if not converts(found, dtype):
        raise ConfigError(f"{what}: numbers that {dtype} has are required, got {found.dtype} with other numbers")
    return found.astype(dtype)


def part_of(name: str, shape: tuple[int, ...], given: tuple[int, ...], at: int, axis: int) -> tuple[slice, ...]:
    """The part of a tensor that values of a shape fill from position `at` of an axis on.

    Raises SimulationError if they do not fit.
    """
    if not 0 <= axis < len(shape):
        raise SimulationError(f"persistent tensor '{name}': an axis of {shape} is required, got {axis}")
    wanted = tuple(given[axis] if i == axis and len(given) > axis else size for i, size in enumerate(shape))
    if given != wanted:
        text = ", ".join("n" if i == axis else str(size) for i, size in enumerate(shape))
        raise SimulationError(f"persistent tensor '{name}': values ({text}) are required, got {given}")
    stop = at + given[axis]
    if at < 0 or stop > shape[axis]:
        raise SimulationError(
            f"persistent tensor '{name}': has {shape[axis]} positions, values for [{at}, {stop}) go past its end; "
            "clear it, or compile the nets with a longer history"
        )
    return tuple(slice(at, stop) if i == axis else slice(None) for i in range(len(shape)))
