"""Rows of op_cases.py: activation functions, layer, group and instance norms, reductions.

One row per function; the forms that differ (wide tensors, other ranks, packed batches) are rows of a few functions, as
all of them share one class of the chip.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from op_row import (
    BATCH,
    CHIPS,
    EXACT,
    EXPONENTS,
    ROUNDED,
    SMALL,
    SUMS,
    WIDE,
    Array,
    Nodes,
    OpCase,
    Shape,
    Tolerance,
    image,
    network,
    node,
    values,
)

TINY = (2, 3, 4)
"""(c, h, w) of the rows that are about a function, not about a shape."""
BROAD = {"x": (-4.0, 4.0)}
POSITIVE = {"x": (0.25, 4.0)}
PIXELS = ("bm1684x", "bm1688", "bm1690", "cv186x")
"""Chips that normalise the channels of bytes."""
NO_INTEGERS = {chip: "no integer form" for chip in CHIPS}
NO_TABLE = {"bm1684": "has no table of this function"}
LIBRARY = Tolerance(2e-6, 3e-7, "double rounded once against a library's f32 approximation")


def functions() -> list[OpCase]:
    def case(op: str, *, shape: Shape = image(TINY), form: str = "", **more: Any) -> OpCase:  # noqa: B008
        known = {"ranges": BROAD, "result": "tpu.Lut|tpu.Active", "tolerance": LIBRARY}
        known |= {k: more.pop(k) for k in ("ranges", "result", "tolerance", "fallback", "axes") if k in more}
        build = network([node(op, "x", **more)], opset=20)
        return OpCase(op.lower() + form, build, {"x": shape}, **known)  # type: ignore[arg-type]

    return [
        case("Sigmoid"),
        case("Sigmoid", form="-wide", shape=image(WIDE), axes="nchw"),
        case("Sigmoid", form="-2d", shape=(BATCH, 48), axes="n"),
        case("Sigmoid", form="-3d", shape=(BATCH, 5, 6), axes="nh"),
        case("Sigmoid", form="-batch-6", shape=image(SMALL, 6), ranges={"x": (0.0, 4.0)}),
        case("Sigmoid", form="-6d", shape=(BATCH, 2, 2, 2, 2, 2), axes=""),
        case("Tanh"),
        case("Gelu", tolerance=Tolerance(1e-4, 1e-6, "ONNX Runtime's erf is an approximation in f32")),
        case("Gelu", form="-tanh", approximate="tanh", tolerance=Tolerance(1e-4, 1e-6, "f32 tanh of a cancelling sum")),
        case("HardSigmoid", alpha=0.2, result="tpu.Lut|tpu.Active|tpu.MinConst|tpu.Clip"),
        case("HardSigmoid", form="-sixth", alpha=1 / 6, beta=0.5, result="tpu.Lut|tpu.Active|tpu.MinConst|tpu.Clip"),
        case("HardSwish", result="tpu.Lut|tpu.Active|tpu.Mul"),
        case("Elu", alpha=1.0),
        case("Elu", form="-alpha", alpha=0.3),
        case("Mish", tolerance=EXPONENTS),
        case("Softplus", tolerance=EXPONENTS),
        case("Softsign"),
        case("Exp", ranges={"x": (-2.0, 1.5)}),
        case("Log", ranges=POSITIVE),
        case("Sqrt", ranges=POSITIVE),
        case("Erf", fallback=NO_TABLE),
        case("Reciprocal", ranges=POSITIVE, result="tpu.Lut|tpu.Reciprocal"),
        case("Floor", tolerance=EXACT),
        case("Ceil", tolerance=EXACT, fallback=NO_TABLE),
        case("Round", tolerance=EXACT, fallback=NO_TABLE),
        case("Sign", tolerance=EXACT),
        case("Sin"),
        case("Cos", ranges={"x": (-2.0, 2.0)}),
        case("Abs", tolerance=EXACT, result="tpu.Active|tpu.Lut"),
        case("Abs", form="-wide", shape=image(WIDE), tolerance=EXACT, result="tpu.Active|tpu.Lut", axes="nchw"),
    ]


def slopes() -> list[OpCase]:
    def case(name: str, nodes: Nodes, inputs: Mapping[str, Shape], result: str, **more: Any) -> OpCase:
        constants = more.pop("constants", {})
        return OpCase(name, network(nodes, constants), inputs, result, ROUNDED, **more)

    def prelu(name: str, chw: Shape, slope: Array, **more: Any) -> OpCase:
        return case(name, [node("PRelu", "x w")], {"x": image(chw)}, "tpu.PReluOp", constants={"w": slope}, **more)

    x = {"x": image(SMALL)}
    return [
        case("leaky", [node("LeakyRelu", "x", alpha=0.01)], x, "tpu.LeakyRelu", ranges=BROAD),
        case("leaky-wide", [node("LeakyRelu", "x", alpha=0.2)], {"x": image(WIDE)}, "tpu.LeakyRelu"),
        case("leaky-steep", [node("LeakyRelu", "x", alpha=-3.0)], {"x": image(SMALL, 6)}, "tpu.LeakyRelu"),
        case("leaky-2d", [node("LeakyRelu", "x", alpha=0.1)], {"x": (BATCH, 48)}, "tpu.LeakyRelu", axes="n"),
        prelu("prelu", SMALL, values((5, 1, 1))),
        prelu("prelu-wide", WIDE, values((1, 70, 1, 1))),
        case("prelu-one-slope", [node("PRelu", "x w")], x, "tpu.LeakyRelu",
             constants={"w": np.array([0.25], np.float32)}),
        case("prelu-2d", [node("PRelu", "x w")], {"x": (BATCH, 48)}, "tpu.PReluOp", axes="n",
             constants={"w": values((48,))}),
    ]  # fmt: skip


def fused() -> list[OpCase]:
    """Networks whose parts become one op."""
    root, numbers = (
        np.array(np.sqrt(2.0), np.float32),
        {"half": np.array(0.5, np.float32), "one": np.ones((), np.float32)},
    )
    erf = [node("Mul", "x inverse", "s"), node("Erf", "s", "e"), node("Add", "e one", "g")]
    constants = numbers | {"inverse": (1 / root).astype(np.float32)}

    def case(name: str, nodes: Nodes, **more: Any) -> OpCase:
        return OpCase(name, network(nodes, constants), {"x": image(TINY)}, "tpu.Lut|tpu.Active", ranges=BROAD, **more)

    tolerance = Tolerance(1e-4, 1e-6, "ONNX Runtime's erf is an approximation in f32")
    return [
        case("silu", [node("Sigmoid", "x", "s"), node("Mul", "x s")], tolerance=LIBRARY),
        case(
            "gelu-parts",
            [*erf, node("Mul", "x half", "p"), node("Mul", "p g", "q"), node("Relu", "q")],
            tolerance=tolerance,
            steps=dict.fromkeys(("bm1684x", "bm1684"), 4.1),  # q has the Relu's range, as in TPU-MLIR, and loses -0.17
        ),
    ]


def channels_normalised(affine: int) -> Nodes:
    """A LayerNorm over axis 1 as PyTorch's users write it."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[1]), node("Sub", "x m", "d"), node("Pow", "d 2", "s"),
        node("ReduceMean", "s", "v", axes=[1]), node("Add", "v e", "p"), node("Sqrt", "p", "r"),
    ]  # fmt: skip
    last = [node("Div", "d r", "n"), node("Mul", "w n", "t"), node("Add", "t b", "z")]
    return [*nodes, *(last if affine else [node("Div", "d r", "z")]), node("Relu", "z")]


def norms() -> list[OpCase]:
    def case(
        name: str, nodes: Nodes, x: Shape, result: str, constants: Mapping[str, Array], opset: int = 21, **more: Any
    ) -> OpCase:
        return OpCase(
            name, network(nodes, constants, opset), {"x": x}, result, Tolerance(1e-5, 1e-5, "sums in another order"),
            ranges={"x": (-2.0, 3.0)}, **{"axes": "", "fallback": NO_INTEGERS, **more},
        )  # fmt: skip

    group = "tpu.GroupNorm"
    layer, instance = f"tpu.LayerNorm|{group}", f"tpu.InstanceNorm|{group}"  # BM1684 has neither
    rms = "tpu.RMSNorm|tpu.Mul"  # the 1684X family alone has the op
    pair = {"w": values((6,)), "b": values((6,), 2)}
    by_channel = {name: array.reshape(6, 1, 1) for name, array in pair.items()}
    numbers = {"e": np.array(1e-3, np.float32), "2": np.array(2, np.float32)}
    pixel = "tpu.PixelNorm|tpu.LayerNorm|tpu.GroupNorm"  # the 1684X families alone have the op
    return [
        case("layernorm", [node("LayerNormalization", "x w b", epsilon=1e-3)], (BATCH, 5, 6), layer, pair, axes="n"),
        case("layernorm-no-bias", [node("LayerNormalization", "x w", axis=2)], (BATCH, 5, 4, 6), layer,
             {"w": values((4, 6))}, axes="n"),
        case("layernorm-wide", [node("LayerNormalization", "x w b")], (BATCH, 70, 6), layer, pair, axes="nc"),
        case("layernorm-channels", [node("LayerNormalization", "x w", axis=1)], (BATCH, 5, 4, 6), layer,
             {"w": values((5, 4, 6))}, axes="n"),
        case("layernorm-fills-lanes", [node("LayerNormalization", "x w b")], (2, 4, 32, 6),
             "tpu.LayerNorm|tpu.Mul", pair, axes="nh"),
        case("layernorm-5d", [node("LayerNormalization", "x w b")], (2, 3, 4, 5, 6), layer, pair, axes="ndh"),
        case("rmsnorm", [node("Mul", "x x", "s"), node("ReduceMean", "s a", "m"), node("Add", "m e", "p"),
                         node("Sqrt", "p", "r"), node("Reciprocal", "r", "q"), node("Mul", "x q", "t"),
                         node("Mul", "w t")], (BATCH, 5, 6), rms,
             {"w": pair["w"], "a": np.array([-1]), "e": np.array([1e-3], np.float32)}, axes="n",
             axes_on={"bm1684": "nh"}),
        case("rmsnorm-op", [node("RMSNormalization", "x w")], (BATCH, 70, 6), rms, {"w": pair["w"]}, 23, axes="nc",
             axes_on={"bm1684": ""}),
        *(case(f"pixelnorm{name}", channels_normalised(ops), (BATCH, 6, 3, 4), pixel, by_channel | numbers, opset=17,
               axes="nhw", axes_on={"bm1684": "n"},
               fallback=NO_INTEGERS | dict.fromkeys(PIXELS, "normalised in F16 steps"))
          for name, ops in (("", 2), ("-plain", 0))),
        case("groupnorm", [node("GroupNormalization", "x w b", num_groups=3)], image((6, 3, 4)), group, pair,
             axes="n"),
        case("instancenorm", [node("InstanceNormalization", "x w b")], image((6, 3, 4)), instance, pair, 17,
             axes="n"),
        case("instancenorm-5d", [node("InstanceNormalization", "x w b")], (2, 70, 4, 3, 4), instance,
             {"w": values((70,)), "b": values((70,), 2)}, 17, axes="n"),
    ]  # fmt: skip


def reductions() -> list[OpCase]:
    axes = {"a": np.array([-1, 2])}

    def case(
        name: str, op: str, inputs: str = "x", opset: int = 17, *, chw: Shape = TINY, cut: str = "",
        global_on: frozenset[str] = frozenset({"bm1684"}), **attributes: Any,
    ) -> OpCase:  # fmt: skip
        build = network([node(op, inputs, **attributes)], axes if "a" in inputs.split() else {}, opset)
        return OpCase(name, build, {"x": (BATCH, *chw)}, "tpu.Reduce", SUMS, axes=cut, fallback=NO_INTEGERS,
                      ranges={"x": (-1.0, 3.0)}, global_on=global_on)  # fmt: skip

    def pooled(name: str, op: str, chw: Shape, tolerance: Tolerance = SUMS, **attributes: Any) -> OpCase:
        """Mean and maximum of an image are pools with one window."""
        build = network([node(op, "x", **attributes)])
        return OpCase(name, build, {"x": (BATCH, *chw)}, "tpu.Pool2D", tolerance, axes="n", ranges={"x": (0.0, 3.0)})

    return [
        case("reduce-mean", "ReduceMean", axes=[1, 2, 3]),
        case("reduce-min-18", "ReduceMin", "x a", 18, keepdims=0),
        case("reduce-sum", "ReduceSum", "x a"),
        case("reduce-max", "ReduceMax", axes=[1]),
        case("reduce-min", "ReduceMin", axes=[3], keepdims=0),
        case("reduce-l1", "ReduceL1", "x a", 18),
        case("reduce-l2", "ReduceL2", axes=[-1]),
        case("reduce-prod", "ReduceProd", axes=[2]),
        case("reduce-rows", "ReduceMean", chw=WIDE, cut="ncw", axes=[2]),
        case("reduce-rows-away", "ReduceMax", chw=WIDE, cut="nc", axes=[2], keepdims=0),
        case("reduce-columns", "ReduceMax", chw=WIDE, cut="nch", axes=[3]),
        case("reduce-columns-away", "ReduceMean", chw=WIDE, cut="nch", axes=[3], keepdims=0),
        case("reduce-vectors", "ReduceMean", chw=(70, 6), cut="nc", axes=[2]),
        pooled("reduce-mean-image", "ReduceMean", WIDE, axes=[2, 3], keepdims=0),
        pooled("reduce-max-image", "ReduceMax", TINY, EXACT, axes=[-1, -2]),
        pooled("reduce-max-image-away", "ReduceMax", WIDE, EXACT, axes=[2, 3], keepdims=0),
    ]


CASES: tuple[OpCase, ...] = (*functions(), *slopes(), *fused(), *norms(), *reductions())
