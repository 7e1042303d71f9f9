"""Statistics of the magnitudes of a float network's tensors over many samples, without keeping the samples.

Magnitudes are counted in bins of a sixteenth of an octave, so that another sample costs time but no memory.
"""

from dataclasses import dataclass, field

import numpy as np

SHIFT = 19
"""Bits of an f32 below its exponent and the first four of its fraction."""
BINS = 1 << (31 - SHIFT)
CHUNK = 1 << 18
"""Values that are counted at a time, so that intermediate arrays fit the caches."""


@dataclass
class Magnitudes:
    """The magnitudes of one tensor: the number of values, and their counts by bin.

    channels: by axis, the largest magnitude of each channel: along axis 1, and for rows of tokens along axis 2 too.
    reach: the largest magnitude of all values. Values that are not finite count as zeros.
    """

    count: int = 0
    reach: float = 0.0
    bins: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    channels: dict[int, np.ndarray] = field(default_factory=dict[int, np.ndarray])

    def add(self, tensor: np.ndarray) -> None:
        """Add a sample of the tensor."""
        values = np.ascontiguousarray(tensor, np.float32)
        if not np.isfinite(values).all():
            values = np.where(np.isfinite(values), values, np.float32(0))
        if not values.size:
            return
        sizes = np.abs(values)
        for chunk in np.split(sizes.reshape(-1), range(CHUNK, sizes.size, CHUNK)):
            self.bins += np.bincount(chunk.view(np.uint32) >> SHIFT, minlength=BINS)
        self.count += values.size
        self.reach = max(self.reach, float(sizes.max()))
        for axis in range(1, 3 if values.ndim == 3 else min(values.ndim, 2)):
            channels = sizes.max(axis=tuple(other for other in range(values.ndim) if other != axis))
            known = self.channels.get(axis)
            self.channels[axis] = channels if known is None else np.maximum(known, channels)

    def above(self, limit: float) -> float:
        """The share of values of a larger magnitude, interpolated linearly in the limit's bin."""
        at = int(np.float32(limit).view(np.uint32)) >> SHIFT
        low, high = _edges(at)
        part = (min(high, self.reach) - limit) / (min(high, self.reach) - low) if limit < self.reach else 0.0
        return (float(self.bins[at + 1 :].sum()) + max(part, 0.0) * float(self.bins[at])) / max(self.count, 1)

    def bulk(self, share: float) -> tuple[float, float]:
        """(the magnitude below the widest gap above `share` of the values, the largest); (0, 0) for fewer than two.

        Zeros are ignored.
        """
        occupied = np.flatnonzero(self.bins[1:]) + 1
        counts = self.bins[occupied]
        if counts.sum() < 2:
            return 0.0, 0.0
        above = counts.sum() - np.cumsum(counts)
        ends = [i for i in np.flatnonzero(above > 0) if above[i] <= max(share * counts.sum(), 1)]
        gaps = [_edges(occupied[i + 1])[0] / _edges(occupied[i])[1] for i in ends]
        if not gaps:
            return self.reach, self.reach
        return _edges(occupied[ends[int(np.argmax(gaps))]])[1], self.reach


def _edges(at: int) -> tuple[float, float]:
    """The lower and upper end of a bin."""
    low, high = np.array([at, at + 1], np.uint32) << np.uint32(SHIFT)
    return float(low.view(np.float32)), float(high.view(np.float32))
