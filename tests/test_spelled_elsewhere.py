"""Forms of TPU-MLIR's files that differ from ours in memory: further attributes, other ops, other layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiling import to_addressed, to_groups, to_tpu
from op_cases import CASES, OpCase
from rotation import marks
from rows import canonical, imported
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, i1
from xdsl.ir import Attribute

from tpusim import ops
from tpusim.codegen.program import generate
from tpusim.errors import TpusimError, UnsupportedError
from tpusim.inference import run
from tpusim.ir.attrs import flag, op_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.upstream import entry
from tpusim.ir.upstream.spelling import INTEGERS, MODE_ATTRIBUTES
from tpusim.ir.upstream.table import AttributeEntry
from tpusim.ir.upstream.values import read
from tpusim.ops.deconv import TpuDeconv
from tpusim.simulator import simulate

MODES = {mode.name: mode for mode in MODE_ATTRIBUTES}


def default_of(stated: AttributeEntry) -> Attribute | None:
    """The default of an attribute in the type of the table; None if there is none or of another type."""
    if stated.default is None:
        return None
    kind, value = stated.type, read(stated.default)
    if kind in MODES:
        return MODES[kind](MODES[kind].enum_type(str(value)))
    if kind == "bool":
        return IntegerAttr(int(bool(value)), i1)
    if kind == "f64":
        return FloatAttr(float(value), 64)  # type: ignore[arg-type]
    if kind in INTEGERS:
        return IntegerAttr(int(value), INTEGERS[kind])  # type: ignore[arg-type]
    return StringAttr(str(value)) if kind.startswith("string") else None


def with_defaults(model: Model) -> Model:
    """The module as `tpuc-opt` prints it: every attribute that has a default is stated, in alphabetical order."""
    module = parse_module(print_module(model.module), ops.context())
    for op in module.walk():
        for stated in known.attributes.values() if (known := entry(op.name)) else ():
            if stated.name not in op.attributes and (value := default_of(stated)) is not None:
                op.attributes[stated.name] = value
        op.attributes = dict(sorted(op.attributes.items()))
    return Model(parse_module(print_module(module), ops.context()), model.weights.copy())


def plain(model: Model) -> list[tuple[str, str, list[tuple[str, Attribute]]]]:
    """Name, tensor and attributes of every op, without those that have their default."""
    found: list[tuple[str, str, list[tuple[str, Attribute]]]] = []
    for op in model.module.walk():
        known = entry(op.name)
        stated = {} if known is None else known.attributes
        kept = {n: v for n, v in op.attributes.items() if n not in stated or not stated[n].changes_nothing(v)}
        found.append((op.name, op_name(op), sorted(kept.items(), key=lambda item: item[0])))
    return found


USUAL = {"maxpool1d", "avgpool1d", "rmsnorm", "conv-relu", "log-softmax"}
"""Rows of ops that had attributes whose absence and default differed, and two others."""


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id, marks=marks(c.id in USUAL)) for c in CASES])
def test_stated_defaults_change_nothing(case: OpCase) -> None:
    """Lowering a module in which TPU-MLIR stated all defaults gives the same ops with the same attributes."""
    top = canonical(case.id)
    try:
        expected = to_tpu(top, "bm1684x", "f32")
    except TpusimError:
        pytest.skip("not lowered on this chip")
    assert plain(to_tpu(with_defaults(top), "bm1684x", "f32")) == plain(expected)


def test_a_log_softmax_is_a_softmax_in_files() -> None:
    model = imported("log-softmax")
    written = print_module(model.module)
    assert '"top.Softmax"' in written and "axis = 1 : si32, log = true" in written and "LogSoftmax" not in written
    again = parse_module(written, ops.context())
    assert [op.name for op in again.walk()] == [op.name for op in model.module.walk()]
    assert print_module(again) == written
    with pytest.raises(UnsupportedError, match=r"beta requires 1\.0"):
        parse_module(written.replace("log = true", "beta = 2.0 : f64, log = true"), ops.context())


SCALAR = """module @m attributes {module.chip = "ALL", module.state = "TOP_F32", module.weight_file = "w.npz"} {
  func.func @main(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %1 = "top.Input"(%arg0) : (tensor<2x4xf32>) -> tensor<2x4xf32> loc("x")
    %2 = "top.Weight"() : () -> tensor<f32> loc("w")
    %3 = "top.Add"(%1, %2) {do_relu = false} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32> loc("y")
    return %3 : tensor<2x4xf32> loc(unknown)
  }
}
"""


def test_a_scalar_has_an_axis_in_files(tmp_path: Path) -> None:
    """TPU-MLIR's tools skip arrays without axes."""
    (tmp_path / "m.mlir").write_text(SCALAR)
    np.savez(tmp_path / "w.npz", w=np.float32(3))
    model = load_model(tmp_path / "m.mlir", ops.context())
    save_model(model, tmp_path / "again.mlir", weight_file="again.npz")
    with np.load(tmp_path / "again.npz") as stored:
        assert stored["w"].shape == (1,)
    again = load_model(tmp_path / "again.mlir", ops.context())
    assert again.weights["w"].shape == ()
    np.testing.assert_array_equal(run(again, {"x": np.ones((2, 4), np.float32)})["y"], np.full((2, 4), 4, np.float32))


@pytest.mark.parametrize("row", ["deconv-4x4-s2", "deconv-depthwise"])
def test_a_turned_filter_computes_what_an_unturned_one_does(row: str) -> None:
    """Filters are stored turned for chips that do not turn them; files of earlier releases have the others."""
    case = next(c for c in CASES if c.id == row)
    model = to_addressed(to_groups(to_tpu(canonical(row), "cv183x", "bf16")))
    expected = simulate(generate(model), case.feeds()).tensors
    other = model.clone()
    (op,) = (op for op in other.module.walk() if isinstance(op, TpuDeconv))
    name = next(n for n in other.weights if n.endswith("_packed"))
    rows = other.weights[name]
    taps = rows.reshape(rows.shape[1], -1) if op.depthwise else rows.reshape(rows.shape[1], np.prod(op.kernel), -1)
    other.weights.replace(name, np.ascontiguousarray(taps[:, ::-1]).reshape(rows.shape))
    assert op.filter_turned == flag(True)
    op.filter_turned = None
    found = simulate(generate(other), case.feeds()).tensors
    for tensor, array in run(other, case.feeds()).items():
        np.testing.assert_array_equal(array, run(model, case.feeds())[tensor])
    for tensor, array in found.items():
        np.testing.assert_array_equal(array, expected[tensor])


def test_a_slope_follows_from_multiplier_and_shift() -> None:
    source = """module @m attributes {module.chip = "bm1684x", module.mode = "INT8", module.state = "TPU_LOWERED"} {
  func.func @main(%arg0: tensor<1x4x!quant.uniform<i8:f32, 0.5>>) -> tensor<1x4x!quant.uniform<i8:f32, 0.5>> {
    %0 = "top.Input"(%arg0) : (TYPE) -> TYPE loc("x")
    %1 = "tpu.LeakyRelu"(%0) {multiplier = 51 : si32, rshift = 8 : si32} : (TYPE) -> TYPE loc("y")
    return %1 : TYPE
  }
}
""".replace("TYPE", "tensor<1x4x!quant.uniform<i8:f32, 0.5>>")
    model = Model(parse_module(source, ops.context()), imported("log-softmax").weights)
    x = np.array([[-100, -1, 0, 100]], np.int8)
    np.testing.assert_array_equal(run(model, {"x": x})["y"], np.array([[-20, 0, 0, 100]], np.int8))
