"""One group: sections that work, found by quick search (layer_group.md 5, 10.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of, storage_dtype
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.graph import Subgraph, subgraph
from tpusim.layer_group.lifetime import buffers, tensor_bytes, work_bytes
from tpusim.layer_group.lmem import Allocation, allocate
from tpusim.layer_group.slicing import Sections, SliceError, ValueSlices, max_sections, slice_group
from tpusim.layer_group.timestep import Row, schedule
from tpusim.ops.base import TpuOp
from tpusim.ops.structure import TopInput

MAX_TRIES = 20
"""Section counts tried per group (sc_method_quick_search.MAX_TRY_NUM)."""
MAX_HALO = 1.5
"""A sliced group may recompute or reload at most half of a tensor's rows (check_hsecs, layer_group.md 7.4)."""


@dataclass(frozen=True)
class GroupPlan:
    """A group that is known to work."""

    graph: Subgraph
    sections: Sections
    slices: dict[SSAValue, ValueSlices]
    rows: list[Row]
    allocation: Allocation

    @cached_property
    def transfer_bytes(self) -> int:
        """Bytes the group moves from and to global memory."""
        values = (*self.graph.inputs, *self.graph.weights, *self.graph.outputs)
        return sum(_moved(self.slices[v], storage_dtype(element_of(v)).itemsize) for v in values)


def _moved(slices: ValueSlices, itemsize: int) -> int:
    """Bytes of all slices of a tensor, overlaps counted as often as they move."""
    return prod(sum(size for _, size in getattr(slices, axis)) for axis in "nchw") * itemsize


def whole_slices(graph: Subgraph) -> dict[SSAValue, ValueSlices]:
    """Every tensor uncut."""
    return {v: ValueSlices.whole(v) for v in graph.values}


def _op_bytes(op: TpuOp, graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> int:
    values = {v for v in (*op.operands, op.results[0]) if v in slices}
    return sum(tensor_bytes(v, slices[v], graph, chip) for v in values) + work_bytes(op, slices, chip)


def first_guess(graph: Subgraph, limit: Sections, chip: ChipSpec) -> Sections | None:
    """Sections from what single ops need (layer_group.md 5); None if the group cannot be cut as often as it must."""
    slices = whole_slices(graph)
    n, h = 1, 1
    for op in graph.ops:
        total = ceil_div(_op_bytes(op, graph, slices, chip), chip.lmem_bytes)
        n = max(n, min(total, limit.n))
        h = max(h, ceil_div(total, n))
    if h > limit.h:
        return None
    guess = Sections(n, h)
    if guess.steps == 1 and streams(graph, slices, chip):
        return _streamed(limit) if limit.steps > 1 else None
    return guess


def streams(graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> bool:
    """Whether the group should start with more than one section although one would fit.

    Decision: nothing runs before a network input is there, so its load is the only one that no other work can hide;
    cut in two, the second half loads while the first is computed. Inputs of less than a bank are not worth it.
    """
    if len(graph.ops) == 1:
        return False
    return any(
        isinstance(v.owner, TopInput) and tensor_bytes(v, slices[v], graph, chip) > chip.lmem_bank_bytes
        for v in graph.inputs
    )


def _streamed(limit: Sections) -> Sections:
    return Sections(2, 1) if limit.n > 1 else Sections(1, 2)


def _more(sections: Sections, limit: Sections, graph: Subgraph) -> Sections | None:
    """The next section counts to try: more batches if that makes slices smaller, else more rows."""
    batch = max(s.n[0][1] for s in whole_slices(graph).values())
    for n in range(sections.n + 1, limit.n + 1):
        if ceil_div(batch, n) < ceil_div(batch, sections.n):
            return Sections(n, sections.h)
    return Sections(sections.n, sections.h + 1) if sections.h < limit.h else None


def plan(ops: Sequence[TpuOp], chip: ChipSpec, sections: Sections | None = None) -> GroupPlan | str:
    """A working plan for these ops as one group, or why there is none.

    sections: use exactly these, however many rows they repeat, instead of searching.
    """
    graph = subgraph(ops)
    limit = max_sections(graph, chip)
    if sections is not None:
        return _forced(graph, sections, limit, chip)
    start = first_guess(graph, limit, chip)
    if start is None and len(ops) > 1:
        return "the group cannot be cut into as many sections as it needs"
    rows = schedule(graph)
    held = sum(tensor_bytes(w, ValueSlices.whole(w), graph, chip) for w in graph.weights)
    attempt: Sections | None = start or limit
    why = "no sections were tried"
    for _ in range(MAX_TRIES):
        if attempt is None:
            break
        if attempt.steps > 1 and held > chip.lmem_bytes:
            return f"resident coefficients need {held:,} bytes per lane, {chip.name} has {chip.lmem_bytes:,}"
        found = _attempt(graph, rows, attempt, chip)
        if isinstance(found, GroupPlan):
            return found
        why = found
        attempt = _more(attempt, limit, graph)
    return _with_bytes(why, graph, chip)


def _with_bytes(why: str, graph: Subgraph, chip: ChipSpec) -> str:
    """The reason, preceded by the bytes that made cutting necessary where it does not name them itself."""
    need = _least_bytes(graph, whole_slices(graph), chip)
    if "bytes per lane" in why or need <= chip.lmem_bytes:
        return why
    return f"local memory needs {need:,} bytes per lane at nsecs=1, hsecs=1, {chip.name} has {chip.lmem_bytes:,}; {why}"


def _forced(graph: Subgraph, sections: Sections, limit: Sections, chip: ChipSpec) -> GroupPlan | str:
    if sections.n > limit.n or sections.h > limit.h:
        return f"at most nsecs={limit.n}, hsecs={limit.h} are possible, got nsecs={sections.n}, hsecs={sections.h}"
    return _attempt(graph, schedule(graph), sections, chip, max_halo=inf)


def _attempt(
    graph: Subgraph, rows: list[Row], sections: Sections, chip: ChipSpec, max_halo: float = MAX_HALO
) -> GroupPlan | str:
    try:
        slices = slice_group(graph, sections, chip)
    except SliceError as error:
        return str(error)
    if len(graph.ops) > 1 and any(_halo(s) > max_halo for s in slices.values()):
        return f"halos at hsecs={sections.h} would repeat more than half of a tensor's rows"
    found = buffers(graph, rows, slices, chip, steps=sections.steps)
    allocation = allocate(found, rows, chip)
    if allocation is None:
        need = _least_bytes(graph, slices, chip)
        return (
            f"local memory needs {need:,} bytes per lane at nsecs={sections.n}, hsecs={sections.h}, "
            f"{chip.name} has {chip.lmem_bytes:,}"
        )
    return GroupPlan(graph, sections, slices, rows, allocation)


def _halo(slices: ValueSlices) -> float:
    """Rows of all slices over rows of the tensor."""
    end = max(i + s for i, s in slices.h)
    return sum(s for _, s in slices.h) / end


def _least_bytes(graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> int:
    """What the hungriest single op of the group needs at once."""
    return max(_op_bytes(op, graph, slices, chip) for op in graph.ops)
