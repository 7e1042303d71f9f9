"""A transformer block with outlier channels, of our own: what SmoothQuant and softmax correction are for."""

from __future__ import annotations

import numpy as np
import onnx
from op_row import network, node

TOKENS, WIDTH, HEADS = 12, 16, 2
SAMPLES = 4
LOUD = {3: 12.0, 10: 25.0}
"""Channels of the LayerNorms that are so many times as large as the others."""


def _norm(random: np.random.RandomState, name: str) -> dict[str, np.ndarray]:
    scale = 1 + 0.1 * random.randn(WIDTH)
    for channel, factor in LOUD.items():
        scale[channel] *= factor
    return {f"{name}_s": scale.astype(np.float32), f"{name}_b": (0.1 * random.randn(WIDTH)).astype(np.float32)}


def _linear(random: np.random.RandomState, name: str, inside: int, out: int) -> dict[str, np.ndarray]:
    weight = random.randn(inside, out) / np.sqrt(inside)
    weight[list(LOUD)] /= 6
    return {f"{name}_w": weight.astype(np.float32), f"{name}_c": (0.1 * random.randn(out)).astype(np.float32)}


def block() -> onnx.ModelProto:
    """LayerNorm, attention, LayerNorm, MLP; the second LayerNorm is read by the residual Add too."""
    random = np.random.RandomState(7)
    constants = {**_norm(random, "n1"), **_norm(random, "n2")}
    for name, inside, out in (("q", 16, 16), ("k", 16, 16), ("v", 16, 16), ("o", 16, 16), ("u", 16, 32), ("d", 32, 16)):
        constants |= _linear(random, name, inside, out)
    split = np.array([1, TOKENS, HEADS, WIDTH // HEADS])
    constants |= {"split": split, "joined": np.array([1, TOKENS, WIDTH]), "root": np.array(8**-0.5, np.float32)}
    nodes = [node("LayerNormalization", "x n1_s n1_b", "n1", axis=-1)]
    for name in "qkv":
        nodes += [node("MatMul", f"n1 {name}_w", f"{name}0"), node("Add", f"{name}0 {name}_c", f"{name}1")]
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [node("Reshape", f"{name}1 split", f"{name}2"), node("Transpose", f"{name}2", f"{name}3", perm=perm)]
    nodes += [
        node("MatMul", "q3 k3", "qk"), node("Mul", "qk root", "scores"), node("Softmax", "scores", "p", axis=-1),
        node("MatMul", "p v3", "a0"), node("Transpose", "a0", "a1", perm=[0, 2, 1, 3]),
        node("Reshape", "a1 joined", "a"),
        node("MatMul", "a o_w", "o0"), node("Add", "o0 o_c", "o1"), node("Add", "x o1", "r1"),
        node("LayerNormalization", "r1 n2_s n2_b", "n2", axis=-1),
        node("MatMul", "n2 u_w", "u0"), node("Add", "u0 u_c", "u1"), node("Relu", "u1", "g"),
        node("MatMul", "g d_w", "d0"), node("Add", "d0 d_c", "d1"), node("Add", "d1 n2", "y"),
    ]  # fmt: skip
    return network(nodes, constants)({"x": (1, TOKENS, WIDTH)})


def samples() -> list[dict[str, np.ndarray]]:
    """Standard normal numbers."""
    random = np.random.RandomState(8)
    return [{"x": random.randn(1, TOKENS, WIDTH).astype(np.float32)} for _ in range(SAMPLES)]
