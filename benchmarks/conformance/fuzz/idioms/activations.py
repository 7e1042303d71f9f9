"""Activations as exporters write them in primitive ops."""

# Each function is the sequence of one exporter, and its name says which layer it is.
# ruff: noqa: D103

from __future__ import annotations

import numpy as np

from benchmarks.conformance.fuzz.idioms.table import (
    CHANNELS,
    DYNAMO,
    KERAS,
    PADDLE,
    TF2ONNX,
    TORCHSCRIPT,
    WIDTH,
    Idiom,
    Rows,
)

ROWS = Rows()
row = ROWS.row
ROOT = 2**0.5


@row(TORCHSCRIPT)
def gelu_erf(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.mul(x, n.add(n.op("Erf", n.div(x, n.k(ROOT))), n.k(1))), n.k(0.5))


@row(DYNAMO)
def gelu_erf_half_first(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.mul(x, n.k(0.5)), n.add(n.op("Erf", n.mul(x, n.k(1 / ROOT))), n.k(1)))


@row(TF2ONNX)
def gelu_erf_of_keras(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.mul(n.k(0.5), x), n.add(n.k(1), n.op("Erf", n.div(x, n.k(ROOT)))))


@row(PADDLE)
def gelu_erf_last(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(x, n.mul(n.add(n.op("Erf", n.div(x, n.k(ROOT))), n.k(1)), n.k(0.5)))


@row(TORCHSCRIPT)
def gelu_tanh_pow(n: Idiom) -> str:
    x = n.tokens()
    inner = n.add(x, n.mul(n.op("Pow", x, n.k(3)), n.k(0.044715)))
    return n.mul(n.mul(x, n.k(0.5)), n.add(n.op("Tanh", n.mul(inner, n.k(0.7978845608))), n.k(1)))


@row(TORCHSCRIPT)
def gelu_tanh_cube(n: Idiom) -> str:
    x = n.tokens()
    inner = n.add(x, n.mul(n.mul(n.mul(x, x), x), n.k(0.044715)))
    return n.mul(n.mul(x, n.k(0.5)), n.add(n.op("Tanh", n.mul(inner, n.k(0.7978845608))), n.k(1)))


@row(DYNAMO)
def gelu_tanh_fast(n: Idiom) -> str:
    x = n.tokens()
    inner = n.mul(n.mul(x, n.k(0.7978845608)), n.add(n.mul(n.mul(x, n.k(0.044715)), x), n.k(1)))
    return n.mul(n.mul(x, n.k(0.5)), n.add(n.op("Tanh", inner), n.k(1)))


@row(TORCHSCRIPT)
def quick_gelu(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(x, n.op("Sigmoid", n.mul(x, n.k(1.702))))


@row(TORCHSCRIPT)
def silu(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.op("Sigmoid", x))


@row(TORCHSCRIPT)
def silu_of_conv(n: Idiom) -> str:
    x = n.convolved(n.image())
    return n.convolved(n.mul(x, n.op("Sigmoid", x)), k=1)


@row(TF2ONNX)
def swish_beta(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.op("Sigmoid", n.mul(x, n.k(1.5))))


@row(TORCHSCRIPT)
def hardswish_div(n: Idiom) -> str:
    x = n.image()
    return n.div(n.mul(x, n.clip(n.add(x, n.k(3)), 0, 6)), n.k(6))


@row(TORCHSCRIPT)
def hardswish_div_of_conv(n: Idiom) -> str:
    x = n.convolved(n.image())
    return n.convolved(n.div(n.mul(x, n.clip(n.add(x, n.k(3)), 0, 6)), n.k(6)), k=1)


@row(TF2ONNX)
def hardswish_sixth(n: Idiom) -> str:
    x = n.image()
    return n.mul(n.mul(x, n.clip(n.add(x, n.k(3)), 0, 6)), n.k(1 / 6))


@row(KERAS)
def hardswish_gate_first(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.mul(n.clip(n.add(x, n.k(3)), 0, 6), n.k(1 / 6)))


@row(KERAS)
def hardswish_gate_div(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.div(n.clip(n.add(x, n.k(3)), 0, 6), n.k(6)))


@row(TORCHSCRIPT)
def hardswish_by_hardsigmoid(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))


@row(DYNAMO)
def hardswish_op(n: Idiom) -> str:
    return n.op("HardSwish", n.image())


@row(TORCHSCRIPT)
def hardsigmoid_div(n: Idiom) -> str:
    return n.div(n.clip(n.add(n.image(), n.k(3)), 0, 6), n.k(6))


@row(TF2ONNX)
def hardsigmoid_mul(n: Idiom) -> str:
    return n.mul(n.clip(n.add(n.image(), n.k(3)), 0, 6), n.k(1 / 6))


@row(KERAS)
def hardsigmoid_linear(n: Idiom) -> str:
    return n.clip(n.add(n.mul(n.image(), n.k(0.2)), n.k(0.5)), 0, 1)


@row(KERAS)
def hardsigmoid_op(n: Idiom) -> str:
    return n.op("HardSigmoid", n.image(), alpha=0.2, beta=0.5)


@row(PADDLE)
def hardsigmoid_default(n: Idiom) -> str:
    return n.op("HardSigmoid", n.image())


@row(TORCHSCRIPT)
def mish(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.op("Tanh", n.op("Softplus", x)))


@row(TF2ONNX)
def mish_by_log(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, n.op("Tanh", n.op("Log", n.add(n.op("Exp", x), n.k(1)))))


@row(TF2ONNX)
def softplus_by_log(n: Idiom) -> str:
    return n.op("Log", n.add(n.op("Exp", n.image()), n.k(1)))


@row(TORCHSCRIPT)
def softplus_beta(n: Idiom) -> str:
    return n.div(n.op("Softplus", n.mul(n.image(), n.k(2))), n.k(2))


@row(TORCHSCRIPT)
def relu6_clip(n: Idiom) -> str:
    return n.convolved(n.clip(n.convolved(n.image()), 0, 6), k=1)


@row(TF2ONNX)
def relu6_min_of_relu(n: Idiom) -> str:
    return n.op("Min", n.op("Relu", n.convolved(n.image())), n.k(6))


@row(PADDLE)
def relu6_max_min(n: Idiom) -> str:
    return n.op("Min", n.op("Max", n.convolved(n.image()), n.k(0)), n.k(6))


@row(TF2ONNX)
def relu_by_max(n: Idiom) -> str:
    return n.op("Max", n.image(), n.k(0))


@row(TF2ONNX)
def leaky_by_max(n: Idiom) -> str:
    x = n.image()
    return n.op("Max", x, n.mul(x, n.k(0.1)))


@row(TORCHSCRIPT)
def leaky_of_conv(n: Idiom) -> str:
    return n.op("LeakyRelu", n.convolved(n.image()), alpha=0.1)


@row(KERAS)
def prelu_by_relus(n: Idiom) -> str:
    x = n.image()
    slope = n.constant(n.w(1, CHANNELS, 1, 1, std=0.2))
    return n.add(n.op("Relu", x), n.mul(slope, n.op("Neg", n.op("Relu", n.op("Neg", x)))))


@row(TORCHSCRIPT)
def prelu_shared(n: Idiom) -> str:
    return n.op("PRelu", n.image(), np.full((1,), 0.25, np.float32))


@row(TORCHSCRIPT)
def prelu_channels(n: Idiom) -> str:
    return n.op("PRelu", n.convolved(n.image()), n.w(CHANNELS, 1, 1, std=0.2))


@row(TORCHSCRIPT)
def elu_one(n: Idiom) -> str:
    return n.op("Elu", n.image(), alpha=1.0)


@row(PADDLE)
def elu_default(n: Idiom) -> str:
    return n.op("Elu", n.image())


@row(DYNAMO)
def elu_where(n: Idiom) -> str:
    x = n.image()
    return n.op("Where", n.op("Greater", x, n.k(0)), x, n.sub(n.op("Exp", x), n.k(1)))


@row(TF2ONNX)
def selu_parts(n: Idiom) -> str:
    x = n.image()
    low = n.mul(n.sub(n.op("Exp", n.op("Min", x, n.k(0))), n.k(1)), n.k(1.6733))
    return n.mul(n.add(n.op("Relu", x), low), n.k(1.0507))


@row(TORCHSCRIPT)
def celu_parts(n: Idiom) -> str:
    x = n.image()
    return n.add(n.op("Relu", x), n.op("Min", n.sub(n.op("Exp", x), n.k(1)), n.k(0)))


@row(TORCHSCRIPT)
def glu(n: Idiom) -> str:
    a, b = n.parts(n.tokens(), -1, WIDTH // 2, WIDTH // 2)
    return n.mul(a, n.op("Sigmoid", b))


@row(TORCHSCRIPT)
def swiglu(n: Idiom) -> str:
    x = n.tokens()
    gate, up = n.dense(x, WIDTH, 48, bias=False), n.dense(x, WIDTH, 48, bias=False)
    return n.dense(n.mul(n.mul(gate, n.op("Sigmoid", gate)), up), 48, WIDTH, bias=False)


@row(DYNAMO)
def geglu(n: Idiom) -> str:
    a, b = n.parts(n.dense(n.tokens(), WIDTH, 64), -1, 32, 32)
    gate = n.mul(n.mul(b, n.k(0.5)), n.add(n.op("Erf", n.mul(b, n.k(1 / ROOT))), n.k(1)))
    return n.mul(a, gate)


@row(TORCHSCRIPT)
def tanhshrink(n: Idiom) -> str:
    x = n.image()
    return n.sub(x, n.op("Tanh", x))


@row(TF2ONNX)
def softsign_parts(n: Idiom) -> str:
    x = n.image()
    return n.div(x, n.add(n.op("Abs", x), n.k(1)))


@row(TORCHSCRIPT)
def log_sigmoid(n: Idiom) -> str:
    return n.op("Log", n.op("Sigmoid", n.image()))


@row(TF2ONNX)
def log_sigmoid_softplus(n: Idiom) -> str:
    return n.op("Neg", n.op("Softplus", n.op("Neg", n.image())))


@row(TORCHSCRIPT)
def hardtanh(n: Idiom) -> str:
    return n.clip(n.convolved(n.image()), -1, 1)


@row(TORCHSCRIPT)
def softshrink(n: Idiom) -> str:
    x = n.image()
    high, low = n.op("Relu", n.sub(x, n.k(0.5))), n.op("Relu", n.sub(n.op("Neg", x), n.k(0.5)))
    return n.sub(high, low)


@row(TORCHSCRIPT)
def hardshrink(n: Idiom) -> str:
    x = n.image()
    return n.op("Where", n.op("Greater", n.op("Abs", x), n.k(0.5)), x, n.k(0))


@row(TORCHSCRIPT)
def relu_squared(n: Idiom) -> str:
    return n.op("Pow", n.op("Relu", n.dense(n.tokens(), WIDTH, WIDTH)), n.k(2))


@row(TORCHSCRIPT)
def log1p(n: Idiom) -> str:
    return n.op("Log", n.add(n.op("Abs", n.image()), n.k(1)))


@row(TORCHSCRIPT)
def rsqrt(n: Idiom) -> str:
    return n.div(n.k(1), n.op("Sqrt", n.add(n.op("Abs", n.image()), n.k(0.1))))


@row(DYNAMO)
def rsqrt_reciprocal(n: Idiom) -> str:
    return n.op("Reciprocal", n.op("Sqrt", n.add(n.op("Abs", n.image()), n.k(0.1))))


@row(TF2ONNX)
def square(n: Idiom) -> str:
    x = n.image()
    return n.mul(x, x)


@row(TORCHSCRIPT)
def square_pow(n: Idiom) -> str:
    return n.op("Pow", n.image(), n.k(2))


@row(TF2ONNX)
def sigmoid_parts(n: Idiom) -> str:
    return n.div(n.k(1), n.add(n.op("Exp", n.op("Neg", n.image())), n.k(1)))


@row(TF2ONNX)
def squared_difference(n: Idiom) -> str:
    d = n.sub(n.image(), n.image(name="y"))
    return n.mul(d, d)


@row(TORCHSCRIPT)
def one_minus_gate(n: Idiom) -> str:
    x, y = n.image(), n.image(name="y")
    z = n.op("Sigmoid", n.convolved(x))
    return n.add(n.mul(z, y), n.mul(n.sub(n.k(1), z), x))


@row(TORCHSCRIPT)
def affine(n: Idiom) -> str:
    return n.add(n.mul(n.image(), n.k(1.7)), n.k(-0.3))


@row(TF2ONNX)
def image_to_unit(n: Idiom) -> str:
    return n.sub(n.div(n.image(3), n.k(127.5)), n.k(1))


@row(TORCHSCRIPT)
def image_mean_std(n: Idiom) -> str:
    mean = n.constant(np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1))
    std = n.constant(np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1))
    return n.convolved(n.div(n.sub(n.image(3), mean), std), 3)


@row(TORCHSCRIPT)
def constant_first_minus(n: Idiom) -> str:
    return n.sub(n.k(1), n.image())
