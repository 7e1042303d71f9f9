"""A block of a Llama model in ONNX, in the parts that exporters write; its weights are those of `llm_numbers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Sizes:
    """Of a block: hidden states, heads of queries and of keys, numbers of a head, the inner layer, positions."""

    hidden: int = 256
    heads: int = 4
    kv_heads: int = 2
    size: int = 64
    inner: int = 512
    positions: int = 128


def block_weights(sizes: Sizes = Sizes(), seed: int = 0) -> dict[str, np.ndarray]:
    """Norms and matrices (K, N), in the order in which the numbers are drawn."""
    random, queries, kv = np.random.RandomState(seed), sizes.heads * sizes.size, sizes.kv_heads * sizes.size
    hidden, inner = sizes.hidden, sizes.inner

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.randn(rows, columns) / np.sqrt(rows)).astype(np.float32)

    norms = {name: (1 + 0.1 * random.randn(hidden)).astype(np.float32) for name in ("first", "second")}
    shapes = {
        "q": (hidden, queries), "k": (hidden, kv), "v": (hidden, kv), "o": (queries, hidden), "gate": (hidden, inner),
        "up": (hidden, inner), "down": (inner, hidden),
    }  # fmt: skip
    return norms | {name: matrix(*shape) for name, shape in shapes.items()}


def tables(sizes: Sizes = Sizes()) -> tuple[np.ndarray, np.ndarray]:
    """(cosines, sines) of all positions, (positions, size)."""
    angles = np.outer(np.arange(sizes.positions), 10000.0 ** (-np.arange(0, sizes.size, 2) / sizes.size))
    angles = np.concatenate([angles, angles], -1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass
class _Graph:
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def __call__(self, kind: str, *inputs: object, out: str = "", **attributes: Any) -> str:
        """A node; arrays and lists of integers among its inputs become constants."""
        name = out or f"t{len(self.nodes)}"
        given = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(kind, given, [name], name=f"{kind}_{name}", **attributes))
        return name


def llama_block(
    rows: int, history: int = 0, *, repeat_late: bool = True, sizes: Sizes = Sizes(), seed: int = 0, mask: bool = True,
    fault: str = "",
) -> onnx.ModelProto:  # fmt: skip
    """A prefill of `rows` tokens, or with a history a continuation of it.

    repeat_late: heads of keys are repeated after the Transpose of heads, else before. seed: of the weights. mask: an
    input; without it a prefill masks a triangle, and a continuation sees its whole history. fault: one of
    `FAULTS`, something that a net must not do.
    """
    net, weights, keys = _Graph(), block_weights(sizes, seed), rows + history
    heads, kv_heads, width = sizes.heads, sizes.kv_heads, sizes.size
    shifted = [np.roll(t, -1, axis=0) if fault == "positions" else t for t in tables(sizes)]
    cosine, sine = (net("Unsqueeze", net("Gather", t, "position_ids", axis=0), np.array([2])) for t in shifted)
    _spoil(weights, fault)

    def norm(x: str, weight: np.ndarray) -> str:
        mean = net("ReduceMean", net("Pow", x, np.float32(2)), np.array([-1]), keepdims=1)
        factor = net("Reciprocal", net("Sqrt", net("Add", mean, np.float32(1e-2 if fault == "epsilon" else 1e-6))))
        return net("Mul", net("Mul", x, factor), weight)

    def linear(x: str, name: str) -> str:
        return net("MatMul", x, weights[name])

    def split(x: str, heads: int, out: str = "") -> str:
        return net("Reshape", x, np.array([1, rows, heads, width]), out=out)

    def rotary(x: str, out: str = "") -> str:
        half, axes = np.array([width // 2]), np.array([3])
        low, high = net("Slice", x, np.array([0]), half, axes), net("Slice", x, half, np.array([width]), axes)
        first, second = (net("Neg", low), high) if fault == "rotation" else (net("Neg", high), low)
        turned = net("Concat", first, second, axis=3)
        return net("Add", net("Mul", x, cosine), net("Mul", turned, sine), out=out)

    def repeated(x: str) -> str:
        times = heads // kv_heads
        if fault == "groups":
            x = net("Unsqueeze", net("Transpose", x, perm=[0, 2, 1, 3]), np.array([1]))
            x = net("Expand", x, np.array([1, times, kv_heads, keys, width]))
            return net("Reshape", x, np.array([1, heads, keys, width]))
        if repeat_late:
            x = net("Unsqueeze", net("Transpose", x, perm=[0, 2, 1, 3]), np.array([2]))
            x = net("Expand", x, np.array([1, kv_heads, times, keys, width]))
            return net("Reshape", x, np.array([1, heads, keys, width]))
        x = net("Expand", net("Unsqueeze", x, np.array([3])), np.array([1, keys, kv_heads, times, width]))
        return net("Transpose", net("Reshape", x, np.array([1, keys, heads, width])), perm=[0, 2, 1, 3])

    def masked(x: str) -> str:
        if mask:
            return net(
                "Add", x, net("Mul", "attention_mask", np.float32(0)) if fault == "no mask" else "attention_mask"
            )
        seen = np.tri(rows, keys, history + (fault == "triangle"))
        return x if rows == 1 else net("Add", x, np.where(seen, 0, -10000).astype(np.float32)[None, None])

    x = norm("input_states", weights["first"])
    k = split(linear(x, "k"), kv_heads, "k_cache" if fault == "unturned keys" else "")
    q, k = rotary(split(linear(x, "q"), heads)), k if fault == "unturned keys" else rotary(k, "k_cache")
    v = split(linear(x, "v"), kv_heads, "v_cache")
    if history:
        past = ("history_v", "history_k") if fault == "histories" else ("history_k", "history_v")
        order = -1 if fault == "new first" else 1
        k, v = (net("Concat", *(p, new)[::order], axis=1) for p, new in zip(past, (k, v), strict=True))
    scores = net("MatMul", net("Transpose", q, perm=[0, 2, 1, 3]), net("Transpose", repeated(k), perm=[0, 1, 3, 2]))
    scores = masked(net("Mul", scores, np.float32(1 / width if fault == "scale" else width**-0.5)))
    mixed = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), repeated(v)), perm=[0, 2, 1, 3])
    y = linear(net("Reshape", mixed, np.array([1, rows, heads * width])), "o")
    x = y if fault == "no residual" else net("Add", "input_states", y)
    y = norm(x, weights["second"])
    gate = linear(y, "gate")
    y = net("Mul", net("Mul", gate, net("Sigmoid", gate)), linear(y, "up"))
    net("Add", x, linear(y, "down"), out="output_states")
    past = {name: (1, history, kv_heads, width) for name in ("history_k", "history_v")} if history else {}
    masks = {"attention_mask": (1, 1, rows, keys)} if mask else {}
    inputs = {"input_states": (1, rows, sizes.hidden), **masks, **past}
    cache = {name: (1, rows, kv_heads, width) for name in ("k_cache", "v_cache")}
    outputs = {"output_states": (1, rows, sizes.hidden), **cache}

    def values(shapes: dict[str, tuple[int, ...]], kind: int) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]

    ids = values({"position_ids": (1, rows)}, TensorProto.INT32)
    floats = TensorProto.FLOAT
    graph = helper.make_graph(net.nodes, "block", values(inputs, floats) + ids, values(outputs, floats), net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


FAULTS = (
    "positions", "epsilon", "rotation", "groups", "unturned keys", "histories", "new first", "scale", "no mask",
    "no residual", "one weight", "gate and up", "heads of o", "v by k", "norms",
)  # fmt: skip
"""Faults of a net with a mask; "triangle" is one of a net without."""


def _spoil(weights: dict[str, np.ndarray], fault: str) -> None:
    if fault == "one weight":
        weights["down"][3, 5] += 0.5
    elif fault == "gate and up":
        weights["gate"], weights["up"] = weights["up"], weights["gate"]
    elif fault == "heads of o":
        weights["o"] = np.ascontiguousarray(weights["o"][::-1])
    elif fault == "v by k":
        weights["v"] = weights["k"]
    elif fault == "norms":
        weights["first"], weights["second"] = weights["second"], weights["first"]
