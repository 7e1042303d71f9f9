"""The walk of a region by dominance, and what uses it, on random and on long graphs of blocks."""

import random

import pytest
from xdsl.dialects.builtin import ModuleOp, i1, i32
from xdsl.dialects.cf import BranchOp, ConditionalBranchOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.dialects.test import TestOp as Made
from xdsl.ir import Block, Region

from tpusim.errors import ImportModelError
from tpusim.ir.dominance import walk_dominated
from tpusim.ir.generic.cse import merge_equal
from tpusim.ir.text import require_order


def graph(successors: list[list[int]]) -> Region:
    """A region of blocks that branch to blocks of these numbers, one, two or none."""
    blocks = [Block([Made(result_types=[i1])]) for _ in successors]
    for block, numbers in zip(blocks, successors, strict=True):
        targets = [blocks[number] for number in numbers]
        (condition,) = block.first_op.results  # type: ignore[union-attr]
        if len(targets) == 2:
            block.add_op(ConditionalBranchOp(condition, targets[0], [], targets[1], []))
        elif targets:
            block.add_op(BranchOp(targets[0]))
        else:
            block.add_op(ReturnOp())
    return Region(blocks)


def reached(region: Region, without: Block | None = None) -> set[Block]:
    """The blocks on paths from the entry that do not pass a block."""
    found, left = set[Block](), [region.blocks[0]]
    while left:
        block = left.pop()
        if block is not without and block not in found:
            found.add(block)
            left += block.last_op.successors  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_walk_of_random_graphs(seed: int) -> None:
    """When a block is entered, the open blocks are its dominators: every path from the entry passes them."""
    dice = random.Random(seed)
    count = dice.randrange(1, 14)
    region = graph([[dice.randrange(count) for _ in range(dice.randrange(3))] for _ in range(count)])
    open_, met = list[Block](), set[Block]()
    for block, enters in walk_dominated(region):
        if enters:
            open_.append(block)
            met.add(block)
            assert set(open_) == {one for one in reached(region) if block not in reached(region, one)}
        else:
            assert open_.pop() is block
    assert not open_ and met == reached(region)


def chain(length: int) -> ModuleOp:
    """A function of blocks in a row, each with the same op."""
    region = graph([*([number + 1] for number in range(length - 1)), []])
    return ModuleOp([FuncOp("f", ((), ()), region)])


def test_six_hundred_blocks_in_a_row() -> None:
    module = chain(600)
    require_order(module, "x")
    merge_equal(module)


def test_values_that_do_not_dominate_their_use() -> None:
    """In blocks side by side they are refused; in a block that nothing reaches they are not, as in MLIR."""
    for reached in (True, False):
        region = graph([[1, 2] if reached else [2], [], []])
        first, second = region.blocks[1], region.blocks[2]
        value, user = second.first_op.results[0], Made([second.first_op.results[0]], [i32])  # type: ignore[union-attr]
        first.insert_ops_before([user], first.last_op)  # type: ignore[arg-type]
        module = ModuleOp([FuncOp("f", ((), ()), region)])
        assert value.has_one_use()
        if reached:
            with pytest.raises(ImportModelError, match="uses its operand 0 before it is made"):
                require_order(module, "x")
        else:
            require_order(module, "x")
