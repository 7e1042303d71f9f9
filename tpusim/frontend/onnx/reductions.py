"""Reductions over axes, and the indices of the largest and smallest elements."""

from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.ops.arg import TopArg
from tpusim.ops.reduce import KINDS, TopReduce

AXES_AS_INPUT = {"ReduceSum": 13}
"""Opset from which the axes are an input, 18 for the others."""


def reduce(node: Node) -> SSAValue:
    """Reduce*: none of the axes means all of them, or nothing with noop_with_empty_axes."""
    x = node.value(0)
    if node.opset < AXES_AS_INPUT.get(node.op_type, 18):
        axes = list(node.take("axes", ()))
    else:
        axes = node.numbers(1, "axes") or []
    if node.take("noop_with_empty_axes", 0) and not axes:
        return x
    keepdims = bool(node.take("keepdims", 1))
    return TopReduce.make(node.builder, x, mode=node.op_type, axes=axes, keepdims=keepdims, name=node.output)


def arg(node: Node) -> SSAValue:
    """The nodes ArgMax and ArgMin."""
    flags = {key: bool(value) for key, value in node.options("keepdims", "select_last_index").items()}
    axis = int(node.take("axis", 0))
    return TopArg.make(node.builder, node.value(0), mode=node.op_type, axis=axis, **flags, name=node.output)


MAPPERS: dict[str, Mapper] = {**dict.fromkeys(KINDS, reduce), "ArgMax": arg, "ArgMin": arg}
