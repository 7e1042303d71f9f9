"""Rows of op_cases.py for comparisons, logic, selection and the index of an extreme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto
from op_row import BATCH, CHIPS, EXACT, SMALL, WIDE, Nodes, OpCase, Shape, image, network, node, values

X = {"x": image(SMALL)}
TWO = {"x": image(SMALL), "z": image(SMALL)}
FLIPPED = 6.0
"""Steps where z is within half a step of the number it is compared with: the other branch, up to 254 steps away."""
BOOL, INT = TensorProto.BOOL, TensorProto.INT64


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def row(name: str, nodes: Nodes, inputs: Mapping[str, Shape], result: str, **more: Any) -> OpCase:
    """A row that rounds nothing; `kind` is the result's ONNX type."""
    build = network(nodes, more.pop("constants", {}), more.pop("opset", 17), more.pop("kind", TensorProto.FLOAT))
    return OpCase(name, build, inputs, result, **{"tolerance": EXACT, **more})


def compare_cases() -> list[OpCase]:
    def case(name: str, op: str, **more: Any) -> OpCase:
        return row(name, [node(op, "x z")], more.pop("inputs", TWO), "tpu.Compare", kind=BOOL, **more)

    def const(name: str, op: str, operands: str, value: float, **more: Any) -> OpCase:
        constants = {"w": scalar(value)}
        return row(name, [node(op, operands)], more.pop("inputs", X), "tpu.CompareConst", kind=BOOL,
                   constants=constants, **more)  # fmt: skip

    def bools(name: str, op: str) -> OpCase:
        nodes = [node("Greater", "x w", "a"), node("Less", "z w", "b"), node(op, "a b")]
        return row(name, nodes, TWO, "tpu.Compare", kind=BOOL, constants={"w": scalar(0.2)})

    often = [node("Mul", "x z", "p"), node("Relu", "p", "a"), node("Add", "x z", "q"), node("Relu", "q", "b")]
    return [
        case("greater", "Greater"),
        case("greater-equal-ranges", "GreaterOrEqual", ranges={"x": (0.0, 1.0), "z": (-2.0, 0.5)}),
        case("less-wide", "Less", inputs={"x": image(WIDE), "z": image(WIDE)}),
        case("less-equal-channels", "LessOrEqual", inputs={"x": image(SMALL), "z": (BATCH, 5, 1, 1)}),
        case("less-batch-6", "Less", inputs={"x": (6, *SMALL), "z": (6, *SMALL)}),
        case("less-rank", "Less", inputs={"x": image(SMALL), "z": (6, 5)}, fixed=frozenset({"z"}), axes=""),
        row("equal", [*often, node("Equal", "a b")], TWO, "tpu.Compare", kind=BOOL),
        row("less-constant", [node("Less", "x w")], X, "tpu.Compare", kind=BOOL, constants={"w": values((5, 6, 5))},
            fallback=dict.fromkeys(CHIPS, "is a constant tensor")),
        const("greater-const", "Greater", "x w", 0.3),
        const("less-const-left", "Less", "w x", -0.25),
        const("greater-const-outside", "Greater", "x w", 9.0, ranges={"x": (0.0, 6.0)}),
        const("less-const-wide", "LessOrEqual", "x w", 0.1, inputs={"x": image(WIDE)}, ranges={"x": (0.0, 1.0)}),
        row("not", [node("Greater", "x w", "a"), node("Not", "a")], X, "tpu.CompareConst", kind=BOOL,
            constants={"w": scalar(0.3)}),
        row("not-equal", [*often, node("Equal", "a b", "e"), node("Not", "e")], TWO, "tpu.Compare", kind=BOOL),
        row("cast-bool", [node("Relu", "x", "a"), node("Cast", "a", to=BOOL)], X, "tpu.CompareConst", kind=BOOL),
        row("cast-mask", [node("Greater", "x z", "a"), node("Cast", "a", "m", to=TensorProto.FLOAT),
                          node("Mul", "x m")], TWO, "tpu.Mul"),
        bools("and", "And"),
        bools("or", "Or"),
        bools("xor", "Xor"),
    ]  # fmt: skip


GLOBAL: dict[str, Any] = {"global_on": frozenset({"bm1684"})}
"""What BM1684 selects in global memory."""


def where_cases() -> list[OpCase]:
    mask = node("Greater", "z w", "m")
    zero = {"w": scalar(0.0)}

    def case(name: str, branches: str, inputs: Mapping[str, Shape] = TWO, **more: Any) -> OpCase:
        constants = zero | more.pop("constants", {})
        return row(
            name, [mask, node("Where", f"m {branches}")], inputs, "tpu.Where", constants=constants, **GLOBAL, **more
        )

    return [
        case("where", "x z"),
        case("where-const", "x c", constants={"c": scalar(-0.4)}),
        case("where-const-true", "c x", constants={"c": scalar(0.25)}),
        case("where-consts", "c d", {"z": image(SMALL)}, constants={"c": scalar(-0.25), "d": scalar(0.75)}),
        case("where-far", "x c", constants={"c": scalar(-900.0)}),
        case("where-wide", "x z", {"x": image(WIDE), "z": image(WIDE)}, steps=dict.fromkeys(CHIPS, FLIPPED)),
        case("where-batch-6", "x z", {"x": (6, *SMALL), "z": (6, *SMALL)}),
        case("where-mask", "x c", {"x": image(SMALL), "z": (BATCH, 1, 6, 5)}, constants={"c": scalar(0.0)}),
        case("where-tensor", "x c", constants={"c": values((6, 5))}),
        case("where-rank", "x c", {"x": (6, 5), "z": image(SMALL)}, constants={"c": scalar(0.1)},
             fixed=frozenset({"x"}), axes=""),
        row("where-fixed-mask", [node("Where", "m x z")], TWO, "tpu.Where",
            constants={"m": values((1, 5, 6, 5)) > 0}, **GLOBAL),
        row("where-reshaped-mask", [mask, node("Reshape", "m s", "r"), node("Where", "r x c")],
            {"x": image(SMALL), "z": (BATCH, 30, 5)}, "tpu.Where", batched=False,
            constants={**zero, "c": scalar(0.5), "s": np.array([BATCH, 5, 6, 5])}, **GLOBAL),
    ]  # fmt: skip


def arg_cases() -> list[OpCase]:
    def case(name: str, op: str, inputs: Mapping[str, Shape] = X, **attributes: Any) -> OpCase:
        fallback = dict.fromkeys(CHIPS, "no integer form")
        return row(name, [node(op, "x", **attributes)], inputs, "tpu.Arg", kind=INT, fallback=fallback, axes="")

    ties = row(
        "argmin-ties", [node("Relu", "x", "a"), node("ArgMin", "a", axis=3, select_last_index=1)], X, "tpu.Arg",
        kind=INT, fallback=dict.fromkeys(CHIPS, "no integer form"), axes="",
    )  # fmt: skip
    return [
        case("argmax", "ArgMax", axis=1),
        case("argmin-last-axis", "ArgMin", {"x": (6, 48)}, axis=-1, keepdims=0),
        ties,
        row("argmax-moved", [node("ArgMax", "x", "a", axis=1), node("Reshape", "a s")],
            {"x": (BATCH, 300, 2, 3)}, "tpu.Reshape", kind=INT, axes="",
            constants={"s": np.array([0, -1])}, fallback=dict.fromkeys(CHIPS, "no integer form")),
        row("argmax-equal", [node("ArgMax", "x", "a", axis=1), node("Equal", "a c")], X, "tpu.CompareConst", kind=BOOL,
            constants={"c": np.array(2)}, fallback=dict.fromkeys(CHIPS, "indices are compared in f32")),
        row("argmax-where", [node("ArgMax", "x", "a", axis=1), node("Greater", "a c", "m"), node("Where", "m a d")], X,
            "tpu.Where", kind=INT, constants={"c": np.array(1), "d": np.array(-1)},
            fallback=dict.fromkeys(CHIPS, "indices are selected in f32"), **GLOBAL),
        row("gather-computed", [node("ArgMax", "x", "a", axis=1, keepdims=0), node("Gather", "w a", axis=0)],
            {"x": (BATCH, 48)}, "tpu.Gather", constants={"w": values((48, 7))},
            fallback=dict.fromkeys(CHIPS, "Gather has no integer form"), axes=""),
        row("argmax-cast", [node("ArgMax", "x", "a", axis=1, keepdims=1), node("Cast", "a", "f", to=1),
                            node("Add", "f z")],
            TWO, "tpu.Arg", fallback=dict.fromkeys(CHIPS, "no integer form"), axes=""),
    ]  # fmt: skip


CASES: tuple[OpCase, ...] = (*compare_cases(), *where_cases(), *arg_cases())
