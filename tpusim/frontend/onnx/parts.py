"""`Parts`: the nodes that a decomposition writes."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tpusim.frontend.onnx.node import Node

PARTS_OPSET = 22
"""Version of the operator set of decompositions; ONNX Runtime folds their constant nodes."""
Part: TypeAlias = str | np.ndarray | np.generic
"""A tensor by name, or a constant."""


class Parts:
    """The nodes of a decomposition, in ONNX's default operator set; used: the outputs of the node that are read.

    `opset` is the version of that operator set. `whole`: TPU-MLIR imports the node as one op of this type.
    Args of `op` are tensors by name, arrays and numbers, which become constants, or "" for an absent input.
    """

    def __init__(self, node: Node, used: Sequence[str]) -> None:
        self.node = node
        self.used = used
        self.opset = PARTS_OPSET
        self.whole = ""
        self.nodes: list[onnx.NodeProto] = []

    @property
    def x(self) -> str:
        """The first input of the node."""
        return self.node.inputs[0]

    def input(self, index: int) -> str:
        """The name of an input, "" for an absent one."""
        return self.node.inputs[index] if self.node.has(index) else ""

    def output(self, index: int) -> str:
        """The name of an output, "" if it is not read."""
        name = self.node.outputs[index] if index < len(self.node.outputs) else ""
        return name if name in self.used else ""

    def op(self, op_type: str, *inputs: Part, **attributes: Any) -> str:
        """Append a node with one output; the output's name."""
        return self._append(op_type, inputs, [self._name(op_type)], attributes)[0]

    def ops(self, op_type: str, count: int, *inputs: Part, **attributes: Any) -> list[str]:
        """Append a node of several outputs."""
        names = [f"{self._name(op_type)}_{i}" for i in range(count)]
        return self._append(op_type, inputs, names, attributes)

    def result(self, op_type: str, *inputs: Part, index: int = 0, **attributes: Any) -> None:
        """Append the node that makes an output, unless the output is not read."""
        if self.output(index):
            self._append(op_type, inputs, [self.output(index)], attributes)

    def reshape(self, x: str, *shape: int) -> str:
        """Append a Reshape of `x`; the output's name."""
        return self.op("Reshape", x, np.array(shape, np.int64))

    def _append(
        self, op_type: str, inputs: Sequence[Part], outputs: list[str], attributes: dict[str, Any]
    ) -> list[str]:
        names = [i if isinstance(i, str) else self._constant(np.asarray(i)) for i in inputs]
        kept = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op_type, names, outputs, **kept))
        return outputs

    def _constant(self, array: np.ndarray) -> str:
        name = self._name("constant")
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def _name(self, what: str) -> str:
        first = next(name for name in self.node.outputs if name)
        return f"{first}_part{len(self.nodes)}_{what}"
