"""Buffers of a group: one per tensor and work area, with size and lifetime in rows (layer_group.md 9)."""

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import ask
from tpusim.ir.types import element_of
from tpusim.isa.layout import align, lmem_bytes
from tpusim.ops.framework.base import TensorSlice, TpuOp
from tpusim.ops.framework.families import command_dtype
from tpusim.ops.interfaces import WorkArea
from tpusim.schedule import Buffer, Row, Subgraph, ValueSlices, lifetimes


def tensor_bytes(value: SSAValue, slices: ValueSlices, graph: Subgraph, chip: ChipSpec) -> int:
    """Bytes per lane of a tensor's largest slice."""
    aligned, packed = value not in graph.compact, value not in graph.constants
    return graph.memo.get(
        ("bytes", value, slices.largest, aligned),
        lambda: lmem_bytes(slices.largest, command_dtype(element_of(value)), chip, aligned=aligned, packed=packed),
    )


def largest_slice(slices: ValueSlices) -> TensorSlice:
    """A slice of the largest extent in every axis."""
    n, c, d, h, w = slices.sizes
    return TensorSlice((0, n), (0, c), (0, h), (0, w), (0, d))


def work_bytes(op: TpuOp, slices: Mapping[SSAValue, ValueSlices], graph: Subgraph, chip: ChipSpec) -> int:
    """Bytes per lane of an op's work area for its largest slices."""
    values = graph.memo.get(("tensors", op), lambda: (op.results[0], *op.operands))
    parts = [slices.get(v) for v in values]

    def asked() -> int:
        result, *inputs = (None if s is None else largest_slice(s) for s in parts)
        assert result is not None
        return align(ask(op, WorkArea, chip).buffer_bytes(chip, result, inputs), chip.eu_bytes)

    sizes = tuple([None if s is None else s.sizes for s in parts])
    return graph.memo.get(("work", op, graph.kind, sizes), asked)


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
