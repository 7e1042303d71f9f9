"""Small networks, one per op family and kind of block, to compare tpusim with the real compiler.

Each is a few kilobytes with seeded weights; families feed their variants from the network's inputs side by side, so
that one difference does not spread to the next variant. `build` gives the same bytes on every machine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
Array = NDArray[Any]


class Builder:
    """An ONNX graph that grows node by node; values are named by the caller or after the op and a count."""

    def __init__(self, name: str, opset: int = OPSET) -> None:
        self.name = name
        self.opset = opset
        self._rng = np.random.default_rng(zlib.crc32(name.encode()))
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[str] = []

    def input(self, name: str, *shape: int) -> str:
        """A float input."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, array: Array | list[Any] | float) -> str:
        """An initializer; floats become f32."""
        value = np.asarray(array)
        value = value.astype(np.float32) if value.dtype.kind == "f" else value
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int, std: float | None = None) -> str:
        """Seeded normal values; the deviation is by default that of a layer which keeps the variance."""
        fan_in = max(int(np.prod(shape[1:])), 1)
        return self.constant(self._rng.normal(0.0, std or fan_in**-0.5, shape).astype(np.float32))

    def positive(self, *shape: int, low: float = 0.5, high: float = 1.5) -> str:
        """Seeded uniform values between two positive bounds."""
        return self.constant(self._rng.uniform(low, high, shape).astype(np.float32))

    def node(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """One op with one result."""
        return self.nodes(op, *inputs, outs=[out or f"{op.lower()}{len(self._nodes)}"], **attributes)[0]

    def nodes(self, op: str, *inputs: str, outs: list[str], **attributes: Any) -> list[str]:
        """One op with these results."""
        self._nodes.append(helper.make_node(op, list(inputs), outs, name=f"n_{outs[0]}", **attributes))
        return outs

    def output(self, *names: str) -> None:
        """Values that the network returns."""
        self._outputs += names

    def conv(self, x: str, cin: int, cout: int, k: int = 1, *, bias: bool = True, group: int = 1, **more: Any) -> str:
        """A convolution with new weights, by default padded to keep the size."""
        out, pads = more.pop("out", None), more.pop("pads", [k // 2] * 4)
        weights = [self.weight(cout, cin // group, k, k)] + [self.weight(cout, std=0.3)] * bias
        return self.node("Conv", x, *weights, out=out, kernel_shape=[k, k], pads=pads, group=group, **more)

    def linear(self, x: str, cin: int, cout: int, *, bias: bool = True) -> str:
        """A product with constants on the right and a bias, as exporters write linear layers."""
        y = self.node("MatMul", x, self.constant(self._rng.normal(0, cin**-0.5, (cin, cout)).astype(np.float32)))
        return self.node("Add", y, self.weight(cout, std=0.2)) if bias else y

    def norm(self, x: str, width: int) -> str:
        """A layer normalization over the last axis."""
        scale, bias = self.positive(width), self.weight(width, std=0.2)
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def batch_norm(self, x: str, channels: int) -> str:
        """An inference batch normalization."""
        parameters = [self.positive(channels), self.weight(channels, std=0.3), self.weight(channels, std=0.3)]
        return self.node("BatchNormalization", x, *parameters, self.positive(channels), epsilon=1e-5)

    def reshape(self, x: str, *shape: int) -> str:
        """A view."""
        return self.node("Reshape", x, self.constant(np.array(shape, np.int64)))

    def gelu(self, x: str) -> str:
        """GELU as exporters before opset 20 write it: x * (1 + erf(x / sqrt 2)) / 2."""
        inner = self.node("Erf", self.node("Div", x, self.constant(2**0.5)))
        return self.node("Mul", self.node("Mul", x, self.node("Add", inner, self.constant(1.0))), self.constant(0.5))

    def attention(self, x: str, tokens: int, width: int, heads: int) -> str:
        """Self-attention over (1, tokens, width), with an output projection."""
        size = width // heads
        q, k, v = (self.reshape(self.linear(x, width, width), 1, tokens, heads, size) for _ in range(3))
        q, v = (self.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 2, 3, 1]))
        weights = self.node("Softmax", self.node("Mul", scores, self.constant(size**-0.5)), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.linear(self.reshape(mixed, 1, tokens, width), width, width)

    def model(self) -> onnx.ModelProto:
        """The finished network, with inferred shapes."""
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self._outputs]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, outputs, self._constants)
        opset = helper.make_opsetid("", self.opset)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="tpusim")
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _conv(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    b.output(b.conv(x, 8, 16, 3, out="plain"), b.conv(x, 8, 16, 3, bias=False, strides=[2, 2], out="strided"))
    b.output(b.conv(x, 8, 12, 1, out="point"), b.conv(x, 8, 8, 3, group=8, out="depthwise"))
    b.output(b.conv(x, 8, 16, 3, group=4, out="grouped"), b.conv(x, 8, 8, 3, dilations=[2, 2], pads=[2] * 4))
    b.output(b.conv(x, 8, 8, 5, pads=[1, 2, 3, 0], out="uneven"))
    b.output(b.conv(x, 8, 8, 5, group=8, strides=[2, 2], bias=False, out="depthwise_strided"))
    positive = b.node("Relu", b.conv(x, 8, 24, 3), out="relued")
    b.output(b.conv(positive, 24, 8, 1, out="of_unsigned"))
    b.output(b.node("Relu", b.batch_norm(b.conv(x, 8, 16, 3, bias=False), 16), out="normed"))


def _conv1d(b: Builder) -> None:
    x = b.input("x", 1, 8, 40)
    b.output(b.node("Conv", x, b.weight(16, 8, 3), b.weight(16, std=0.2), out="row", kernel_shape=[3], pads=[1, 1]))
    b.output(b.node("Conv", x, b.weight(8, 1, 5), out="row_depthwise", kernel_shape=[5], pads=[2, 2], group=8))
    b.output(b.node("MaxPool", x, out="row_max", kernel_shape=[2], strides=[2]))


def _deconv(b: Builder) -> None:
    x = b.input("x", 1, 8, 6, 6)
    bias = b.weight(12, std=0.3)
    b.output(
        b.node(
            "ConvTranspose", x, b.weight(8, 12, 2, 2, std=0.3), bias, out="double", kernel_shape=[2, 2], strides=[2, 2]
        )
    )
    b.output(b.node("ConvTranspose", x, b.weight(8, 4, 3, 3, std=0.2), out="nobias", kernel_shape=[3, 3],
                    strides=[2, 2], pads=[1] * 4,                    output_padding=[1, 1]))  # fmt: skip
    b.output(
        b.node(
            "ConvTranspose",
            x,
            b.weight(8, 1, 4, 4),
            out="grouped",
            kernel_shape=[4, 4],
            strides=[2, 2],
            pads=[1] * 4,
            group=8,
        )
    )
    unsigned = b.node(
        "ConvTranspose", x, b.weight(8, 12, 3, 3, std=0.2), bias, out="same", kernel_shape=[3, 3], pads=[1] * 4
    )
    b.output(b.node("Relu", unsigned, out="relued"))


def _pool(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    positive = b.node("Relu", x, out="positive")
    b.output(b.node("MaxPool", x, out="max2", kernel_shape=[2, 2], strides=[2, 2]))
    b.output(b.node("MaxPool", positive, out="max3", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    b.output(b.node("MaxPool", x, out="max_pad", kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
    b.output(b.node("MaxPool", x, out="max_ceil", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
    b.output(b.node("AveragePool", x, out="avg2", kernel_shape=[2, 2], strides=[2, 2]))
    b.output(
        b.node("AveragePool", x, out="avg_all", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1)
    )
    b.output(b.node("AveragePool", positive, out="avg_odd", kernel_shape=[3, 2], strides=[3, 2]))
    b.output(b.node("GlobalAveragePool", x, out="mean"), b.node("GlobalMaxPool", x, out="top"))


def _average(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    b.output(
        b.node("AveragePool", x, out="avg_in", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=0)
    )
    positive = b.node("Relu", x, out="positive")
    b.output(b.node("AveragePool", positive, out="avg_of_unsigned", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))


def _add(b: Builder) -> None:
    x, y = b.input("x", 1, 8, 12, 12), b.input("y", 1, 8, 12, 12)
    row = b.input("row", 1, 8, 1, 1)
    b.output(b.node("Add", x, y, out="sum"), b.node("Sub", x, y, out="difference"))
    b.output(b.node("Relu", b.node("Add", x, y), out="sum_relu"), b.node("Add", x, row, out="broadcast"))
    b.output(b.node("Sub", x, row, out="less_row"), b.node("Add", x, x, out="twice"))
    b.output(b.node("Sum", x, y, b.node("Relu", x, out="positive"), out="sum3"))


def _multiply(b: Builder) -> None:
    x, y = b.input("x", 1, 8, 12, 12), b.input("y", 1, 8, 12, 12)
    row = b.input("row", 1, 8, 1, 1)
    b.output(b.node("Mul", x, y, out="product"), b.node("Mul", x, row, out="scaled"), b.node("Mul", x, x, out="square"))
    b.output(b.node("Max", x, y, out="larger"), b.node("Min", x, y, out="smaller"))
    b.output(b.node("Relu", b.node("Mul", x, y), out="product_relu"))
    b.output(b.node("Div", x, b.node("Add", b.node("Abs", y), b.constant(0.5)), out="quotient"))


def _constants(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    b.output(b.node("Add", x, b.constant(0.75), out="add_scalar"), b.node("Mul", x, b.constant(-1.7), out="times"))
    b.output(b.node("Sub", b.constant(1.0), x, out="one_minus"), b.node("Sub", x, b.constant(0.3), out="minus"))
    b.output(b.node("Add", x, b.weight(1, 8, 12, 12, std=0.6), out="add_map"))
    b.output(b.node("Mul", x, b.weight(1, 1, 12, 12, std=0.6), out="mul_map"))
    b.output(b.node("Mul", x, b.positive(1, 8, 1, 1), out="mul_channel"))
    b.output(b.node("Add", x, b.weight(1, 8, 1, 1, std=0.6), out="add_channel"))
    b.output(b.node("Sub", x, b.weight(1, 1, 12, 12, std=0.6), out="sub_map"))
    b.output(
        b.node("Div", x, b.constant(3.0), out="third"), b.node("Div", b.constant(1.0), b.node("Exp", x), out="inv")
    )
    b.output(b.node("Relu", b.node("Mul", x, b.constant(0.6)), out="times_relu"))
    b.output(b.node("Max", x, b.constant(0.25), out="at_least"), b.node("Min", x, b.constant(0.5), out="at_most"))


def _tables(b: Builder) -> None:
    x = b.input("x", 1, 4, 8, 8)
    given = {"HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "Elu": {"alpha": 1.0}}  # upstream has other defaults than ONNX
    for op in ("Sigmoid", "Tanh", "Exp", "Abs", "Erf", "Softplus", "HardSigmoid", "HardSwish", "Elu"):
        b.output(b.node(op, x, out=op.lower(), **given.get(op, {})))
    positive = b.node("Add", b.node("Abs", x, out="magnitude"), b.constant(0.1), out="positive")
    b.output(*(b.node(op, positive, out=op.lower()) for op in ("Log", "Sqrt", "Reciprocal")))
    b.output(b.gelu(x), b.node("Elu", x, out="elu_half", alpha=0.5))
    b.output(b.node("HardSigmoid", x, out="hardsigmoid_sixth", alpha=1 / 6, beta=0.5))


def _silu(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    b.output(b.node("Mul", x, b.node("Sigmoid", x, out="gate"), out="silu"))
    y = b.conv(x, 8, 8, 3)
    b.output(b.conv(b.node("Mul", b.node("Sigmoid", y), y), 8, 8, out="after"))


def _rounding(b: Builder) -> None:
    x = b.input("x", 1, 4, 8, 8)
    for op in ("Floor", "Ceil", "Round", "Sin", "Cos", "Softsign", "Sign", "Neg"):
        b.output(b.node(op, x, out=op.lower()))


def _rectifiers(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    b.output(b.node("Relu", x, out="relu"), b.node("LeakyRelu", x, out="leaky", alpha=0.1))
    b.output(b.node("LeakyRelu", b.conv(x, 8, 8, 3), out="conv_leaky", alpha=0.2))
    b.output(b.node("PRelu", x, b.positive(8, 1, 1, low=0.05, high=0.4), out="prelu"))
    b.output(b.node("PRelu", b.conv(x, 8, 8, 3), b.weight(8, 1, 1, std=0.2), out="prelu_mixed"))
    b.output(b.node("Clip", x, b.constant(0.0), b.constant(1.5), out="clip_up"))
    b.output(b.node("Clip", x, b.constant(-0.5), b.constant(0.8), out="clip"))


def _matmul(b: Builder) -> None:
    x, y = b.input("x", 1, 12, 32), b.input("y", 1, 32, 10)
    z = b.input("z", 4, 24)
    b.output(b.linear(x, 32, 20), b.linear(x, 32, 16, bias=False), b.node("MatMul", x, y, out="both"))
    b.output(b.node("Gemm", z, b.weight(24, 16, std=0.2), b.weight(16), out="gemm"))
    b.output(b.node("Gemm", z, b.weight(10, 24), b.weight(10), out="gemm_t", transB=1))
    b.output(b.node("Relu", b.node("Gemm", z, b.weight(24, 16, std=0.2), b.weight(16)), out="gemm_relu"))
    heads = b.node("Transpose", b.reshape(x, 1, 12, 4, 8), perm=[0, 2, 1, 3])
    b.output(b.node("MatMul", heads, b.node("Transpose", heads, perm=[0, 1, 3, 2]), out="batched"))


def _softmax(b: Builder) -> None:
    x, z = b.input("x", 1, 8, 12, 12), b.input("z", 2, 20)
    b.output(b.node("Softmax", x, out="last", axis=-1), b.node("Softmax", x, out="channels", axis=1))
    b.output(b.node("Softmax", z, out="classes", axis=1), b.node("LogSoftmax", z, out="logs", axis=-1))


def _norms(b: Builder) -> None:
    x, tokens = b.input("x", 1, 8, 12, 12), b.input("tokens", 1, 10, 32)
    b.output(b.norm(tokens, 32), b.batch_norm(x, 8))
    b.output(b.node("InstanceNormalization", x, b.positive(8), b.weight(8, std=0.2), out="instance"))
    b.output(b.node("Relu", b.batch_norm(b.node("Relu", x, out="relued"), 8), out="scale_relu"))


def _lrn(b: Builder) -> None:
    x = b.node("Relu", b.conv(b.input("x", 1, 8, 16, 16), 8, 32, 3))
    b.output(b.node("LRN", x, out="lrn", size=5, alpha=1e-3, beta=0.75, bias=1.0))


def _reduce(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    b.output(b.node("ReduceMean", x, out="mean_plane", axes=[2, 3]), b.node("ReduceMax", x, out="max_last", axes=[3]))
    b.output(b.node("ReduceMin", x, out="min_channel", axes=[1]), b.node("ReduceL2", x, out="l2", axes=[3], keepdims=0))
    b.output(b.node("ReduceMean", x, out="mean_channel", axes=[1], keepdims=0))
    b.output(b.node("ReduceSum", x, b.constant(np.array([3])), out="sum_last"))


def _shapes(b: Builder) -> None:
    x, y = b.input("x", 1, 8, 12, 12), b.input("y", 1, 4, 12, 12)
    relu = b.node("Relu", x, out="positive")
    b.output(b.node("Concat", x, y, relu, out="joined", axis=1), b.node("Concat", x, relu, out="rows", axis=2))
    b.output(b.node("Transpose", x, out="turned", perm=[0, 2, 3, 1]), b.reshape(relu, 1, 32, 36))
    b.output(*b.nodes("Split", x, b.constant(np.array([3, 5])), outs=["low", "high"], axis=1))
    ends = [b.constant(np.array(v)) for v in ([1, 2], [7, 11], [1, 2], [1, 3])]
    b.output(b.node("Slice", x, ends[0], ends[1], ends[2], ends[3], out="cut"))
    pads = b.constant(np.array([0, 0, 1, 2, 0, 0, 3, 1]))
    b.output(
        b.node("Pad", x, pads, b.constant(0.4), out="padded"), b.node("Pad", x, pads, out="mirror", mode="reflect")
    )
    b.output(b.node("Pad", x, pads, out="edged", mode="edge"))
    b.output(b.node("Tile", y, b.constant(np.array([1, 2, 1, 1])), out="tiled"), b.node("Flatten", y, out="flat"))
    b.output(b.node("Gather", x, b.constant(np.array([4, 0, 2])), out="taken", axis=1))
    shuffled = b.node("Transpose", b.reshape(x, 1, 2, 4, 12, 12), perm=[0, 2, 1, 3, 4])
    b.output(b.reshape(shuffled, 1, 8, 12, 12))


def _resize(b: Builder) -> None:
    x = b.input("x", 1, 8, 6, 6)
    for name, mode, where, size in (
        ("nearest", "nearest", "asymmetric", 12), ("triple", "nearest", "asymmetric", 18),
        ("linear", "linear", "half_pixel", 12), ("corners", "linear", "align_corners", 11),
        ("pytorch", "linear", "pytorch_half_pixel", 9), ("smaller", "linear", "half_pixel", 3),
    ):  # fmt: skip
        sizes, more = b.constant(np.array([1, 8, size, size])), {"nearest_mode": "floor"} if mode == "nearest" else {}
        b.output(b.node("Resize", x, "", "", sizes, out=name, mode=mode, coordinate_transformation_mode=where, **more))


def _logic(b: Builder) -> None:
    x, y = b.input("x", 1, 8, 12, 12), b.input("y", 1, 8, 12, 12)
    above = b.node("Greater", x, y, out="above")
    b.output(b.node("Where", above, x, y, out="chosen"))
    b.output(b.node("Where", b.node("Less", x, b.constant(0.25)), x, b.constant(0.25), out="capped"))
    b.output(b.node("Where", b.node("GreaterOrEqual", y, b.constant(0.0)), y, b.constant(-6.0), out="masked"))
    same = b.node(
        "Cast", b.node("Equal", b.node("Relu", x, out="px"), b.node("Relu", y, out="py")), to=TensorProto.FLOAT
    )
    b.output(b.node("Mul", x, same, out="where_equal"))
    b.output(b.node("Cast", b.node("ArgMax", x, axis=1, keepdims=1), out="index", to=TensorProto.FLOAT))


def _cast(b: Builder) -> None:
    x = b.input("x", 1, 8, 12, 12)
    above = b.node("Cast", b.node("Greater", x, b.constant(0.2)), out="as_float", to=TensorProto.FLOAT)
    b.output(b.conv(above, 8, 8, 3, out="of_bools"), b.node("Mul", x, above, out="kept"))
    least = b.node("Cast", b.node("ArgMin", x, axis=1, keepdims=1), to=TensorProto.FLOAT)
    b.output(b.node("Add", x, least, out="with_index"))


def _residual(b: Builder) -> None:
    x = b.input("image", 1, 3, 16, 16)
    x = b.node("Relu", b.batch_norm(b.conv(x, 3, 16, 3, strides=[2, 2], bias=False), 16))
    inner = b.node("Relu", b.batch_norm(b.conv(x, 16, 16, 3, bias=False), 16))
    x = b.node("Relu", b.node("Add", b.batch_norm(b.conv(inner, 16, 16, 3, bias=False), 16), x))
    short = b.batch_norm(b.conv(x, 16, 32, 1, strides=[2, 2], bias=False), 32)
    x = b.node("Relu", b.node("Add", b.batch_norm(b.conv(x, 16, 32, 3, strides=[2, 2], bias=False), 32), short))
    b.output(b.linear(b.node("Flatten", b.node("GlobalAveragePool", x)), 32, 10))


def _relu6(b: Builder) -> None:
    def clip(x: str) -> str:
        return b.node("Clip", x, b.constant(0.0), b.constant(6.0))

    x = clip(b.conv(b.input("image", 1, 3, 16, 16), 3, 8, 3, strides=[2, 2]))
    for _ in range(2):
        inner = clip(b.conv(clip(b.conv(x, 8, 24)), 24, 24, 3, group=24))
        x = b.node("Add", b.conv(inner, 24, 8), x)
    x = b.conv(clip(b.conv(b.conv(x, 8, 12), 12, 32)), 32, 8)
    b.output(x, b.node("GlobalAveragePool", clip(b.conv(x, 8, 16))))


def _squeeze(b: Builder) -> None:
    x = b.node("Relu", b.conv(b.input("x", 1, 8, 12, 12), 8, 16, 3))
    inner = b.node("Relu", b.conv(b.node("GlobalAveragePool", x), 16, 4))
    scaled = b.node("Mul", x, b.node("Sigmoid", b.conv(inner, 4, 16)))
    silu = b.conv(scaled, 16, 8, 3)
    b.output(b.conv(b.node("Mul", silu, b.node("Sigmoid", silu)), 8, 8))
    hard = b.node("HardSigmoid", b.conv(b.node("ReduceMean", x, axes=[2, 3]), 16, 16), alpha=1 / 6, beta=0.5)
    b.output(b.node("HardSwish", b.node("Mul", x, hard)))


def _shuffle(b: Builder) -> None:
    x = b.node("Relu", b.conv(b.input("image", 1, 3, 16, 16), 3, 16, 3, strides=[2, 2]))
    left, right = b.nodes("Split", x, outs=["left", "right"], axis=1)
    right = b.node("Relu", b.conv(b.conv(b.node("Relu", b.conv(right, 8, 8)), 8, 8, 3, group=8), 8, 8))
    joined = b.reshape(b.node("Concat", left, right, axis=1), 1, 2, 8, 8, 8)
    mixed = b.reshape(b.node("Transpose", joined, perm=[0, 2, 1, 3, 4]), 1, 16, 8, 8)
    b.output(b.node("Concat", b.node("AveragePool", mixed, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
                    b.conv(mixed, 16, 16, 3, strides=[2, 2], group=4), axis=1))  # fmt: skip


def _enlarge(b: Builder) -> None:
    """Resizes between convolutions, each of a separate tensor: on CV18xx most become convolutions themselves."""
    x, z = b.input("x", 1, 8, 6, 6), b.input("z", 1, 8, 9, 9)
    for name, source, where, size in (
        ("broken", x, "half_pixel", (9, 9)), ("treble", x, "half_pixel", (18, 18)),
        ("uneven", x, "pytorch_half_pixel", (12, 24)), ("wide", x, "half_pixel", (6, 12)),
        ("corners", x, "align_corners", (11, 11)), ("every_second", z, "align_corners", (5, 5)),
        ("third", z, "half_pixel", (3, 3)),
    ):  # fmt: skip
        y = b.node("Resize", b.conv(source, 8, 8), "", "", b.constant(np.array([1, 8, *size])), out=name,
                   mode="linear", coordinate_transformation_mode=where)  # fmt: skip
        b.output(b.conv(y, 8, 4))
    pooled = b.node("GlobalAveragePool", b.conv(x, 8, 8))
    spread = b.node("Resize", pooled, "", "", b.constant(np.array([1, 8, 34, 7])), out="spread", mode="linear",
                    coordinate_transformation_mode="align_corners")  # fmt: skip
    b.output(b.conv(spread, 8, 4))


def _detector(b: Builder) -> None:
    def silu(x: str) -> str:
        return b.node("Mul", x, b.node("Sigmoid", x))

    x = silu(b.conv(b.input("image", 1, 3, 16, 16), 3, 16, 3, strides=[2, 2]))
    small = silu(b.conv(x, 16, 16, 3, strides=[2, 2]))
    pooled = [b.conv(small, 16, 8)]
    for _ in range(3):
        pooled.append(b.node("MaxPool", pooled[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2] * 4))
    small = silu(b.conv(b.node("Concat", *pooled, axis=1), 32, 16))
    scales = b.constant(np.array([1, 1, 2, 2], np.float32))
    large = b.node("Resize", small, "", scales, mode="nearest", nearest_mode="floor",
                   coordinate_transformation_mode="asymmetric")  # fmt: skip
    large = silu(b.conv(b.node("Concat", large, x, axis=1), 32, 16, 3))
    for y, size in ((large, 8), (small, 4)):
        turned = b.node("Transpose", b.reshape(b.conv(y, 16, 14), 1, 2, 7, size, size), perm=[0, 1, 3, 4, 2])
        b.output(b.node("Sigmoid", turned))


def _unet(b: Builder) -> None:
    x = b.node("Relu", b.conv(b.input("image", 1, 3, 16, 16), 3, 8, 3))
    deep = b.node("Relu", b.conv(b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 8, 16, 3))
    up = b.node(
        "ConvTranspose",
        deep,
        b.weight(16, 8, 2, 2, std=0.25),
        b.weight(8, std=0.2),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    x = b.node("Relu", b.conv(b.node("Concat", x, up, axis=1), 16, 8, 3))
    b.output(b.node("Sigmoid", b.conv(x, 8, 2)))


def _attention(b: Builder) -> None:
    b.output(b.attention(b.input("tokens", 1, 12, 32), 12, 32, 4))


def _vit(b: Builder) -> None:
    patches = b.conv(b.input("image", 1, 3, 16, 16), 3, 32, 4, strides=[4, 4], pads=[0] * 4)
    x = b.node("Transpose", b.reshape(patches, 1, 32, 16), perm=[0, 2, 1])
    x = b.node("Add", x, b.weight(1, 16, 32, std=0.3))
    x = b.node("Add", x, b.attention(b.norm(x, 32), 16, 32, 2))
    x = b.node("Add", x, b.linear(b.gelu(b.linear(b.norm(x, 32), 32, 64)), 64, 32))
    b.output(b.linear(b.node("ReduceMean", b.norm(x, 32), axes=[1], keepdims=0), 32, 10))


def _bert(b: Builder) -> None:
    x, mask = b.input("embeddings", 1, 12, 32), b.input("mask", 1, 1, 1, 12)
    bias = b.node("Mul", b.node("Sub", b.constant(1.0), mask), b.constant(-8.0), out="bias")
    q, k, v = (b.reshape(b.linear(x, 32, 32), 1, 12, 4, 8) for _ in range(3))
    q, v = (b.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
    scores = b.node("Div", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 3, 1])), b.constant(8**0.5))
    weights = b.node("Softmax", b.node("Add", scores, bias), axis=-1)
    mixed = b.node("Transpose", b.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    x = b.norm(b.node("Add", b.linear(b.reshape(mixed, 1, 12, 32), 32, 32), x), 32)
    x = b.norm(b.node("Add", b.linear(b.gelu(b.linear(x, 32, 64)), 64, 32), x), 32)
    first = b.node("Gather", x, b.constant(np.array(0)), axis=1)
    b.output(x, b.node("Tanh", b.node("Gemm", first, b.weight(32, 32), b.weight(32, std=0.1))))


def _segformer(b: Builder) -> None:
    x = b.conv(b.input("image", 1, 3, 16, 16), 3, 16, 7, strides=[2, 2], pads=[3] * 4)
    x = b.norm(b.node("Transpose", b.reshape(x, 1, 16, 64), perm=[0, 2, 1]), 16)
    normed = b.norm(x, 16)
    plane = b.reshape(b.node("Transpose", normed, perm=[0, 2, 1]), 1, 16, 8, 8)
    fewer = b.reshape(b.conv(plane, 16, 16, 2, strides=[2, 2], pads=[0] * 4), 1, 16, 16)
    fewer = b.norm(b.node("Transpose", fewer, perm=[0, 2, 1]), 16)
    q, k, v = b.linear(normed, 16, 16), b.linear(fewer, 16, 16), b.linear(fewer, 16, 16)
    scores = b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 1]))
    mixed = b.node("MatMul", b.node("Softmax", b.node("Div", scores, b.constant(4.0)), axis=-1), v)
    x = b.node("Add", x, b.linear(mixed, 16, 16))
    wide = b.linear(b.norm(x, 16), 16, 32)
    wide = b.conv(b.reshape(b.node("Transpose", wide, perm=[0, 2, 1]), 1, 32, 8, 8), 32, 32, 3, group=32)
    wide = b.node("Transpose", b.reshape(wide, 1, 32, 64), perm=[0, 2, 1])
    x = b.node("Add", x, b.linear(b.gelu(wide), 32, 16))
    plane = b.reshape(b.node("Transpose", x, perm=[0, 2, 1]), 1, 16, 8, 8)
    sizes = b.constant(np.array([1, 16, 16, 16]))
    large = b.node("Resize", plane, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    b.output(b.conv(large, 16, 4))


NETWORKS: dict[str, Callable[[Builder], None]] = {
    "conv": _conv, "conv1d": _conv1d, "deconv": _deconv, "pool": _pool, "average": _average, "add": _add,
    "multiply": _multiply, "constants": _constants, "tables": _tables, "silu": _silu, "rounding": _rounding,
    "rectifiers": _rectifiers, "matmul": _matmul, "softmax": _softmax, "norms": _norms, "lrn": _lrn,
    "reduce": _reduce, "shapes": _shapes, "resize": _resize, "enlarge": _enlarge, "logic": _logic, "cast": _cast,
    "residual": _residual, "relu6": _relu6, "squeeze": _squeeze, "shuffle": _shuffle, "detector": _detector,
    "unet": _unet, "attention": _attention, "vit": _vit, "bert": _bert, "segformer": _segformer,
}  # fmt: skip
"""Networks by name; the first are families of ops, from `residual` on they are blocks of real networks."""


FOUND = Path(__file__).parent / "found"
"""ONNX files of small networks in which the real compiler and tpusim differed when they were met at random."""


def build(name: str) -> onnx.ModelProto:
    """One network, of this file or of the folder of networks that were met at random."""
    if name not in NETWORKS:
        return onnx.load(FOUND / f"{name}.onnx")
    builder = Builder(name)
    NETWORKS[name](builder)
    return builder.model()


def fingerprint(model: onnx.ModelProto) -> int:
    """CRC-32 of nodes and constants: what makes the network this one, whatever writes the file."""
    parts = [n.SerializeToString(deterministic=True) for n in model.graph.node]
    parts += [c.name.encode() + numpy_helper.to_array(c).tobytes() for c in model.graph.initializer]
    return zlib.crc32(b"".join(parts))


def samples(model: onnx.ModelProto, count: int = 4) -> list[dict[str, Array]]:
    """Seeded normal inputs: the first is what the networks are run on, all are what they are calibrated with."""
    rng = np.random.default_rng(zlib.crc32(model.graph.name.encode()) + 1)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return [{n: rng.normal(0.0, 1.0, s).astype(np.float32) for n, s in shapes.items()} for _ in range(count)]
