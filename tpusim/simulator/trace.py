"""The timeline as a Chrome trace (`trace.json`), which Perfetto's UI and chrome://tracing open.

A core is a process, each of its engines a thread with one slice per command, and above them a thread of layers: runs of
TIU commands of one op. An arrow leads from a command to the command of the other engine that waits for it, unless
an earlier command of that engine already waited for it or a later one. Counters of every core: bytes of local memory
in use per lane, and global-memory bandwidth. Times in the file are microseconds that stand for whole nanoseconds:
Perfetto keeps nanoseconds, and drops a slice that overlaps the next slice of its track by as little as one.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from math import ceil, nextafter
from typing import Any

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, Engine
from tpusim.isa.layout import extent
from tpusim.isa.stream import Program
from tpusim.simulator.timing import Span, Timeline

Event = dict[str, Any]

_ENGINES: tuple[Engine, ...] = ("tiu", "gdma")
_TRACKS = ("layers", *_ENGINES)
"""Threads of a core, from above."""


def _process(core: int) -> int:
    """Process number of a core; 0 is the idle process of Perfetto's tables."""
    return core + 1


def _thread(core: int, track: str) -> int:
    """Thread number of a track, unique among all cores, because Perfetto names threads by number alone."""
    return 1 + len(_TRACKS) * core + _TRACKS.index(track)


def trace(program: Program, found: Timeline, chip: ChipSpec | None = None) -> dict[str, Any]:
    """The timeline of `program` as the object of a trace file; `otherData` has the cycles of the whole.

    A slice is named by op and slice of the group; its arguments are the command, the group, what it waited for, its
    traffic, and its first and last TIU cycle. A global kernel is a slice on both engines.
    """
    chip = chip or program.header.chip_spec
    events = [*_names(program, list(found.core_busy)), *_slices(program, found, chip), *_arrows(program, found)]
    for core in found.core_busy:
        spans = [span for span in found.spans if span.core == core]
        events += _layers(program, core, spans)
        events += _counter("local memory in use", core, local_memory(program, spans, chip))
        events += _counter("global memory GB/s", core, bandwidth(program, spans))
    other = {
        "chip": program.header.chip,
        "model": program.header.model,
        "mode": program.header.mode,
        "cycles": found.cycles,
        "tiu_mhz": chip.tiu_mhz,
    }
    return {"displayTimeUnit": "ns", "traceEvents": events, "otherData": other}


def _names(program: Program, cores: list[int]) -> Iterator[Event]:
    def event(kind: str, core: int, track: str, **args: object) -> Event:
        return {"name": kind, "ph": "M", "pid": _process(core), "tid": _thread(core, track), "args": args}

    for core in cores:
        several = f"core {core} " if len(cores) > 1 else ""
        name = f"{program.header.chip} {program.header.model} {several}".rstrip()
        yield event("process_name", core, "tiu", name=name)
        yield event("process_sort_index", core, "tiu", sort_index=_process(core))
        for track in _TRACKS:
            name = track.upper() if track in _ENGINES else track
            yield event("thread_name", core, track, name=f"{several}{name}")
            yield event("thread_sort_index", core, track, sort_index=_thread(core, track))


def _microseconds(nanoseconds: int) -> float:
    """A number that is these nanoseconds again times 1000, whether the reader rounds the product or cuts it off."""
    value = nanoseconds / 1000
    return value if int(value * 1000) == nanoseconds else nextafter(value, float("inf"))


def _slices(program: Program, found: Timeline, chip: ChipSpec) -> Iterator[Event]:
    for span in found.spans:
        command = program.commands[span.index]
        start, stop = round(span.start_ns), round(span.stop_ns)
        for engine in span.engines:
            yield {
                "name": f"{command.op} {command.step}".strip(),
                "cat": type(command).__name__,
                "ph": "X",
                "pid": _process(span.core),
                "tid": _thread(span.core, engine),
                "ts": _microseconds(start),
                "dur": _microseconds(stop - start),
                "args": _arguments(command, span, chip),
            }


def _layers(program: Program, core: int, spans: list[Span]) -> Iterator[Event]:
    """One slice for each run of TIU commands of one op, from the start of the first to the end of the last."""
    computing = sorted((s for s in spans if "tiu" in s.engines), key=lambda span: (span.start_ns, span.index))
    for (op, group), run in groupby(
        computing, lambda s: (program.commands[s.index].op, program.commands[s.index].group)
    ):
        those = list(run)
        start, stop = round(those[0].start_ns), round(those[-1].stop_ns)
        if op and stop > start:
            yield {
                "name": op,
                "cat": "layer",
                "ph": "X",
                "pid": _process(core),
                "tid": _thread(core, "layers"),
                "ts": _microseconds(start),
                "dur": _microseconds(stop - start),
                "args": {"group": group, "commands": len(those)},
            }


def _arrows(program: Program, found: Timeline) -> Iterator[Event]:
    """A start and a finish for each new dependency; a command that takes no time has no slice to bind them to."""
    numbered = {(s.core, engine, program.commands[s.index].id): s for s in found.spans for engine in s.engines}
    latest: dict[tuple[int, Engine], int] = defaultdict(int)
    for number, span in enumerate(sorted(found.spans, key=lambda span: span.index), 1):
        command = program.commands[span.index]
        other: Engine = "gdma" if command.engine == "tiu" else "tiu"
        cause = numbered.get((span.core, other, command.dep))
        if command.dep <= latest[span.core, command.engine] or cause is None:
            continue
        latest[span.core, command.engine] = command.dep
        ends, begins = round(cause.stop_ns), round(span.start_ns)
        if ends > round(cause.start_ns) and round(span.stop_ns) > begins:
            yield _arrow(number, "s", span.core, other, ends - 1)
            yield _arrow(number, "f", span.core, command.engine, begins) | {"bp": "e"}


def _arrow(number: int, kind: str, core: int, engine: Engine, at: int) -> Event:
    """An end of an arrow; at: in nanoseconds, within the slice that it is bound to."""
    return {
        "name": "waits for",
        "cat": "dependency",
        "ph": kind,
        "id": number,
        "pid": _process(core),
        "tid": _thread(core, engine),
        "ts": _microseconds(at),
        "args": {},
    }


def _arguments(command: Command, span: Span, chip: ChipSpec) -> dict[str, Any]:
    load, store = command.traffic()
    return {
        "command": command.label,
        "group": command.group,
        "waits_for": command.dep,
        "load_bytes": load,
        "store_bytes": store,
        "start_cycle": int(span.start_ns * chip.tiu_mhz / 1000 + 1e-6),
        "stop_cycle": ceil(span.stop_ns * chip.tiu_mhz / 1000 - 1e-6),
    }


def _counter(name: str, core: int, levels: Iterable[tuple[int, dict[str, float]]]) -> Iterator[Event]:
    """One event per change; Perfetto makes a track of each value, named `name value`."""
    for at, values in levels:
        yield {
            "name": name,
            "ph": "C",
            "pid": _process(core),
            "tid": _thread(core, "tiu"),
            "ts": _microseconds(at),
            "args": values,
        }


def _levels(changes: dict[int, int]) -> Iterator[tuple[int, int]]:
    """(time, sum of all changes until then), wherever the sum changes."""
    level = 0
    for at in sorted(changes):
        if changes[at]:
            level += changes[at]
            yield at, level


# ------------------------------------------------------------------------------------------------------------ counters


def bandwidth(program: Program, spans: list[Span]) -> list[tuple[int, dict[str, float]]]:
    """(nanoseconds, GB/s of loads and stores from then on) of one core: bytes over the time of what moves them."""
    moving: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for span in spans:
        load, store = program.commands[span.index].traffic()
        took = span.stop_ns - span.start_ns
        if (load or store) and took > 0:
            moving[round(span.start_ns)].append((round(span.stop_ns), load / took, store / took))
    times = sorted({*moving, *(stop for ends in moving.values() for stop, _, _ in ends)})
    active: list[tuple[int, float, float]] = []
    levels: list[tuple[int, dict[str, float]]] = []
    for at in times:
        active = [one for one in active if one[0] > at] + moving.get(at, [])
        load, store = (round(sum(one[i] for one in active), 3) for i in (1, 2))
        levels.append((at, {"load": load, "store": store}))
    return levels


def local_memory(program: Program, spans: list[Span], chip: ChipSpec) -> list[tuple[int, dict[str, float]]]:
    """(nanoseconds, bytes of a lane of one core in use from then on).

    A byte is in use from the start of the command that writes it to the end of the last command that reads it;
    it counts once, however many lanes use it. Local memory inside a global kernel is not counted.
    """
    spans = sorted(spans, key=lambda span: (span.start_ns, span.index))
    reach = {span.index: _local(program.commands[span.index], chip) for span in spans}
    edges = sorted({edge for reads, writes in reach.values() for one in (*reads, *writes) for edge in one})
    lives = _Lives(edges)
    for span in spans:
        start, stop = round(span.start_ns), round(span.stop_ns)
        reads, writes = reach[span.index]
        for first, last in reads:
            lives.read(first, last, stop)
        for first, last in writes:
            lives.write(first, last, start, stop)
    return [(at, {"bytes per lane": level}) for at, level in _levels(lives.changes())]


def _local(command: Command, chip: ChipSpec) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Byte ranges of a lane that a command reads and writes."""
    reads, writes = (
        [(reach.start, reach.stop) for reach in (extent(v, chip) for v in views if v.memory == "lmem")]
        for views in (command.reads(), command.writes())
    )
    return reads, writes


class _Lives:
    """The interval in which each range of local memory has content that is still read."""

    def __init__(self, edges: list[int]) -> None:
        self._edges = edges
        self._sizes = np.array([stop - start for start, stop in pairwise(edges)], np.int64)
        self._born = np.full(len(self._sizes), -1, np.int64)
        self._until = np.full(len(self._sizes), -1, np.int64)
        self._changes: dict[int, int] = defaultdict(int)

    def _stretch(self, first: int, last: int) -> slice:
        return slice(bisect_left(self._edges, first), bisect_left(self._edges, last))

    def read(self, first: int, last: int, stop: int) -> None:
        """Bytes [first, last) are needed until `stop`."""
        part = self._until[self._stretch(first, last)]
        np.maximum(part, stop, out=part)

    def write(self, first: int, last: int, start: int, stop: int) -> None:
        """Bytes [first, last) get new content."""
        where = self._stretch(first, last)
        self._close(where, start)
        self._born[where] = start
        self._until[where] = stop

    def _close(self, where: slice, limit: int | None = None) -> None:
        """Count the previous content, until `limit` at most."""
        born, until, sizes = self._born[where], self._until[where], self._sizes[where]
        until = until if limit is None else np.minimum(until, limit)
        held = (born >= 0) & (until > born)
        for start, stop, size in zip(born[held].tolist(), until[held].tolist(), sizes[held].tolist(), strict=True):
            self._changes[start] += size
            self._changes[stop] -= size

    def changes(self) -> dict[int, int]:
        """Time -> change of the bytes of a lane in use."""
        self._close(slice(None))
        self._born[:] = -1
        return self._changes
