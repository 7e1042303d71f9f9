"""Network inputs and results that are no float32: converted at the border, on every level."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.errors import ConfigError, ImportModelError, SimulationError, UnsupportedError
from tpusim.frontend import import_onnx, onnx_outputs
from tpusim.inference import input_specs, run
from tpusim.ir.module import load_model, save_model
from tpusim.numbers.border import converts
from tpusim.ops import context
from tpusim.simulator import SimulatorOptions

RNG = np.random.default_rng(5)
Types = dict[str, tuple[int, tuple[int, ...]]]


def network(
    nodes: list[onnx.NodeProto], inputs: Types, outputs: dict[str, int], weights: dict[str, Any] | None = None
) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    results = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def camera() -> onnx.ModelProto:
    """A byte image, a mask of bools, integers and half floats go in; floats, an index, bools and integers come out."""
    node = helper.make_node
    nodes = [
        node("Cast", ["image"], ["real"], to=TensorProto.FLOAT), node("Div", ["real", "most"], ["unit"]),
        node("Conv", ["unit", "w"], ["c"], pads=[1] * 4), node("Where", ["mask", "c", "zero"], ["y"]),
        node("ReduceMean", ["y"], ["mean"], axes=[2, 3], keepdims=0),
        node("ArgMax", ["mean"], ["class"], axis=1, keepdims=0), node("Greater", ["mean", "zero"], ["hot"]),
        node("Add", ["count", "one"], ["next"]), node("Cast", ["half"], ["wide"], to=TensorProto.FLOAT),
        node("Relu", ["wide"], ["gate"]),
    ]  # fmt: skip
    inputs = {
        "image": (TensorProto.UINT8, (1, 3, 6, 6)), "mask": (TensorProto.BOOL, (1, 1, 6, 6)),
        "count": (TensorProto.INT64, (1, 4)), "half": (TensorProto.FLOAT16, (1, 4)),
    }  # fmt: skip
    outputs = {
        "y": TensorProto.FLOAT, "class": TensorProto.INT64, "hot": TensorProto.BOOL, "next": TensorProto.INT64,
        "gate": TensorProto.FLOAT,
    }  # fmt: skip
    weights = {
        "most": np.float32(255), "zero": np.float32(0), "one": np.array([1]),
        "w": (np.random.default_rng(1).standard_normal((4, 3, 3, 3)) * 0.3).astype(np.float32),
    }  # fmt: skip
    return network(nodes, inputs, outputs, weights)


def sample(count: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([count, seed])
    return {
        "image": rng.integers(0, 256, (count, 3, 6, 6), dtype=np.uint8), "mask": rng.random((count, 1, 6, 6)) > 0.3,
        "count": rng.integers(0, 100, (count, 4)), "half": rng.standard_normal((count, 4)).astype(np.float16),
    }  # fmt: skip


@cache
def compiled() -> tpusim.compiled.Compiled:
    reference = lambda x: onnx_outputs(camera(), x)  # noqa: E731
    samples = [sample(seed=seed) for seed in range(3)]
    return tpusim.compile(import_onnx(camera()), samples, calibration=CalibrationConfig("max"), reference=reference)


def test_flat_takes_and_gives_the_types_of_the_model() -> None:
    given = sample(2)
    found = list(compiled().flat(given).values())
    assert [y.dtype for y in found[1:4]] == [np.int64, np.bool_, np.int64]
    for i in range(2):
        one = {name: x[i : i + 1] for name, x in given.items()}
        wanted = onnx_outputs(camera(), one, ["class", "hot", "next"])
        for y, name in zip(found[1:4], wanted, strict=True):
            np.testing.assert_array_equal(y[i : i + 1], wanted[name], err_msg=name, strict=True)


def test_machine_and_comparisons_take_them() -> None:
    found = compiled().verify(sample())
    assert found.passed and found.bit_exact
    compared = {t.name for t in found.comparisons["top_vs_function"].tensors}
    assert {"class_ArgMax", "hot_Greater", "next_Add", "gate_Relu"} <= compared


def test_they_survive_the_text(tmp_path: Path) -> None:
    model = import_onnx(camera())
    save_model(model, tmp_path / "m.mlir")
    again, given = load_model(tmp_path / "m.mlir", context()), sample()
    assert input_specs(again) == input_specs(model)
    assert {n: t.name for n, (_, t) in input_specs(again).items()} == {
        "image": "uint8", "mask": "bool", "count": "int64", "half": "float16"
    }  # fmt: skip
    assert again.output_types == model.output_types and again.output_types[1] == np.int64
    np.testing.assert_array_equal(run(again, given)["y_Where"], run(model, given)["y_Where"])


def test_samples_come_in_their_types(tmp_path: Path) -> None:
    specs = input_specs(import_onnx(camera()))
    np.savez(tmp_path / "x.npz", **sample(3))
    for source in ("random:2", str(tmp_path / "x.npz")):
        drawn = next(load_samples(source, specs))
        assert {n: x.dtype for n, x in drawn.items()} == {n: t for n, (_, t) in specs.items()}
        assert int(drawn["image"].max()) > 100


def test_values_that_do_not_fit_are_refused() -> None:
    given = sample() | {"count": np.full((1, 4), 2**24 + 1)}
    with pytest.raises(ConfigError, match=r"input 'count': int64 values that float32 holds exactly \(to 16,777,216\)"):
        compiled().flat(given)
    with pytest.raises(SimulationError, match="input 'count': the program takes f32 .* convert it first"):
        compiled().machine(SimulatorOptions(sanitize=False)).run(given)
    with pytest.raises(ConfigError, match="input 'mask': bool values .* are required, got float64 with other values"):
        compiled().flat(sample() | {"mask": np.full((1, 1, 6, 6), 0.5)})


@pytest.mark.parametrize(
    ("value", "dtype", "fits"),
    [(2**24, "float32", True), (2**24 + 1, "float32", False), (-1, "uint8", False), (0.5, "int64", False),
     (2.0, "int64", True), (2, "bool", False), (True, "float32", True), (1e300, "float32", False),
     (np.inf, "float16", True), (7e4, "float16", False), (3, "bfloat16", True)],
)  # fmt: skip
def test_conversions_keep_values(value: float, dtype: str, fits: bool) -> None:
    assert converts(np.array([value]), np.dtype(dtype)) == fits


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_floats_are_f32_inside(kind: int) -> None:
    """A network of half or double floats: constants too, and the results come back in its type."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [helper.make_node("Mul", ["x", "k"], ["y"])]
    proto = network(nodes, {"x": (kind, (2, 3))}, {"y": kind}, {"k": np.array([2, 3, 4], dtype)})
    given = {"x": RNG.standard_normal((2, 3)).astype(dtype)}
    (y,) = tpusim.compile(import_onnx(proto), mode="f32").flat(given).values()
    assert y.dtype == dtype
    np.testing.assert_allclose(y, onnx_outputs(proto, given)["y"], rtol=2e-3 if dtype == np.float16 else 1e-6)


@pytest.mark.parametrize(
    ("op", "kind"), [("Div", TensorProto.INT64), ("Add", TensorProto.UINT8), ("Mul", TensorProto.INT8)]
)
def test_integer_arithmetic_rounds_and_wraps_around(op: str, kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    given = {"x": np.array([[120, 7, 100]], dtype), "z": np.array([[2, 4, 120]], dtype)}
    if dtype.kind == "i":
        given["x"][0, 1] = -7
    proto = network([helper.make_node(op, ["x", "z"], ["y"])], {n: (kind, (1, 3)) for n in given}, {"y": kind})
    (y,) = tpusim.compile(import_onnx(proto), mode="f32").flat(given).values()
    with np.errstate(over="ignore"):
        wanted = {"Div": lambda a, b: np.trunc(a / b).astype(dtype), "Add": np.add, "Mul": np.multiply}[op]
        np.testing.assert_array_equal(y, wanted(*given.values()), strict=True)


def test_products_that_f32_does_not_hold_are_refused() -> None:
    kind = TensorProto.INT16
    proto = network([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": (kind, (2, 3))}, {"y": kind})
    with pytest.raises(UnsupportedError, match="products of int16 leave the integers that f32 holds"):
        import_onnx(proto)


def test_inputs_that_are_no_numbers_are_refused() -> None:
    proto = network(
        [helper.make_node("Identity", ["s"], ["y"])], {"s": (TensorProto.STRING, (2,))}, {"y": TensorProto.STRING}
    )
    with pytest.raises(ImportModelError, match="inputs of floats, integers or bools are required, got 's' is string"):
        import_onnx(proto)
