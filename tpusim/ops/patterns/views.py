"""Views of views, and views that change nothing, by TPU-MLIR's names (interface.md 7.3)."""

from typing import ClassVar

from typing_extensions import override
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter

from tpusim.ir.attrs import copy_name
from tpusim.ir.pdl import DataPattern, Drawing, one_use
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.rewriting import bypassed, keeps_shape, made_by, shape_of_result
from tpusim.ops.structure import TopInput, TopWeight


class FlattenToReshape(DataPattern):
    """A Flatten is replaced by a Reshape; TPU-MLIR's shape inference does the same."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The Reshape takes the name."""
        x = p.operand()
        flat = p.op("top.Flatten", x)
        becomes = p.rewrite(flat)
        becomes.replace_with("top.Reshape", x, shape=becomes.attribute(shape_of_result, flat))


class TopFuseReshape2(DataPattern):
    """A Reshape to the same shape is removed."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """It stays if the network returns both the tensor and its operand."""
        x = p.operand()
        view = p.op("top.Reshape", x)
        p.require(keeps_shape, view, x)
        p.rewrite(view, bypassed, x)


class TopReshapeFuse(DataPattern):
    """Reshape -> Reshape, the first used once: the second alone.

    If the second undoes the first, the op before both takes the first's name. This joins adjacent 1-D convolutions.
    """

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        first = p.op("top.Reshape", p.operand())
        p.require(one_use, first)
        p.rewrite(p.op("top.Reshape", first), cls.read_from_before, first)

    @classmethod
    def read_from_before(cls, rewriter: PatternRewriter, op: Operation, first: Operation) -> None:
        """Let the second read what the first reads."""
        x = first.operands[0]
        source = made_by(x, getattr(x.owner, "name", "")) if keeps_shape(op, x) else None
        if isinstance(source, TopOp) and not isinstance(source, TopInput | TopWeight):
            copy_name(source, first)
        op.operands[0] = x
        rewriter.erase(first)
        rewriter.notify_op_modified(op)


class ViewUndone(DataPattern):
    """A view -> a view that undoes it: the second is removed."""

    FIRST: ClassVar[str]
    SECOND: ClassVar[str]

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """Other ops may read the first."""
        x = p.operand()
        second = p.op(cls.SECOND, p.op(cls.FIRST, x))
        p.require(keeps_shape, second, x)
        p.rewrite(second, bypassed, x)


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
