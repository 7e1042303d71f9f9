"""Small networks with a weakness of INT8 planted into them: a residual net, a ViT block, a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray


class Graph:
    """Nodes and constants as they are added; a tensor is its name."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def weight(self, *shape: int) -> Array:
        """Normal numbers whose products keep their size."""
        fan = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        return (self._rng.standard_normal(shape) * np.sqrt(1.5 / fan)).astype(np.float32)

    def constant(self, value: Any) -> str:
        name = f"w{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        name = name or f"{op.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def conv(self, x: str, weight: Array, name: str = "", **attributes: Any) -> str:
        """With a bias, its size kept by padding; windows of even size do not overlap."""
        bias = (self._rng.standard_normal(len(weight)) * 0.1).astype(np.float32)
        pads = [weight.shape[2] // 2 if weight.shape[2] % 2 else 0] * 4
        return self.add("Conv", [x, self.constant(weight), self.constant(bias)], name, pads=pads, **attributes)

    def finish(self, shape: Sequence[int], result: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, "planted", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], self._constants,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


IMAGE, TOKENS, PATCHES = (1, 3, 12, 12), (1, 8, 24), (1, 3, 8, 16)


def residual(channel: float = 1.0) -> onnx.ModelProto:
    """Two residual blocks and a classifier of 10. channel: factor of one channel of `wide`, undone after it."""
    g = Graph(3)
    x = g.add("Relu", [g.conv("x", g.weight(16, 3, 3, 3))])
    first, second = g.weight(16, 16, 3, 3), g.weight(16, 16, 3, 3)
    first[5] *= channel
    second[:, 5] /= channel
    wide = g.add("Relu", [g.conv(x, first)], "wide")
    x = g.add("Relu", [g.add("Add", [x, g.conv(wide, second)])])
    y = g.add("Relu", [g.conv(x, g.weight(16, 16, 3, 3))], "narrow")
    x = g.add("Relu", [g.add("Add", [x, g.conv(y, g.weight(16, 16, 3, 3))])], "last")
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    return g.finish(IMAGE, g.add("Gemm", [x, g.constant(g.weight(16, 10))], "y"))


def twice() -> onnx.ModelProto:
    """Convolutions and two dense layers; one channel of `wide` is 20 times as large, one of `late` ten times."""
    g = Graph(3)
    x = g.add("Relu", [g.conv("x", g.weight(16, 3, 3, 3))])
    first, second = g.weight(16, 16, 3, 3), g.weight(16, 16, 3, 3)
    first[5] *= 20
    second[:, 5] /= 20
    x = g.add("Relu", [g.conv(g.add("Relu", [g.conv(x, first)], "wide"), second)])
    for _ in range(2):
        x = g.add("Relu", [g.conv(x, g.weight(16, 16, 3, 3))])
    x = g.add("Flatten", [g.add("GlobalAveragePool", [x])])
    first, second = g.weight(16, 32), g.weight(32, 10)
    first[:, 4] *= 10
    second[4] /= 10
    x = g.add("Relu", [g.add("Gemm", [x, g.constant(first)])], "late")
    return g.finish((1, 3, 24, 24), g.add("Gemm", [x, g.constant(second)], "y"))


def detector() -> onnx.ModelProto:
    """Scores from 0 to 1 and boxes from 0 to 640 in one tensor."""
    g = Graph(4)
    x = g.add("Relu", [g.conv("x", g.weight(16, 3, 3, 3))])
    x = g.add("Relu", [g.conv(x, g.weight(16, 16, 3, 3))])
    scores = g.add("Sigmoid", [g.conv(x, g.weight(8, 16, 1, 1) * 3)], "scores")
    inside = g.add("Sigmoid", [g.conv(x, g.weight(4, 16, 1, 1))])
    boxes = g.add("Mul", [inside, g.constant(np.float32(640))], "boxes")
    return g.finish(IMAGE, g.add("Concat", [boxes, scores], "y", axis=1))


def vit(mask: float = 0.0, *, keys: float = 0.0, patches: bool = False) -> onnx.ModelProto:
    """One block of a transformer on 8 tokens, 2 heads; 10 classes by their largest token.

    mask: added to the last two tokens, which are padding, so that they are never the largest; 0: all count. keys: the
    same for the scores of their keys, before the Softmax. patches: the tokens are patches of 4 x 4 of an image.
    """
    g, (_, count, width) = Graph(6), TOKENS
    last = np.arange(count) >= count - 2

    def dense(x: str, out: int, name: str = "") -> str:
        wide = width if name != "down" else 2 * width
        return g.add("MatMul", [x, g.constant(g.weight(wide, out))], name)

    def normed(x: str) -> str:
        ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
        return g.add("LayerNormalization", [x, g.constant(ones), g.constant(zeros)], axis=-1)

    def heads(x: str, order: Sequence[int]) -> str:
        split = g.add("Reshape", [x, g.constant(np.array([1, count, 2, width // 2]))])
        return g.add("Transpose", [split], perm=order)

    given = "x"
    if patches:
        rows = g.conv("x", g.weight(width, 3, 4, 4), strides=[4, 4])
        given = g.add("Transpose", [g.add("Reshape", [rows, g.constant(np.array([1, width, count]))])], perm=[0, 2, 1])
    n = normed(given)
    q, k, v = (
        heads(dense(n, width), [0, 2, 1, 3]),
        heads(dense(n, width), [0, 2, 3, 1]),
        heads(dense(n, width), [0, 2, 1, 3]),
    )
    scores = g.add("MatMul", [q, k], "scores")
    scores = g.add("Mul", [scores, g.constant(np.float32(1.5))])
    if keys:
        scores = g.add("Add", [scores, g.constant(np.where(last, keys, 0).astype(np.float32))], "hushed")
    mixed = g.add("MatMul", [g.add("Softmax", [scores], axis=-1), v])
    joined = g.add("Reshape", [g.add("Transpose", [mixed], perm=[0, 2, 1, 3]), g.constant(np.array([1, count, width]))])
    x = g.add("Add", [given, dense(g.add("Mul", [joined, g.constant(np.float32(4))]), width)], "attended")
    hidden = g.add("Relu", [dense(normed(x), 2 * width, "up")], "hidden")
    x = g.add("Add", [x, dense(hidden, width, "down")], "block")
    x = dense(normed(x), 10, "classes")
    if mask:
        x = g.add("Add", [x, g.constant(np.where(last, mask, 0).astype(np.float32).reshape(1, count, 1))], "masked")
    return g.finish(PATCHES if patches else TOKENS, g.add("ReduceMax", [x], "y", axes=[1], keepdims=0))
