"""The state of calibration after some samples: statistics of all tensors, merged from one or several workers.

In one process `update` adds each sample at once. With workers (`units.py`) the width of a histogram's bins at a sample
is known only after all earlier samples, because it follows the largest value so far. So samples are measured twice.
First `looked` of every sample, merged in order by `widen`, determines the bins at each sample. Then `counted` counts in
these bins; counts add in any order. The result is the same to the last bit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.calibration import estimates
from tpusim.calibration.estimates import Estimates, Found
from tpusim.calibration.statistics import ActivationStatistics, Counts, Seen, bin_counts, look, pack, unpack
from tpusim.calibration.table import Entry, as_printed
from tpusim.calibration.thresholds import thresholds
from tpusim.ir.module import Model

Tensors = Mapping[str, NDArray[Any]]
Looks = tuple[Mapping[str, Seen], Found | None]
"""Results of one sample without bins: the extremes of every tensor, and the method's estimates."""
Bins = Mapping[str, tuple[float, int]]
"""(width of a bin, number of bins) of the tensors at one sample; not of tensors whose counts are dropped later."""


class Measured:
    """The statistics and estimates of all tensors that a method needs.

    bins: the initial number of bins; samples: the number of all samples, for the methods of `estimates`.
    """

    def __init__(self, model: Model, method: str, bins: int, samples: int) -> None:
        self.statistics = ActivationStatistics(bins)
        self._estimates: Estimates | None = None
        self._method = method
        if method in estimates.METHODS:
            self._method, self._estimates = "max", Estimates(model, method, samples)

    @property
    def counts(self) -> bool:
        """Whether the method reads histograms; `max` needs only the extremes."""
        return self._method != "max"

    def update(self, tensors: Tensors, origin: str) -> None:
        """Add one sample's tensors; `origin` names the sample in messages."""
        self.statistics.update(tensors, origin, counts=self.counts)
        if self._estimates is not None:
            self._estimates.update(tensors)

    def entries(self) -> dict[str, Entry]:
        """The method's thresholds by tensor name, in the order of a table."""
        seen = self.statistics.tensors
        found = {name: thresholds(seen[name], self._method, name=name) for name in seen}
        if self._estimates is not None:
            found = self._estimates.improved(found, self.statistics)
        return {name: as_printed(entry) for name, entry in found.items()}

    # ------------------------------------------------------------------------------------------------ samples elsewhere

    def looked(self, tensors: Tensors) -> Looks:
        """The results of one sample without bins; the state does not change."""
        seen = {name: look(values)[0] for name, values in tensors.items()}
        return seen, self._estimates.found(tensors) if self._estimates is not None else None

    def widen(self, looks: Looks, origin: str) -> None:
        """Add the result of `looked` for the next sample."""
        seen, found = looks
        self.statistics.widen(seen, origin)
        if self._estimates is not None and found is not None:
            self._estimates.merge(found)

    def count(self, counts: Mapping[str, Counts]) -> None:
        """Add the result of `counted` for samples that `widen` has already added."""
        for name, found in counts.items():
            self.statistics.tensors[name].count(found)

    # ------------------------------------------------------------------------------------------------------- as a file

    def state(self) -> dict[str, NDArray[Any]]:
        """The complete state as arrays by name."""
        parts = {"statistics": self.statistics.state()}
        if self._estimates is not None:
            sums, ends = self._estimates.state()
            parts.update(sums=pack(sums, np.float64), ends=pack(ends, np.float32))
        return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replace the present state by the given one."""

        def part(wanted: str) -> dict[str, NDArray[Any]]:
            return {n.partition("/")[2]: array for n, array in state.items() if n.startswith(f"{wanted}/")}

        self.statistics.restore(part("statistics"))
        if self._estimates is not None:
            self._estimates.merge((unpack(part("sums")), unpack(part("ends"))))


def counted(samples: Sequence[tuple[Tensors, Bins]]) -> dict[str, Counts]:
    """The sum of the histograms of some samples, each counted in its bins."""
    total: dict[str, Counts] = {}
    for tensors, bins in samples:
        for name, (width, number) in bins.items():
            counts = bin_counts(look(tensors[name])[1], width, number)
            before = total.get(name, np.zeros(0, np.int64))
            total[name] = np.pad(before, (0, max(number - len(before), 0)))
            total[name][:number] += counts
    return total
