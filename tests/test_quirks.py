"""Upstream's quirks as switches: what each changes in the compiled constants, with a warning (DN-02, 17.2)."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from builders.calibrated import ranged
from compiling import to_calibrated, to_canonical, to_program, to_tpu
from op_row import network, node
from plain_names import import_onnx
from rows import canonical, table

from tpusim.canonicalize import canonicalize
from tpusim.compat import Quirk
from tpusim.errors import ConfigError
from tpusim.fidelity.spec import DECISIONS
from tpusim.frontend import OnnxReference
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import flag, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import set_type, tensor, uniform_of
from tpusim.ir.weights import WeightStore
from tpusim.lowering.lower import Lowering
from tpusim.simulator import Simulator

Quirks = tuple[str, ...]


def lowered(top: Model, off: Quirks = (), *, asymmetric: bool = False) -> Model:
    return to_tpu(top, "bm1684x", "int8", asymmetric=asymmetric, quirks_off=off)


def named(model: Model, kind: str) -> object:
    return next(op for op in model.ops if op.name == kind)


def marks(op: object) -> str:
    return str(op.attributes.get("tpusim.decisions", ""))  # type: ignore[attr-defined]


def error_of(tpu: Model, top: Model, feeds: dict[str, np.ndarray]) -> float:
    """Largest error of the result."""
    real, wanted = dequantised(tpu, run(tpu, feeds)), run(top, feeds)
    name = value_name(top.results[0])
    return float(np.abs(real[name] - wanted[name]).max())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no_quirk is no quirk; expected some of\n  U-01 uint8_filter_zp_zero"):
        lowered(to_calibrated(canonical("add"), table("add")), ("no_quirk",))


def test_zero_point_term_of_an_unsigned_filter(caplog: pytest.LogCaptureFixture) -> None:
    weight = np.random.default_rng(1).uniform(0.1, 1, (12, 5, 3, 3)).astype(np.float32)
    plain = to_canonical(import_onnx(network([node("Conv", "x w")], {"w": weight})({"x": (3, 5, 6, 5)})))
    feeds = {"x": np.random.default_rng(2).uniform(-1, 3, (3, 5, 6, 5)).astype(np.float32)}
    high = float(run(plain, feeds)["y"].max())
    top = ranged(plain.clone(), {"x": (-1.0, 3.0), "y": (-1.0, high)})
    with caplog.at_level(logging.WARNING):
        theirs = lowered(top, asymmetric=True)
    assert "uint8_filter_zp_zero" in caplog.text
    assert "'y'" in caplog.text
    caplog.clear()
    ours = lowered(top, ("uint8_filter_zp_zero",), asymmetric=True)
    assert not caplog.text
    assert "uint8_filter_zp_zero" in marks(named(theirs, "tpu.Conv2D"))
    assert not marks(named(ours, "tpu.Conv2D"))
    bias = [named(m, "tpu.Conv2D").operands[2] for m in (theirs, ours)]  # type: ignore[attr-defined]
    stored = [m.weights[value_name(b)] for m, b in zip((theirs, ours), bias, strict=True)]
    filter_sums = ours.weights["w_int8"].astype(np.int64).reshape(12, -1).sum(1)
    zero = uniform_of(named(ours, "tpu.Conv2D").operands[0]).zero_point.value.data  # type: ignore[attr-defined, union-attr]
    assert not stored[0].any()
    np.testing.assert_array_equal(stored[1], -zero * filter_sums)
    assert zero
    assert error_of(ours, plain, feeds) < 0.1 * high < error_of(theirs, plain, feeds)


def test_zero_point_term_of_a_transposed_weight() -> None:
    """K x N read from the bytes of N x K."""
    weight = np.random.default_rng(2).normal(0, 1, (4, 6)).astype(np.float32)
    top = to_canonical(import_onnx(network([node("MatMul", "x w")], {"w": weight})({"x": (3, 4)})))
    product = next(op for op in top.ops if op.name == "top.MatMul")
    name = value_name(product.operands[1])
    turned = np.ascontiguousarray(weight.T)
    set_type(product.operands[1], tensor((6, 4)))
    top = Model(top.module, WeightStore({name: turned}))
    product.attributes["right_transpose"] = flag(True)
    ranged(top, {"x": (-1.0, 3.0), "y": (-8.0, 9.0)})
    theirs = lowered(top, asymmetric=True)
    ours = lowered(top, ("matmul_transposed_zp_index",), asymmetric=True)
    stored = ours.weights[name + "_int8"].astype(np.int64)
    zero = uniform_of(named(ours, "tpu.MatMul").operands[0]).zero_point.value.data  # type: ignore[attr-defined, union-attr]
    np.testing.assert_array_equal(ours.weights["y_bias_int32"], -zero * stored.sum(1))
    np.testing.assert_array_equal(theirs.weights["y_bias_int32"], -zero * stored.reshape(-1).reshape(4, 6).sum(0))
    assert marks(named(theirs, "tpu.MatMul"))
    feeds = {"x": np.random.default_rng(3).uniform(-1, 3, (3, 4)).astype(np.float32)}
    assert error_of(ours, top, feeds) < 0.3 < error_of(theirs, top, feeds)


def test_integer_averages_without_padding_run_in_float_with_the_quirk_off() -> None:
    nodes = [node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    top = to_canonical(import_onnx(network(nodes)({"x": (1, 2, 6, 6)})))
    ranged(top, {"x": (-1.0, 1.0), "y": (-1.0, 1.0)})
    pools = [named(lowered(top, off), "tpu.Pool2D").results[0] for off in ((), ("avgpool_full_kernel",))]  # type: ignore[attr-defined]
    assert [uniform_of(v) is not None for v in pools] == [True, False]


@pytest.mark.parametrize(("low", "high", "corner"), [(-1.0, 3.0, 4 / 9), (-1.28, 1.27, 1.0)])
def test_padding_counts_in_an_average_with_a_zero_point(low: float, high: float, corner: float) -> None:
    """A corner of ones sees four of nine places; a zero point that is 0 leaves the others out, as without one."""
    nodes = [node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    top = to_canonical(import_onnx(network(nodes)({"x": (1, 2, 6, 6)})))
    ranged(top, {"x": (low, high), "y": (low, high)})
    found = [
        dequantised(tpu, run(tpu, {"x": np.ones((1, 2, 6, 6), np.float32)}))["y"]
        for tpu in (lowered(top, off, asymmetric=True) for off in ((), ("avgpool_full_kernel",)))
    ]
    for y, wanted in zip(found, (corner, 1.0), strict=True):
        assert abs(y[0, 0, 0, 0] - wanted) < 0.01
        assert abs(y[0, 0, 2, 2] - 1) < 0.01


def test_ties_of_the_constants_of_where(caplog: pytest.LogCaptureFixture) -> None:
    """-2.5 steps are -3 half away from zero, -2 half up."""
    nodes = [node("Greater", "z w", "m"), node("Where", "m x c")]
    constants = {"w": np.array(0, np.float32), "c": np.array(-2.5, np.float32)}
    shapes = {"x": (2, 5, 6), "z": (2, 5, 6)}
    top = to_canonical(import_onnx(network(nodes, constants)(shapes)))
    ranged(top, {"x": (-127.0, 127.0), "z": (-1.0, 1.0), "m": (0.0, 1.0), "y": (-127.0, 127.0)})
    with caplog.at_level(logging.WARNING):
        found = [
            named(lowered(top, off), "tpu.Where").y_const_val.value.data  # type: ignore[attr-defined]
            for off in ((), ("where_const_no_round_mode",))
        ]
    assert found == [-3.0, -2.0]
    assert caplog.text.count("quirks_off=where_const_no_round_mode") == 1
    assert op_name(named(lowered(top), "tpu.Where")) == "y"  # type: ignore[arg-type]


def test_bytes_of_a_branch_with_another_scale() -> None:
    """The second Where of x keeps x's bytes, which have the range of the first Where; off: it runs in float."""
    nodes = [node("Greater", "z w", "m"), node("Where", "m x c", "a"), node("Where", "m x z", "b"), node("Add", "a b")]
    constants = {"w": np.array(0, np.float32), "c": np.array(5.0, np.float32)}
    top = to_canonical(import_onnx(network(nodes, constants)({"x": (2, 5, 6), "z": (2, 5, 6)})))
    ranged(top, {n: (-1.0, 1.0) for n in "xzb"} | {"m": (0.0, 1.0), "a": (-1.0, 5.0), "y": (-2.0, 6.0)})
    theirs, ours = lowered(top), lowered(top, ("where_raw_bytes",))
    feeds = {"x": np.full((2, 5, 6), 0.8, np.float32), "z": np.full((2, 5, 6), 0.5, np.float32)}
    assert set(run(theirs, feeds)["b"].ravel().tolist()) == {20}  # round(0.8 * 127 / 5), read with a scale of 1 / 127
    assert "where_raw_bytes" in marks(next(op for op in theirs.ops if op_name(op) == "b"))
    np.testing.assert_array_equal(run(ours, feeds)["b"], feeds["x"])


@pytest.mark.parametrize(
    ("axis", "shape"), [(1, (2, 5, 6)), (2, (2, 5, 6)), (1, (2, 5, 6, 3)), (3, (2, 5, 3, 6)), (0, (5, 3))]
)
def test_bytes_of_a_cyclic_shift_with_another_scale(axis: int, shape: tuple[int, ...]) -> None:
    """The shift keeps the bytes of x, which count hundredths; the result's count two of them. Off: they are halved."""
    nodes = [node("Slice", "x two far at", "b"), node("Slice", "x zero two at", "c"), node("Concat", "b c", axis=axis)]
    constants = {"two": np.array([2]), "far": np.array([99]), "zero": np.array([0]), "at": np.array([axis])}
    top = to_canonical(import_onnx(network(nodes, constants)({"x": shape})))
    ranged(top, {"x": (-1.27, 1.27)} | {n: (-2.54, 2.54) for n in "bcy"})
    theirs, ours = lowered(top), lowered(top, ("moved_raw_bytes",))
    halves = np.random.default_rng(0).integers(-63, 64, shape)
    feeds = {"x": (halves / 50).astype(np.float32)}
    np.testing.assert_array_equal(run(theirs, feeds)["y"], np.roll(2 * halves, -2, axis))
    assert "moved_raw_bytes" in marks(named(theirs, "tpu.SwapDimInner"))
    np.testing.assert_array_equal(run(ours, feeds)["y"], np.roll(halves, -2, axis))


def test_relu_behind_a_product_with_a_number() -> None:
    nodes = [node("Mul", "x w", "a"), node("Relu", "a")]
    top = to_canonical(import_onnx(network(nodes, {"w": np.array(2.0, np.float32)})({"x": (2, 5, 6)})))
    ranged(top, {"x": (-127.0, 127.0), "y": (0.0, 254.0)})
    feeds = {"x": np.full((2, 5, 6), -3.0, np.float32)}
    theirs, ours = (lowered(top, off) for off in ((), ("mulshift_without_relu",)))
    assert [named(m, kind).results[0].type.shape for m, kind in ((theirs, "tpu.MulShift"), (ours, "tpu.MulConst"))]  # type: ignore[attr-defined]
    assert [set(run(m, feeds)["y"].ravel().tolist()) for m in (theirs, ours)] == [{-3}, {0}]


def test_zero_point_of_a_maximum_with_a_number() -> None:
    top = to_canonical(import_onnx(network([node("Max", "x w")], {"w": np.array(10, np.float32)})({"x": (2, 5, 6)})))
    ranged(top, {"x": (-100.0, 155.0), "y": (-100.0, 155.0)})
    constants = [
        named(lowered(top, off, asymmetric=True), "tpu.MaxConst").const_val.value.data  # type: ignore[attr-defined]
        for off in ((), ("extreme_without_zero_point",))
    ]
    assert constants == [10.0, -18.0]


def test_bools_with_zero_points() -> None:
    nodes = [node("Greater", "z w", "m"), node("Cast", "m", "f", to=1), node("Mul", "x f")]
    constants = {"w": np.array(0, np.float32)}
    top = to_canonical(import_onnx(network(nodes, constants)({"x": (2, 5, 6), "z": (2, 5, 6)})))
    ranged(top, {"x": (-1.0, 1.0), "z": (-1.0, 1.0), "m": (0.0, 1.0), "y": (-1.0, 1.0)})
    products = [named(lowered(top, off, asymmetric=True), "tpu.Mul") for off in ((), ("asymmetric_bools",))]
    factors = [p.multiplier.value.data / 2.0**p.rshift.value.data for p in products]  # type: ignore[attr-defined]
    assert factors == [pytest.approx(1 / 255, rel=0.01), 1.0]


def test_type_of_a_maximum_without_multipliers() -> None:
    top = to_canonical(import_onnx(network([node("Max", "x z")])({"x": (2, 5, 6), "z": (2, 5, 6)})))
    ranged(top, {"x": (-1.0, 2.0), "z": (-1.0, 2.0), "y": (-1.0, 2.0)})
    for off, expected in (((), (3 / 255, -43)), (("asymmetric_max_on_bm1684",), (2 / 127, 0))):
        tpu = to_tpu(top, "bm1684", "int8", quirks_off=off)
        uniform = uniform_of(named(tpu, "tpu.Max").results[0])  # type: ignore[attr-defined]
        assert uniform is not None
        assert (uniform.scale.data, uniform.zero_point.value.data) == (pytest.approx(expected[0]), expected[1])


def test_halves_in_the_table_of_round(caplog: pytest.LogCaptureFixture) -> None:
    """2.5 is at a byte of the grid of 1/2, and 2 or 3 at the result's; a grid without halves has one table only."""
    top = to_canonical(import_onnx(network([node("Round", "x")])({"x": (2, 5, 6)})))
    ranged(top, {"x": (-63.5, 63.5), "y": (-127.0, 127.0)})
    with caplog.at_level(logging.WARNING):
        theirs, ours = lowered(top), lowered(top, ("round_half_away",))
    tables = [model.weights["y_table"].reshape(-1)[[5, 251, 7, 4]].tolist() for model in (theirs, ours)]
    assert tables == [[3, -3, 4, 2], [2, -2, 4, 2]]
    assert caplog.text.count("quirks_off=round_half_away") == 1
    assert [bool(marks(named(model, "tpu.Lut"))) for model in (theirs, ours)] == [True, False]
    ranged(top, {"x": (-42.0, 42.0), "y": (-127.0, 127.0)})
    assert not marks(named(lowered(top), "tpu.Lut"))


def test_a_misspelt_quirk_is_no_quirk() -> None:
    """Neither for code that asks whether it is reproduced, nor in the specification's table of marks."""
    lowering: Any = SimpleNamespace(_quirks_off=frozenset({Quirk.WHERE_RAW_BYTES}))
    assert [Lowering.reproduces(lowering, quirk) for quirk in Quirk] == [q != "where_raw_bytes" for q in Quirk]
    for name in ("where_raw_byte", "WHERE_RAW_BYTES", "", "DN-02 where_raw_bytes", "round_half_away "):
        with pytest.raises(ValueError, match="is not a valid Quirk"):
            Lowering.reproduces(lowering, name)  # type: ignore[arg-type]
    marked = {text.removeprefix("DN-02 ") for text in DECISIONS if text.startswith("DN-02 ")}
    assert marked and marked <= set(Quirk)


def test_every_quirk_states_what_it_does() -> None:
    assert all("; off: " in text for text in (quirk.effect for quirk in Quirk))


def test_resize_steps_of_sizes(caplog: pytest.LogCaptureFixture) -> None:
    """10 rows of 7 at a scale of 1.5: the seventh output place is not where the model says."""
    scales = {"s": np.float32([1, 1, 1.5, 1.5])}
    top = to_canonical(import_onnx(network([node("Resize", "x - s", mode="linear")], scales)({"x": (1, 2, 7, 7)})))
    with caplog.at_level(logging.WARNING):
        theirs = to_tpu(top, "bm1684x", "f32")
    assert "resize_steps_of_sizes" in caplog.text
    ours = to_tpu(top, "bm1684x", "f32", quirks_off=("resize_steps_of_sizes",))
    steps = [named(m, "tpu.Interp").attributes["scale_h"].value.data for m in (theirs, ours)]  # type: ignore[attr-defined]
    assert steps == [float(np.float32(7) / np.float32(10)), float(np.float32(1 / 1.5))]


def test_instance_norm_of_the_host(caplog: pytest.LogCaptureFixture) -> None:
    """CV18xx: (x - mean/w)/sqrt(variance/w + eps) + b with w the first weight; off: every channel by its weight."""
    w, b = np.array([0.5, 2.0], np.float32), np.array([0.25, -1.0], np.float32)
    build = network([node("InstanceNormalization", "x w b")], {"w": w, "b": b}, 17)
    top = to_canonical(import_onnx(build({"x": (2, 2, 3, 4)})))
    feeds = {"x": np.random.default_rng(5).normal(1, 2, (2, 2, 3, 4)).astype(np.float32)}
    calibrated = ranged(top.clone(), {"x": (-8.0, 8.0), "y": (-8.0, 8.0)})
    with caplog.at_level(logging.WARNING):
        theirs = to_tpu(calibrated, "cv183x")
    assert "instance_norm_on_host" in caplog.text
    assert "instance_norm_on_host" in marks(named(theirs, "tpu.InstanceNorm"))
    caplog.clear()
    ours = to_tpu(calibrated, "cv183x", quirks_off=("instance_norm_on_host",))
    assert not caplog.text
    assert not marks(named(ours, "tpu.InstanceNorm"))
    mean, variance = feeds["x"].mean((2, 3), keepdims=True), feeds["x"].var((2, 3), keepdims=True)
    by_hand = (feeds["x"] - mean / 0.5) / np.sqrt(variance / 0.5 + 1e-5) + b.reshape(1, 2, 1, 1)
    for tpu, wanted in ((theirs, by_hand), (ours, run(top, feeds)["y"])):
        np.testing.assert_allclose(run(tpu, feeds)["y"], wanted, rtol=1e-5, atol=1e-5)
        program = to_program(tpu)
        np.testing.assert_allclose(Simulator(program).run(feeds).tensors["y"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("modes", "opset", "linear"),
    [
        ({"mode": "cubic"}, 18, {}),
        ({"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, 18,
         {"coordinate_transformation_mode": "align_corners"}),
        ({"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}, 18, {}),
        ({"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, 18, {}),
        ({"mode": "linear"}, 10, {}),
    ],
)  # fmt: skip
def test_modes_of_resize(
    modes: dict[str, Any], opset: int, linear: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the quirk what ONNX Runtime gives for linear modes, as model_transform.py takes them; without, ONNX's."""
    scales = {"s": np.array([1, 1, 2, 1.5], np.float32)}

    def resized(opset: int, **attributes: Any) -> onnx.ModelProto:
        operands = "x s" if opset < 11 else "x - s"
        return network([node("Resize", operands, **attributes)], scales, opset)({"x": (1, 2, 3, 4)})

    feeds = {"x": np.random.default_rng(2).standard_normal((1, 2, 3, 4)).astype(np.float32)}
    models = (resized(opset, **modes), resized(18, mode="linear", **linear))
    wanted, theirs = (OnnxReference(m, threads=1).run(feeds)["y"] for m in models)
    top = import_onnx(resized(opset, **modes))
    with caplog.at_level(logging.WARNING):
        canonical = to_canonical(top)
    assert caplog.text.count("quirks_off=resize_modes") == 1
    (op,) = [o for o in canonical.ops if o.name == "top.Interp"]
    np.testing.assert_allclose(run(canonical, feeds)["y"], theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run(top, feeds)["y"], wanted, rtol=1e-4, atol=1e-5)
    mended = canonicalize(top, quirks_off=["resize_modes"])[0]
    np.testing.assert_allclose(run(mended, feeds)["y"], wanted, rtol=1e-4, atol=1e-5)
    assert op_name(op) == "y" and not any(o.name == "top.Interp" for o in mended.ops)
    ranged(canonical, {"x": (-2.0, 2.0), "y": (-2.0, 2.0)})
    assert any("DN-02 resize_modes" in str(o.attributes) for o in lowered(canonical).ops)


@pytest.mark.parametrize(
    "coordinates, rounding, size, rows, columns, warned",
    [
        ("asymmetric", "floor", (5, 3), [0, 0, 1, 1, 2], [0, 1, 2], False),
        ("asymmetric", "ceil", (5, 3), [0, 0, 1, 1, 2], [0, 1, 2], True),
        ("half_pixel", "round_prefer_floor", (2, 6), [0, 2], [0, 1, 1, 2, 2, 3], True),
        ("pytorch_half_pixel", "floor", (1, 2), [0], [0, 3], True),
        ("align_corners", "round_prefer_ceil", (4, 5), [0, 1, 1, 2], [0, 1, 2, 2, 3], False),
        ("half_pixel", "ceil", (6, 8), [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2, 3, 3], True),
        ("asymmetric", "floor", (6, 12), [0, 0, 1, 1, 2, 2], [*np.repeat(np.arange(4), 3)], False),
    ],
)  # fmt: skip
def test_nearest_resize(
    coordinates: str, rounding: str, size: tuple[int, int], rows: list[int], columns: list[int], warned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """By hand: floor(o*in/out), or o*(in-1)/(out-1) half up, of 3 rows and 4 columns; without the quirk ONNX's."""
    modes = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    proto = network([node("Resize", "x - - s", **modes)], {"s": np.array([1, 2, *size])}, 18)({"x": (1, 2, 3, 4)})
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 2, 3, 4)).astype(np.float32)}
    top = import_onnx(proto)
    with caplog.at_level(logging.WARNING):
        canonical = to_canonical(top)
    assert ("quirks_off=resize_modes" in caplog.text) == warned
    np.testing.assert_array_equal(run(canonical, feeds)["y"], feeds["x"][:, :, rows][:, :, :, columns])
    mended = canonicalize(top, quirks_off=["resize_modes"])[0]
    np.testing.assert_array_equal(run(mended, feeds)["y"], OnnxReference(proto, threads=1).run(feeds)["y"])
    assert not any(o.name == "top.Interp" for o in mended.ops)


@pytest.mark.parametrize(
    ("op", "theirs", "onnx_default"), [("Elu", 0.0, 1.0), ("LeakyRelu", 0.0, 0.01), ("HardSigmoid", 1 / 6, 0.2)]
)
def test_alpha_that_a_node_leaves_out(
    op: str, theirs: float, onnx_default: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Theirs as model_transform.py writes it; the warning names op, attribute and switch, and the op is marked."""
    top = import_onnx(network([node(op, "x")])({"x": (2, 5, 6)}))

    def alpha(model: Model) -> Any:
        return next(o for o in model.ops if o.name == f"top.{op}").attributes["alpha"]

    assert alpha(top).value.data == pytest.approx(onnx_default)
    with caplog.at_level(logging.WARNING):
        canonical = to_canonical(top)
    assert alpha(canonical).value.data == theirs
    assert "has no alpha" in caplog.text and "quirks_off=importer_defaults" in caplog.text
    ranged(canonical, {"x": (-2.0, 2.0), "y": (-2.0, 2.0)})
    assert any("DN-02 importer_defaults" in str(o.attributes) for o in lowered(canonical).ops)
    mended = canonicalize(top, quirks_off=["importer_defaults"])[0]
    assert alpha(mended).value.data == pytest.approx(onnx_default)
    assert "default_alpha" not in str(mended.module)
    stated = to_canonical(import_onnx(network([node(op, "x", alpha=0.7)])({"x": (2, 5, 6)})))
    assert alpha(stated).value.data == pytest.approx(0.7)


@pytest.mark.parametrize(
    "nothing",
    [node("Sum", "a"), node("AveragePool", "a", kernel_shape=[1, 1]), node("Tile", "a ones")],
    ids=lambda node: node.op_type,
)
def test_a_node_that_changes_nothing_leaves_the_alpha_before_it(nothing: onnx.NodeProto) -> None:
    """Its result is the operand, whose alpha it does not have."""
    nodes = [node("LeakyRelu", "x", "a", alpha=0.7), nothing]
    top = to_canonical(import_onnx(network(nodes, {"ones": np.ones(4, np.int64)}, 17)({"x": (1, 2, 3, 4)})))
    (alpha,) = (op.attributes["alpha"] for op in top.ops if op.name == "top.LeakyRelu")
    assert alpha.value.data == pytest.approx(0.7)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("norm", "shape"), [
    (node("LayerNormalization", "x s t"), (2, 5, 1)), (node("GroupNormalization", "x s t", num_groups=1), (2, 1, 6)),
], ids=["layer", "group"])  # fmt: skip
def test_affine_of_one_element(norm: onnx.NodeProto, shape: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    """As model_transform.py leaves it out: the warning names the op and the switch."""
    constants = {"s": np.array([0.5], np.float32), "t": np.array([0.25], np.float32)}
    proto = network([norm], constants, 21)({"x": shape})
    top, feeds = import_onnx(proto), {"x": np.random.default_rng(3).standard_normal(shape).astype(np.float32)}
    with caplog.at_level(logging.WARNING):
        theirs = run(to_canonical(top), feeds)["y"]
    assert caplog.text.count("quirks_off=affine_of_one_element") == 2
    ours = run(canonicalize(top, quirks_off=["affine_of_one_element"])[0], feeds)["y"]
    np.testing.assert_allclose(ours, theirs * np.float32(0.5) + np.float32(0.25), rtol=1e-6)


def test_reciprocal_root_in_the_range_of_the_root(caplog: pytest.LogCaptureFixture) -> None:
    """A quotient by the root of the sum of 32 squares: the root is near 5.6, so that 0.18 has few of its steps."""
    nodes = [node("Mul", "x x", "s"), node("ReduceSum", "s a", "v"), node("Sqrt", "v", "r"), node("Div", "x r")]
    plain = to_canonical(import_onnx(network(nodes, {"a": np.array([2])}, 17)({"x": (2, 4, 32)})))
    feeds = {"x": np.random.default_rng(5).standard_normal((2, 4, 32)).astype(np.float32)}
    top = ranged(plain.clone(), {"x": (-4, 4), "s": (0, 12), "v": (0, 50), "r": (0, 7.1), "y": (-1, 1)})
    with caplog.at_level(logging.WARNING):
        theirs = lowered(top.clone())
    assert "reciprocal_root_in_range_of_root" in caplog.text
    assert marks(named(theirs, "tpu.Lut"))
    ours = lowered(top.clone(), ("reciprocal_root_in_range_of_root",))
    assert named(ours, "tpu.Div")
    assert error_of(ours, plain, feeds) < error_of(theirs, plain, feeds) / 2
