"""One group: its type, and sections that work, found by quick search (layer_group.md 3, 5, 10.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf, prod
from typing import TypeAlias

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.graph import Memo, Subgraph, group_types, subgraph
from tpusim.layer_group.lifetime import tensor_bytes, work_bytes
from tpusim.layer_group.lmem import Allocation
from tpusim.layer_group.reuse import place
from tpusim.layer_group.sections import (
    Sections,
    element_bytes_of,
    extents,
    max_sections,
    possible_sections,
    shared,
)
from tpusim.layer_group.slicing import SliceError, ValueSlices, slice_group, whole_slice, whole_slices
from tpusim.layer_group.timestep import Row, Transferred, schedule
from tpusim.ops.base import Axis, GroupType, TpuOp
from tpusim.ops.logical import AXES
from tpusim.ops.structure import TopInput

MAX_TRIES = 20
"""Section counts tried per group (sc_method_quick_search.MAX_TRY_NUM)."""
IMAGE_AXES: tuple[Axis, ...] = ("d", "h", "w")
MAX_HALO = 1.5
"""A sliced group may recompute or reload at most half of a tensor's rows (check_hsecs, layer_group.md 7.4)."""


@dataclass(frozen=True)
class Guest:
    """A transfer of a neighbouring group that runs in a row of this one."""

    row: int
    transfer: Transferred
    home: "GroupPlan"


@dataclass(frozen=True)
class Overlap:
    """What a group and its neighbours do for each other (layer_group.md 13, 15)."""

    self_up: tuple[Transferred, ...] = ()
    """Loads for the first step that the group before does."""
    self_down: tuple[Transferred, ...] = ()
    """Stores of the last step that the group after does."""
    other_up: tuple[Guest, ...] = ()
    """Stores of the group before, beside the ops of the first step."""
    other_down: tuple[Guest, ...] = ()
    """Loads of the group after, beside the ops of the last step."""


@dataclass(frozen=True)
class GroupPlan:
    """A group that is known to work."""

    graph: Subgraph
    sections: Sections
    slices: dict[SSAValue, ValueSlices]
    rows: list[Row]
    allocation: Allocation
    overlap: Overlap = Overlap()

    @cached_property
    def transfer_bytes(self) -> int:
        """Bytes the group moves from and to global memory."""
        values = (*self.graph.inputs, *self.graph.weights, *self.graph.outputs)
        return sum(_moved(self.slices[v], element_bytes_of(v)) for v in values)


Decided: TypeAlias = GroupPlan | tuple[TpuOp, str]
"""A group, or an op that stays global with the reason."""


def _moved(slices: ValueSlices, itemsize: int) -> int:
    """Bytes of all slices of a tensor, overlaps counted as often as they move."""
    return prod(sum(size for _, size in slices.along(axis)) for axis in AXES) * itemsize


def _op_bytes(op: TpuOp, graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> int:
    values = {v for v in (*op.operands, op.results[0]) if v in slices}
    return sum(tensor_bytes(v, slices[v], graph, chip) for v in values) + work_bytes(op, slices, graph, chip)


def first_guess(graph: Subgraph, limit: Sections, chip: ChipSpec) -> Sections | None:
    """Sections from what single ops need (layer_group.md 5); None if the group cannot be cut as often as it must."""
    slices = whole_slices(graph, chip)
    guess = Sections()
    for op in graph.ops:
        found = _guess_of_op(ceil_div(_op_bytes(op, graph, slices, chip), chip.lmem_bytes), guess, limit, graph)
        if found is None:
            return None
        guess = found
    if guess.steps == 1 and streams(graph, slices, chip):
        return _streamed(limit)
    return guess


def _guess_of_op(rest: int, guess: Sections, limit: Sections, graph: Subgraph) -> Sections | None:
    """The guess so far, raised so that an op that needs local memory `rest` times over has slices that may fit."""
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


def _streamed(limit: Sections) -> Sections | None:
    """Two sections along the first axis that has them."""
    for axis in ("n", "h", "c", "d", "w"):
        if limit.count(axis) > 1:
            return replace(Sections(), **{axis: 2})
    return None


def _more(sections: Sections, limit: Sections, graph: Subgraph, chip: ChipSpec) -> Sections | None:
    """The next counts to try (10.2): along n, else c, where slices become smaller; else one more of d, h and w."""
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


def plan(
    ops: Sequence[TpuOp],
    chip: ChipSpec,
    sections: Sections | None = None,
    kind: GroupType | None = None,
    memo: Memo | None = None,
) -> GroupPlan | str:
    """A working plan for these ops as one group, or why there is none.

    sections: use exactly these, however many rows they repeat, instead of searching. kind: the group type; without it
    the types of layer_group.md 3 are tried in order. Decision: upstream tries the first only. memo: shared by the calls
    of one search.
    """
    if view_at_edge(ops):
        return "views are free in global memory"
    memo = memo or Memo()
    kinds = group_types(ops, chip, memo) if kind is None else (kind,)
    why = ""
    for one in kinds:
        found = _planned(subgraph(ops, one, memo), chip, sections)
        if isinstance(found, GroupPlan):
            return found
        why = why or found
    return why or _why_no_type(ops, chip)


def resectioned(found: GroupPlan, sections: Sections, chip: ChipSpec) -> GroupPlan | str:
    """The same group with exactly these sections, or why they do not work: halos count, as in a search."""
    return _attempt(found.graph, found.rows, sections, chip)


def view_at_edge(ops: Sequence[TpuOp]) -> bool:
    """Whether the first or last op could be left out at no cost: in global memory its result is its operand's bytes."""
    return ops[0].in_place() or ops[-1].in_place()


def _why_no_type(ops: Sequence[TpuOp], chip: ChipSpec) -> str:
    reasons = (op.why_not_in(GroupType.NORMAL, chip) for op in ops)
    return next((why for why in reasons if why is not None), "no type of group takes all of these ops")


def _planned(graph: Subgraph, chip: ChipSpec, sections: Sections | None) -> GroupPlan | str:
    if sections is not None:
        return _forced(graph, sections, chip)
    limit = max_sections(graph, chip)
    start = first_guess(graph, limit, chip)
    if start is None and len(graph.ops) > 1:
        return f"the group cannot be cut into as many sections as it needs; at most {limit}"
    rows = schedule(graph)
    held = sum(tensor_bytes(w, whole_slice(w, graph, chip), graph, chip) for w in _held(graph))
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
        attempt = _more(attempt, limit, graph, chip)
    return _with_bytes(why, graph, chip)


def _held(graph: Subgraph) -> list[SSAValue]:
    """The constants that no cut of their users can make smaller."""
    split = {v for op in graph.ops for i, v in enumerate(op.operands) if op.splits_weight(i)}
    return [w for w in graph.weights if w not in split]


def _with_bytes(why: str, graph: Subgraph, chip: ChipSpec) -> str:
    """The reason, preceded by the bytes that made cutting necessary where it does not name them itself."""
    need = _least_bytes(graph, whole_slices(graph, chip), chip)
    if "bytes per lane" in why or need <= chip.lmem_bytes:
        return why
    return f"local memory needs {need:,} bytes per lane at {Sections()}, {chip.name} has {chip.lmem_bytes:,}; {why}"


def _forced(graph: Subgraph, sections: Sections, chip: ChipSpec) -> GroupPlan | str:
    limit = possible_sections(graph, chip)
    if not sections.within(limit):
        return f"at most {limit} are possible, got {sections}"
    return _attempt(graph, schedule(graph), sections, chip, max_halo=inf)


def _attempt(
    graph: Subgraph, rows: list[Row], sections: Sections, chip: ChipSpec, max_halo: float = MAX_HALO
) -> GroupPlan | str:
    try:
        slices = slice_group(graph, sections, chip)
    except SliceError as error:
        return str(error)
    if len(graph.ops) > 1:
        for value, axis in product(slices, IMAGE_AXES):
            read, whole = _read(slices[value], axis)
            if read > max_halo * whole:
                return (
                    f"halos at {sections} would repeat more than half of a tensor's rows: "
                    f"{read} along {axis} for {whole}, at most {MAX_HALO:g} times"
                )
    allocation = place(graph, rows, slices, chip, sections.steps)
    if allocation is None:
        need = _least_bytes(graph, slices, chip)
        return f"local memory needs {need:,} bytes per lane at {sections}, {chip.name} has {chip.lmem_bytes:,}"
    return GroupPlan(graph, sections, slices, rows, allocation)


def _read(slices: ValueSlices, axis: Axis) -> tuple[int, int]:
    """(elements of all slices along an axis, elements of the tensor); one broadcast element is no halo."""
    windows = slices.along(axis)
    whole = max(i + s for i, s in windows)
    return (1, 1) if whole == 1 else (sum(s for _, s in windows), whole)


def _least_bytes(graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> int:
    """What the hungriest single op of the group needs at once."""
    return max(_op_bytes(op, graph, slices, chip) for op in graph.ops)
