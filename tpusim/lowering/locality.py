"""topo-sort: ops with local forms beside each other, so that ops without one cut fewer runs of them in two."""

from collections.abc import Sequence

from xdsl.ir import Block, Operation

from tpusim.chips import ChipSpec
from tpusim.ir.module import Model
from tpusim.ops.base import TpuOp
from tpusim.ops.structure import TopNone, TopWeight


def sort_by_locality(model: Model, chip: ChipSpec) -> None:
    """Put the ops of a lowered module, in place, into turns: all local ones that are ready, all others, and so on.

    Decision: each turn goes in program order; upstream follows chains of single uses first.
    """
    ops = [op for op in model.ops if isinstance(op, TpuOp)]
    wanted = _in_turns(ops, chip)
    if wanted != ops:
        _place(wanted)


def _in_turns(ops: Sequence[TpuOp], chip: ChipSpec) -> list[TpuOp]:
    left, found, local = dict.fromkeys(ops), list[TpuOp](), True
    where = {op: op.why_not_local(chip) is None for op in ops}
    while left:
        for op in list(left):  # one pass is enough: what an op waits for stands before it
            if where[op] is local and not any(isinstance(v.owner, TpuOp) and v.owner in left for v in op.operands):
                found.append(op)
                del left[op]
        local = not local
    return found


def _place(ops: Sequence[TpuOp]) -> None:
    """Move the ops to the end of their block in this order, each behind the constants that it is the first to read."""
    block = ops[0].parent_block()
    assert block is not None
    end, placed = block.last_op, set[Operation]()
    assert end is not None
    for op in ops:
        for value in op.operands:
            owner = value.owner
            if isinstance(owner, TopWeight | TopNone) and owner not in placed:
                placed.add(owner)
                _move(owner, block, end)
        _move(op, block, end)


def _move(op: Operation, block: Block, end: Operation) -> None:
    op.detach()
    block.insert_op_before(op, end)
