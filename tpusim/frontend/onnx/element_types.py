"""Element types of a graph's tensors, for models that do not compute in float32 alone.

A top module computes in f32 and holds integers in it. That is exact where no integer leaves 2^24 and where an op means
the same for reals; ops that do not (a division that rounds, a sum that wraps around) are refused by their types.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import onnx
from onnx import TensorProto, helper

from tpusim.errors import UnsupportedError
from tpusim.frontend.onnx.model_file import NUMBERS, GraphInput, declare_inputs, type_text

ROUNDING = ("Div", "ReduceMean", "ReduceL2")
"""Ops whose result on integers is rounded toward 0."""
WRAPPING = ("Add", "Sum", "Sub", "Mul", "Neg", "Abs", "MatMul", "Gemm", "ReduceSum", "ReduceProd", "ReduceL1")
"""Ops whose result on integers of 8 and 16 bits, or without sign, wraps around."""
WIDE = (TensorProto.INT32, TensorProto.INT64)


def dtype_of(elem_type: int) -> np.dtype:
    """The NumPy type in which a tensor is given and returned; float32 for one that states none."""
    return NUMBERS.get(elem_type, np.dtype(np.float32))


class ElementTypes:
    """The types of all tensors by ONNX's inference, which runs only if a network input is not float32."""

    def __init__(self, model: onnx.ModelProto, inputs: Sequence[GraphInput]) -> None:
        self._model = model
        self._inputs = inputs
        self.mixed = any(i.elem_type != TensorProto.FLOAT for i in inputs)

    def is_integer(self, name: str) -> bool:
        """Whether a tensor is of an integer type."""
        return dtype_of(self._found.get(name, TensorProto.FLOAT)).kind in "iu"

    def require_exact(self, node: onnx.NodeProto) -> None:
        """Raise UnsupportedError for a node whose integer arithmetic is not that of reals."""
        if not self.mixed or node.op_type not in (*ROUNDING, *WRAPPING):
            return
        kinds = {self._found.get(name, TensorProto.FLOAT) for name in node.input if self.is_integer(name)}
        if kinds and node.op_type in ROUNDING:
            raise UnsupportedError("the result on integers is rounded toward 0; cast the operands to float")
        narrow = sorted(type_text(kind) for kind in kinds.difference(WIDE))
        if narrow:
            raise UnsupportedError(f"the result on {narrow[0]} wraps around; cast the operands to float or int32")

    @cached_property
    def _found(self) -> dict[str, int]:
        graph = onnx.GraphProto()
        graph.CopyFrom(self._model.graph)
        declare_inputs(graph, self._inputs)
        model = helper.make_model(graph, opset_imports=self._model.opset_import)
        try:
            found = onnx.shape_inference.infer_shapes(model).graph
        except (onnx.shape_inference.InferenceError, ValueError):
            found = graph
        values = (*found.input, *found.value_info, *found.output)
        return {v.name: v.type.tensor_type.elem_type for v in values}
