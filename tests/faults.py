"""Faults planted into digits, squeezenet, a residual net, a ViT block and the head of a detector.

Squeezenet takes 64 x 64 images and ends before its Softmax, which hides what is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import onnx
from compiling import to_canonical
from end_to_end import DIGITS
from onnx import numpy_helper
from planted import IMAGE, TOKENS, detector, residual, vit

from tpusim import frontend, zoo
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.frontend import Cut
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model

METHOD = CalibrationConfig("max", tune_samples=0)
Array = np.ndarray
Samples = list[dict[str, Array]]
PHOTO = (1, 3, 64, 64)
INPUTS = {
    "residual": ("x", IMAGE),
    "vit": ("x", TOKENS),
    "detector": ("x", IMAGE),
    "squeezenet": ("data_0", PHOTO),
    "digits": ("image", (1, 1, 28, 28)),
}
"""Network -> its input and the shape."""


@dataclass(frozen=True)
class Planted:
    """kind, tensor: what `why` is to say first. broken: the first op that is too far off by itself; "": no op is."""

    kind: str
    tensor: str
    broken: str = ""


CHANNEL, OPERAND, MASK = "unlike channels", "unlike operands", "mask constant"
CLIPPED, WASTED, DATA = "clipped range", "wasted range", "other data in calibration"
PLANTED = {
    ("digits", "channel"): Planted(CHANNEL, "depthwise", "depthwise"),
    ("digits", "operand"): Planted(OPERAND, "both", "both"),
    ("digits", "narrow"): Planted(CLIPPED, "pointwise", "pointwise"),
    ("digits", "wide"): Planted(WASTED, "pointwise", "pointwise"),
    ("digits", "outlier"): Planted(DATA, "image"),
    ("digits", "bytes"): Planted(DATA, "image"),
    ("squeezenet", "channel"): Planted(CHANNEL, "r4", "r4"),
    ("squeezenet", "operand"): Planted(OPERAND, "r9", "r8"),
    ("squeezenet", "narrow"): Planted(CLIPPED, "r11", "r11"),
    ("squeezenet", "wide"): Planted(WASTED, "r11", "r11"),
    ("squeezenet", "outlier"): Planted(DATA, "data_0"),
    ("squeezenet", "bytes"): Planted(DATA, "data_0"),
    ("residual", "channel"): Planted(CHANNEL, "wide", "wide"),
    ("residual", "narrow"): Planted(CLIPPED, "narrow", "narrow"),
    ("residual", "wide"): Planted(WASTED, "narrow", "narrow"),
    ("residual", "outlier"): Planted(DATA, "x"),
    ("residual", "bytes"): Planted(DATA, "x"),
    ("vit", "channel"): Planted(CHANNEL, "hidden", "hidden"),
    ("vit", "narrow"): Planted(CLIPPED, "hidden", "hidden"),
    ("vit", "wide"): Planted(WASTED, "hidden", "hidden"),
    ("vit", "outlier"): Planted(DATA, "x"),
    ("vit", "bytes"): Planted(DATA, "x"),
    ("vit", "mask"): Planted(MASK, "masked", "masked"),
    ("detector", "operand"): Planted(OPERAND, "y", "scores"),
}
"""(network, fault). Operands of a Concat take its scale where nobody else reads them: they are the first to break."""
THRESHOLDS = {"narrow": 0.03, "wide": 100.0}
"""Fault -> factor of the threshold at its tensor."""
FACTORS = {"bytes": (0, 1, 2, 3), "outlier": (2,)}
"""Fault -> the calibration samples that are many times too large."""
OUTLIERS = {"vit": 255.0}
"""40 if nothing is said; a ViT's LayerNorm hides less."""


def scaled(model: onnx.ModelProto, factors: dict[str, Callable[[Array], Array]]) -> onnx.ModelProto:
    """A copy whose constants of these names are changed."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for one in made.graph.initializer:
        if one.name in factors:
            one.CopyFrom(numpy_helper.from_array(factors[one.name](numpy_helper.to_array(one)), one.name))
    return made


def times(factor: float, at: int | slice, axis: int = 0) -> Callable[[Array], Array]:
    """Of some rows, or of some places along another axis."""

    def made(array: Array) -> Array:
        array = array.copy()
        array[(slice(None),) * axis + (at,)] *= np.float32(factor)
        return array

    return made


@cache
def sound(name: str) -> onnx.ModelProto:
    if name == "digits":
        return onnx.load(DIGITS / "digits.onnx")
    made = {"squeezenet": lambda: zoo.build("squeezenet"), "residual": residual, "vit": vit, "detector": detector}
    return made[name]()


def constants(name: str, node: str) -> list[str]:
    """The names of the constants that the node of an output reads."""
    known = {one.name for one in sound(name).graph.initializer}
    (found,) = (one for one in sound(name).graph.node if node in one.output)
    return [x for x in found.input if x in known]


def loud_channel(name: str) -> onnx.ModelProto:
    """One channel is 50 times as large; its readers divide it."""
    if name == "residual":
        return residual(50)
    loud, quiet = times(50, 5), times(1 / 50, 5, axis=1)
    if name == "digits":
        factors = {"depthwise.scale": loud, "depthwise.bias": loud, "pointwise.w": quiet}
    elif name == "squeezenet":
        first = constants(name, "r3")
        factors = dict.fromkeys(first, loud) | {constants(name, node)[0]: quiet for node in ("r5", "r7")}
    else:
        (up,), (down,) = constants(name, "up"), constants(name, "down")
        factors = {up: times(50, 5, axis=1), down: times(1 / 50, 5)}
    return scaled(sound(name), factors)


def loud_operand(name: str) -> onnx.ModelProto:
    """One operand of a Concat is 640 times as large; the reader divides it. A detector has such boxes by itself."""
    if name == "detector":
        return sound(name)
    if name == "digits":
        loud = times(640, slice(None))
        reader = {"mix.w": times(1 / 640, slice(32, None), axis=1)}
        return scaled(sound(name), {"pointwise.scale": loud, "pointwise.bias": loud} | reader)
    reader = {constants(name, "r10")[0]: times(1 / 640, slice(64), axis=1)}
    return scaled(sound(name), dict.fromkeys(constants(name, "r5"), times(640, slice(None))) | reader)


@cache
def network(name: str, fault: str = "") -> onnx.ModelProto:
    """The network as a file, with what is planted into the file."""
    made = {"channel": loud_channel, "operand": loud_operand, "mask": lambda _: vit(-1e9)}.get(fault, sound)
    return made(name)


@cache
def samples(name: str, count: int = 4) -> Samples:
    if name == "digits":
        return [{"image": image[None]} for image in np.load(DIGITS / "calibration.npz")["image"][:count]]
    rng, (key, shape) = np.random.default_rng(0), INPUTS[name]
    return [{key: rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


@cache
def float_module(name: str, fault: str = "", *, onnx_names: bool = True) -> Model:
    """Its canonical module; without onnx_names ops are called as TPU-MLIR calls them."""
    cut = {"input_shapes": {"data_0": PHOTO}, "cut": Cut((), ("r65",))} if name == "squeezenet" else {}
    return to_canonical(frontend.import_onnx(network(name, fault), onnx_names=onnx_names, **cut))  # type: ignore[arg-type]


def table(name: str, fault: str, *, onnx_names: bool = True) -> CalibrationTable:
    """Thresholds with what is planted into them, or into the samples that they are of."""
    top, given = float_module(name, fault, onnx_names=onnx_names), [dict(sample) for sample in samples(name)]
    for number in FACTORS.get(fault, ()):
        factor = 255.0 if fault == "bytes" else OUTLIERS.get(name, 40.0)
        given[number] = {key: value * np.float32(factor) for key, value in given[number].items()}
    entries = dict(calibrate(top, given, METHOD)[0].entries)
    if fault in THRESHOLDS:
        (where,) = (op_name(op) for op in top.ops if framework_name(op) == PLANTED[name, fault].tensor)
        entries[where] = replace(entries[where], threshold=entries[where].threshold * THRESHOLDS[fault])
    return CalibrationTable(entries)
