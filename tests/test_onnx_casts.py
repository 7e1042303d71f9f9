"""Casts to and of bools: which vanish, and what their tensors are called (U-113)."""

import numpy as np
import pytest
from onnx import TensorProto
from op_row import network, node

from tpusim.frontend.onnx import import_onnx
from tpusim.ir.attrs import op_name

BOOL, FLOAT, INT = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64
K = {"k": np.full((), 0.2, np.float32)}


@pytest.mark.every
@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ([node("Greater", "x k", "g"), node("Cast", "g", to=FLOAT)], ["g_Greater"]),
        ([node("Greater", "x k", "g"), node("Not", "g", "n"), node("Cast", "n", to=FLOAT)], ["g_Greater", "n_Not"]),
        ([node("Cast", "x", "b", to=BOOL), node("Cast", "b", "c", to=FLOAT), node("Relu", "c")], ["c_Not", "y_Relu"]),
        ([node("Cast", "x", "b", to=BOOL), node("Where", "b x k")], ["y_Where"]),
        ([node("Cast", "x", "b", to=BOOL), node("Transpose", "b", "t"), node("Where", "t k k")],
         ["t_Transpose", "y_Where"]),
        ([node("Cast", "x", "b", to=BOOL), node("And", "b b", "a"), node("Where", "a x k")],
         ["b_Cast", "a_And", "y_Where"]),
        ([node("Cast", "x", "b", to=BOOL), node("Cast", "b", "i", to=INT), node("Cast", "i", "c", to=FLOAT),
          node("Relu", "c")], ["b_Cast", "y_Relu"]),
        ([node("Relu", "x", "r"), node("Identity", "r")], ["y_Relu"]),
    ],
    ids=["returned", "returned_not", "and_back", "condition", "moved_condition", "logic", "to_integers", "identity"],
)  # fmt: skip
def test_names_and_nodes(nodes: list, names: list[str]) -> None:
    top = import_onnx(network(nodes, K, 17)({"x": (2, 2)}))
    assert [
        op_name(op) for op in top.ops if op.name not in ("top.Input", "top.Weight", "top.None", "func.return")
    ] == names
