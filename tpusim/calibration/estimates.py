"""Thresholds without a histogram: `percentile9999`, `mse`, `aciq_gauss` and `aciq_laplace`, by tensor and sample.

Source: numerics.md 15.2, compared with `run_calibration.py --cali_method`. Arithmetic by U-64: sums and means of a
tensor in f32, everything else in f64.

* percentile9999: percentiles at both ends of the values, at a level that rises from op to op.
* mse, aciq_gauss, aciq_laplace: the mean of one threshold per sample, at most the absolute maximum. The network's
  inputs and its last results (`_kept_whole`) keep the absolute maximum.
"""

import math
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.calibration.statistics import ActivationStatistics
from tpusim.calibration.table import Entry
from tpusim.calibration.thresholds import ALMOST_ZERO
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Weighs
from tpusim.ops.structure import TopInput

F32 = NDArray[np.float32]

LEVEL, HIGHEST_LEVEL = 99.99, 99.999999
"""Percent of the values below the first op's threshold, and the limit for the last op."""
LAST = 5
"""At most so many of the last tensors keep their absolute maximum."""
ITERATIONS, NEAR = 20, 1e-6
SPARE = 8
"""So many times the needed values are kept before the rest is dropped, because dropping needs a sort."""
GAUSS, LAPLACE = 3.92403337, 9.89675982
"""Best clipping of 8 bits, in standard deviations of a normal, in mean deviations of a Laplace distribution."""


def mse_threshold(values: F32) -> float:
    """The clipping of least square error by Newton's iteration (OCTAV); 1 if all values are zero.

    Values that are never negative have half the step, so that a quarter of the square error of rounding counts.
    """
    magnitudes = np.abs(values)
    if not np.count_nonzero(magnitudes):
        return 1.0
    rounding = 1 / 4**8 / 3 / (4 if abs(values.min()) < NEAR else 1)
    found = float(magnitudes.sum()) / np.count_nonzero(magnitudes)
    for _ in range(ITERATIONS):
        clipped = magnitudes[magnitudes > np.float32(found)]
        better = float(clipped.sum()) / (rounding * (values.size - clipped.size) + clipped.size)
        if abs(better - found) < NEAR:
            break
        found = better
    return found


def aciq_gauss_threshold(values: F32) -> float:
    """The threshold from the range of a tensor, assuming normal values; NaN for a tensor of one element."""
    if values.size < 2:
        return math.nan
    share = 0.5 * 0.35 * (1 + (math.pi * math.log(4)) ** 0.5)
    return GAUSS * (float(values.max() - values.min()) * share / (2 * math.log(values.size)) ** 0.5)


def aciq_laplace_threshold(values: F32) -> float:
    """The threshold from the mean deviation of a tensor, assuming a Laplace distribution."""
    return LAPLACE * float(np.mean(np.abs(values - np.mean(values))))


PER_SAMPLE: dict[str, Callable[[F32], float]] = {
    "mse": mse_threshold, "aciq_gauss": aciq_gauss_threshold, "aciq_laplace": aciq_laplace_threshold,
}  # fmt: skip
METHODS = ("percentile9999", *PER_SAMPLE)


def _of_sample(method: str, values: F32) -> float:
    """A method's threshold; infinite if its sums overflow f32, so that the absolute maximum is used."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = PER_SAMPLE[method](values)
    return math.inf if math.isnan(found) and values.size > 1 else found


class Ends:
    """The lowest and the highest values of a tensor: from every sample as many as the level needs in total.

    level: percent. samples: the number of all samples; size: elements of the tensor.
    """

    def __init__(self, level: float, samples: int, size: int) -> None:
        self._count = int(samples * size * (1 - level / 100)) + 1
        place = level / 100 * (samples * size - 1)
        self._ratio = place - int(place)
        self.found = np.zeros(0, np.float32)

    def update(self, values: F32) -> None:
        """Add one sample. `values` are 1-D."""
        self.merge(self.of(values))

    def of(self, values: F32) -> F32:
        """The lowest and the highest values of one sample, 1-D; with few values some occur in both."""
        values = np.sort(values)
        return np.concatenate([values[: self._count], values[-self._count :]])

    def merge(self, found: F32) -> None:
        """Add results of `of` for more samples, and drop values that cannot be among the ends of all samples."""
        self.found = np.concatenate([self.found, found])
        if self.found.size > SPARE * self._count:
            self.found = self.of(self.found)

    def limits(self) -> tuple[float, float]:
        """The lowest and the highest value at the level."""
        values = np.sort(self.found.astype(np.float64))
        return self._between(values[: self._count][::-1]), self._between(values[-self._count :])

    def magnitude(self) -> float:
        """The absolute value at the level."""
        return self._between(np.sort(np.abs(self.found.astype(np.float64)))[-self._count :])

    def _between(self, values: NDArray[np.float64]) -> float:
        """The interpolated value at the level, between the value at it and the next one outward."""
        return float(values[0] + self._ratio * (values[1] - values[0]) if self._count > 1 else values[0])


Found = tuple[Mapping[str, NDArray[Any]], Mapping[str, F32]]
"""Thresholds of single samples, and ends, by tensor."""


class Estimates:
    """The thresholds of all tensors of a module by one of `METHODS`.

    samples: the number of all samples. Values that are not finite are left out.
    """

    def __init__(self, model: Model, method: str, samples: int) -> None:
        self._method, self._samples = method, samples
        ops = [op for op in model.ops if isinstance(op, TopOp)]
        self._made = {value_name(v): op for op in ops for v in op.results}
        step = (HIGHEST_LEVEL - LEVEL) / len(ops)
        number = {op: i for i, op in enumerate(ops)}
        self._sizes = {value_name(v): prod(shape_of(v)) for op in ops for v in op.results}
        self._levels = {name: LEVEL + number[op] * step for name, op in self._made.items()}
        self._last = list(self._made)[: -LAST - 1 : -1]
        self._ends: dict[str, Ends] = {}
        self._sums: dict[str, list[float]] = {name: [] for name in self._made}

    def update(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Add the tensors of one sample."""
        self.merge(self.found(tensors))

    def found(self, tensors: Mapping[str, NDArray[Any]]) -> "Found":
        """The thresholds and ends from the tensors of one sample."""
        sums, ends = dict[str, F32](), dict[str, F32]()
        for name, found in tensors.items():
            values = found.astype(np.float32, copy=False).ravel()
            values = values[np.isfinite(values)]
            if values.size and (self._method == "percentile9999" or name in self._last):
                ends[name] = self._ends_of(name).of(values)
            if values.size and self._method in PER_SAMPLE:
                sums[name] = np.array([_of_sample(self._method, values)])
        return sums, ends

    def merge(self, found: "Found") -> None:
        """Add results of `found` for the next samples."""
        sums, ends = found
        for name, values in sums.items():
            self._sums[name] += values.tolist()
        for name, values in ends.items():
            self._ends_of(name).merge(values)

    def state(self) -> "Found":
        """The complete state; merging it into a new object restores it."""
        sums = {name: np.array(values, np.float64) for name, values in self._sums.items() if values}
        return sums, {name: ends.found for name, ends in self._ends.items()}

    def _ends_of(self, name: str) -> Ends:
        if name not in self._ends:
            self._ends[name] = Ends(self._levels[name], self._samples, self._sizes[name])
        return self._ends[name]

    def improved(self, entries: Mapping[str, Entry], statistics: ActivationStatistics) -> dict[str, Entry]:
        """The entries with this method's thresholds.

        entries: those of the method "max", for every tensor with a finite value.
        """
        whole = () if self._method == "percentile9999" else self._kept_whole(entries)
        return {
            name: entry if name in whole or statistics.tensors[name].infinities else self._entry(name, entry)
            for name, entry in entries.items()
        }

    def _entry(self, name: str, entry: Entry) -> Entry:
        """The entry of one tensor; `entry` has its absolute maximum."""
        if self._method == "percentile9999":
            low, high = self._ends[name].limits()
            threshold = max(abs(low), abs(high))
            low, high = max(low, entry.minimum), min(high, entry.maximum)
            return Entry(_positive(min(threshold, entry.threshold)), low, high)
        if isinstance(self._made[name], TopInput):
            return entry
        found = self._sums[name]
        return Entry(_positive(min(sum(found) / len(found), entry.threshold)), entry.minimum, entry.maximum)

    def _kept_whole(self, entries: Mapping[str, Entry]) -> list[str]:
        """The last tensors, back to and including the nearest product, as long as percentiles clip nothing."""
        found: list[str] = []
        for name in self._last:
            if name not in self._ends or self._ends[name].magnitude() != entries[name].threshold:
                break
            found.append(name)
            if isinstance(self._made[name], Weighs):
                break
        return found


def _positive(threshold: float) -> float:
    """The threshold as a table has it (U-64): NaN and almost zero become the least threshold."""
    return threshold if threshold > ALMOST_ZERO else ALMOST_ZERO
