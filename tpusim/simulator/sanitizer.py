"""Checks that depend on no value and on no timing, done once per program.

* `check_bounds`: every view lies inside one memory, nothing writes coefficients.
* `check_races`: commands of different engines that no dependency orders touch no common byte, unless both only read.
* `check_poison`: every byte is written before it is read. With races excluded, one order stands for all.
"""

from dataclasses import dataclass

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.commands import AnyCommand, Engine
from tpusim.isa.layout import extent
from tpusim.isa.region import View
from tpusim.isa.stream import Program
from tpusim.simulator.memory import Memory, Shadow, span_text
from tpusim.simulator.schedule import Queues
from tpusim.simulator.stored import StoredTensors


def check_bounds(commands: tuple[AnyCommand, ...], memory: Memory) -> None:
    """Raise SimulationError for a view outside its memory or a write to a read-only region."""
    for command in commands:
        for view in command.reads():
            memory.check(view, command.label, writing=False)
        for view in command.writes():
            memory.check(view, command.label, writing=True)


def check_poison(program: Program, order: list[int], shadow: Shadow) -> None:
    """Raise SimulationError for a read of bytes that nothing wrote, or a stored tensor with a gap."""
    for entry in program.inputs:
        shadow.mark(entry.view, f"input '{entry.name}'")
    stored = StoredTensors(program)
    for entry in stored.ready():
        shadow.require(entry.view, f"tensor '{entry.name}', complete from the start,")
    for index in order:
        command = program.commands[index]
        for view in command.reads():
            shadow.require(view, command.label)
        for view in command.writes():
            shadow.mark(view, command.label)
        for entry in stored.finished(index):
            shadow.require(entry.view, f"tensor '{entry.name}', complete after {command.label},")


@dataclass(frozen=True)
class _Access:
    """Every view of one engine in issue order, its extent as columns of numbers."""

    owner: np.ndarray
    """Position of the command in its queue, ascending."""
    command: list[AnyCommand]
    views: list[View]
    columns: np.ndarray
    """Per view: is_lmem, start, stop, first lane, last lane, is_write."""


def _accesses(queues: Queues, engine: Engine, chip: ChipSpec) -> _Access:
    owner: list[int] = []
    commands: list[AnyCommand] = []
    views: list[View] = []
    rows: list[tuple[int, ...]] = []
    for position, index in enumerate(queues.indices[engine]):
        command = queues.commands[index]
        for writes, found in ((0, command.reads()), (1, command.writes())):
            for view in found:
                reach = extent(view, chip)
                lmem = int(reach.memory == "lmem")
                rows.append((lmem, reach.start, reach.stop, reach.first_lane, reach.last_lane, writes))
                owner.append(position)
                commands.append(command)
                views.append(view)
    columns = np.array(rows, np.int64).reshape(-1, 6)
    return _Access(np.array(owner, np.int64), commands, views, columns)


def _waits(queues: Queues, engine: Engine) -> np.ndarray:
    """Per command of the queue: how many commands of the other engine have surely finished when it starts."""
    deps = [queues.commands[index].dep for index in queues.indices[engine]]
    return np.maximum.accumulate(np.array([0, *deps], np.int64))[1:]


def _overlapping(columns: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Rows of `columns` whose extents meet that of `row`, at least one of the two writing."""
    return np.flatnonzero(
        (columns[:, 0] == row[0])
        & (columns[:, 1] < row[2])
        & (row[1] < columns[:, 2])
        & (columns[:, 3] <= row[4])
        & (row[3] <= columns[:, 4])
        & ((columns[:, 5] | row[5]) == 1)
    )


def check_races(queues: Queues, memory: Memory) -> None:
    """Raise SimulationError if two commands that no dependency orders touch a common byte and one of them writes.

    TIU command k runs after the first waits[k] DMA commands; the DMA commands that must wait for k form the tail of the
    DMA queue. What is between is concurrent with k: one contiguous window. `memory` is scratch and stays clean.
    """
    tiu = _accesses(queues, "tiu", memory.chip)
    gdma = _accesses(queues, "gdma", memory.chip)
    before = _waits(queues, "tiu")[tiu.owner]
    behind = np.searchsorted(_waits(queues, "gdma"), tiu.owner + 1)
    starts: list[int] = np.searchsorted(gdma.owner, before).tolist()
    stops: list[int] = np.searchsorted(gdma.owner, behind).tolist()
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if start >= stop:
            continue
        for near in _overlapping(gdma.columns[start:stop], tiu.columns[i]):
            j = start + int(near)
            if _share_bytes(tiu.views[i], gdma.views[j], memory):
                raise _race((tiu, i), (gdma, j), memory.chip)


def _share_bytes(first: View, second: View, scratch: Memory) -> bool:
    """Whether two views have a byte in common, exactly."""
    marked = [window for _, window in scratch.cells(first, as_bytes=True)]
    for window in marked:
        window[...] = 1
    shared = any(bool(window.any()) for _, window in scratch.cells(second, as_bytes=True))
    for window in marked:
        window[...] = 0
    return shared


def _race(one: tuple[_Access, int], other: tuple[_Access, int], chip: ChipSpec) -> SimulationError:
    def phrase(access: _Access, i: int) -> str:
        verb = "writes" if access.columns[i, 5] else "reads"
        return f"{access.command[i].label} {verb} {span_text(extent(access.views[i], chip))}"

    return SimulationError(
        f"race: {phrase(*one)} and {phrase(*other)} overlap, and no dependency orders the two; "
        "give the later one a dep on the earlier one's id"
    )
