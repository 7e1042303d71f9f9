"""Small networks whose tensors the real front end named: each shows one rule (tests/upstream/names/networks.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
IMAGE = (1, 8, 6, 6)
RNG = np.random.default_rng(0)


def _weight(*shape: int) -> Array:
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


CONSTANTS: dict[str, Array] = {
    "w": _weight(8, 8, 3, 3), "u": _weight(8, 8, 3, 3), "gamma": _weight(8), "beta": _weight(8), "mean": _weight(8),
    "variance": _weight(8), "channels": _weight(1, 8, 1, 1), "planes": _weight(1, 2, 6, 6), "fc": _weight(8, 288),
    "bias": _weight(8), "small": _weight(8, 4), "half": np.array(0.5, np.float32), "zero": np.array(0, np.float32),
    "six": np.array(6, np.float32), "axes": np.array([2, 3]), "sizes": np.array([2, 2, 4]), "flat": np.array([1, -1]),
    "begin": np.array([1, 0]), "end": np.array([5, 4]), "two": np.array([1, 2]), "index": np.array(2),
    "wide": _weight(288, 8), "root": np.array(2**0.5, np.float32), "one": np.array(1, np.float32),
}  # fmt: skip
CONV = {"pads": [1, 1, 1, 1]}
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
NORM = "gamma beta mean variance"

Line = tuple[str, str, str] | tuple[str, str, str, dict[str, object]]
NETWORKS: dict[str, tuple[str, Sequence[Line]]] = {
    "conv_bn_relu": ("y", [("Conv", "x w", "c", CONV), ("BatchNormalization", f"c {NORM}", "n"), ("Relu", "n", "y")]),
    "conv_bn_pool": (
        "y", [("Conv", "x w", "c", CONV), ("BatchNormalization", f"c {NORM}", "n"), ("MaxPool", "n", "y", POOL)],
    ),
    "conv_bn_returned": ("y", [("Conv", "x w", "c", CONV), ("BatchNormalization", f"c {NORM}", "y")]),
    "bn_conv": ("y", [("BatchNormalization", f"x {NORM}", "n"), ("Conv", "n w", "y", CONV)]),
    "bn_relu": ("y", [("BatchNormalization", f"x {NORM}", "n"), ("Relu", "n", "y")]),
    "conv_add": ("y", [("Conv", "x w", "c", CONV), ("Add", "c channels", "a"), ("Relu", "a", "y")]),
    "conv_add_pool": (
        "y", [("Conv", "x w", "c", CONV), ("Add", "c channels", "a"), ("MaxPool", "a", "y", POOL)],
    ),
    "add_conv": ("y", [("Conv", "x w", "c", CONV), ("Add", "channels c", "y")]),
    "conv_added": ("y", [("Conv", "x w", "c", CONV), ("Add", "c channels", "y")]),
    "identity_last": ("y", [("Conv", "x w", "c", CONV), ("Relu", "c", "r"), ("Identity", "r", "y")]),
    "identity_between": (
        "q",
        [("Conv", "x w", "c", CONV), ("Identity", "c", "i"), ("Relu", "i", "y"), ("Sigmoid", "i", "z"),
         ("Mul", "y z", "q")],
    ),
    "dropout_last": ("y", [("Conv", "x w", "c", CONV), ("Relu", "c", "r"), ("Dropout", "r", "y")]),
    "cast": ("y", [("Conv", "x w", "c", CONV), ("Cast", "c", "d", {"to": 1}), ("Relu", "d", "y")]),
    "constant_part": ("y", [("Relu", "x", "r"), ("Concat", "r planes", "y", {"axis": 1})]),
    "scale": ("y", [("Mul", "x channels", "y")]),
    "split": (
        "y",
        [("Split", "x sizes", "a b c", {"axis": 1}), ("Relu", "a", "p"), ("Sigmoid", "b", "q"), ("Add", "p q", "z"),
         ("Concat", "z c", "y", {"axis": 1})],
    ),
    "gemm": (
        "y",
        [("Flatten", "x", "f"), ("Gemm", "f fc bias", "g", {"transB": 1}), ("Relu", "g", "r"),
         ("Gemm", "r small", "y")],
    ),
    "product_and_row": ("y", [("Flatten", "x", "f"), ("MatMul", "f wide", "m"), ("Add", "m bias", "y")]),
    "concat_relu": (
        "y",
        [("Conv", "x w", "c", CONV), ("Conv", "x u", "d", CONV), ("Concat", "c d", "k", {"axis": 1}),
         ("Relu", "k", "y")],
    ),
    "gelu": (
        "y",
        [("Div", "x root", "a"), ("Erf", "a", "e"), ("Add", "e one", "p"), ("Mul", "x p", "q"), ("Mul", "q half", "y")],
    ),
    "reshape": ("y", [("Reshape", "x flat", "f"), ("Relu", "f", "y")]),
    "mean": ("y", [("ReduceMean", "x", "r", {"axes": [2, 3], "keepdims": 0}), ("Gemm", "r small", "y")]),
    "squeezed": (
        "y",
        [("GlobalAveragePool", "x", "p"), ("Squeeze", "p axes", "f"), ("Relu", "f", "r"), ("Unsqueeze", "r axes", "y")],
    ),
    "relu6": ("y", [("Conv", "x w", "c", CONV), ("Clip", "c zero six", "k"), ("MaxPool", "k", "y", POOL)]),
    "silu": ("y", [("Conv", "x w", "c", CONV), ("Sigmoid", "c", "s"), ("Mul", "c s", "y")]),
    "where": ("y", [("Greater", "x zero", "m"), ("Where", "m x half", "y")]),
    "slice": ("y", [("Slice", "x begin end two", "a"), ("Relu", "a", "y")]),
    "gather": ("y", [("Gather", "x index", "a", {"axis": 1}), ("Relu", "a", "y")]),
    "ceil": ("y", [("Relu", "x", "r"), ("Ceil", "r", "y")]),
    "returned_twice": ("c y", [("Conv", "x w", "c", CONV), ("Relu", "c", "r"), ("Conv", "r u", "y", CONV)]),
}  # fmt: skip


def network(name: str) -> onnx.ModelProto:
    """The network of that name, with input `x` of shape IMAGE."""
    outputs, lines = NETWORKS[name]
    nodes = [_node(*line) for line in lines]
    used = {i for node in nodes for i in node.input}
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, IMAGE)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs.split()],
        [numpy_helper.from_array(array, key) for key, array in CONSTANTS.items() if key in used],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _node(kind: str, inputs: str, outputs: str, attributes: Mapping[str, object] | None = None) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **(attributes or {}))
