"""Macro functions of positions and of pairs: gathering, scattering, sorting, running sums, powers, remainders."""

from typing import Any

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa import functions as fn
from tpusim.isa.region import View
from tpusim.isa.yuv import YuvPlanes

Operands = tuple[np.ndarray, ...]


def _places(indices: np.ndarray, extent: int) -> np.ndarray:
    """Indices inside an axis; negative ones count from the end. Raises SimulationError for others."""
    whole = indices.astype(np.int64)
    if whole.size and not (-extent <= whole.min() and whole.max() < extent):
        raise SimulationError(f"indices in [{-extent}, {extent}) are required, got {whole.min()} to {whole.max()}")
    return np.where(whole < 0, whole + extent, whole)


def gather(function: fn.Gather, operands: Operands, output: View) -> np.ndarray:
    """The gathered elements, in the result's shape."""
    data, indices = operands
    places = _places(indices, data.shape[function.axis])
    return np.take(data, places, axis=function.axis).reshape(output.shape)


def channel_tables(function: fn.ChannelTables, operands: Operands, output: View) -> np.ndarray:
    """The entry of a byte in the table of its channel."""
    data, tables = operands
    by_channel = tables.reshape(data.shape[1], -1)
    places: list[Any] = list(np.indices(data.shape, sparse=True))
    return by_channel[places[1], data.view(np.uint8)]


def yuv_to_bgr(function: fn.YuvToBgr, operands: Operands, output: View) -> np.ndarray:
    """Sums of brightness and colours in bf16, rounded half to even."""
    planes = YuvPlanes(function.format, function.height, function.width, function.row_bytes, function.channel_align)
    y, u, v = (part.astype(np.float32) for part in planes.parts(operands[0].reshape(-1, planes.total).view(np.uint8)))
    u, v = (part.repeat(2, axis=1).repeat(2, axis=2) - np.float32(128) for part in (u, v))
    light = _bf16((y - np.float32(16)) * np.float32(1.1640625))
    green = _bf16(_bf16(light - v * np.float32(0.8125)) - u * np.float32(0.390625))
    blue, red = _bf16(light + u * np.float32(2.015625)), _bf16(light + v * np.float32(1.59375))
    return np.clip(np.rint(np.stack([blue, green, red], axis=1)), 0, 255).astype(np.uint8)


def _bf16(values: np.ndarray) -> np.ndarray:
    """Values in f32, rounded half to even to the upper half of their bits."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)


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
    """By a stable sort; the largest come from the end of the sorted, reversed axis."""
    (x,), axis = operands, function.axis
    order = np.argsort(x, axis=axis, kind="stable")
    if function.largest:
        backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(backwards, axis)
    places = np.take(order, range(function.k), axis=axis)
    return np.take_along_axis(x, places, axis) if function.result == "values" else places.astype(np.int32)


def reverse(function: fn.Reverse, operands: Operands, output: View) -> np.ndarray:
    """The last element of the axis first."""
    return np.flip(operands[0], function.axis)


def nms(function: fn.Nms, operands: Operands, output: View) -> np.ndarray:
    """Class by class, box by box, in f32."""
    scores, boxes = operands
    rows = [
        (batch, number, box)
        for batch in range(scores.shape[0])
        for number in range(scores.shape[1])
        for box in _kept(function, scores[batch, number], _sides(boxes[batch], center=function.center))
    ]
    found = np.full(output.shape, -1, np.int32)
    found[: len(rows)] = np.array(rows, np.int32).reshape(-1, 3)
    return found


def _sides(boxes: np.ndarray, *, center: bool) -> np.ndarray:
    """(boxes, 4): lowest row and column, highest row and column."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if center:
        half = second / np.float32(2)
        return np.concatenate([first - half, first + half], axis=1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


def _kept(function: fn.Nms, scores: np.ndarray, sides: np.ndarray) -> list[int]:
    """The boxes of one class that no box kept before suppresses."""
    counted = ~np.isnan(scores) if function.score is None else scores > np.float32(function.score)
    found: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(found) < function.kept and counted[box] and not _covered(function, sides[box], sides[found]):
            found.append(int(box))
    return found


def _covered(function: fn.Nms, side: np.ndarray, others: np.ndarray) -> bool:
    """Whether the overlap with one of the others is above the limit."""
    extents = np.minimum(side[2:], others[:, 2:]) - np.maximum(side[:2], others[:, :2])
    common, area, areas = (x[..., 0] * x[..., 1] for x in (extents, side[2:] - side[:2], others[:, 2:] - others[:, :2]))
    proper = np.all(extents > 0, axis=1) & (area > 0) & (areas > 0)
    with np.errstate(all="ignore"):  # boxes without area, which are not proper
        return bool(np.any(proper & (common / (area + areas - common) > np.float32(function.iou))))


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
