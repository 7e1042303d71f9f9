"""The linear layer of an exporter: a product and the addition of a constant row become one op."""

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import NoneType
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name_as, op_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.add import TopAdd
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import constant_of, only_user, relu_attributes, relu_limit_of, relu_of
from tpusim.ops.structure import make_weight


@dataclass
class MatMulWithBias(RewritePattern):
    """MatMul by one constant matrix -> Add of a constant row: the row becomes the bias of the MatMul.

    The same for a product of two computed matrices of rank 2, which TPU-MLIR reads as a Gemm (U-28). A MatMul with a
    relu keeps its Add: TPU-MLIR adds the row before the relu, which changes the values.
    """

    weights: WeightStore
    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Add; the MatMul takes its name and its relu."""
        if not isinstance(op, TopAdd) or len(op.operands) != 2:
            return
        for product, row in (tuple(op.operands), tuple(op.operands)[::-1]):
            matmul = product.owner
            if isinstance(matmul, Operation) and self._takes_bias(matmul) and self._is_row(row, op):
                matmul.operands[2] = self._bias(row, op, matmul, rewriter)
                matmul.attributes |= relu_attributes(relu_of(op), relu_limit_of(op))
                copy_name_as(matmul, op, "Add", "Gemm" if len(shape_of(product)) == 2 else "Add")
                rewriter.replace(op, [], [product])
                rewriter.notify_op_modified(matmul)
                return

    def _takes_bias(self, op: Operation) -> bool:
        """Whether an op is a MatMul by one constant matrix or of rank 2, without bias and relu, used once."""
        if not isinstance(op, self.matmul) or relu_of(op) or only_user(op.results[0]) is None:
            return False
        left, right, bias = op.operands
        plain = constant_of(right, self.weights) is not None or len(shape_of(left)) == 2
        return isinstance(bias.type, NoneType) and plain and prod(shape_of(right)[:-2]) == 1

    def _is_row(self, value: SSAValue, add: Operation) -> bool:
        """Whether a value is a constant row along the last axis of the sum.

        The single number of more than one column becomes an AddConst.
        """
        constant, shape = constant_of(value, self.weights), shape_of(add.results[0])
        product = next(shape_of(v) for v in add.operands if v is not value)
        return (
            constant is not None and constant.size == shape[-1] and shape == product
            and constant.shape[-1:] in ((), shape[-1:])
        )  # fmt: skip

    def _bias(self, value: SSAValue, add: Operation, matmul: Operation, rewriter: PatternRewriter) -> SSAValue:
        """The row as a weight (N,) that is inserted before the MatMul."""
        constant = constant_of(value, self.weights)
        assert constant is not None  # checked by _is_row
        op = make_weight(self.weights, op_name(add) + "_bias", constant.reshape(-1))
        rewriter.insert(op, InsertPoint.before(matmul))
        return op.output
