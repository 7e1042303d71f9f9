"""Common subexpressions: an op that computes the same as an earlier op is replaced by the earlier one."""

from collections.abc import Hashable

from xdsl.dialects.builtin import UnregisteredOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.traits import IsolatedFromAbove, IsTerminator

from tpusim.ir.attrs import op_name
from tpusim.ir.dominance import walk_dominated
from tpusim.ir.generic.effects import is_commutative, is_dead, is_free, may_write, only_reads
from tpusim.ir.generic.names import is_returned_by_name
from tpusim.ir.module import is_weight


class _Known:
    """The ops that dominate a place, by what they compute."""

    def __init__(self) -> None:
        self._ops: dict[Hashable, Operation] = {}
        self._before: list[tuple[Hashable, Operation | None]] = []

    def earlier(self, identity: Hashable, op: Operation) -> Operation:
        """The op that computes the same; `op` itself if there is none, which is known from then on."""
        if identity not in self._ops:
            self.put(identity, op)
        return self._ops[identity]

    def put(self, identity: Hashable, op: Operation) -> None:
        """Let later places see this op."""
        self._before.append((identity, self._ops.get(identity)))
        self._ops[identity] = op

    def mark(self) -> int:
        """How many ops were remembered so far, for `forget`."""
        return len(self._before)

    def forget(self, mark: int) -> None:
        """Forget all ops since a mark."""
        while len(self._before) > mark:
            identity, op = self._before.pop()
            if op is None:
                del self._ops[identity]
            else:
                self._ops[identity] = op


def merge_equal(root: Operation) -> None:
    """Replace ops inside `root` by equal ops that dominate them, and erase them and all unused ops.

    Ops that read memory are equal if nothing between them in their block may write. Weights are equal if their names
    are. A result that leaves a function keeps its op and name.
    """
    dead: list[Operation] = []
    for region in root.regions:
        _merge_in_region(region, _Known(), dead)
    for op in dead:
        op.detach()
        op.erase(safe_erase=False)


def _merge_in_region(region: Region, known: _Known, dead: list[Operation]) -> None:
    marks = list[int]()
    for block, enters in walk_dominated(region):
        if enters:
            marks.append(known.mark())
            _merge_in_block(block, known, dead)
        else:
            known.forget(marks.pop())


def _merge_in_block(block: Block, known: _Known, dead: list[Operation]) -> None:
    for op in block.ops:
        for region in op.regions:
            isolated = op.has_trait(IsolatedFromAbove, value_if_unregistered=True)
            _merge_in_region(region, _Known() if isolated else known, dead)
        _merge(op, known, dead)


def _merge(op: Operation, known: _Known, dead: list[Operation]) -> None:
    if op.has_trait(IsTerminator):
        return
    if is_dead(op):
        dead.append(op)
        return
    if not (only_reads(op) or is_weight(op)) or any(len(region.blocks) > 1 for region in op.regions):
        return
    identity = _identity(op)
    earlier = known.earlier(identity, op)
    if earlier is op or is_returned_by_name(op):
        return
    if not (is_free(op) or is_weight(op)) and not _untouched_between(earlier, op):
        known.put(identity, op)
        return
    for old, new in zip(op.results, earlier.results, strict=True):
        old.replace_all_uses_with(new)
        new.name_hint = new.name_hint or old.name_hint
    dead.append(op)


def _untouched_between(first: Operation, second: Operation) -> bool:
    """Whether two ops are in one block, and no op between them may write."""
    if first.parent is not second.parent:
        return False
    op = first.next_op
    while op is not None and op is not second:
        if may_write(op):
            return False
        op = op.next_op
    return True


def _identity(op: Operation, inner: dict[SSAValue, int] | None = None) -> Hashable:
    """A key that is equal for ops that compute the same. inner: numbers of values of the regions that it is in."""
    numbers = {} if inner is None else inner
    operands = [_named(value, numbers) for value in op.operands]
    if is_commutative(op):
        operands.sort(key=hash)
    regions = tuple(_identity_of_region(region, numbers) for region in op.regions)
    for result in op.results if inner is not None else ():
        numbers[result] = len(numbers)
    return (
        op.op_name.data if isinstance(op, UnregisteredOp) else op.name,
        op_name(op) if is_weight(op) else "",
        tuple(operands),
        frozenset(op.attributes.items()),
        frozenset(op.properties.items()),
        tuple(result.type for result in op.results),
        regions,
    )


def _named(value: SSAValue, numbers: dict[SSAValue, int]) -> Hashable:
    return numbers.get(value, value)


def _identity_of_region(region: Region, numbers: dict[SSAValue, int]) -> Hashable:
    found: list[Hashable] = []
    for block in region.blocks:
        for argument in block.args:
            numbers[argument] = len(numbers)
        found.append((tuple(block.arg_types), tuple(_identity(op, numbers) for op in block.ops)))
    return tuple(found)
