"""A small decoder as ONNX nets: prefill, chunk and decode of each block; token by token on the machine, and proven.

Run: python examples/decoder.py [FOLDER], which then has the nets as files.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tpusim

LAYERS, HIDDEN, HEADS, KV_HEADS, SIZE, INNER, WORDS = 1, 64, 4, 2, 16, 128, 96
CAPACITY, CHUNK = 16, 4
"""Tokens that the caches have room for, and tokens of a chunk."""


class Block:
    """One block with `rows` new tokens after `history` cached ones, as exporters of language models write it."""

    def __init__(self, layer: int, rows: int, history: int) -> None:
        self.random, self.rows, self.history = np.random.RandomState(layer), rows, history
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: object, out: str = "", **attributes: Any) -> str:
        """Add a node; what is no tensor's name becomes a constant."""
        names = [x if isinstance(x, str) else self.constant(np.asarray(x)) for x in inputs]
        out = out or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [out], name=f"{kind}_{out}", **attributes))
        return out

    def constant(self, value: np.ndarray) -> str:
        """Add a constant."""
        value = value.astype(np.float32) if value.dtype == np.float64 else value
        self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def linear(self, x: str, rows: int, columns: int) -> str:
        """A product with the next random matrix."""
        return self.op("MatMul", x, self.random.randn(rows, columns) / np.sqrt(rows))

    def norm(self, x: str) -> str:
        """RMSNorm."""
        mean = self.op("ReduceMean", self.op("Pow", x, 2.0), np.array([-1]), keepdims=1)
        return self.op("Mul", x, self.op("Reciprocal", self.op("Sqrt", self.op("Add", mean, 1e-6))))

    def turned(self, x: str, angles: tuple[str, str], out: str = "") -> str:
        """Rotary positions, in halves."""
        low = self.op("Slice", x, np.array([0]), np.array([SIZE // 2]), np.array([3]))
        high = self.op("Slice", x, np.array([SIZE // 2]), np.array([SIZE]), np.array([3]))
        halves = self.op("Concat", self.op("Neg", high), low, axis=3)
        return self.op("Add", self.op("Mul", x, angles[0]), self.op("Mul", halves, angles[1]), out=out)

    def by_head(self, x: str) -> str:
        """(1, heads, n, size); each head of keys serves its share of the queries' heads."""
        times, n = HEADS // KV_HEADS, self.rows + self.history
        x = self.op("Unsqueeze", self.op("Transpose", x, perm=[0, 2, 1, 3]), np.array([2]))
        x = self.op("Expand", x, np.array([1, KV_HEADS, times, n, SIZE]))
        return self.op("Reshape", x, np.array([1, HEADS, n, SIZE]))

    def model(self) -> onnx.ModelProto:
        """The whole block."""
        angle = np.outer(np.arange(2 * CAPACITY), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
        tables = [np.concatenate([f(angle), f(angle)], -1) for f in (np.cos, np.sin)]
        cos, sin = (self.op("Unsqueeze", self.op("Gather", t, "position_ids", axis=0), np.array([2])) for t in tables)
        x = self.norm("input_states")
        q, k, v = (
            self.op("Reshape", self.linear(x, HIDDEN, heads * SIZE), np.array([1, self.rows, heads, SIZE]), out=out)
            for heads, out in ((HEADS, ""), (KV_HEADS, ""), (KV_HEADS, "v_cache"))
        )
        q, k = self.turned(q, (cos, sin)), self.turned(k, (cos, sin), "k_cache")
        if self.history:
            k, v = self.op("Concat", "history_k", k, axis=1), self.op("Concat", "history_v", v, axis=1)
        keys = self.op("Transpose", self.by_head(k), perm=[0, 1, 3, 2])
        scores = self.op("MatMul", self.op("Transpose", q, perm=[0, 2, 1, 3]), keys)
        scores = self.op("Add", self.op("Mul", scores, SIZE**-0.5), "attention_mask")
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), self.by_head(v))
        mixed = self.op(
            "Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([1, self.rows, HEADS * SIZE])
        )
        x = self.op("Add", "input_states", self.linear(mixed, HEADS * SIZE, HIDDEN))
        y = self.norm(x)
        gate, up = self.linear(y, HIDDEN, INNER), self.linear(y, HIDDEN, INNER)
        y = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up)
        self.op("Add", x, self.linear(y, INNER, HIDDEN), out="output_states")
        old = {name: (1, self.history, KV_HEADS, SIZE) for name in ("history_k", "history_v") if self.history}
        new = {name: (1, self.rows, KV_HEADS, SIZE) for name in ("k_cache", "v_cache")}
        states, mask = (1, self.rows, HIDDEN), (1, 1, self.rows, self.history + self.rows)
        inputs = [_value(n, s) for n, s in {"input_states": states, "attention_mask": mask, **old}.items()]
        inputs.append(helper.make_tensor_value_info("position_ids", TensorProto.INT32, (1, self.rows)))
        results = [_value(n, s) for n, s in {"output_states": states, **new}.items()]
        graph = helper.make_graph(self.nodes, "block", inputs, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def write_nets(folder: str | Path) -> None:
    """Write the nets with the names that TPU-MLIR's llm_convert gives them."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for layer in range(LAYERS):
        for kind, rows, history in (
            ("block", CAPACITY, 0),
            ("block_kv", CHUNK, CAPACITY),
            ("block_cache", 1, CAPACITY),
        ):
            onnx.save(Block(layer, rows, history).model(), Path(folder) / f"{kind}_{layer}.onnx")


def main(folder: str | Path) -> None:
    """Compile, answer token by token, prove."""
    write_nets(folder)
    nets = tpusim.compile_nets(folder, chip="bm1684x", mode="f16", high_precision=True)
    print(nets.program)
    decoder = nets.decoder()
    words, head = np.random.RandomState(7).randn(2, WORDS, HIDDEN).astype(np.float32)
    states, said = decoder.feed(words[[3, 14, 15, 92, 65]]), list[int]()  # the question, in one prefill
    while decoder.length < decoder.capacity:
        said.append(int(np.argmax(head @ states[-1])))
        states = decoder.feed(words[said[-1:]])  # its answer, word by word
    print(f"after 5 words: {said}; {decoder}")
    found = nets.prove()
    print(f"prefill, chunks and decode agree in {sum(case.passed for case in found.cases)} of {len(found.cases)} cases")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "decoder_nets")
