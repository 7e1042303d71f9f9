"""Types, constants and tensors of small networks as TPU-MLIR 1.30.2 has them: recorded numbers, no tolerance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from op_row import network, node
from test_logic import Range, ranged
from xdsl.ir import Operation

from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.canonicalize import canonicalize
from tpusim.frontend import import_onnx
from tpusim.ir.attrs import ints, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, uniform_of
from tpusim.lowering import LoweringConfig, lower
from tpusim.ops.base import TpuOp

Array = np.ndarray
Shapes = dict[str, tuple[int, ...]]
Nodes = list[onnx.NodeProto]
IMAGE = {"x": (1, 4, 3, 3)}


def network_of(nodes: Nodes, constants: dict[str, Array] | None = None, inputs: Shapes | None = None) -> Model:
    """The canonical top module."""
    return canonicalize(import_onnx(network(nodes, constants or {})(inputs or IMAGE)))[0]


def tpu_of(top: Model, ranges: dict[str, Range], chip: str = "bm1684x", **options: Any) -> Model:
    """The tpu module in INT8."""
    return lower(ranged(top, ranges), LoweringConfig(chip, "int8", **options))[0]


def lowered(op: str, constants: dict[str, Array], ranges: dict[str, Range], chip: str = "bm1684x") -> list[TpuOp]:
    """The tpu ops of a network of one node "y" on "x" and the constants, in INT8."""
    top = network_of([node(op, " ".join(["x", *constants]))], constants)
    return [op for op in tpu_of(top, ranges, chip).ops if isinstance(op, TpuOp)]


def named(ops: Iterable[Operation], kind: str) -> Operation:
    return next(op for op in ops if op.name == kind)


# ------------------------------------------------------------------------------------------------------------ constants


def test_the_scale_of_a_filter_is_a_quotient_in_f32() -> None:
    """Six of these sixteen multipliers are others where max|W_c|/127 is divided in f64."""
    filter = np.random.default_rng(8).standard_normal((16, 4, 1, 1)).astype(np.float32)
    conv = named(lowered("Conv", {"w": filter}, {"x": (-1.7, 1.7), "y": (-0.6, 0.6)}), "tpu.Conv2D")
    assert ints(conv.attributes["multiplier"]) == (
        5204993, 13849397, 8337841, 9015901, 4311927, 9818191, 5743129, 6711459,
        1161269, 461341, 2261755, 5923141, 13581629, 6358287, 7599977, 13107367,
    )  # fmt: skip
    assert ints(conv.attributes["rshift"]) == (27, 28, 28, 28, 27, 28, 30, 27, 25, 23, 26, 28, 29, 27, 27, 29)


# ---------------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(("chip", "longest"), [("bm1684x", 8192), ("bm1690", 8192), ("bm1688", 4096)])
def test_a_long_axis_of_softmax_runs_in_f32(chip: str, longest: int) -> None:
    for length, kind in ((longest, "f16"), (longest + 1, "f32")):
        top = network_of([node("Softmax", "x", axis=2)], inputs={"x": (1, 1, length)})
        tpu = lower(top, LoweringConfig(chip, "f16"))[0]
        assert str(element_of(named(tpu.ops, "tpu.Softmax").results[0])) == kind


def test_log_softmax_has_the_range_of_softmax() -> None:
    """Whatever the table says; what reads it follows: its negative has -1..0."""
    top = network_of([node("LogSoftmax", "x", "l", axis=1), node("Neg", "l")])
    from_table = {"x": Entry(1.0, -1.0, 1.0), "l": Entry(3.0, -3.0, 0.0), "y": Entry(3.0, 0.0, 3.0)}
    tpu = lower(apply_table(top, CalibrationTable(from_table)), LoweringConfig("bm1684x", "int8"))[0]
    assert scale_of(tpu, "y") == 1 / 127


def scale_of(tpu: Model, name: str) -> float:
    """The scale of a tensor."""
    value = next(op.results[0] for op in tpu.ops if isinstance(op, TpuOp) and op_name(op) == name)
    uniform = uniform_of(value)
    assert uniform is not None
    return uniform.scale.data


# -------------------------------------------------------------------------------------------------- constant operands


def stored(tpu: Model, op: Operation, operand: int) -> list[int]:
    return np.asarray(tpu.weights[value_name(op.operands[operand])]).reshape(-1).tolist()


def with_constant(op: str, chip: str) -> tuple[Model, Operation]:
    """An op of x and a constant whose largest magnitude is twice others'."""
    constant = np.float32([0.65, 1.3, -0.65, 0.3]).reshape(1, 4, 1, 1) + np.zeros((1, 4, 3, 3), np.float32)
    top = network_of([node(op, "x c")], {"c": constant})
    tpu = tpu_of(top, {"x": (-1.7123457, 1.7123457), "y": (-2.6123457, 2.6123457)}, chip)
    return tpu, named(tpu.ops, f"tpu.{op}")


@pytest.mark.parametrize(("op", "chip", "half"), [
    ("Mul", "bm1684x", 63), ("Mul", "bm1684", 63), ("Add", "bm1684x", 64), ("Add", "bm1684", 64), ("Sub", "bm1684", 63),
])  # fmt: skip
def test_constants_of_half_the_largest(op: str, chip: str, half: int) -> None:
    """The scale is a quotient in f32 for Mul and Sub, in f64 for Add."""
    tpu, lowered_op = with_constant(op, chip)
    assert stored(tpu, lowered_op, 1)[::9] == [half, 127, -half, 29]


def test_a_ratio_above_127_saturates_the_multiplier_of_bm1684() -> None:
    top = network_of([node("Add", "x z")], inputs={"x": (1, 4, 3, 3), "z": (1, 4, 3, 3)})
    ranges = {"x": (-1.7123457, 1.7123457), "z": (-1.1, 1.1), "y": (-0.0112345, 0.0112345)}
    add = named(tpu_of(top, ranges, "bm1684").ops, "tpu.Add")
    assert (ints(add.attributes["multipliers"]), ints(add.attributes["rshifts"])) == ((127, 98), (0, 0))
