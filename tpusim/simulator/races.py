"""Races: accesses to a common byte, one of them a write, that nothing orders (codegen.md 8).

By `vector_clocks.Clocks`, the commands of another queue that are concurrent with a command form one contiguous window.
Queues of one core share its local memory and global memory, queues of different cores only global memory.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.layout import extent
from tpusim.isa.region import View
from tpusim.simulator.memory import Memory, span_text
from tpusim.simulator.overlap import common_byte
from tpusim.simulator.schedule import Queues
from tpusim.simulator.vector_clocks import Clocks

_CHUNK = 1 << 18
"""Pairs of accesses compared at once."""


@dataclass(frozen=True)
class _Accesses:
    """The views of one queue in issue order, their extents as columns of numbers."""

    queue: int
    owner: np.ndarray
    """Position of the command in the program, ascending."""
    number: np.ndarray
    """Id of the command that made each access, ascending."""
    views: list[View]
    columns: np.ndarray
    """Per view: is_lmem, start, stop, first lane, last lane, is_write."""

    def in_gmem(self) -> "_Accesses":
        """The accesses to global memory alone."""
        kept = np.flatnonzero(self.columns[:, 0] == 0)
        views = [self.views[i] for i in kept]
        return _Accesses(self.queue, self.owner[kept], self.number[kept], views, self.columns[kept])


def _accesses(queues: Queues, queue: int, memory: Memory) -> _Accesses:
    """All accesses of a queue, except reads of read-only memory."""
    frozen = [(region.start, region.stop) for region in memory.regions if not region.writable]
    owner: list[int] = []
    views: list[View] = []
    rows: list[tuple[int, ...]] = []
    for index in queues.indices[queue]:
        command = queues.commands[index]
        for writes, found in ((0, command.reads()), (1, (*command.writes(), *command.scratch()))):
            for view in found:
                reach = extent(view, memory.chip)
                lmem = int(reach.memory == "lmem")
                if not lmem and any(start <= reach.start and reach.stop <= stop for start, stop in frozen):
                    continue
                rows.append((lmem, reach.start, reach.stop, reach.first_lane, reach.last_lane, writes))
                owner.append(index)
                views.append(view)
    number = np.array([queues.commands[index].id for index in owner], np.int64)
    return _Accesses(queue, np.array(owner, np.int64), number, views, np.array(rows, np.int64).reshape(-1, 6))


def check_races(queues: Queues, order: list[int], memory: Memory) -> None:
    """Raise SimulationError if two unordered commands access a common byte and one of them writes.

    order: any order the queues allow; the finding is the same for each. memory: for its regions and chip.
    """
    clocks = Clocks(queues, order)
    found = [_accesses(queues, queue, memory) for queue in range(len(queues.names))]
    outside = [accesses.in_gmem() for accesses in found]
    for one, other in combinations(range(len(found)), 2):
        same_core = other == queues.other(one)
        pair = (found[one], found[other]) if same_core else (outside[one], outside[other])
        for first, second in _concurrent(*pair, clocks):
            shared = common_byte(pair[0].views[first], pair[1].views[second], memory.chip)
            if shared is not None:
                raise _race((pair[0], first), (pair[1], second), clocks, shared, memory)


def _concurrent(one: _Accesses, other: _Accesses, clocks: Clocks) -> Iterator[tuple[int, int]]:
    """Pairs of accesses that no edge orders and whose extents overlap, one of them a write."""
    rows, commands_of = clocks.rows, np.array(clocks.queues.indices[other.queue], np.int64)
    reached = rows[commands_of, one.queue]  # ascending: clocks of a queue only grow
    starts = _first(other.number, rows[one.owner, other.queue] + 1)
    stops = _first(other.number, _first(reached, one.number) + 1)
    counts = np.maximum(stops - starts, 0)
    passed = np.zeros(len(counts) + 1, np.int64)
    passed[1:] = np.cumsum(counts)
    at = 0
    while at < len(counts):
        until = max(bisect_right(passed, passed[at] + _CHUNK) - 1, at + 1)
        part, base = counts[at:until], passed[at:until] - passed[at]
        first = np.repeat(np.arange(at, until), part)
        second = np.arange(len(first)) + np.repeat(starts[at:until] - base, part)
        met = _meet(one.columns[first], other.columns[second])
        yield from zip(first[met].tolist(), second[met].tolist(), strict=True)
        at = until


def _first(ascending: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted number, the first position of a number that is not below it."""
    return np.asarray(np.searchsorted(ascending, wanted), np.int64)


def _meet(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rows in which the two extents share a byte and one of the accesses writes."""
    return np.flatnonzero(
        (one[:, 0] == other[:, 0])
        & (one[:, 1] < other[:, 2])
        & (other[:, 1] < one[:, 2])
        & (one[:, 3] <= other[:, 4])
        & (other[:, 3] <= one[:, 4])
        & ((one[:, 5] | other[:, 5]) == 1)
    )


def _race(
    one: tuple[_Accesses, int], other: tuple[_Accesses, int], clocks: Clocks, shared: int, memory: Memory
) -> SimulationError:
    queues, chip = clocks.queues, memory.chip

    def phrase(accesses: _Accesses, i: int) -> str:
        command = queues.commands[int(accesses.owner[i])]
        verb = "writes" if accesses.columns[i, 5] else "reads"
        verb = "works in" if accesses.views[i] in command.scratch() else verb
        return f"{command.label} {verb} {span_text(extent(accesses.views[i], chip))}"

    lane, byte = divmod(shared, chip.lmem_bytes)
    local = one[0].views[one[1]].memory == "lmem"
    place = f"lane {lane}, local byte {byte:,}" if local else f"global byte {shared:#x}"
    first, second = int(one[0].owner[one[1]]), int(other[0].owner[other[1]])
    return SimulationError(
        f"race: {phrase(*one)} and {phrase(*other)} overlap (at {place}), and no dependency orders the two: "
        f"{_missing(first, second, clocks)}"
    )


def _missing(first: int, second: int, clocks: Clocks) -> str:
    """The known order of two commands, and advice how to order them."""
    commands, names = clocks.queues.commands, clocks.queues.names
    known: list[str] = []
    for own, against in ((first, second), (second, first)):
        queue = clocks.queues.queue_of[against]
        after = int(clocks.rows[own, queue])
        last = f"command {after} of {names[queue].text}" if after else f"no command of {names[queue].text}"
        known.append(f"{commands[own].label} is known to start after {last}")
    one, other = commands[first], commands[second]
    if one.core == other.core:
        advice = "give the later one a dep on the earlier one's id"
        advice += f" ({type(one).__name__} {one.id} dep={other.id}, or {type(other).__name__} {other.id} dep={one.id})"
    else:
        advice = "let the core of the earlier one send a message after it and the other wait for it before the later"
    return f"{', '.join(known)}; {advice}"
