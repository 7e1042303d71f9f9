"""What a row of op_cases.py is: a small ONNX model and what is known about it; and how to write one down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray
Shape = tuple[int, ...]
Nodes = list[onnx.NodeProto]

CHIPS = ("bm1684x", "bm1684")
MODES = ("int8", "f32")


@dataclass(frozen=True)
class Tolerance:
    """How far the float form may be from ONNX Runtime: |a - b| <= rtol*|b| + atol*max|b|, and why."""

    rtol: float
    atol: float
    why: str


EXACT = Tolerance(0.0, 0.0, "moves or compares values, rounds nothing")
ROUNDED = Tolerance(3e-7, 1e-7, "a few roundings per element, in another order or contracted to a multiply-add")
SUMS = Tolerance(2e-6, 2e-6, "f32 sums of up to 200 terms in another order")
EXPONENTS = Tolerance(1e-5, 1e-6, "exp, log and pow of two libraries, each a few units of the last place")


STEPS = 0.9
"""Root mean square error of an integer tensor against the float network, in units of its scale: its own rounding is
0.29, each operand's about as much again, 8-bit multipliers are off by up to 1 % of 127 steps."""


@dataclass(frozen=True)
class OpCase:
    """One op in one form.

    build: the ONNX model for input shapes. inputs: shapes by name, batch first unless named in `fixed`. result: class
    that the op under test becomes ("a|b": a on some chips and modes, b on others). ranges: (low, high) of an input's
    values where it is not (-1, 1). fallback: by chip,
    words of the reason why the op runs in float in INT8 mode. steps: by chip, the largest root mean square error of an
    integer tensor in units of its scale, where it is above STEPS. axes: axes along which its result is cut in local
    memory, "" for a global layer; BM1684 cuts n and h only. axes_on: by chip, where other ops stand for it. global_on,
    global_in, global_for: chips, modes, (chip, mode) where it is global whatever `axes` says. refused_on: chips without
    a form of it. batched: whether samples of the batch are independent, axis 0 of all tensors.
    """

    id: str
    build: Callable[[Mapping[str, Shape]], onnx.ModelProto]
    inputs: Mapping[str, Shape]
    result: str
    tolerance: Tolerance = SUMS
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    fallback: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)
    axes: str = "nhw"
    axes_on: Mapping[str, str] = field(default_factory=dict)
    global_on: frozenset[str] = frozenset()
    global_in: frozenset[str] = frozenset()
    global_for: frozenset[tuple[str, str]] = frozenset()
    refused_on: frozenset[str] = frozenset()
    batched: bool = True
    fixed: frozenset[str] = frozenset()

    def cut_axes(self, chip: str, mode: str) -> str:
        """The axes along which its result is cut on this chip in this mode."""
        if chip in self.global_on or mode in self.global_in or (chip, mode) in self.global_for:
            return ""
        axes = self.axes_on.get(chip, self.axes)
        return "".join(axis for axis in axes if chip != "bm1684" or axis in "nh")

    def shapes(self, batch: int | None = None) -> dict[str, Shape]:
        """Input shapes, for another batch if given."""
        if batch is None:
            return dict(self.inputs)
        return {k: s if k in self.fixed else (batch, *s[1:]) for k, s in self.inputs.items()}

    def model(self, batch: int | None = None) -> onnx.ModelProto:
        """The ONNX model."""
        return self.build(self.shapes(batch))

    def feeds(self, seed: int = 0) -> dict[str, Array]:
        """Input values."""
        found: dict[str, Array] = {}
        for i, (name, shape) in enumerate(self.inputs.items()):
            low, high = self.ranges.get(name, (-1.0, 1.0))
            found[name] = np.random.default_rng([seed, i]).uniform(low, high, shape).astype(np.float32)
        return found


def values(shape: Sequence[int], seed: int = 1, low: float = -1.0, high: float = 1.0) -> Array:
    """A constant."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A node; "-" is an absent input."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op, names, [output], name=f"{op}_{output}", **attributes)


def network(
    nodes: Nodes,
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    result: int = TensorProto.FLOAT,
) -> Callable[[Mapping[str, Shape]], onnx.ModelProto]:
    """A builder: the model with output "y" (of ONNX element type `result`) for given input shapes."""

    def build(shapes: Mapping[str, Shape]) -> onnx.ModelProto:
        graph = helper.make_graph(
            nodes, "case",
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()],
            [helper.make_tensor_value_info("y", result, None)],
            [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)

    return build


BATCH = 3
"""Samples per row; on BM1684 they share one 4N word, so a few rows have 6."""
SMALL, MEDIUM, ODD = (5, 6, 5), (12, 6, 5), (5, 9, 7)
"""(c, h, w) of images, few so that rows share compiled kernels."""
WIDE = (70, 6, 5)
"""More channels than lanes."""


def image(chw: Shape, batch: int = BATCH) -> Shape:
    return (batch, *chw)


def batch_norm(channels: int) -> dict[str, Array]:
    return {k: values((channels,), i) for i, k in enumerate(("gamma", "beta", "mean"))} | {
        "variance": values((channels,), 3, 0.1, 2.0)
    }


NORM = "gamma beta mean variance"
