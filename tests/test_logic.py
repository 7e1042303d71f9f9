"""Comparisons, selection and indices beyond their op rows: propagation, stored types, commands, whole networks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import Bench, numbers
from builders.calibrated import ranged
from compiling import to_canonical, to_tpu
from op_row import network, node
from plain_names import import_onnx
from rotation import one_in

from tpusim import chips
from tpusim.errors import CommandError
from tpusim.frontend import OnnxReference
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import calibrated_range, element_of, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa.check import check
from tpusim.lowering import LoweringConfig
from tpusim.lowering.propagate import propagate
from tpusim.ops.framework.base import TopOp, holds
from tpusim.running.pipeline import RunConfig
from tpusim.running.pipeline import run as run_pipeline

SHAPE = (2, 5, 6)
X, TWO = {"x": SHAPE}, {"x": SHAPE, "z": SHAPE}
BOOL, INT = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
Range = tuple[float, float]


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def made(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], inputs: Mapping[str, tuple[int, ...]]) -> Model:
    return to_canonical(import_onnx(network(nodes, constants, 17, BOOL)(inputs)))


def propagated(model: Model, in_float: str = "") -> dict[str, Range | None]:
    propagate(model, chips.load("bm1684x"), {op for op in model.ops if op_name(op) == in_float})
    return {op_name(op): calibrated_range(op.results[0]) for op in model.ops if isinstance(op, TopOp)}


# ------------------------------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(("operands", "inversed"), [("x w", False), ("w x", True)])
def test_a_scalar_operand_is_a_constant(operands: str, inversed: bool) -> None:
    top = made([node("Less", operands)], {"w": scalar(0.5)}, X)
    op = next(op for op in top.ops if op_name(op) == "y")
    assert op.name == "top.CompareConst"
    assert (op.mode.data, op.const_val.value.data, bool(op.inversed.value.data)) == ("Less", 0.5, inversed)  # type: ignore[attr-defined]


def test_equal_then_not_is_unequal_only_if_nothing_else_reads_it() -> None:
    alone = made([node("Equal", "x z", "e"), node("Not", "e")], {}, TWO)
    assert [op.mode.data for op in alone.ops if op.name == "top.Compare"] == ["NotEqual"]  # type: ignore[attr-defined]
    shared = made([node("Equal", "x z", "e"), node("Not", "e", "n"), node("And", "e n")], {}, TWO)
    assert [op.mode.data for op in shared.ops if op.name == "top.Compare"] == ["Equal", "And"]  # type: ignore[attr-defined]


def test_what_a_tensor_stands_for_survives_moves() -> None:
    nodes = [node("Greater", "x z", "a"), node("Reshape", "a s", "b"), node("Transpose", "b", "c", perm=[1, 0]),
             node("Cast", "c", to=INT)]  # fmt: skip
    top = import_onnx(network(nodes, {"s": np.array([10, 6])}, 17, INT)(TWO))
    kinds = {op_name(op): holds(op.results[0]) for op in top.ops if isinstance(op, TopOp)}
    assert kinds == {"x": "real", "z": "real", "a": "bool", "b": "bool", "y": "bool"}


def test_a_cast_to_an_integer_cuts_off() -> None:
    proto = network([node("Cast", "x", to=INT)], {}, 17, INT)(X)
    x = np.linspace(-3, 3, int(np.prod(X["x"])), dtype=np.float32).reshape(X["x"])
    np.testing.assert_array_equal(run(import_onnx(proto), {"x": x})["y"], np.trunc(x))


# ---------------------------------------------------------------------------------------------------- propagation (3.3)


def test_step_7_both_sides_take_the_joint_range() -> None:
    top = ranged(made([node("Greater", "x z")], {}, TWO), {"x": (0.0, 3.0), "z": (-1.0, 2.0), "y": (0.0, 1.0)})
    found = propagated(top)
    assert found["x"] == found["z"] == (-1.0, 3.0)
    assert found["y"] == (0.0, 1.0)


def chosen(branches: str, constants: dict[str, float], ranges: dict[str, Range], in_float: str = "") -> dict:  # type: ignore[type-arg]
    nodes = [node("Greater", "z w", "m"), node("Where", f"m {branches}")]
    arrays = {"w": scalar(0.0)} | {name: scalar(value) for name, value in constants.items()}
    top = ranged(made(nodes, arrays, TWO), {"z": (-1.0, 1.0), "m": (0.0, 1.0), **ranges})
    return propagated(top, in_float)


def test_step_8_branches_take_the_range_of_the_output() -> None:
    found = chosen("x c", {"c": 0.5}, {"x": (-9.0, 9.0), "y": (-2.0, 2.0)})
    assert found["x"] == found["y"] == (-2.0, 2.0)


@pytest.mark.parametrize(
    ("number", "low", "wanted"), [(8.0, 0.0, (0.0, 8.0)), (8.0, -1.0, (-0.8, 8.0)), (-8.0, 0.0, (-0.8, 8.0))]
)
def test_step_8_a_large_constant_widens_the_output_then_the_branch(number: float, low: float, wanted: Range) -> None:
    found = chosen("x c", {"c": number}, {"x": (-9.0, 9.0), "y": (low, 2.0)})
    assert found["y"] == pytest.approx(wanted)
    assert found["x"] == found["y"]


def test_step_8_leaves_branches_of_a_where_that_the_table_puts_into_float() -> None:
    found = chosen("x c", {"c": 0.5}, {"x": (-9.0, 9.0), "y": (-2.0, 2.0)}, in_float="y")
    assert found["x"] == (-9.0, 9.0)


def test_step_8_is_repeated_after_step_9() -> None:
    """Step 9 gives the Relu its input's range, step 10 the branch the output's again."""
    nodes = [node("Greater", "z w", "m"), node("Relu", "x", "r"), node("Where", "m r z")]
    ranges = {"x": (-9.0, 9.0), "r": (0.0, 9.0), "z": (-1.0, 1.0), "m": (0.0, 1.0), "y": (-3.0, 3.0)}
    found = propagated(ranged(made(nodes, {"w": scalar(0.0)}, TWO), ranges))
    assert found["r"] == found["z"] == found["y"] == (-3.0, 3.0)


def test_a_step_goes_from_the_last_op_to_the_first() -> None:
    """U-116: the second Max gives its range to the first, which gives it to its inputs; the other order never ends."""
    ranges = {"x": (-9.0, 9.0), "z": (-8.0, 8.0), "w": (-7.0, 7.0), "a": (-3.0, 3.0), "y": (-2.0, 2.0)}
    found = propagated(ranged(made([node("Max", "x z", "a"), node("Max", "a w")], {}, TWO | {"w": SHAPE}), ranges))
    assert set(found.values()) == {(-2.0, 2.0)}


def test_ranges_that_do_not_settle_stay_after_ten_walks() -> None:
    """U-116: each Where sets the branch that both read; the first is visited last."""
    nodes = [node("Greater", "z w", "m"), node("Where", "m x v", "a"), node("Where", "m x u", "b")]
    nodes.append(node("Concat", "a b", axis=0))
    ranges = {name: (-9.0, 9.0) for name in "xzwuvm"} | {"a": (-1.0, 1.0), "b": (-2.0, 2.0), "y": (-3.0, 3.0)}
    found = propagated(ranged(made(nodes, {}, {name: SHAPE for name in "xzwuv"}), ranges))
    assert found["u"] == (-3.0, 3.0) == found["b"]
    assert found["x"] == found["a"] == (-3.0, 3.0)


@pytest.mark.parametrize(("chip", "wanted"), [("bm1684x", (-5.0, 5.0)), ("bm1684", (-3.0, 3.0))])
def test_a_range_passes_an_unsqueeze_only_where_it_is_a_reshape(chip: str, wanted: Range) -> None:
    """U-117."""
    nodes = [node("Tanh", "x", "a"), node("Unsqueeze", "a s", "b"), node("Relu", "b")]
    ranges = {"x": (-4.0, 4.0), "a": (-5.0, 5.0), "b": (-5.0, 5.0), "y": (-3.0, 3.0)}
    top = ranged(made(nodes, {"s": np.array([1])}, X), ranges)
    propagate(top, chips.load(chip))
    assert {op_name(op): calibrated_range(op.results[0]) for op in top.ops if isinstance(op, TopOp)}["a"] == wanted


# --------------------------------------------------------------------------------------------------------- stored types


@pytest.mark.parametrize("asymmetric", [False, True])
def test_a_bool_is_a_byte_of_scale_1(asymmetric: bool) -> None:
    """numerics.md 2.2, whatever was calibrated; a reshape keeps it."""
    top = made([node("Greater", "x w", "a"), node("Reshape", "a s")], {"w": scalar(0.2), "s": np.array([12, 5])}, X)
    tpu = to_tpu(
        ranged(top, {"x": (-1.0, 1.0), "a": (0.0, 0.7), "y": (0.0, 0.7)}), "bm1684x", "int8", asymmetric=asymmetric
    )
    for name in ("a", "y"):
        stored = uniform_of(next(op.results[0] for op in tpu.ops if op_name(op) == name))
        assert stored is not None
        assert (stored.scale.data, stored.zero_point.value.data, stored.signed) == (1.0, 0, False)


@pytest.mark.parametrize(
    ("number", "low", "asymmetric", "stored"),
    [(0.5, -1.0, False, 64), (-0.5, -1.0, False, -64), (9.0, -1.0, False, 127), (0.5, 0.0, False, 128),
     (9.0, 0.0, False, 255), (-9.0, 0.0, False, 0), (0.5, -1.0, True, 63), (0.5, -2.0, True, 85)],
)  # fmt: skip
def test_constant_of_a_comparison(number: float, low: float, asymmetric: bool, stored: int) -> None:
    """sat(round-half-away(c/s + z)): symmetric s = 1/127 (1/255 unsigned); asymmetric (max - min)/255."""
    top = ranged(made([node("Less", "x w")], {"w": scalar(number)}, X), {"x": (low, 1.0), "y": (0.0, 1.0)})
    tpu = to_tpu(top, "bm1684x", "int8", asymmetric=asymmetric)
    op = next(op for op in tpu.ops if op.name == "tpu.CompareConst")
    assert op.const_val.value.data == stored  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["int8", "f16", "bf16", "f32"])
def test_indices_are_int32_and_move_as_they_are(mode: str) -> None:
    """numerics.md 3.5 step 9; 300 classes do not fit a byte of any scale."""
    nodes = [
        node("ArgMax", "x", "a", axis=1),
        node("Squeeze", "a s", "b"),
        node("Cast", "b", "c", to=1),
        node("Neg", "c"),
    ]
    build = network(nodes, {"s": np.array([1])})({"x": (4, 300, 2)})
    top = to_canonical(import_onnx(build))
    x = np.random.default_rng(3).permutation(2400).reshape(4, 300, 2).astype(np.float32) / 8
    if mode == "int8":
        top = ranged(top, {"x": (0.0, 300.0), "a": (0.0, 299.0), "b": (0.0, 299.0), "y": (-299.0, 0.0)})
    tpu = to_tpu(top, "bm1684x", mode)
    types = {op_name(op): str(element_of(op.results[0])) for op in tpu.ops if op.name.startswith("tpu.")}
    assert types["a"] == types["b"] == "i32"
    if mode in ("int8", "f32"):
        np.testing.assert_array_equal(run(tpu, {"x": x})["b"], x.argmax(1))


# ------------------------------------------------------------------------------------------------------------- commands


@pytest.mark.parametrize(
    "types", [("i8", "i8"), ("i8", "u8"), ("u8", "u8"), ("f32", "f32"), ("bf16", "bf16")], ids="-".join
)
@pytest.mark.parametrize("kind", ["Equal", "NotEqual", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Xor"])
def test_compare_command(types: tuple[str, str], kind: str) -> None:
    bench = Bench()
    a, b = numbers((1, 5, 9, 7), types[0]), numbers((1, 5, 1, 7), types[1])
    a[0, :, 4] = np.minimum(b[0, :, 0], a.dtype.type(100)).astype(a.dtype)
    out = "u8" if types[0][0] in "iu" else types[0]
    got = bench.run(isa.Compare, kind=kind, a=bench.put(a), b=bench.put(b), output=bench.space(a.shape, out))
    relation = {
        "Equal": "__eq__", "NotEqual": "__ne__", "Greater": "__gt__", "GreaterOrEqual": "__ge__", "Less": "__lt__",
        "LessOrEqual": "__le__",
    }  # fmt: skip
    for n, c, h, w in np.ndindex(a.shape):
        x, y = a[n, c, h, w].item(), b[n, c, 0, w].item()
        wanted = bool(x) != bool(y) if kind == "Xor" else getattr(float(x), relation[kind])(float(y))
        assert got[n, c, h, w] == int(wanted)


@pytest.mark.parametrize("dtype", ["i8", "u8", "f32", "f16"])
def test_where_command(dtype: str) -> None:
    bench = Bench()
    x = numbers((2, 5, 3, 2), dtype)
    mask = (numbers((2, 5, 1, 2), "i8") > 0).astype(np.uint8)
    view = bench.put(mask)
    got = bench.run(isa.Where, condition=view, on_true=bench.put(x), on_false=3.0, output=bench.space(x.shape, dtype))
    for n, c, h, w in np.ndindex(x.shape):
        assert got[n, c, h, w] == (x[n, c, h, w] if mask[n, c, 0, w] else 3)


def test_illegal_comparisons_and_selections_are_refused() -> None:
    bench = Bench()
    byte, real = bench.space((1, 4, 2, 2), "i8"), bench.space((1, 4, 2, 2), "f32")
    common = {"id": 1, "dep": 0, "op": "op"}
    with pytest.raises(CommandError, match="operands of i8, got f32"):
        check(isa.Compare(kind="Less", a=byte, b=real, output=byte, **common), bench.chip)
    with pytest.raises(CommandError, match="an integral constant, got 0.5"):
        check(isa.Compare(kind="Less", a=byte, b=0.5, output=byte, **common), bench.chip)
    with pytest.raises(CommandError, match="operands of f32, got i8"):
        check(isa.Where(condition=byte, on_true=byte, on_false=1.0, output=real, **common), bench.chip)
    with pytest.raises(CommandError, match="to broadcast to"):
        wide = bench.space((1, 4, 2, 3), "i8")
        check(isa.Where(condition=wide, on_true=byte, on_false=1.0, output=byte, **common), bench.chip)


# ------------------------------------------------------------------------------------------------------- whole networks


@pytest.mark.parametrize(("mode", "chip"), one_in(2, product(("int8", "f32"), ("bm1684x", "bm1684", "bm1688"))))
def test_a_network_of_bool_and_index_outputs_is_verified(chip: str, mode: str, tmp_path: Path) -> None:
    """Outputs of type bool and int64 are compared with ONNX Runtime's, and the machine with flat inference."""
    nodes = [
        node("Conv", "x k", "a", pads=[1, 1, 1, 1]), node("Greater", "a w", "mask"), node("Where", "mask a c", "b"),
        node("GlobalAveragePool", "b", "p"), node("ArgMax", "p", "y", axis=1, keepdims=0),
    ]  # fmt: skip
    rng = np.random.default_rng(5)
    constants = {
        "k": rng.normal(0, 1, (8, 3, 3, 3)).astype(np.float32), "w": scalar(0.25), "c": scalar(0.0),
    }  # fmt: skip
    model = network(nodes, constants, 17, INT)({"x": (1, 3, 8, 8)})
    model.graph.output.append(onnx.helper.make_tensor_value_info("mask", BOOL, None))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    feeds = {"x": rng.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    reference = OnnxReference(path, names=["y", "mask"]).run(feeds)
    assert (reference["y"].dtype, reference["mask"].dtype) == (np.int64, np.bool_)
    config = RunConfig(path, LoweringConfig(chip, mode), data="random:4", out=tmp_path / "out")  # type: ignore[arg-type]
    found = run_pipeline(config).comparisons
    assert found["top_vs_onnx"].passed
    tensors = found["top_vs_onnx"].tensors
    assert {"y_ArgMax", "mask_Greater"} <= {t.name for t in tensors if t.bit_exact or t.verdict == "EQUAL"}
    assert found["local_vs_tpu"].passed
    assert found["local_vs_tpu"].bit_exact
