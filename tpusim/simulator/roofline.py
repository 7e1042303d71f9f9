"""The roofline of a program: what bounds every group and op, and what would change that.

The clock answers what would change it: it times the same commands on a chip with one figure changed. A group counts
from the end of the groups before it to its end, as in `Timeline.groups`. An op has no separate interval on the clock;
its cycles are those of the engine that works longer for it (the sum if engines do not overlap), in all groups.

The limit of a group or op is the bound that `Summary` gives, in more detail:

* "tiu": compute; "lanes" if the lanes are not filled: with half of them it would take under `FILLED` times as long.
* "load" or "store": transfers, the direction that takes longer; "start-up" if most of it passes before the first byte.
* "dependency", "sync": the engines wait.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tpusim.chips import ChipSpec
from tpusim.isa.cycles import dma_ns, peak_macs, tiu_ns
from tpusim.isa.stream import Program
from tpusim.simulator.summary import Bound, OpWork, Summary, owners
from tpusim.simulator.timing import Timeline, timeline

Limit = Literal["tiu", "lanes", "load", "store", "start-up", "dependency", "sync"]
FILLED = 1.5
"""Decision: lanes count as filled if three quarters work; half as many lanes would then take 1.5 times as long."""
BANDWIDTH, LANES, START_UP = "bandwidth x2", "lanes x2", "no start-up"


def intensity(macs: int, load_bytes: int, store_bytes: int) -> float:
    """Multiply-accumulates for each byte moved; 0 where none is."""
    moved = load_bytes + store_bytes
    return macs / moved if moved else 0.0


@dataclass(frozen=True)
class Place:
    """A group or an op under the roofs.

    name: of the op, of a group its first op. macs: multiply-accumulates of the network; overlaps count once.
    changed: change -> cycles with it, including changes without an effect.
    """

    name: str
    group: int
    ops: int
    macs: int
    load_bytes: int
    store_bytes: int
    cycles: int
    limit: Limit
    changed: Mapping[str, int]

    @property
    def intensity(self) -> float:
        """Multiply-accumulates for each byte that crosses the border of local memory; 0 where nothing does."""
        return intensity(self.macs, self.load_bytes, self.store_bytes)

    @property
    def best(self) -> tuple[str, float]:
        """(the change that helps most, the share of the cycles it saves); ("", 0) if none does."""
        name, cycles = min(self.changed.items(), key=lambda item: item[1], default=("", self.cycles))
        return (name, 1 - cycles / self.cycles) if cycles < self.cycles else ("", 0.0)


@dataclass(frozen=True)
class Roofline:
    """A program under its roofs.

    peak_macs: per cycle, of the chip at elements of `element_bytes`; load_rate: bytes per cycle from global memory.
    cycles: of the whole program; changed: of the whole program with a figure changed.
    """

    element_bytes: int
    peak_macs: int
    load_rate: float
    cycles: int
    changed: Mapping[str, int]
    groups: tuple[Place, ...]
    ops: tuple[Place, ...]

    def to_json(self) -> dict[str, Any]:
        """The content of "roofline" in `report.json`."""
        return asdict(self)


def changes(chip: ChipSpec) -> dict[str, ChipSpec]:
    """Change -> the chip with this one figure changed; without start-ups only if the chip has any."""
    rates = {name: 2 * getattr(chip.bandwidth, name) for name in chip.bandwidth.__struct_fields__}
    of_kernels = ("kernel_gbs", "matrix_gbs", "matrix_store_gbs", "gather_gbs")
    kernels = {name: 2 * getattr(chip, name) for name in of_kernels if getattr(chip, name)}
    found = {
        BANDWIDTH: chip.replace(f"{chip.name} {BANDWIDTH}", bandwidth=rates, **kernels),
        LANES: chip.replace(f"{chip.name} {LANES}", lanes=2 * chip.lanes),
    }
    if chip.latency_ns("s2l") or chip.latency_ns("l2s"):
        found[START_UP] = _without_start_up(chip)
    return found


def roofline(
    program: Program, found: Timeline, said: Summary, chip: ChipSpec, macs: Mapping[str, int], element_bytes: int = 1
) -> Roofline:
    """Groups and ops of a program under the roofs. macs: of the network's ops; element_bytes: of its products."""
    others = changes(chip)
    again = {name: timeline(program, other) for name, other in others.items()}
    works = _Works(program, chip, others)
    return Roofline(
        element_bytes,
        peak_macs(element_bytes, chip),
        chip.bandwidth.s2l * 1000 / chip.tiu_mhz,
        found.cycles,
        {name: other.cycles for name, other in again.items()},
        tuple(
            Place(
                entry.ops[0], entry.id, len(entry.ops), sum(macs.get(op, 0) for op in entry.ops),
                found.groups[entry.id].load_bytes, found.groups[entry.id].store_bytes, found.groups[entry.id].cycles,
                works.limit(works.of_group[entry.id], said.groups[entry.id].bound),
                {name: other.groups[entry.id].cycles for name, other in again.items()},
            )
            for entry in program.groups if entry.id in found.groups
        ),
        tuple(
            Place(
                one.op, one.group, 1, macs.get(one.op, 0), *works.bytes(indices), works.cycles(indices, chip),
                works.limit(indices, one.work.bound),
                {name: works.cycles(indices, other) for name, other in others.items()},
            )
            for one in _once(said.ops) for indices in [works.of_op[one.op]]
        ),
    )  # fmt: skip


def _once(found: Iterable[OpWork]) -> list[OpWork]:
    """Every op once, in the group with most of its work: its weights may be loaded during an earlier group."""
    most: dict[str, OpWork] = {}
    for one in found:
        if one.op not in most or _sum(one) > _sum(most[one.op]):
            most[one.op] = one
    return list(most.values())


def _sum(one: OpWork) -> int:
    return one.work.tiu_cycles + one.work.gdma_cycles


def _without_start_up(chip: ChipSpec) -> ChipSpec:
    own = {name: 0.0 for name in ("store_latency_ns", "local_latency_ns") if getattr(chip, name) is not None}
    return chip.replace(f"{chip.name} {START_UP}", dma_latency_ns=0.0, **own)


class _Works:
    """What the engines do for the commands of groups and ops, on this chip and on others."""

    def __init__(self, program: Program, chip: ChipSpec, others: Mapping[str, ChipSpec]) -> None:
        self._commands, self._chip = program.commands, chip
        self._half = chip.replace(f"{chip.name} half the lanes", lanes=chip.lanes // 2) if chip.lanes > 1 else chip
        self._at_once = others.get(START_UP, chip)
        self.of_group: dict[int, list[int]] = defaultdict(list)
        self.of_op: dict[str, list[int]] = defaultdict(list)
        for index, op in enumerate(owners(program, chip)):
            self.of_group[program.commands[index].group].append(index)
            self.of_op[op].append(index)

    def bytes(self, indices: Sequence[int]) -> tuple[int, int]:
        """(loaded, stored) by these commands."""
        moved = [self._commands[index].traffic() for index in indices]
        return sum(load for load, _ in moved), sum(store for _, store in moved)

    def cycles(self, indices: Sequence[int], chip: ChipSpec) -> int:
        """TIU cycles of the engine that works longer; the sum of both if only one works at a time."""
        tiu, dma = self._tiu(indices, chip), sum(self._dma(indices, chip).values())
        return round((max(tiu, dma) if chip.engines_overlap else tiu + dma) * chip.tiu_mhz / 1000)

    def limit(self, indices: Sequence[int], bound: Bound) -> Limit:
        """The bound, in more detail."""
        if bound == "tiu":
            half, whole = self._tiu(indices, self._half), self._tiu(indices, self._chip)
            return "lanes" if half < FILLED * whole else "tiu"
        if bound != "gdma":
            return bound
        found = self._dma(indices, self._chip)
        if sum(self._dma(indices, self._at_once).values()) < sum(found.values()) / 2:
            return "start-up"
        return "load" if found["load"] >= found["store"] else "store"

    def _tiu(self, indices: Iterable[int], chip: ChipSpec) -> float:
        return sum(tiu_ns(self._commands[index], chip) for index in indices)

    def _dma(self, indices: Iterable[int], chip: ChipSpec) -> dict[str, float]:
        """Nanoseconds by direction; commands that move no byte of global memory count for neither."""
        found = {"load": 0.0, "store": 0.0, "": 0.0}
        for command in map(self._commands.__getitem__, indices):
            load, store = command.traffic()
            taken, moved = dma_ns(command, chip), load + store
            for way, share in (("load", load), ("store", store)):
                found[way] += taken * share / moved if moved else 0.0
            found[""] += 0.0 if moved else taken
        return found
