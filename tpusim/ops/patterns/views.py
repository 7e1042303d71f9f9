"""Views of views, and views that change nothing; patterns have TPU-MLIR's names (interface.md 7.3)."""

from typing import ClassVar

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.rewriting import bypass, made_by
from tpusim.ops.structure import TopInput, TopWeight

RESHAPES = ("top.Reshape", "top.Flatten")


class TopFuseReshape2(RewritePattern):
    """Reshape to the shape that the tensor has: none."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Only a tensor that the network returns beside its operand needs it."""
        if op.name in RESHAPES and shape_of(op.operands[0]) == shape_of(op.results[0]):
            bypass(op, op.operands[0], rewriter)


class TopReshapeFuse(RewritePattern):
    """Reshape -> Reshape, the first used once: the second alone.

    If it only takes back the first, the op in front of both stands for the tensor between them and takes its name: so
    one 1-D convolution follows another.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second of the two, which takes the place of both."""
        first = made_by(op.operands[0], *RESHAPES) if op.name == "top.Reshape" else None
        if first is None:
            return
        x = first.operands[0]
        source = made_by(x, getattr(x.owner, "name", "")) if shape_of(x) == shape_of(op.results[0]) else None
        if isinstance(source, TopOp) and not isinstance(source, TopInput | TopWeight):
            copy_name(source, first)
        op.operands[0] = x
        rewriter.erase(first)
        rewriter.notify_op_modified(op)


class ViewUndone(RewritePattern):
    """One view -> another that takes it back: neither."""

    FIRST: ClassVar[str]
    SECOND: ClassVar[str]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second; others may read the first."""
        first = op.operands[0].owner if op.name == self.SECOND else None
        if not isinstance(first, Operation) or first.name != self.FIRST:
            return
        if shape_of(first.operands[0]) == shape_of(op.results[0]):
            bypass(op, first.operands[0], rewriter)


class TopFuseSqueeze(ViewUndone):
    """Unsqueeze -> Squeeze to the shape before."""

    FIRST = "top.Unsqueeze"
    SECOND = "top.Squeeze"


class TopFuseUnsqueeze(ViewUndone):
    """Squeeze -> Unsqueeze to the shape before."""

    FIRST = "top.Squeeze"
    SECOND = "top.Unsqueeze"


class TopRemoveReshapeAndUnsqueezeWhenScalar(ViewUndone):
    """Reshape -> Unsqueeze to the shape before, as around scalars."""

    FIRST = "top.Reshape"
    SECOND = "top.Unsqueeze"


class InValidReshapeMergePattern(ViewUndone):
    """Unsqueeze -> Reshape to the shape before, as around scalars."""

    FIRST = "top.Unsqueeze"
    SECOND = "top.Reshape"
