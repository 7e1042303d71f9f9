"""Queries, keys and values of one product: the Permute of heads moves past the Slices (interface.md 7.3)."""

from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, ints, ints_attr, op_name, set_op_name
from tpusim.ir.types import shape_of, tensor
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import only_user
from tpusim.ops.framework.rewriting import made_by, numbers_of, users
from tpusim.ops.patterns.slices import SLICE, part_of_slice, slice_attributes
from tpusim.ops.permute import TopPermute

HEADS_FIRST = (2, 0, 3, 1, 4)
"""From (n, rows, part, heads, columns) to (part, n, heads, rows, columns)."""
HEADS = (0, 2, 1, 3)


@dataclass
class MatmulWithPermuteAndSplit(RewritePattern):
    """MatMul -> Reshape -> Permute -> Slice and Squeeze of each part: Slice and Squeeze, then a Permute of each part.

    The new Permutes can then become part of the products of attention.
    """

    matmul: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Permute; the new Permutes take the names of the Squeezes."""
        if not isinstance(op, TopPermute) or ints(op.order) != HEADS_FIRST:
            return
        view = made_by(op.input, "top.Reshape")
        if view is None or made_by(view.operands[0], self.matmul.name) is None:
            return
        parts = [(cut, only_user(cut.results[0])) for cut in users(op.output)]
        pairs = [(cut, squeeze) for cut, squeeze in parts if squeeze is not None and _takes_one(cut, squeeze)]
        if not parts or len(pairs) < len(parts):
            return
        for cut, squeeze in pairs:
            _exchange(op, cut, squeeze, rewriter)
        rewriter.erase(op)


def _takes_one(cut: Operation, squeeze: Operation) -> bool:
    """Whether a Slice takes one index of the first axis and all of the others, and a Squeeze removes that axis."""
    if cut.name != SLICE or squeeze.name != "top.Squeeze":
        return False
    first, *rest = part_of_slice(cut)
    whole = [(0, 1, size) for size in shape_of(cut.operands[0])[1:]]
    return first[2] - first[0] == 1 and rest == whole and numbers_of(squeeze, "axes") == (0,)


def _exchange(permute: TopPermute, cut: Operation, squeeze: Operation, rewriter: PatternRewriter) -> None:
    """Make one part from the operand of the Permute by a new Slice, a new Squeeze and a new Permute."""
    n, rows, _, heads, columns = shape_of(permute.input)
    which = part_of_slice(cut)[0]
    part = ((0, 1, n), (0, 1, rows), which, (0, 1, heads), (0, 1, columns))
    one = type(cut).create(
        operands=[permute.input], result_types=[tensor((n, rows, 1, heads, columns))], attributes=slice_attributes(part)
    )
    thin = type(squeeze).create(
        operands=[one.results[0]], result_types=[tensor((n, rows, heads, columns))],
        attributes={"axes": ints_attr([2])},
    )  # fmt: skip
    turned = TopPermute.create(
        operands=[thin.results[0]], result_types=[squeeze.results[0].type], attributes={"order": ints_attr(HEADS)}
    )
    for new, old in ((one, cut), (thin, squeeze)):
        set_op_name(new, f"{op_name(old)}_r_new")
    copy_name(turned, squeeze)
    rewriter.insert([one, thin], InsertPoint.before(squeeze))
    rewriter.replace(squeeze, turned)
    rewriter.erase(cut)
