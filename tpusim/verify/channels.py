"""Channels of a quantised tensor compared one by one: a verdict of the whole tensor hides all but the largest."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from tpusim.verify.similarity import Tensor

LEAST_VALUES: Final = 4
"""In a channel of fewer values (such as the classes after a softmax) a zero is an ordinary small number."""

MOST_SLICES: Final = 4096
"""An axis with more slices is not an axis of channels."""


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor, those of axis 1; a vector is one.

    dead: the number of channels that are zero here and not in float. least_cosine: the cosine of the least similar
    channel, worst_channel, among those that are not zero in float; 1 if all are. saturated: the share of values at an
    end of the integer range, 0 for floats. values: the number of values in each channel.
    """

    count: int
    dead: int
    least_cosine: float
    worst_channel: int
    saturated: float
    values: int

    @property
    def lost(self) -> int:
        """The number of dead channels; 0 if a channel has too few values to tell."""
        return self.dead if self.values >= LEAST_VALUES else 0

    def to_json(self) -> dict[str, Any]:
        """The object `channels` of a tensor in `report.json`; a number that is not finite is null."""
        return {**asdict(self), "least_cosine": self.least_cosine if math.isfinite(self.least_cosine) else None}

    def __str__(self) -> str:
        return f"{self.dead} of {self.count} channels dead, {self.saturated:.1%} at the ends"


def channels_of(stored: Tensor, real: Tensor, wanted: Tensor) -> Channels:
    """The channels of a quantised tensor compared with float. stored: its integers; real: dequantised; wanted: float.

    `wanted` may have another shape with as many elements.
    """
    found, floats = _by_channel(real), _by_channel(wanted.reshape(real.shape))
    lives = np.any(floats, axis=1)
    dead = lives & ~np.any(found, axis=1)
    cosines = np.where(lives, _cosines(found, floats), 1.0)
    worst = int(np.argmin(np.where(np.isnan(cosines), -np.inf, cosines))) if cosines.size else 0
    least = float(cosines[worst]) if cosines.size else 1.0
    count, values = found.shape
    return Channels(count, int(np.count_nonzero(dead)), least, worst, saturated_share(stored), values)


def slices_of(found: Tensor, wanted: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """For each axis after the first: the slices of both tensors, as f64 rows, that are not zero in `wanted`.

    Transformers have their channels along the last axis, images along axis 1. `found` may be of another shape with as
    many elements. An axis of fewer than two slices, or of slices of fewer than LEAST_VALUES, is left out.
    """
    found = found.reshape(wanted.shape)
    for axis in range(1, wanted.ndim):
        count = wanted.shape[axis]
        if 2 <= count <= MOST_SLICES and wanted.size >= LEAST_VALUES * count:
            rows = [np.moveaxis(array, axis, 0).reshape(count, -1).astype(np.float64) for array in (found, wanted)]
            lives = np.any(rows[1], axis=1)
            if np.any(lives):
                yield rows[0][lives], rows[1][lives]


def euclidean_by_channel(found: Tensor, wanted: Tensor) -> float:
    """The mean euclidean similarity of the slices along one axis, for the axis with the least mean (`slices_of`).

    1 - |f - w| / |(f + w) / 2| of each slice, at least 0, in f64; 1 if no axis has slices.
    """
    return min((_mean_euclidean(*rows) for rows in slices_of(found, wanted)), default=1.0)


def _mean_euclidean(found: Tensor, wanted: Tensor) -> float:
    sizes = np.linalg.norm((found + wanted) / 2, axis=1) + 1e-7
    alike: Tensor = np.maximum(1 - np.linalg.norm(found - wanted, axis=1) / sizes, 0.0)
    return float(alike.mean())


def saturated_share(stored: Tensor) -> float:
    """The share of an integer tensor at an end of its range, 0 for floats; an unsigned 0 does not count as an end."""
    if not np.issubdtype(stored.dtype, np.integer):
        return 0.0
    limits = np.iinfo(stored.dtype)
    ends = (stored >= limits.max) | ((stored <= limits.min + 1) & (limits.min < 0))
    return float(np.count_nonzero(ends)) / max(stored.size, 1)


def _by_channel(tensor: Tensor) -> Tensor:
    """(channels, values of each) in f64."""
    moved = np.moveaxis(tensor, 1, 0) if tensor.ndim > 1 else tensor.reshape(1, -1)
    return moved.reshape(moved.shape[0], math.prod(moved.shape[1:])).astype(np.float64)


def _cosines(found: Tensor, wanted: Tensor) -> Tensor:
    """The cosine of each channel; 0 where either side is zero everywhere."""
    with np.errstate(all="ignore"):
        sizes = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        return np.where(sizes == 0, 0.0, np.sum(found * wanted, axis=1) / sizes)
