"""Candidate groups: runs of ops that may work from local memory, and what enters and leaves them (layer_group.md 2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Operation, SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.module import Model
from tpusim.ir.types import is_tensor
from tpusim.ops.base import TpuOp
from tpusim.ops.structure import TopNone, TopWeight


@dataclass(frozen=True)
class Subgraph:
    """Consecutive ops of one candidate group.

    inputs: activations made outside; weights: constants read inside; outputs: values used outside, in program order.
    """

    ops: tuple[TpuOp, ...]
    inputs: tuple[SSAValue, ...]
    weights: tuple[SSAValue, ...]
    outputs: tuple[SSAValue, ...]

    @cached_property
    def compact(self) -> frozenset[SSAValue]:
        """Constants stored without EU alignment: every op of the group reads them at a compact operand."""
        uses = [(v, i in op.COMPACT_OPERANDS) for op in self.ops for i, v in enumerate(op.operands)]
        spread = {v for v, is_compact in uses if not is_compact}
        return frozenset(w for w in self.weights if w not in spread)

    @cached_property
    def constants(self) -> frozenset[SSAValue]:
        """The weights as a set."""
        return frozenset(self.weights)

    @property
    def values(self) -> tuple[SSAValue, ...]:
        """Every tensor that lives in local memory: inputs, weights, results."""
        return (*self.inputs, *self.weights, *(op.results[0] for op in self.ops))


def subgraph(ops: Sequence[TpuOp]) -> Subgraph:
    """The subgraph of some consecutive ops."""
    inside = set(ops)
    inputs: dict[SSAValue, None] = {}
    weights: dict[SSAValue, None] = {}
    for op in ops:
        for value in op.operands:
            if not is_tensor(value) or value.owner in inside:
                continue
            (weights if isinstance(value.owner, TopWeight) else inputs)[value] = None
    outputs = [op.results[0] for op in ops if any(u.operation not in inside for u in op.results[0].uses)]
    return Subgraph(tuple(ops), tuple(inputs), tuple(weights), tuple(outputs))


def base_groups(model: Model, chip: ChipSpec) -> Iterator[tuple[list[TpuOp], str | None]]:
    """(ops, None) for runs of ops that can be local, ([op], reason) for an op that cannot; constants do not count."""
    run: list[TpuOp] = []
    for op in model.ops:
        if isinstance(op, TopWeight | TopNone):
            continue
        why = op.why_global(chip) if isinstance(op, TpuOp) else ""
        if why is None:
            assert isinstance(op, TpuOp)
            run.append(op)
            continue
        if run:
            yield run, None
            run = []
        if isinstance(op, TpuOp):
            yield [op], why
    if run:
        yield run, None


def users_inside(value: SSAValue, ops: Sequence[Operation]) -> list[tuple[TpuOp, int]]:
    """(op, operand index) of every use of `value` by one of `ops`."""
    inside = set(ops)
    return [(u.operation, u.index) for u in value.uses if u.operation in inside]  # type: ignore[misc]
