"""The last convolutions of a detector of the YOLO family, whose results keep 16 bits (numerics.md 3.4)."""

from collections.abc import Sequence
from typing import TypeGuard

from xdsl.ir import Operation

from tpusim.interfaces import rules
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import LoweringContext, TopOp
from tpusim.ops.framework.families import only_user
from tpusim.ops.interfaces import ProductRules

CHAINED = 3
"""Length of the chain of MaxPools that a Concat joins: the pyramid pooling of the family."""


def before_float_head(op: TopOp, ctx: LoweringContext) -> bool:
    """Whether `output_int16` is set: SiLU or LeakyRelu -> 2-D Conv -> Reshape or Concat, its only user, in F16 or BF16.

    No Conv may read that user, and the network must have the pooling of the family.
    """
    # Such a layer is stored in 16 bits (numerics.md 2.2, 3.4).
    if not rules(ctx.chip, ProductRules).WIDE_RESULTS or len(shape_of(op.results[0])) != 4:
        return False
    source, user = op.operands[0].owner, only_user(op.results[0])
    if not _is(source, "top.SiLU", "top.LeakyRelu") or not _is(user, "top.Reshape", "top.Concat"):
        return False
    if not ctx.asks_for_float(user) or ctx.float_mode(user) == "f32":
        return False
    followed = any(_is(use.operation, "top.Conv") for use in user.results[0].uses)
    return not followed and _pools_in_a_row(op)


def _pools_in_a_row(op: Operation) -> bool:
    """Whether a Concat of the network joins three MaxPools, each of which reads the one before it."""
    block = op.parent_block()
    assert block is not None
    for joined in block.ops:
        if not _is(joined, "top.Concat"):
            continue
        pools = [owner for v in joined.operands if _is(owner := v.owner, "top.MaxPool")]
        if any(_chained(last, pools) >= CHAINED for last in pools):
            return True
    return False


def _chained(pool: Operation, pools: Sequence[Operation]) -> int:
    """The length of the chain of pools that ends in this one."""
    source = pool.operands[0].owner
    return 1 + (_chained(source, pools) if isinstance(source, Operation) and source in pools else 0)


def _is(op: object, *names: str) -> TypeGuard[Operation]:
    return isinstance(op, Operation) and op.name in names
