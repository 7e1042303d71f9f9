"""TPU-MLIR's names of the tensors of an ONNX graph (U-16): its tables and npz files fit our module of the same file.

The name is the ONNX name, "_" and the type of the node that makes the tensor (`stem_Relu`, `logits_Gemm`, `b_Split`); a
network input keeps its name. The graph is simplified before names are given, which affects these cases:

* Conv -> BatchNormalization, its only user: one Conv, named after the Conv's output (`c_Conv`), or after the batch
  norm's output if the graph returns that. The Conv's output before the batch norm no longer exists. The same holds for
  a Conv without bias and an Add after it whose right operand is a constant per channel.
* An Identity vanishes; a tensor that the graph returns through an Identity has the name of the graph output. A Dropout
  vanishes too, but the tensor before it keeps its name.

* A Ceil has no type in its name.
* A tensor that the graph returns through a Cast of bools or integers keeps its name. A Cast to bool that only a Cast
  back to float reads is called after the latter, as `c_Not`.

Patterns name the results of later fusions. The rules were derived from the output of `model_transform.py`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from tpusim.frontend.onnx.casts import Casts


@dataclass(frozen=True)
class Name:
    """The name of an op, and the ONNX tensor that equals its result if that has another name."""

    text: str
    onnx: str = ""


class Naming:
    """Names of the tensors that nodes make, by ONNX name; `plain`: every tensor keeps its ONNX name.

    constants: shapes of the graph's constants, by name. casts: those among the nodes.
    """

    def __init__(
        self,
        nodes: Sequence[onnx.NodeProto],
        returned: Sequence[str],
        constants: Mapping[str, Sequence[int]],
        casts: Casts,
        *,
        plain: bool = False,
    ) -> None:
        self._types = {} if plain else {name: node.op_type for node in nodes for name in node.output if name}
        self._special: dict[str, Name] = {}
        self._returned = set(returned)
        if not plain:
            self._name_parts_of_convs(nodes, constants)
            for truth, number in casts.to_truths(nodes):
                self._special[truth] = Name(f"{number}_Not", number)

    def of(self, tensor: str) -> Name:
        """The name of a tensor; an inner tensor of a decomposed node keeps its given name."""
        if tensor in self._special:
            return self._special[tensor]
        if self._types.get(tensor) in (None, "Ceil"):
            return Name(tensor)
        return Name(f"{tensor}_{self._types[tensor]}", tensor)

    def returned_as(self, tensor: str, output: str, *, kept: bool) -> Name:
        """The name of a tensor that the graph returns as `output` through nodes that vanish; kept: under its name."""
        if tensor not in self._types:
            return Name(output)
        if kept:
            return Name(self.of(tensor).text, output)
        return Name(f"{output}_{self._types[tensor]}", output)

    def _name_parts_of_convs(self, nodes: Sequence[onnx.NodeProto], constants: Mapping[str, Sequence[int]]) -> None:
        made_by = {name: node for node in nodes for name in node.output}
        users = Counter([*(name for node in nodes for name in node.input), *self._returned])
        for node in nodes:
            conv = made_by.get(node.input[0]) if node.op_type in ("BatchNormalization", "Add") else None
            if conv is None or conv.op_type != "Conv" or users[conv.output[0]] != 1:
                continue
            if node.op_type == "BatchNormalization" or _is_bias(node, conv, constants):
                before, after = conv.output[0], node.output[0]
                self._special[after] = Name(f"{after if after in self._returned else before}_Conv", after)
                self._special[before] = Name(before)


def _is_bias(add: onnx.NodeProto, conv: onnx.NodeProto, constants: Mapping[str, Sequence[int]]) -> bool:
    """Whether an Add after a Conv without bias has a constant per channel as its right operand."""
    filter, offset = constants.get(conv.input[1], ()), constants.get(add.input[1])
    if offset is None or not filter or len(offset) > len(filter) or any(conv.input[2:3]):
        return False
    return (*[1] * (len(filter) - len(offset)), *offset) == (1, filter[0], *[1] * (len(filter) - 2))
