"""`GrowingGraph`: nodes and constants of an ONNX graph that is being written, with new names."""

# some functions of the onnx package are only partly annotated:
# pyright: reportUnknownMemberType=false

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class GrowingGraph:
    """The nodes so far, in order, and the constants by name; equal constants are stored once.

    taken: names that new tensors must not have. makers: the node of each tensor.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.makers: dict[str, onnx.NodeProto] = {}
        self._taken = set(taken)
        self._by_content: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def fresh(self, wanted: str) -> str:
        """The wanted name, or it with a number appended if a tensor has the name."""
        name, number = wanted, 0
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name

    def append(self, kind: str, inputs: Sequence[str], wanted: str, count: int, **attributes: Any) -> list[str]:
        """Append a node with `count` results, named like the wanted name; their names."""
        results = [self.fresh(wanted) for _ in range(count)]
        node = helper.make_node(kind, list(inputs), results, name=results[0], **attributes)
        self.nodes.append(node)
        self.makers |= dict.fromkeys(results, node)
        return results

    def store(self, array: np.ndarray, wanted: str) -> str:
        """Add a constant under the wanted name, or reuse an equal one; its name."""
        array = np.asarray(array, order="C")
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._by_content:
            self._by_content[key] = name = self.fresh(wanted)
            self.initializers[name] = numpy_helper.from_array(array, name)
        return self._by_content[key]
