"""One TFLite op a row: its operands, options, and what it gives by a formula in NumPy over the file's order of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import erf
from typing import Any

import numpy as np
from tflite_files import Op, T, written

Array = np.ndarray
VALID, SAME, RELU = 1, 0, 1
IMAGE = (1, 4, 6, 2)


def ramp(*shape: int) -> Array:
    """Numbers of either sign, none of them twice, none whole."""
    n = int(np.prod(shape))
    return (((np.arange(n) * 7) % n - n / 2.3) / n * 4).reshape(shape).astype(np.float32)


def ints(*numbers: Any) -> Array:
    """A constant of int32."""
    return np.array(numbers, np.int32)


@dataclass(frozen=True)
class Row:
    """formula: of x (and further inputs) and the constants, in the op's order; several results are a list.

    order: which operand is which, x and the constants in this order without it.
    """

    name: str
    kind: str
    formula: Callable[..., Any]
    x: Array = field(default_factory=lambda: ramp(*IMAGE))
    constants: Sequence[Array] = ()
    options: Mapping[str, Any] | None = None
    order: Sequence[int] | None = None

    def results(self) -> list[Array]:
        """By the formula."""
        operands = [self.x, *self.constants]
        found = self.formula(*(operands[i] for i in self.order or range(len(operands))))
        return [np.asarray(y) for y in (found if isinstance(found, list) else [found])]

    def file(self) -> bytes:
        """A file of the op alone."""
        ys = self.results()
        names = ["x", *(f"k{i}" for i in range(len(self.constants)))]
        tensors = [T("x", self.x.shape, self.x.dtype)]
        tensors += [T(n, k.shape, k.dtype, data=k) for n, k in zip(names[1:], self.constants, strict=True)]
        tensors += [T(f"y{i}", y.shape, y.dtype) for i, y in enumerate(ys)]
        outputs = [f"y{i}" for i in range(len(ys))]
        order = self.order or range(len(names))
        return written(tensors, [Op(self.kind, [names[i] for i in order], outputs, self.options)], ["x"], outputs)


def transposed(stride: int, padding: int, out: tuple[int, int], kernel: Array, x: Array) -> Array:
    """Every pixel spreads over a window of the result; what lies outside is dropped."""
    oc, kh, kw, _ = kernel.shape
    whole = np.zeros(((x.shape[1] - 1) * stride + kh, (x.shape[2] - 1) * stride + kw, oc))
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            whole[i * stride : i * stride + kh, j * stride : j * stride + kw] += np.einsum(
                "ohwi,i->hwo", kernel, x[0, i, j]
            )
    top, left = ((max(n - o, 0) // 2 if padding == SAME else 0) for n, o in zip(whole.shape, out, strict=False))
    wide = np.pad(whole, ((0, max(out[0] - whole.shape[0], 0)), (0, max(out[1] - whole.shape[1], 0)), (0, 0)))
    return wide[None, top : top + out[0], left : left + out[1]].astype(np.float32)


def depth_to_space(x: Array, b: int) -> Array:
    n, h, w, c = x.shape
    return x.reshape(n, h, w, b, b, c // b // b).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * b, w * b, -1)


def space_to_depth(x: Array, b: int) -> Array:
    n, h, w, c = x.shape
    return x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, h // b, w // b, -1)


def space_to_batch(x: Array, block: Array, pads: Array) -> Array:
    x = np.pad(x, [(0, 0), *pads.tolist(), (0, 0)])
    return np.concatenate([x[:, i :: block[0], j :: block[1]] for i in range(block[0]) for j in range(block[1])])


def batch_to_space(x: Array, block: Array, crops: Array) -> Array:
    n, (a, b) = len(x) // int(block.prod()), block
    y = np.zeros((n, x.shape[1] * a, x.shape[2] * b, x.shape[3]), x.dtype)
    for place in range(a * b):
        y[:, place // b :: a, place % b :: b] = x[place * n : (place + 1) * n]
    return y[:, crops[0, 0] : y.shape[1] - crops[0, 1], crops[1, 0] : y.shape[2] - crops[1, 1]]


def response(x: Array, radius: int, bias: float, alpha: float, beta: float) -> Array:
    sums = [np.square(x[..., max(c - radius, 0) : c + radius + 1]).sum(-1) for c in range(x.shape[-1])]
    return x / (bias + alpha * np.stack(sums, -1)) ** beta


def half_root_mean(x: Array) -> Array:
    return np.sqrt(np.square(x).reshape(1, 2, 2, 3, 2, 2).mean((2, 4)))


def strided(name: str, x: Array, numbers: tuple[Any, Any, Any], index: Any, **masks: int) -> Row:
    """numbers: begins, ends, steps."""
    return Row(f"strided-{name}", "STRIDED_SLICE", lambda x, *_: x[index], x, [ints(*n) for n in numbers], masks)


X, ROWS4, FLAT, POSITIVE = ramp(*IMAGE), ramp(3, 4), ramp(2, 3, 4), np.abs(ramp(*IMAGE)) + 0.25
ERF = np.vectorize(erf)
CHANNELS, PLACE = ramp(2) + 3, np.array(1, np.int32)


def unary(kind: str, formula: Callable[[Array], Array], x: Array = X, **options: Any) -> Row:
    """An op of one operand."""
    words = "-".join([kind.lower(), *(f"{v:g}" for v in options.values())])
    return Row(words, kind, formula, x, options=options or None)


def binary(kind: str, formula: Callable[[Array, Array], Array], x: Array = X, k: Array = CHANNELS) -> Row:
    """An op of an input and a constant."""
    return Row(f"{kind.lower()}-{k.ndim}d", kind, formula, x, [k])


def reduction(kind: str, formula: Callable[..., Array], x: Array, axes: tuple[int, ...], *, keep: bool) -> Row:
    """Along constant axes."""
    named = f"{kind.lower()}-{''.join(map(str, axes))}{'-kept' if keep else ''}"
    return Row(named, kind, lambda x, _: formula(x, axis=axes, keepdims=keep), x, [ints(*axes)], {"KeepDims": keep})


ROWS = [
    unary("ABS", np.abs), unary("NEG", np.negative), unary("SQRT", np.sqrt, POSITIVE), unary("EXP", np.exp),
    unary("RSQRT", lambda x: 1 / np.sqrt(x), POSITIVE), unary("SQUARE", np.square), unary("LOG", np.log, POSITIVE),
    unary("SIN", np.sin), unary("COS", np.cos), unary("FLOOR", np.floor), unary("CEIL", np.ceil),
    unary("ROUND", np.round, ramp(*IMAGE) * 3), unary("ELU", lambda x: np.where(x > 0, x, np.expm1(x))),
    unary("LEAKY_RELU", lambda x: np.where(x > 0, x, x * np.float32(0.2)), Alpha=0.2),
    unary("RELU_0_TO_1", lambda x: np.clip(x, 0, 1)),
    unary("GELU", lambda x: x / 2 * (1 + ERF(x / np.sqrt(2))).astype(np.float32), Approximate=False),
    unary("GELU", lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi).astype("f") * (x + 0.044715 * x**3))),
          Approximate=True),
    unary("LOG_SOFTMAX", lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)), ROWS4),
    unary("SOFTMAX", lambda x: np.exp(2 * x) / np.exp(2 * x).sum(-1, keepdims=True), ROWS4, Beta=2.0),
    Row("prelu-channels", "PRELU", lambda x, a: np.where(x > 0, x, x * a), X, [ramp(1, 1, 2)]),
    Row("prelu-elements", "PRELU", lambda x, a: np.where(x > 0, x, x * a), X, [ramp(4, 6, 2)]),
    Row("prelu-rows", "PRELU", lambda x, a: np.where(x > 0, x, x * a), ROWS4, [ramp(4)]),
    binary("SUB", np.subtract), binary("DIV", np.divide), binary("MAXIMUM", np.maximum), binary("MINIMUM", np.minimum),
    binary("DIV", lambda x, k: x / k, FLAT, ramp(3, 4) + 5), binary("POW", np.power, POSITIVE, ramp(2)),
    binary("SQUARED_DIFFERENCE", lambda x, k: np.square(x - k)), binary("FLOOR_DIV", lambda x, k: np.floor(x / k)),
    binary("FLOOR_MOD", lambda x, k: x - np.floor(x / k) * k), binary("MAXIMUM", np.maximum, ROWS4, ramp(1, 4)),
    Row("div-relu6", "DIV", lambda x, k: np.clip(x / k, 0, 6), X, [CHANNELS - 2.6], {"FusedActivationFunction": 3}),
    Row("add_n", "ADD_N", lambda x, a, b: x + a + b, X, [X * 2, X + 1]),
    *(Row(kind.lower(), kind, formula, X, [np.full((2,), X[0, 1, 1, 0], np.float32)]) for kind, formula in
      {"EQUAL": np.equal, "NOT_EQUAL": np.not_equal, "LESS": np.less, "LESS_EQUAL": np.less_equal,
       "GREATER": np.greater, "GREATER_EQUAL": np.greater_equal}.items()),
    unary("SIGN", np.sign), unary("LOGICAL_NOT", np.logical_not, X > 0.3),
    Row("logical_and", "LOGICAL_AND", np.logical_and, X > 0.3, [X < 1]),
    Row("logical_or", "LOGICAL_OR", np.logical_or, X > 1, [X < 0]),
    Row("select-rows", "SELECT", lambda c, a, b: np.where(c[:, None], a, b), ROWS4, [ROWS4[:, 0] > -1, -ROWS4],
        order=(1, 0, 2)),
    Row("select", "SELECT_V2", np.where, X, [X > 0.3, -X], order=(1, 0, 2)),
    reduction("SUM", np.sum, X, (1, 2), keep=False), reduction("SUM", np.sum, X, (3,), keep=True),
    reduction("SUM", np.sum, FLAT, (-1,), keep=False), reduction("REDUCE_MAX", np.max, X, (1, 2), keep=True),
    reduction("REDUCE_MAX", np.max, X, (3,), keep=False), reduction("REDUCE_MIN", np.min, FLAT, (0, 2), keep=True),
    reduction("MEAN", np.mean, X, (1, 2), keep=True), reduction("MEAN", np.mean, X, (2,), keep=False),
    reduction("REDUCE_PROD", np.prod, FLAT, (1,), keep=False),
    Row("arg_max", "ARG_MAX", lambda x, _: x.argmax(-1).astype(np.int32), X, [PLACE * 3], {"OutputType": 2}),
    Row("arg_max-rows", "ARG_MAX", lambda x, _: x.argmax(0), ROWS4, [np.array(0, np.int32)], {"OutputType": 4}),
    Row("arg_min", "ARG_MIN", lambda x, _: x.argmin(1).astype(np.int32), ROWS4, [PLACE], {"OutputType": 2}),
    Row("top_k", "TOPK_V2", lambda x, _: [-np.sort(-x, -1)[:, :2], np.argsort(-x, -1)[:, :2].astype(np.int32)], ROWS4,
        [np.array(2, np.int32)]),
    unary("L2_NORMALIZATION", lambda x: x / np.sqrt(np.square(x).sum(-1, keepdims=True)), FusedActivationFunction=0),
    Row("l2_normalization-zeros", "L2_NORMALIZATION", lambda x: x * 0, X * 0, options={"FusedActivationFunction": 0}),
    Row("response", "LOCAL_RESPONSE_NORMALIZATION", lambda x: response(x, 1, 1.5, 0.5, 0.75), ramp(1, 2, 2, 5),
        options={"Radius": 1, "Bias": 1.5, "Alpha": 0.5, "Beta": 0.75}),
    Row("cumsum", "CUMSUM", lambda x, _: x.cumsum(1), ROWS4, [PLACE], {}),
    Row("cumsum-back", "CUMSUM", lambda x, _: x[:, ::-1].cumsum(1)[:, ::-1] - x, ROWS4, [PLACE],
        {"Exclusive": True, "Reverse": True}),
    Row("batch_matmul", "BATCH_MATMUL", lambda a, b: a @ b, FLAT, [ramp(2, 4, 5)], {}),
    Row("batch_matmul-adjoint", "BATCH_MATMUL", lambda a, b: a.swapaxes(1, 2) @ b.swapaxes(1, 2), FLAT, [ramp(2, 5, 3)],
        {"AdjX": True, "AdjY": True}),
    *(Row(f"transpose_conv-{stride}-{'same' if pad == SAME else 'valid'}-{out[0]}-{kernel[0]}", "TRANSPOSE_CONV",
          lambda shape, k, x, stride=stride, pad=pad, out=out: transposed(stride, pad, out, k, x), ramp(1, 3, 4, 2),
          [ints(1, *out, 3), ramp(3, *kernel, 2)], {"Padding": pad, "StrideH": stride, "StrideW": stride}, (1, 2, 0))
      for stride, pad, out, kernel in [(2, SAME, (6, 8), (3, 3)), (2, SAME, (5, 7), (3, 2)), (2, VALID, (7, 9), (3, 3)),
                                       (1, SAME, (3, 4), (3, 3)), (3, SAME, (9, 12), (2, 2)), (2, SAME, (6, 8), (4, 4)),
                                       (1, VALID, (5, 6), (3, 3))]),
    unary("DEPTH_TO_SPACE", lambda x: depth_to_space(x, 2), ramp(1, 2, 3, 8), BlockSize=2),
    unary("SPACE_TO_DEPTH", lambda x: space_to_depth(x, 2), ramp(1, 4, 6, 3), BlockSize=2),
    Row("space_to_batch", "SPACE_TO_BATCH_ND", space_to_batch, X, [ints(2, 3), ints([0, 2], [1, 2])]),
    Row("batch_to_space", "BATCH_TO_SPACE_ND", batch_to_space, ramp(4, 2, 3, 2), [ints(2, 2), ints([0, 1], [1, 0])]),
    Row("l2_pool", "L2_POOL_2D", half_root_mean, X, options={"Padding": VALID, "StrideW": 2, "StrideH": 2,
                                                            "FilterWidth": 2, "FilterHeight": 2}),
    Row("pack", "PACK", lambda *a: np.stack(a, 1), ROWS4, [ROWS4 * 2, -ROWS4], {"Axis": 1, "ValuesCount": 3}),
    Row("pack-last", "PACK", lambda *a: np.stack(a, -1), FLAT, [FLAT + 1], {"Axis": -1, "ValuesCount": 2}),
    Row("unpack", "UNPACK", lambda x: [x[:, i] for i in range(3)], FLAT, options={"Axis": 1, "Num": 3}),
    Row("unpack-image", "UNPACK", lambda x: [x[..., i] for i in range(2)], X, options={"Axis": -1, "Num": 2}),
    Row("split", "SPLIT", lambda a, x: np.split(x, 2, 2), X, [np.array(2, np.int32)], {"NumSplits": 2}, (1, 0)),
    Row("split-channels", "SPLIT", lambda a, x: np.split(x, 2, -1), X, [-PLACE], {"NumSplits": 2}, (1, 0)),
    Row("split_v", "SPLIT_V", lambda x, n, a: np.split(x, [1, 3], 1), ROWS4, [ints(1, 2, -1), PLACE], {"NumSplits": 3}),
    Row("slice", "SLICE", lambda x, b, n: x[:, 1:3, 2:, :1], X, [ints(0, 1, 2, 0), ints(1, 2, -1, 1)]),
    strided("steps", X, ((0, 3, 0, 1), (1, 0, 6, 2), (1, -2, 3, 1)), np.s_[:, 3:0:-2, ::3, 1:]),
    strided("masks", FLAT, ((5, 1, -3), (1, 9, 7), (1, 1, 2)), np.s_[:1, 1:, -3::2], BeginMask=1, EndMask=2),
    strided("shrink", X, ((0, -1, 2), (1, 0, 5), (1, 1, 1)), np.s_[0, -1, 2:5], ShrinkAxisMask=3),
    strided("new", ROWS4, ((0, 0, 1), (0, 3, 3), (1, 1, 1)), np.s_[None, 0:3, 1:3], NewAxisMask=1),
    strided("dots", X, ((0, 0, 1), (1, 0, 2), (1, 1, 1)), np.s_[0:1, ..., 1:2], EllipsisMask=2),
    strided("back", FLAT, ((1, 2, 3), (-3, -4, -5), (-1, -1, -1)), np.s_[::-1, ::-1, ::-1]),
    strided("offset", ROWS4, ((1, 1), (2, 3), (1, 1)), np.s_[1:3, 1:4], Offset=1),
    Row("reverse", "REVERSE_V2", lambda x, _: x[:, ::-1], X, [ints(1)]),
    Row("mirror-reflect", "MIRROR_PAD", lambda x, p: np.pad(x, p, mode="reflect"), X,
        [ints([0, 0], [1, 2], [3, 0], [0, 1])], {"Mode": 0}),
    Row("mirror-symmetric", "MIRROR_PAD", lambda x, p: np.pad(x, p, mode="symmetric"), X,
        [ints([0, 0], [1, 2], [3, 0], [0, 1])], {"Mode": 1}),
    Row("mirror-rows", "MIRROR_PAD", lambda x, p: np.pad(x, p, mode="symmetric"), ROWS4, [ints([0, 2], [1, 1])],
        {"Mode": 1}),
    Row("padv2", "PADV2", lambda x, p, v: np.pad(x, p, constant_values=v), X,
        [ints([0, 0], [1, 0], [0, 2], [1, 1]), np.array(1.5, np.float32)]),
    Row("gather", "GATHER", lambda x, i: x[:, i], FLAT, [ints(2, 0)], {"Axis": 1}),
    Row("gather-channel", "GATHER", lambda x, i: x[..., i], X, [np.array(1, np.int32)], {"Axis": -1}),
    Row("gather-table", "GATHER", lambda t, i: t[i], ints(3, 0, 1), [ramp(4, 3)], {"Axis": 0}, (1, 0)),
    Row("embedding", "EMBEDDING_LOOKUP", lambda i, t: t[i], ints(3, 0, 1), [ramp(4, 3)]),
    Row("one_hot", "ONE_HOT", lambda i, *_: np.where(np.arange(4) == i[:, None], 2.5, -1).astype(np.float32),
        ints(3, 0, 1), [np.array(4, np.int32), np.array(2.5, np.float32), np.array(-1, np.float32)], {"Axis": -1}),
    Row("tile", "TILE", lambda x, n: np.tile(x, n), X, [ints(1, 2, 1, 3)]),
    Row("broadcast", "BROADCAST_TO", np.broadcast_to, ramp(3, 1), [ints(2, 3, 4)]),
    Row("expand_dims", "EXPAND_DIMS", lambda x, a: x[:, None], ROWS4, [PLACE]),
    Row("transpose", "TRANSPOSE", lambda x, p: x.transpose(p), FLAT, [ints(2, 0, 1)]),
    Row("cast-int", "CAST", lambda x: x.astype(np.int32), X * 3, options={"InDataType": 0, "OutDataType": 2}),
    Row("cast-float", "CAST", lambda x: x.astype(np.float32), ints([1, -2], [3, 4]),
        options={"InDataType": 2, "OutDataType": 0}),
    Row("cast-bool", "CAST", lambda x: x.astype(np.float32), ROWS4 > 0, options={"InDataType": 6, "OutDataType": 0}),
]  # fmt: skip
