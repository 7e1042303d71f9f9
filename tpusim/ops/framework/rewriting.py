"""What rewrites of top ops share: asking what stands in front of a value, and taking an op out."""

from typing import ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, ints
from tpusim.ir.module import is_returned
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.families import only_user
from tpusim.ops.structure import TopInput, TopWeight


class Requested(RewritePattern):
    """A rewrite that changes INT8 numbers: applied by its name in `tpusim.registry.PATTERNS`, when it is asked for."""

    ONCE: ClassVar[bool] = False
    """Whether it runs once, in program order, when no other pattern fires any more."""

    def __init__(self, weights: WeightStore) -> None:
        self.weights = weights


def users(value: SSAValue) -> list[Operation]:
    """The ops that read a value, one for each use."""
    return [use.operation for use in value.uses]


def made_by(value: SSAValue, *kinds: str) -> Operation | None:
    """The op of one of these names that makes a value with one use, else None."""
    op = value.owner
    if not isinstance(op, Operation) or op.name not in kinds:
        return None
    return op if only_user(value) is not None else None


def numbers_of(op: Operation, key: str) -> tuple[int, ...]:
    """The integers of an attribute that is a list of them."""
    return ints(cast("ArrayAttr[Attribute]", op.attributes[key]))


def bypass(op: Operation, value: SSAValue, rewriter: PatternRewriter) -> bool:
    """Let a value stand for the result of an op that computes the same; whether that was possible.

    What the network returns keeps its name, which the value's op takes then; an input, a constant and a tensor that is
    returned under its own name cannot, and the op stays.
    """
    source = value.owner
    if is_returned(op.results[0]):
        if not isinstance(source, TopOp) or isinstance(source, TopInput | TopWeight):
            return False
        if len(source.results) > 1 or is_returned(value):
            return False
        copy_name(source, op)
    rewriter.replace(op, [], [value])
    return True
