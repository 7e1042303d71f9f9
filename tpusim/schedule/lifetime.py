"""Lifetimes of tensors: from the row that makes one to the row of its last use, around the loop (layer_group.md 9)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import PIPELINE_STAGES
from tpusim.schedule.group import GroupSchedule
from tpusim.schedule.rows import Row


@dataclass(frozen=True)
class Buffer:
    """One local-memory area. start > end means the lifetime wraps around the loop; held: it lives in every row."""

    owner: SSAValue | TpuOp
    """The tensor, or the op whose work area this is."""
    size: int
    """Bytes per lane."""
    start: int
    end: int
    held: bool = False

    def rows(self, count: int) -> frozenset[int]:
        """Rows in which the buffer is alive."""
        return frozenset(row for first, end in self.spans(count) for row in range(first, end))

    def spans(self, count: int) -> tuple[tuple[int, int], ...]:
        """The rows as one interval (first row, one past the last), or two if they wrap around the end of the loop."""
        if self.held:
            return ((0, count),)
        if self.start <= self.end:
            return ((self.start, self.end + 1),)
        return (self.start, count), (0, self.end + 1)


def lifetimes(rows: Sequence[Row]) -> dict[SSAValue, tuple[int, int]]:
    """(row that makes it, row of its last use) of every tensor, in the order of one step.

    A tensor that is still needed when the next step makes it lives in all rows.
    """
    born: dict[SSAValue, int] = {}
    died: dict[SSAValue, int] = {}
    count = len(rows)
    for stage in range(PIPELINE_STAGES):
        for index, row in enumerate(rows):
            _date(row, stage, stage * count + index, born, died)
    return {v: _rows(at, max(died.get(v, at), at), count) for v, at in born.items()}


def _date(row: Row, stage: int, now: int, born: dict[SSAValue, int], died: dict[SSAValue, int]) -> None:
    """Record the tensors that one stage makes and uses in a row; `now` counts rows from the first row of the step."""
    if stage == 1:
        for op in row.layers:
            born[op.results[0]] = now
            died |= dict.fromkeys(op.operands, now)
    for transfer in row.transfers:
        if transfer.stage == stage:
            (born if transfer.kind == "load" else died)[transfer.value] = now


def _rows(born: int, died: int, count: int) -> tuple[int, int]:
    return (0, count - 1) if died - born >= count else (born % count, died % count)


def areas(schedule: GroupSchedule) -> list[Buffer]:
    """The areas of a scheduled group with their lifetimes, in the order of its ops and transfers."""
    size, rows = schedule.allocation.size, schedule.rows
    found = [Buffer(v, size[v], *life, held=schedule.held(v)) for v, life in lifetimes(rows).items()]
    work = ((op, index) for index, row in enumerate(rows) for op in row.layers if op in size)
    return [*found, *(Buffer(op, size[op], index, index) for op, index in work)]


def marks(rows: Sequence[Row]) -> Mapping[SSAValue | TpuOp, Mapping[int, str]]:
    """The uses of every tensor and work area by row: `L` loaded, `W` computed, `S` stored, `R` read, in this order."""
    found: dict[SSAValue | TpuOp, dict[int, str]] = {}
    for index, row in enumerate(rows):
        happens: dict[str, Sequence[SSAValue | TpuOp]] = {
            "L": [t.value for t in row.transfers if t.kind == "load"],
            "W": [made for op in row.layers for made in (op, *op.results)],
            "S": [t.value for t in row.transfers if t.kind == "store"],
            "R": [value for op in row.layers for value in op.operands],
        }
        for mark, owners in happens.items():
            for owner in dict.fromkeys(owners):
                of_owner = found.setdefault(owner, {})
                of_owner[index] = of_owner.get(index, "") + mark
    return found
