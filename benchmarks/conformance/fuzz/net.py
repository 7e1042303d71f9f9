"""`Net`: an ONNX graph that grows node by node and knows the type of every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.conformance.fuzz.statistics import Array, draw
from tests.upstream.networks import IR_VERSION, OPSET, Builder

Shape = tuple[int, ...]
Operand = str | Array | float | list[Any]
"""A value by name ("" for an absent input), or a constant."""
LARGEST = 6000
"""Elements that a value of a random network may have: the sets stay quick."""


class Net(Builder):
    """A `Builder` with shapes: every op's result is inferred when it is added, so that the next op can be chosen."""

    def __init__(self, name: str, opset: int = OPSET) -> None:
        super().__init__(name, opset)
        self.types: dict[str, onnx.TypeProto] = {}
        self._data: dict[str, onnx.TensorProto] = {}

    @property
    def rng(self) -> np.random.Generator:
        """The network's generator, seeded by its name."""
        return self._rng

    def shape(self, value: str) -> Shape:
        """The shape of a value."""
        return tuple(d.dim_value for d in self.types[value].tensor_type.shape.dim)

    def is_float(self, value: str) -> bool:
        """Whether a value is f32."""
        return self.types[value].tensor_type.elem_type == TensorProto.FLOAT

    def values(self) -> list[str]:
        """The values that are no constants, in order."""
        return [name for name in self.types if name not in self._data]

    @property
    def results(self) -> set[str]:
        """The values that nodes make."""
        return {name for node in self._nodes for name in node.output}

    def unread(self) -> list[str]:
        """The values that no node reads."""
        read = {name for node in self._nodes for name in node.input}
        return [name for name in self.values() if name not in read]

    def input(self, name: str, *shape: int) -> str:
        """A float input."""
        self.types[name] = helper.make_tensor_type_proto(TensorProto.FLOAT, shape)
        return super().input(name, *shape)

    def constant(self, array: Array | list[Any] | float) -> str:
        """An initializer; floats become f32."""
        name = super().constant(array)
        tensor = self._constants[-1]
        self.types[name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        self._data[name] = tensor
        return name

    def drawn(self, *shape: int, std: float | None = None) -> str:
        """A constant of statistics drawn at random."""
        fan_in = max(int(np.prod(shape[1:])), 1)
        return self.constant(draw(self.rng, shape, std or fan_in**-0.5))

    def op(self, op_type: str, *inputs: Operand, **attributes: Any) -> str:
        """One op with one result; numbers and arrays become constants."""
        return self.several(op_type, 1, *inputs, **attributes)[0]

    def several(self, op_type: str, count: int, *inputs: Operand, **attributes: Any) -> list[str]:
        """One op with several results."""
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        stem = f"{op_type.lower()}{len(self._nodes)}"
        outs = [stem] if count == 1 else [f"{stem}_{i}" for i in range(count)]
        return self.nodes(op_type, *names, outs=outs, **{k: v for k, v in attributes.items() if v is not None})

    def nodes(self, op: str, *inputs: str, outs: list[str], **attributes: Any) -> list[str]:
        """One op with these results, whose types are inferred. Raises what ONNX's inference does."""
        super().nodes(op, *inputs, outs=outs, **attributes)
        node, given = self._nodes[-1], [name for name in inputs if name]
        schema = onnx.defs.get_schema(op, self.opset, "")
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            node,
            {name: self.types[name] for name in given},
            {name: self._data[name] for name in given if name in self._data},
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=IR_VERSION,
        )
        self.types |= {name: found[name] for name in outs if name in found}
        return outs

    def pick(self, *of: Any) -> Any:
        """One of the arguments."""
        return of[int(self.rng.integers(len(of)))]

    def chance(self, share: float) -> bool:
        """True in this share of the calls."""
        return bool(self.rng.random() < share)

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def uniform(self, low: float, high: float) -> float:
        """A number in an interval, of 3 decimals, as attributes have."""
        return round(float(self.rng.uniform(low, high)), 3)

    def undo(self, mark: int) -> None:
        """Remove the nodes from number `mark` on, with their results; constants stay until `model` drops them."""
        for node in self._nodes[mark:]:
            for name in node.output:
                self.types.pop(name, None)
        del self._nodes[mark:]
        read = {name for node in self._nodes for name in node.input}
        for given in [i for i in self._inputs[1:] if i.name not in read]:
            self._inputs.remove(given)
            del self.types[given.name]

    @property
    def mark(self) -> int:
        """The number of nodes so far."""
        return len(self._nodes)

    def model(self) -> onnx.ModelProto:
        """The finished network without constants and inputs that nothing reads."""
        read = {name for node in self._nodes for name in node.input} | set(self._outputs)
        self._constants = [c for c in self._constants if c.name in read]
        self._inputs = [i for i in self._inputs if i.name in read]
        return super().model()


def constant_of(tensor: onnx.TensorProto) -> Array:
    """The values of an initializer."""
    return numpy_helper.to_array(tensor)
