"""What a chip without Upsample and Interp has in their place (CV18xx, as TPU-MLIR 1.30.2 lowers it)."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from compiling import to_canonical
from op_row import network, node
from plain_names import import_onnx

import tpusim
from tpusim import chips
from tpusim.inference import run
from tpusim.ir.attrs import ints
from tpusim.ir.module import Model
from tpusim.lowering.chip_forms import rewrite_for_chip
from tpusim.targets.cv18xx.resize import hat

CV, X = chips.load("cv183x"), (1, 3, 5, 5)
CORNERS = "align_corners"
FORMS = {
    "nearest": (X, (10, 15), "nearest", "asymmetric", ["top.Deconv"]),
    "sixteenfold": (X, (80, 10), "nearest", "asymmetric", ["top.Upsample"]),
    "double": (X, (10, 10), "linear", "half_pixel", ["top.Pad", "top.Conv"]),
    "uneven": (X, (15, 20), "linear", "pytorch_half_pixel", ["top.Pad", "top.Conv"]),
    "one-axis": (X, (5, 10), "linear", "half_pixel", ["top.Interp"]),
    "broken": (X, (8, 8), "linear", "half_pixel", ["top.Interp"]),
    "half": ((1, 3, 6, 4), (3, 2), "linear", "half_pixel", ["top.Conv"]),
    "every-second": (X, (3, 3), "linear", CORNERS, ["top.Conv"]),
    "corners": (X, (9, 9), "linear", CORNERS, ["top.Interp"]),
    "spread": ((1, 3, 1, 1), (26, 7), "linear", CORNERS, ["top.Interp"]),
    "spread-primes": ((1, 3, 1, 1), (34, 7), "linear", CORNERS, ["top.Upsample"]),
}
"""(input, extents, mode, coordinates, the ops they become)."""


@cache
def resized(name: str) -> Model:
    shape, size, mode, where, _ = FORMS[name]
    more = {"nearest_mode": "floor"} if mode == "nearest" else {}
    resize = node("Resize", "x - - s", mode=mode, coordinate_transformation_mode=where, **more)
    return to_canonical(import_onnx(network([resize], {"s": np.array([*shape[:2], *size])})({"x": shape})))


def rewritten(name: str) -> Model:
    model = resized(name).clone()
    rewrite_for_chip(model, CV)
    return model


@pytest.mark.parametrize("name", FORMS)
def test_forms_and_what_they_compute(name: str) -> None:
    shape, *_, kinds = FORMS[name]
    model, image = rewritten(name), np.random.default_rng(3).normal(size=shape).astype(np.float32)
    assert [op.name for op in model.ops if op.name in {*kinds, "top.Interp", "top.Upsample"}] == kinds
    if kinds[-1] in ("top.Interp", "top.Upsample"):
        return  # as it was, or of one element, which is every element
    before, after = (run(m, {"x": image})["y"] for m in (resized(name), model))
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-6)


def test_weights_and_window_of_an_enlargement() -> None:
    """By hand: three outputs between two inputs are 1/3 and 2/3 away from the nearest, or upon it."""
    np.testing.assert_array_equal(hat(2), np.float32([0.25, 0.75, 0.75, 0.25]))
    np.testing.assert_allclose(hat(3), [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3, 0], atol=1e-7)
    conv = next(op for op in rewritten("uneven").ops if op.name == "top.Conv")
    found = {key: ints(conv.attributes[key]) for key in ("kernel_shape", "inserts", "pads")}  # type: ignore[arg-type]
    assert found == {"kernel_shape": (6, 8), "inserts": (2, 3), "pads": (0, 1, 1, 1)}


def test_two_enlargements_share_the_repeated_border() -> None:
    sizes = {"s": np.array([1, 3, 10, 10]), "t": np.array([1, 3, 15, 15])}
    nodes = [node("Resize", "x - - s", "a", mode="linear"), node("Resize", "x - - t", "b", mode="linear")]
    nodes.append(node("Concat", "f g", axis=1))
    nodes[2:2] = [node("GlobalAveragePool", "a", "f"), node("GlobalMaxPool", "b", "g")]
    model = to_canonical(import_onnx(network(nodes, sizes)({"x": X})))
    rewrite_for_chip(model, CV)
    assert [op.name for op in model.ops].count("top.Pad") == 1


@pytest.mark.parametrize("mode", ["int8", "bf16"])
def test_machine_equals_flat(mode: str) -> None:
    """An image with inserted zeros, and the host between two convolutions: truncated to BF16, then quantised."""
    rng = np.random.default_rng(5)
    weights = {"s": np.array([1, 4, 10, 10]), "t": np.array([1, 4, 16, 16])}
    weights |= {n: rng.normal(size=(4, 4, 1, 1)).astype(np.float32) for n in ("v", "w")}
    nodes = [node("Conv", "x v", "a"), node("Resize", "a - - s", "b", mode="linear")]
    nodes += [node("Resize", "b - - t", "c", mode="linear"), node("Conv", "c w")]
    samples = [{"x": rng.normal(size=(1, 4, 5, 5)).astype(np.float32)} for _ in range(2)]
    top = import_onnx(network(nodes, weights)({"x": (1, 4, 5, 5)}))
    net = tpusim.compile(top, samples if mode == "int8" else None, chip="cv183x", mode=mode)
    casts = [op.attributes.get("tpusim.truncated") for op in net.tpu.ops if op.name == "tpu.Cast"]
    assert any(casts) == (mode == "int8")
    found = net.verify(samples[1]).comparisons["local_vs_tpu"]
    assert found.passed and found.bit_exact
