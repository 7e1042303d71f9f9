"""The Permutes of attention that exchange heads and rows, or rows and columns, become part of the product."""

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, flag, ints
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import is_set, only_user
from tpusim.ops.matmul.product import HEADS, Product
from tpusim.ops.permute import TopPermute

FACTORS = ("left_transpose", "right_transpose")


@dataclass
class PermuteIntoMatMul(RewritePattern):
    """Permute by (0, 2, 1, 3) -> MatMul of rank 4 -> Permute by (0, 2, 1, 3): a MatMul that permutes, if used once.

    The result takes name and range of the Permute after the MatMul. Decision: not if batches broadcast; then
    TPU-MLIR does it too, and reads beyond the end of the smaller operand.
    """

    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the MatMul."""
        if not isinstance(op, self.matmul) or not isinstance(op, Product) or not _takes_heads(op):
            return
        before, after = dict(_permuted_factors(op)), _heads_permute(only_user(op.output))
        if not before and after is None:
            return
        op.attributes["hdim_is_batch"] = flag(True)
        for index, permute in before.items():
            op.attributes[FACTORS[index]] = flag(True)
            op.operands[index] = permute.input
            rewriter.erase(permute)
        if after is not None:
            op.attributes["output_transpose"] = flag(True)
            copy_name(op, after)
            kind = after.output.type
            rewriter.replace(after, [], [op.output])
            rewriter.replace_value_with_new_type(op.output, kind)
        rewriter.notify_op_modified(op)


@dataclass
class MatMulWithRightTranspose(RewritePattern):
    """Permute that exchanges the last two axes, used once -> right operand of MatMul: the MatMul transposes it."""

    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the MatMul."""
        if not isinstance(op, self.matmul) or not isinstance(op, Product) or op.has_heads:
            return
        permute = op.right.owner
        if not isinstance(permute, TopPermute) or only_user(op.right) is None or op.input is op.right:
            return
        *batches, rows, columns = ints(permute.order)
        if (*batches, columns, rows) != tuple(range(len(batches) + 2)):
            return
        op.operands[1] = permute.input
        op.attributes["right_transpose"] = flag(not is_set(op.right_transpose))
        rewriter.erase(permute)
        rewriter.notify_op_modified(op)


def _takes_heads(op: Product) -> bool:
    """Whether both operands have rank 4 and the same two first extents, and no transpose is set yet."""
    left, right = shape_of(op.input), shape_of(op.right)
    stated = (op.left_transpose, op.right_transpose, op.output_transpose, op.hdim_is_batch)
    return len(left) == len(right) == 4 and left[:2] == right[:2] and not any(map(is_set, stated))


def _permuted_factors(op: Product) -> Iterator[tuple[int, TopPermute]]:
    """The Permutes of heads before the product that it alone reads, by operand."""
    for index, value in enumerate((op.input, op.right)):
        permute = _heads_permute(value.owner)
        if permute is not None and only_user(value) is not None:
            yield index, permute


def _heads_permute(op: object) -> TopPermute | None:
    """The op if it exchanges axes 1 and 2 of four."""
    return op if isinstance(op, TopPermute) and ints(op.order) == HEADS else None
