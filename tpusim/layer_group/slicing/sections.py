"""Section counts: how often a group may be cut along each axis (layer_group.md 4)."""

from dataclasses import replace

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.types import element_of, shape_of, storage_bits, storage_dtype
from tpusim.isa.layout import ceil_div
from tpusim.ops.framework.base import Axis, GroupType, TpuOp
from tpusim.ops.framework.logical import AXES, Extents, logical_axes
from tpusim.ops.interfaces import GroupRules
from tpusim.schedule import Sections, Subgraph


def extents(value: SSAValue, graph: Subgraph, chip: ChipSpec) -> Extents:
    """(n, c, d, h, w) of a tensor of the group."""
    return graph.memo.get(("extents", value, graph.kind), lambda: logical_axes(shape_of(value), graph.kind, chip))


def element_bytes_of(value: SSAValue) -> int:
    """Bytes that store one element."""
    return storage_dtype(element_of(value)).itemsize


def slice_bytes(value: SSAValue, elements: int) -> int:
    """Bytes that `elements` elements of a tensor take in memory."""
    return ceil_div(elements * storage_bits(element_of(value)), 8)


def common_batch(graph: Subgraph, chip: ChipSpec) -> int:
    """Batches are cut in multiples of this: one packed tensor forces whole words on all tensors."""
    if not chip.hardware.batch_packing:
        return 1
    return max(chip.batch_factor(element_bytes_of(v)) for v in graph.values)


def possible_sections(graph: Subgraph, chip: ChipSpec) -> Sections:
    """The largest section counts that give right slices, however slow (layer_group.md 4 without its DMA rule)."""
    batch = common_batch(graph, chip)
    most = [1 << 30] * len(AXES)
    for op in graph.ops:
        found = graph.memo.get(("units", op, graph.kind, batch), lambda op=op: _units_of(op, batch, graph, chip))
        most = [min(pair) for pair in zip(most, found, strict=True)]
    return Sections(*most)


def _units_of(op: TpuOp, batch: int, graph: Subgraph, chip: ChipSpec) -> tuple[int, ...]:
    """The most slices into which each axis of the op's result can be cut."""
    lengths = extents(op.results[0], graph, chip)
    return tuple(
        _units(axis, length, batch, graph, chip) if graph.cuts(op, axis) else 1
        for axis, length in zip(AXES, lengths, strict=True)
    )


def _units(axis: Axis, length: int, batch: int, graph: Subgraph, chip: ChipSpec) -> int:
    """The most slices into which an axis of this length can be cut."""
    if axis == "n":
        return ceil_div(length, batch)
    if axis == "c":  # at whole rows of lanes, so that every slice starts at lane 0
        return ceil_div(length, chip.lanes) if graph.kind in (GroupType.MM, GroupType.SMALL_C) else 1
    if axis == "d" and graph.kind is not GroupType.GROUP_3D:
        return 1
    return length if axis == "h" or rules(chip, GroupRules).CUTS_DEPTH_AND_WIDTH else 1


def max_sections(graph: Subgraph, chip: ChipSpec) -> Sections:
    """The largest section counts that the search tries: rows that the DMA moves at once are not cut (section 4)."""
    limit, uncut_bytes = possible_sections(graph, chip), rules(chip, GroupRules).UNCUT_ROW_BYTES
    for op in graph.ops:
        result = op.results[0]
        if limit.w > 1 and extents(result, graph, chip)[4] * element_bytes_of(result) <= uncut_bytes:
            return replace(limit, w=1)
    return limit
