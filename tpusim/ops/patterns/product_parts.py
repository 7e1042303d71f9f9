"""A product of which only parts are read: a product for each part, by TPU-MLIR's names (interface.md 7.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.dialects.builtin import NoneType
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import ints_attr, op_name, set_op_name
from tpusim.ir.types import element_of, shape_of, tensor
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import OpT, Shape
from tpusim.ops.framework.families import constant_of, is_set, only_user
from tpusim.ops.framework.rewriting import users
from tpusim.ops.matmul.product import Product
from tpusim.ops.patterns.slices import SLICE, part_of_slice
from tpusim.ops.structure import make_weight

RESHAPE, SQUEEZE = "top.Reshape", "top.Squeeze"


@dataclass
class SplitMatMul(RewritePattern):
    """MatMul by one constant matrix -> Slices that divide its columns: a MatMul by some of the columns for each.

    Between them may be a Reshape that divides the columns; the Slices then take rows of that, and Squeezes after them
    become part of the new Reshapes. Each product has the type of the whole one, which a Relu after it still narrows. A
    name counts the Slices and Squeezes before it. Upstream does not look at the steps of Slices; here they must be 1.
    """

    weights: WeightStore
    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the MatMul."""
        if not isinstance(op, self.matmul) or not isinstance(op, Product) or not self._is_constant(op):
            return
        user = only_user(op.output)
        view = user if user is not None and user.name == RESHAPE else None
        cuts = users(op.output if view is None else view.results[0])
        taken = [(part, cut) for cut in cuts if (part := _columns(cut, shape_of(op.output))) is not None]
        taken.sort(key=lambda t: t[0])
        if len(cuts) < 2 or len(taken) < len(cuts) or not _divide([t[0] for t in taken], shape_of(op.output)[-1]):
            return
        number = 1
        for part, cut in taken:
            result, squeeze = self._product(op, cut, part, number, rewriter), _squeeze_of(cut)
            last = squeeze or cut
            if view is not None:
                result = _viewed(op, view, last, result, number, rewriter)
            rewriter.replace(last, [], [result])
            if squeeze is not None:
                rewriter.erase(cut)
            number += 1 if squeeze is None else 2
        for gone in (view, op) if view is not None else (op,):
            rewriter.erase(gone)

    def _is_constant(self, op: Product) -> bool:
        """One constant matrix on the right, a constant bias or none, and no transposes."""
        _, right, bias = op.operands
        matrix = constant_of(right, self.weights)
        stated = (op.left_transpose, op.right_transpose, op.output_transpose, op.hdim_is_batch)
        return (
            matrix is not None and prod(matrix.shape[:-2]) == 1 and not any(map(is_set, stated))
            and (isinstance(bias.type, NoneType) or constant_of(bias, self.weights) is not None)
        )  # fmt: skip

    def _product(
        self, op: Product, cut: Operation, part: tuple[int, int], number: int, rewriter: PatternRewriter
    ) -> SSAValue:
        """The product by the columns `part`, in front of the Slice."""
        name, (begin, end) = f"{op_name(op)}_matmul_{number}", part
        matrix, bias = (constant_of(v, self.weights) for v in op.operands[1:])
        assert matrix is not None  # required by _is_constant
        operands = [op.input, self._weight(f"{name}_filter", matrix[..., begin:end], rewriter, cut), op.operands[2]]
        if bias is not None:
            operands[2] = self._weight(f"{name}_bias", bias.reshape(-1)[begin:end], rewriter, cut)
        kind = tensor((*shape_of(op.output)[:-1], end - begin), element_of(op.output))
        made = type(op).create(operands=operands, result_types=[kind], attributes=dict(op.attributes))
        set_op_name(made, name)
        rewriter.insert(made, InsertPoint.before(cut))
        return made.results[0]

    def _weight(self, name: str, array: np.ndarray, rewriter: PatternRewriter, cut: Operation) -> SSAValue:
        weight = make_weight(self.weights, name, np.ascontiguousarray(array))
        rewriter.insert(weight, InsertPoint.before(cut))
        return weight.output


def _columns(cut: Operation, product: Shape) -> tuple[int, int] | None:
    """The columns (begin, end) of a product that a Slice of it, or of a view of it, takes; None for anything else."""
    x, axis = shape_of(cut.operands[0]), len(product) - 1
    if cut.name != SLICE or x[:axis] != product[:axis]:
        return None
    for at, ((offset, step, end), size) in enumerate(zip(part_of_slice(cut), x, strict=True)):
        if step != 1 or (at != axis and (offset, end) != (0, size)):
            return None
    offset, _, end = part_of_slice(cut)[axis]
    width = prod(x[axis + 1 :])
    return offset * width, end * width


def _divide(parts: Sequence[tuple[int, int]], columns: int) -> bool:
    """Whether the parts, in their order, are all columns, each once."""
    edges = [0, *(end for _, end in parts)]
    return [begin for begin, _ in parts] == edges[:-1] and edges[-1] == columns


def _squeeze_of(cut: Operation) -> Operation | None:
    """The Squeeze that alone reads a Slice of a view."""
    user = only_user(cut.results[0])
    reshaped = isinstance(cut.operands[0].owner, Operation) and cut.operands[0].owner.name == RESHAPE
    return user if user is not None and user.name == SQUEEZE and reshaped else None


def _viewed(
    op: Product, view: Operation, last: Operation, x: SSAValue, number: int, rewriter: PatternRewriter
) -> SSAValue:
    """A product in the shape of its Slice, or of the Squeeze after that."""
    shape = shape_of(last.results[0])
    made = type(view).create(
        operands=[x], result_types=[tensor(shape, element_of(x))], attributes={"shape": ints_attr(shape)}
    )
    set_op_name(made, f"{op_name(op)}_reshape_{number}")
    rewriter.insert(made, InsertPoint.before(last))
    return made.results[0]
