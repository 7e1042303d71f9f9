"""A format of 4-bit weights from outside the core, through lowering, files, groups, commands and the machine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import builders.w4a8
import numpy as np
import pytest
from builders.timings import in_every_order
from builders.w4a8 import W4A8, lower_w4
from compiling import to_tpu
from op_row import network, node, values
from plain_names import import_onnx

import tpusim
from tpusim import chips
from tpusim.compiled import Compiled
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.formats import NumberFormat
from tpusim.ir.module import load_model, save_model
from tpusim.ir.packing import pack
from tpusim.ir.types import UniformType, element_of
from tpusim.isa.commands import GlobalKernel, MatMul
from tpusim.lowering import LoweringConfig
from tpusim.ops import context
from tpusim.registry import FORMATS
from tpusim.running.artefacts import RunConfig
from tpusim.running.persistence import stage_keys

LEFT, RIGHT = (3, 70, 12), (1, 12, 7)
"""Rows of an odd number of 4-bit elements."""


def feeds(shape: tuple[int, ...] = LEFT) -> dict[str, np.ndarray]:
    return {"x": values(shape, 3, -1.0, 2.0)}


@cache
def compiled(left: tuple[int, ...] = LEFT, right: tuple[int, ...] = RIGHT, bias: bool = False) -> Compiled:
    """Abs, a product with a matrix whose columns differ in size (with or without bias), LeakyRelu."""
    matrix = values(right) * np.geomspace(0.01, 1, right[-1], dtype=np.float32)
    product = [node("Gemm", "a w b", "p")] if bias else [node("MatMul", "a w", "p")]
    nodes = [node("Abs", "x", "a"), *product, node("LeakyRelu", "p", "y", alpha=0.3)]
    constants = {"w": matrix, **({"b": values(right[-1:], 2)} if bias else {})}
    model = import_onnx(network(nodes, constants)({"x": left}), name="own")
    return tpusim.compile(model, [feeds(left)], mode=W4A8)


def matrix_of(found: Compiled) -> tuple[UniformType, np.ndarray]:
    """Type and data of the product's matrix."""
    (product,) = (op for op in found.tpu.ops if op.name == "tpu.MatMul")
    element = element_of(product.operands[1])
    assert isinstance(element, UniformType)
    return element, found.tpu.weights[op_name(product.operands[1].owner)]  # type: ignore[arg-type]


def test_the_format_is_small() -> None:
    assert len(Path(builders.w4a8.__file__).read_text(encoding="utf-8").splitlines()) < 60


def test_the_matrix_has_4_bits_and_a_scale_per_column() -> None:
    element, stored = matrix_of(compiled())
    params = element.params
    assert (params.bits, params.axis, len(params.scales)) == (4, 2, 7) and params.scales[0] < params.scales[6] / 10
    assert stored.min() == -7 or stored.max() == 7
    assert compiled().tpu.mode == compiled().program.header.mode == "w4a8"
    card = {op.op: (op.status, op.number) for op in compiled().fidelity.ops}
    assert card == {"a": ("decision", "int8"), "p": ("exact", "int8"), "y": ("exact", "int8")}


@pytest.mark.parametrize("left, right", [(LEFT, RIGHT), ((3, 12), (12, 7))], ids=["grouped", "global"])
def test_machine_and_flat_inference_agree_bit_for_bit(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """In every order of DMA; the matrix is read as i4 in the group and in the tiles of the global layer."""
    found = compiled(left, right)
    bodies = [c.body if isinstance(c, GlobalKernel) else c for c in found.program.commands]
    products = [c for c in bodies if isinstance(c, MatMul)]
    assert products and {c.right.dtype for c in products} == {"i4"}
    assert all(c.of_tile for c in products) == (len(left) == 2)
    flat = run(found.tpu, feeds(left))
    machine = in_every_order(found.program, feeds(left))
    for name in ("a", "p"):
        assert machine[name].dtype == flat[name].dtype and machine[name].dtype.kind in "iu"
        assert np.array_equal(machine[name], flat[name])
    verified = found.verify(feeds(left))
    assert verified.bit_exact and verified.passed


def test_the_product_is_the_one_of_the_rounded_matrix() -> None:
    """Against a restatement in Python integers and doubles, within the multiplier's rounding."""
    element, stored = matrix_of(compiled())
    tensors, tpu = run(compiled().tpu, feeds()), compiled().tpu
    types = {op_name(op): element_of(op.results[0]) for op in tpu.ops if op.results and op_name(op) in ("a", "p")}
    x, y = (types[name].scale.data for name in ("a", "p"))  # type: ignore[union-attr]
    sums = tensors["a"].astype(np.int64) @ stored.astype(np.int64)
    real = sums * np.array(element.params.scales) * x / y
    assert np.abs(tensors["p"] - np.clip(real, -128, 127)).max() <= 0.51


def test_coefficients_and_files_hold_two_per_byte(tmp_path: Path) -> None:
    """The image has the packed bytes; module and weights are read back as they were, and are half as large."""
    _, stored = matrix_of(compiled())
    assert pack(stored).tobytes() in compiled().program.coefficients.tobytes() and pack(stored).size == 12 * 4
    save_model(compiled().tpu.clone(), tmp_path / "tpu.mlir", weight_file="w.npz")
    again = load_model(tmp_path / "tpu.mlir", context())
    for name, array in compiled().tpu.weights.items():
        assert again.weights[name].dtype == array.dtype and np.array_equal(again.weights[name], array)
    assert np.array_equal(run(again, feeds())["p"], run(compiled().tpu, feeds())["p"])


def test_what_declines_falls_back_and_says_so() -> None:
    """A product with a bias takes the 8-bit form; the card and the text tell why. Other ops have none to lose."""
    found = compiled((3, 12), (12, 7), bias=True)
    fallen = {op.op: op.reason for op in found.fidelity.ops if op.reason}
    assert fallen == {"p": "one constant matrix, no bias and ranges without zero point are required"}
    element = element_of(next(op for op in found.tpu.ops if op.name == "tpu.MatMul").operands[1])
    assert not isinstance(element, UniformType)


def test_an_op_with_constants_and_no_method_says_so() -> None:
    other = NumberFormat("w4conv", "w4conv", weight="i4", fallback=("integer", "float"), unit="int8")
    calibrated = compiled().top
    model = tpusim.compile(calibrated, [feeds()], mode=other)
    reasons = {op.op: op.reason for op in model.fidelity.ops if op.reason}
    assert reasons == {"p": "MatMul has no form with weights in i4 (w4conv)"}
    alone = NumberFormat("alone", "alone", weight="i4", unit="int8", methods={"top.MatMul": lower_w4})
    with pytest.raises(UnsupportedError, match=r"top.Abs 'a': format alone requires one of the lowerings alone"):
        tpusim.compile(calibrated, [feeds()], mode=alone)


def test_a_table_may_name_the_format() -> None:
    """By its name, if it is the run's format; ops that the table gives to INT8 do not use it."""
    model = tpusim.compile(compiled().top, [feeds()], mode=W4A8, qtable="a:W4A8,p:INT8")
    product = next(op for op in model.tpu.ops if op.name == "tpu.MatMul")
    assert not isinstance(element_of(product.operands[1]), UniformType)
    with pytest.raises(
        ConfigError,
        match="MODE one of F32, F16, BF16, INT8, .*, W4INT8, F8E5M2 is required, got 'p W4A8'",
    ):
        tpusim.compile(compiled().top, [feeds()], qtable="p:W4A8")


@pytest.mark.slow
def test_a_run_is_not_resumed_with_other_methods() -> None:
    """The key of lowering tells methods apart; that of calibration does not ask for them."""
    formats = (W4A8, replace(W4A8, methods={"top.MatMul": lambda op, ctx: lower_w4(op, ctx)}), W4A8)
    keys = [stage_keys(RunConfig(Path("m.onnx"), lowering=LoweringConfig(mode=f))) for f in formats]
    assert keys[0] == keys[2] and keys[0]["calibrate"] == keys[1]["calibrate"] and keys[0]["lower"] != keys[1]["lower"]


def test_the_chip_must_have_the_arithmetic() -> None:
    with pytest.raises(UnsupportedError, match="mode w4a8 on bm1684: supported are f32, int8"):
        to_tpu(compiled().top, "bm1684", NumberFormat("w4a8", "w4", unit="f16"))
    with pytest.raises(
        UnsupportedError, match="mode a4: activations in f32, f16, bf16, f8e5m2 or i8 are required, got i4"
    ):
        to_tpu(compiled().top, "bm1684x", NumberFormat("a4", "a4", "i4", "i4", unit="int8"))
    assert "int8" in chips.load("bm1684").modes and "w4a8" not in FORMATS
