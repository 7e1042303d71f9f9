"""Work areas: the bytes of local memory that the commands of an op need in addition to its operands and result."""

from collections.abc import Mapping

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.interfaces import ask
from tpusim.isa.layout import align
from tpusim.ops.framework.base import TensorSlice, TpuOp
from tpusim.ops.interfaces import WorkArea
from tpusim.schedule.graph import Subgraph
from tpusim.schedule.steps import ValueSlices


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
