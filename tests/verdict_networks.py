"""Small networks of which a verdict is known: a detector, a saturating quantised network, a convolution."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, SIZE = 4, 6


def model_of(
    nodes: list[onnx.NodeProto],
    arrays: dict[str, np.ndarray],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int]],
    path: Path,
) -> Path:
    """Write a network; inputs, outputs: shapes by name."""
    given, made = (
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in v.items()] for v in (inputs, outputs)
    )
    tensors = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, path.stem, given, made, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def detector(path: Path, *, moved: bool = False, twice: bool = False, scores: int = 1) -> Path:
    """Boxes in pixels and scores from 0 to 1 in one Concat, as detectors are exported."""
    rng = np.random.default_rng(5)
    arrays = {
        "wb": rng.normal(size=(4, CHANNELS, 1, 1)).astype(np.float32),
        "ws": rng.normal(size=(scores, CHANNELS, 1, 1)).astype(np.float32),
        "stride": np.float32(300),
        "flat": np.array([1, -1, SIZE * SIZE], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "wb"], ["b"]),
        helper.make_node("Conv", ["x", "ws"], ["s"]),
        helper.make_node("Mul", ["b", "stride"], ["boxes"]),
        helper.make_node("Sigmoid", ["s"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores"], ["joined"], axis=1),
        helper.make_node("Reshape", ["joined", "flat"], ["y"]),
    ]
    shape = [1, 4 + scores, SIZE * SIZE]
    if moved:
        nodes[-1].output[0] = "rows"
        nodes.append(helper.make_node("Transpose", ["rows"], ["y"], perm=[0, 2, 1]))
        shape = [1, SIZE * SIZE, 4 + scores]
    if twice:
        nodes[-1].output[0] = "once"
        nodes.append(helper.make_node("Concat", ["once", "once"], ["y"], axis=2 - moved))
        shape[2 - moved] *= 2
    return model_of(nodes, arrays, {"x": [1, CHANNELS, SIZE, SIZE]}, {"y": shape}, path)


def saturating(path: Path, scale: float) -> Path:
    """A quantised network whose sums leave the range of its integers: Q and DQ of `scale` around the result."""
    constants = {
        "s": np.float32(0.03), "t": np.float32(scale), "z": np.int8(0), "ws": np.float32(0.01),
        "w": np.random.default_rng(6).integers(-100, 100, size=(8, CHANNELS, 3, 3)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        *pair("x", "xd", "s"),
        helper.make_node("DequantizeLinear", ["w", "ws", "z"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
        *pair("c", "y", "t"),
    ]
    shapes = {"x": [1, CHANNELS, SIZE, SIZE]}, {"y": [1, 8, SIZE, SIZE]}
    return model_of(nodes, {n: np.asarray(a) for n, a in constants.items()}, *shapes, path)


def pair(x: str, y: str, scale: str) -> list[onnx.NodeProto]:
    """Q and DQ from one tensor to another."""
    return [
        helper.make_node("QuantizeLinear", [x, scale, "z"], [f"{y}_q"]),
        helper.make_node("DequantizeLinear", [f"{y}_q", scale, "z"], [y]),
    ]


def lone(path: Path) -> Path:
    """A convolution."""
    arrays = {"w": np.random.default_rng(7).normal(size=(4, CHANNELS, 1, 1)).astype(np.float32)}
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    return model_of([node], arrays, {"x": [1, CHANNELS, SIZE, SIZE]}, {"y": [1, 4, SIZE, SIZE]}, path)


def images(count: int, sizes: Sequence[float] = ()) -> np.ndarray:
    """Random samples, each times a size."""
    drawn = np.random.default_rng(8).normal(size=(count, CHANNELS, SIZE, SIZE)).astype(np.float32)
    return drawn * np.asarray(sizes or [1] * count, np.float32).reshape(-1, 1, 1, 1)
