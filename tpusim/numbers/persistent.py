"""Persistent tensors: the part of such a tensor that given values fill."""

from typing import TypeAlias

from tpusim.errors import SimulationError

Tensors: TypeAlias = dict[str, tuple[str, tuple[int, ...]]]
"""Tensor -> its type and shape."""
Signature: TypeAlias = tuple[Tensors, Tensors]
"""Inputs and results of a net."""


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
