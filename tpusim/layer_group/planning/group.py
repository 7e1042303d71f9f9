"""One group: its type, and working sections by quick search (layer_group.md 3, 5, 10.2)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf
from typing import TypeAlias

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.layer_group.candidates import group_types
from tpusim.layer_group.local_memory import able, buffers, overfull, place
from tpusim.layer_group.planning.guess import first_guess, more_sections, op_bytes
from tpusim.layer_group.planning.residency import resident_bytes
from tpusim.layer_group.planning.rows import schedule
from tpusim.layer_group.slicing import (
    SliceError,
    max_sections,
    possible_sections,
    slice_group,
    whole_slices,
)
from tpusim.ops.framework.base import Axis, GroupType, TpuOp
from tpusim.ops.interfaces import is_in_place
from tpusim.schedule import Allocation, GroupSchedule, Memo, Row, Sections, Subgraph, ValueSlices, subgraph

MAX_TRIES = 20
"""Section counts tried per group (sc_method_quick_search.MAX_TRY_NUM)."""
IMAGE_AXES: tuple[Axis, ...] = ("d", "h", "w")
MAX_HALO = 1.5
"""A sliced group may recompute or reload at most half of a tensor's rows (check_hsecs, layer_group.md 7.4)."""
UNPLACED = Allocation({}, {}, 0)
"""The addresses of a group that is not placed yet."""
_Why: TypeAlias = Callable[[], str]
"""A reason that is computed on demand: most attempts are followed by a better one, and their reason is not used."""
Decided: TypeAlias = GroupSchedule | tuple[TpuOp, str]
"""A group, or an op that stays global with the reason."""


def plan(
    ops: Sequence[TpuOp],
    chip: ChipSpec,
    sections: Sections | None = None,
    kind: GroupType | None = None,
    memo: Memo | None = None,
    *,
    unplaced: bool = False,
) -> GroupSchedule | str:
    """A working schedule for these ops as one group, or why it has none.

    sections: use exactly these, however many rows they repeat, instead of searching. kind: the group type; without it
    the types of layer_group.md 3 are tried in order. Decision: upstream tries the first only. memo: shared by the calls
    of one search. unplaced: only the bytes of each row are checked; `placed` assigns the addresses later.
    """
    if only_views(ops):
        return "views are free in global memory"
    memo = memo or Memo()
    asked = "plan", tuple(ops), sections, kind, chip.lmem_bytes, unplaced
    return memo.get(asked, lambda: _tried(ops, chip, sections, kind, memo, unplaced=unplaced))


def _tried(
    ops: Sequence[TpuOp],
    chip: ChipSpec,
    sections: Sections | None,
    kind: GroupType | None,
    memo: Memo,
    *,
    unplaced: bool,
) -> GroupSchedule | str:
    why = ""
    for one in group_types(ops, chip, memo) if kind is None else (kind,):
        found = _planned(subgraph(ops, chip, one, memo), chip, sections, unplaced=unplaced)
        if isinstance(found, GroupSchedule):
            return found
        why = why or found
    return why or _why_no_type(ops, chip)


def resectioned(
    found: GroupSchedule, sections: Sections, chip: ChipSpec, *, unplaced: bool = False
) -> GroupSchedule | str:
    """The same group with exactly these sections, or why they do not work; halos are limited as in a search."""
    return _told(_attempt(found.graph, schedule(found.graph), sections, chip, unplaced=unplaced))


def placed(found: GroupSchedule, chip: ChipSpec) -> GroupSchedule | None:
    """A group planned without addresses, with addresses; None if its buffers cannot be placed."""
    if found.allocation is not UNPLACED:
        return found
    allocation = place(found.graph, found.rows, found.slices, chip, found.sections.steps)
    return None if allocation is None else replace(found, allocation=allocation)


def only_views(ops: Sequence[TpuOp]) -> bool:
    """Whether every result shares its operand's bytes in global memory, so that a group could only cost time."""
    return all(is_in_place(op) for op in ops)


def _why_no_type(ops: Sequence[TpuOp], chip: ChipSpec) -> str:
    reasons = (op.why_not_in(GroupType.NORMAL, chip) for op in ops)
    return next((why for why in reasons if why is not None), "no type of group takes all of these ops")


def _planned(graph: Subgraph, chip: ChipSpec, sections: Sections | None, *, unplaced: bool) -> GroupSchedule | str:
    if sections is not None:
        return _forced(graph, sections, chip)
    limit = max_sections(graph, chip)
    start = first_guess(graph, limit, chip)
    if start is None and len(graph.ops) > 1:
        return f"the group cannot be cut into as many sections as it needs; at most {limit}"
    attempt: Sections | None = start or limit
    if attempt.steps > 1 and (short := _constants_too_large(graph, chip)) is not None:
        return short
    rows = schedule(graph)
    why: str | _Why = "no sections were tried"
    for _ in range(MAX_TRIES):
        found = _attempt(graph, rows, attempt, chip, unplaced=unplaced)
        if isinstance(found, GroupSchedule):
            return found
        why, whole = found, attempt.steps == 1
        attempt = more_sections(attempt, limit, graph, chip)
        if attempt is None:
            break
        if whole and (short := _constants_too_large(graph, chip)) is not None:
            return short
    return _with_bytes(why() if callable(why) else why, graph, chip)


def _constants_too_large(graph: Subgraph, chip: ChipSpec) -> str | None:
    """Why the group cannot be cut: constants that no cut makes smaller exceed local memory."""
    needed = resident_bytes(graph, chip)
    if needed <= chip.lmem_bytes:
        return None
    return f"resident coefficients need {needed:,} bytes per lane, {chip.name} has {chip.lmem_bytes:,}"


def _with_bytes(why: str, graph: Subgraph, chip: ChipSpec) -> str:
    """The reason, preceded by the bytes that made cutting necessary if it does not name them."""
    need = _least_bytes(graph, whole_slices(graph, chip), chip)
    if "bytes per lane" in why or need <= chip.lmem_bytes:
        return why
    return f"local memory needs {need:,} bytes per lane at {Sections()}, {chip.name} has {chip.lmem_bytes:,}; {why}"


def _forced(graph: Subgraph, sections: Sections, chip: ChipSpec) -> GroupSchedule | str:
    limit = possible_sections(graph, chip)
    if not sections.within(limit):
        return f"at most {limit} are possible, got {sections}"
    return _told(_attempt(graph, schedule(graph), sections, chip, max_halo=inf))


def _attempt(
    graph: Subgraph,
    rows: tuple[Row, ...],
    sections: Sections,
    chip: ChipSpec,
    max_halo: float = MAX_HALO,
    *,
    unplaced: bool = False,
) -> "GroupSchedule | str | _Why":
    try:
        slices = slice_group(graph, sections, chip)
    except SliceError as error:
        return str(error)
    if len(graph.ops) > 1:
        cut: list[Axis] = [axis for axis in IMAGE_AXES if sections.count(axis) > 1]
        for value, axis in product(slices, cut):
            read, whole = _read(slices[value], axis)
            if read > max_halo * whole:
                return (
                    f"halos at {sections} would repeat more than half of a tensor's rows: "
                    f"{read} along {axis} for {whole}, at most {MAX_HALO:g} times"
                )
    if len(graph.ops) > 1 and graph.memo.arrange:
        rows = graph.memo.arrange(GroupSchedule(graph, sections, slices, rows, UNPLACED))
    if unplaced:
        found = buffers(graph, rows, slices, chip, steps=sections.steps)
        fits = not overfull(found, len(rows), chip, able(graph, rows, slices, found, chip))
        allocation = UNPLACED if fits else None
    else:
        allocation = place(graph, rows, slices, chip, sections.steps)
    if allocation is None:
        return partial(_needs, graph, slices, sections, chip)
    return GroupSchedule(graph, sections, slices, rows, allocation)


def _needs(graph: Subgraph, slices: dict[SSAValue, ValueSlices], sections: Sections, chip: ChipSpec) -> str:
    need = _least_bytes(graph, slices, chip)
    return f"local memory needs {need:,} bytes per lane at {sections}, {chip.name} has {chip.lmem_bytes:,}"


def _told(found: GroupSchedule | str | _Why) -> GroupSchedule | str:
    return found() if callable(found) else found


def _read(slices: ValueSlices, axis: Axis) -> tuple[int, int]:
    """(elements of all slices along an axis, elements of the tensor); one broadcast element is no halo."""
    windows = slices.along(axis)
    whole = max(i + s for i, s in windows)
    return (1, 1) if whole == 1 else (sum(s for _, s in windows), whole)


def _least_bytes(graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> int:
    """The most bytes per lane that a single op of the group needs at once."""
    return max(op_bytes(op, graph, slices, chip) for op in graph.ops)
