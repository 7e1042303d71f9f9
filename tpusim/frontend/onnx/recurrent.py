"""LSTM and GRU nodes that TPU-MLIR computes as one op; others are unrolled (part_recurrent.py, U-106)."""

from typing import Any

from xdsl.ir import SSAValue

from tpusim.frontend.onnx.node import Mapper, Node
from tpusim.frontend.onnx.part_recurrent import DEFAULTS
from tpusim.ops.recurrent import TopGRU, TopLSTM, TopRecurrent

WITHOUT_EFFECT: dict[str, Any] = {
    "layout": 0, "clip": 0.0, "input_forget": 0, "activation_alpha": (), "activation_beta": ()
}  # fmt: skip
"""Attributes and the values that the op has."""
LENGTHS, PEEPHOLES = 4, 7
"""Inputs that the op lacks."""


def _require_plain(node: Node, kind: str, ways: int) -> None:
    """Raise ValueError for what TPU-MLIR refuses or computes as if it were not there."""
    for key, wanted in WITHOUT_EFFECT.items():
        if node.take(key, wanted) != wanted:
            raise ValueError(f"{key} {wanted} is required")
    if kind == "GRU" and not node.take("linear_before_reset", 0):
        raise ValueError("linear_before_reset 1 is required")
    given = [f.lower() for f in node.take("activations", ())]
    if given and given != [f.lower() for f in DEFAULTS[kind]] * ways:
        raise ValueError("the default activations are required")
    if node.has(LENGTHS) or node.has(PEEPHOLES):
        raise ValueError("an input without lengths and peepholes is required")
    for index in (1, 2, *[3] * node.has(3)):
        node.need(index, "weights and biases")


def _recurrent(cls: type[TopRecurrent]) -> Mapper:
    """The mapper of a kind of cell: an op for each output that is read."""

    def read(node: Node) -> list[SSAValue | None]:
        direction = node.take("direction", "forward")
        if direction not in ("forward", "bidirectional"):
            raise ValueError(f"direction forward or bidirectional is required, got {direction}")
        both = direction == "bidirectional"
        _require_plain(node, cls.KIND, 1 + both)
        operands = [node.value(index) for index in (1, 2)]
        operands += [node.value(index) for index in (3, *range(5, 4 + len(cls.OUTPUTS)))]
        hidden, whole = int(node.take("hidden_size", node.shape(2)[-1])), f"{node.outputs[0]}_{cls.KIND}"
        return [
            cls.make(node.builder, node.value(0), operands, hidden=hidden, bidirectional=both, result=result,
                     whole=whole, name=name) if name and node.tensors.is_read(name) else None
            for name, result in zip(node.outputs, cls.OUTPUTS, strict=False)
        ]  # fmt: skip

    return read


MAPPERS: dict[str, Mapper] = {"GRU": _recurrent(TopGRU), "LSTM": _recurrent(TopLSTM)}
