"""Whether a planned group works: its loop replayed on spans of bytes (the validity tests of layer_group.md 16).

Every span of local memory remembers what was written to it last. Errors are a read of other content, a row in which
one engine writes bytes that the other accesses, and an output that is not stored exactly once per step.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations, groupby, product
from typing import NamedTuple

from xdsl.ir import SSAValue

from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.types import is_tensor
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import PIPELINE_STAGES
from tpusim.schedule import GroupSchedule, Scheduled, Transferred, Turn, edge_step, turns

ENOUGH_STEPS = PIPELINE_STAGES + 1
"""Steps to replay: a longer loop only repeats the iteration in which every stage works on another step."""
Content = tuple[SSAValue | TpuOp, int, int]
"""(a tensor or an op's work area, step, id of its group)."""


class Use(NamedTuple):
    """An engine's access: a span of bytes, and its content before a read or after a write."""

    content: Content
    start: int
    stop: int
    writes: bool

    def meets(self, other: "Use") -> bool:
        """Whether the two share bytes and one of them writes."""
        return self.start < other.stop and other.start < self.stop and (self.writes or other.writes)


class EntryUses(NamedTuple):
    """An op or a transfer at one step, with its accesses in order: reads first."""

    what: Scheduled
    uses: tuple[Use, ...]


class RowUses(NamedTuple):
    """The accesses of both engines in one row of one iteration."""

    iteration: int
    row: int
    tiu: list[EntryUses]
    dma: list[EntryUses]


def problem(*plans: GroupSchedule, most: int = ENOUGH_STEPS) -> str | None:
    """The first error in schedule or placement of consecutive groups; None if they are right.

    most: steps of each group to replay, at most those of a core.
    """
    memory = _Memory({r: v for plan in plans for r, v in plan.allocation.reused.items()})
    for number, plan in enumerate(plans):
        for row in rows_of(plan, most):
            found = memory.clash(row) or memory.run(row)
            if found is not None:
                group = f"group {number}, " if len(plans) > 1 else ""
                return f"{group}iteration {row.iteration}, row {row.row}: {found}"
    for plan in plans:
        for value, step in product(plan.graph.outputs, range(steps_of(plan, most))):
            count = memory.stored[value, step]
            if count != 1:
                return f"'{value_name(value)}' is stored {count} times at step {step}"
    return None


def steps_of(plan: GroupSchedule, most: int = ENOUGH_STEPS) -> int:
    """The number of steps of the loop to replay."""
    return min(plan.sections.steps, most, ENOUGH_STEPS)


def rows_of(
    plan: GroupSchedule, most: int = ENOUGH_STEPS, iterations: Iterable[int] | None = None
) -> Iterator[RowUses]:
    """The accesses in every row of the replayed loop, ops before transfers; both run in parallel."""
    running = turns(plan, range(steps_of(plan, most)), iterations)
    for (iteration, row), found in groupby(running, key=lambda turn: (turn.iteration, turn.row)):
        items = [_item(turn) for turn in found]
        dma = [item for item in items if isinstance(item.what, Transferred)]
        yield RowUses(iteration, row, items[: len(items) - len(dma)], dma)


def _item(turn: Turn) -> EntryUses:
    """The accesses of an item; a transfer for an adjacent group belongs to that group's first or last replayed step."""
    step = min(turn.step, steps_of(turn.home) - 1)
    return EntryUses(turn.item, tuple(_uses(turn.item, step, turn.home)))


def edge_item(transfer: Transferred, home: GroupSchedule) -> EntryUses:
    """A load of a group's first step, or a store of its last one."""
    return _item(Turn(0, 0, transfer, edge_step(transfer, home), home))


def _uses(item: Scheduled, step: int, home: GroupSchedule) -> Iterator[Use]:
    """The accesses of an op (operands, work area, result) or of a transfer: a load writes, a store reads."""
    if isinstance(item, Transferred):
        yield _use(item.value, step, home, writes=item.kind == "load")
        return
    yield from (_use(v, step, home, writes=False) for v in item.operands if is_tensor(v))
    if item in home.allocation.address:
        yield _use(item, step, home, writes=True)
    yield _use(item.results[0], step, home, writes=True)


def _use(owner: SSAValue | TpuOp, step: int, home: GroupSchedule, *, writes: bool) -> Use:
    at = 0 if isinstance(owner, SSAValue) and home.slices[owner].resident else step
    start = home.allocation.address[owner]
    return Use((owner, at, id(home.graph)), start, start + home.allocation.size[owner], writes)


class _Memory:
    """The content of each span of local memory."""

    def __init__(self, reused: Mapping[SSAValue, SSAValue]) -> None:
        self._reused = reused
        self._spans: dict[Content, Use] = {}
        self.stored: Counter[tuple[SSAValue, int]] = Counter()

    def clash(self, row: RowUses) -> str | None:
        """The error if one engine writes bytes that the other accesses in this row."""
        tiu = [(item.what, use) for item in row.tiu for use in item.uses]
        for item in row.dma:
            for use in item.uses:
                met = next((what for what, other in tiu if use.meets(other)), None)
                if met is not None:
                    return f"{_named(item.what)} and {_named(met)} touch the same bytes"
        return None

    def run(self, row: RowUses) -> str | None:
        """Replay each engine's items in order; the engines share no bytes that either writes."""
        for item in chain(row.tiu, row.dma):
            if any(one.meets(other) and not self._in_place(one, other) for one, other in combinations(item.uses, 2)):
                return f"{_named(item.what)} writes bytes that it still reads"
            for use in item.uses:
                if use.writes:
                    self._write(use)
                elif use.content not in self._spans:
                    return f"{_named(item.what)} uses '{_owner(use.content)}' of step {use.content[1]}, which is gone"
            if isinstance(item.what, Transferred) and item.what.kind == "store":
                self.stored[item.what.value, item.uses[0].content[1]] += 1
        return None

    def _in_place(self, operand: Use, result: Use) -> bool:
        """Whether the op's result is planned to reuse all bytes of the operand."""
        owner = result.content[0]
        wanted = self._reused.get(owner) if isinstance(owner, SSAValue) else None
        return wanted is operand.content[0] and (operand.start, operand.stop) == (result.start, result.stop)

    def _write(self, use: Use) -> None:
        lost = [content for content, other in self._spans.items() if use.meets(other)]
        for content in lost:
            del self._spans[content]
        self._spans[use.content] = use


def _named(what: Scheduled) -> str:
    return f"'{op_name(what)}'" if isinstance(what, TpuOp) else f"the {what.kind} of '{value_name(what.value)}'"


def _owner(content: Content) -> str:
    owner = content[0]
    return value_name(owner) if isinstance(owner, SSAValue) else f"work of {op_name(owner)}"
