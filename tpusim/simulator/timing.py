"""The clock: an event-driven timeline of the two engines of every core, separate from the values (architecture.md 5).

A command starts when its engine is free, the command it depends on has ended, and the message it waits for was sent. A
global kernel keeps both engines busy for the longer of its compute and its transfers (layer_group.md DL-06). On a chip
whose engines do not overlap (hardware.md 5.3) only one command runs at a time and a global kernel takes the sum
of both.

Cores share global memory: while several cores have transfers to or from it, each transfer proceeds at the
chip's `shared_rate` (hardware.md 1.2; Decision: in both directions, and not while the latency of a transfer passes).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, Engine
from tpusim.isa.cycles import command_ns
from tpusim.isa.stream import Program
from tpusim.simulator.schedule import Progress, Queues, order


@dataclass(frozen=True)
class Span:
    """One command on the clock, in nanoseconds from the start."""

    index: int
    """Position of the command in the program."""
    engines: tuple[Engine, ...]
    start_ns: float
    stop_ns: float
    core: int = 0


@dataclass(frozen=True)
class GroupCost:
    """What one group adds to the program: cycles from the end of the groups before it to its end."""

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
    """Engine -> share of the time it works, the mean of all cores."""
    groups: dict[int, GroupCost]
    core_busy: dict[int, dict[str, float]]
    """Core -> engine -> share of the time it works."""

    def __repr__(self) -> str:
        """Show the number of commands and the cycles."""
        return f"<Timeline: {self.brief()}>"

    def brief(self) -> str:
        """Commands, cycles and milliseconds on the clock, in one line."""
        return f"{len(self.spans):,} commands, {self.cycles:,} cycles = {self.milliseconds:.3f} ms on the clock"


@dataclass
class _Running:
    """A command that has started and not ended."""

    queue: int
    index: int
    start_ns: float
    stop_ns: float
    """Time at which it ends if nothing changes."""
    memory_ns: float
    """Time from which it moves bytes of global memory and shares its rate; infinite: never."""
    slowed: bool = False


class _Clock:
    """Runs the queues: always the command that can start first (ties: in issue order)."""

    def __init__(self, queues: Queues, chip: ChipSpec) -> None:
        self._queues = queues
        self._chip = chip
        self._shares = len(queues.cores) > 1 and chip.shared_rate < 1
        self._progress = Progress(queues)
        self._running: list[_Running | None] = [None] * len(queues.names)
        """The running command of each engine; a global kernel is listed for both engines of its core."""
        self._now = 0.0

    def run(self) -> Iterator[Span]:
        """Every command on the clock, in the order they end. Raises SimulationError for a deadlock."""
        while True:
            self._start_all()
            active = self._active()
            if not active:
                break
            self._share(active)
            self._now = min(self._next(one) for one in active)
            for one in active:
                if one.stop_ns <= self._now:
                    yield self._end(one)
        if any(self._progress.head(queue) is not None for queue in range(len(self._running))):
            raise self._progress.deadlock()

    def _active(self) -> list[_Running]:
        return [one for queue, one in enumerate(self._running) if one is not None and one.queue == queue]

    def _start_all(self) -> None:
        """Start every queue's next command whose dependencies are met, until none can start."""
        while True:
            able = [q for q, one in enumerate(self._running) if one is None and self._may_start(q)]
            if not able:
                return
            queue = min(able, key=lambda q: self._queues.indices[q][self._progress.done[q]])
            self._start(queue)

    def _may_start(self, queue: int) -> bool:
        if not self._progress.ready(queue):
            return False
        head = self._progress.head(queue)
        alone = (head is not None and len(head.engines) > 1) or not self._chip.engines_overlap
        return not alone or self._running[self._queues.other(queue)] is None

    def _start(self, queue: int) -> None:
        index = self._queues.indices[queue][self._progress.done[queue]]
        command = self._queues.commands[index]
        one = _Running(queue, index, self._now, self._now + command_ns(command, self._chip), self._memory_ns(command))
        self._running[queue] = one
        if len(command.engines) > 1:
            self._running[self._queues.other(queue)] = one

    def _memory_ns(self, command: Command) -> float:
        """Time from which a command that starts now moves bytes of global memory."""
        if not self._shares or command.engine != "gdma":
            return inf
        moves = any(view.memory == "gmem" for _, view in command.operands())
        return self._now + self._chip.dma_latency_ns if moves else inf

    def _share(self, active: list[_Running]) -> None:
        """Adapt the ends of transfers to the number of cores that move data from now on."""
        if not self._shares:
            return
        moving = [one for one in active if one.memory_ns <= self._now]
        slow = len({one.queue // 2 for one in moving}) > 1
        for one in moving:
            if one.slowed != slow:
                rest = one.stop_ns - self._now
                one.stop_ns = self._now + (rest / self._chip.shared_rate if slow else rest * self._chip.shared_rate)
                one.slowed = slow

    def _next(self, one: _Running) -> float:
        """When something about a command changes next."""
        return one.memory_ns if self._now < one.memory_ns < one.stop_ns else one.stop_ns

    def _end(self, one: _Running) -> Span:
        self._progress.step(one.queue)
        name = self._queues.names[one.queue]
        engines = self._queues.commands[one.index].engines
        self._running[one.queue] = None
        if len(engines) > 1:
            self._running[self._queues.other(one.queue)] = None
        return Span(one.index, engines, one.start_ns, one.stop_ns, name.core)


def _spans(program: Program, chip: ChipSpec) -> list[Span]:
    """Every command on the clock, in the order they start."""
    queues = Queues(program.commands)
    order(queues, "early")  # refuses a deadlock
    return sorted(_Clock(queues, chip).run(), key=lambda span: (span.start_ns, span.index))


def _busy(spans: list[Span], core: int, total: float) -> dict[str, float]:
    """Engine -> share of the time that it works."""
    return {
        engine: sum(s.stop_ns - s.start_ns for s in spans if s.core == core and engine in s.engines) / total
        if total
        else 0.0
        for engine in ("tiu", "gdma")
    }


def _groups(program: Program, spans: list[Span], chip: ChipSpec) -> dict[int, GroupCost]:
    ends: dict[int, float] = {}
    moved: dict[int, tuple[int, int]] = {}
    for span in spans:
        command = program.commands[span.index]
        ends[command.group] = max(ends.get(command.group, 0.0), span.stop_ns)
        load, store = command.traffic()
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
    core_busy = {core: _busy(spans, core, total) for core in sorted({0, *(span.core for span in spans)})}
    return Timeline(
        spans=tuple(spans),
        cycles=sum(cost.cycles for cost in groups.values()),
        milliseconds=total / 1e6,
        load_bytes=sum(cost.load_bytes for cost in groups.values()),
        store_bytes=sum(cost.store_bytes for cost in groups.values()),
        busy={engine: sum(b[engine] for b in core_busy.values()) / len(core_busy) for engine in ("tiu", "gdma")},
        groups=groups,
        core_busy=core_busy,
    )
