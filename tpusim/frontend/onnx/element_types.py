"""Element types of a graph's tensors, for models that do not compute in float32 alone.

A top module computes in f32 and stores integers in it. That is exact if no integer exceeds 2^24 and if the op is the
same for reals. Ops that differ for integers (a division that rounds, a sum that wraps around) are read by their types.
"""

from collections.abc import Hashable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tpusim.frontend.onnx.model_file import DEFAULT_DOMAINS, NUMBERS


def dtype_of(elem_type: int) -> np.dtype:
    """The NumPy type in which a tensor is given and returned; float32 if it has no type."""
    return NUMBERS.get(elem_type, np.dtype(np.float32))


def elem_type_of(dtype: np.dtype) -> int:
    """The element type of arrays of a NumPy type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def type_of(array: np.ndarray) -> int:
    """The element type of an array."""
    return elem_type_of(array.dtype)


class ElementTypes:
    """The types of the tensors seen so far, node by node, by ONNX's inference of types."""

    def __init__(self, found: dict[str, int]) -> None:
        self._found = found
        self._results: dict[Hashable, tuple[int, ...]] = {}

    def of(self, name: str) -> int:
        """The element type; FLOAT for a tensor of unknown type."""
        return self._found.get(name) or TensorProto.FLOAT

    def dtype(self, name: str) -> np.dtype:
        """The NumPy type of the elements."""
        return dtype_of(self.of(name))

    def set(self, name: str, elem_type: int) -> None:
        """State the type of a tensor."""
        self._found[name] = elem_type

    def is_integer(self, name: str) -> bool:
        """Whether a tensor is of an integer type."""
        return self.dtype(name).kind in "iu"

    def note(self, node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto]) -> None:
        """Infer the types of a node's outputs from those of its inputs."""
        key = (node.domain, node.op_type, len(node.output), *(self.of(n) if n else 0 for n in node.input))
        key = (key, *((a.name, a.i) for a in node.attribute if a.type == onnx.AttributeProto.INT))
        if key not in self._results:
            self._results[key] = self._inferred(node, opsets)
        self._found |= {n: t for n, t in zip(node.output, self._results[key], strict=True) if n}

    def _inferred(self, node: onnx.NodeProto, opsets: Sequence[onnx.OperatorSetIdProto]) -> tuple[int, ...]:
        first = self.of(node.input[0]) if node.input and node.input[0] else TensorProto.FLOAT
        version = next((o.version for o in opsets if o.domain in DEFAULT_DOMAINS), 0)
        if node.domain not in DEFAULT_DOMAINS or not onnx.defs.has(node.op_type, version, ""):
            return (first,) * len(node.output)
        schema = onnx.defs.get_schema(node.op_type, version, "")
        given = {n: typed(self.of(n)) for n in node.input if n}
        try:
            found = onnx.shape_inference.infer_node_outputs(schema, node, given, opset_imports=list(opsets))
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError):
            found = {}
        stated = [_stated(schema, node, i) or first for i in range(len(node.output))]
        return tuple(
            found[n].tensor_type.elem_type if n in found else t for n, t in zip(node.output, stated, strict=True)
        )


def _stated(schema: onnx.defs.OpSchema, node: onnx.NodeProto, index: int) -> int:
    """The type of an output that no operand determines, if the operator set forbids the operands; otherwise 0."""
    to = next((a.i for a in node.attribute if a.name == "to"), 0)
    outputs = schema.outputs
    kind = outputs[min(index, len(outputs) - 1)].type_str
    return to or {"tensor(bool)": TensorProto.BOOL, "tensor(int64)": TensorProto.INT64}.get(kind, 0)


def typed(elem_type: int, shape: Sequence[int] | None = None) -> onnx.TypeProto:
    """The type of a tensor, for ONNX's inference."""
    return helper.make_tensor_type_proto(elem_type, shape)
