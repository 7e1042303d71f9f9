"""Names of intervals of ops: intervals of equal name, in one module or in several, are costed once."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from tpusim.ir.described import described
from tpusim.ir.types import is_tensor
from tpusim.ops.framework.base import TpuOp

Uses = tuple[tuple[int, int], ...]
"""(place in the run, number of the operand) of the uses by ops of the run."""


class _Read(NamedTuple):
    """An operand: the place of the op that makes it, None outside the run, and its uses."""

    made: int | None
    uses: Uses


class _Made(NamedTuple):
    """A result: its uses, whether ops outside the run use it, and whether anything does."""

    uses: Uses
    leaves: bool
    used: bool


class Names:
    """Names of the intervals of a run, made of all that a group's cost depends on; equal names cost the same.

    The name includes each op's kind, attributes and types, the kinds of the ops that it reads from and that read its
    results, and each tensor's users inside in order, and whether it leaves the interval. It does not include names,
    values or the start of the interval: positions are relative to the op that reads or makes the tensor.
    """

    def __init__(self, ops: Sequence[TpuOp]) -> None:
        place: dict[Operation, int] = {op: i for i, op in enumerate(ops)}
        uses: dict[SSAValue, Uses] = {}
        for op in ops:
            uses.update((v, _uses(v, place)) for v in (*op.operands, *op.results) if v not in uses)
        self._kinds = [_number_of(op) for op in ops]
        self._reads = [[_Read(place.get(v.owner), uses[v]) for v in op.operands] for op in ops]  # type: ignore[arg-type]
        self._made = [[_made(v, uses[v]) for v in op.results] for op in ops]
        self._clips: dict[tuple[int, int, int], int] = {}
        self._windows = [[_number(self._clipped(at, 0, len(ops))) for at in range(len(ops))]]
        """[k][at]: the number of the name parts of 2**k ops from `at`, in an interval with all their producers, the
        other readers of these, and their readers."""
        self._spans = [self._span(at) for at in range(len(ops))]
        self._before: list[list[int]] = [[] for _ in range(len(ops) + 1)]
        """First op -> the ops for which an interval from it lacks one of these before it."""
        self._after: list[list[int]] = [[] for _ in range(len(ops) + 1)]
        """End -> the ops for which an interval up to it lacks one of these after it."""
        for at in range(len(ops)):
            first, last = self._spans[at]
            for start in range(first + 1, at + 1):
                self._before[start].append(at)
            for end in range(at + 1, last + 1):
                self._after[end].append(at)

    def of(self, start: int, end: int) -> Hashable:
        """The name of the ops start..end as one group; its size does not depend on their number."""
        found: list[int] = []
        begin = start
        for at in sorted({at for at in (*self._before[start], *self._after[end]) if start <= at < end}):
            found += (*self._window(begin, at), self._clip(at, start, end))
            begin = at + 1
        return (*found, *self._window(begin, end))

    def _window(self, start: int, end: int) -> tuple[int, ...]:
        """How many ops start..end are, and the numbers of two windows that cover them exactly."""
        if start == end:
            return (0,)
        level = (end - start).bit_length() - 1
        while level >= len(self._windows):
            half, reach = self._windows[-1], 1 << len(self._windows) - 1
            self._windows.append([_number(pair) for pair in zip(half, half[reach:], strict=False)])
        numbers = self._windows[level]
        return end - start, numbers[start], numbers[end - (1 << level)]

    def _clip(self, at: int, start: int, end: int) -> int:
        """The number of `_clipped`, which depends on the interval only as far as an op's tensors are used."""
        first, last = self._spans[at]
        asked = at, max(start, first), min(end, last + 1)
        found = self._clips.get(asked)
        if found is None:
            found = self._clips[asked] = _number(self._clipped(*asked))
        return found

    def _span(self, at: int) -> tuple[int, int]:
        """The first and the last op of the run that use an op's tensors."""
        places = [at, *(read.made for read in self._reads[at] if read.made is not None)]
        places += [user for one in (*self._reads[at], *self._made[at]) for user, _ in one.uses]
        return min(places), max(places)

    def _clipped(self, at: int, start: int, end: int) -> Hashable:
        """The name part of an op in the interval; ops outside count only as outside."""
        reads = [
            read.made - at if read.made is not None and start <= read.made < end else _inside(read.uses, at, start, end)
            for read in self._reads[at]
        ]
        made = [
            (inside := _inside(one.uses, at, start, end), one.leaves or len(inside) < len(one.uses), one.used)
            for one in self._made[at]
        ]
        return self._kinds[at], tuple(reads), tuple(made)


def _inside(uses: Uses, at: int, start: int, end: int) -> Uses:
    """The uses in the interval, by their distance from op `at`."""
    return tuple([(user - at, index) for user, index in uses if start <= user < end])


def _uses(value: SSAValue, place: dict[Operation, int]) -> Uses:
    """The uses of a tensor; empty for `none`, which many ops may share."""
    uses = value.uses if is_tensor(value) else ()
    return tuple((place[use.operation], use.index) for use in uses if use.operation in place)


def _made(value: SSAValue, uses: Uses) -> _Made:
    count = sum(1 for _ in value.uses)
    return _Made(uses, count > len(uses), count > 0)


def _number_of(op: TpuOp) -> int:
    """The number of an op's description: its kind, attributes and types, and the kinds of adjacent ops."""
    makers = tuple(value.owner.name if isinstance(value.owner, Operation) else "" for value in op.operands)
    readers = tuple(sorted({use.operation.name for value in op.results for use in value.uses}))
    return _number((described(op), makers, readers))


_numbers: dict[Hashable, int] = {}


def _number(description: Hashable) -> int:
    """The same number for the same description: numbers compare quickly."""
    return _numbers.setdefault(description, len(_numbers))
