"""Time steps: the nearest table and its fold into a three-stage software pipeline (layer_group.md 8).

Iteration k of the loop runs stage-0 items (loads) for step k, stage-1 items for step k-1, stage-2 items (stores) for
step k-2. Rows are barriers; inside a row the compute engine and the DMA run in parallel.
"""

from collections.abc import Sequence

from xdsl.ir import SSAValue

from tpusim.schedule import Row, Subgraph, Transferred


def nearest_rows(graph: Subgraph) -> tuple[Row, ...]:
    """Row 0 loads op 0's operands; row i+1 computes op i, loads for op i+1, stores op i-1; the last row stores."""
    count = len(graph.ops)
    transfers: list[list[Transferred]] = [[] for _ in range(count + 2)]
    outputs = frozenset(graph.outputs)
    resident: set[SSAValue] = {op.results[0] for op in graph.ops}
    for i, op in enumerate(graph.ops):
        for _, value, _ in graph.reads(op):
            if value not in resident:
                resident.add(value)
                transfers[i].append(Transferred(value, "load", 0 if i == 0 else 1))
        if op.results[0] in outputs:
            transfers[i + 2].append(Transferred(op.results[0], "store", 2 if i == count - 1 else 1))
    layers = [(), *((op,) for op in graph.ops), ()]
    return tuple(Row(*pair) for pair in zip(layers, map(tuple, transfers), strict=True))


def fold(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The modulo schedule of the nearest table (layer_group.md 8.3, DL-09)."""
    first, *middle, last = rows
    kept = tuple(t for t in last.transfers if middle[0].touches(t.value))
    middle[0] = middle[0].plus(*last.without(*kept).transfers)
    folded = [Row(transfers=kept), *middle] if kept else middle
    late = tuple(t for t in first.transfers if folded[-1].reads(t.value))
    folded[-1] = folded[-1].plus(*first.without(*late).transfers)
    return (*folded, Row(transfers=late)) if late else tuple(folded)


def schedule(graph: Subgraph) -> tuple[Row, ...]:
    """The rows of a group's loop."""
    return fold(nearest_rows(graph))
