"""Recurrent layers, classical models and quantised networks as exporters write them."""

# ruff: noqa: D103

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from benchmarks.conformance.fuzz.idioms.table import (
    CHANNELS,
    DYNAMO,
    KERAS,
    PADDLE,
    SKLEARN,
    TF2ONNX,
    TORCHSCRIPT,
    WIDTH,
    Idiom,
    Rows,
)

ROWS = Rows()
row = ROWS.row
STEPS, INNER, HIDDEN = 5, 6, 8


def recurrent(
    n: Idiom, op: str, gates: int, x: str, *, both: bool = False, state: bool = False, **more: Any
) -> list[str]:
    """The op with weights, and zero states if the exporter writes them: all of its results."""
    ways = 2 if both else 1
    weights = [n.w(ways, gates * HIDDEN, k, std=0.35) for k in (INNER, HIDDEN)]
    states = 2 if op == "LSTM" else 1
    given = ["", *[np.zeros((ways, 1, HIDDEN), np.float32)] * states] if state else []
    return n.several(op, 1 + states, x, *weights, n.w(ways, 2 * gates * HIDDEN, std=0.2), *given, hidden_size=HIDDEN,
                     direction="bidirectional" if both else "forward", **more)  # fmt: skip


def sequence(n: Idiom) -> str:
    return n.input("x", STEPS, 1, INNER)


@row(TORCHSCRIPT)
def lstm(n: Idiom) -> str:
    return n.squeezed(recurrent(n, "LSTM", 4, sequence(n), state=True)[0], 1)


@row(DYNAMO)
def lstm_batch_first(n: Idiom) -> str:
    x = n.turn(n.input("x", 1, STEPS, INNER), 1, 0, 2)
    return n.turn(n.squeezed(recurrent(n, "LSTM", 4, x, state=True)[0], 1), 1, 0, 2)


@row(TORCHSCRIPT)
def lstm_both_ways(n: Idiom) -> str:
    y = n.turn(recurrent(n, "LSTM", 4, sequence(n), both=True, state=True)[0], 0, 2, 1, 3)
    return n.view(y, STEPS, 1, 2 * HIDDEN)


@row(KERAS)
def lstm_last_state(n: Idiom) -> str:
    x = n.turn(n.input("x", 1, STEPS, INNER), 1, 0, 2)
    return n.dense(n.squeezed(recurrent(n, "LSTM", 4, x)[1], 0), HIDDEN, 3)


@row(TORCHSCRIPT)
def lstm_last_step(n: Idiom) -> str:
    y = n.squeezed(recurrent(n, "LSTM", 4, sequence(n), state=True)[0], 1)
    return n.dense(n.op("Gather", y, np.array(-1, np.int64), axis=0), HIDDEN, 3)


@row(TORCHSCRIPT)
def gru(n: Idiom) -> str:
    return n.squeezed(recurrent(n, "GRU", 3, sequence(n), state=True, linear_before_reset=1)[0], 1)


@row(KERAS)
def gru_keras(n: Idiom) -> str:
    return n.squeezed(recurrent(n, "GRU", 3, sequence(n), linear_before_reset=0)[1], 0)


@row(TORCHSCRIPT)
def gru_both_ways(n: Idiom) -> str:
    y = n.turn(recurrent(n, "GRU", 3, sequence(n), both=True, state=True, linear_before_reset=1)[0], 0, 2, 1, 3)
    return n.view(y, STEPS, 1, 2 * HIDDEN)


@row(TORCHSCRIPT)
def rnn_tanh(n: Idiom) -> str:
    return n.squeezed(recurrent(n, "RNN", 1, sequence(n), state=True)[0], 1)


@row(TORCHSCRIPT)
def lstm_cell(n: Idiom) -> list[str]:
    x, h, c = n.input("x", 1, INNER), n.input("h", 1, HIDDEN), n.input("c", 1, HIDDEN)
    gates = n.add(n.dense(x, INNER, 4 * HIDDEN), n.dense(h, HIDDEN, 4 * HIDDEN))
    i, f, g, o = n.parts(gates, 1, *[HIDDEN] * 4)
    c = n.add(n.mul(n.op("Sigmoid", f), c), n.mul(n.op("Sigmoid", i), n.op("Tanh", g)))
    return [n.mul(n.op("Sigmoid", o), n.op("Tanh", c)), c]


@row(TORCHSCRIPT)
def gru_cell(n: Idiom) -> str:
    x, h = n.input("x", 1, INNER), n.input("h", 1, HIDDEN)
    given, kept = (
        n.parts(n.dense(x, INNER, 3 * HIDDEN), 1, *[HIDDEN] * 3),
        n.parts(n.dense(h, HIDDEN, 3 * HIDDEN), 1, *[HIDDEN] * 3),
    )
    r, z = (n.op("Sigmoid", n.add(a, b)) for a, b in zip(given[:2], kept[:2], strict=True))
    new = n.op("Tanh", n.add(given[2], n.mul(r, kept[2])))
    return n.add(n.mul(n.sub(n.k(1), z), new), n.mul(z, h))


@row(TORCHSCRIPT)
def embedding(n: Idiom) -> str:
    x = n.op("Cast", n.op("Round", n.op("Abs", n.input("x", 1, 6))), to=TensorProto.INT64)
    return n.dense(n.op("Gather", n.w(20, 16, std=0.5), x, axis=0), 16, 8)


@row(SKLEARN)
def standard_scaler(n: Idiom) -> str:
    return n.div(n.sub(n.input("x", 4, 12), n.constant(n.w(12, std=1))), n.positive(12))


@row(SKLEARN)
def min_max_scaler(n: Idiom) -> str:
    return n.add(n.mul(n.input("x", 4, 12), n.positive(12)), n.constant(n.w(12, std=0.3)))


@row(SKLEARN)
def pca(n: Idiom) -> str:
    return n.op("MatMul", n.sub(n.input("x", 4, 12), n.constant(n.w(12, std=1))), n.w(12, 5, std=0.3))


@row(SKLEARN)
def logistic_regression(n: Idiom) -> str:
    return n.op("Softmax", n.dense(n.input("x", 4, 12), 12, 3), axis=-1)


@row(SKLEARN)
def logistic_regression_two(n: Idiom) -> str:
    p = n.op("Sigmoid", n.dense(n.input("x", 4, 12), 12, 1))
    return n.joined(n.sub(n.k(1), p), p, axis=1)


@row(SKLEARN)
def perceptron(n: Idiom) -> str:
    y = n.op("Relu", n.dense(n.input("x", 4, 12), 12, 20))
    return n.op("Softmax", n.dense(n.op("Tanh", n.dense(y, 20, 8)), 8, 3), axis=-1)


@row(SKLEARN)
def normaliser(n: Idiom) -> str:
    x = n.input("x", 4, 12)
    return n.div(x, n.op("Sqrt", n.reduced("Sum", n.mul(x, x), 1)))


@row(SKLEARN)
def k_means_distances(n: Idiom) -> str:
    x, centres = n.input("x", 4, 12), n.w(5, 12, std=1)
    lengths = n.constant((centres**2).sum(1))
    products = n.op("Gemm", x, centres, alpha=-2.0, transB=1)
    return n.add(n.add(n.reduced("Sum", n.mul(x, x), 1), products), lengths)


@row(SKLEARN)
def rbf_kernel(n: Idiom) -> str:
    x = n.unsqueezed(n.input("x", 4, 6), 1)
    d = n.sub(x, n.constant(n.w(1, 5, 6, std=1)))
    return n.op("Exp", n.mul(n.reduced("Sum", n.mul(d, d), 2, keep=0), n.k(-0.1)))


@row(SKLEARN)
def polynomial_features(n: Idiom) -> str:
    x = n.input("x", 4, 6)
    return n.joined(x, n.mul(x, x), n.op("Pow", x, n.k(3)), axis=1)


@row(KERAS)
def dense_relu_stack(n: Idiom) -> str:
    y = n.op("Relu", n.dense(n.input("x", 1, 20), 20, 16))
    return n.dense(n.op("Relu", n.dense(y, 16, 16)), 16, 4)


@row(TORCHSCRIPT)
def gemm_not_turned(n: Idiom) -> str:
    return n.op("Gemm", n.input("x", 2, 20), n.w(20, 7, std=0.2), n.w(7, std=0.2))


@row(TORCHSCRIPT)
def matmul_tokens_add_map(n: Idiom) -> str:
    return n.add(n.op("MatMul", n.tokens(), n.w(WIDTH, 12, std=0.2)), n.constant(n.w(10, 12, std=0.2)))


@row(TORCHSCRIPT)
def linear_of_image(n: Idiom) -> str:
    return n.dense(n.turn(n.image(), 0, 2, 3, 1), CHANNELS, 6)


@row(PADDLE)
def fully_connected(n: Idiom) -> str:
    y = n.view(n.op("Relu", n.image(4, 4)), 1, 64)
    return n.add(n.op("MatMul", y, n.w(64, 10, std=0.1)), n.constant(n.w(1, 10, std=0.1)))


@row(TF2ONNX)
def bias_add_channels(n: Idiom) -> str:
    return n.add(n.image(), n.constant(n.w(CHANNELS, 1, 1, std=0.3)))


@row(TORCHSCRIPT)
def bilinear_product(n: Idiom) -> str:
    x, y = n.input("x", 1, 6, 16), n.input("y", 1, 5, 16)
    return n.op("MatMul", n.op("MatMul", x, n.w(16, 16)), n.turn(y, 0, 2, 1))


@row(TORCHSCRIPT)
def einsum_outer(n: Idiom) -> str:
    return n.op("Einsum", n.input("x", 6, 7), n.input("y", 6, 5), equation="bi,bj->bij")


@row(TORCHSCRIPT)
def factorisation_machine(n: Idiom) -> str:
    x = n.input("x", 2, 6, 8)
    total = n.op("Pow", n.reduced("Sum", x, 1), n.k(2))
    return n.mul(n.sub(total, n.reduced("Sum", n.op("Pow", x, n.k(2)), 1)), n.k(0.5))


@row(TORCHSCRIPT)
def spectrogram_db(n: Idiom) -> str:
    return n.mul(
        n.op("Log", n.op("Clip", n.op("Pow", n.input("x", 1, 1, 20, 10), n.k(2)), np.float32(1e-5))), n.k(4.3429)
    )


@row(TORCHSCRIPT)
def spline_gate(n: Idiom) -> str:
    x = n.input("x", 1, 8, 20)
    a, b = n.parts(n.op("Conv", x, n.w(16, 8, 3), n.w(16, std=0.1), pads=[1, 1], kernel_shape=[3]), 1, 8, 8)
    return n.mul(n.op("Tanh", a), n.op("Sigmoid", b))


@row(TORCHSCRIPT)
def statistics_pooling(n: Idiom) -> str:
    x = n.input("x", 1, 8, 20)
    mean = n.reduced("Mean", x, 2)
    d = n.sub(x, mean)
    return n.joined(mean, n.op("Sqrt", n.add(n.reduced("Mean", n.mul(d, d), 2), n.k(1e-5))), axis=1)


def quantised(n: Idiom, x: str, scale: float, zero: int = 0, dtype: type = np.int8) -> str:
    """A QuantizeLinear and DequantizeLinear pair."""
    more = [np.float32(scale), np.asarray(zero, dtype)]
    return n.op("DequantizeLinear", n.op("QuantizeLinear", x, *more), *more)


@row(TORCHSCRIPT)
def qdq_conv(n: Idiom) -> str:
    w = n.op("DequantizeLinear", n.rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8), np.float32(0.004), np.int8(0))
    y = n.op("Conv", quantised(n, n.image(), 0.03), w, n.w(8, std=0.2), pads=[1] * 4, kernel_shape=[3, 3])
    return quantised(n, n.op("Relu", y), 0.02)


@row(DYNAMO)
def qdq_conv_channels(n: Idiom) -> str:
    scales = n.rng.uniform(0.002, 0.006, 8).astype(np.float32)
    stored = n.rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8)
    w = n.op("DequantizeLinear", stored, scales, np.zeros(8, np.int8), axis=0)
    y = n.op("Conv", quantised(n, n.image(), 0.03), w, n.w(8, std=0.2), pads=[1] * 4, kernel_shape=[3, 3])
    return quantised(n, y, 0.04)


@row(TF2ONNX)
def qdq_unsigned(n: Idiom) -> str:
    return quantised(n, n.convolved(quantised(n, n.image(), 0.03, 128, np.uint8)), 0.04, 120, np.uint8)


@row(TORCHSCRIPT)
def qdq_linear(n: Idiom) -> str:
    w = n.op("DequantizeLinear", n.rng.integers(-127, 128, (WIDTH, 12)).astype(np.int8), np.float32(0.003), np.int8(0))
    return quantised(n, n.op("MatMul", quantised(n, n.tokens(), 0.03), w), 0.05)


@row(TORCHSCRIPT)
def qdq_add(n: Idiom) -> str:
    return quantised(n, n.add(quantised(n, n.image(), 0.03), quantised(n, n.image(name="y"), 0.05)), 0.06)


@row(TORCHSCRIPT)
def fake_quantised(n: Idiom) -> str:
    y = n.clip(n.op("Round", n.div(n.image(), n.k(0.05))), -128, 127)
    return n.mul(y, n.k(0.05))


@row(TORCHSCRIPT)
def weights_alone_quantised(n: Idiom) -> str:
    w = n.op("DequantizeLinear", n.rng.integers(-127, 128, (WIDTH, 12)).astype(np.int8), np.float32(0.003), np.int8(0))
    return n.op("MatMul", n.tokens(), w)
