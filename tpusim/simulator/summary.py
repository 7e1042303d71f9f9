"""What a timeline says about the program: how busy the engines are, how much they overlap, and what holds it up.

An engine works, or waits before its next command: for a dependency (the command of the other engine that it names), or
to synchronise (for a message of another core; for the other engine to be free, as a global kernel needs both and some
chips run one command at a time). `bound` looks at the engine that works longest, as no schedule takes less than its
work: "tiu" or "gdma" if it works for `SATURATED` of the time it works and waits, else what it waits for longer.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, Engine, WaitMessage
from tpusim.isa.cycles import dma_ns, tiu_ns
from tpusim.isa.layout import extent
from tpusim.isa.region import View
from tpusim.isa.stream import Program
from tpusim.simulator.timing import Span, Timeline

Bound = Literal["tiu", "gdma", "dependency", "sync"]
_ENGINES: tuple[Engine, Engine] = ("tiu", "gdma")
_TIE_NS = 1e-6
SATURATED = 2 / 3
"""Decision: an engine that works for this share or more is the limit; below it, what the engine waits for is."""


@dataclass(frozen=True)
class Work:
    """Cycles that the engines of all cores work for some commands, and that the busier one waits before them.

    Of a global kernel, which occupies both engines, the time of each engine.
    """

    tiu_cycles: int
    gdma_cycles: int
    dependency_cycles: int
    sync_cycles: int
    bound: Bound


@dataclass(frozen=True)
class OpWork:
    """The work for one op of a group: its compute, the loads it is the first to read, the stores of its results."""

    op: str
    group: int
    work: Work


@dataclass(frozen=True)
class Summary:
    """Shares of the whole time, the mean of all cores; `tiu` and `gdma` count what `both` counts.

    parallelism: tiu + gdma (hardware.md 5.4), 2 if both engines always work.
    """

    tiu: float
    gdma: float
    both: float
    neither: float
    whole: Work
    groups: dict[int, Work]
    ops: tuple[OpWork, ...]

    @property
    def parallelism(self) -> float:
        """How many engines of a core work at a time, on average."""
        return self.tiu + self.gdma

    def to_json(self) -> dict[str, Any]:
        """The content of "engines" in `report.json`, all but the groups."""
        return {
            "tiu_busy": self.tiu,
            "gdma_busy": self.gdma,
            "both_busy": self.both,
            "neither_busy": self.neither,
            "parallelism": self.parallelism,
            **vars(self.whole),
            "ops": [{"op": one.op, "group": one.group, **vars(one.work)} for one in self.ops],
        }


@dataclass(frozen=True)
class _Part:
    """One engine's share of one command: its work, and the wait before it."""

    index: int
    engine: Engine
    work_ns: float
    wait_ns: float
    cause: Literal["dependency", "sync"]


def summary(program: Program, found: Timeline, chip: ChipSpec) -> Summary:
    """The timeline's cycles and bytes by group, by op and in all."""
    parts = _parts(program, found, chip)
    by_group: dict[int, list[_Part]] = defaultdict(list)
    by_op: dict[tuple[int, str], list[_Part]] = defaultdict(list)
    who = owners(program, chip)
    for part in parts:
        group = program.commands[part.index].group
        by_group[group].append(part)
        by_op[group, who[part.index]].append(part)
    both = sum(_overlap(found, core) for core in found.core_busy) / len(found.core_busy)
    tiu, gdma = found.busy["tiu"], found.busy["gdma"]
    return Summary(
        tiu=tiu,
        gdma=gdma,
        both=both,
        neither=max(0.0, round(1 - tiu - gdma + both, 12)) if parts else 0.0,
        whole=_work(parts, chip),
        groups={group: _work(of_it, chip) for group, of_it in sorted(by_group.items())},
        ops=tuple(OpWork(op, group, _work(of_it, chip)) for (group, op), of_it in sorted(by_op.items(), key=_first)),
    )


def _first(item: tuple[tuple[int, str], list[_Part]]) -> tuple[int, int]:
    (group, _), parts = item
    return group, min(part.index for part in parts)


def _work(parts: Iterable[_Part], chip: ChipSpec) -> Work:
    work: dict[Engine, float] = {"tiu": 0.0, "gdma": 0.0}
    waits: dict[tuple[Engine, str], float] = defaultdict(float)
    for part in parts:
        work[part.engine] += part.work_ns
        waits[part.engine, part.cause] += part.wait_ns
    busier = max(_ENGINES, key=lambda engine: work[engine])
    dependency, sync = waits[busier, "dependency"], waits[busier, "sync"]
    bound: Bound = "dependency" if dependency >= sync else "sync"
    if work[busier] >= SATURATED * (work[busier] + dependency + sync):
        bound = busier

    def cycles(nanoseconds: float) -> int:
        return round(nanoseconds * chip.tiu_mhz / 1000)

    return Work(
        tiu_cycles=cycles(work["tiu"]),
        gdma_cycles=cycles(work["gdma"]),
        dependency_cycles=cycles(dependency),
        sync_cycles=cycles(sync),
        bound=bound,
    )


def _parts(program: Program, found: Timeline, chip: ChipSpec) -> list[_Part]:
    """What each engine did for each command, in the order of the clock."""
    ends = {(s.core, c.engine, c.id): s.stop_ns for s in found.spans for c in [program.commands[s.index]]}
    free: dict[tuple[int, Engine], float] = defaultdict(float)
    parts: list[_Part] = []
    for span in found.spans:
        command = program.commands[span.index]
        other: Engine = "gdma" if command.engine == "tiu" else "tiu"
        needed = ends.get((span.core, other, command.dep), 0.0)
        depends = needed >= span.start_ns - _TIE_NS and not isinstance(command, WaitMessage)
        for engine in span.engines:
            waited = max(0.0, span.start_ns - free[span.core, engine])
            cause = "dependency" if depends else "sync"
            parts.append(_Part(span.index, engine, _own_ns(command, span, engine, chip), waited, cause))
            free[span.core, engine] = span.stop_ns
    return parts


def _own_ns(command: Command, span: Span, engine: Engine, chip: ChipSpec) -> float:
    if len(command.engines) == 1:
        return span.stop_ns - span.start_ns
    return (tiu_ns if engine == "tiu" else dma_ns)(command, chip)


def _overlap(found: Timeline, core: int) -> float:
    """Share of the time that both engines of a core work."""
    total = found.milliseconds * 1e6
    spans = {e: [(s.start_ns, s.stop_ns) for s in found.spans if s.core == core and e in s.engines] for e in _ENGINES}
    tiu, gdma = spans["tiu"], spans["gdma"]
    shared, i, j = 0.0, 0, 0
    while i < len(tiu) and j < len(gdma):
        shared += max(0.0, min(tiu[i][1], gdma[j][1]) - max(tiu[i][0], gdma[j][0]))
        if tiu[i][1] <= gdma[j][1]:
            i += 1
        else:
            j += 1
    return shared / total if total else 0.0


# ----------------------------------------------------------------------------------------------------------------- ops


def owners(program: Program, chip: ChipSpec) -> list[str]:
    """The op of each command: for a load the op that reads it first, for a store the op that wrote it last."""
    commands = program.commands
    cores: dict[int, list[int]] = defaultdict(list)
    for index, command in enumerate(commands):
        cores[command.core].append(index)
    owners = [command.op for command in commands]
    for indices in cores.values():
        for place, index in enumerate(indices):
            command = commands[index]
            if command.engine != "gdma" or not command.writes():
                continue
            target = command.writes()[0]
            if target.memory == "lmem":
                near = _first_using(commands, indices[place + 1 :], target, chip, reading=True)
            else:
                source = (*command.reads(), target)[0]
                near = _first_using(commands, indices[:place][::-1], source, chip, reading=False)
            owners[index] = command.op if near is None else commands[near].op
    return owners


def _first_using(
    commands: Sequence[Command], near: Sequence[int], view: View, chip: ChipSpec, *, reading: bool
) -> int | None:
    """The first TIU command of `near` that reads (or writes) where `view` is in local memory."""
    if view.memory != "lmem":
        return None
    wanted = extent(view, chip)
    for index in near:
        command = commands[index]
        if command.engine != "tiu":
            continue
        views = command.reads() if reading else command.writes()
        if any(extent(one, chip).overlaps(wanted) for one in views):
            return index
    return None
