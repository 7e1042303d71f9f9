"""Networks that the zoo lacks, at their real sizes, with seeded weights: MobileNetV2, a YOLO, a ViT-Tiny.

Values mean nothing; shapes and nodes are those that exporters write. Every one takes any batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tpusim import zoo


class Net:
    """Nodes and weights, one after the other; every call gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)

    def __call__(self, op: str, *inputs: str | np.ndarray | float, **attributes: Any) -> str:
        """One node more; an array becomes a weight."""
        names = [one if isinstance(one, str) else self._held(np.asarray(one)) for one in inputs]
        self.nodes.append(helper.make_node(op, names, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def _held(self, array: np.ndarray) -> str:
        kept = array if array.dtype == np.int64 else array.astype(np.float32)
        self.weights.append(numpy_helper.from_array(kept, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> str:
        """A convolution with "same" pads, He-normal filters and a bias."""
        fan = inputs // groups * kernel * kernel
        filters = self.rng.standard_normal((outputs, inputs // groups, kernel, kernel)) * np.sqrt(2 / fan)
        how = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        return self("Conv", x, filters, self.rng.standard_normal(outputs) * 0.1, **how)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """A product with a matrix, and a bias."""
        product = self("MatMul", x, self.rng.standard_normal((inputs, outputs)) / np.sqrt(inputs))
        return self("Add", product, self.rng.standard_normal(outputs) * 0.1)

    def model(self, name: str, size: int | tuple[int, ...], *results: str) -> onnx.ModelProto:
        """The network on an image of this size, or on an input of this shape."""
        shape = (1, 3, size, size) if isinstance(size, int) else size
        given = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
        made = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None) for result in results]
        graph = helper.make_graph(self.nodes, name, [given], made, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


INVERTED = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
"""MobileNetV2's stages: expansion, channels, blocks, stride of the first block."""


def mobilenet_v2() -> onnx.ModelProto:
    """MobileNetV2 (Sandler et al. 2018) at 224 x 224, batch norms folded."""
    net = Net()

    def relu6(x: str) -> str:
        return net("Clip", x, 0.0, 6.0)

    x, channels = relu6(net.conv("image", 3, 32, 3, 2)), 32
    for expansion, outputs, count, first in INVERTED:
        for block in range(count):
            stride, wide = first if block == 0 else 1, channels * expansion
            y = relu6(net.conv(x, channels, wide)) if expansion > 1 else x
            y = relu6(net.conv(y, wide, wide, 3, stride, wide))
            y = net.conv(y, wide, outputs)
            x, channels = net("Add", x, y) if stride == 1 and channels == outputs else y, outputs
    x = net("Flatten", net("GlobalAveragePool", relu6(net.conv(x, channels, 1280))))
    x = net("Gemm", x, net.rng.standard_normal((1000, 1280)) / 36, np.zeros(1000), transB=1)
    return net.model("mobilenet_v2", 224, x)


def yolo() -> onnx.ModelProto:
    """The shape of YOLOv5n at 320 x 320: C3 blocks, SPPF, a path up and one down, three heads as raw maps."""
    net = Net()

    def silu(x: str, *conv: int) -> str:
        y = net.conv(x, *conv)
        return net("Mul", y, net("Sigmoid", y))

    def c3(x: str, inputs: int, outputs: int, count: int, *, joined: bool = True) -> str:
        half = outputs // 2
        y = silu(x, inputs, half)
        for _ in range(count):
            inner = silu(silu(y, half, half), half, half, 3)
            y = net("Add", y, inner) if joined else inner
        return silu(net("Concat", y, silu(x, inputs, half), axis=1), outputs, outputs)

    def up(x: str) -> str:
        how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return net("Resize", x, "", np.array([1, 1, 2, 2], np.float32), **how)

    x = c3(silu(silu("image", 3, 16, 5, 2), 16, 32, 3, 2), 32, 32, 1)
    fine = c3(silu(x, 32, 64, 3, 2), 64, 64, 2)
    middle = c3(silu(fine, 64, 128, 3, 2), 128, 128, 3)
    x = c3(silu(middle, 128, 256, 3, 2), 256, 256, 1)
    pooled = [silu(x, 256, 128)]
    for _ in range(3):
        pooled.append(net("MaxPool", pooled[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    low = silu(silu(net("Concat", *pooled, axis=1), 512, 256), 256, 128)
    mid = silu(c3(net("Concat", up(low), middle, axis=1), 256, 128, 1, joined=False), 128, 64)
    first = c3(net("Concat", up(mid), fine, axis=1), 128, 64, 1, joined=False)
    second = c3(net("Concat", silu(first, 64, 64, 3, 2), mid, axis=1), 128, 128, 1, joined=False)
    third = c3(net("Concat", silu(second, 128, 128, 3, 2), low, axis=1), 256, 256, 1, joined=False)
    heads = [net.conv(y, width, 255) for y, width in ((first, 64), (second, 128), (third, 256))]
    return net.model("yolo", 320, *heads)


LAYERS, WIDTH, HEADS, TOKENS = 12, 192, 3, 196


def vit(layers: int = LAYERS, *, class_token: bool = False) -> onnx.ModelProto:
    """ViT-Tiny at 224 x 224 with patches of 16; without a class token the tokens are averaged."""
    net = Net()

    def norm(x: str) -> str:
        return net("LayerNormalization", x, np.ones(WIDTH), np.zeros(WIDTH), axis=-1, epsilon=1e-6)

    def heads(x: str, order: list[int]) -> str:
        split = net("Reshape", net.linear(x, WIDTH, WIDTH), np.array([0, 0, HEADS, WIDTH // HEADS]))
        return net("Transpose", split, perm=order)

    patches = net.rng.standard_normal((WIDTH, 3, 16, 16)) * np.sqrt(1 / 768)
    x = net("Conv", "image", patches, np.zeros(WIDTH), kernel_shape=[16, 16], strides=[16, 16])
    x = net("Transpose", net("Reshape", x, np.array([0, 0, -1])), perm=[0, 2, 1])
    if class_token:
        x = net("Concat", net.rng.standard_normal((1, 1, WIDTH)), x, axis=1)
    x = net("Add", x, net.rng.standard_normal((1, TOKENS + class_token, WIDTH)) * 0.02)
    for _ in range(layers):
        y = norm(x)
        q, k, v = heads(y, [0, 2, 1, 3]), heads(y, [0, 2, 3, 1]), heads(y, [0, 2, 1, 3])
        scores = net("Mul", net("MatMul", q, k), (WIDTH // HEADS) ** -0.5)
        y = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = net("Add", x, net.linear(net("Reshape", y, np.array([0, 0, WIDTH])), WIDTH, WIDTH))
        y = net.linear(norm(x), WIDTH, 4 * WIDTH)
        whole = net("Add", net("Erf", net("Div", y, 2**0.5)), 1.0)
        y = net("Mul", net("Mul", y, whole), 0.5)
        x = net("Add", x, net.linear(y, 4 * WIDTH, WIDTH))
    x = norm(x)
    x = net("Gather", x, np.array(0), axis=1) if class_token else net("ReduceMean", x, axes=[1], keepdims=0)
    x = net("Gemm", x, net.rng.standard_normal((1000, WIDTH)) / 14, np.zeros(1000), transB=1)
    return net.model("vit", 224, x)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: zoo.build("resnet50"),
    "mobilenet_v2": mobilenet_v2,
    "densenet121": lambda: zoo.build("densenet121"),
    "yolo": yolo,
    "vit": vit,
}
