"""`Writer`: ONNX nodes of a TFLite graph, with every image in the order of axes that an op needs."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tpusim.errors import UnsupportedError
from tpusim.frontend.tflite.file import Graph, Tensor

OPSET, IR_VERSION = 17, 8
TO_NCHW, TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)
NCHW_AXIS = {0: 0, 1: 2, 2: 3, 3: 1}
"""Axis of an image as TFLite counts it -> as ONNX does."""
BYTES = (np.dtype(np.int8), np.dtype(np.uint8))


class Writer:
    """The nodes so far. A computed tensor of four axes has a name in each order of axes, made when it is needed."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._names: dict[tuple[int, bool], str] = {}
        for number in graph.inputs:
            self._put(number, graph.tensors[number].name, images=False)

    def tensor(self, number: int) -> Tensor:
        """The tensor of the file with this number."""
        return self.graph.tensors[number]

    def node(self, op_type: str, inputs: Sequence[str], *outputs: str, **attributes: Any) -> str:
        """Append an ONNX node; the name of its first output."""
        self.nodes.append(helper.make_node(op_type, list(inputs), list(outputs), **attributes))
        return outputs[0]

    def elem_type(self, number: int) -> int:
        """The ONNX element type of a tensor as the network computes with it: of a quantised one float32."""
        tensor = self.tensor(number)
        real = len(tensor.scales) or tensor.dtype == np.float16
        return TensorProto.FLOAT if real else helper.np_dtype_to_tensor_dtype(tensor.dtype)

    def array(self, name: str, array: np.ndarray) -> str:
        """Add a constant of this name, once; its name."""
        self._initializers.setdefault(name, numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def integers(self, number: int) -> np.ndarray:
        """The integers of a constant parameter of an op. Raises UnsupportedError if it is computed."""
        tensor = self.tensor(number)
        if tensor.data is None or tensor.data.dtype.kind not in "iu":
            raise UnsupportedError(f"'{tensor.name}': constant integers are required")
        return tensor.data.astype(np.int64)

    # ---------------------------------------------------------------------------------------------------------- values

    def value(self, number: int, *, images: bool) -> str:
        """The name of a tensor; images: one of four axes as NCHW, else as the file has it."""
        tensor = self.tensor(number)
        if tensor.data is not None:
            data = tensor.data.transpose(TO_NCHW) if images and tensor.data.ndim == 4 else tensor.data
            axis = NCHW_AXIS.get(tensor.axis, 0) if images and tensor.data.ndim == 4 else tensor.axis
            return self.constant(number, data, axis, "nchw" if images else "")
        images = images and len(tensor.shape) == 4
        if (number, images) not in self._names:
            if (number, not images) not in self._names:
                raise UnsupportedError(f"'{tensor.name}' is read before any op computes it")
            name = f"{tensor.name}_{'nchw' if images else 'nhwc'}"
            source = self._names[number, not images]
            self._names[number, images] = self.node("Transpose", [source], name, perm=TO_NCHW if images else TO_NHWC)
        return self._names[number, images]

    def constant(self, number: int, data: np.ndarray, axis: int, form: str = "") -> str:
        """Add a constant's data, integers with a DequantizeLinear; axis: the axis of several scales."""
        tensor = self.tensor(number)
        name = f"{tensor.name}_{form}" if form else tensor.name
        if not len(tensor.scales):
            return self.array(name, data.astype(np.float32) if data.dtype.kind == "f" else data)
        if name in {n.output[0] for n in self.nodes}:
            return name
        one = len(tensor.scales) == 1
        parts = [
            self.array(f"{name}_quantized", data),
            self.array(f"{name}_scale", tensor.scales.reshape(()) if one else tensor.scales),
            self.array(f"{name}_zero_point", tensor.zero_points.astype(data.dtype).reshape(() if one else -1)),
        ]
        return self.node("DequantizeLinear", parts, name, **({} if one else {"axis": axis}))

    def target(self, number: int) -> str:
        """The name for the result of an op, before its Q and DQ pair."""
        name = self.tensor(number).name
        return f"{name}_real" if number in self.graph.outputs else name

    def done(self, number: int, *, images: bool) -> None:
        """Note that an op has written `target(number)`; images: a result of four axes is NCHW."""
        self._put(number, self.target(number), images=images and len(self.tensor(number).shape) == 4)

    def stand_in(self, number: int) -> None:
        """Treat the result of a refused op as written."""
        self._names.setdefault((number, False), self.tensor(number).name)

    def _put(self, number: int, name: str, *, images: bool) -> None:
        """Record the name of a tensor, after adding its Q and DQ pair if it is quantised."""
        tensor = self.tensor(number)
        if len(tensor.scales) == 1 and tensor.dtype in BYTES:
            parts = [
                self.array(f"{tensor.name}_scale", tensor.scales.reshape(())),
                self.array(f"{tensor.name}_zero_point", tensor.zero_points.astype(tensor.dtype).reshape(())),
            ]
            stored = self.node("QuantizeLinear", [name, *parts], f"{tensor.name}_quantized")
            name = self.node("DequantizeLinear", [stored, *parts], f"{tensor.name}_dequantized")
        elif len(tensor.scales) or tensor.dtype == np.float16:
            raise UnsupportedError(
                f"'{tensor.name}': float32, or int8 or uint8 with one scale, is required, got {tensor.dtype}"
            )
        self._names[number, images] = name

    # ----------------------------------------------------------------------------------------------------------- model

    def model(self) -> onnx.ModelProto:
        """The ONNX model; inputs and results in the file's order of axes."""
        for number in self.graph.outputs:
            self.node("Identity", [self.value(number, images=False)], self.tensor(number).name)
        inputs, outputs = (
            [
                helper.make_tensor_value_info(self.tensor(n).name, self.elem_type(n), self.tensor(n).shape)
                for n in numbers
            ]
            for numbers in (self.graph.inputs, self.graph.outputs)
        )
        graph = helper.make_graph(self.nodes, "tflite", inputs, outputs, list(self._initializers.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def _info(self, number: int) -> onnx.ValueInfoProto:
        tensor = self.tensor(number)
        return helper.make_tensor_value_info(tensor.name, self.elem_type(number), tensor.shape)
