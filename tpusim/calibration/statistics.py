"""Statistics of activations, one sample at a time: minimum, maximum and a histogram of absolute values per tensor.

Source: numerics.md 15.2 (upstream `cali_math.py`, `histogram` and `combine_histogram`). The arithmetic is kept
down to how bins grow (U-62), because the histogram decides thresholds and those decide compiled constants (DN-02).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.calibration.table import INFINITY_STAND_IN

Counts = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]

DEFAULT_BINS = 2048
PART = 1 << 16
"""Values that are counted at a time: they stay in the processor's cache."""
MAX_BINS = 8_000_000
"""When growing would need more bins, the histogram starts again with the current sample."""


@dataclass(frozen=True)
class Seen:
    """Properties of one tensor in one sample that do not depend on the width of a bin.

    minimum, maximum: infinities count as +-65000 (the meaning of `inf` in a table), NaN is ignored; inf and -inf
    without values. top: the largest finite magnitude.
    """

    minimum: float
    maximum: float
    nans: int
    infinities: int
    top: float


def look(values: NDArray[Any]) -> tuple[Seen, NDArray[np.float32]]:
    """(properties of the values, the finite values)."""
    values = values.astype(np.float32, copy=False).ravel()
    if not values.size:
        return Seen(np.inf, -np.inf, 0, 0, 0.0), values
    low, high = float(values.min()), float(values.max())  # NaN and infinities show here
    if np.isfinite(low) and np.isfinite(high):
        return Seen(low, high, 0, 0, max(-low, high)), values
    return _look_around(values)


def _look_around(values: NDArray[np.float32]) -> tuple[Seen, NDArray[np.float32]]:
    """`look` for values that are not all finite."""
    finite, nans = values[np.isfinite(values)], int(np.count_nonzero(np.isnan(values)))
    infinities = values.size - finite.size - nans
    stand_ins = np.copysign(np.float32(INFINITY_STAND_IN), values[np.isinf(values)])
    numbers = np.concatenate([finite, stand_ins])
    if not numbers.size:
        return Seen(np.inf, -np.inf, nans, infinities, 0.0), finite
    top = float(np.abs(finite).max()) if finite.size else 0.0
    return Seen(float(numbers.min()), float(numbers.max()), nans, infinities, top), finite


class TensorStatistics:
    """Statistics of the values of one tensor over samples.

    Values that are not finite are not in the histogram: a NaN is only counted (`nans`), an infinity counts as +-65000
    in minimum and maximum and is counted (`infinities`). `first` is the origin of the first sample with such a value.
    restarts: how often the histogram started again.
    """

    def __init__(self, bins: int = DEFAULT_BINS) -> None:
        self.bins = bins
        self.minimum = np.inf
        self.maximum = -np.inf
        self.samples = 0
        self.nans = 0
        self.infinities = 0
        self.first = ""
        self.restarts = 0
        self._histogram: Counts = np.zeros(bins, np.int64)
        self._top = 0.0

    @property
    def seen(self) -> bool:
        """Whether any value was added; an empty tensor has no extremes."""
        return self.minimum <= self.maximum

    @property
    def absmax(self) -> float:
        """The largest absolute value; 0 before the first value."""
        return max(abs(self.minimum), abs(self.maximum)) if self.seen else 0.0

    @property
    def histogram(self) -> Counts:
        """Counts of the absolute values that are not zero; bin i is centred on i * width."""
        return self._histogram

    @property
    def width(self) -> float:
        """The width of a bin; 0 while all values were zero."""
        return self._top / (len(self._histogram) - 1)

    def update(self, values: NDArray[Any], origin: str = "", *, counts: bool = True) -> None:
        """Add the values of one sample; `origin` names it. counts: also in the histogram."""
        seen, finite = look(values)
        self.widen(seen, origin)
        if counts:
            self.count(bin_counts(finite, self.width, len(self._histogram)))

    def widen(self, seen: Seen, origin: str = "") -> None:
        """Add the properties of one sample, without its counts."""
        self.samples += 1
        self.nans += seen.nans
        self.infinities += seen.infinities
        if (seen.nans or seen.infinities) and not self.first:
            self.first = origin or f"sample {self.samples}"
        self.minimum, self.maximum = min(self.minimum, seen.minimum), max(self.maximum, seen.maximum)
        self._grow_to(seen.top)

    def count(self, counts: Counts) -> None:
        """Add counts of at most as many bins as the histogram has."""
        self._histogram[: len(counts)] += counts

    def numbers(self) -> list[float]:
        """The state except the counts and `first`, for `restore`."""
        return [self.minimum, self.maximum, self.samples, self.nans, self.infinities, self._top]

    def restore(self, numbers: Sequence[float], first: str, counts: Counts) -> None:
        """Restore the state from `numbers`, `first` and `histogram` of another instance."""
        self.minimum, self.maximum, samples, nans, infinities, self._top = map(float, numbers)
        self.samples, self.nans, self.infinities = int(samples), int(nans), int(infinities)
        self.first, self._histogram = first, counts.astype(np.int64)

    def _grow_to(self, top: float) -> None:
        """Make the bins reach `top`.

        U-62: the number of new bins follows from top / bins, not from the width top / (bins - 1), and the
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
            self.restarts += 1
            return
        self._top += int(added) * step
        self._histogram = np.pad(self._histogram, (0, int(added)))


class ActivationStatistics:
    """The statistics of all tensors of a model, by name."""

    def __init__(self, bins: int = DEFAULT_BINS) -> None:
        self.bins = bins
        self.tensors: dict[str, TensorStatistics] = {}

    def update(self, activations: Mapping[str, NDArray[Any]], origin: str = "", *, counts: bool = True) -> None:
        """Add the tensors of one sample; `origin` names it. counts: also in the histograms."""
        for name, values in activations.items():
            self.tensors.setdefault(name, TensorStatistics(self.bins)).update(values, origin, counts=counts)

    def widen(self, seen: Mapping[str, Seen], origin: str = "") -> None:
        """Add the properties of the tensors of one sample, without their counts."""
        for name, found in seen.items():
            self.tensors.setdefault(name, TensorStatistics(self.bins)).widen(found, origin)

    def state(self) -> Arrays:
        """The complete state as arrays."""
        found = self.tensors.values()
        counts = pack({name: known.histogram for name, known in self.tensors.items()}, np.int64)
        return {
            "numbers": np.array([known.numbers() for known in found], np.float64).reshape(-1, 6),
            "firsts": np.array([known.first for known in found], "U"),
            **counts,
        }

    def restore(self, state: Arrays) -> None:
        """Restore the statistics from `state`, so that a run can be resumed."""
        counts = unpack(state)
        for (name, histogram), numbers, first in zip(counts.items(), state["numbers"], state["firsts"], strict=True):
            self.tensors[name] = TensorStatistics(self.bins)
            self.tensors[name].restore(numbers.tolist(), str(first), histogram)

    def notes(self) -> list[str]:
        """One line per tensor whose values were not all finite."""
        return [
            f"'{name}' has {found.nans} NaN (ignored) and {found.infinities} infinite values (taken as 65000), "
            f"first in {found.first}"
            for name, found in self.tensors.items()
            if found.nans or found.infinities
        ]


def bin_counts(finite: NDArray[np.float32], width: float, bins: int) -> Counts:
    """Counts of floor(magnitude / width + 0.5) of the values that are not zero, computed in f32.

    A value is beyond the last bin only by rounding; then it counts in the last bin.
    """
    step = max(np.float32(width), np.finfo(np.float32).smallest_subnormal)
    counts = np.zeros(bins, np.int64)
    for start in range(0, finite.size, PART):
        part = np.abs(finite[start : start + PART])
        zeros = part.size - np.count_nonzero(part.view(np.int32))  # the same bits, counted six times as fast
        np.divide(part, step, out=part)
        np.add(part, np.float32(0.5), out=part)
        found = np.bincount(part.astype(np.int32))  # the conversion rounds down, as no value is negative
        counts[: len(found)] += found[:bins]
        counts[-1] += found[bins:].sum()
        counts[0] -= zeros
    return counts


def pack(arrays: Mapping[str, NDArray[Any]], dtype: Any) -> Arrays:
    """1-D arrays by name as three arrays: names, lengths, all values."""
    values = [np.asarray(array, dtype) for array in arrays.values()]
    return {
        "names": np.array(list(arrays), "U"),
        "lengths": np.array([len(array) for array in values], np.int64),
        "values": np.concatenate([np.zeros(0, dtype), *values]),
    }


def unpack(packed: Arrays) -> dict[str, NDArray[Any]]:
    """The arrays by name that `pack` was given."""
    parts = np.split(packed["values"], np.cumsum(packed["lengths"])[:-1]) if len(packed["names"]) else []
    return {str(name): part for name, part in zip(packed["names"], parts, strict=True)}
