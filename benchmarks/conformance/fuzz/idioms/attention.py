"""Attention as exporters write it, and the ops around it."""

# ruff: noqa: D103

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.conformance.fuzz.idioms.table import (
    CHANNELS,
    DYNAMO,
    HEADS,
    KERAS,
    PADDLE,
    TF2ONNX,
    TOKENS,
    TORCHSCRIPT,
    WIDTH,
    Idiom,
    Rows,
)

ROWS = Rows()
row = ROWS.row
HEAD = WIDTH // HEADS
LOWEST = float(np.finfo(np.float32).min)
CAUSAL = np.triu(np.ones((1, 1, TOKENS, TOKENS), bool), 1)
Scores = Callable[[Idiom, str, str], str]
"""(network, q, k transposed) -> scores before the softmax."""


def heads(n: Idiom, x: str, *perm: int, count: int = HEADS) -> str:
    return n.turn(n.view(n.dense(x, WIDTH, count * HEAD), 1, -1, count, HEAD), *(perm or (0, 2, 1, 3)))


def output(n: Idiom, y: str) -> str:
    return n.dense(n.view(n.turn(y, 0, 2, 1, 3), 1, TOKENS, WIDTH), WIDTH, WIDTH)


def attention(n: Idiom, scores: Scores, x: str = "") -> str:
    x = x or n.tokens()
    q, k, v = heads(n, x), heads(n, x, 0, 2, 3, 1), heads(n, x)
    return output(n, n.op("MatMul", n.op("Softmax", scores(n, q, k), axis=-1), v))


def product(n: Idiom, q: str, k: str) -> str:
    return n.op("MatMul", q, k)


@row(TORCHSCRIPT)
def attention_div(n: Idiom) -> str:
    return attention(n, lambda n, q, k: n.div(product(n, q, k), n.k(HEAD**0.5)))


@row(TORCHSCRIPT)
def attention_mul(n: Idiom) -> str:
    return attention(n, lambda n, q, k: n.mul(product(n, q, k), n.k(HEAD**-0.5)))


@row(TORCHSCRIPT)
def attention_scaled_query(n: Idiom) -> str:
    return attention(n, lambda n, q, k: product(n, n.mul(q, n.k(HEAD**-0.5)), k))


@row(PADDLE)
def attention_unscaled(n: Idiom) -> str:
    return attention(n, product)


@row(TORCHSCRIPT)
def sdpa(n: Idiom) -> str:
    return attention(n, lambda n, q, k: product(n, n.mul(q, n.k(HEAD**-0.25)), n.mul(k, n.k(HEAD**-0.25))))


@row(TORCHSCRIPT)
def sdpa_sqrt(n: Idiom) -> str:
    def scores(n: Idiom, q: str, k: str) -> str:
        root = n.op("Sqrt", np.float32(HEAD**-0.5))
        return product(n, n.mul(q, root), n.mul(k, root))

    return attention(n, scores)


@row(DYNAMO)
def sdpa_dynamo(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = heads(n, x), heads(n, x), heads(n, x)
    turned = n.turn(n.view(k, -1, TOKENS, HEAD), 0, 2, 1)
    turned = n.view(turned, 1, HEADS, HEAD, TOKENS)
    scores = product(n, n.mul(q, n.k(HEAD**-0.25)), n.mul(turned, n.k(HEAD**-0.25)))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(TORCHSCRIPT)
def sdpa_mask_input(n: Idiom) -> str:
    def scores(n: Idiom, q: str, k: str) -> str:
        mask = n.input("mask", 1, 1, TOKENS, TOKENS)
        return n.add(product(n, n.mul(q, n.k(HEAD**-0.25)), n.mul(k, n.k(HEAD**-0.25))), mask)

    return attention(n, scores)


@row(TORCHSCRIPT)
def sdpa_causal(n: Idiom) -> str:
    def scores(n: Idiom, q: str, k: str) -> str:
        mask = n.constant(np.where(CAUSAL, np.float32(-10000.0), np.float32(0)))
        return n.add(product(n, n.mul(q, n.k(HEAD**-0.25)), n.mul(k, n.k(HEAD**-0.25))), mask)

    return attention(n, scores)


@row(TORCHSCRIPT)
def causal_lowest(n: Idiom) -> str:
    mask = np.where(CAUSAL, np.float32(LOWEST), np.float32(0))
    return attention(n, lambda n, q, k: n.add(n.div(product(n, q, k), n.k(HEAD**0.5)), n.constant(mask)))


@row(TORCHSCRIPT)
def causal_where(n: Idiom) -> str:
    def scores(n: Idiom, q: str, k: str) -> str:
        return n.op("Where", n.constant(CAUSAL), n.k(-1e4), n.div(product(n, q, k), n.k(HEAD**0.5)))

    return attention(n, scores)


@row(TORCHSCRIPT)
def mask_of_tokens(n: Idiom) -> str:
    def scores(n: Idiom, q: str, k: str) -> str:
        mask = n.mul(n.sub(n.k(1), n.input("mask", 1, 1, 1, TOKENS)), n.k(-10000.0))
        return n.add(n.div(product(n, q, k), n.k(HEAD**0.5)), mask)

    return attention(n, scores)


@row(TORCHSCRIPT)
def relative_position_bias(n: Idiom) -> str:
    bias = n.w(1, HEADS, TOKENS, TOKENS, std=0.5)
    return attention(n, lambda n, q, k: n.add(product(n, n.mul(q, n.k(HEAD**-0.5)), k), n.constant(bias)))


@row(TORCHSCRIPT)
def alibi(n: Idiom) -> str:
    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32).reshape(1, HEADS, 1, 1)
    bias = slopes * -np.abs(np.arange(TOKENS)[:, None] - np.arange(TOKENS)).astype(np.float32)
    return attention(n, lambda n, q, k: n.add(n.mul(product(n, q, k), n.k(HEAD**-0.5)), n.constant(bias)))


@row(KERAS)
def softmax_parts(n: Idiom) -> str:
    x = n.tokens()
    e = n.op("Exp", n.sub(x, n.reduced("Max", x, -1)))
    return n.div(e, n.reduced("Sum", e, -1))


@row(TORCHSCRIPT)
def log_softmax_parts(n: Idiom) -> str:
    return n.op("Log", n.op("Softmax", n.tokens(), axis=-1))


@row(TORCHSCRIPT)
def softmax_channels(n: Idiom) -> str:
    return n.op("Softmax", n.image(), axis=1)


@row(TF2ONNX)
def softmax_rows(n: Idiom) -> str:
    return n.op("Softmax", n.image(), axis=2)


@row(TORCHSCRIPT)
def softmax_temperature(n: Idiom) -> str:
    return n.op("Softmax", n.div(n.tokens(), n.k(0.07)), axis=-1)


@row(TORCHSCRIPT)
def packed_gather(n: Idiom) -> str:
    qkv = n.turn(n.view(n.dense(n.tokens(), WIDTH, 3 * WIDTH), 1, TOKENS, 3, HEADS, HEAD), 2, 0, 3, 1, 4)
    q, k, v = (n.op("Gather", qkv, np.array(i, np.int64), axis=0) for i in range(3))
    scores = product(n, n.mul(q, n.k(HEAD**-0.5)), n.turn(k, 0, 1, 3, 2))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(DYNAMO)
def packed_split(n: Idiom) -> str:
    qkv = n.turn(n.view(n.dense(n.tokens(), WIDTH, 3 * WIDTH), 1, TOKENS, 3, HEADS, HEAD), 2, 0, 3, 1, 4)
    q, k, v = (n.squeezed(part, 0) for part in n.parts(qkv, 0, 1, 1, 1))
    scores = product(n, n.mul(q, n.k(HEAD**-0.25)), n.mul(n.turn(k, 0, 1, 3, 2), n.k(HEAD**-0.25)))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(TORCHSCRIPT)
def packed_columns(n: Idiom) -> str:
    parts = n.parts(n.dense(n.tokens(), WIDTH, 3 * WIDTH), 2, WIDTH, WIDTH, WIDTH)
    q, k, v = (n.turn(n.view(p, 1, TOKENS, HEADS, HEAD), 0, 2, 1, 3) for p in parts)
    scores = n.div(product(n, q, n.turn(k, 0, 1, 3, 2)), n.k(HEAD**0.5))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(PADDLE)
def packed_slices(n: Idiom) -> str:
    qkv = n.turn(n.view(n.dense(n.tokens(), WIDTH, 3 * WIDTH), 1, TOKENS, 3, HEADS, HEAD), 2, 0, 3, 1, 4)
    q, k, v = (n.squeezed(n.cut(qkv, 0, i, i + 1), 0) for i in range(3))
    scores = product(n, n.mul(q, n.k(HEAD**-0.5)), n.turn(k, 0, 1, 3, 2))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(TORCHSCRIPT)
def bmm_attention(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = (n.view(heads(n, x), HEADS, TOKENS, HEAD) for _ in range(3))
    scores = product(n, n.mul(q, n.k(HEAD**-0.5)), n.turn(k, 0, 2, 1))
    y = n.view(n.op("MatMul", n.op("Softmax", scores, axis=-1), v), 1, HEADS, TOKENS, HEAD)
    return output(n, y)


@row(TORCHSCRIPT)
def single_head(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = (n.dense(x, WIDTH, WIDTH) for _ in range(3))
    scores = n.div(product(n, q, n.turn(k, 0, 2, 1)), n.k(WIDTH**0.5))
    return n.op("MatMul", n.op("Softmax", scores, axis=-1), v)


def grouped(n: Idiom, repeat: Callable[[Idiom, str], str]) -> str:
    x = n.tokens()
    q, k, v = heads(n, x), heads(n, x, count=2), heads(n, x, count=2)
    scores = product(n, q, n.turn(repeat(n, k), 0, 1, 3, 2))
    weights = n.op("Softmax", n.mul(scores, n.k(HEAD**-0.5)), axis=-1)
    return output(n, n.op("MatMul", weights, repeat(n, v)))


@row(TORCHSCRIPT)
def grouped_query_expand(n: Idiom) -> str:
    def repeat(n: Idiom, x: str) -> str:
        wide = n.op("Expand", n.unsqueezed(x, 2), np.array([1, 2, 2, TOKENS, HEAD], np.int64))
        return n.view(wide, 1, HEADS, TOKENS, HEAD)

    return grouped(n, repeat)


@row(DYNAMO)
def grouped_query_concat(n: Idiom) -> str:
    def repeat(n: Idiom, x: str) -> str:
        y = n.unsqueezed(x, 2)
        return n.view(n.joined(y, y, axis=2), 1, HEADS, TOKENS, HEAD)

    return grouped(n, repeat)


@row(TORCHSCRIPT)
def grouped_query_tile(n: Idiom) -> str:
    def repeat(n: Idiom, x: str) -> str:
        return n.view(n.op("Tile", n.unsqueezed(x, 2), np.array([1, 1, 2, 1, 1], np.int64)), 1, HEADS, TOKENS, HEAD)

    return grouped(n, repeat)


@row(TORCHSCRIPT)
def multi_query(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = heads(n, x), heads(n, x, count=1), heads(n, x, count=1)
    scores = n.mul(product(n, q, n.turn(k, 0, 1, 3, 2)), n.k(HEAD**-0.5))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(TORCHSCRIPT)
def cross_attention(n: Idiom) -> str:
    x, y = n.tokens(), n.tokens(6, name="y")
    q, k, v = heads(n, x), heads(n, y, 0, 2, 3, 1), heads(n, y)
    scores = n.mul(product(n, q, k), n.k(HEAD**-0.5))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(TF2ONNX)
def einsum_attention(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = (n.view(n.dense(x, WIDTH, WIDTH), 1, TOKENS, HEADS, HEAD) for _ in range(3))
    scores = n.op("Einsum", n.mul(q, n.k(HEAD**-0.5)), k, equation="aqhd,akhd->ahqk")
    y = n.op("Einsum", n.op("Softmax", scores, axis=-1), v, equation="ahqk,akhd->aqhd")
    return n.dense(n.view(y, 1, TOKENS, WIDTH), WIDTH, WIDTH)


@row(TORCHSCRIPT)
def linear_attention(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = heads(n, x), heads(n, x, 0, 2, 3, 1), heads(n, x)
    context = n.op("MatMul", n.op("Relu", k), v)
    return output(n, n.op("MatMul", n.op("Relu", q), context))


@row(TORCHSCRIPT)
def channel_attention_xcit(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = heads(n, x, 0, 2, 3, 1), heads(n, x, 0, 2, 3, 1), heads(n, x, 0, 2, 3, 1)
    q, k = (n.div(t, n.op("Max", n.reduced("L2", t, -1), n.k(1e-12))) for t in (q, k))
    weights = n.op("Softmax", n.mul(product(n, q, n.turn(k, 0, 1, 3, 2)), n.positive(HEADS, 1, 1)), axis=-1)
    y = n.turn(n.op("MatMul", weights, v), 0, 3, 1, 2)
    return n.dense(n.view(y, 1, TOKENS, WIDTH), WIDTH, WIDTH)


@row(TORCHSCRIPT)
def non_local(n: Idiom) -> str:
    x = n.image(CHANNELS, 6)
    q, k, v = (n.view(n.convolved(x, k=1), 1, CHANNELS, 36) for _ in range(3))
    weights = n.op("Softmax", product(n, n.turn(q, 0, 2, 1), k), axis=-1)
    y = n.turn(n.op("MatMul", weights, n.turn(v, 0, 2, 1)), 0, 2, 1)
    return n.add(x, n.convolved(n.view(y, 1, CHANNELS, 6, 6), k=1))


@row(TORCHSCRIPT)
def rotary_half(n: Idiom) -> str:
    x = n.turn(n.view(n.tokens(), 1, TOKENS, HEADS, HEAD), 0, 2, 1, 3)
    cos, sin = (n.constant(n.rng.uniform(-1, 1, (1, 1, TOKENS, HEAD))) for _ in range(2))
    low, high = n.cut(x, 3, 0, HEAD // 2), n.cut(x, 3, HEAD // 2, 2**31 - 1)
    return n.add(n.mul(x, cos), n.mul(n.joined(n.op("Neg", high), low, axis=-1), sin))


@row(TORCHSCRIPT)
def rotary_pairs(n: Idiom) -> str:
    x = n.view(n.tokens(), 1, TOKENS, WIDTH)
    cos, sin = (n.constant(n.rng.uniform(-1, 1, (1, TOKENS, WIDTH))) for _ in range(2))
    even, odd = n.cut(x, 2, 0, 2**31 - 1, 2), n.cut(x, 2, 1, 2**31 - 1, 2)
    turned = n.joined(n.unsqueezed(n.op("Neg", odd), -1), n.unsqueezed(even, -1), axis=-1)
    return n.add(n.mul(x, cos), n.mul(n.view(turned, 1, TOKENS, WIDTH), sin))


@row(TORCHSCRIPT)
def transformer_mlp(n: Idiom) -> str:
    x = n.tokens()
    y = n.dense(x, WIDTH, 64)
    y = n.mul(n.mul(y, n.add(n.op("Erf", n.div(y, n.k(2**0.5))), n.k(1))), n.k(0.5))
    return n.add(x, n.dense(y, 64, WIDTH))


@row(TORCHSCRIPT)
def pre_norm_block(n: Idiom) -> str:
    x = n.tokens()
    y = attention(
        n, lambda n, q, k: product(n, n.mul(q, n.k(HEAD**-0.25)), n.mul(k, n.k(HEAD**-0.25))), n.norm(x, WIDTH)
    )
    return n.norm(n.add(x, y), WIDTH)


@row(TORCHSCRIPT)
def class_token(n: Idiom) -> str:
    token = n.constant(n.w(1, 1, WIDTH, std=0.3))
    x = n.joined(n.op("Expand", token, np.array([1, 1, WIDTH], np.int64)), n.tokens(), axis=1)
    x = n.add(x, n.constant(n.w(1, TOKENS + 1, WIDTH, std=0.3)))
    return n.dense(n.op("Gather", n.norm(x, WIDTH), np.array(0, np.int64), axis=1), WIDTH, 10)


@row(TORCHSCRIPT)
def mean_of_tokens(n: Idiom) -> str:
    return n.dense(n.reduced("Mean", n.norm(n.tokens(), WIDTH), 1, keep=0), WIDTH, 10)


@row(TORCHSCRIPT)
def masked_mean(n: Idiom) -> str:
    x, mask = n.tokens(), n.input("mask", 1, TOKENS, 1)
    gate = n.op("Sigmoid", mask)
    return n.div(n.reduced("Sum", n.mul(x, gate), 1, keep=0), n.reduced("Sum", gate, 1, keep=0))


@row(TORCHSCRIPT)
def patch_embedding(n: Idiom) -> str:
    y = n.conv(n.image(3, 16), 3, WIDTH, 4, strides=[4, 4], pads=[0] * 4)
    return n.norm(n.turn(n.view(y, 1, WIDTH, 16), 0, 2, 1), WIDTH)


@row(TORCHSCRIPT)
def pooler(n: Idiom) -> str:
    first = n.op("Gather", n.tokens(), np.array(0, np.int64), axis=1)
    return n.op("Tanh", n.op("Gemm", first, n.w(WIDTH, WIDTH), n.w(WIDTH, std=0.1), transB=1))


@row(TORCHSCRIPT)
def swin_window(n: Idiom) -> str:
    y = n.turn(n.view(n.input("x", 1, 8, 8, 16), 1, 2, 4, 2, 4, 16), 0, 1, 3, 2, 4, 5)
    y = n.dense(n.view(y, 4, 16, 16), 16, 16)
    y = n.turn(n.view(n.view(y, -1, 4, 4, 16), 1, 2, 2, 4, 4, 16), 0, 1, 3, 2, 4, 5)
    return n.view(y, 1, 8, 8, 16)


@row(TORCHSCRIPT)
def swin_shift(n: Idiom) -> str:
    x = n.input("x", 1, 8, 8, 16)
    x = n.joined(n.cut(x, 1, 2, 2**31 - 1), n.cut(x, 1, 0, 2), axis=1)
    x = n.joined(n.cut(x, 2, 2, 2**31 - 1), n.cut(x, 2, 0, 2), axis=2)
    return n.turn(n.view(x, 1, 2, 4, 2, 4, 16), 0, 1, 3, 2, 4, 5)


@row(TORCHSCRIPT)
def swin_merging(n: Idiom) -> str:
    x = n.input("x", 1, 8, 8, 16)
    rows = [n.cut(x, 1, i, 2**31 - 1, 2) for i in (0, 1)]
    parts = [n.cut(rows[i], 2, j, 2**31 - 1, 2) for j in (0, 1) for i in (0, 1)]
    return n.dense(n.norm(n.view(n.joined(*parts, axis=-1), 1, 16, 64), 64), 64, 32, bias=False)


@row(DYNAMO)
def swin_merging_turned(n: Idiom) -> str:
    y = n.turn(n.view(n.input("x", 1, 8, 8, 16), 1, 4, 2, 4, 2, 16), 0, 1, 3, 4, 2, 5)
    return n.dense(n.view(y, 1, 16, 64), 64, 32, bias=False)


@row(TORCHSCRIPT)
def swin_mask(n: Idiom) -> str:
    x = n.input("x", 4, 2, 16, 16)
    mask = n.constant(np.where(n.rng.random((1, 4, 1, 16, 16)) > 0.7, -100.0, 0.0))
    y = n.add(n.view(x, 1, 4, 2, 16, 16), mask)
    return n.op("Softmax", n.view(y, 4, 2, 16, 16), axis=-1)


@row(TORCHSCRIPT)
def cosine_attention(n: Idiom) -> str:
    x = n.tokens()
    q, k, v = heads(n, x), heads(n, x), heads(n, x)
    q, k = (n.div(t, n.op("Clip", n.reduced("L2", t, -1), np.float32(1e-12))) for t in (q, k))
    scores = n.mul(product(n, q, n.turn(k, 0, 1, 3, 2)), n.positive(HEADS, 1, 1, low=2, high=8))
    return output(n, n.op("MatMul", n.op("Softmax", scores, axis=-1), v))


@row(KERAS)
def dense_einsum(n: Idiom) -> str:
    x = n.tokens()
    y = n.op("Einsum", x, n.w(WIDTH, HEADS, HEAD, std=WIDTH**-0.5), equation="abc,cde->abde")
    return n.add(y, n.constant(n.w(HEADS, HEAD, std=0.2)))
