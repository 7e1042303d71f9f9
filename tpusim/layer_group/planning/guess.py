"""Which sections to try: the first guess, and the next ones if these do not work (layer_group.md 5, 10.2)."""

from collections.abc import Mapping
from dataclasses import replace

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.local_memory import tensor_bytes
from tpusim.layer_group.slicing import extents, shared, whole_slices
from tpusim.ops.framework.base import Axis, GroupType, TpuOp
from tpusim.schedule import Sections, Subgraph, ValueSlices, work_bytes

Slices = Mapping[SSAValue, ValueSlices]


def first_guess(graph: Subgraph, limit: Sections, chip: ChipSpec) -> Sections | None:
    """Sections from what single ops need (layer_group.md 5); None if the group cannot be cut as often as it must."""
    slices = whole_slices(graph, chip)
    guess = Sections()
    for op in graph.ops:
        rest = _times(op, graph, slices, chip)
        if rest == 1:
            continue
        found = _guess_of_op(rest, guess, limit, graph)
        if found is None:
            return None
        guess = found
    return guess


def _times(op: TpuOp, graph: Subgraph, slices: Slices, chip: ChipSpec) -> int:
    """Factor by which an uncut op exceeds local memory; the group decides which of its constants are compact."""
    compact = tuple([read.value in graph.compact for read in graph.reads(op) if read.constant])
    return graph.memo.get(
        ("times", op, graph.kind, compact, chip.lmem_bytes),
        lambda: ceil_div(op_bytes(op, graph, slices, chip), chip.lmem_bytes),
    )


def _guess_of_op(rest: int, guess: Sections, limit: Sections, graph: Subgraph) -> Sections | None:
    """The guess, raised so that an op that needs `rest` times the local memory has slices that may fit."""
    n = max(guess.n, min(rest, limit.n))
    rest = ceil_div(rest, n)
    c = guess.c
    if graph.kind in (GroupType.MM, GroupType.SMALL_C):
        c = max(c, limit.c if rest > limit.c else ceil_div(limit.c, limit.c // rest))
        rest = ceil_div(rest, c)
    d = max(guess.d, min(rest, limit.d))
    h, w = max(guess.h, ceil_div(rest, d)), guess.w
    if h > limit.h:
        h, w = limit.h, max(w, ceil_div(h, limit.h))
    return Sections(n, c, d, h, w) if w <= limit.w else None


def more_sections(sections: Sections, limit: Sections, graph: Subgraph, chip: ChipSpec) -> Sections | None:
    """The next counts to try (10.2): more along n, else c, if slices become smaller; else one more along d, h or w."""
    lengths = [extents(v, graph, chip) for v in graph.values]
    units: tuple[tuple[Axis, int], ...] = (
        ("n", max(e[0] for e in lengths)),
        ("c", max(ceil_div(e[1], chip.lanes) for e in lengths)),
    )
    for axis, units_along in units:
        now = sections.count(axis)
        for count in range(now + 1, limit.count(axis) + 1):
            if ceil_div(units_along, count) < ceil_div(units_along, now):
                return replace(sections, **{axis: count})
    if sections.image >= limit.image:
        return None
    return shared(sections.image + 1, limit, sections, graph, chip)


def op_bytes(op: TpuOp, graph: Subgraph, slices: Slices, chip: ChipSpec) -> int:
    """Bytes per lane that an op needs at once: operands, result and work area."""
    values = {v for v in (*op.operands, op.results[0]) if v in slices}
    return sum(tensor_bytes(v, slices[v], graph, chip) for v in values) + work_bytes(op, slices, graph, chip)
