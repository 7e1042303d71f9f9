"""In-place reuse: results that may reuse the bytes of an operand that dies in their row (layer_group.md 10.1)."""

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.types import is_tensor
from tpusim.layer_group.local_memory.allocation import Partners, allocate
from tpusim.layer_group.local_memory.sizes import buffers
from tpusim.layer_group.slicing import element_bytes_of
from tpusim.ops.interfaces import GroupRules, may_overwrite
from tpusim.schedule import Allocation, Buffer, Row, Subgraph, ValueSlices

Slices = Mapping[SSAValue, ValueSlices]


def place(graph: Subgraph, rows: Sequence[Row], slices: Slices, chip: ChipSpec, steps: int) -> Allocation | None:
    """Addresses of every buffer of a group, or None if they do not fit."""
    found = buffers(graph, rows, slices, chip, steps=steps)
    return allocate(found, rows, chip, able(graph, rows, slices, found, chip))


def able(graph: Subgraph, rows: Sequence[Row], slices: Slices, found: Sequence[Buffer], chip: ChipSpec) -> Partners:
    """The operands whose bytes results may reuse in this search."""
    return partners(graph, rows, slices, found, chip) if graph.memo.in_place else {}


def partners(graph: Subgraph, rows: Sequence[Row], slices: Slices, found: Sequence[Buffer], chip: ChipSpec) -> Partners:
    """The operands whose bytes each result may reuse.

    The operand dies in the row in which the result is made, is not transferred in that row and has one user in the
    group; both have the same slices, in the same layout, and as many bytes. Constants and tensors that stay for all
    steps are excluded, because they are read again.
    """
    if not rules(chip, GroupRules).RESULTS_IN_PLACE:
        return {}
    of = {b.owner: b for b in found}
    able: dict[SSAValue, tuple[SSAValue, ...]] = {}
    for number, row in enumerate(rows):
        moved = {t.value for t in row.transfers}
        for op in row.layers:
            result = op.results[0]
            candidates = (
                v
                for i, v in enumerate(op.operands)
                if is_tensor(v) and v not in graph.constants and v not in moved and may_overwrite(op, i, chip)
            )
            fitting = tuple(
                v
                for v in candidates
                if len(graph.users(v)) == 1
                and _ends_where_begins(of[v], of[result], number, len(rows))
                and of[v].size == of[result].size
                and element_bytes_of(v) == element_bytes_of(result)
                and same_layout(slices[v], slices[result])
            )
            if fitting:
                able[result] = fitting
    return able


def _ends_where_begins(operand: Buffer, result: Buffer, row: int, count: int) -> bool:
    """Whether the two are alive together in this row only."""
    return not operand.held and operand.rows(count) & result.rows(count) == frozenset([row])


def same_layout(one: ValueSlices, other: ValueSlices) -> bool:
    """Whether every slice of both tensors has the same layout in a lane; rows of a channel may be joined."""
    if (one.n, one.c, one.d) != (other.n, other.c, other.d):
        return False
    if (one.h, one.w) == (other.h, other.w):
        return True
    whole = all(len(windows) == 1 for s in (one, other) for windows in (s.h, s.w))
    return whole and one.h[0][1] * one.w[0][1] == other.h[0][1] * other.w[0][1]
