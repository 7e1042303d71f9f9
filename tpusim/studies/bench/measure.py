"""Contestants take turns; medians, spread, cost of preparation and the peak of memory."""

import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

try:
    import resource
except ImportError:  # Windows
    resource = None

from tpusim.errors import TpusimError
from tpusim.studies.bench.contestants import Call, Contestant


@dataclass(frozen=True)
class Measurement:
    """What was measured of a contestant; with `error` nothing was.

    milliseconds: median of a run of all samples, by the clock. fastest, slowest: of the runs. cpu_milliseconds: median
    of processor time. prepare_seconds: until the first run was done (reading, compiling), processor time.
    peak_mib: the most memory of the process so far, so that a rise is this contestant's; 0: the system does not say
    it. ratio: of the medians to the first contestant's. images_per_second: by the median.
    """

    name: str
    milliseconds: float = 0.0
    fastest: float = 0.0
    slowest: float = 0.0
    cpu_milliseconds: float = 0.0
    prepare_seconds: float = 0.0
    peak_mib: float = 0.0
    ratio: float = 0.0
    images_per_second: float = 0.0
    error: str = ""


@dataclass
class _Entry:
    name: str
    call: Call
    prepare_seconds: float
    peak_mib: float
    wall: list[float]
    cpu: list[float]


def measure(contestants: Iterable[Contestant], images: int, rounds: int) -> list[Measurement]:
    """All contestants, `rounds` times in turns; images: in a run. Who cannot be prepared has a row with an error."""
    entries: list[_Entry] = []
    failed: list[Measurement] = []
    for contestant in contestants:
        try:
            entries.append(_prepared(contestant))
        except TpusimError as error:
            failed.append(Measurement(contestant.name, error=str(error)))
    for _ in range(rounds):
        for entry in entries:
            begin, cpu = time.perf_counter(), time.process_time()
            entry.call()
            entry.wall.append(time.perf_counter() - begin)
            entry.cpu.append(time.process_time() - cpu)
    return [_row(entry, entries[0], images) for entry in entries] + failed


def _prepared(contestant: Contestant) -> _Entry:
    begin = time.process_time()
    call = contestant.prepare()
    call()
    return _Entry(contestant.name, call, time.process_time() - begin, _peak_mib(), [], [])


def _peak_mib() -> float:
    if resource is None:
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _row(entry: _Entry, base: _Entry, images: int) -> Measurement:
    median = statistics.median(entry.wall)
    return Measurement(
        entry.name,
        milliseconds=median * 1000,
        fastest=min(entry.wall) * 1000,
        slowest=max(entry.wall) * 1000,
        cpu_milliseconds=statistics.median(entry.cpu) * 1000,
        prepare_seconds=entry.prepare_seconds,
        peak_mib=entry.peak_mib,
        ratio=median / statistics.median(base.wall),
        images_per_second=images / median,
    )
