"""Group search: opt 1, greedy from the end of each run; sections by quick search (layer_group.md 10.2, 12)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec, load
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import text
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.isa.layout import ceil_div
from tpusim.layer_group.graph import Subgraph, base_groups, subgraph
from tpusim.layer_group.lifetime import buffers, tensor_bytes, work_bytes
from tpusim.layer_group.lmem import Allocation, allocate
from tpusim.layer_group.rewrite import write_group
from tpusim.layer_group.slicing import Sections, SliceError, ValueSlices, max_sections, slice_group
from tpusim.layer_group.timestep import Row, schedule
from tpusim.ops.base import TpuOp

MAX_TRIES = 20
"""Section counts tried per group (sc_method_quick_search.MAX_TRY_NUM)."""


@dataclass(frozen=True)
class LayerGroupConfig:
    """Options of the layer-group stage.

    opt: "1" groups greedily from the tail; "off" gives every op its own group.
    """

    opt: Literal["1", "off"] = "1"


@dataclass(frozen=True)
class GroupPlan:
    """A group that is known to work."""

    graph: Subgraph
    sections: Sections
    slices: dict[SSAValue, ValueSlices]
    rows: list[Row]
    allocation: Allocation


def whole_slices(graph: Subgraph) -> dict[SSAValue, ValueSlices]:
    """Every tensor uncut."""
    return {v: ValueSlices.whole(v) for v in graph.values}


def _op_bytes(op: TpuOp, graph: Subgraph, slices: dict[SSAValue, ValueSlices], chip: ChipSpec) -> int:
    values = {v for v in (*op.operands, op.results[0]) if v in slices}
    return sum(tensor_bytes(v, slices[v], graph, chip) for v in values) + work_bytes(op, slices, chip)


def first_guess(graph: Subgraph, limit: Sections, chip: ChipSpec) -> Sections | None:
    """Sections from what single ops need (layer_group.md 5); None if even the largest counts are too few."""
    slices = whole_slices(graph)
    n, h = 1, 1
    for op in graph.ops:
        total = ceil_div(_op_bytes(op, graph, slices, chip), chip.lmem_bytes)
        n = max(n, min(total, limit.n))
        h = max(h, ceil_div(total, n))
    return Sections(n, h) if h <= limit.h else None


def _more(sections: Sections, limit: Sections, graph: Subgraph) -> Sections | None:
    """The next section counts to try: more batches if that makes slices smaller, else more rows."""
    batch = max(s.n[0][1] for s in whole_slices(graph).values())
    for n in range(sections.n + 1, limit.n + 1):
        if ceil_div(batch, n) < ceil_div(batch, sections.n):
            return Sections(n, sections.h)
    return Sections(sections.n, sections.h + 1) if sections.h < limit.h else None


def plan(ops: Sequence[TpuOp], chip: ChipSpec) -> GroupPlan | str:
    """A working plan for these ops as one group, or why there is none."""
    graph = subgraph(ops)
    limit = max_sections(graph, chip)
    start = first_guess(graph, limit, chip)
    if start is None and len(ops) > 1:
        return "a single op needs more sections than the group allows"
    rows = schedule(graph)
    held = sum(tensor_bytes(w, ValueSlices.whole(w), graph, chip) for w in graph.weights)
    sections: Sections | None = start or limit
    why = "no sections were tried"
    for _ in range(MAX_TRIES):
        if sections is None:
            break
        if held > chip.lmem_bytes:
            return f"coefficients need {held:,} bytes per lane, {chip.name} has {chip.lmem_bytes:,}"
        found = _attempt(graph, rows, sections, chip)
        if isinstance(found, GroupPlan):
            return found
        why = found
        sections = _more(sections, limit, graph)
    return why


def _attempt(graph: Subgraph, rows: list[Row], sections: Sections, chip: ChipSpec) -> GroupPlan | str:
    try:
        slices = slice_group(graph, sections, chip)
    except SliceError as error:
        return str(error)
    found = buffers(graph, rows, slices, chip, steps=sections.steps)
    allocation = allocate(found, rows, chip)
    if allocation is None:
        need = sum(b.size for b in found) if len(graph.ops) == 1 else max(b.size for b in found)
        return (
            f"local memory needs {need:,} bytes per lane at nsecs={sections.n}, hsecs={sections.h}, "
            f"{chip.name} has {chip.lmem_bytes:,}"
        )
    return GroupPlan(graph, sections, slices, rows, allocation)


def _greedy(ops: list[TpuOp], chip: ChipSpec) -> list[GroupPlan | tuple[TpuOp, str]]:
    """From the end: the longest run that works, cut, repeat."""
    found: list[GroupPlan | tuple[TpuOp, str]] = []
    end = len(ops)
    while end:
        for start in range(end):
            result = plan(ops[start:end], chip)
            if isinstance(result, GroupPlan):
                found.append(result)
                end = start
                break
        else:
            found.append((ops[end - 1], result))  # type: ignore[arg-type,possibly-undefined]
            end -= 1
    return found[::-1]


def _single(ops: list[TpuOp], chip: ChipSpec) -> list[GroupPlan | tuple[TpuOp, str]]:
    """Every op alone."""
    found: list[GroupPlan | tuple[TpuOp, str]] = []
    for op in ops:
        result = plan([op], chip)
        found.append(result if isinstance(result, GroupPlan) else (op, result))
    return found


STRATEGIES: dict[str, Callable[[list[TpuOp], ChipSpec], list[GroupPlan | tuple[TpuOp, str]]]] = {
    "1": _greedy,
    "off": _single,
}


def group_layers(model: Model, config: LayerGroupConfig) -> Model:
    """A copy of the module with its layer groups. Raises UnsupportedError for an unknown strategy."""
    model.require_state("TPU_REORDERED", stage="layer-group")
    if config.opt not in STRATEGIES:
        raise UnsupportedError(f"--layer-group {config.opt}: expected one of {', '.join(STRATEGIES)}")
    work = model.clone()
    chip = load(work.attribute("module.chip"))
    decided: list[GroupPlan | tuple[TpuOp, str]] = []
    for ops, why in list(base_groups(work, chip)):
        decided.extend([(ops[0], why)] if why is not None else STRATEGIES[config.opt](ops, chip))
    for item in reversed(decided):  # from the end, so that a group's inputs are still the values it was planned with
        if isinstance(item, GroupPlan):
            write_group(item)
        else:
            item[0].attributes["global_reason"] = text(item[1])
    work.set(state="TPU_DIVIDED")
    verify(work.module, "after layer-group")
    return work
