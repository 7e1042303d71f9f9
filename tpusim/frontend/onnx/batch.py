"""Models with another batch than that of their export."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false


def keeping_batch(path: Path, batch: int) -> Path | onnx.ModelProto:
    """The model after `keep_batch`; the path itself if it is not an ONNX file."""
    if path.suffix != ".onnx":
        return path
    model = onnx.load(path)
    keep_batch(model.graph, batch)
    return model


def keep_batch(graph: onnx.GraphProto, batch: int) -> None:
    """Let Reshapes to the exported batch keep the batch of their input, by a 0 as first extent (opset 5).

    A constant shape that starts with the same number for another reason is changed too, so the caller must check the
    shapes of the results.
    """
    names = {node.input[1] for node in graph.node if node.op_type == "Reshape" and not _zeros_are_zero(node)}
    for tensor in graph.initializer:
        if tensor.name in names and _begins_with(wanted := numpy_helper.to_array(tensor), batch):
            changed = np.array([0, *wanted[1:]], wanted.dtype)
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))


def _zeros_are_zero(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "allowzero" and attribute.i for attribute in node.attribute)


def _begins_with(shape: np.ndarray, batch: int) -> bool:
    return shape.size > 1 and int(shape[0]) == batch
