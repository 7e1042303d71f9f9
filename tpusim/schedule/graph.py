"""What a group is made of: its ops, and the tensors that enter and leave it."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import value_name
from tpusim.ir.types import is_tensor
from tpusim.ops.base import Axis, GroupType, TpuOp
from tpusim.ops.structure import TopWeight, TpuGroup

T = TypeVar("T")


class Memo:
    """What the candidates of one search have in common: answers that do not depend on the rest of a group, by question.

    in_place: whether results may take the bytes of operands (layer_group.md 10.1, rule 6); reused: whether that made
    a difference so far.
    """

    def __init__(self, *, in_place: bool = False) -> None:
        self.in_place = in_place
        self.reused = False
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
    program order. compact: constants stored without EU alignment.
    kind: how the group sees its tensors. memo: what was asked of single ops and tensors, shared by the candidates of
    one search; a module must not change while its memo is in use.
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
        """The ops as a set."""
        return frozenset(self.ops)

    def users(self, value: SSAValue) -> list[tuple[TpuOp, int]]:
        """(op, operand index) of every use of `value` by an op of the group."""
        return [(u.operation, u.index) for u in value.uses if u.operation in self.inside]  # type: ignore[misc]

    @cached_property
    def constants(self) -> frozenset[SSAValue]:
        """The weights as a set."""
        return frozenset(self.weights)

    @property
    def values(self) -> tuple[SSAValue, ...]:
        """Every tensor that lives in local memory: inputs, weights, results."""
        return (*self.inputs, *self.weights, *(op.results[0] for op in self.ops))


def subgraph(
    ops: Sequence[TpuOp], chip: ChipSpec, kind: GroupType = GroupType.NORMAL, memo: Memo | None = None
) -> Subgraph:
    """The subgraph of some consecutive ops of a chip, as a group of type `kind`."""
    inside = set(ops)
    inputs: dict[SSAValue, None] = {}
    weights: dict[SSAValue, None] = {}
    for op in ops:
        for value in op.operands:
            if not is_tensor(value) or value.owner in inside:
                continue
            (weights if isinstance(value.owner, TopWeight) else inputs)[value] = None
    outputs = [op.results[0] for op in ops if _leaves(op.results[0], inside)]
    compact = _compact(ops, weights, chip)
    return Subgraph(tuple(ops), tuple(inputs), tuple(weights), tuple(outputs), compact, kind, memo or Memo())


def _leaves(value: SSAValue, inside: Set[Operation]) -> bool:
    """Whether a result is stored. Decision: one that nothing uses is stored too, because the module asks for it."""
    return value.first_use is None or any(use.operation not in inside for use in value.uses)


def _compact(ops: Iterable[TpuOp], weights: Iterable[SSAValue], chip: ChipSpec) -> frozenset[SSAValue]:
    """The constants that every op of the group reads at a compact operand."""
    spread = {v for op in ops for i, v in enumerate(op.operands) if i not in op.compact_operands(chip)}
    return frozenset(w for w in weights if w not in spread)


def tensor_name(value: SSAValue) -> str:
    """The tensor's name; the result of a group is the tensor that is stored to it."""
    owner = value.owner
    return value_name(owner.store_of(value).input if isinstance(owner, TpuGroup) else value)
