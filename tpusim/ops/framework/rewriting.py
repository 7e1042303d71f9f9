"""Functions that rewrites of top ops share: look at the op that makes a value, and remove an op."""

from typing import ClassVar, cast

from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, float_attr, framework_name, ints, ints_attr, op_name, set_op_name
from tpusim.ir.module import is_returned
from tpusim.ir.pdl import reads_weights
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.families import constant_of, only_user, relu_of
from tpusim.ops.structure import TopInput, TopWeight


class Requested(RewritePattern):
    """A rewrite that changes INT8 numbers; it is applied on request, by its name in `tpusim.registry.PATTERNS`."""

    ONCE: ClassVar[bool] = False
    """Whether it runs once, in program order, after no other pattern matches any more."""

    def __init__(self, weights: WeightStore) -> None:
        self.weights = weights


def users(value: SSAValue) -> list[Operation]:
    """The ops that read a value, one for each use."""
    return [use.operation for use in value.uses]


def made_by(value: SSAValue, *kinds: str) -> Operation | None:
    """The op that makes a value, if it has one of these names and the value has one use; else None."""
    op = value.owner
    if not isinstance(op, Operation) or op.name not in kinds:
        return None
    return op if only_user(value) is not None else None


def numbers_of(op: Operation, key: str) -> tuple[int, ...]:
    """The integers of a list attribute."""
    return ints(cast("ArrayAttr[Attribute]", op.attributes[key]))


def has_no_relu(op: Operation) -> bool:
    """Whether an op has no fused relu."""
    return not relu_of(op)


def keeps_shape(op: Operation, source: SSAValue) -> bool:
    """Whether an op's result has the shape of a value."""
    return shape_of(source) == shape_of(op.results[0])


@reads_weights
def number_and_computed(weights: WeightStore, number: SSAValue, other: SSAValue) -> bool:
    """Whether one value is a weight of one element and the other is computed."""
    found = constant_of(number, weights)
    return found is not None and found.size == 1 and constant_of(other, weights) is None


@reads_weights
def first_number(rewriter: PatternRewriter, weights: WeightStore, value: SSAValue) -> Attribute:
    """The first element of a weight as an attribute."""
    del rewriter
    found = constant_of(value, weights)
    assert found is not None  # a constraint of the pattern
    return float_attr(float(found.flat[0]))


def shape_of_result(rewriter: PatternRewriter, op: Operation) -> Attribute:
    """The shape of an op's result as an attribute."""
    del rewriter
    return ints_attr(shape_of(op.results[0]))


def bypassed(rewriter: PatternRewriter, op: Operation, value: SSAValue) -> None:
    """Replace an op by a value that equals its result, if that is possible (`bypass`)."""
    bypass(op, value, rewriter)


def give_result(source: Operation, op: Operation) -> None:
    """Let an op give the framework's tensor of another op; it keeps its name unless names are the framework's."""
    if framework_name(op) == op_name(op):
        copy_name(source, op)
    else:
        set_op_name(source, op_name(source), framework_name(op))


def bypass(op: Operation, value: SSAValue, rewriter: PatternRewriter) -> bool:
    """Replace the result of an op by a value that equals it; return whether that is possible.

    If the network returns the result, the op of `value` gives the framework's tensor of that name, but keeps its name
    (U-33). An input, a constant and a tensor that the network returns too cannot, so the op stays.
    """
    source = value.owner
    if is_returned(op.results[0]):
        if not isinstance(source, TopOp) or isinstance(source, TopInput | TopWeight):
            return False
        if len(source.results) > 1 or is_returned(value):
            return False
        give_result(source, op)
    rewriter.replace(op, [], [value])
    return True
