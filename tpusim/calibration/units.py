"""Calibration by several workers: units of samples are measured twice and merged, with the same result to the last bit.

The samples are sent with their unit; the module is in a folder that all workers can read, and every worker loads it
once. `measured.py` explains the two rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from tpusim.calibration.measured import Bins, Looks, Measured, counted
from tpusim.calibration.samples import origin_of
from tpusim.calibration.statistics import Counts
from tpusim.calibration.tuning import Search, Tuner, searches, widest
from tpusim.errors import CalibrationError, option
from tpusim.host.workers import Crew
from tpusim.inference import Gradual
from tpusim.ir.module import Model, load_model, save_one_file
from tpusim.ops import context

UNIT = 8
"""Samples that one worker measures at a time."""
SEARCHES = 4
"""Searches of tuning in a unit."""
Sample = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """The common data of all units of a calibration. path: the module's file; the others as in `Measured`."""

    path: Path
    method: str
    bins: int
    samples: int


@lru_cache(maxsize=1)
def _loaded(job: Job) -> tuple[Model, Gradual]:
    if not job.path.is_file():
        raise CalibrationError(
            f"calibration: a worker cannot see {job.path}; give {option('share')} a folder that all workers have"
        )
    model = load_model(job.path, context())
    return model, Gradual(model, "all")


def look_at(job: Job, samples: Sequence[Sample]) -> list[Looks]:
    """The first round: the results of every sample without bins."""
    model, graph = _loaded(job)
    measured = Measured(model, job.method, job.bins, job.samples)
    return [measured.looked(tensors) for _, tensors in graph.each(samples)]


def count_in(job: Job, samples: Sequence[Sample], bins: Sequence[Bins]) -> dict[str, Counts]:
    """The second round: histograms in the bins of each sample."""
    _, graph = _loaded(job)
    return counted([(tensors, known) for (_, tensors), known in zip(graph.each(samples), bins, strict=True)])


class _Histories:
    """The bins of every tensor at every sample; counts before a restart of its histogram are dropped."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self._bins: list[Bins] = []
        self._since: dict[str, int] = {}
        self._restarts: dict[str, int] = {}

    def add(self) -> None:
        """Record the present bins, after one more sample."""
        found: dict[str, tuple[float, int]] = {}
        for name, known in self._measured.statistics.tensors.items():
            found[name] = known.width, len(known.histogram)
            if known.restarts != self._restarts.get(name, 0):
                self._since[name], self._restarts[name] = len(self._bins), known.restarts
        self._bins.append(found)

    def of(self, start: int, stop: int) -> list[Bins]:
        """The bins of samples `start` to `stop`, without tensors whose counts were dropped later."""
        return [
            {name: bins for name, bins in self._bins[i].items() if i >= self._since.get(name, 0)}
            for i in range(start, min(stop, len(self._bins)))
        ]


def tune_in(job: Job, samples: Sequence[Sample], wanted: Sequence[tuple[Search, float, float]]) -> list[float]:
    """Run searches of tuning, each with the measured threshold and the absolute maximum; samples: those that tune."""
    tuner = _tuner(job, samples)
    return [tuner.best(op, threshold, absmax) for (op, _), threshold, absmax in wanted]


_tuners: dict[Job, Tuner] = {}


def _tuner(job: Job, samples: Sequence[Sample]) -> Tuner:
    """The tuner of this process: the samples that tune are the same for all units of a job."""
    if job not in _tuners:
        _tuners.clear()
        _tuners[job] = Tuner(_loaded(job)[1], samples)
    return _tuners[job]


class Shared:
    """A calibration by workers. crew: the workers; the other arguments as in `Measured`."""

    def __init__(self, crew: Crew, model: Model, method: str, bins: int, samples: int) -> None:
        path = crew.folder / "module.mlir"
        save_one_file(model, path)
        self._crew, self._model, self._job = crew, model, Job(path, method, bins, samples)

    def measure(self, measured: Measured, samples: Iterable[Sample], progress: Callable[[int], None]) -> None:
        """Measure all samples, which can be iterated more than once, for `measured`.

        progress: called with the number of samples done in the second round.
        """
        histories, origins, number = _Histories(measured), _origins(samples), 0
        for looks in self._crew.results(look_at, ((self._job, unit) for unit in _units(samples))):
            for look in looks:
                number += 1
                measured.widen(look, next(origins))
                histories.add()
            if not measured.counts:
                progress(number)
        if measured.counts:
            bins = histories.of
            again = ((self._job, u, bins(i * UNIT, (i + 1) * UNIT)) for i, u in enumerate(_units(samples)))
            for done, counts in enumerate(self._crew.results(count_in, again), 1):
                measured.count(counts)
                progress(min(done * UNIT, number))

    def tuned(
        self, samples: Sequence[Sample], measured: Mapping[str, float], absmax: Mapping[str, float]
    ) -> dict[str, float]:
        """The tuned thresholds, as from `tuned_thresholds`."""
        wanted = searches(self._model)
        asked = [(search, measured[search[1]], absmax[search[1]]) for search in wanted]
        units = ((self._job, samples, asked[i : i + SEARCHES]) for i in range(0, len(asked), SEARCHES))
        found = [best for some in self._crew.results(tune_in, units) for best in some]
        return widest(measured, zip(wanted, found, strict=True))


def _units(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    left = iter(samples)
    while unit := list(islice(left, UNIT)):
        yield unit


def _origins(samples: Iterable[Sample]) -> Iterator[str]:
    return (origin_of(sample, number) for number, sample in enumerate(samples, 1))
