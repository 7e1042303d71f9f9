"""The ops of a group, and the tensors that enter and leave it."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import ask
from tpusim.ir.attrs import value_name
from tpusim.ir.types import is_tensor
from tpusim.ops.framework.base import Axis, GroupType, SliceTable, TpuOp
from tpusim.ops.interfaces import Alignment, LaneCopies, slice_table_of
from tpusim.ops.structure import TopWeight, TpuGroup

if TYPE_CHECKING:
    from tpusim.schedule.group import GroupSchedule
    from tpusim.schedule.rows import Row

T = TypeVar("T")
Arrange = Callable[["GroupSchedule"], "tuple[Row, ...]"]
"""A function that places the transfers of a group without addresses in rows."""


Costs = dict[object, float]
"""Nanoseconds of groups, by names that do not depend on the module."""


class Memo:
    """Results shared by the candidates of one search: those that do not depend on the rest of a group, by question.

    in_place: whether results may take the bytes of operands (layer_group.md 10.1, rule 6). A module must not change
    while its memo is in use; a memo is valid for one chip, with any size of local memory. costs: of groups by a
    description of their ops, also from searches in other modules of the chip. arrange: places the transfers of a
    candidate in its rows; None: each stays in the row of the op before its user.
    """

    def __init__(
        self, *, in_place: bool = False, costs: "Costs | None" = None, arrange: "Arrange | None" = None
    ) -> None:
        self.in_place = in_place
        self.arrange = arrange
        self.costs: Costs = {} if costs is None else costs
        self._answers: dict[object, Any] = {}

    def get(self, question: object, answer: Callable[[], T]) -> T:
        """The answer, computed the first time."""
        found = self._answers.get(question)
        if found is None:
            found = self._answers[question] = answer()
        return found


@dataclass(frozen=True)
class Subgraph:
    """Consecutive ops of one group.

    inputs: activations made outside; weights: constants read inside; outputs: values used outside, or by no op, in
    program order. compact: constants stored without EU alignment. kind: the type of the group. memo: results for single
    ops and tensors, shared by the candidates of one search; a module must not change while its memo is in use.
    """

    ops: tuple[TpuOp, ...]
    inputs: tuple[SSAValue, ...]
    weights: tuple[SSAValue, ...]
    outputs: tuple[SSAValue, ...]
    compact: frozenset[SSAValue]
    kind: GroupType = GroupType.NORMAL
    memo: "Memo" = field(default_factory=lambda: Memo(), repr=False, compare=False)

    def cuts(self, op: TpuOp, axis: Axis) -> bool:
        """Whether the result of `op` may be cut along `axis` in this group."""
        return op.can_slice_in(axis, self.kind)

    @cached_property
    def inside(self) -> frozenset[Operation]:
        """The group's ops as a set."""
        return frozenset(self.ops)

    def users(self, value: SSAValue) -> list[tuple[TpuOp, int]]:
        """(op, operand index) of every use of `value` by an op of the group."""
        inside = self._ids
        return [use for use in _uses(value, self.memo) if id(use[0]) in inside]  # type: ignore[misc]

    def reads(self, op: TpuOp) -> "tuple[Read, ...]":
        """The tensors that an op reads."""
        return _reads(op, self.memo)

    def tables(self) -> Iterator[tuple[TpuOp, SSAValue, SliceTable]]:
        """(op, constant, table) of the ops whose constants depend on how the group is cut."""
        for op in self.ops:
            if (table := slice_table_of(op)) is not None:
                yield op, op.operands[table.operand], table

    @cached_property
    def _ids(self) -> frozenset[int]:
        return frozenset(map(id, self.ops))

    @cached_property
    def constants(self) -> frozenset[SSAValue]:
        """The group's weights as a set."""
        return frozenset(self.weights)

    @cached_property
    def copied_by_loads(self) -> frozenset[SSAValue]:
        """The inputs whose loads copy each channel to several lanes, for the only op of the group that reads it."""
        asked = (op.operands[0] for op in self.ops if isinstance(op, LaneCopies) and op.copied_by_load())
        return frozenset(value for value in asked if value in self.inputs and len(self.users(value)) == 1)

    @property
    def values(self) -> tuple[SSAValue, ...]:
        """Every tensor that lives in local memory: inputs, weights, results."""
        return (*self.inputs, *self.weights, *(op.results[0] for op in self.ops))


def subgraph(
    ops: Sequence[TpuOp], chip: ChipSpec, kind: GroupType = GroupType.NORMAL, memo: Memo | None = None
) -> Subgraph:
    """The subgraph of some consecutive ops of a chip, as a group of type `kind`."""
    memo = memo or Memo()
    inside = set(map(id, ops))
    inputs: dict[SSAValue, None] = {}
    weights: dict[SSAValue, None] = {}
    aligned: set[SSAValue] = set()
    for op in ops:
        for read in _reads(op, memo):
            if id(read.value.owner) not in inside:
                (weights if read.constant else inputs)[read.value] = None
        aligned.update(memo.get(("aligned", op), lambda op=op: _aligned(op, chip)))
    outputs = [op.results[0] for op in ops if _leaves(op, inside, memo)]
    compact = frozenset(w for w in weights if w not in aligned)
    return Subgraph(tuple(ops), tuple(inputs), tuple(weights), tuple(outputs), compact, kind, memo)


class Read(NamedTuple):
    """A tensor that an op reads. at: the number of the operand."""

    at: int
    value: SSAValue
    constant: bool


def _reads(op: TpuOp, memo: Memo) -> tuple[Read, ...]:
    return memo.get(
        ("reads", op),
        lambda: tuple(Read(i, v, isinstance(v.owner, TopWeight)) for i, v in enumerate(op.operands) if is_tensor(v)),
    )


def _uses(value: SSAValue, memo: Memo) -> tuple[tuple[Operation, int], ...]:
    return memo.get(("uses", value), lambda: tuple((use.operation, use.index) for use in value.uses))


def _leaves(op: TpuOp, inside: Set[int], memo: Memo) -> bool:
    """Whether the op's result is stored. Decision: an unused result is stored, because it is a result of the module."""
    users = memo.get(("users", op), lambda: tuple(id(user) for user, _ in _uses(op.results[0], memo)))
    return not users or any(user not in inside for user in users)


def _aligned(op: TpuOp, chip: ChipSpec) -> tuple[SSAValue, ...]:
    """The operands that the op reads aligned; a constant that no op of its group reads aligned is compact."""
    compact = ask(op, Alignment, chip).compact_operands(chip)
    return tuple(v for i, v in enumerate(op.operands) if i not in compact)


def tensor_name(value: SSAValue) -> str:
    """The tensor's name; the result of a group is the tensor that is stored to it."""
    owner = value.owner
    return owner.store_of(value).tensor if isinstance(owner, TpuGroup) else value_name(value)
