"""Casts that TPU-MLIR's front end removes before it imports the graph, and names of those that it replaces (U-113)."""

from collections.abc import Iterator, Sequence

import onnx
from onnx import TensorProto, helper

from tpusim.frontend.onnx.model_file import DEFAULT_DOMAINS, reads

MOVES = frozenset({"Reshape", "Expand", "Unsqueeze", "Squeeze", "Transpose", "Flatten", "Identity", "Slice"})
"""Ops whose result has the elements of their first operand."""


class Casts:
    """The Casts among the nodes of a graph that returns `returned`."""

    def __init__(self, nodes: Sequence[onnx.NodeProto], returned: Sequence[str]) -> None:
        self._returned = frozenset(returned)
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in nodes if any(node.op_type == "Cast" for node in nodes) else ():
            for name in reads(node):
                self._readers.setdefault(name, []).append(node)

    def to_truths(self, nodes: Sequence[onnx.NodeProto]) -> Iterator[tuple[str, str]]:
        """(result, result of the second) of each Cast to bool that only a Cast back to float reads."""
        for node in nodes:
            readers = self._readers.get(node.output[0], []) if target_of(node) == TensorProto.BOOL else []
            if len(readers) == 1 and target_of(readers[0]) == TensorProto.FLOAT:
                yield node.output[0], readers[0].output[0]

    def read_as_truths(self, name: str) -> bool:
        """Whether all that reads a tensor takes a number other than 0 as true, so that a cast to bool changes nothing.

        A tensor that is returned or read by nothing is not.
        """
        readers = self._readers.get(name, [])
        return bool(readers) and name not in self._returned and all(self._takes_truth(n, name) for n in readers)

    def _takes_truth(self, node: onnx.NodeProto, name: str) -> bool:
        if node.domain not in DEFAULT_DOMAINS:
            return False
        if node.op_type in MOVES:
            return name not in node.input[1:] and self.read_as_truths(node.output[0])
        return node.op_type == "Not" or (node.op_type == "Where" and name not in node.input[1:])


def target_of(node: onnx.NodeProto) -> int:
    """The element type to which a Cast casts; 0 for another node."""
    if node.op_type != "Cast" or node.domain not in DEFAULT_DOMAINS:
        return 0
    return next((int(helper.get_attribute_value(a)) for a in node.attribute if a.name == "to"), 0)
