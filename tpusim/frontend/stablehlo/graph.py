"""ONNX nodes as they are examined: who makes a tensor, and which numbers a constant has."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

CLOSE = 1e-5
"""Relative distance up to which a number of the network counts as the number of a formula (f32 or bf16 constants)."""


class Graph:
    """Nodes with their producers, and constants. Each rule is tried on each node, and may replace it."""

    def __init__(
        self, nodes: Iterable[onnx.NodeProto], constants: Mapping[str, onnx.TensorProto],
        shapes: Mapping[str, Sequence[int]], rules: "Sequence[Rule]",
    ) -> None:  # fmt: skip
        self.nodes: list[onnx.NodeProto] = []
        self.constants = dict(constants)
        self.shapes = shapes
        self._arrays: dict[str, np.ndarray] = {}
        self._makers: dict[str, onnx.NodeProto] = {}
        for node in nodes:
            for rule in rules:
                node = rule(self, node) or node
            self.nodes.append(node)
            self._makers |= dict.fromkeys(node.output, node)

    def array(self, name: str) -> np.ndarray | None:
        """The elements of a constant, None for a computed tensor."""
        if name in self.constants and name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self.constants[name])
        return self._arrays.get(name)

    def number(self, name: str) -> float | None:
        """The one number of a constant."""
        array = self.array(name)
        return float(array.flat[0]) if array is not None and array.size and (array == array.flat[0]).all() else None

    def is_number(self, name: str, wanted: float) -> bool:
        """Whether a constant is a number."""
        found = self.number(name)
        return found is not None and abs(found - wanted) <= CLOSE * abs(wanted)

    def maker(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """The node of one of these kinds that makes a tensor, None for another."""
        node = self._makers.get(name)
        return node if node is not None and node.op_type in kinds else None

    def split(self, name: str, kind: str, is_part: Callable[[str], bool]) -> tuple[str, str] | None:
        """(part, other) of a node of two operands of which one satisfies a condition."""
        node = self.maker(name, kind)
        if node is None:
            return None
        one, other = node.input
        return (one, other) if is_part(one) else (other, one) if is_part(other) else None

    def times(self, name: str, number: float) -> str | None:
        """The other factor of a product with a number."""
        found = self.split(name, "Mul", lambda part: self.is_number(part, number))
        return found and found[1]

    def plus(self, name: str, number: float) -> str | None:
        """The other term of a sum with a number."""
        found = self.split(name, "Add", lambda part: self.is_number(part, number))
        return found and found[1]

    def factors(self, name: str, whole: str = "") -> list[str]:
        """The factors of nested products. whole: a tensor that counts as one factor even if it is a product."""
        node = None if name == whole else self.maker(name, "Mul")
        return [name] if node is None else [f for part in node.input for f in self.factors(part, whole)]

    def constant(self, array: Any, name: str) -> str:
        """Add a constant; its name."""
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def inner(self, name: str) -> np.ndarray | None:
        """The elements of a constant without leading axes of extent 1."""
        array = self.array(name)
        if array is None:
            return None
        first = next((axis for axis, size in enumerate(array.shape) if size != 1), array.ndim)
        return array.reshape(array.shape[first:])

    def constant_shape(self, name: str) -> tuple[int, ...]:
        """The extents of a constant."""
        array = self.array(name)
        return () if array is None else array.shape

    def attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """The attributes of a node."""
        return {a.name: helper.get_attribute_value(a) for a in node.attribute}

    def axes(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """The axes of a reduction."""
        array = self.array(node.input[1])
        return () if array is None else tuple(int(a) for a in array.reshape(-1))


def in_place(node: onnx.NodeProto, kind: str, inputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """A node with the result of another."""
    return helper.make_node(kind, list(inputs), list(node.output), name=node.name, **attributes)


Rule: TypeAlias = Callable[[Graph, onnx.NodeProto], onnx.NodeProto | None]
"""A rule: a node -> another node with the same result, or None."""
