"""FN grid_sample: an image at computed places, in float64."""

from itertools import product

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.region import View

Neighbours = list[tuple[np.ndarray, np.ndarray]]
"""(index, weight) of each neighbour that an interpolation reads."""


def grid_sample(function: fn.GridSample, operands: tuple[np.ndarray, ...], output: View) -> np.ndarray:
    """One neighbour after the other; the last axis has the first coordinate."""
    image, grid = (x.astype(np.float64) for x in operands)
    extents = image.shape[2:]
    axes = [_neighbours(function, grid[..., -1 - k], size) for k, size in enumerate(extents)]
    batch = np.expand_dims(np.arange(len(image)), tuple(range(1, grid.ndim - 1)))
    total = np.zeros((*grid.shape[:-1], image.shape[1]))
    channels_last = np.moveaxis(image, 1, -1)
    for chosen in product(*axes):
        weight = np.ones(grid.shape[:-1])
        for _, w in chosen:
            weight = weight * w
        total += channels_last[(batch, *(index for index, _ in chosen))] * weight[..., None]
    return np.moveaxis(total, -1, 1).astype(np.float32)


def _neighbours(function: fn.GridSample, g: np.ndarray, size: int) -> Neighbours:
    ends = (0.0, size - 1.0) if function.align_corners else (-0.5, size - 0.5)
    at = (g + 1) / 2 * (size - 1) if function.align_corners else ((g + 1) * size - 1) / 2
    if function.mode == "nearest":
        at = np.rint(at)
    beyond = (at < ends[0]) | (at > ends[1])
    if function.padding == "border":
        at = np.where(beyond, at.clip(0, size - 1), at)
    elif function.padding == "reflection":
        at = _reflect(at, *ends)
    first = np.floor(at)
    weights = _weights(at - first, function.mode)
    found: Neighbours = []
    for number, weight in enumerate(weights, -1 if function.mode == "cubic" else 0):
        index = first + number
        if function.padding == "zeros":
            weight = weight * ((index >= 0) & (index < size))
        elif function.padding == "reflection":
            index = np.trunc(_reflect(index, *ends))
        found.append((index.clip(0, size - 1).astype(np.int64), weight))
    return found


def _weights(f: np.ndarray, mode: str) -> list[np.ndarray]:
    if mode == "nearest":
        return [np.ones_like(f)]
    if mode == "linear":
        return [1 - f, f]
    a = -0.75
    distances = [f + 1, f, 1 - f, 2 - f]
    return [
        ((a + 2) * t - (a + 3)) * t * t + 1 if near else ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        for t, near in zip(distances, (False, True, True, False), strict=True)
    ]


def _reflect(at: np.ndarray, low: float, high: float) -> np.ndarray:
    if high == low:
        return np.full_like(at, low)
    folded = np.mod(at - low, 2 * (high - low))
    inside = low + np.minimum(folded, 2 * (high - low) - folded)
    return np.where((at < low) | (at > high), inside, at)
