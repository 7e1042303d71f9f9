"""What intervals of ops are, whatever module they stand in: modules that differ in a few ops share costs of groups."""

from collections.abc import Hashable, Sequence

from xdsl.ir import Operation, SSAValue

from tpusim.ir.described import described
from tpusim.ops.base import TpuOp


class Names:
    """The intervals of a run by all that a group of them depends on; equal names are groups that cost the same.

    An op counts with its kind, attributes and types, and with the kinds of ops that it reads from and that read its
    results; a tensor with its users inside, in their order, and whether it leaves. Names and values do not count.
    """

    def __init__(self, ops: Sequence[TpuOp]) -> None:
        place: dict[Operation, int] = {op: i for i, op in enumerate(ops)}
        self._ops = [_number_of(op) for op in ops]
        self._reads = [[(v, place.get(v.owner), _users(v, place)) for v in op.operands] for op in ops]  # type: ignore[arg-type]
        self._made = [[_users(v, place) for v in op.results] for op in ops]

    def of(self, start: int, end: int) -> Hashable:
        """The name of the ops start..end as one group."""
        outside: dict[SSAValue, int] = {}
        reads = [
            (at - start, ()) if at is not None and start <= at < end else self._entering(v, users, start, end, outside)
            for some in self._reads[start:end]
            for v, at, users in some
        ]
        made = [
            (_inside(users, start, end), all(start <= user < end for user, _ in users), bool(users))
            for some in self._made[start:end]
            for users in some
        ]
        return tuple(self._ops[start:end]), tuple(reads), tuple(made)

    @staticmethod
    def _entering(
        value: SSAValue, users: Sequence[tuple[int, int]], start: int, end: int, outside: dict[SSAValue, int]
    ) -> Hashable:
        """A tensor from outside: its number among them, counted down, and its users."""
        return -1 - outside.setdefault(value, len(outside)), _inside(users, start, end)


def _inside(users: Sequence[tuple[int, int]], start: int, end: int) -> Hashable:
    return tuple([(user - start, index) for user, index in users if start <= user < end])


def _users(value: SSAValue, place: dict[Operation, int]) -> list[tuple[int, int]]:
    """(place in the run, number of the operand) of every use; -1: by an op that is not in the run."""
    return [(place.get(use.operation, -1), use.index) for use in value.uses]


def _number_of(op: TpuOp) -> int:
    """Of all that an op is by itself and between which kinds of ops it stands."""
    makers = tuple(value.owner.name if isinstance(value.owner, Operation) else "" for value in op.operands)
    readers = tuple(sorted({use.operation.name for value in op.results for use in value.uses}))
    return _number((described(op), makers, readers))


_numbers: dict[Hashable, int] = {}


def _number(description: Hashable) -> int:
    """The same number for the same description: numbers compare quickly."""
    return _numbers.setdefault(description, len(_numbers))
