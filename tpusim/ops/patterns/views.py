"""Views of views, and views that change nothing, by TPU-MLIR's names (interface.md 7.3)."""

from collections.abc import Callable
from typing import ClassVar

from typing_extensions import override
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import copy_name, framework_name, op_name, set_op_name
from tpusim.ir.module import is_returned
from tpusim.ir.pdl import DataPattern, Drawing, one_use, shape
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.rewriting import bypass, bypassed, keeps_shape, made_by, shape_of_result
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


class TopReshapeFuse2(DataPattern):
    """Reshape, used several times -> Reshape that undoes it: the second is removed, each other use has a Reshape."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        """The op before keeps its name."""
        x = p.operand()
        first = p.op("top.Reshape", x)
        p.require(one_use, first, negated=True)
        second = p.op("top.Reshape", first)
        p.require(keeps_shape, second, x)
        p.rewrite(second, cls.divided, first)

    @classmethod
    def divided(cls, rewriter: PatternRewriter, op: Operation, first: Operation) -> None:
        """Uses count from the last to the first one, and the second Reshape counts too (U-33)."""
        x, name, order = first.operands[0], op_name(first), _places(first)
        uses = sorted(first.results[0].uses, key=lambda use: (order[use.operation], use.index), reverse=True)
        for number, use in enumerate(uses):
            if use.operation is op:
                continue
            copy = first.clone()
            set_op_name(copy, f"{name}_reshape_fuse_{number}", framework_name(first))
            rewriter.insert(copy, InsertPoint.before(first))
            use.operation.operands[use.index] = copy.results[0]
            rewriter.notify_op_modified(use.operation)
        if bypass(op, x, rewriter):
            rewriter.erase(first)


def _places(op: Operation) -> dict[Operation, int]:
    """The number of each op in the block of an op."""
    block = op.parent_block()
    assert block is not None  # patterns match ops of a block
    return {one: number for number, one in enumerate(block.ops)}


class ViewUndone(DataPattern):
    """A view, used once -> a view that undoes it: both are removed."""

    FIRST: ClassVar[str]
    SECOND: ClassVar[str]
    REMOVES: ClassVar[Callable[..., None]] = staticmethod(bypassed)

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        x = p.operand()
        first = p.op(cls.FIRST, x)
        p.require(one_use, first)
        second = p.op(cls.SECOND, first)
        p.require(keeps_shape, second, x)
        p.rewrite(second, cls.REMOVES, x)


def renamed(rewriter: PatternRewriter, op: Operation, value: SSAValue) -> None:
    """Replace an op by a value that equals its result; the op of that value takes its name (U-33)."""
    source, name, framework = value.owner, op_name(op), framework_name(op)
    returned = is_returned(value)
    if not bypass(op, value, rewriter) or not isinstance(source, TopOp) or isinstance(source, TopInput | TopWeight):
        return
    if len(source.results) == 1:
        set_op_name(source, name, framework_name(source) if returned else framework)


class TopFuseSqueeze(ViewUndone):
    """Unsqueeze, used once -> Squeeze that restores the shape: both are removed."""

    FIRST = "top.Unsqueeze"
    SECOND = "top.Squeeze"


class TopFuseUnsqueeze(ViewUndone):
    """Squeeze, used once -> Unsqueeze that restores the shape: both are removed; the op before takes the name."""

    FIRST = "top.Squeeze"
    SECOND = "top.Unsqueeze"
    REMOVES = staticmethod(renamed)


class TopRemoveReshapeAndUnsqueezeWhenScalar(ViewUndone):
    """Reshape, used once -> Unsqueeze that restores the shape: both are removed; the op before takes the name."""

    FIRST = "top.Reshape"
    SECOND = "top.Unsqueeze"
    REMOVES = staticmethod(renamed)


class InValidReshapeMergePattern(DataPattern):
    """Reshape to a scalar, used once -> Unsqueeze that restores the shape: both are removed, names stay."""

    benefit: int = 2
    """Before TopRemoveReshapeAndUnsqueezeWhenScalar, which renames."""

    @classmethod
    @override
    def draw(cls, p: Drawing) -> None:
        x = p.operand()
        scalar = p.op("top.Reshape", x)
        p.require(one_use, scalar)
        p.require(shape, scalar, ())
        restored = p.op("top.Unsqueeze", scalar)
        p.require(keeps_shape, restored, x)
        p.rewrite(restored, bypassed, x)
