"""Vision networks as exporters write them, as small as they can be and have every idiom of theirs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper

from tests.exported import FLOATS, Arrays, Net, sample

SIZE = 16
"""Rows and columns of every image."""
Made = tuple[onnx.ModelProto, Arrays]


class Vision(Net):
    """A network on an image, with the layers that all of them have."""

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        fan = inputs // group * kernel * kernel
        w = self.rng.standard_normal((outputs, inputs // group, kernel, kernel)) * np.sqrt(2 / fan)
        bias, pads = self.rng.standard_normal(outputs) * 0.1, [kernel // 2] * 4
        return self("Conv", x, w, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group)

    def silu(self, x: str) -> str:
        return self("Mul", x, self("Sigmoid", x))

    def split(self, x: str, count: int, axis: int = 1) -> list[str]:
        names = [f"s{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node("Split", [x], names, axis=axis, num_outputs=count))
        return names

    def upsampled(self, x: str, mode: str = "nearest") -> str:
        scales = np.array([1, 1, 2, 2], np.float32)
        half = {"linear": "half_pixel", "nearest": "asymmetric"}[mode]
        return self("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=half, nearest_mode="floor")

    def classes(self, x: str, inputs: int, count: int = 6) -> str:
        x = self("Flatten", self("GlobalAveragePool", x))
        return self("Gemm", x, self.rng.standard_normal((count, inputs)) / np.sqrt(inputs), np.zeros(count), transB=1)

    def on_image(self, *results: str, channels: int = 3) -> Made:
        shape = (1, channels, SIZE, SIZE)
        return self.model({"x": (FLOATS, shape)}, *results), {"x": sample(*shape)}


def mobilenet_v3() -> Made:
    """HardSwish, depthwise convolutions, squeeze and excitation by HardSigmoid."""
    net = Vision()
    x = net("HardSwish", net.conv("x", 3, 8, 3, 2))
    y = net("Relu", net.conv(net("Relu", net.conv(x, 8, 16)), 16, 16, 3, group=16))
    gate = net("Relu", net.conv(net("GlobalAveragePool", y), 16, 4))
    gate = net("HardSigmoid", net.conv(gate, 4, 16), alpha=1 / 6)
    x = net("Add", x, net.conv(net("Mul", y, gate), 16, 8))
    x = net.conv(x, 8, 16)
    return net.on_image(net.classes(net("Mul", x, net("HardSigmoid", x, alpha=1 / 6, beta=0.5)), 16))


def efficientnet() -> Made:
    """SiLU as Sigmoid and Mul, squeeze and excitation by ReduceMean."""
    net = Vision()
    x = net.silu(net.conv("x", 3, 8, 3, 2))
    y = net.silu(net.conv(net.silu(net.conv(x, 8, 16)), 16, 16, 5, group=16))
    gate = net.silu(net.conv(net("ReduceMean", y, np.array([2, 3]), keepdims=1), 16, 2))
    y = net("Mul", net("Sigmoid", net.conv(gate, 2, 16)), y)
    x = net("Add", net.conv(y, 16, 8), x)
    return net.on_image(net.classes(net.silu(net.conv(x, 8, 16)), 16))


def resnest() -> Made:
    """Split attention: two branches in groups, weighted by a Softmax over them."""
    net, c = Vision(), 8
    x = net("Relu", net.conv("x", 3, c, 3, 2))
    y = net("Relu", net.conv(x, c, 2 * c, 3, group=2))
    parts = net("Reshape", y, np.array([1, 2, c, SIZE // 2, SIZE // 2]))
    gap = net("ReduceMean", net("ReduceSum", parts, np.array([1]), keepdims=0), np.array([2, 3]), keepdims=1)
    weights = net.conv(net("Relu", net.conv(gap, c, 4)), 4, 2 * c)
    weights = net("Transpose", net("Reshape", weights, np.array([1, 1, 2, -1])), perm=[0, 2, 1, 3])
    weights = net("Reshape", net("Softmax", weights, axis=1), np.array([1, 2, c, 1, 1]))
    y = net("ReduceSum", net("Mul", weights, parts), np.array([1]), keepdims=0)
    return net.on_image(net.classes(net("Relu", net("Add", net.conv(y, c, c), x)), c))


def hrnet() -> Made:
    """Two resolutions that are exchanged: strided convolutions down, Resize up."""
    net = Vision()
    x = net("Relu", net.conv("x", 3, 8, 3, 2))
    low = net("Relu", net.conv(x, 8, 16, 3, 2))
    high = net("Relu", net("Add", net.conv(x, 8, 8, 3), x))
    for mode in ("nearest", "linear"):
        up = net.upsampled(net.conv(low, 16, 8), mode)
        low = net("Relu", net("Add", net.conv(high, 8, 16, 3, 2), low))
        high = net("Relu", net("Add", high, up))
    return net.on_image(net.conv(net("Concat", high, net.upsampled(low, "linear"), axis=1), 24, 5))


def shuffle() -> Made:
    """Super-resolution: pixels from channels, once by the op and once as views and a Transpose."""
    net = Vision()
    x = net("Tanh", net.conv("x", 3, 8, 5))
    x = net("Relu", net("DepthToSpace", net.conv(x, 8, 16, 3), blocksize=2, mode="CRD"))
    y, n = net.conv(x, 4, 12, 3), 2 * SIZE
    y = net("Transpose", net("Reshape", y, np.array([1, 3, 2, 2, n, n])), perm=[0, 1, 4, 2, 5, 3])
    return net.on_image(net("Reshape", y, np.array([1, 3, 2 * n, 2 * n])))


def crnn() -> Made:
    """Text in a line: convolutions, columns as steps of an LSTM in both directions, LogSoftmax."""
    net, hidden = Vision(), 6
    x = net("MaxPool", net("Relu", net.conv("x", 3, 8, 3)), kernel_shape=[2, 2], strides=[2, 2])
    x = net("MaxPool", net("Relu", net.conv(x, 8, 12, 3)), kernel_shape=[8, 1], strides=[8, 1])
    x = net("Transpose", net("Squeeze", x, np.array([2])), perm=[2, 0, 1])
    parts = [net.rng.standard_normal((2, 4 * hidden, n)) * 0.4 for n in (12, hidden)]
    bias = net.rng.standard_normal((2, 8 * hidden)) * 0.1
    y = net("LSTM", x, *parts, bias, hidden_size=hidden, direction="bidirectional")
    y = net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    return net.on_image(net("LogSoftmax", net.linear(y, 2 * hidden, 7), axis=2))


def yolo_v8() -> Made:
    """C2f, SPPF, two scales, distances as expectations over a Softmax, boxes of anchors, the best by TopK."""
    net, bins, kinds = Vision(), 4, 3
    x = net.silu(net.conv("x", 3, 8, 3, 2))
    left, right = net.split(net.silu(net.conv(x, 8, 8)), 2)
    deep = net("Add", right, net.silu(net.conv(net.silu(net.conv(right, 4, 4, 3)), 4, 4, 3)))
    fine = net.silu(net.conv(net("Concat", left, right, deep, axis=1), 12, 8))
    coarse = [net.silu(net.conv(fine, 8, 4, 3, 2))]
    for _ in range(3):
        coarse.append(net("MaxPool", coarse[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    low = net.silu(net.conv(net("Concat", *coarse, axis=1), 16, 8))
    fine = net.silu(net.conv(net("Concat", net.upsampled(low), fine, axis=1), 16, 8))
    maps = [net("Concat", net.conv(y, 8, 4 * bins, 3), net.conv(y, 8, kinds, 3), axis=1) for y in (fine, low)]
    y = net("Concat", *(net("Reshape", m, np.array([1, 4 * bins + kinds, -1])) for m in maps), axis=2)
    anchors, strides = _anchors(SIZE // 2, SIZE // 4)
    net.nodes.append(helper.make_node("Split", [y, net.weight(np.array([4 * bins, kinds]))], ["box", "cls"], axis=1))
    box = net("Transpose", net("Reshape", "box", np.array([1, 4, bins, -1])), perm=[0, 2, 1, 3])
    expected = np.arange(bins, dtype=np.float32).reshape(1, bins, 1, 1)
    box = net("Reshape", net("Conv", net("Softmax", box, axis=1), expected), np.array([1, 4, -1]))
    near, far = net.split(box, 2)
    first, last = net("Sub", anchors, near), net("Add", anchors, far)
    middle, size = net("Div", net("Add", first, last), 2.0), net("Sub", last, first)
    box = net("Mul", net("Concat", middle, size, axis=1), strides)
    found = net("Transpose", net("Concat", box, net("Sigmoid", "cls"), axis=1), perm=[0, 2, 1])
    return _best(net, found, 4 + kinds)


def _anchors(*sizes: int) -> tuple[np.ndarray, np.ndarray]:
    """The middles of all cells (1, 2, cells) and how many pixels a cell is wide (1, cells)."""
    grids = [np.stack(np.meshgrid(np.arange(n) + 0.5, np.arange(n) + 0.5)).reshape(2, -1) for n in sizes]
    widths = [np.full((1, n * n), SIZE / n) for n in sizes]
    return np.concatenate(grids, 1)[None], np.concatenate(widths, 1)


def _best(net: Vision, found: str, width: int, count: int = 5) -> Made:
    """The detections with the highest scores."""
    scores = net("ReduceMax", net("Slice", found, np.array([4]), np.array([width]), np.array([2])), np.array([2]),
                 keepdims=0)  # fmt: skip
    best = net("TopK", scores, np.array([count]), axis=1)
    net.nodes[-1].output.append("places")
    places = net("Expand", net("Unsqueeze", "places", np.array([2])), np.array([1, count, width]))
    return net.on_image(net("GatherElements", found, places, axis=1), best)


def raft() -> Made:
    """Correlations of two images, looked up where the flow points to by GridSample, a GRU of convolutions, twice."""
    net, c, n = Vision(), 8, SIZE // 4
    one, two = (net.conv(net("Relu", net.conv(x, 3, c, 3, 2)), c, c, 3, 2) for x in net.split("x", 2))
    rows, columns = (net("Reshape", y, np.array([1, c, n * n])) for y in (one, two))
    volume = net("Div", net("MatMul", net("Transpose", rows, perm=[0, 2, 1]), columns), np.sqrt(c))
    volume = net("Reshape", volume, np.array([n * n, 1, n, n]))
    start = np.stack(np.meshgrid(np.arange(n), np.arange(n)))[None].astype(np.float32)
    hidden, places = net("Tanh", one), net("Add", start, np.zeros((1, 2, n, n)))
    window = np.stack(np.meshgrid(np.arange(-1, 2), np.arange(-1, 2)), -1)[None].astype(np.float32)
    for _ in range(2):
        here = net("Reshape", net("Transpose", places, perm=[0, 2, 3, 1]), np.array([n * n, 1, 1, 2]))
        grid = net("Sub", net("Div", net("Mul", net("Add", here, window), 2.0), float(n - 1)), 1.0)
        seen = net("GridSample", volume, grid, align_corners=1, mode="bilinear" if net.opset < 20 else "linear")
        seen = net("Transpose", net("Reshape", seen, np.array([1, n, n, 9])), perm=[0, 3, 1, 2])
        both = net("Concat", hidden, seen, axis=1)
        update, new = net("Sigmoid", net.conv(both, c + 9, c, 3)), net("Tanh", net.conv(both, c + 9, c, 3))
        hidden = net("Add", net("Mul", net("Sub", 1.0, update), hidden), net("Mul", update, new))
        places = net("Add", places, net.conv(hidden, c, 2, 3))
    flow = net("Mul", net("Sub", places, start), 4.0)
    return net.on_image(net("Resize", flow, "", np.array([1, 1, 4, 4], np.float32), mode="linear"), channels=6)


VISION: dict[str, Callable[[], Made]] = {
    "mobilenet_v3": mobilenet_v3, "efficientnet": efficientnet, "resnest": resnest, "hrnet": hrnet, "shuffle": shuffle,
    "crnn": crnn, "yolo_v8": yolo_v8, "raft": raft,
}  # fmt: skip
