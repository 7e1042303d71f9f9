"""What a schedule does row by row, found without the compiler, and what a placement of its buffers must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from xdsl.ir import Operation, SSAValue

from builders.groups import X, add, outside, value, weight
from tpusim import chips
from tpusim.layer_group.local_memory import buffers
from tpusim.ops.framework.base import TpuOp
from tpusim.schedule import Allocation, Buffer, GroupSchedule, Row, Subgraph, Transferred, subgraph


@dataclass
class Dag:
    """A random group; `users` keeps the outside users alive."""

    graph: Subgraph
    users: list[Operation]


def random_dag(rng: np.random.Generator, *, weights: bool = False) -> Dag:
    """2 to 7 ops with 1 to 3 operands each and several outputs."""
    shape = (1, 1, 4, 4)
    values = [value(shape) for _ in range(int(rng.integers(1, 4)))]
    ops: list[TpuOp] = []
    for _ in range(int(rng.integers(2, 8))):
        picked = {int(rng.integers(max(len(values) - 4, 0), len(values))) for _ in range(int(rng.integers(1, 4)))}
        operands = [values[i] for i in sorted(picked)] + [weight(shape)] * (weights and bool(rng.integers(2)))
        ops.append(add(*operands))
        values.append(ops[-1].results[0])
    inside = [op.results[0] for op in ops]
    users: list[Operation] = [outside(v) for v in inside if not list(v.uses) or rng.integers(4) == 0]
    return Dag(subgraph(ops, X), users)


def events(rows: Sequence[Row], steps: int) -> Iterator[tuple[int, int, int, TpuOp | Transferred]]:
    """(iteration, row, step, item) in order by layer_group.md 15, without held tensors."""
    for iteration in range(steps + 2):
        for index, row in enumerate(rows):
            for op in row.layers:
                if 0 <= iteration - 1 < steps:
                    yield iteration, index, iteration - 1, op
            for transfer in row.transfers:
                step = iteration - transfer.stage
                if 0 <= step < steps:
                    yield iteration, index, step, transfer


Access = tuple[SSAValue, str, bool]
"""(tensor, engine, whether it writes)."""


def accesses(item: TpuOp | Transferred) -> set[Access]:
    if isinstance(item, Transferred):
        return {(item.value, "dma", item.kind == "load")}
    return {*((v, "tiu", False) for v in item.operands), *((v, "tiu", True) for v in item.results)}


def clashes(row: set[Access]) -> bool:
    """Whether one engine writes what the other one touches."""
    return any(a[0] is b[0] and a[1] != b[1] and (a[2] or b[2]) for a, b in combinations(row, 2))


def replay(graph: Subgraph, rows: Sequence[Row], steps: int) -> Counter[tuple[SSAValue, int]]:
    """Run the schedule with one buffer per tensor that holds a step number; returns how often each was stored."""
    holds: dict[SSAValue, int] = {}
    stored: Counter[tuple[SSAValue, int]] = Counter()
    now, touched = (-1, -1), set[Access]()
    for iteration, index, step, item in events(rows, steps):
        touched = touched | accesses(item) if (iteration, index) == now else accesses(item)
        now = iteration, index
        assert not clashes(touched), "an engine writes what the other one uses in this row"
        if isinstance(item, Transferred):
            if item.kind == "load":
                holds[item.value] = step
            else:
                assert holds.get(item.value) == step, "a stale tensor is stored"
                stored[item.value, step] += 1
        else:
            assert all(holds.get(v) == step for v in item.operands), "a stale tensor is read"
            holds[item.results[0]] = step
    return stored


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def check_placement(found: Allocation, placed: Sequence[Buffer], count: int, chip: chips.ChipSpec) -> None:
    """Validity tests a and d: no two live buffers share bytes, nothing shares with a held one, all is inside."""
    spans = {b.owner: (found.address[b.owner], found.address[b.owner] + b.size) for b in placed}
    assert all(low >= 0 and high <= chip.lmem_bytes for low, high in spans.values())
    assert all(low % chip.eu_bytes == 0 for low, _ in spans.values())
    assert found.peak_bytes == max(high for _, high in spans.values())
    for a, b in combinations(placed, 2):
        if a.held or b.held or a.rows(count) & b.rows(count):
            assert not overlap(spans[a.owner], spans[b.owner])


def plan_buffers(found: GroupSchedule, chip: str) -> list[Buffer]:
    return buffers(found.graph, found.rows, found.slices, chips.load(chip), steps=found.sections.steps)
