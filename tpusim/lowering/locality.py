"""topo-sort: ops in the order of TPU-MLIR (U-75), which decides groups and when tensors are stored and loaded.

Ops with and without local forms alternate in turns, so that global ops cut fewer runs of local ops in two. Within a
turn a chain of single uses is followed; then come the users of the latest op with several users, the last first; then
any ready op, the last first. Ops that read only network inputs are ready from the start: global ops and views come
first in the program, in reverse order; then come the conversions of each input, also in reverse order.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from xdsl.ir import Block, BlockArgument, Operation

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import Inserted, is_in_place
from tpusim.ops.structure import TopInput, TopNone, TopWeight


def sort_by_locality(model: Model, chip: ChipSpec) -> None:
    """Sort the ops of a lowered module in place by turns: local ops while one is ready, then global ops, and so on."""
    ops = [op for op in model.ops if isinstance(op, TpuOp)]
    wanted = _Sorted(ops, chip).order()
    if wanted != ops:
        _place(wanted)


class _Sorted:
    """The placed ops, and the remaining ops, in program order."""

    def __init__(self, ops: Sequence[TpuOp], chip: ChipSpec) -> None:
        self._local = {op: op.why_not_local(chip) is None for op in ops}
        self._left = dict.fromkeys(self._arranged(ops))
        self._turn = True
        self._shared = list[TpuOp]()
        """Placed ops with several users of which some remain, in the order of placement."""
        self._users = defaultdict[Operation, list[TpuOp]](list)
        for op in reversed(_inserted_first(ops)):
            for operand in reversed(op.operands):
                if isinstance(operand.owner, TpuOp):
                    self._users[operand.owner].append(op)

    def order(self) -> list[TpuOp]:
        """All ops in the order of the sort."""
        found = list[TpuOp]()
        while self._left:
            op = next(self._candidates(found[-1] if found else None), None)
            if op is None:
                self._turn = not self._turn
                continue
            found.append(op)
            del self._left[op]
            if not _used_once(op):
                self._shared.append(op)
        return found

    def _candidates(self, last: TpuOp | None) -> Iterator[TpuOp]:
        """The candidates for the next op, the best first."""
        if last is not None and _used_once(last):
            yield from filter(self._may, self._users[last])
        self._shared = [op for op in self._shared if any(user in self._left for user in self._users[op])]
        for op in reversed(self._shared):
            yield from filter(self._may, self._users[op])
        yield from filter(self._may, reversed(self._left))

    def _arranged(self, ops: Sequence[TpuOp]) -> list[TpuOp]:
        """The ops, with those that read only network inputs where U-75 places them before the sort."""
        inputs = {op: [v.owner for v in op.operands if isinstance(v.owner, TopInput)] for op in ops}
        first = [op for op in ops if inputs[op] and not any(isinstance(v.owner, TpuOp) for v in op.operands)]
        moved = [op for op in first if is_in_place(op) or not self._local[op]]
        casts = [op for op in first if op not in moved and element_of(op.operands[0]) != element_of(op.results[0])]
        casts = sorted(reversed(casts), key=lambda op: _argument(inputs[op][0]))
        front = dict.fromkeys([*reversed(moved), *casts])
        return [*front, *(op for op in _inserted_first(ops) if op not in front)]

    def _may(self, op: TpuOp) -> bool:
        """Whether it is an op of this turn whose operands are all placed."""
        if op not in self._left or self._local[op] is not self._turn:
            return False
        return not any(isinstance(v.owner, TpuOp) and v.owner in self._left for v in op.operands)


def _inserted_first(ops: Sequence[TpuOp]) -> list[TpuOp]:
    """The ops in order, each inserted op directly after its operand; several with one operand in reverse order."""
    casts = defaultdict[Operation | Block, list[TpuOp]](list)
    for op in ops:
        if _inserted(op):
            casts[op.operands[0].owner].append(op)
    found = list[TpuOp]()

    def add(op: Operation | Block) -> None:
        for cast in reversed(casts.pop(op, [])):
            found.append(cast)
            add(cast)

    for owner in [owner for owner in casts if not isinstance(owner, TpuOp)]:
        add(owner)
    for op in ops:
        if not _inserted(op):
            found.append(op)
            add(op)
    return found


def _inserted(op: TpuOp) -> bool:
    """Whether the compiler inserted it between two ops and named it after them; a node may become an op of its kind."""
    return isinstance(op, Inserted) and op_name(op).startswith(value_name(op.operands[0]))


def _argument(op: TopInput) -> int:
    """Which argument of the network an input is."""
    argument = op.input
    assert isinstance(argument, BlockArgument)
    return argument.index


def _used_once(op: TpuOp) -> bool:
    return sum(1 for result in op.results for _ in result.uses) == 1


def _place(ops: Sequence[TpuOp]) -> None:
    """Move the ops to the end of their block in this order, each after the constants that it is the first to read."""
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
