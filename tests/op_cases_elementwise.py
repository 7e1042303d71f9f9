"""Rows of op_cases.py for Sub, Div, Max, Min, ops with a number, padding, parts of tensors, repetition, resizing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from op_row import (
    BATCH,
    CHIPS,
    EXACT,
    ROUNDED,
    SMALL,
    SUMS,
    WIDE,
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
INTERPOLATED = Tolerance(1e-5, 1e-6, "ONNX Runtime computes the source coordinates in f32")


def element_wise(name: str, nodes: Nodes, inputs: Mapping[str, Shape], result: str, **more: Any) -> OpCase:
    """A row that rounds a few times per element; `constants` are weights."""
    return OpCase(name, network(nodes, more.pop("constants", {})), inputs, result, **{"tolerance": ROUNDED, **more})


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def binary_cases() -> list[OpCase]:
    quotient: dict[str, Any] = {"global_on": frozenset({"bm1684"}), "tolerance": ROUNDED, "ranges": {"z": (0.5, 2.0)}}
    no_integers = dict.fromkeys(CHIPS, "no integer form")
    typed = {"bm1684": 1.3}  # by a quirk the type has a zero point that the bytes do not have
    return [
        element_wise("sub", [node("Sub", "x z")], TWO, "tpu.Sub", ranges={"z": (-3.0, 0.1)}),
        element_wise("sub-relu", [node("Sub", "x z", "a"), node("Relu", "a")], TWO, "tpu.Sub"),
        element_wise("sub-unsigned", [node("Sub", "x z")], TWO, "tpu.Sub", ranges={"x": (1.0, 3.0), "z": (-1.0, 0.0)}),
        element_wise("sub-wide", [node("Sub", "x z")], {"x": image(WIDE), "z": image(WIDE)}, "tpu.Sub"),
        element_wise("sub-batch-6", [node("Sub", "x z")], {"x": (6, *SMALL), "z": (6, *SMALL)}, "tpu.Sub"),
        element_wise("sub-channels", [node("Sub", "x z")], {"x": image(SMALL), "z": (BATCH, 5, 1, 1)}, "tpu.Sub"),
        element_wise("sub-constant", [node("Sub", "x w")], X, "tpu.Sub", constants={"w": values((6, 5))}),
        element_wise("sub-rank", [node("Sub", "x z")], {"x": image(SMALL), "z": (6, 5)}, "tpu.Sub",
                     fixed=frozenset({"z"}), axes=""),
        element_wise("sub-cancels", [node("Sub", "x z", "a"), node("Mul", "a u")], TWO, "tpu.Sub",
                     constants={"u": values((1, 1, 6, 5), 3)},
                     ranges={"x": (4.0, 5.0), "z": (4.0, 5.0)}, fallback=dict.fromkeys(CHIPS, "is below an operand's")),
        element_wise("div", [node("Div", "x z")], TWO, "tpu.Div", fallback=no_integers, **quotient),
        element_wise("div-relu", [node("Div", "x z", "a"), node("Relu", "a")], TWO, "tpu.Div", fallback=no_integers,
                     **quotient),
        element_wise("quotient-by-root", [node("Sqrt", "z", "a"), node("Div", "x a")], TWO, "tpu.Mul|tpu.Div",
                     fallback={"bm1684": "no integer form"}, **quotient),
        element_wise("div-constant", [node("Div", "x w")], X, "tpu.Mul", constants={"w": values((6, 5), low=0.5)}),
        element_wise("max", [node("Max", "x z")], TWO, "tpu.Max", tolerance=EXACT),
        element_wise("max-three", [node("Max", "x z v")], {**TWO, "v": (BATCH, 5, 1, 1)}, "tpu.Max", tolerance=EXACT,
                     ranges={"x": (-0.1, 0.2), "v": (-2.0, 0.5)}),
        element_wise("max-relu", [node("Max", "x z", "a"), node("Relu", "a")], TWO, "tpu.Max", tolerance=EXACT),
        element_wise("max-requant", [node("Mul", "x z", "a"), node("Max", "a x", "b"), node("Add", "b x")], TWO,
                     "tpu.Max", steps={"bm1684x": 1.2, "bm1684": 1.4}),  # bytes of two scales are compared as they are
        element_wise("min", [node("Min", "x z")], TWO, "tpu.Min", tolerance=EXACT, ranges={"z": (-0.5, 0.2)},
                     steps=typed),
        element_wise("min-wide", [node("Min", "x z")], {"x": image(WIDE), "z": image(WIDE)}, "tpu.Min",
                     tolerance=EXACT, steps=typed),
        element_wise("min-constant", [node("Min", "x w")], X, "tpu.Min", tolerance=EXACT, steps=typed,
                     constants={"w": values((5, 6, 5))}),
    ]  # fmt: skip


def const_cases() -> list[OpCase]:
    shifted = "tpu.MulShift|tpu.MulConst"

    def case(name: str, op: str, operands: str, value: float, result: str, **more: Any) -> OpCase:
        relu = more.pop("relu", False)
        nodes = [node(op, operands, "a"), node("Relu", "a")] if relu else [node(op, operands)]
        return element_wise(name, nodes, more.pop("inputs", X), result, constants={"w": scalar(value)}, **more)

    return [
        element_wise("neg", [node("Neg", "x")], X, shifted, tolerance=EXACT),
        case("mulconst-negative", "Mul", "w x", -1.7, shifted, ranges={"x": (0.0, 1.0)}),
        case("mulconst-relu", "Mul", "x w", 2.5, shifted, relu=True, ranges={"x": (0.0, 1.0)}),
        case("mulconst-div", "Div", "x w", 3.0, shifted),
        case("addconst", "Add", "x w", 0.7, "tpu.AddConst"),
        case("addconst-relu", "Add", "w x", -0.3, "tpu.AddConst", relu=True),
        case("addconst-wide", "Add", "x w", -0.5, "tpu.AddConst", inputs={"x": image(WIDE)}, ranges={"x": (0.0, 1.0)},
             axes="nchw"),
        case("addconst-2d", "Add", "x w", 0.5, "tpu.AddConst", inputs={"x": (6, 48)}, axes="n"),
        case("addconst-sub", "Sub", "x w", -0.25, "tpu.AddConst"),
        case("reciprocal-div", "Div", "w x", 0.3, "tpu.Lut|tpu.Reciprocal", ranges={"x": (0.4, 2.0)}),
        case("subconst-reverse", "Sub", "w x", 1.0, "tpu.SubConst", ranges={"x": (-0.5, 0.9)}),
        case("subconst-reverse-relu", "Sub", "w x", 0.5, "tpu.SubConst", relu=True),
        case("maxconst", "Max", "x w", -0.2, "tpu.MaxConst", tolerance=EXACT),
        case("maxconst-relu", "Max", "x w", -0.2, "tpu.MaxConst", tolerance=EXACT, relu=True),
        case("minconst", "Min", "w x", 0.3, "tpu.MinConst", tolerance=EXACT),
        case("minconst-far", "Min", "x w", 900.0, "tpu.MinConst", tolerance=EXACT),
    ]  # fmt: skip


def movement_cases() -> list[OpCase]:
    def case(name: str, nodes: Nodes, result: str, inputs: Mapping[str, Shape] = X, **more: Any) -> OpCase:
        constants, opset = more.pop("constants", {}), more.pop("opset", 17)
        return OpCase(name, network(nodes, constants, opset), inputs, result, **{"tolerance": EXACT, **more})

    def pad(name: str, pads: list[int], **more: Any) -> OpCase:
        mode, value = more.pop("mode", "constant"), more.pop("value", 0.3)
        constants = {"p": np.array(pads), "v": scalar(value)}
        return case(name, [node("Pad", "x p v", mode=mode)], "tpu.Pad", constants=constants, axes="", **more)

    def cut(name: str, starts: list[int], ends: list[int], along: list[int], steps: list[int], **more: Any) -> OpCase:
        constants = {k: np.array(v) for k, v in (("s", starts), ("e", ends), ("a", along), ("t", steps))}
        return case(name, [node("Slice", "x s e a t")], more.pop("result", "tpu.Slice"), constants=constants, **more)

    def resize(name: str, scales: list[float], result: str, **more: Any) -> OpCase:
        keys = ("mode", "coordinate_transformation_mode", "nearest_mode")
        attributes = {k: more.pop(k) for k in keys if k in more}
        constants = {"s": np.array(scales, np.float32)}
        return case(name, [node("Resize", "x - s", **attributes)], result, constants=constants, **more)

    floats = dict.fromkeys(CHIPS, "has no integer form")
    x_family = {chip: why for chip, why in floats.items() if chip not in ("bm1684", "cv183x", "cv181x")}
    on_chip = {chip: why for chip, why in floats.items() if not chip.startswith("cv18")}
    from_lane_0: dict[str, Any] = {"global_on": frozenset({"bm1684"})}
    concat = node("Concat", "c b a", axis=1)
    return [
        pad("pad", [0, 0, 1, 2, 0, 0, 3, 0]),
        pad("pad-channels-batch-6", [0, 2, 0, 0, 0, 1, 1, 0], inputs={"x": (6, *SMALL)}, value=-0.2),
        pad("pad-batch", [1, 0, 0, 0, 2, 0, 1, 0], batched=False),
        pad("pad-reflect", [0, 0, 2, 1, 0, 0, 1, 3], mode="reflect"),
        pad("pad-edge", [0, 0, 2, 1, 0, 1, 1, 3], mode="edge"),
        case("pad-axes", [node("Pad", "x p v a")], "tpu.Pad", opset=18, axes="",
             constants={"p": np.array([1, 0, 2, 2]), "v": scalar(-1.0), "a": np.array([-1, 2])}),
        case("pad-attributes", [node("Pad", "x", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5)], "tpu.Pad", opset=9,
             axes=""),
        case("pad-conv", [node("Pad", "x p v", "a"), node("Conv", "a w", pads=[1, 0, 0, 0])], "tpu.Conv2D",
             constants={"p": np.array([0, 0, 0, 1, 0, 0, 2, 1]), "v": scalar(0.0), "w": values((4, 5, 3, 3))},
             tolerance=SUMS),
        cut("slice-rows", [1], [5], [2], [1]),
        cut("slice-channels", [3], [68], [1], [1], inputs={"x": image(WIDE)}, **from_lane_0),
        cut("slice-second-row", [64], [70], [1], [1], inputs={"x": image(WIDE)}),
        cut("slice-steps", [1, -4], [2**40, -1], [2, 3], [2, 2]),
        cut("slice-everything", [1, 1, 0], [4, 6, 4], [1, 2, -1], [1, 3, 1], inputs={"x": (6, *SMALL)},
            **from_lane_0),
        cut("slice-batch", [1], [3], [0], [1], axes="", batched=False),
        cut("slice-batch-word", [4], [7], [0], [1], axes="", batched=False, inputs={"x": (7, 5, 6)}),
        cut("slice-batch-step", [0], [7], [0], [3], axes="", batched=False, inputs={"x": (7, 5, 6)}),
        cut("slice-channel-step", [0], [5], [1], [2], axes=""),
        cut("slice-backwards", [-1, 1], [-100, 4], [2, 3], [-2, 1], result="tpu.Gather", axes="", fallback=floats),
        *(cut(f"reverse-{axis}", [-1], [-100], [axis], [-1], result="tpu.Reverse", axes="", fallback=x_family)
          for axis in (3, 1)),
        cut("reverse-batch", [-1], [-100], [0], [-1], result="tpu.Reverse", axes="", fallback=x_family, batched=False,
            inputs={"x": (7, 5, 6)}),
        cut("reverse-volume", [-1], [-100], [4], [-1], result="tpu.Gather", axes="", fallback=floats,
            inputs={"x": (BATCH, 2, 3, 4, 5)}),
        case("slice-attributes", [node("Slice", "x", starts=[1, 0], ends=[3, -1], axes=[1, 3])], "tpu.Slice", opset=9,
             **from_lane_0),
        case("split", [node("Split", "x s", "a", axis=1), concat], "tpu.Slice",
             constants={"s": np.array([2, 1, 2])}, **from_lane_0),
        case("split-attribute", [node("Split", "x", "a", axis=-2, split=[3, 2, 1]), node("Concat", "c b a", axis=2)],
             "tpu.Slice", opset=11),
        case("tile", [node("Abs", "x", "a"), node("Tile", "a t")], "tpu.Tile", axes="",
             constants={"t": np.array([1, 2, 1, 3])}),
        case("tile-batch", [node("Abs", "x", "a"), node("Tile", "a t")], "tpu.Tile", axes="", batched=False,
             constants={"t": np.array([2, 1, 1, 1])}),
        case("expand", [node("Abs", "x", "a"), node("Expand", "a s")], "tpu.Tile", {"x": (BATCH, 5, 1, 1)}, axes="",
             constants={"s": np.array([5, 6, 1])}),
        case("expand-rank", [node("Abs", "x", "a"), node("Expand", "a s")], "tpu.Tile", {"x": (6, 1)}, axes="",
             batched=False, constants={"s": np.array([4, 6, 5])}),
        case("gather", [node("Gather", "x i", axis=1)], "tpu.Gather", axes="", fallback=floats,
             constants={"i": np.array([4, -5, 2])}),
        case("gather-matrix", [node("Gather", "x i", axis=-1)], "tpu.Gather", axes="", fallback=floats,
             constants={"i": np.array([[4, 0], [1, 1]])}),
        case("gather-regular", [node("Gather", "x i", axis=2)], "tpu.Slice", constants={"i": np.array([1, 3, 5])}),
        case("gather-one", [node("Gather", "x i", "a", axis=1), node("Relu", "a")], "tpu.Slice",
             constants={"i": np.array(-2)}, **from_lane_0),
        resize("upsample-half-pixel", [1, 1, 2, 2], "tpu.Upsample"),
        resize("upsample-wide", [1, 1, 2, 2], "tpu.Upsample", inputs={"x": (6, 70, 3, 2)}, nearest_mode="floor",
               coordinate_transformation_mode="asymmetric"),
        resize("resize-nearest", [1, 1, 1.5, 0.5], "tpu.Interp", fallback=on_chip, axes="", nearest_mode="floor",
               coordinate_transformation_mode="asymmetric"),
        resize("resize-linear", [1, 1, 2, 1.6], "tpu.Interp", fallback=floats, axes="", mode="linear",
               tolerance=INTERPOLATED),
        resize("resize-corners", [1, 1, 2, 3], "tpu.Interp", fallback=floats, axes="", mode="linear",
               coordinate_transformation_mode="align_corners", tolerance=INTERPOLATED),
        case("resize-sizes", [node("Resize", "x - - s", mode="linear")], "tpu.Interp", fallback=floats, axes="",
             constants={"s": np.array([BATCH, 5, 9, 3])}, tolerance=INTERPOLATED, batched=False),
        case("upsample-9", [node("Upsample", "x s", mode="nearest")], "tpu.Upsample", opset=9,
             constants={"s": np.array([1, 1, 2, 2], np.float32)}),
        case("conv-1d", [node("Conv", "x w b", pads=[1, 2], strides=[2])], "tpu.Conv2D", {"x": (BATCH, 5, 17)},
             constants={"w": values((7, 5, 3)), "b": values((7,))}, tolerance=SUMS, axes="nh"),
        case("conv-1d-relu", [node("Conv", "x w", "a", group=5, dilations=[2]), node("Relu", "a")], "tpu.Conv2D",
             {"x": (BATCH, 5, 17)}, constants={"w": values((5, 1, 3))}, tolerance=SUMS, axes="nh"),
    ]  # fmt: skip


def _several(case: OpCase, outputs: str) -> OpCase:
    """A row whose first node has several outputs."""
    build = case.build

    def more(shapes: Mapping[str, Shape]) -> Any:
        model = build(shapes)
        first = model.graph.node[0]
        del first.output[:]
        first.output.extend(outputs.split())
        return model

    return OpCase(**{**vars(case), "build": more})


CASES: tuple[OpCase, ...] = tuple(
    _several(case, "a b c") if case.id.startswith("split") else case
    for case in (*binary_cases(), *const_cases(), *movement_cases())
)
