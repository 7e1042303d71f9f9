"""Candidate groups: runs of ops that may work from local memory, and what enters and leaves them (layer_group.md 2)."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor, shape_of
from tpusim.ops.base import Axis, GroupType, TpuOp, logical_shape
from tpusim.ops.structure import TopNone, TopWeight

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
    """Consecutive ops of one candidate group.

    inputs: activations made outside; weights: constants read inside; outputs: values used outside, or by no op, in
    program order.
    kind: how the group sees its tensors. memo: what was asked of single ops and tensors, shared by the candidates of
    one search; a module must not change while its memo is in use.
    """

    ops: tuple[TpuOp, ...]
    inputs: tuple[SSAValue, ...]
    weights: tuple[SSAValue, ...]
    outputs: tuple[SSAValue, ...]
    kind: GroupType = GroupType.NORMAL
    memo: "Memo" = field(default_factory=lambda: Memo(), repr=False, compare=False)

    def cuts(self, op: TpuOp, axis: Axis) -> bool:
        """Whether the result of `op` may be cut along `axis` in this group."""
        return op.can_slice_in(axis, self.kind)

    @cached_property
    def compact(self) -> frozenset[SSAValue]:
        """Constants stored without EU alignment: every op of the group reads them at a compact operand."""
        uses = [(v, i in op.compact_operands()) for op in self.ops for i, v in enumerate(op.operands)]
        spread = {v for v, is_compact in uses if not is_compact}
        return frozenset(w for w in self.weights if w not in spread)

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


def subgraph(ops: Sequence[TpuOp], kind: GroupType = GroupType.NORMAL, memo: Memo | None = None) -> Subgraph:
    """The subgraph of some consecutive ops, as a group of type `kind`."""
    inside = set(ops)
    inputs: dict[SSAValue, None] = {}
    weights: dict[SSAValue, None] = {}
    for op in ops:
        for value in op.operands:
            if not is_tensor(value) or value.owner in inside:
                continue
            (weights if isinstance(value.owner, TopWeight) else inputs)[value] = None
    outputs = [op.results[0] for op in ops if _leaves(op.results[0], inside)]
    return Subgraph(tuple(ops), tuple(inputs), tuple(weights), tuple(outputs), kind, memo or Memo())


def _leaves(value: SSAValue, inside: Set[Operation]) -> bool:
    """Whether a result is stored. Decision: so is one that nothing uses: the module asks for it."""
    return value.first_use is None or any(use.operation not in inside for use in value.uses)


def base_groups(model: Model, chip: ChipSpec) -> Iterator[tuple[list[TpuOp], str | None]]:
    """(ops, None) for runs of ops that can be local, ([op], reason) for an op that cannot; constants do not count."""
    run: list[TpuOp] = []
    for op in model.ops:
        if isinstance(op, TopWeight | TopNone):
            continue
        why = op.why_global(chip) or _too_long(op, chip) if isinstance(op, TpuOp) else ""
        if why is None:
            assert isinstance(op, TpuOp)
            run.append(op)
            if op.slides_over_depth():
                *parts, run = _apart(run)
                yield from ((part, None) for part in parts)
            continue
        if run:
            yield run, None
            run = []
        if isinstance(op, TpuOp):
            yield [op], why
    if run:
        yield run, None


def _apart(run: list[TpuOp]) -> list[list[TpuOp]]:
    """A run that ends at an op with windows over volumes: what broadcasts along their depth before it stands alone."""
    parts: list[list[TpuOp]] = [[]]
    for op in run:
        if op.broadcasts_depth():
            parts += [[op], []]
        else:
            parts[-1].append(op)
    return [part for part in parts if part]


def _too_long(op: TpuOp, chip: ChipSpec) -> str | None:
    """Why an activation is longer than a command's operand may be; only its rows could be cut."""
    values = [v for v in (*op.operands, *op.results) if is_tensor(v) and not isinstance(v.owner, TopWeight)]
    longest = max((max(logical_shape(shape_of(v))[1:]) for v in values), default=0)
    return None if longest <= chip.max_axis else f"an axis of {longest}, above {chip.max_axis}"


def group_types(ops: Sequence[TpuOp], chip: ChipSpec, memo: Memo | None = None) -> tuple[GroupType, ...]:
    """The types the ops may be a group of, the preferred one first (layer_group.md 3).

    3D if an op asks for it; SMALL_C, MM only for two ops or more, and where the chip has them; else NORMAL.
    """
    order: list[GroupType] = [GroupType.NORMAL]
    if any(op.wants_3d() for op in ops):
        order = [GroupType.GROUP_3D, GroupType.NORMAL]
    elif chip.has_group_types and len(ops) > 1:
        order = [GroupType.SMALL_C, GroupType.MM, GroupType.NORMAL]
    known = memo or Memo()

    def takes(kind: GroupType, op: TpuOp) -> bool:
        return known.get(("in", op, kind), lambda: op.why_not_in(kind, chip) is None)

    return tuple(kind for kind in order if all(takes(kind, op) for op in ops))
