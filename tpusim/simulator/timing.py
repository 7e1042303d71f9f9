"""The clock: an event-driven timeline of the two engines, separate from the values (architecture.md 5).

A command starts when its engine is free and the command it depends on has ended. A global kernel keeps both engines
busy for the longer of its compute and its transfers (layer_group.md DL-06).
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from tpusim.chips import ChipSpec
from tpusim.isa.commands import AnyCommand, Engine, Fill, GlobalKernel, Move
from tpusim.isa.stream import Program
from tpusim.simulator.cycles import dma_ns, kernel_dma_ns, tiu_cycles, traffic
from tpusim.simulator.schedule import Queues, order


@dataclass(frozen=True)
class Span:
    """One command on the clock, in nanoseconds from the start."""

    index: int
    """Position of the command in the program."""
    engines: tuple[Engine, ...]
    start_ns: float
    stop_ns: float


@dataclass(frozen=True)
class GroupCost:
    """What one group adds to the program: cycles from the end of the groups before it to its own end."""

    cycles: int
    load_bytes: int
    store_bytes: int


@dataclass(frozen=True)
class Timeline:
    """The whole program on the clock; cycles are TIU cycles."""

    spans: tuple[Span, ...]
    cycles: int
    milliseconds: float
    load_bytes: int
    store_bytes: int
    busy: dict[str, float]
    """Engine -> share of the time it works."""
    groups: dict[int, GroupCost]


def _duration_ns(command: AnyCommand, chip: ChipSpec) -> float:
    if isinstance(command, Move | Fill):
        return dma_ns(command, chip)
    if isinstance(command, GlobalKernel):
        return max(tiu_cycles(command.body, chip) * 1000 / chip.tiu_mhz, kernel_dma_ns(command, chip))
    return tiu_cycles(command, chip) * 1000 / chip.tiu_mhz


class _Clock:
    """When each engine becomes free, and when each of its commands ended."""

    def __init__(self) -> None:
        self.free: dict[Engine, float] = {"tiu": 0.0, "gdma": 0.0}
        self.ends: dict[Engine, list[float]] = {"tiu": [0.0], "gdma": [0.0]}

    def start(self, command: AnyCommand) -> float | None:
        """Earliest start, or None while the command it depends on has not been placed."""
        other: Engine = "gdma" if command.engine == "tiu" else "tiu"
        if command.dep >= len(self.ends[other]):
            return None
        start = max(self.free[command.engine], self.ends[other][command.dep])
        return max(start, self.free[other]) if isinstance(command, GlobalKernel) else start

    def place(self, index: int, command: AnyCommand, start: float, duration: float) -> Span:
        """Run the command from `start`."""
        engines: tuple[Engine, ...] = ("tiu", "gdma") if isinstance(command, GlobalKernel) else (command.engine,)
        stop = start + duration
        for engine in engines:
            self.free[engine] = stop
        self.ends[command.engine].append(stop)
        return Span(index, engines, start, stop)


def _spans(program: Program, chip: ChipSpec) -> list[Span]:
    """Place the commands of both queues, always the one that can start first (ties: in issue order)."""
    queues = Queues(program.commands)
    order(queues, "early")  # refuses a deadlock
    heads: dict[Engine, int] = {"tiu": 0, "gdma": 0}
    clock = _Clock()
    spans: list[Span] = []
    while len(spans) < len(program.commands):
        ready: list[tuple[float, int]] = []
        for engine, head in heads.items():
            for index in queues.indices[engine][head : head + 1]:
                start = clock.start(program.commands[index])
                if start is not None:
                    ready.append((start, index))
        start, index = min(ready)
        command = program.commands[index]
        spans.append(clock.place(index, command, start, _duration_ns(command, chip)))
        heads[command.engine] += 1
    return spans


def _groups(program: Program, spans: list[Span], chip: ChipSpec) -> dict[int, GroupCost]:
    ends: dict[int, float] = {}
    moved: dict[int, tuple[int, int]] = {}
    for span in spans:
        command = program.commands[span.index]
        ends[command.group] = max(ends.get(command.group, 0.0), span.stop_ns)
        load, store = traffic(command)
        loaded, stored = moved.get(command.group, (0, 0))
        moved[command.group] = (loaded + load, stored + store)
    costs: dict[int, GroupCost] = {}
    passed = 0
    for group in sorted(ends, key=lambda g: (ends[g], g)):
        until = ceil(ends[group] * chip.tiu_mhz / 1000 - 1e-6)
        costs[group] = GroupCost(until - passed, *moved[group])
        passed = until
    return dict(sorted(costs.items()))


def timeline(program: Program, chip: ChipSpec) -> Timeline:
    """The timeline of a program. Raises SimulationError if the program deadlocks."""
    spans = _spans(program, chip)
    groups = _groups(program, spans, chip)
    total = max((span.stop_ns for span in spans), default=0.0)
    busy = {
        engine: sum(span.stop_ns - span.start_ns for span in spans if engine in span.engines) / total if total else 0.0
        for engine in ("tiu", "gdma")
    }
    return Timeline(
        spans=tuple(spans),
        cycles=sum(cost.cycles for cost in groups.values()),
        milliseconds=total / 1e6,
        load_bytes=sum(cost.load_bytes for cost in groups.values()),
        store_bytes=sum(cost.store_bytes for cost in groups.values()),
        busy=busy,
        groups=groups,
    )


def trace(program: Program, found: Timeline) -> dict[str, Any]:
    """The timeline as a Chrome trace (`trace.json`): engines are tracks, slices are commands; times in microseconds."""
    tracks: dict[Engine, int] = {"tiu": 0, "gdma": 1}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{program.header.chip} {program.header.model}"}}
    ]
    events += [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": engine.upper()}}
        for engine, number in tracks.items()
    ]
    for span in found.spans:
        command = program.commands[span.index]
        load, store = traffic(command)
        events += [
            {
                "name": f"{command.op} {command.step}".strip(),
                "cat": type(command).__name__,
                "ph": "X",
                "pid": 0,
                "tid": tracks[engine],
                "ts": span.start_ns / 1000,
                "dur": (span.stop_ns - span.start_ns) / 1000,
                "args": {"command": command.label, "group": command.group, "load_bytes": load, "store_bytes": store},
            }
            for engine in span.engines
        ]
    return {"displayTimeUnit": "ns", "traceEvents": events}
