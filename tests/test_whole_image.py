"""Convolutions whose window is the whole image are products on BM1688 and CV186X, as in the real compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from builders.timings import in_every_order
from compiling import optimized, to_canonical, to_lowered, to_program, to_reordered
from upstream.networks import Builder

from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model


def network(**last: Any) -> onnx.ModelProto:
    """A convolution of a 2 x 3 image of two items, with a relu, and two of single pixels."""
    b = Builder("whole")
    filters, bias = b.weight(8, 6, 2, 3), b.weight(8, std=0.3)
    x = b.node("Conv", b.input("image", 2, 6, 2, 3), filters, bias, out="whole", kernel_shape=[2, 3])
    pixel = b.node("Relu", b.conv(b.node("Relu", x, out="relued"), 8, 4), out="pixel")
    b.output(b.conv(pixel, 4, 10, out="last", **last))
    return b.model()


def lowered(chip: str, mode: Any, proto: onnx.ModelProto) -> Model:
    return to_lowered(to_canonical(import_onnx(proto, name="whole")), chip, mode)


def kinds(model: Model) -> list[str]:
    return [op.name for op in model.ops if op.name in ("tpu.Conv2D", "tpu.MatMul", "tpu.Reshape")]


@pytest.mark.parametrize(("chip", "mode"), [("bm1688", "f32"), ("bm1688", "bf16"), ("cv186x", "f32")])
def test_they_become_products_of_the_same_values(chip: str, mode: str) -> None:
    """One view before the first and one after each; between two products no view is left to pass."""
    before = lowered(chip, mode, network())
    after = optimized(before)
    assert kinds(before) == ["tpu.Conv2D"] * 3
    assert kinds(after).count("tpu.MatMul") == 3 and "tpu.Conv2D" not in kinds(after)
    feeds = {"image": np.random.default_rng(1).normal(size=(2, 6, 2, 3)).astype(np.float32)}
    one, other = (run(model, feeds) for model in (before, after))
    for value in before.results:
        name = op_name(value.owner)  # type: ignore[arg-type]
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5 if mode == "f32" else 2e-2, atol=1e-5)


@pytest.mark.parametrize("mode", ["f32", "bf16"])
def test_the_machine_computes_them(mode: str) -> None:
    model = to_reordered(lowered("bm1688", mode, network()))
    feeds = {"image": np.random.default_rng(2).normal(size=(2, 6, 2, 3)).astype(np.float32)}
    program = to_program(model)
    flat, machine = run(model, feeds), in_every_order(program, feeds)
    name = op_name(model.results[0].owner)  # type: ignore[arg-type]
    np.testing.assert_allclose(machine[name], flat[name], rtol=1e-5 if mode == "f32" else 2e-2, atol=1e-5)


@pytest.mark.parametrize(
    ("chip", "mode", "last", "left"),
    [("bm1684x", "f32", {}, 3), ("bm1688", "f16", {}, 3), ("bm1690", "bf16", {}, 3),
     ("bm1688", "f32", {"k": 3}, 1), ("bm1688", "f32", {"group": 2}, 1)],
)  # fmt: skip
def test_others_stay(chip: str, mode: str, last: dict[str, Any], left: int) -> None:
    """Other chips and types; windows with pads, and groups."""
    assert kinds(optimized(lowered(chip, mode, network(**last)))).count("tpu.Conv2D") == left
