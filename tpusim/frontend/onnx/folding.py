"""Evaluate nodes whose inputs are constant, one at a time, in ONNX Runtime, with which results are compared.

Nodes that it lacks (new operator sets, bfloat16) are evaluated by ONNX's reference evaluator. So an op that only
reshapes constants needs no code in tpusim.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tpusim.errors import ImportModelError
from tpusim.frontend.onnx.session import Session

IR_VERSION = 8
LARGEST_NEW = 2**27
"""The most elements of a constant that is computed from small ones."""
GROWTH = 8
"""The most elements of a computed constant, as a multiple of the elements of its inputs."""
SMALL = 64
"""The most elements of an input that may be a list of extents."""
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
    model = _alone(node, opsets, feeds)
    _require_size(model, feeds)
    outputs = [o.name for o in model.graph.output]
    try:
        return Session(model.SerializeToString(), threads=1).run(outputs, feeds)
    except (ImportModelError, ValueError, KeyError) as error:
        found = by_definition(node, opsets, feeds)
        if found is not None:
            return found
        raise ImportModelError(f"its inputs are constant, but it cannot be evaluated: {error}") from error


def _require_size(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> None:
    """Raise ImportModelError for a constant that would take too much time and memory to compute."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    small = {name: array for name, array in feeds.items() if array.size <= SMALL and array.dtype.kind in "iuf"}
    probe.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in small.items())
    try:
        inferred = onnx.shape_inference.infer_shapes(probe).graph.output
    except (onnx.shape_inference.InferenceError, ValueError):
        return  # its evaluation reports the error
    limit = max(LARGEST_NEW, *(GROWTH * array.size for array in feeds.values()), 0)
    for output in inferred:
        shape = [d.dim_value for d in output.type.tensor_type.shape.dim]
        if prod(shape) > limit:
            raise ImportModelError(f"its inputs are constant, but a constant of shape {tuple(shape)} is too large")


def _alone(
    node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto], feeds: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """A model of one node with its inputs declared, for ONNX Runtime to compute."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "constant", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def by_definition(
    node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto], feeds: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """The outputs by ONNX's reference evaluator, which has ops and types that ONNX Runtime lacks; None if it fails."""
    from onnx.reference import ReferenceEvaluator  # 0.4 s that few networks need

    model = _alone(node, opsets, feeds)
    try:
        evaluator: Any = ReferenceEvaluator(model)
        found: list[Any] = evaluator.run(None, dict(feeds))
    except MemoryError:
        raise  # the next attempt may succeed, and another way of reading the node must not replace it
    except Exception:  # noqa: BLE001  its Python code may raise anything
        return None
    names = [o.name for o in model.graph.output]
    return {name: np.asarray(y) for name, y in zip(names, found, strict=True) if not isinstance(y, list | dict)}


def _constant_value(node: onnx.NodeProto) -> np.ndarray | None:
    """The tensor of a Constant node of numbers (the common case, without a session)."""
    if node.op_type != "Constant" or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        return numpy_helper.to_array(attribute.t)
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    dtype = kinds.get(attribute.name)
    return None if dtype is None else np.array(helper.get_attribute_value(attribute), dtype)
