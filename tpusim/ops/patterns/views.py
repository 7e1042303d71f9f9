"""Views of views, and views that change nothing, by TPU-MLIR's names (interface.md 7.3)."""

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
    """A Reshape to the same shape is removed."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """It stays if the network returns both the tensor and its operand."""
        if op.name in RESHAPES and shape_of(op.operands[0]) == shape_of(op.results[0]):
            bypass(op, op.operands[0], rewriter)


class TopReshapeFuse(RewritePattern):
    """Reshape -> Reshape, the first used once: the second alone.

    If the second undoes the first, the op before both takes the first's name. This joins adjacent 1-D convolutions.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second."""
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
    """A view -> a view that undoes it: the second is removed."""

    FIRST: ClassVar[str]
    SECOND: ClassVar[str]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the second; other ops may read the first."""
        first = op.operands[0].owner if op.name == self.SECOND else None
        if not isinstance(first, Operation) or first.name != self.FIRST:
            return
        if shape_of(first.operands[0]) == shape_of(op.results[0]):
            bypass(op, first.operands[0], rewriter)


class TopFuseSqueeze(ViewUndone):
    """Unsqueeze -> Squeeze that restores the shape: the Squeeze is removed."""

    FIRST = "top.Unsqueeze"
    SECOND = "top.Squeeze"


class TopFuseUnsqueeze(ViewUndone):
    """Squeeze -> Unsqueeze that restores the shape: the Unsqueeze is removed."""

    FIRST = "top.Squeeze"
    SECOND = "top.Unsqueeze"


class TopRemoveReshapeAndUnsqueezeWhenScalar(ViewUndone):
    """Reshape -> Unsqueeze that restores the shape, as around scalars: the Unsqueeze is removed."""

    FIRST = "top.Reshape"
    SECOND = "top.Unsqueeze"


class InValidReshapeMergePattern(ViewUndone):
    """Unsqueeze -> Reshape that restores the shape, as around scalars: the Reshape is removed."""

    FIRST = "top.Unsqueeze"
    SECOND = "top.Reshape"
