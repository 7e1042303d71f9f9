"""Time steps: the nearest table and its fold into a three-stage software pipeline (layer_group.md 8).

Iteration k of the loop runs stage-0 items (loads) for step k, stage-1 items for step k-1, stage-2 items (stores) for
step k-2. Rows are barriers; inside a row the compute engine and the DMA run in parallel.
"""

from dataclasses import dataclass, field
from typing import Literal

from xdsl.ir import SSAValue

from tpusim.ir.types import is_tensor
from tpusim.layer_group.graph import Subgraph
from tpusim.ops.base import TpuOp


@dataclass(frozen=True)
class Transferred:
    """One load or store in the schedule."""

    value: SSAValue
    kind: Literal["load", "store"]
    stage: int


@dataclass
class Row:
    """One time step: at most one op, and the transfers beside it."""

    layers: list[TpuOp] = field(default_factory=list[TpuOp])
    transfers: list[Transferred] = field(default_factory=list[Transferred])

    def touches(self, value: SSAValue) -> bool:
        """Whether an op of the row reads or writes `value`."""
        return any(value in (*op.operands, *op.results) for op in self.layers)

    def reads(self, value: SSAValue) -> bool:
        """Whether an op of the row reads `value`."""
        return any(value in op.operands for op in self.layers)


def nearest_rows(graph: Subgraph) -> list[Row]:
    """Row 0 loads op 0's operands; row i+1 computes op i, loads for op i+1, stores op i-1; the last row stores."""
    count = len(graph.ops)
    rows = [Row() for _ in range(count + 2)]
    outputs = frozenset(graph.outputs)
    resident: set[SSAValue] = {op.results[0] for op in graph.ops}
    for i, op in enumerate(graph.ops):
        rows[i + 1].layers.append(op)
        for value in op.operands:
            if is_tensor(value) and value not in resident:
                resident.add(value)
                rows[i].transfers.append(Transferred(value, "load", 0 if i == 0 else 1))
        if op.results[0] in outputs:
            rows[i + 2].transfers.append(Transferred(op.results[0], "store", 2 if i == count - 1 else 1))
    return rows


def fold(rows: list[Row]) -> list[Row]:
    """The modulo schedule of the nearest table (layer_group.md 8.3, DL-09)."""
    first, *middle, last = rows
    kept = [t for t in last.transfers if middle[0].touches(t.value)]
    middle[0].transfers.extend(t for t in last.transfers if t not in kept)
    folded = ([Row(transfers=kept)] if kept else []) + middle
    final = folded[-1]
    late = [t for t in first.transfers if final.reads(t.value)]
    final.transfers.extend(t for t in first.transfers if t not in late)
    return [*folded, Row(transfers=late)] if late else folded


def schedule(graph: Subgraph) -> list[Row]:
    """The rows of a group's loop."""
    return fold(nearest_rows(graph))
