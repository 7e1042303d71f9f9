"""Rewrites of MLIR's dialect `cf` that xDSL does not have."""

from xdsl.dialects.cf import BranchOp, ConditionalBranchOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter


def rewrite(op: Operation, rewriter: PatternRewriter) -> None:
    """Branch at once where the branch before has decided."""
    if isinstance(op, ConditionalBranchOp):
        _decided_before(op, rewriter)


def _decided_before(op: ConditionalBranchOp, rewriter: PatternRewriter) -> None:
    """A branch by a condition whose block is reached only by one outcome of a branch by the same condition."""
    block = op.parent
    before = [] if block is None else list(block.predecessors())
    last = before[0].last_op if len(before) == 1 else None
    if not isinstance(last, ConditionalBranchOp) or last is op or last.cond is not op.cond:
        return
    if last.then_block is last.else_block:
        return
    if last.then_block is block:
        rewriter.replace(op, BranchOp(op.then_block, *op.then_arguments))
    else:
        rewriter.replace(op, BranchOp(op.else_block, *op.else_arguments))
