"""Statistics of activations, one sample at a time: minimum, maximum and a histogram of absolute values per tensor.

Source: numerics.md 15.2 (upstream `cali_math.py`, `histogram` and `combine_histogram`). Upstream's arithmetic is kept
down to its quirk on growth, because the histogram decides thresholds and those decide compiled constants (DN-02).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.calibration.table import INFINITY_STAND_IN

Counts = NDArray[np.int64]

DEFAULT_BINS = 2048
MAX_BINS = 8_000_000
"""When growing would need more bins, the histogram starts again with the current sample."""


class TensorStatistics:
    """What is known of the values of one tensor after some samples.

    Values that are not finite are not in the histogram: a NaN is only counted (`nans`), an infinity counts as +-65000
    in minimum and maximum (what a table's `inf` means) and is counted (`infinities`). `first` is the origin of the
    first sample that had one.
    """

    def __init__(self, bins: int = DEFAULT_BINS) -> None:
        self.bins = bins
        self.minimum = np.inf
        self.maximum = -np.inf
        self.samples = 0
        self.nans = 0
        self.infinities = 0
        self.first = ""
        self._histogram: Counts = np.zeros(bins, np.int64)
        self._top = 0.0

    @property
    def seen(self) -> bool:
        """Whether there was any value."""
        return self.minimum <= self.maximum

    @property
    def absmax(self) -> float:
        """The largest absolute value; 0 before the first one."""
        return max(abs(self.minimum), abs(self.maximum)) if self.seen else 0.0

    @property
    def histogram(self) -> Counts:
        """Counts of the absolute values that are not zero; bin i is centred on i * width."""
        return self._histogram

    @property
    def width(self) -> float:
        """The width of a bin; 0 while all values were zero."""
        return self._top / (len(self._histogram) - 1)

    def update(self, values: NDArray[Any], origin: str = "") -> None:
        """Take in the values of one more sample; `origin` names it."""
        self.samples += 1
        finite = self._update_range(values.astype(np.float32, copy=False).ravel())
        if finite.size < values.size and not self.first:
            self.first = origin or f"sample {self.samples}"
        magnitudes = np.abs(finite)
        magnitudes = magnitudes[magnitudes != 0]
        if magnitudes.size == 0:
            return
        self._grow_to(float(magnitudes.max()))
        self._histogram += _bin_counts(magnitudes, self.width, len(self._histogram))

    def _update_range(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Widen minimum and maximum, count what is not finite, and return the finite values."""
        finite = values[np.isfinite(values)]
        if finite.size < values.size:
            nans = int(np.count_nonzero(np.isnan(values)))
            self.nans += nans
            self.infinities += values.size - finite.size - nans
            infinite = values[np.isinf(values)]
            values = np.concatenate([finite, np.copysign(np.float32(INFINITY_STAND_IN), infinite)])
        if values.size:
            self.minimum = min(self.minimum, float(values.min()))
            self.maximum = max(self.maximum, float(values.max()))
        return finite

    def _grow_to(self, top: float) -> None:
        """Make the bins reach `top`.

        Upstream's quirk: the number of new bins follows from top / bins, not from the width top / (bins - 1), and the
        old counts keep their indices although the width shrinks by about 1 / bins of itself.
        """
        if top <= self._top:
            return
        if self._top == 0.0:
            self._top = top
            return
        step = self._top / len(self._histogram)
        added = (top - self._top) // step + 1
        if added + len(self._histogram) > MAX_BINS:
            self._histogram, self._top = np.zeros(self.bins, np.int64), top
            return
        self._top += int(added) * step
        self._histogram = np.pad(self._histogram, (0, int(added)))


class ActivationStatistics:
    """The statistics of all tensors of a model, by name."""

    def __init__(self, bins: int = DEFAULT_BINS) -> None:
        self.bins = bins
        self.tensors: dict[str, TensorStatistics] = {}

    def update(self, activations: Mapping[str, NDArray[Any]], origin: str = "") -> None:
        """Take in the tensors of one sample; `origin` names it."""
        for name, values in activations.items():
            self.tensors.setdefault(name, TensorStatistics(self.bins)).update(values, origin)

    def notes(self) -> list[str]:
        """One line per tensor whose values were not all finite."""
        return [
            f"'{name}' has {found.nans} NaN (ignored) and {found.infinities} infinite values (taken as 65000), "
            f"first in {found.first}"
            for name, found in self.tensors.items()
            if found.nans or found.infinities
        ]


def _bin_counts(magnitudes: NDArray[np.float32], width: float, bins: int) -> Counts:
    """Counts of floor(magnitude / width + 0.5), computed in f32."""
    step = max(np.float32(width), np.finfo(np.float32).smallest_subnormal)
    indices = np.floor(magnitudes / step + np.float32(0.5)).astype(np.int64)
    return np.bincount(np.minimum(indices, bins - 1), minlength=bins)
