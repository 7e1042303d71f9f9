"""Rows of op_cases.py for elements at computed places, running sums, powers, remainders and sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper
from op_row import (
    BATCH,
    CHIPS,
    EXACT,
    EXPONENTS,
    SMALL,
    SUMS,
    Nodes,
    OpCase,
    Shape,
    Tolerance,
    image,
    network,
    node,
    values,
)

X = {"x": image(SMALL)}
TWO = {"x": image(SMALL), "z": image(SMALL)}
SAMPLED = Tolerance(1e-5, 1e-5, "f32 coordinates in ONNX Runtime, double here")


def row(name: str, nodes: Nodes, result: str, inputs: Mapping[str, Shape] = X, **more: Any) -> OpCase:
    """A row of an op that runs in global memory, in float or on indices."""
    build = network(nodes, more.pop("constants", {}), more.pop("opset", 18), more.pop("kind", 1))
    options = {"tolerance": EXACT, "axes": "", "fallback": dict.fromkeys(CHIPS, "has no integer form")} | more
    return OpCase(name, build, inputs, result, **options)


def position_cases() -> list[OpCase]:
    rng = np.random.default_rng(3)
    places = rng.integers(0, 5, (BATCH, 5, 6, 5))
    at_rows = np.stack([rng.permutation(6)[:4] for _ in range(BATCH * 5)]).reshape(BATCH, 5, 4, 1)
    at = np.broadcast_to(at_rows, (BATCH, 5, 4, 5)).copy()
    ids = [node("ArgMax", "x", "i", axis=1)]
    return [
        row("gather-elements", [node("GatherElements", "x i", axis=1)], "tpu.GatherElements",
            constants={"i": places - 5 * (places > 3)}, batched=False),
        row("gather-elements-computed", [*ids, node("GatherElements", "x i", axis=1)], "tpu.GatherElements"),
        row("scatter-elements", [node("ScatterElements", "x i u", axis=2)], "tpu.ScatterElements",
            constants={"i": at, "u": values((BATCH, 5, 4, 5))}, batched=False),
        row("scatter-elements-add", [node("ScatterElements", "x i z", axis=1, reduction="add")],
            "tpu.ScatterElements", TWO, constants={"i": places}, batched=False, tolerance=SUMS),
        row("topk", [helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=-1, largest=0)], "tpu.TopK",
            constants={"k": np.array([3])}),
        row("topk-places", [helper.make_node("TopK", ["x", "k"], ["values", "y"], axis=-1)], "tpu.TopK",
            constants={"k": np.array([3])}, kind=7),
        row("nms", [node("NonMaxSuppression", "x s k o", center_point_box=1)], "tpu.Nms",
            {"x": (BATCH, 8, 4), "s": (BATCH, 2, 8)}, constants={"k": np.array([3]), "o": np.array([0.1], np.float32)},
            ranges={"x": (0.1, 1.0)}, batched=False, kind=7,
            refused_on=frozenset({"cv180x", "cv181x", "cv182x", "cv183x"})),
    ]  # fmt: skip


def pair_cases() -> list[OpCase]:
    steps = {"x": (0.1, 2.0)}
    return [
        row("pow-tensor", [node("Pow", "x z")], "tpu.Pow3", TWO, ranges=steps, tolerance=EXPONENTS),
        row("mod", [node("Mod", "x z", fmod=1)], "tpu.Mod", TWO, ranges={"z": (0.3, 0.9)}, tolerance=SUMS),
        row("cumsum", [node("CumSum", "x a", exclusive=1, reverse=1)], "tpu.CumSum", tolerance=SUMS,
            constants={"a": np.array(1)}),
        row("grid-sample", [node("GridSample", "x g")], "tpu.GridSampler", {"x": image(SMALL), "g": (BATCH, 4, 3, 2)},
            ranges={"g": (-1.1, 1.1)}, tolerance=SAMPLED),
        row("grid-sample-nearest", [node("GridSample", "x g", mode="nearest", padding_mode="reflection")],
            "tpu.GridSampler", {"x": image(SMALL), "g": (BATCH, 4, 3, 2)}, ranges={"g": (-1.4, 1.4)},
            tolerance=SAMPLED),
    ]  # fmt: skip


def activation_cases() -> list[OpCase]:
    def case(op: str, **more: Any) -> OpCase:
        fallback = {"fallback": dict.fromkeys(CHIPS, "has no table"), "axes": "nhw"}
        return row(op.lower(), [node(op, "x")], "tpu.Active", **(fallback | {"tolerance": EXPONENTS} | more))

    ranges = {"ranges": {"x": (-0.9, 0.9)}}
    table = {"fallback": {}, "result": "tpu.Lut|tpu.Active"}
    plain = [case(op, **ranges) for op in ("Tan", "Acos", "Asin", "Atan", "Atanh")]
    looked_up = [
        OpCase(op.lower(), network([node(op, "x")]), X, table["result"], tolerance=EXPONENTS, axes="nhw")
        for op in ("Sinh", "Cosh")
    ]
    power = OpCase(
        "pow-const", network([node("Pow", "x w")], {"w": np.array(1.7, np.float32)}), X, "tpu.Lut|tpu.Active",
        tolerance=EXPONENTS, axes="nhw", ranges={"x": (0.1, 2.0)},
    )  # fmt: skip
    casts = [node("Cast", "x", "i", to=6), node("Cast", "i", to=1)]
    trunc = row("cast-integers", casts, "tpu.Active", ranges={"x": (-9.0, 9.0)}, axes="nhw",
                fallback=dict.fromkeys(CHIPS, "integers of the network"))  # fmt: skip
    return [*plain, *looked_up, power, trunc]


CASES: tuple[OpCase, ...] = (*position_cases(), *pair_cases(), *activation_cases())
