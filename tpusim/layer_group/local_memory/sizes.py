"""Buffers of a group: one per tensor and work area, with size and lifetime in rows (layer_group.md 9)."""

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.ir.types import element_of
from tpusim.isa.layout import lmem_bytes
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.families import command_dtype
from tpusim.schedule import Buffer, Row, Subgraph, ValueSlices, lifetimes, work_bytes


def tensor_bytes(value: SSAValue, slices: ValueSlices, graph: Subgraph, chip: ChipSpec) -> int:
    """Bytes per lane of a tensor's largest slice."""
    aligned, packed = value not in graph.compact, value not in graph.constants
    return graph.memo.get(
        ("bytes", value, slices.largest, aligned),
        lambda: lmem_bytes(slices.largest, command_dtype(element_of(value)), chip, aligned=aligned, packed=packed),
    )


def buffers(
    graph: Subgraph, rows: Sequence[Row], slices: Mapping[SSAValue, ValueSlices], chip: ChipSpec, *, steps: int
) -> list[Buffer]:
    """Every buffer of the group; a work area comes after the result of its op.

    A buffer that is loaded once stays in memory for all steps (layer_group.md 8.5).
    """
    row_of = {op: index for index, row in enumerate(rows) for op in row.layers}
    found: list[Buffer] = []
    for value, (start, end) in lifetimes(rows).items():
        held = steps > 1 and slices[value].resident
        found.append(Buffer(value, tensor_bytes(value, slices[value], graph, chip), start, end, held=held))
        op = value.owner
        if isinstance(op, TpuOp) and op in row_of and (size := work_bytes(op, slices, graph, chip)):
            found.append(Buffer(op, size, row_of[op], row_of[op]))
    return found
