"""Normalisations as exporters write them."""

# ruff: noqa: D103

from __future__ import annotations

import numpy as np

from benchmarks.conformance.fuzz.idioms.table import (
    CHANNELS,
    DYNAMO,
    KERAS,
    PADDLE,
    SIZE,
    TF2ONNX,
    TOKENS,
    TORCHSCRIPT,
    WIDTH,
    Idiom,
    Rows,
)

ROWS = Rows()
row = ROWS.row
PER_CHANNEL = (1, CHANNELS, 1, 1)


def centred(n: Idiom, x: str, *axes: int) -> str:
    return n.sub(x, n.reduced("Mean", x, *axes))


def layer_norm(n: Idiom, x: str, axes: tuple[int, ...], shape: tuple[int, ...], *, square: str = "pow") -> str:
    """ReduceMean, Sub, square, ReduceMean, Add, Sqrt, Div, Mul, Add; without shape no scale and bias."""
    d = centred(n, x, *axes)
    squared = n.op("Pow", d, n.k(2)) if square == "pow" else n.mul(d, d)
    y = n.div(d, n.op("Sqrt", n.add(n.reduced("Mean", squared, *axes), n.k(1e-5))))
    if not shape:
        return y
    return n.add(n.mul(y, n.positive(*shape)), n.constant(n.w(*shape, std=0.2)))


@row(TORCHSCRIPT)
def ln_primitives(n: Idiom) -> str:
    return layer_norm(n, n.tokens(), (-1,), (WIDTH,))


@row(TORCHSCRIPT)
def ln_primitives_2d(n: Idiom) -> str:
    return layer_norm(n, n.input("x", 4, 24), (-1,), (24,))


@row(TORCHSCRIPT)
def ln_primitives_plain(n: Idiom) -> str:
    return layer_norm(n, n.tokens(), (-1,), ())


@row(PADDLE)
def ln_primitives_mul(n: Idiom) -> str:
    return layer_norm(n, n.tokens(), (-1,), (WIDTH,), square="mul")


@row(TORCHSCRIPT)
def ln_primitives_two_axes(n: Idiom) -> str:
    return layer_norm(n, n.image(), (-2, -1), (SIZE, SIZE))


@row(TORCHSCRIPT)
def ln_primitives_three_axes(n: Idiom) -> str:
    return layer_norm(n, n.image(), (1, 2, 3), (CHANNELS, SIZE, SIZE))


@row(TORCHSCRIPT)
def ln_channels_first(n: Idiom) -> str:
    return layer_norm(n, n.image(), (1,), PER_CHANNEL)


@row(TORCHSCRIPT)
def ln_channels_first_plain(n: Idiom) -> str:
    return layer_norm(n, n.image(), (1,), ())


@row(TORCHSCRIPT)
def ln_channels_first_bare(n: Idiom) -> str:
    return layer_norm(n, n.image(), (1,), (CHANNELS, 1, 1))


@row(DYNAMO)
def ln_tokens_axis_1(n: Idiom) -> str:
    return layer_norm(n, n.tokens(), (1,), (TOKENS, 1))


@row(DYNAMO)
def ln_op(n: Idiom) -> str:
    return n.norm(n.tokens(), WIDTH)


@row(DYNAMO)
def ln_op_2d(n: Idiom) -> str:
    return n.norm(n.input("x", 4, 24), 24)


@row(DYNAMO)
def ln_op_unit(n: Idiom) -> str:
    return n.op("LayerNormalization", n.tokens(), np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32), axis=-1)


@row(DYNAMO)
def ln_op_no_bias(n: Idiom) -> str:
    return n.op("LayerNormalization", n.tokens(), n.w(WIDTH, std=1), axis=-1, epsilon=1e-6)


@row(DYNAMO)
def ln_op_image(n: Idiom) -> str:
    y = n.turn(n.image(), 0, 2, 3, 1)
    return n.turn(n.norm(y, CHANNELS), 0, 3, 1, 2)


@row(TORCHSCRIPT)
def ln_after_conv_and_turn(n: Idiom) -> str:
    y = n.turn(n.convolved(n.image()), 0, 2, 3, 1)
    return n.turn(layer_norm(n, y, (-1,), (CHANNELS,)), 0, 3, 1, 2)


@row(TF2ONNX)
def ln_by_moments(n: Idiom) -> str:
    x = n.tokens()
    mean = n.reduced("Mean", x, 2)
    d = n.sub(x, mean)
    scale = n.div(n.k(1), n.op("Sqrt", n.add(n.reduced("Mean", n.mul(d, d), 2), n.k(1e-3))))
    scale = n.mul(scale, n.positive(WIDTH))
    return n.add(n.mul(x, scale), n.sub(n.constant(n.w(WIDTH, std=0.2)), n.mul(mean, scale)))


@row(KERAS)
def ln_reciprocal(n: Idiom) -> str:
    d = centred(n, n.tokens(), -1)
    scale = n.op("Reciprocal", n.op("Sqrt", n.add(n.reduced("Mean", n.mul(d, d), -1), n.k(1e-6))))
    return n.add(n.mul(n.mul(d, scale), n.positive(WIDTH)), n.constant(n.w(WIDTH, std=0.2)))


@row(TORCHSCRIPT)
def ln_std_unbiased(n: Idiom) -> str:
    d = centred(n, n.tokens(), -1)
    var = n.mul(n.reduced("Mean", n.mul(d, d), -1), n.k(WIDTH / (WIDTH - 1)))
    return n.div(d, n.add(n.op("Sqrt", var), n.k(1e-6)))


@row(TORCHSCRIPT)
def ln_residual(n: Idiom) -> str:
    x = n.tokens()
    return layer_norm(n, n.add(x, n.dense(x, WIDTH, WIDTH)), (-1,), (WIDTH,))


@row(DYNAMO)
def ada_ln(n: Idiom) -> str:
    x, c = n.tokens(), n.input("c", 1, 1, 16)
    scale, shift = n.parts(n.dense(c, 16, 2 * WIDTH), -1, WIDTH, WIDTH)
    return n.add(n.mul(layer_norm(n, x, (-1,), ()), n.add(scale, n.k(1))), shift)


def rms(n: Idiom, x: str) -> str:
    return n.op("Sqrt", n.add(n.reduced("Mean", n.op("Pow", x, n.k(2)), -1), n.k(1e-6)))


@row(TORCHSCRIPT)
def rms_norm_div(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.div(x, rms(n, x)), n.positive(WIDTH))


@row(TORCHSCRIPT)
def rms_norm_rsqrt(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.positive(WIDTH), n.mul(x, n.div(n.k(1), rms(n, x))))


@row(DYNAMO)
def rms_norm_reciprocal(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.mul(x, n.op("Reciprocal", rms(n, x))), n.positive(WIDTH))


@row(DYNAMO)
def rms_norm_plain(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(x, n.op("Reciprocal", rms(n, x)))


@row(TORCHSCRIPT)
def l2_normalise(n: Idiom) -> str:
    x = n.tokens()
    length = n.op("Clip", n.reduced("L2", x, -1), np.float32(1e-12))
    return n.div(x, n.op("Expand", length, np.array([1, TOKENS, WIDTH], np.int64)))


@row(DYNAMO)
def l2_normalise_max(n: Idiom) -> str:
    x = n.tokens()
    return n.div(x, n.op("Max", n.reduced("L2", x, -1), n.k(1e-12)))


@row(TF2ONNX)
def l2_normalise_rsqrt(n: Idiom) -> str:
    x = n.input("x", 1, 32)
    total = n.reduced("Sum", n.mul(x, x), 1)
    return n.mul(x, n.op("Reciprocal", n.op("Sqrt", n.op("Max", total, n.k(1e-12)))))


@row(PADDLE)
def l2_normalise_image(n: Idiom) -> str:
    x = n.image()
    return n.div(x, n.op("Max", n.reduced("L2", x, 1), n.k(1e-12)))


@row(TORCHSCRIPT)
def group_norm(n: Idiom) -> str:
    y = n.op("InstanceNormalization", n.view(n.image(), 0, 2, -1), np.ones(2, np.float32), np.zeros(2, np.float32))
    y = n.view(y, 1, CHANNELS, SIZE, SIZE)
    return n.add(n.mul(y, n.positive(CHANNELS, 1, 1)), n.constant(n.w(CHANNELS, 1, 1, std=0.2)))


@row(TORCHSCRIPT)
def group_norm_of_conv(n: Idiom) -> str:
    y = n.op(
        "InstanceNormalization",
        n.view(n.convolved(n.image()), 0, 4, -1),
        np.ones(4, np.float32),
        np.zeros(4, np.float32),
    )
    y = n.view(y, 1, CHANNELS, SIZE, SIZE)
    return n.op("Relu", n.add(n.mul(y, n.positive(CHANNELS, 1, 1)), n.constant(n.w(CHANNELS, 1, 1, std=0.2))))


@row(KERAS)
def group_norm_reshaped(n: Idiom) -> str:
    x = n.view(n.image(), 1, 2, CHANNELS // 2, SIZE, SIZE)
    y = n.view(layer_norm(n, x, (2, 3, 4), ()), 1, CHANNELS, SIZE, SIZE)
    return n.add(n.mul(y, n.positive(*PER_CHANNEL)), n.constant(n.w(*PER_CHANNEL, std=0.2)))


@row(TORCHSCRIPT)
def instance_norm(n: Idiom) -> str:
    return n.op("InstanceNormalization", n.image(), n.positive(CHANNELS), n.constant(n.w(CHANNELS, std=0.2)))


@row(TORCHSCRIPT)
def instance_norm_plain(n: Idiom) -> str:
    ones, zeros = np.ones(CHANNELS, np.float32), np.zeros(CHANNELS, np.float32)
    return n.op("Relu", n.op("InstanceNormalization", n.convolved(n.image()), ones, zeros))


@row(TF2ONNX)
def instance_norm_primitives(n: Idiom) -> str:
    return layer_norm(n, n.image(), (2, 3), PER_CHANNEL, square="mul")


@row(TORCHSCRIPT)
def batch_norm(n: Idiom) -> str:
    return n.batch_norm(n.image(), CHANNELS)


@row(TORCHSCRIPT)
def batch_norm_columns(n: Idiom) -> str:
    return n.op("Relu", n.batch_norm(n.input("x", 2, 24), 24))


@row(TORCHSCRIPT)
def batch_norm_row(n: Idiom) -> str:
    return n.batch_norm(n.input("x", 1, CHANNELS, 20), CHANNELS)


@row(TORCHSCRIPT)
def conv_batch_norm_relu(n: Idiom) -> str:
    return n.op("Relu", n.batch_norm(n.convolved(n.image(), bias=False), CHANNELS))


@row(TF2ONNX)
def batch_norm_mul_add(n: Idiom) -> str:
    y = n.mul(n.convolved(n.image()), n.positive(*PER_CHANNEL))
    return n.op("Relu", n.add(y, n.constant(n.w(*PER_CHANNEL, std=0.2))))


@row(TORCHSCRIPT)
def frozen_batch_norm(n: Idiom) -> str:
    x = n.convolved(n.image(), bias=False)
    scale, bias = n.positive(*PER_CHANNEL), n.constant(n.w(*PER_CHANNEL, std=0.2))
    return n.add(n.mul(x, scale), n.sub(bias, n.mul(n.constant(n.w(*PER_CHANNEL, std=0.2)), scale)))


@row(TORCHSCRIPT)
def batch_norm_before_conv(n: Idiom) -> str:
    return n.convolved(n.op("Relu", n.batch_norm(n.image(), CHANNELS)))


@row(TORCHSCRIPT)
def batch_norm_after_linear(n: Idiom) -> str:
    return n.batch_norm(n.dense(n.input("x", 2, 24), 24, 16), 16)


@row(TORCHSCRIPT)
def global_response_norm(n: Idiom) -> str:
    x = n.turn(n.image(), 0, 2, 3, 1)
    length = n.reduced("L2", x, 1, 2)
    share = n.div(length, n.add(n.reduced("Mean", length, -1), n.k(1e-6)))
    scale, bias = n.positive(1, 1, 1, CHANNELS), n.constant(n.w(1, 1, 1, CHANNELS, std=0.2))
    return n.add(n.add(n.mul(scale, n.mul(x, share)), bias), x)


@row(TORCHSCRIPT)
def layer_scale_linear(n: Idiom) -> str:
    x = n.tokens()
    return n.add(x, n.mul(n.dense(x, WIDTH, WIDTH), n.constant(n.w(WIDTH, std=0.1))))


@row(TORCHSCRIPT)
def layer_scale_conv(n: Idiom) -> str:
    x = n.image()
    return n.add(x, n.mul(n.convolved(x), n.constant(n.w(CHANNELS, 1, 1, std=0.1))))


@row(TORCHSCRIPT)
def layer_scale_linear_unbiased(n: Idiom) -> str:
    x = n.tokens()
    return n.mul(n.dense(x, WIDTH, WIDTH, bias=False), n.constant(n.w(WIDTH, std=0.1)))


@row(TORCHSCRIPT)
def linear_then_scalar(n: Idiom) -> str:
    return n.mul(n.dense(n.tokens(), WIDTH, WIDTH), n.k(0.125))


@row(TORCHSCRIPT)
def linear_then_div(n: Idiom) -> str:
    return n.div(n.dense(n.tokens(), WIDTH, WIDTH), n.k(8))


@row(TORCHSCRIPT)
def conv_then_scalar(n: Idiom) -> str:
    return n.mul(n.convolved(n.image()), n.k(0.125))


@row(TORCHSCRIPT)
def conv_then_add_scalar(n: Idiom) -> str:
    return n.add(n.convolved(n.image()), n.k(0.5))


@row(KERAS)
def local_response(n: Idiom) -> str:
    return n.op("LRN", n.op("Relu", n.image()), size=5, alpha=1e-3, beta=0.75, bias=1.0)


@row(TORCHSCRIPT)
def min_max_normalise(n: Idiom) -> str:
    x = n.image()
    low, high = n.reduced("Min", x, 1, 2, 3), n.reduced("Max", x, 1, 2, 3)
    return n.div(n.sub(x, low), n.add(n.sub(high, low), n.k(1e-6)))


@row(TORCHSCRIPT)
def standardise(n: Idiom) -> str:
    x = n.input("x", 1, 1, 40)
    d = centred(n, x, -1)
    return n.div(d, n.add(n.op("Sqrt", n.reduced("Mean", n.mul(d, d), -1)), n.k(1e-5)))


@row(TORCHSCRIPT)
def cosine_similarity(n: Idiom) -> str:
    x, y = n.input("x", 1, 6, 32), n.input("y", 1, 6, 32)
    lengths = n.mul(n.reduced("L2", x, -1), n.reduced("L2", y, -1))
    return n.div(n.reduced("Sum", n.mul(x, y), -1), n.op("Max", lengths, n.k(1e-8)))
