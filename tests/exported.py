"""Networks as exporters write them today: node lists in both exporters' idioms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Arrays = dict[str, np.ndarray]
IDS, FLOATS = TensorProto.INT64, TensorProto.FLOAT
B, T, C, HEADS = 1, 6, 16, 4
"""Batch, tokens, channels and heads of every network here."""


class Net:
    """Nodes and weights, one after the other; every call gives the name of its result."""

    def __init__(self, opset: int = 20) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: Arrays = {}
        self.opset = opset
        self.rng = np.random.default_rng(11)

    def __call__(self, op: str, *inputs: str | np.ndarray | float, **attributes: Any) -> str:
        names = [i if isinstance(i, str) else self.weight(np.asarray(i)) for i in inputs]
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], **attributes))
        return output

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array.astype(np.float32) if array.dtype == np.float64 else array
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self("MatMul", x, self.rng.standard_normal((inputs, outputs)) / np.sqrt(inputs))
        return self("Add", product, self.rng.standard_normal(outputs) * 0.1)

    def model(self, inputs: Mapping[str, tuple[int, tuple[int, ...]]], *results: str) -> onnx.ModelProto:
        given = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
        made = [helper.make_tensor_value_info(n, FLOATS, None) for n in results]
        tensors = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "net", given, made, tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)


def attention(net: Net, x: str, mask: str | None, masked: Any) -> str:
    q, k, v = (net("Transpose", net("Reshape", net.linear(x, C, C), np.array([0, 0, HEADS, -1])), perm=[0, 2, 1, 3])
               for _ in range(3))  # fmt: skip
    scores = net("Div", net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2])), np.sqrt(C / HEADS))
    scores = masked(net, scores, mask) if masked else scores
    y = net("MatMul", net("Softmax", scores, axis=-1), v)
    return net.linear(net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, C])), C, C)


CAUSAL = np.triu(np.ones((1, 1, T, T), bool), 1)
MASKS = {
    "where-infinite": lambda net, s, m: net("Where", CAUSAL, -np.inf, s),
    "where-lowest": lambda net, s, m: net("Where", CAUSAL, np.finfo(np.float32).min, s),
    "where-1e9": lambda net, s, m: net("Where", CAUSAL, -1e9, s),
    "where-not": lambda net, s, m: net("Where", net("Trilu", np.ones((1, 1, T, T), bool), upper=0), s, -1e4),
    "add-1e9": lambda net, s, m: net("Add", s, CAUSAL * -1e9),
    "add-lowest": lambda net, s, m: net("Add", s, CAUSAL * np.finfo(np.float32).min),
    "tokens": lambda net, s, m: net("Add", s, net("Mul", net("Sub", 1.0, net("Cast", m, to=FLOATS)), -10000.0)),
}


OPERATOR = "attention-23"
"""The mask inside the op that ONNX has for all of it."""


def operator(net: Net) -> str:
    q, k, v = (net.linear("x", C, C) for _ in range(3))
    y = net("Attention", q, k, v, q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1)
    return net.linear(y, C, C)


def bert() -> tuple[onnx.ModelProto, Arrays]:
    """Token ids, positions, a mask of tokens; LayerNormalization and erf."""
    net = Net()
    words = net("Gather", net.rng.standard_normal((50, C)), "ids")
    x = net("Add", words, net.rng.standard_normal((1, T, C)))
    x = net("LayerNormalization", x, np.ones(C), np.zeros(C))
    mask = net("Unsqueeze", "mask", np.array([1, 2]))
    x = net("Add", x, attention(net, x, mask, MASKS["tokens"]))
    h = net.linear(x, C, 2 * C)
    h = net("Mul", net("Mul", h, net("Add", net("Erf", net("Div", h, np.sqrt(2.0))), 1.0)), 0.5)
    y = net("LayerNormalization", net("Add", x, net.linear(h, 2 * C, C)), np.ones(C), np.zeros(C))
    inputs = {"ids": (IDS, (B, T)), "mask": (IDS, (B, T))}
    return net.model(inputs, y), {"ids": np.array([[3, 49, 0, 7, 7, 1]]), "mask": np.array([[1, 1, 1, 1, 0, 0]])}


def gpt(idiom: str) -> tuple[onnx.ModelProto, Arrays]:
    """A causal mask in one of the idioms, and GELU by tanh and a cube."""
    net = Net(23 if idiom == OPERATOR else 20)
    attended = operator(net) if idiom == OPERATOR else attention(net, "x", "causal", MASKS[idiom])
    x = net("Add", "x", attended)
    h = net.linear(x, C, C)
    inner = net("Mul", net("Add", h, net("Mul", net("Pow", h, 3.0), 0.044715)), np.sqrt(2 / np.pi))
    h = net("Mul", net("Mul", h, 0.5), net("Add", net("Tanh", inner), 1.0))
    return net.model({"x": (FLOATS, (B, T, C))}, net.linear(h, C, C)), {"x": sample(B, T, C)}


def llama() -> tuple[onnx.ModelProto, Arrays]:
    """RMSNorm by Pow, rotary positions, queries in groups over repeated keys."""
    net, half = Net(), C // HEADS // 2

    def rms(x: str) -> str:
        scale = net("Sqrt", net("Add", net("ReduceMean", net("Pow", x, 2.0), np.array([-1])), 1e-6))
        return net("Mul", net("Div", x, scale), net.rng.uniform(0.5, 1.5, C))

    angles = np.outer(np.arange(T), 1 / 10 ** np.arange(half))
    cosine, sine = (np.concatenate([f(angles)] * 2, -1)[None, None] for f in (np.cos, np.sin))

    def rotary(x: str) -> str:
        low = net("Slice", x, np.array([0]), np.array([half]), np.array([3]))
        high = net("Slice", x, np.array([half]), np.array([2**63 - 1]), np.array([3]))
        return net("Add", net("Mul", x, cosine), net("Mul", net("Concat", net("Neg", high), low, axis=3), sine))

    def heads(x: str, count: int) -> str:
        return net("Transpose", net("Reshape", x, np.array([0, 0, count, -1])), perm=[0, 2, 1, 3])

    x = rms("x")
    q = rotary(heads(net.linear(x, C, C), HEADS))
    k, v = (heads(net.linear(x, C, C // 2), HEADS // 2) for _ in range(2))
    k = rotary(k)
    shape = np.array([B, HEADS // 2, 2, T, C // HEADS])
    k, v = (net("Reshape", net("Expand", net("Unsqueeze", y, np.array([2])), shape), np.array([B, HEADS, T, -1]))
            for y in (k, v))  # fmt: skip
    scores = net("Mul", net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2])), 0.5)
    y = net("MatMul", net("Softmax", MASKS["where-lowest"](net, scores, None), axis=-1), v)
    y = net.linear(net("Reshape", net("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, C])), C, C)
    gate = net.linear(rms(net("Add", "x", y)), C, C)
    return net.model({"x": (FLOATS, (B, T, C))}, net("Mul", gate, net("Sigmoid", gate))), {"x": sample(B, T, C)}


def tagger() -> tuple[onnx.ModelProto, Arrays]:
    """Token ids, an LSTM in both directions, a class per token."""
    net, hidden = Net(), 5
    x = net("Transpose", net("Gather", net.rng.standard_normal((30, C)), "ids"), perm=[1, 0, 2])
    parts = [net.rng.standard_normal((2, 4 * hidden, n)) * 0.4 for n in (C, hidden)]
    bias = net.rng.standard_normal((2, 8 * hidden)) * 0.1
    y = net("LSTM", x, *parts, bias, hidden_size=hidden, direction="bidirectional")
    y = net("Reshape", net("Transpose", y, perm=[2, 0, 1, 3]), np.array([0, 0, -1]))
    return net.model({"ids": (IDS, (B, T))}, net.linear(y, 2 * hidden, 4)), {"ids": np.array([[3, 29, 0, 7, 7, 1]])}


def flow() -> tuple[onnx.ModelProto, Arrays]:
    """A field of offsets that an image is sampled at, and pixel shuffle."""
    net = Net()
    w = net.rng.standard_normal((2, 4, 3, 3)) * 0.1
    field = net("Transpose", net("Tanh", net("Conv", "x", w, pads=[1] * 4)), perm=[0, 2, 3, 1])
    y = net("GridSample", "x", field, padding_mode="border", align_corners=1)
    return net.model({"x": (FLOATS, (1, 4, 6, 6))}, net("DepthToSpace", y, blocksize=2, mode="CRD")), {
        "x": sample(1, 4, 6, 6)
    }  # fmt: skip


def detector() -> tuple[onnx.ModelProto, Arrays]:
    """The best of the scores, and their boxes."""
    net = Net()
    scores = net("ReduceMax", net("Sigmoid", "x"), np.array([2]), keepdims=0)
    best = net("TopK", scores, np.array([4]), axis=1)
    net.nodes[-1].output.append("places")
    places = net("Expand", net("Unsqueeze", "places", np.array([2])), np.array([1, 4, 5]))
    y = net("GatherElements", "x", places, axis=1)
    return net.model({"x": (FLOATS, (1, 12, 5))}, y, best), {"x": sample(1, 12, 5)}


def sample(*shape: int) -> np.ndarray:
    return np.random.default_rng([3, *shape]).standard_normal(shape).astype(np.float32)


NETWORKS = {
    "bert": bert, "llama": llama, "tagger": tagger, "flow": flow, "detector": detector,
    **{f"gpt-{idiom}": lambda idiom=idiom: gpt(idiom) for idiom in (*MASKS, OPERATOR) if idiom != "tokens"},
}  # fmt: skip
