"""A linear layer whose columns are multiplied by constants, as in transformers with layer scale."""

from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import NoneType
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, op_name
from tpusim.ir.imported_scales import imported_weight_scales
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import constant_of, only_user, relu_attributes, relu_limit_of, relu_of
from tpusim.ops.structure import make_weight

AXES = 3
"""Axes of the result. A product of two axes becomes a Scale first, one of four or more keeps the Mul (U-98)."""


@dataclass
class FoldMulIntoMatMul(RewritePattern):
    """MatMul by one constant matrix, used once -> Mul by a constant row: matrix and bias times the row.

    Only with three axes (U-98). After a MatMul with a relu, the factors must not be negative and the relu must have no
    limit. TPU-MLIR folds the other cases as well, which changes the result.
    """

    weights: WeightStore
    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Mul; the MatMul takes its name, and a relu of either."""
        if op.name != "top.Mul" or len(op.operands) != 2 or len(shape_of(op.results[0])) != AXES:
            return
        for product, factors in (tuple(op.operands), tuple(op.operands)[::-1]):
            matmul, row = product.owner, constant_of(factors, self.weights)
            if not isinstance(matmul, self.matmul) or row is None or shape_of(product) != shape_of(op.results[0]):
                continue
            if self._absorbs(matmul, row, shape_of(product)[-1]):
                self._fold(matmul, op, row.reshape(-1), rewriter)
            return

    def _absorbs(self, matmul: Operation, row: np.ndarray, columns: int) -> bool:
        """Whether a product is constant but for its input and used once, and `row` has a number for each column."""
        _, right, bias = matmul.operands
        constants = [constant_of(v, self.weights) for v in (right, bias) if not isinstance(v.type, NoneType)]
        if any(c is None for c in constants) or len(shape_of(right)) != 2 or imported_weight_scales(right):
            return False
        if not row.size == row.shape[-1] == columns > 1 or only_user(matmul.results[0]) is None:
            return False
        return not relu_of(matmul) or (relu_limit_of(matmul) <= 0 and bool((row >= 0).all()))

    def _fold(self, matmul: Operation, op: Operation, row: np.ndarray, rewriter: PatternRewriter) -> None:
        for index, kind in ((1, "right"), (2, "bias")):
            array = constant_of(matmul.operands[index], self.weights)
            if array is not None:
                matmul.operands[index] = self._weight(f"{op_name(op)}_{kind}", array * row, matmul, rewriter)
        if relu_of(op):
            matmul.attributes |= relu_attributes(relu_of(op), relu_limit_of(op))
        copy_name(matmul, op)
        rewriter.replace(op, [], [matmul.results[0]])
        rewriter.notify_op_modified(matmul)

    def _weight(self, name: str, array: np.ndarray, matmul: Operation, rewriter: PatternRewriter) -> SSAValue:
        made = make_weight(self.weights, name, array.astype(np.float32))
        rewriter.insert(made, InsertPoint.before(matmul))
        return made.output
