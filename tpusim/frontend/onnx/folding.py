"""Evaluate nodes whose inputs are constant, one at a time, in ONNX Runtime: the framework the results are held against.

An op that only shapes a constant therefore needs no code of its own here.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tpusim.errors import ImportModelError
from tpusim.frontend.onnx.session import Session

IR_VERSION = 8
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def foldable(node: onnx.NodeProto) -> bool:
    """Whether the node is a function of its inputs alone: not random, without subgraphs."""
    graphs = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    return node.op_type not in _RANDOM and all(a.type not in graphs for a in node.attribute)


def evaluate(
    node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto], feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The outputs of one node for constant inputs, by name. Raises ImportModelError if ONNX Runtime cannot."""
    value = _constant_value(node)
    if value is not None:
        return {node.output[0]: value}
    outputs = [name for name in node.output if name]
    try:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        graph = helper.make_graph([node], "constant", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        return Session(model.SerializeToString(), threads=1).run(outputs, feeds)
    except (ImportModelError, ValueError, KeyError) as error:
        raise ImportModelError(f"its inputs are constant, but it cannot be evaluated: {error}") from error


def _constant_value(node: onnx.NodeProto) -> np.ndarray | None:
    """The tensor of a Constant node (the common case, without a session)."""
    if node.op_type != "Constant" or len(node.attribute) != 1 or node.attribute[0].name != "value":
        return None
    return numpy_helper.to_array(node.attribute[0].t)
