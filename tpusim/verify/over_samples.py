"""Similarities of two levels over several samples: least and median for every tensor, and the worst sample.

A verdict on one sample says little about the others. Samples come one after the other and none is kept: three numbers
remain for each tensor and sample.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any, Final

from tpusim.verify.compare import Comparison, Tolerance, compare_tensors
from tpusim.verify.lost import Parts, Watch
from tpusim.verify.similarity import Tensor, measured

SMALL: Final = 1 / 32
"""A sample whose float tensor is smaller than this share of the median norm (a black image) is not judged."""


@dataclass(frozen=True)
class OverSamples:
    """One tensor over samples. norms: of the reference; failed: the samples on which a result is not within tolerance.

    A sample is known by its number, from 0 in the order in which they came.
    """

    name: str
    cosines: tuple[float, ...]
    euclideans: tuple[float, ...]
    norms: tuple[float, ...]
    is_result: bool = False
    failed: tuple[int, ...] = ()

    @cached_property
    def judged(self) -> tuple[int, ...]:
        """The samples that count: all but those whose reference is too small to tell similarity from rounding.

        One with infinite numbers, or with what is no number, counts, and does not say what is small.
        """
        least = SMALL * median([norm for norm in self.norms if math.isfinite(norm)] or [0.0])
        return tuple(i for i, norm in enumerate(self.norms) if not norm < least)

    @property
    def worst(self) -> int:
        """The sample with the least cosine, then euclidean similarity."""
        return min(self.judged, key=lambda i: (_low(self.cosines[i]), _low(self.euclideans[i])))

    @property
    def least_cosine(self) -> float:
        """The cosine of the worst sample."""
        return self.cosines[self.worst]

    @property
    def least_euclidean(self) -> float:
        """The least euclidean similarity of the samples that count."""
        return min((self.euclideans[i] for i in self.judged), key=_low)

    @property
    def median_cosine(self) -> float:
        """The median over the samples that count."""
        return median(_low(self.cosines[i]) for i in self.judged)

    @property
    def median_euclidean(self) -> float:
        """The median over the samples that count."""
        return median(_low(self.euclideans[i]) for i in self.judged)

    @property
    def passed(self) -> bool:
        """Whether no sample that counts failed."""
        return not set(self.failed) & set(self.judged)

    def to_json(self) -> dict[str, Any]:
        """One element of `over_samples` in `report.json`; a number that is not finite is null."""
        content: dict[str, Any] = {
            "name": self.name,
            "is_result": self.is_result,
            "passed": self.passed,
            "worst_sample": self.worst,
            "least_cosine": _finite(self.least_cosine),
            "median_cosine": _finite(self.median_cosine),
            "least_euclidean": _finite(self.least_euclidean),
            "median_euclidean": _finite(self.median_euclidean),
            "not_judged": sorted(set(range(len(self.norms))) - set(self.judged)),
        }
        return {**content, "cosines": [_finite(c) for c in self.cosines]} if self.is_result else content


@dataclass
class _Column:
    cosines: list[float] = field(default_factory=list[float])
    euclideans: list[float] = field(default_factory=list[float])
    norms: list[float] = field(default_factory=list[float])
    failed: list[int] = field(default_factory=list[int])


class Collected:
    """Collects the similarities of two levels, sample after sample; every sample has the same tensors.

    tolerance: required of results on each sample that counts. results: their names. parts: the joined parts of results,
    by name; if given, dead parts of results are reported.
    """

    def __init__(self, tolerance: Tolerance, results: Sequence[str], parts: Mapping[str, Parts] | None = None) -> None:
        self._tolerance, self._results, self._parts = tolerance, frozenset(results), parts
        self._columns: dict[str, _Column] = {}
        self._watches: dict[str, Watch] = {}
        self._count = 0

    def add(self, targets: Mapping[str, Tensor], references: Mapping[str, Tensor]) -> None:
        """Add a sample: real values by tensor name."""
        for name, reference in references.items():
            target = targets.get(name)
            if target is not None and target.size == reference.size:
                self._measure(name, target, reference)
        self._count += 1

    def _measure(self, name: str, target: Tensor, reference: Tensor) -> None:
        column = self._columns.setdefault(name, _Column())
        cosine, euclidean, norm = measured(target, reference)
        if name in self._results or not (math.isfinite(cosine) and math.isfinite(euclidean)):
            found = compare_tensors(target, reference, self._tolerance, name=name)
            cosine, euclidean = found.cosine, found.euclidean
            if name in self._results and not found.passed:
                column.failed.append(self._count)
        column.cosines.append(cosine)
        column.euclideans.append(euclidean)
        column.norms.append(norm)
        if self._parts is not None and name in self._results:
            watch = self._watches.setdefault(name, Watch(name, self._parts.get(name)))
            watch.add(target.reshape(reference.shape), reference)

    def judged(self, first: Comparison) -> Comparison:
        """The comparison of the first sample, completed with the similarities of all samples, the first included."""
        found = tuple(self._over(name, column) for name, column in self._columns.items())
        lost = tuple(line for watch in self._watches.values() for line in watch.lost())
        return replace(first, over_samples=found, samples=self._count, lost=lost)

    def _over(self, name: str, column: _Column) -> OverSamples:
        cosines, euclideans, norms = (tuple(v) for v in (column.cosines, column.euclideans, column.norms))
        return OverSamples(name, cosines, euclideans, norms, name in self._results, tuple(column.failed))


def _low(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
