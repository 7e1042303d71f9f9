"""Dead code: ops without effects whose results nothing uses, arguments likewise, and blocks that nothing reaches."""

from collections.abc import Iterator

from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.traits import IsolatedFromAbove, IsTerminator

from tpusim.ir.generic.effects import would_be_dead

SEGMENTS = "operandSegmentSizes"


def erase_dead(root: Operation) -> bool:
    """Erase dead ops, arguments of blocks and unreachable blocks inside `root`; return whether there were any."""
    changed = [erase_unreachable(region) for region in root.regions]
    living = _Living()
    for region in root.regions:
        living.follow(region)
    return any([*changed, *(_sweep(region, living) for region in root.regions)])


def erase_unreachable(region: Region) -> bool:
    """Erase the blocks of a region, and of the regions in it, that its first block does not lead to."""
    reached = set(reachable(region))
    doomed = [block for block in region.blocks if block not in reached]
    for block in doomed:
        region.erase_block(block, safe_erase=False)
    inner = [erase_unreachable(one) for block in region.blocks for op in block.ops for one in op.regions]
    return bool(doomed) or any(inner)


def reachable(region: Region) -> Iterator[Block]:
    """The blocks that can be reached from a region's first block, which is included, depth first."""
    seen, todo = set[Block](), [region.first_block] if region.first_block is not None else []
    while todo:
        block = todo.pop()
        if block in seen:
            continue
        seen.add(block)
        yield block
        if block.last_op is not None:
            todo.extend(reversed(block.last_op.successors))


def passed_on(op: Operation) -> Iterator[tuple[int, BlockArgument]]:
    """The operands of a branch that become arguments of its successors, by number; they are its last operands."""
    arguments = [argument for block in op.successors for argument in block.args]
    first = len(op.operands) - len(arguments)
    if first >= 0:
        for i, argument in enumerate(arguments):
            yield first + i, argument


class _Living:
    """The ops that have effects or are needed by one, and the arguments of blocks that are needed."""

    def __init__(self) -> None:
        self._ops, self._arguments = set[Operation](), set[BlockArgument]()
        self._kept: dict[Block, bool] = {}

    def op(self, op: Operation) -> bool:
        return op in self._ops

    def argument(self, argument: BlockArgument) -> bool:
        """Whether an argument is needed; those of a region's first block always stay."""
        if argument in self._arguments:
            return True
        block = argument.block
        if block not in self._kept:
            first = block.parent is None or block.parent.first_block is block
            self._kept[block] = first or any("case_operand_segments" in one.properties for one in _branches_to(block))
        return self._kept[block]

    def follow(self, region: Region) -> None:
        """Mark what an op with effects needs, in this region and those inside.

        The terminators of an op that is not isolated live if it does.
        """
        around = region.parent_op()
        isolated = around is None or around.has_trait(IsolatedFromAbove)
        for block in region.blocks:
            for op in block.ops:
                if not would_be_dead(op) and (isolated or not op.has_trait(IsTerminator)):
                    self._mark(op)
                for inner in op.regions:
                    self.follow(inner)

    def _mark(self, op: Operation) -> None:
        todo: list[Operation] = [op]
        while todo:
            op = todo.pop()
            if op in self._ops:
                continue
            self._ops.add(op)
            todo.extend(self._needed(op))

    def _needed(self, op: Operation) -> Iterator[Operation]:
        """The ops that a living op needs: those that make its operands, its terminators, and the op around it."""
        into = dict(passed_on(op))
        for i, value in enumerate(op.operands):
            if i not in into or self.argument(into[i]):
                yield from self._makers(value)
        parent = op.parent_op()
        if parent is not None and not parent.has_trait(IsolatedFromAbove):
            yield parent
        for region in op.regions:
            for block in region.blocks:
                if block.last_op is not None and block.last_op.has_trait(IsTerminator):
                    yield block.last_op

    def _makers(self, value: SSAValue) -> Iterator[Operation]:
        if isinstance(value.owner, Operation):
            yield value.owner
        elif isinstance(value, BlockArgument) and not self.argument(value):
            self._arguments.add(value)
            for branch in _branches_to(value.block):
                for i, argument in passed_on(branch):
                    if argument is value:
                        yield from self._makers(branch.operands[i])


def _branches_to(block: Block) -> Iterator[Operation]:
    """The ops that branch to a block, each once."""
    yield from dict.fromkeys(use.operation for use in block.uses if use.operation.parent is not None)


def _sweep(region: Region, living: _Living) -> bool:
    doomed: list[Operation] = []
    changed = False
    for block in region.blocks:
        for op in block.ops:
            if living.op(op):
                changed = any([_sweep(inner, living) for inner in op.regions]) or changed
            else:
                doomed.append(op)
        for argument in [one for one in block.args if not living.argument(one)]:
            _drop(argument)
            changed = True
    for op in reversed(doomed):
        op.detach()
        op.erase(safe_erase=False)
    return changed or bool(doomed)


def _drop(argument: BlockArgument) -> None:
    """Take an argument out of its block and of the branches to it."""
    for branch in _branches_to(argument.block):
        dropped = {i for i, into in passed_on(branch) if into is argument}
        keep_operands(branch, [i for i in range(len(branch.operands)) if i not in dropped])
    argument.block.erase_arg(argument, safe_erase=False)


def keep_operands(op: Operation, kept: list[int]) -> None:
    """Leave an op only some of its operands; the sizes of its segments follow."""
    stated = op.properties.get(SEGMENTS)
    if isinstance(stated, DenseArrayBase):
        sizes = [int(size) for size in stated.get_values()]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        left = [sum(end - size <= i < end for i in kept) for size, end in zip(sizes, ends, strict=True)]
        op.properties[SEGMENTS] = DenseArrayBase.from_list(i32, left)
    op.operands = [op.operands[i] for i in kept]
