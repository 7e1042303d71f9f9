"""Every op and every form of it as one row of data; test_ops.py fans each row out over stages, chips and modes.

A row is a small ONNX model and what is known about it: float tolerance with its reason, where integers fall back to
float, along which axes the op's result may be cut. A new op is a row here (architecture section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from op_cases_activation import CASES as ACTIVATION_CASES
from op_cases_conv import CASES as CONV_CASES
from op_cases_elementwise import CASES as ELEMENTWISE_CASES
from op_cases_logic import CASES as LOGIC_CASES
from op_cases_positions import CASES as POSITION_CASES
from op_cases_recurrent import CASES as RECURRENT_CASES
from op_row import (
    BATCH,
    CHIPS,
    EXACT,
    EXPONENTS,
    MEDIUM,
    MODES,
    NORM,
    ODD,
    ROUNDED,
    SMALL,
    STEPS,
    SUMS,
    WIDE,
    Array,
    Nodes,
    OpCase,
    Shape,
    Tolerance,
    batch_norm,
    image,
    network,
    node,
    values,
)

__all__ = ["BY_ID", "CASES", "CHIPS", "MODES", "NOT_REACHED", "STEPS", "OpCase"]


# ----------------------------------------------------------------------------------------------------------------- Conv


def conv(
    name: str,
    chw: Shape,
    oc: int,
    kernel: int,
    *,
    group: int = 1,
    bias: bool = True,
    weight: Callable[[Array], Array] = lambda w: w,
    then: Nodes | None = None,
    constants: Mapping[str, Array] | None = None,
    batch: int = BATCH,
    axes: str = "nhw",
    **attributes: Any,
) -> OpCase:
    """A convolution, and what follows it (from tensor "a")."""
    weights = {"w": weight(values((oc, chw[0] // group, kernel, kernel))), **(constants or {})}
    if bias:
        weights["b"] = values((oc,))
    end = "a" if then else "y"
    first = node("Conv", "x w b" if bias else "x w", end, group=group, kernel_shape=[kernel, kernel], **attributes)
    build = network([first, *(then or [])], weights)
    return OpCase(name, build, {"x": image(chw, batch)}, "tpu.Conv2D", axes=axes)


PADDED_APART = frozenset({("bm1684", "int8")})
"""Where the padded convolution of an image is in no group."""


def conv_cases() -> list[OpCase]:
    same = {"pads": [1, 1, 1, 1]}
    relu = [node("Relu", "a")]
    computed = network([node("Conv", "x w", **same)])
    computed_grouped = network([node("Conv", "x w b", group=2, **same)])
    computed_depthwise = network([node("Conv", "x w", group=5, **same)])
    computed_bias = network([node("Conv", "x w b", **same)], {"w": values((12, 5, 3, 3))})
    return [
        conv("conv-3x3", SMALL, 12, 3, **same),
        conv("conv-1x1", MEDIUM, 20, 1),
        conv("conv-5x5-s2-uneven-pads", ODD, 12, 5, strides=[2, 2], pads=[2, 1, 1, 2]),
        replace(conv("conv-7x7-s2", (3, 11, 10), 8, 7, strides=[2, 2], pads=[3, 3, 3, 3]), global_for=PADDED_APART),
        replace(conv("conv-image-batch-6", (3, 11, 10), 8, 3, pads=[2, 0, 1, 1], batch=6), global_for=PADDED_APART),
        conv("conv-2x2-s3", ODD, 7, 2, strides=[3, 2]),
        conv("conv-dilated", ODD, 6, 3, dilations=[2, 2], pads=[2, 2, 2, 2]),
        conv("conv-grouped", MEDIUM, 8, 3, group=2, **same),
        conv("conv-grouped-wide", MEDIUM, 99, 3, group=3, **same),
        conv("conv-grouped-many-inputs", (140, 5, 4), 6, 1, group=2),
        conv("conv-depthwise", WIDE, 70, 3, group=70, **same),
        conv("conv-depthwise-s2-no-bias", MEDIUM, 12, 3, group=12, bias=False, strides=[2, 2], **same),
        conv("conv-depthwise-multiplier", SMALL, 10, 3, group=5, **same),
        conv("conv-100-channels", SMALL, 100, 3, **same),
        conv("conv-from-100-channels", (100, 6, 5), 8, 3, **same),
        conv("conv-no-bias", SMALL, 12, 3, bias=False, **same),
        conv("conv-positive-filter", SMALL, 12, 3, bias=False, weight=np.abs, **same),
        conv("conv-integer-filter", SMALL, 12, 3, weight=lambda w: np.round(w * 30) / np.float32(4), **same),
        conv("conv-batch-6", SMALL, 12, 3, batch=6, **same),
        conv("conv-one-image", SMALL, 12, 3, batch=1, axes="hw", **same),
        conv("conv-auto-pad", ODD, 6, 3, strides=[2, 2], auto_pad="SAME_LOWER"),
        conv("conv-padding-alone", SMALL, 12, 1, strides=[2, 3], pads=[1, 1, 0, 1]),
        replace(conv("conv-patches", (3, 14, 28), 6, 14, strides=[14, 14], axes="n"),
                result="tpu.Reshape|tpu.Conv2D", global_on=frozenset(CHIPS) - {"bm1684"}),
        conv("conv-relu", SMALL, 12, 3, then=relu, **same),
        conv("conv-relu6", SMALL, 12, 3, then=[node("Clip", "a lo hi")],
             constants={"lo": np.float32(0)[()], "hi": np.array(6, np.float32)}, **same),
        conv("conv-bn-relu", SMALL, 12, 3, bias=False,
             then=[node("BatchNormalization", f"a {NORM}", "n"), node("Relu", "n")], constants=batch_norm(12), **same),
        OpCase("conv-computed-filter", computed, {"x": image(SMALL), "w": (12, 5, 3, 3)}, "tpu.Conv2D", axes="",
               fixed=frozenset({"w"}), fallback={c: "filter is not constant" for c in CHIPS}),
        OpCase("conv-computed-grouped", computed_grouped, {"x": image(MEDIUM), "w": (8, 6, 3, 3), "b": (8,)},
               "tpu.Conv2D", axes="", fixed=frozenset({"w", "b"}),
               fallback={c: "filter is not constant" for c in CHIPS}),
        OpCase("conv-computed-depthwise", computed_depthwise, {"x": image(SMALL), "w": (5, 1, 3, 3)}, "tpu.Conv2D",
               axes="", fixed=frozenset({"w"}), fallback={c: "filter is not constant" for c in CHIPS}),
        OpCase("conv-computed-bias", computed_bias, {"x": image(SMALL), "b": (12,)}, "tpu.Conv2D", axes="",
               fixed=frozenset({"b"}), fallback={c: "filter is not constant" for c in CHIPS}),
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- MatMul


def matmul_cases() -> list[OpCase]:
    matrix, row = values((48, 20)), values((20,), 2)
    weights = {"w": matrix, "b": row}
    no_bm1684 = {"bm1684": "one constant matrix"}

    def case(name: str, nodes: Nodes, inputs: Mapping[str, Shape], constants: Mapping[str, Array], **more: Any):  # noqa: ANN202
        return OpCase(name, network(nodes, constants), inputs, "tpu.MatMul", **{"axes": "", **more})

    rows, columns = (BATCH, 70, 12), (BATCH, 12, 20)
    in_integers: dict[str, Any] = {"global_in": frozenset({"f32"}), "global_on": frozenset({"bm1684"})}
    few_channels = {"x": (2, 3, 70, 12)}
    beside = [node("Transpose", v, t, perm=(0, 2, 1, 3)) for v, t in ("xa", "zc")]
    beside += [node("MatMul", "a c", "p"), node("Transpose", "p", perm=(0, 2, 1, 3))]
    return [
        case("matmul-batch-of-weights", [node("MatMul", "x w")], {"x": rows}, {"w": values(columns)}, batched=False,
             fallback=no_bm1684, axes="nc", **in_integers),
        case("matmul-batch-of-activations", [node("MatMul", "x z")], {"x": rows, "z": columns}, {},
             fallback=no_bm1684, axes="nc", **in_integers),
        case("matmul-one-right", [node("MatMul", "x z", "a"), node("Relu", "a")], {"x": rows, "z": (1, 12, 20)}, {},
             fallback=no_bm1684, axes="nc", fixed=frozenset({"z"}), **in_integers),
        case("matmul-few-channels", [node("MatMul", "x w", "a"), node("Add", "a b")], few_channels,
             {"w": values((12, 20)), "b": row}, fallback=no_bm1684, axes="nc", **in_integers),
        case("matmul-fills-lanes", [node("MatMul", "x w")], {"x": (2, 4, 32, 12)}, {"w": values((12, 20))},
             fallback=no_bm1684, axes="n", **in_integers),
        case("gemm-fc", [node("Gemm", "x w b", transB=1)], {"x": (BATCH, 48)}, weights | {"w": matrix.T.copy()}),
        case("gemm-alpha-beta", [node("Gemm", "x w b", alpha=0.5, beta=2.0)], {"x": (BATCH, 48)}, weights),
        case("gemm-relu", [node("Gemm", "x w b", "a"), node("Relu", "a")], {"x": (BATCH, 48)}, weights),
        case("gemm-trans-a", [node("Gemm", "x w b", transA=1)], {"x": (48, 3)}, weights, fallback=no_bm1684,
             batched=False),
        case("matmul-3d", [node("MatMul", "x w")], {"x": (BATCH, 5, 48)}, {"w": matrix}, fallback=no_bm1684,
             axes="n", **in_integers),
        case("matmul-batched-weight", [node("MatMul", "x w")], {"x": (BATCH, 3, 5, 6)}, {"w": values((3, 6, 7))},
             fallback=no_bm1684),
        case("matmul-activations", [node("MatMul", "x z")], {"x": (BATCH, 3, 5, 6), "z": (BATCH, 3, 6, 7)}, {},
             fallback=no_bm1684),
        OpCase("matmul-heads", network(beside, {}), {"x": (BATCH, 5, 3, 6), "z": (BATCH, 6, 3, 7)},
               "tpu.MatMul", fallback=no_bm1684, axes="nh", **in_integers),
        case("matmul-both-broadcast", [node("MatMul", "x z")], {"x": (BATCH, 1, 5, 6), "z": (3, 6, 7)}, {},
             fallback=no_bm1684, fixed=frozenset({"z"})),
        case("matmul-constant-left", [node("MatMul", "w x")], {"x": (BATCH, 20, 7)}, {"w": matrix},
             fallback={c: "left operand is constant" for c in CHIPS}),
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------- Add, Sum, Mul, norm


def element_wise(name: str, nodes: Nodes, inputs: Mapping[str, Shape], result: str, **more: Any) -> OpCase:
    """A row that rounds a few times per element; `constants` are weights."""
    constants = more.pop("constants", {})
    return OpCase(name, network(nodes, constants), inputs, result, **{"tolerance": ROUNDED, **more})


def add_cases() -> list[OpCase]:
    x, add = image(SMALL), "tpu.Add"
    two, three = {"x": x, "z": x}, {"x": x, "z": x, "v": x}
    far = {"z": (-3.0, 0.1), "v": (0.0, 0.2)}
    return [
        element_wise("add", [node("Add", "x z")], two, add, ranges=far),
        element_wise("add-wide", [node("Add", "x z")], {"x": image(WIDE), "z": image(WIDE)}, add, axes="nchw"),
        element_wise("add-batch-6", [node("Add", "x z")], {"x": (6, *SMALL), "z": (6, *SMALL)}, add),
        element_wise("add-relu", [node("Add", "x z", "a"), node("Relu", "a")], two, add, ranges=far),
        element_wise("add-unsigned", [node("Add", "x z")], two, add, ranges={"x": (0.0, 1.0), "z": (0.0, 2.0)}),
        element_wise("add-chain", [node("Add", "x z", "a"), node("Add", "a v")], three, add, ranges=far),
        element_wise("add-itself", [node("Add", "x x")], {"x": x}, add),
        element_wise("add-channels", [node("Add", "x z")], {"x": x, "z": (BATCH, 5, 1, 1)}, add),
        element_wise("add-one-image", [node("Add", "x z")], {"x": x, "z": (1, 5, 1, 1)}, add, fixed=frozenset({"z"})),
        element_wise("add-rank", [node("Add", "x z")], {"x": x, "z": (6, 5)}, add, fixed=frozenset({"z"}), axes=""),
        element_wise("add-constant", [node("Add", "x w")], {"x": x}, add, constants={"w": values((1, 1, 6, 5))}),
        element_wise("add-scalar", [node("Add", "x w")], {"x": x}, "tpu.AddConst",
                     constants={"w": np.array(0.7, np.float32)}),
        element_wise("add-constant-channels", [node("Add", "x w")], {"x": x}, "tpu.Scale|tpu.Conv2D",
                     constants={"w": values((1, 5, 1, 1))}),
        element_wise("add-unbalanced", [node("Add", "x z")], two, add, ranges={"z": (-90.0, 90.0)},
                     fallback={c: "more than 64" for c in CHIPS}),
        element_wise("sum-three", [node("Sum", "x z v")], three, add, ranges=far),
        element_wise("sum-three-relu", [node("Sum", "x z v", "a"), node("Relu", "a")], three, add, ranges=far,
                     steps={"bm1684x": 1.3, "bm1684": 1.3}),  # the sum of two is rounded as well
        element_wise("sum-one", [node("Sum", "x", "a"), node("Add", "a x")], {"x": x}, add),
    ]  # fmt: skip


def mul_cases() -> list[OpCase]:
    x, mul = image(SMALL), "tpu.Mul"
    return [
        element_wise("mul", [node("Mul", "x z")], {"x": x, "z": x}, mul),
        element_wise("mul-unsigned", [node("Mul", "x z")], {"x": x, "z": x}, mul,
                     ranges={"x": (0.0, 1.0), "z": (0.0, 3.0)}),
        element_wise("mul-channels", [node("Mul", "x z")], {"x": image(WIDE), "z": (BATCH, 70, 1, 1)}, mul,
                     axes="nchw"),
        element_wise("mul-square", [node("Mul", "x x")], {"x": x}, mul),
        element_wise("mul-relu", [node("Mul", "x z", "a"), node("Relu", "a")], {"x": x, "z": x}, mul),
        element_wise("mul-constant", [node("Mul", "x w")], {"x": x}, mul, constants={"w": values((6, 5))}),
        element_wise("mul-scalar", [node("Mul", "x w")], {"x": x}, "tpu.MulShift|tpu.MulConst",
                     constants={"w": np.array(0.3, np.float32)}),
        element_wise("mul-constant-channels", [node("Mul", "x w")], {"x": x}, "tpu.Scale|tpu.Conv2D",
                     constants={"w": values((5, 1, 1))}),
    ]  # fmt: skip


def norm_cases() -> list[OpCase]:
    norm = node("BatchNormalization", f"x {NORM}", epsilon=1e-3)
    hidden = node("BatchNormalization", f"x {NORM}", "n")
    scale = "tpu.Scale|tpu.Conv2D"
    return [
        element_wise("bn-alone", [norm], {"x": image(SMALL)}, scale, constants=batch_norm(5), tolerance=SUMS),
        element_wise("bn-wide", [norm], {"x": image(WIDE)}, scale, constants=batch_norm(70), tolerance=SUMS,
                     steps={"bm1684": 1.4}),  # products above 16 bits are clamped on this chip
        element_wise("bn-relu", [hidden, node("Relu", "n")], {"x": image(SMALL)}, scale,
                     constants=batch_norm(5), tolerance=SUMS),
        element_wise("bn-2d", [norm], {"x": (BATCH, 48)}, "tpu.Scale", constants=batch_norm(48), tolerance=SUMS,
                     axes="n"),
        OpCase("lrn", network([node("LRN", "x", size=5, alpha=0.1, beta=0.6, bias=2.0)]), {"x": image(MEDIUM)},
               "tpu.LRN", EXPONENTS, fallback={c: "no integer form" for c in CHIPS}, axes=""),
    ]  # fmt: skip


# ----------------------------------------------------------------------------------------------------- Relu, Clip, pool


def activation_cases() -> list[OpCase]:
    x = {"x": image(SMALL)}
    bounds = {"lo": np.array(-0.5, np.float32), "hi": np.array(0.25, np.float32), "zero": np.array(0, np.float32),
              "six": np.array(6, np.float32)}  # fmt: skip
    no_clip = {"bm1684x": "Clip has no integer", "bm1684": "not calibrated"}

    def case(name: str, nodes: Nodes, inputs: Mapping[str, Shape], result: str, **more: Any) -> OpCase:
        return element_wise(name, nodes, inputs, result, constants=bounds, tolerance=EXACT, **more)

    return [
        case("relu", [node("Relu", "x")], x, "tpu.Relu"),
        case("relu-wide", [node("Relu", "x")], {"x": image(WIDE)}, "tpu.Relu"),
        case("relu-2d", [node("Relu", "x")], {"x": (BATCH, 48)}, "tpu.Relu", axes="n"),
        case("clip-0-6", [node("Clip", "x zero six")], x, "tpu.Relu", ranges={"x": (-9.0, 9.0)}),
        case("clip", [node("Clip", "x lo hi")], x, "tpu.Clip|tpu.MinConst", fallback=no_clip),
        case("clip-open", [node("Clip", "x - hi")], x, "tpu.Clip|tpu.MinConst", fallback=no_clip),
        case("dropout", [node("Relu", "x", "a"), node("Dropout", "a", "d"), node("MaxPool", "d", kernel_shape=[2, 2])],
             x, "tpu.Relu"),
        case("identity", [node("Identity", "x", "a"), node("Relu", "a", "b"), node("Identity", "b")], x, "tpu.Relu"),
    ]  # fmt: skip


def pool_cases() -> list[OpCase]:
    def case(name: str, op: str, chw: Shape = ODD, tolerance: Tolerance = EXACT, **more: Any) -> OpCase:
        known = {k: more.pop(k) for k in ("ranges", "fallback", "axes") if k in more}
        batch = more.pop("batch", BATCH)
        build = network([node(op, "x", **more)], opset=19)
        return OpCase(name, build, {"x": image(chw, batch)}, "tpu.Pool2D", tolerance, **known)

    two = {"kernel_shape": [2, 2], "strides": [2, 2]}
    three = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    positive = {"x": (0.0, 1.0)}
    return [
        case("maxpool-2x2", "MaxPool", SMALL, **two),
        case("maxpool-3x3-s2", "MaxPool", **three),
        case("maxpool-uneven-pads", "MaxPool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1]),
        case("maxpool-ceil", "MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, batch=6),
        case("maxpool-far", "MaxPool", (5, 33, 17), kernel_shape=[2, 2], strides=[16, 16], axes=""),
        case("maxpool-global", "GlobalMaxPool", SMALL, axes="n"),
        case("maxpool-global-large", "GlobalMaxPool", (3, 16, 15), axes="n", fallback={"bm1684": "kernel of 240"}),
        case("avgpool-2x2", "AveragePool", SMALL, SUMS, **two),
        case("avgpool-3x3-inside", "AveragePool", ODD, SUMS, **padded, count_include_pad=0),
        case("avgpool-3x3-padded", "AveragePool", ODD, SUMS, **padded, count_include_pad=1),
        case("avgpool-ceil", "AveragePool", ODD, SUMS, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1, batch=6,
             ranges=positive),
        case("avgpool-global", "GlobalAveragePool", WIDE, SUMS, ranges=positive, axes="n"),
        case("avgpool-global-large", "GlobalAveragePool", (3, 16, 15), SUMS, axes="n",
             fallback={"bm1684": "kernel of 240"}),
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------- data movement


def data_cases() -> list[OpCase]:
    x, two = image(SMALL), {"x": image(SMALL), "z": image((3, 6, 5))}

    def case(name: str, nodes: Nodes, inputs: Mapping[str, Shape], result: str, **more: Any) -> OpCase:
        constants = more.pop("constants", {})
        opset = more.pop("opset", 17)
        return OpCase(name, network(nodes, constants, opset), inputs, result, **{"tolerance": EXACT, **more})

    def concat(name: str, inputs: Mapping[str, Shape], axis: int, **more: Any) -> OpCase:
        return case(name, [node("Concat", " ".join(inputs), axis=axis)], inputs, "tpu.Concat", **more)

    def view(name: str, nodes: Nodes, **more: Any) -> OpCase:
        fixed: dict[str, Any] = {"axes": "", "global_on": frozenset({"bm1684"})}
        return case(name, nodes, {"x": more.pop("shape", x)}, more.pop("result", "tpu.Reshape"), **fixed | more)

    focus = [node("Slice", f"x {at} e a s", f"{at}{at}") for at in "opqr"]
    focus.append(node("Concat", "oo pp qq rr", axis=1))
    shuffle = [node("Reshape", "x s1", "a"), node("Transpose", "a", "t", perm=[0, 2, 1, 3, 4]), node("Reshape", "t s2")]
    merged = [node("Slice", f"x {at} e a s", f"{at}{at}") for at in "oprq"]
    merged.append(node("Concat", "oo pp rr qq", axis=3))
    patches = [
        node("Reshape", "x s1", "a"),
        node("Transpose", "a", "t", perm=[0, 1, 3, 4, 2, 5]),
        node("Reshape", "t s2"),
    ]

    def roll(name: str, axis: int, **more: Any) -> OpCase:
        parts = [
            node("Slice", "x two far a", "b"),
            node("Slice", "x zero two a", "c"),
            node("Concat", "b c", axis=axis),
        ]
        constants = {"two": np.array([2]), "far": np.array([2**40]), "zero": np.array([0]), "a": np.array([axis])}
        return view(name, parts, result="tpu.SwapDimInner", constants=constants, **more)

    factor = {"w": np.array(2.0, np.float32)}  # x is halved for the Concat, so that every odd byte is a tie
    return [
        concat("concat", two, 1),
        concat("concat-three-wide", {"x": image(WIDE), "z": image((30, 6, 5)), "v": image((61, 6, 5))}, 1),
        concat("concat-ranges", two, 1, ranges={"x": (-0.1, 0.1), "z": (-2.0, 2.0)}),
        concat("concat-batch-6", {"x": (6, *SMALL), "z": (6, 3, 6, 5)}, 1),
        case("concat-requant", [node("Mul", "x w", "m"), node("Concat", "x m", axis=1)], {"x": x}, "tpu.Concat",
             constants=factor, tolerance=ROUNDED),
        case("concat-signs", [node("Relu", "x", "r"), node("Concat", "x r", axis=1)], {"x": x}, "tpu.Concat"),
        case("concat-relu", [node("Mul", "x z", "m"), node("Add", "x z", "a"), node("Concat", "m a", "c", axis=1),
                             node("Relu", "c")], {"x": x, "z": x}, "tpu.Concat", tolerance=ROUNDED),
        concat("concat-rows", {"x": x, "z": image((5, 3, 5))}, 2, axes="nw"),
        concat("concat-columns", {"x": x, "z": image((5, 6, 2))}, -1, axes="nh"),
        concat("concat-batches", {"x": (3, 5, 6), "z": (2, 5, 6)}, 0, axes="", batched=False),
        case("concat-constant", [node("Concat", "x w", axis=1)], {"x": (1, 5, 6, 5)}, "tpu.Concat", batched=False,
             axes="hw", constants={"w": values((1, 3, 6, 5))}, fallback={c: "is constant" for c in CHIPS}),
        view("reshape", [node("Abs", "x", "a"), node("Reshape", "a s")], constants={"s": np.array([0, -1, 5])}),
        view("reshape-batch", [node("Abs", "x", "a"), node("Reshape", "a s")], constants={"s": np.array([-1, 45])},
             batched=False),
        view("flatten", [node("Abs", "x", "a"), node("Flatten", "a")]),
        view("squeeze", [node("Abs", "x", "a"), node("Squeeze", "a s")], shape=(BATCH, 70, 1, 1),
             constants={"s": np.array([-1, 2])}, axes="nc", global_in=frozenset({"f32"})),
        view("reshape-inside", [node("Abs", "x", "a"), node("Reshape", "a s", "b"), node("Abs", "b")],
             shape=image(WIDE), constants={"s": np.array([0, 0, 10, 3])}, axes="nc"),
        view("unsqueeze", [node("Abs", "x", "a"), node("Unsqueeze", "a s")], shape=(BATCH, 48),
             constants={"s": np.array([-1, 2])}, axes="n", global_in=frozenset({"f32"})),
        view("transpose", [node("Transpose", "x", perm=[0, 2, 3, 1])], result="tpu.Permute"),
        view("transpose-batch", [node("Transpose", "x", perm=[1, 0, 2, 3])], result="tpu.Permute", batched=False),
        view("channel-shuffle", shuffle, shape=image(MEDIUM), result="tpu.Permute",
             constants={"s1": np.array([0, 3, 4, 6, 5]), "s2": np.array([0, 12, 6, 5])}),
        view("depth-to-space", [node("DepthToSpace", "x", blocksize=2, mode="CRD")], shape=image(MEDIUM),
             result="tpu.Depth2Space"),
        view("space-to-depth", [node("SpaceToDepth", "x", blocksize=3)], shape=image((5, 6, 9)),
             result="tpu.Depth2Space"),
        view("focus", focus, shape=image((5, 6, 10)), result="tpu.Depth2Space",
             constants={"o": np.zeros(2, np.int64), "s": np.full(2, 2), "e": np.full(2, 99), "a": np.array([2, 3]),
                        "p": np.array([1, 0]), "q": np.array([0, 1]), "r": np.ones(2, np.int64)}),
        view("patch-merging", merged, shape=(BATCH, 6, 10, 5), result="tpu.Depth2Space",
             constants={"o": np.zeros(2, np.int64), "s": np.full(2, 2), "e": np.full(2, 99), "a": np.array([1, 2]),
                        "p": np.array([1, 0]), "r": np.array([0, 1]), "q": np.ones(2, np.int64)}),
        view("patch-merging-reshaped", patches, shape=(BATCH, 60, 5), result="tpu.Depth2Space",
             constants={"s1": np.array([0, 3, 2, 5, 2, 5]), "s2": np.array([0, 3, 5, 20])}),
        roll("roll-channels", 1, shape=image(WIDE), axes="n"),
        roll("roll-rows", 2, axes="n"),
        roll("roll-tokens", 1, shape=(BATCH, 70, 5)),
        view("pool-flatten-fc", [node("GlobalAveragePool", "x", "p"), node("Flatten", "p", "f"), node("MatMul", "f w")],
             constants={"w": values((5, 7))}, tolerance=SUMS,
             steps={"bm1684": 2.2}),  # on this chip the average keeps the wider scale of its input
    ]  # fmt: skip


def softmax_cases() -> list[OpCase]:
    never = {c: "no integer form" for c in CHIPS}
    no_bm1684 = {"bm1684": "no integer form"}

    def case(
        name: str, op: str, shape: Shape, fallback: Mapping[str, str], *, cut: str = "", **attributes: Any
    ) -> OpCase:
        build = network([node(op, "x", **attributes)])
        return OpCase(name, build, {"x": shape}, "tpu.Softmax", EXPONENTS, ranges={"x": (-4.0, 4.0)}, fallback=fallback,
                      axes=cut, global_on=frozenset({"bm1684"}))  # fmt: skip

    float_only = no_bm1684 | {"bm1684x": "along axis 1"}

    return [
        case("softmax-classes", "Softmax", (BATCH, 20), no_bm1684),
        case("softmax-channels", "Softmax", image(WIDE), no_bm1684, axis=1),
        case("softmax-last", "Softmax", image(SMALL), float_only, cut="nh"),
        case("softmax-last-wide", "Softmax", image(WIDE), float_only, cut="nch"),
        case("softmax-rows", "Softmax", image(SMALL), float_only, cut="n", axis=2),
        case("softmax-fills-lanes", "LogSoftmax", (2, 4, 32, 12), never, cut="nh", axis=3),
        case("log-softmax", "LogSoftmax", (BATCH, 20), never, axis=1),
    ]


CASES: tuple[OpCase, ...] = (
    *conv_cases(), *matmul_cases(), *add_cases(), *mul_cases(), *norm_cases(), *activation_cases(), *pool_cases(),
    *data_cases(), *softmax_cases(), *ACTIVATION_CASES, *ELEMENTWISE_CASES, *CONV_CASES, *LOGIC_CASES, *POSITION_CASES,
    *RECURRENT_CASES,
)  # fmt: skip
BY_ID = {case.id: case for case in CASES}
assert len(BY_ID) == len(CASES)

NOT_REACHED: dict[str, str] = {
    "tpu.RequantInt": "needs a zero point, and asymmetric quantisation is refused; tests/test_ops_basic.py makes it",
    "top.Attention": "is made of a calibrated module for one chip; tests/test_attention.py",
    "tpu.Attention": "made of the products of a block on one chip; tests/test_attention.py lowers to it",
    "tpu.FAttention": "made of attention in 16 bits on BM1688 and 1690; tests/test_flash_attention.py lowers to it",
    "top.Flatten": "imported as a Reshape; only modules of earlier releases and of TPU-MLIR contain it",
    "top.SwapDimInner": "is made of the Slices and the Concat of a calibrated module; rows roll-channels and others",
    "top.Rsqrt": "made of a Div by a Sqrt when it is lowered; row quotient-by-root, and tests/test_functions.py",
    "tpu.A16MatMul": "made in the modes of few bits, which rows do not run in; tests/test_few_bits.py lowers to it",
    "tpu.GenericCpu": "only modules that TPU-MLIR lowered contain it; tests/test_real_modules.py reads it",
    "tpu.LutBF16": "neither chip of these tests has BF16 tables; tests/test_lut_bf16.py lowers to it",
}
"""Op classes that no row can reach, and why."""
