"""Macro functions of positions and of pairs: gathering, scattering, sorting, running sums, powers, remainders."""

from typing import Any

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa import functions as fn
from tpusim.isa.region import View

Operands = tuple[np.ndarray, ...]


def _places(indices: np.ndarray, extent: int) -> np.ndarray:
    """Indices inside an axis; negative ones count from the end. Raises SimulationError for others."""
    whole = indices.astype(np.int64)
    if whole.size and not (-extent <= whole.min() and whole.max() < extent):
        raise SimulationError(f"indices in [{-extent}, {extent}) are required, got {whole.min()} to {whole.max()}")
    return np.where(whole < 0, whole + extent, whole)


def gather(function: fn.Gather, operands: Operands, output: View) -> np.ndarray:
    """In the result's shape."""
    data, indices = operands
    places = _places(indices, data.shape[function.axis])
    return np.take(data, places, axis=function.axis).reshape(output.shape)


def channel_tables(function: fn.ChannelTables, operands: Operands, output: View) -> np.ndarray:
    """The entry of a byte in the table of its channel."""
    data, tables = operands
    by_channel = tables.reshape(data.shape[1], -1)
    places: list[Any] = list(np.indices(data.shape, sparse=True))
    return by_channel[places[1], data.view(np.uint8)]


def gather_elements(function: fn.GatherElements, operands: Operands, output: View) -> np.ndarray:
    """One element per index."""
    data, indices = operands
    at: list[Any] = list(np.indices(indices.shape, sparse=True))
    at[function.axis] = _places(indices, data.shape[function.axis])
    return data[tuple(at)]


def scatter_elements(function: fn.ScatterElements, operands: Operands, output: View) -> np.ndarray:
    """One update after the other."""
    data, indices, updates = operands
    at: list[Any] = list(np.indices(indices.shape, sparse=True))
    at[function.axis] = _places(indices, data.shape[function.axis])
    found = data.copy()
    if function.reduction == "none":
        found[tuple(at)] = updates
        return found
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[function.reduction]
    combine.at(found, tuple(at), updates)
    return found


def topk(function: fn.TopK, operands: Operands, output: View) -> np.ndarray:
    """By a stable sort; from the end, of the reversed axis, for the largest."""
    (x,), axis = operands, function.axis
    order = np.argsort(x, axis=axis, kind="stable")
    if function.largest:
        backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(backwards, axis)
    return np.take(order, range(function.k), axis=axis).astype(np.int32)


def cumulate(function: fn.Cumulate, operands: Operands, output: View) -> np.ndarray:
    """Compute it in float64 and round once, to the type of the result."""
    wide, axis = operands[0].astype(np.float64), function.axis
    wide = np.flip(wide, axis) if function.reverse else wide
    whole = (np.cumsum if function.mode == "sum" else np.cumprod)(wide, axis=axis)
    if function.exclusive:
        first = np.full_like(np.take(whole, [0], axis=axis), 0.0 if function.mode == "sum" else 1.0)
        whole = np.concatenate([first, np.take(whole, range(whole.shape[axis] - 1), axis=axis)], axis)
    return (np.flip(whole, axis) if function.reverse else whole).astype(np.float32)


def power(function: fn.Power, operands: Operands, output: View) -> np.ndarray:
    """Compute it in float64 and round once, to the type of the result."""
    with np.errstate(all="ignore"):  # roots of negative numbers are NaN, powers may overflow
        return np.power(*(x.astype(np.float64) for x in operands)).astype(np.float32)


def remainder(function: fn.Remainder, operands: Operands, output: View) -> np.ndarray:
    """Compute it in float64 and round once, to the type of the result."""
    with np.errstate(all="ignore"):  # a divisor of 0 gives NaN
        return (np.fmod if function.fmod else np.mod)(*(x.astype(np.float64) for x in operands)).astype(np.float32)
