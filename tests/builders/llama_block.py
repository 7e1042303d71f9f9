"""A block of a Llama model in ONNX, in the parts that exporters write; its weights are those of `llm_numbers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, KV_HEADS, SIZE, INNER, POSITIONS = 256, 4, 2, 64, 512, 128


def block_weights() -> dict[str, np.ndarray]:
    """Norms and matrices (K, N), in the order in which the numbers are drawn."""
    random, kv = np.random.RandomState(0), KV_HEADS * SIZE

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.randn(rows, columns) / np.sqrt(rows)).astype(np.float32)

    norms = {name: (1 + 0.1 * random.randn(HIDDEN)).astype(np.float32) for name in ("first", "second")}
    sizes = {
        "q": (HIDDEN, HIDDEN), "k": (HIDDEN, kv), "v": (HIDDEN, kv), "o": (HIDDEN, HIDDEN), "gate": (HIDDEN, INNER),
        "up": (HIDDEN, INNER), "down": (INNER, HIDDEN),
    }  # fmt: skip
    return norms | {name: matrix(*size) for name, size in sizes.items()}


def tables() -> tuple[np.ndarray, np.ndarray]:
    """(cosines, sines) of all positions, (POSITIONS, SIZE)."""
    angles = np.outer(np.arange(POSITIONS), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
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


def llama_block(rows: int, history: int = 0, *, repeat_late: bool = True) -> onnx.ModelProto:
    """A prefill of `rows` tokens, or with a history a continuation of it.

    repeat_late: heads of keys are repeated after the Transpose of heads, else before.
    """
    net, weights, keys = _Graph(), block_weights(), rows + history
    cosine, sine = (net("Unsqueeze", net("Gather", t, "position_ids", axis=0), np.array([2])) for t in tables())

    def norm(x: str, weight: np.ndarray) -> str:
        mean = net("ReduceMean", net("Pow", x, np.float32(2)), np.array([-1]), keepdims=1)
        factor = net("Reciprocal", net("Sqrt", net("Add", mean, np.float32(1e-6))))
        return net("Mul", net("Mul", x, factor), weight)

    def linear(x: str, name: str) -> str:
        return net("MatMul", x, weights[name])

    def split(x: str, heads: int, out: str = "") -> str:
        return net("Reshape", x, np.array([1, rows, heads, SIZE]), out=out)

    def rotary(x: str, out: str = "") -> str:
        half, axes = np.array([SIZE // 2]), np.array([3])
        low, high = net("Slice", x, np.array([0]), half, axes), net("Slice", x, half, np.array([SIZE]), axes)
        turned = net("Concat", net("Neg", high), low, axis=3)
        return net("Add", net("Mul", x, cosine), net("Mul", turned, sine), out=out)

    def repeated(x: str) -> str:
        if repeat_late:
            x = net("Unsqueeze", net("Transpose", x, perm=[0, 2, 1, 3]), np.array([2]))
            x = net("Expand", x, np.array([1, KV_HEADS, HEADS // KV_HEADS, keys, SIZE]))
            return net("Reshape", x, np.array([1, HEADS, keys, SIZE]))
        x = net("Expand", net("Unsqueeze", x, np.array([3])), np.array([1, keys, KV_HEADS, HEADS // KV_HEADS, SIZE]))
        return net("Transpose", net("Reshape", x, np.array([1, keys, HEADS, SIZE])), perm=[0, 2, 1, 3])

    x = norm("input_states", weights["first"])
    q, k = rotary(split(linear(x, "q"), HEADS)), rotary(split(linear(x, "k"), KV_HEADS), "k_cache")
    v = split(linear(x, "v"), KV_HEADS, "v_cache")
    if history:
        k, v = net("Concat", "history_k", k, axis=1), net("Concat", "history_v", v, axis=1)
    scores = net("MatMul", net("Transpose", q, perm=[0, 2, 1, 3]), net("Transpose", repeated(k), perm=[0, 1, 3, 2]))
    scores = net("Add", net("Mul", scores, np.float32(SIZE**-0.5)), "attention_mask")
    mixed = net("Transpose", net("MatMul", net("Softmax", scores, axis=-1), repeated(v)), perm=[0, 2, 1, 3])
    x = net("Add", "input_states", linear(net("Reshape", mixed, np.array([1, rows, HIDDEN])), "o"))
    y = norm(x, weights["second"])
    gate = linear(y, "gate")
    y = net("Mul", net("Mul", gate, net("Sigmoid", gate)), linear(y, "up"))
    net("Add", x, linear(y, "down"), out="output_states")
    past = {name: (1, history, KV_HEADS, SIZE) for name in ("history_k", "history_v")} if history else {}
    inputs = {"input_states": (1, rows, HIDDEN), "attention_mask": (1, 1, rows, keys), **past}
    cache = {name: (1, rows, KV_HEADS, SIZE) for name in ("k_cache", "v_cache")}
    outputs = {"output_states": (1, rows, HIDDEN), **cache}

    def values(shapes: dict[str, tuple[int, ...]], kind: int) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]

    ids = values({"position_ids": (1, rows)}, TensorProto.INT32)
    floats = TensorProto.FLOAT
    graph = helper.make_graph(net.nodes, "block", values(inputs, floats) + ids, values(outputs, floats), net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
