"""Rows of op_cases.py: transposed convolutions, 3-D convolutions and 3-D pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from op_row import (
    BATCH,
    CHIPS,
    EXACT,
    MEDIUM,
    NORM,
    ODD,
    SMALL,
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

# --------------------------------------------------------------------------------------------------------------- Deconv


def deconv(
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
    result: str = "tpu.Deconv",
    **attributes: Any,
) -> OpCase:
    """A transposed convolution, and what follows it (from tensor "a")."""
    rank = len(chw) - 1
    weights = {"w": weight(values((chw[0], oc // group, *(kernel,) * rank))), **(constants or {})}
    if bias:
        weights["b"] = values((oc,))
    end = "a" if then else "y"
    first = node("ConvTranspose", "x w b" if bias else "x w", end, group=group, **attributes)
    return OpCase(name, network([first, *(then or [])], weights), {"x": image(chw, batch)}, result, axes=axes)


def computed(name: str, group: int, oc: int, chw: Shape, **more: Any) -> OpCase:
    """A transposed convolution with a computed filter."""
    filter = (chw[0], oc // group, 3, 3)
    build = network([node("ConvTranspose", "x w", group=group, strides=[2, 2])])
    return OpCase(name, build, {"x": image(chw), "w": filter}, "tpu.Deconv", axes="", fixed=frozenset({"w"}),
                  fallback={c: "filter is not constant" for c in CHIPS}, **more)  # fmt: skip


BATCH_NORM = {k: values((12,), i) for i, k in enumerate(("gamma", "beta", "mean"))} | {
    "variance": values((12,), 3, 0.1, 2.0)
}


def deconv_cases() -> list[OpCase]:
    two, same = {"strides": [2, 2]}, {"pads": [1, 1, 1, 1]}
    relu = [node("Relu", "a")]
    norm = [node("BatchNormalization", "a gamma beta mean variance", "n"), node("Relu", "n")]
    return [
        deconv("deconv-4x4-s2", SMALL, 12, 4, **two, **same),
        deconv("deconv-requant", SMALL, 12, 4, **two, **same, result="tpu.RequantIntAxis|tpu.Deconv"),
        deconv("deconv-3x3-s1", SMALL, 12, 3, **same),
        deconv("deconv-2x2-s2-no-bias", SMALL, 12, 2, **two, bias=False),
        deconv("deconv-output-padding", SMALL, 12, 3, **two, **same, output_padding=[1, 1]),
        deconv("deconv-uneven", ODD, 7, 5, strides=[3, 2], pads=[2, 1, 2, 3], output_padding=[2, 0]),
        deconv("deconv-open-end", SMALL, 7, 3, strides=[3, 3], output_padding=[2, 1]),
        deconv("deconv-output-shape", SMALL, 7, 4, strides=[2, 3], output_shape=[13, 14], auto_pad="SAME_UPPER"),
        deconv("deconv-same-lower", SMALL, 7, 3, **two, auto_pad="SAME_LOWER"),
        deconv("deconv-dilated", SMALL, 6, 3, **two, dilations=[2, 1], pads=[2, 0, 1, 1]),
        deconv("deconv-pads-beyond-kernel", ODD, 6, 2, pads=[1, 2, 0, 3]),
        deconv("deconv-grouped", MEDIUM, 8, 3, group=2, **two, **same),
        deconv("deconv-grouped-wide", MEDIUM, 99, 3, group=3, **same),
        deconv("deconv-depthwise", WIDE, 70, 4, group=70, **two, **same),
        deconv("deconv-depthwise-no-bias", MEDIUM, 12, 3, group=12, bias=False, **two),
        deconv("deconv-100-channels", SMALL, 100, 3, **two, **same),
        deconv("deconv-positive-filter", SMALL, 12, 4, bias=False, weight=np.abs, **two, **same),
        deconv("deconv-batch-6", SMALL, 12, 4, batch=6, **two, **same),
        deconv("deconv-one-image", SMALL, 12, 4, batch=1, axes="hw", **two, **same),
        deconv("deconv-relu", SMALL, 12, 4, then=relu, **two, **same),
        deconv("deconv-bn-relu", SMALL, 12, 4, bias=False, then=norm, constants=BATCH_NORM, **two, **same),
        deconv("deconv-gaps", SMALL, 6, 2, strides=[3, 3], axes=""),
        deconv("deconv-1d", (5, 9), 6, 4, strides=[2], pads=[1, 1], axes="nh"),
        deconv("deconv-1d-relu", (5, 9), 6, 4, then=relu, strides=[2], pads=[1, 1], axes="nh"),
        *deconv3d_cases(),
        computed("deconv-computed-filter", 1, 6, SMALL),
        computed("deconv-computed-grouped", 2, 8, MEDIUM),
    ]


def deconv3d_cases() -> list[OpCase]:
    def case(name: str, cdhw: Shape, oc: int, kernel: int, **more: Any) -> OpCase:
        found = deconv(name, cdhw, oc, kernel, batch=2, axes="", result="tpu.Deconv3D", **more)
        return replace(found, fallback={"bm1684": "no integer form over volumes"})

    same, two = {"pads": [1] * 6}, {"strides": [2, 2, 2]}
    return [
        case("deconv3d", VOLUME, 7, 3, **two, **same, output_padding=[1, 0, 1]),
        case("deconv3d-uneven", VOLUME, 7, 2, strides=[1, 3, 2], pads=[1, 0, 2, 0, 1, 1], bias=False),
        case("deconv3d-dilated", VOLUME, 6, 3, **two, dilations=[1, 2, 1], pads=[0, 2, 1, 1, 2, 0]),
        case("deconv3d-grouped", THIN, 8, 3, group=2, **two, **same),
        case("deconv3d-depthwise", THIN, 12, 3, group=12, bias=False, **two),
        case("deconv3d-relu", VOLUME, 7, 3, then=[node("Relu", "a")], **same),
    ]


# --------------------------------------------------------------------------------------------------------------- Conv3D

VOLUME, THIN = (5, 4, 6, 5), (12, 4, 5, 4)
"""(c, d, h, w) of volumes."""
NO_VOLUMES = {"bm1684": "no integer form over volumes"}


def conv3d(
    name: str,
    cdhw: Shape,
    oc: int,
    kernel: tuple[int, int, int],
    *,
    group: int = 1,
    bias: bool = True,
    weight: Callable[[Array], Array] = lambda w: w,
    then: Nodes | None = None,
    result: str = "tpu.Conv3D",
    axes: str = "ndhw",
    fallback: Mapping[str, str] = NO_VOLUMES,
    constants: Mapping[str, Array] | None = None,
    batch: int = 2,
    **attributes: Any,
) -> OpCase:
    """A 3-D convolution, and what follows it (from tensor "a")."""
    weights = {"w": weight(values((oc, cdhw[0] // group, *kernel))), **(constants or {})}
    if bias:
        weights["b"] = values((oc,))
    end = "a" if then else "y"
    first = node("Conv", "x w b" if bias else "x w", end, group=group, **attributes)
    build = network([first, *(then or [])], weights)
    return OpCase(name, build, {"x": image(cdhw, batch)}, result, axes=axes, fallback=fallback)


def conv3d_cases() -> list[OpCase]:
    same = {"pads": [1] * 6}
    three = (3, 3, 3)
    computed = network([node("Conv", "x w", **same)])
    return [
        conv3d("conv3d", VOLUME, 7, three, **same),
        conv3d("conv3d-1x1x1", THIN, 7, (1, 1, 1)),
        conv3d("conv3d-s2-uneven", VOLUME, 7, (3, 2, 4), strides=[2, 1, 2], pads=[1, 0, 2, 0, 1, 1]),
        conv3d("conv3d-dilated", VOLUME, 7, three, dilations=[1, 2, 1], pads=[0, 2, 1, 1, 2, 0]),
        conv3d("conv3d-grouped", THIN, 8, three, group=2, **same),
        conv3d("conv3d-depthwise", THIN, 12, three, group=12, bias=False, **same),
        conv3d("conv3d-100-channels", VOLUME, 100, (2, 3, 3), **same),
        conv3d("conv3d-positive-filter", VOLUME, 7, three, bias=False, weight=np.abs, **same),
        conv3d("conv3d-no-bias", VOLUME, 7, three, bias=False, auto_pad="SAME_UPPER"),
        conv3d("conv3d-padding-alone", VOLUME, 7, (1, 1, 1), strides=[2, 2, 3], pads=[1] * 6),
        conv3d("conv3d-bn", VOLUME, 7, three, then=[node("BatchNormalization", f"a {NORM}")], constants=batch_norm(7)),
        conv3d("conv3d-bn-grouped", THIN, 24, three, group=2, bias=False, constants=batch_norm(24),
               then=[node("BatchNormalization", f"a {NORM}")], **same),
        conv3d("conv3d-relu", VOLUME, 7, three, then=[node("Relu", "a")], **same),
        conv3d("conv3d-depth-2d", VOLUME, 7, (4, 3, 3), pads=[0, 1, 1, 0, 1, 1], result="tpu.Conv2D", axes="nhw",
               fallback={}),
        conv3d("conv3d-depth-2d-relu", VOLUME, 7, (4, 3, 3), pads=[0, 1, 1, 0, 1, 1], result="tpu.Conv2D", axes="nhw",
               fallback={}, then=[node("Relu", "a")]),
        OpCase("conv3d-computed-filter", computed, {"x": image(VOLUME, 2), "w": (7, 5, 3, 3, 3)}, "tpu.Conv3D",
               axes="", fixed=frozenset({"w"}), fallback={c: "filter is not constant" for c in CHIPS}),
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- Pool3D


def pool3d_cases() -> list[OpCase]:
    def case(name: str, op: str, cdhw: Shape = VOLUME, tolerance: Tolerance = EXACT, **more: Any) -> OpCase:
        known = {k: more.pop(k) for k in ("ranges", "fallback", "axes", "result", "steps") if k in more}
        build = network([node(op, "x", **more)], opset=19)
        found = {"result": "tpu.Pool3D", "axes": "ndhw", **known}
        if found["result"] == "tpu.Pool3D" and "fallback" not in known:
            found["global_for"] = frozenset({("bm1684", "int8")})
        return OpCase(name, build, {"x": image(cdhw, 2)}, tolerance=tolerance, **found)

    two = {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}
    three = {"kernel_shape": [3, 3, 3], "strides": [2, 2, 1], "pads": [1] * 6}
    uneven = {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "pads": [1, 0, 0, 0, 1, 1]}
    positive = {"x": (0.0, 1.0)}
    return [
        case("maxpool3d", "MaxPool", **two),
        case("maxpool3d-s2-uneven", "MaxPool", **uneven),
        case("maxpool3d-global", "GlobalMaxPool", axes="n"),
        case("maxpool3d-large", "MaxPool", (3, 5, 7, 8), kernel_shape=[5, 7, 7],
             axes="nw", fallback={"bm1684": "kernel of 245"}),
        case("avgpool3d", "AveragePool", tolerance=SUMS, **two),
        case("avgpool3d-inside", "AveragePool", tolerance=SUMS, **three, count_include_pad=0),
        case("avgpool3d-padded", "AveragePool", tolerance=SUMS, **three, count_include_pad=1),
        case("avgpool3d-ceil", "AveragePool", tolerance=SUMS, kernel_shape=[3, 3, 2], strides=[2, 2, 2], ceil_mode=1),
        case("avgpool3d-global", "GlobalAveragePool", tolerance=SUMS, ranges=positive, axes="n"),
        case("avgpool3d-large", "AveragePool", (3, 5, 7, 8), SUMS, kernel_shape=[5, 7, 7],
             axes="nw", fallback={"bm1684": "kernel of 245"}),
        case("maxpool1d", "MaxPool", (5, 9), result="tpu.Pool2D", axes="nh", kernel_shape=[3], strides=[2],
             pads=[1, 0]),
        case("avgpool1d", "AveragePool", (5, 9), SUMS, result="tpu.Pool2D", axes="nh", kernel_shape=[2], strides=[2],
             pads=[1, 0], count_include_pad=1),
    ]  # fmt: skip


CASES: tuple[OpCase, ...] = (*deconv_cases(), *conv3d_cases(), *pool3d_cases())
