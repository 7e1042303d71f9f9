"""Calibration where f32 overflows: masks of float32's lowest number, whose sums and squares are no numbers in f32.

The expected entries are those of TPU-MLIR 1.30.2 for the same networks and samples: where its distances are infinite or
NaN the measured threshold stays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from compiling import to_canonical
from onnx import TensorProto, helper, numpy_helper

from tpusim.calibration.stage import METHODS, CalibrationConfig, calibrate
from tpusim.frontend import import_onnx
from tpusim.ir.module import Model

SHAPE = (1, 48, 16)
LOW = float(np.finfo(np.float32).min)
MASKED = {
    "where": [("Where", "mask low s", "m")],
    "add": [("Add", "s addend", "m")],
    "max": [("Add", "s addend", "a"), ("Max", "a floor", "m")],
    "relu": [("Add", "s addend", "a"), ("Where", "mask a s", "m")],
    "sub": [("Sub", "s addend", "m0"), ("Neg", "m0", "m")],
    "min": [("Min", "s addend", "m")],
}


def network(form: str, value: float) -> Model:
    """Scores of x with itself, all above the diagonal masked in one of several forms, then their softmax."""
    mask = np.triu(np.ones((48, 48), np.bool_), 1)[None]
    constants = {
        "q": np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32),
        "mask": mask,
        "low": np.float32(value),
        "addend": np.where(mask, np.float32(value), np.float32(0)),
        "floor": np.float32(-1e38),
    }
    steps = [
        ("MatMul", "x q", "s0"), ("Transpose", "x", "xt"), ("MatMul", "s0 xt", "s"), *MASKED[form],
        ("Softmax", "m", "p"), ("MatMul", "p x", "y"),
    ]  # fmt: skip
    more: dict[str, dict[str, Any]] = {"Transpose": {"perm": [0, 2, 1]}, "Softmax": {"axis": -1}}
    nodes = [helper.make_node(kind, i.split(), [o], name=o, **more.get(kind, {})) for kind, i, o in steps]
    used = {name for _, operands, _ in steps for name in operands.split()}
    weights = [numpy_helper.from_array(a, n) for n, a in constants.items() if n in used]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return to_canonical(import_onnx(model, name="net"))


def samples() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(8)
    drawn = [rng.normal(size=SHAPE).astype(np.float32) for _ in range(3)]
    return [{"x": drawn[i]} for i in (2, 0, 1)]  # upstream shuffles


def table(form: str, value: float, config: CalibrationConfig | None = None) -> dict[str, tuple[float, float, float]]:
    found = calibrate(network(form, value), samples(), config or CalibrationConfig())[0]
    return {name: (e.threshold, e.minimum, e.maximum) for name, e in found.entries.items()}


RECORDED = [
    ("where", LOW, 66.3664856), ("where", -1e38, 66.3664856), ("where", -1e30, 86.8193665), ("add", LOW, 66.3664856),
    ("add", -1e38, 66.3664856), ("add", -1e9, 83.7514343), ("max", LOW, 66.3664856), ("max", -1e38, 66.3664856),
    ("relu", LOW, 66.3664856), ("sub", -LOW, 66.3664856), ("min", LOW, 66.3664856),
]  # fmt: skip
"""(form, number of the mask, threshold of the scores) as TPU-MLIR 1.30.2 has it."""


@pytest.mark.every
@pytest.mark.parametrize(("form", "value", "threshold"), RECORDED)
def test_tuning_as_upstream(form: str, value: float, threshold: float) -> None:
    found = table(form, value)
    assert found["s_MatMul"] == (threshold, -70.2789612, 87.8420105)
    assert found["s0_MatMul"] == (18.3189869, -14.9910803, 18.3189869)
    assert found["x"] == (3.2339020, -3.1500783, 3.2339020)
    masked = next(found[name] for name in found if name.startswith("m_"))
    assert masked[0] == max(-masked[1], masked[2])
    assert masked[0] == pytest.approx(min(abs(value), 1e38) if form == "max" else abs(value), rel=1e-6)


@pytest.mark.every
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("form", "value"), [("max", LOW), ("sub", -LOW)])
def test_every_method_is_finite(method: str, form: str, value: float) -> None:
    """Recorded of `max`: mse and percentile9999 keep the absolute maximum of what f32 cannot sum."""
    found = table(form, value, CalibrationConfig(method=method))
    assert all(math.isfinite(number) for entry in found.values() for number in entry)
    assert all(1e-5 <= entry[0] <= max(1e-5, -entry[1], entry[2]) for entry in found.values())
    assert found["m_Max" if form == "max" else "m_Neg"][0] > 5e37
    scores = {"mse": 74.0563051, "max": 87.8420105, "percentile9999": 87.8420105}
    assert found["s_MatMul"][0] == scores.get(method, found["s_MatMul"][0])


@pytest.mark.every
@pytest.mark.parametrize("method", METHODS)
def test_both_ends_beyond_f32(method: str) -> None:
    """Mean, range, sum and squares of a tensor are beyond f32, among zeros and ones: its maximum is its threshold."""
    model = to_canonical(import_onnx(one_op("Neg"), name="net"))
    ends = np.array([-LOW, LOW, -LOW, LOW, 1, -1, 0, 0], np.float32)
    found = calibrate(model, [{"x": ends}, {"x": -ends}], CalibrationConfig(method=method))[0].entries
    assert {(e.threshold, e.minimum, e.maximum) for e in found.values()} == {(-LOW, LOW, -LOW)}


def one_op(kind: str) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (8,)) for name in "xy")
    graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"], name="y")], "net", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_only_finite_distances_move_a_threshold() -> None:
    """The scores keep what was measured where their distances are no numbers, and are tuned where they are."""
    measured = CalibrationConfig(tune_samples=0)
    assert table("max", LOW)["s_MatMul"] == table("max", LOW, measured)["s_MatMul"]
    assert table("add", -1e9)["s_MatMul"] != table("add", -1e9, measured)["s_MatMul"]
