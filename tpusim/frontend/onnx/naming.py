"""What TPU-MLIR calls the tensors of an ONNX graph (U-16): its tables and npz files fit our module of the same file.

A tensor is named by its ONNX name, "_" and the type of the node that makes it (`stem_Relu`, `logits_Gemm`, `b_Split`);
a network input keeps its name. The graph is simplified before it is named, which shows in these places:

* Conv -> BatchNormalization, the only user: one Conv, called after the Conv's output (`c_Conv`), or after the batch
  norm's where the graph returns that. The output of the Conv before the batch norm is no tensor any more. So are a Conv
  without a bias and an Add behind it of a constant per channel, on the right.
* An Identity vanishes; the tensor that the graph returns through one takes the name of the graph output. A Dropout
  vanishes too, but the tensor before it keeps its name.

* A Ceil has no type in its name.

What is fused later is named by the pattern that fuses it. Read off what `model_transform.py` prints.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx


@dataclass(frozen=True)
class Name:
    """What an op is called, and the ONNX tensor that its result equals if that is called otherwise."""

    text: str
    onnx: str = ""


class Naming:
    """Names of the tensors that nodes make, by ONNX name; `plain`: every tensor keeps its ONNX name.

    constants: shapes of those that the graph brings, by name.
    """

    def __init__(
        self,
        nodes: Sequence[onnx.NodeProto],
        returned: Sequence[str],
        constants: Mapping[str, Sequence[int]],
        *,
        plain: bool = False,
    ) -> None:
        self._types = {} if plain else {name: node.op_type for node in nodes for name in node.output if name}
        self._special: dict[str, Name] = {}
        self._returned = set(returned)
        if not plain:
            self._name_parts_of_convs(nodes, constants)

    def of(self, tensor: str) -> Name:
        """The name of a tensor; one that ONNX does not have (of an op made of several) keeps the name it is given."""
        if tensor in self._special:
            return self._special[tensor]
        if self._types.get(tensor) in (None, "Ceil"):
            return Name(tensor)
        return Name(f"{tensor}_{self._types[tensor]}", tensor)

    def returned_as(self, tensor: str, output: str, *, through_dropout: bool) -> Name:
        """The name of a tensor that the graph returns as `output` through nodes that vanish."""
        if tensor not in self._types:
            return Name(output)
        if through_dropout:
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
    """Whether an Add has a constant per channel on the right, behind a Conv that has no bias."""
    filter, offset = constants.get(conv.input[1], ()), constants.get(add.input[1])
    if offset is None or not filter or len(offset) > len(filter) or any(conv.input[2:3]):
        return False
    return (*[1] * (len(filter) - len(offset)), *offset) == (1, filter[0], *[1] * (len(filter) - 2))
