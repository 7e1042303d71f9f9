"""Why something does not fit local memory: the row, its buffers with their bytes, and what would have to change."""

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name
from tpusim.layer_group.candidates import group_types
from tpusim.layer_group.local_memory import allocate, buffers
from tpusim.layer_group.planning.group import plan
from tpusim.layer_group.planning.rows import schedule
from tpusim.layer_group.slicing import SliceError, max_sections, possible_sections, slice_group
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.ops.interfaces import is_in_place
from tpusim.schedule import Buffer, GroupSchedule, Sections, Subgraph, ValueSlices, subgraph, tensor_name

MOST_NAMED = 4
"""Number of buffers that a message names; the others are summed."""


def explained(op: TpuOp, why: str, chip: ChipSpec) -> str:
    """Why an op stays global; if it fits at no slicing, with its buffers and what must change."""
    kinds = group_types([op], chip) if op.why_not_local(chip) is None and not is_in_place(op) else ()
    if not kinds:
        return why
    graph = subgraph([op], chip, kinds[0])
    try:
        slice_group(graph, max_sections(graph, chip), chip)
    except SliceError as error:
        whole = shortage(graph, chip, Sections())
        return why if whole is None else f"{whole}; finer cuts fail: {error}"
    return shortage(graph, chip) or why


def shortage(graph: Subgraph, chip: ChipSpec, sections: Sections | None = None) -> str | None:
    """Which buffers of which row do not fit at these sections (default: the finest cut); None if they do fit.

    Also None if the sections cannot be made, because memory is not the reason then.
    """
    at = sections or max_sections(graph, chip)
    try:
        slices = slice_group(graph, at, chip)
    except SliceError:
        return None
    rows = schedule(graph)
    found = buffers(graph, rows, slices, chip, steps=at.steps)
    needs = [[b for b in found if r in b.rows(len(rows))] for r in range(len(rows))]
    row, worst = max(enumerate(needs), key=lambda pair: sum(b.size for b in pair[1]))
    need = sum(b.size for b in worst)
    if need <= chip.lmem_bytes:
        if allocate(found, rows, chip) is not None:
            return None
        lead = f"the buffers of row {row} take {need:,} bytes per lane at {at}, {chip.name} has {chip.lmem_bytes:,}, "
        return (
            f"{lead}but they have no placement: {_named(worst, graph)}; {_change(graph, chip, sections, slices, worst)}"
        )
    finest = "" if sections else "at the finest cut, "
    return (
        f"local memory needs {need:,} bytes per lane at {at}, {chip.name} has {chip.lmem_bytes:,}; {finest}"
        f"row {row} of {len(rows)} has {_named(worst, graph)}; {_change(graph, chip, sections, slices, worst)}"
    )


def _named(worst: Sequence[Buffer], graph: Subgraph) -> str:
    """The largest buffers with what they are."""
    order = sorted(worst, key=lambda b: -b.size)
    parts = [f"{_what(b, graph)} {b.size:,}" for b in order[:MOST_NAMED]]
    if len(order) > MOST_NAMED:
        rest = order[MOST_NAMED:]
        parts.append(f"{len(rest)} more {sum(b.size for b in rest):,}")
    return ", ".join(parts)


def _what(buffer: Buffer, graph: Subgraph) -> str:
    owner = buffer.owner
    if not isinstance(owner, SSAValue):
        return f"work area of '{op_name(owner)}'"
    kind = "constant" if owner in graph.constants else "input" if owner in graph.inputs else "result"
    return f"{kind} '{tensor_name(owner)}'" + (" (held)" if buffer.held else "")


def _change(
    graph: Subgraph,
    chip: ChipSpec,
    sections: Sections | None,
    slices: Mapping[SSAValue, ValueSlices],
    worst: Sequence[Buffer],
) -> str:
    """What would have to change: sections that fit, or the bytes that the largest area may take."""
    if sections is not None:
        found = plan(graph.ops, chip, kind=graph.kind)
        if isinstance(found, GroupSchedule):
            return f"it fits at {found.sections}"
    largest = max(worst, key=lambda b: b.size)
    room = max(chip.lmem_bytes - sum(b.size for b in worst if b is not largest), 0)
    shorter = " or end the group earlier" if len(graph.ops) > 1 else ""
    target = f"{_what(largest, graph)} would have to take at most {room:,} bytes per lane"
    if room == 0:
        target = f"{_what(largest, graph)} and others would have to shrink"
    owner = largest.owner
    if isinstance(owner, SSAValue) and owner in graph.constants:
        return f"{target}, and a constant is not cut with rows: fewer channels per op, narrower weights{shorter}"
    length = {axis: len(cuts) for axis in AXES if isinstance(owner, SSAValue) and (cuts := slices[owner].along(axis))}
    now = ", ".join(f"{axis} in {count}" for axis, count in length.items() if count > 1)
    state = f" (cut {now})" if now else ""
    limit = f"at most {possible_sections(graph, chip)} are possible on {chip.name}"
    return f"{target}{state}, {limit}: a smaller tensor{shorter}, or an op or a chip that cuts another axis"
