"""The data of the page that `report.json` lacks: plain values, which any run, complete or not, can provide."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tpusim.isa.stream import Program
from tpusim.layer_group.files import GlobalView, GroupView
from tpusim.simulator import Timeline

BINS = 48
MOST = 1_000_000
"""At most so many elements of a tensor are counted: every second, third ... of a larger tensor."""


@dataclass(frozen=True)
class Histogram:
    """The values of a float tensor of the first sample, and its calibrated range.

    counts: of BINS bins of equal width from `low` to `high`, the least and the greatest value. limits: the range that
    integers keep, None if there is none. clipped: the share (0 to 1) of the values outside it.
    """

    counts: tuple[int, ...]
    low: float
    high: float
    limits: tuple[float, float] | None
    clipped: float


@dataclass(frozen=True)
class Work:
    """One command on the clock, or several successive commands of one op; times in nanoseconds."""

    op: str
    group: int
    core: int
    engine: str
    start: float
    stop: float


@dataclass(frozen=True)
class Cause:
    """A remedy that `tpusim why` tried: its tensor, the change, and the least cosine of the results with it alone.

    kind, evidence: the kind of the cause that it removes, and the observation; "" for an op without a suspected cause.
    """

    tensor: str
    remedy: str
    cosine: float
    kind: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The result of `tpusim why`. cosine: of the results without changes.

    causes: as ranked, then the ops that were tried one by one, the best remedy first.

    alone: tensor -> SQNR in dB of its op on ideal operands. chosen: the combined remedies, which give the cosine
    `reached`.
    """

    cosine: float
    causes: tuple[Cause, ...]
    alone: Mapping[str, float]
    chosen: tuple[str, ...] = ()
    reached: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """All data of a run for the page; empty fields are not shown."""

    histograms: Mapping[str, Histogram] = field(default_factory=dict[str, Histogram])
    groups: tuple[GroupView | GlobalView, ...] = ()
    works: tuple[Work, ...] = ()
    diagnosis: Diagnosis | None = None


def histograms(
    tensors: Mapping[str, np.ndarray], limits: Mapping[str, tuple[float, float]]
) -> Iterator[tuple[str, Histogram]]:
    """(name, histogram) of every tensor of floats that has a finite value."""
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and tensor.size:
            found = _histogram(tensor.ravel()[:: 1 + tensor.size // MOST], limits.get(name))
            if found is not None:
                yield name, found


def _histogram(values: np.ndarray, limits: tuple[float, float] | None) -> Histogram | None:
    values = values[np.isfinite(values)].astype(np.float64)
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    counts = np.zeros(BINS, np.int64)
    if high > low:
        counts, _ = np.histogram(values, BINS, (low, high))
    else:  # half a unit around a large number is no range
        counts[BINS // 2] = values.size
    outside = 0 if limits is None else np.count_nonzero((values < limits[0]) | (values > limits[1]))
    return Histogram(tuple(counts.tolist()), low, high, limits, float(outside) / values.size)


def works(program: Program, found: Timeline) -> Iterator[Work]:
    """The timeline by engines; successive commands of one op on an engine are one Work."""
    last: dict[tuple[int, str], Work] = {}
    for span in sorted(found.spans, key=lambda span: span.start_ns):
        command = program.commands[span.index]
        for engine in span.engines:
            now = Work(command.op, command.group, span.core, engine, span.start_ns, span.stop_ns)
            before = last.get((span.core, engine))
            if before is not None and (before.op, before.group) == (now.op, now.group):
                now = Work(now.op, now.group, now.core, engine, before.start, now.stop)
            elif before is not None:
                yield before
            last[span.core, engine] = now
    yield from last.values()
