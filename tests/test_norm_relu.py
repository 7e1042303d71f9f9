"""Scale, Relu and Clip on the chips: constants by hand, integers against Python integers, the machine against flat."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from compiling import to_addressed, to_calibrated, to_canonical, to_program, to_tpu, to_tpu_with_fallbacks
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from plain_names import import_onnx
from xdsl.ir import Operation

from tpusim import chips
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.errors import UnsupportedError
from tpusim.inference import run
from tpusim.interfaces import ask
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.module import Model
from tpusim.ir.types import uniform_of
from tpusim.lowering.lower import Fallback
from tpusim.ops.conv import TpuConv2D
from tpusim.ops.framework.base import QuantParams
from tpusim.ops.interfaces import IntegerLowering
from tpusim.ops.norm.tpu import TpuScale, integer_scale
from tpusim.ops.relu import TopRelu, TpuRelu
from tpusim.ops.view import TpuReshape
from tpusim.simulator import Simulator, SimulatorOptions

CHIPS = ("bm1684x", "bm1684")


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), output.split(), name=output, **attributes)


def imported(nodes: list[onnx.NodeProto], shape: tuple[int, ...], weights: dict[str, np.ndarray]) -> Model:
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    return import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def lowered(model: Model, x: np.ndarray, chip: str, mode: str) -> tuple[Model, list[Fallback]]:
    """The tpu module, with thresholds from the sample itself."""
    top = to_canonical(model)
    if mode == "int8":
        values = {"x": x, **run(top, {"x": x})}
        entries = {
            n: Entry(float(np.abs(v).max()), float(v.min()), float(v.max())) for n, v in values.items()
        }  # fmt: skip
        top = to_calibrated(top, CalibrationTable(entries))
    return to_tpu_with_fallbacks(top, chip, mode)


def on_the_machine(tpu: Model, x: np.ndarray, dma: str) -> dict[str, np.ndarray]:
    final = to_addressed(tpu, "off")
    return Simulator(to_program(final), options=SimulatorOptions(dma=dma)).run({"x": x}).tensors  # type: ignore[arg-type]


def assert_machine_is_flat(tpu: Model, x: np.ndarray, dma: str = "early") -> dict[str, np.ndarray]:
    """Every tensor, bit for bit; a float multiply-add may be contracted in the flat kernel, so it has 1e-6."""
    flat, machine = run(tpu, {"x": x}), on_the_machine(tpu, x, dma)
    views = {op_name(op) for op in tpu.ops if isinstance(op, TpuReshape)}
    assert machine.keys() >= flat.keys() - views - {"x"}
    for name in flat.keys() - views - {"x"}:
        if isinstance(op_called(tpu, name), TpuScale | TpuConv2D) and flat[name].dtype == np.float32:
            np.testing.assert_allclose(machine[name], flat[name], rtol=1e-6, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(machine[name], flat[name], err_msg=name)
    return flat


def op_called(model: Model, name: str) -> Operation:
    return next(op for op in model.ops if op_name(op) == name)


# --------------------------------------------------------------------------------------------------- constants of Scale

S8 = QuantParams.of(0.1, 0, signed=True)


@pytest.mark.parametrize(
    ("scale", "bias", "m", "b", "r"),
    [
        (0.5, 1.0, 64, 1280 + 64, 7),  # 127/0.5 = 254: r = 7; 1/0.1 * 2^7; half a unit is 2^6
        (-0.5, -1.0, -64, -1280 + 64, 7),
        (1.0, 0.0, 64, 32, 6),
        (0.0, 1.0, 0, 20480 + 1024, 11),  # r = 31 until 10 * 2^r fits 16 bits
        (0.5, 1000.0, 1, 20000 + 1, 1),  # 10000 * 2^2 leaves 16 bits
        (0.5, 25.59, 64, 32755, 7),  # adding 2^6 would overflow: the rounding is lost
        (300.0, 0.0, 75, 0, -2),  # a left shift: 300 = 75 * 4
        (1.0, 1e6, 1, 32767, 0),  # a bias that never fits saturates
    ],
)
def test_constants_by_hand(scale: float, bias: float, m: int, b: int, r: int) -> None:
    found = integer_scale(np.array([scale], np.float32), np.array([bias], np.float32), S8, S8)
    assert found is not None
    assert (found.scale[0], found.bias[0], found.rshift[0]) == (m, b, r)
    assert (found.scale.dtype, found.bias.dtype, found.rshift.dtype) == (np.int8, np.int16, np.int32)


def test_a_zero_point_goes_into_the_bias() -> None:
    found = integer_scale(np.array([0.5]), np.array([1.0]), QuantParams.of(0.1, 10, signed=False), S8)
    assert found is not None
    assert found.bias[0] == 1280 - 64 * 10 + 64
    assert integer_scale(np.array([1.0]), np.array([1e6]), QuantParams.of(0.1, 10, signed=False), S8) is None


@given(
    st.floats(-20, 20, width=32), st.floats(-50, 50, width=32), st.floats(0.01, 1), st.floats(0.01, 1),
    st.lists(st.integers(-128, 127), min_size=1, max_size=20),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_the_integer_form_is_close_to_the_float_one(
    scale: float, bias: float, s_in: float, s_out: float, q: list[int]
) -> None:
    """Within the 8-bit multiplier's error and one rounding, wherever neither result nor multiplier saturates."""
    x, y = QuantParams.of(s_in, 0, signed=True), QuantParams.of(s_out, 0, signed=True)
    found = integer_scale(np.array([scale], np.float32), np.array([bias], np.float32), x, y)
    assert found is not None
    m, b, r = int(found.scale[0]), int(found.bias[0]), int(found.rshift[0])
    exact = (np.array(q) * s_in * np.float64(np.float32(scale)) + np.float64(np.float32(bias))) / s_out
    if abs(scale) * s_in / s_out > 127:
        return
    got = (np.array(q) * m + b) >> r
    slack = 0.51 * np.abs(q) / 2.0**r + 1.01
    assert (np.abs(got - exact) <= slack).all()


# ------------------------------------------------------------------------------------------------------ Scale on a chip

SHAPES = [(2, 5), (2, 5, 3), (3, 70, 5, 7), (2, 5, 3, 2, 4), (2, 5, 3, 2, 2, 2)]


def scale_net(shape: tuple[int, ...], relu: str | None = None) -> Model:
    c = shape[1]
    weights = {name: floats(c, seed=i) for i, name in enumerate("gbmv")}
    weights["v"] = np.abs(weights["v"]) + np.float32(0.1)
    nodes = [node("BatchNormalization", "x g b m v", "n" if relu else "y")]
    if relu:
        weights |= {"lo": np.array(0, np.float32), "hi": np.array(0.5, np.float32)}
        nodes.append(node("Clip", "n lo hi", "y") if relu == "limit" else node("Relu", "n", "y"))
    return imported(nodes, shape, weights)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("relu", [None, "plain"])
@pytest.mark.parametrize("shape", SHAPES)
def test_integer_scale(chip: str, relu: str | None, shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    tpu, fallbacks = lowered(scale_net(shape, relu), x, chip, "int8")
    assert not fallbacks
    flat = assert_machine_is_flat(tpu, x)
    if chip == "bm1684x" and len(shape) in (3, 4):  # a depthwise convolution on this chip, with one scale per channel
        assert any(isinstance(op, TpuConv2D) and op.groups == shape[1] for op in tpu.ops)
        return
    op = op_called(tpu, "y")
    q = flat[next(n for n in flat if n.startswith("xy_"))].astype(object)
    m, b, r = (tpu.weights[f"y_{k}"].astype(object) for k in ("int8", "bias_int16", "rshift"))
    m, b, r = (v.reshape(1, -1, *[1] * (len(shape) - 2)) for v in (m, b, r))
    signed = uniform_of(op.results[0]).signed  # type: ignore[union-attr]
    total = q * m + b
    if chip == "bm1684":
        total = np.clip(total, *((-32768, 32767) if signed else (0, 65535)))
    expected = np.clip(total >> r, *((-128, 127) if signed else (0, 255)))
    expected = np.maximum(expected, 0) if relu else expected
    np.testing.assert_array_equal(flat["y"].astype(object), expected)
    assert signed == (relu is None)


@pytest.mark.parametrize("relu", [None, "plain", "limit"])
@pytest.mark.parametrize("shape", SHAPES)
def test_float_scale(relu: str | None, shape: tuple[int, ...]) -> None:
    x = 2 * floats(*shape)
    model = scale_net(shape, relu)
    tpu, _ = lowered(model, x, "bm1684x", "f32")
    flat = assert_machine_is_flat(tpu, x, "late")
    np.testing.assert_allclose(flat["y"], run(model, {"x": x})["y"], rtol=1e-5, atol=1e-5)
    if relu == "limit":
        assert flat["y"].max() == 0.5


@pytest.mark.parametrize(
    ("op", "shape", "constant", "ranges", "filter", "bias", "multipliers", "rshifts"),
    [
        ("Mul", (1, 4, 6, 8), [2.040919065475464, -2.5556650161743164, 0.4180988371372223, -0.5677695870399475],
         (2.1893456, 5.6171107), [127, -127, 127, -127], [0] * 4, [840685, 2105433, 1377769, 935491], [27, 28, 30, 29]),
        ("Add", (1, 4, 10), [-0.4526492953300476, -0.21559716761112213, -2.019986152648926, -0.2319323718547821],
         (2.1300058, 3.5587091), [1] * 4, [-27, -13, -120, -14], [5020861] * 4, [23] * 4),
    ],
)  # fmt: skip
def test_a_scale_is_the_convolution_that_tpu_mlir_makes_of_it(
    op: str, shape: tuple[int, ...], constant: list[float], ranges: tuple[float, float], filter: list[int],
    bias: list[int], multipliers: list[int], rshifts: list[int],
) -> None:  # fmt: skip
    """Integers that model_deploy.py of TPU-MLIR 1.30.2 wrote for bm1684x."""
    weights = {"w": np.array(constant, np.float32).reshape(4, *[1] * (len(shape) - 2))}
    top = to_canonical(imported([node(op, "x w", "y")], shape, weights))
    table = CalibrationTable({n: Entry(th, -th, th) for n, th in zip("xy", ranges, strict=True)})
    tpu, fallbacks = to_tpu_with_fallbacks(top, "bm1684x", ranges=table)
    assert not fallbacks
    (conv,) = [op for op in tpu.ops if op.name == "tpu.Conv2D"]
    stored = [tpu.weights[op_name(v.owner)].reshape(-1).tolist() for v in conv.operands[1:]]  # type: ignore[arg-type]
    assert stored == [filter, bias]
    assert (ints(conv.attributes["multiplier"]), ints(conv.attributes["rshift"])) == (
        tuple(multipliers),
        tuple(rshifts),
    )


def test_batch_norm_is_not_lowered() -> None:
    with pytest.raises(UnsupportedError, match=r"top\.BatchNorm 'y'.*run canonicalize first"):
        to_tpu(scale_net((2, 5)), mode="f32")


# ---------------------------------------------------------------------------------------------------------------- Relu


def relu_net(shape: tuple[int, ...]) -> Model:
    """A Relu that cannot be fused and whose range may not go backward: what it reads is used twice."""
    return imported([node("Add", "x x", "a"), node("Relu", "a", "r"), node("Add", "a r", "y")], shape, {})


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(2, 5), (3, 70, 5, 7), (2, 5, 3, 2)])
def test_integer_relu(chip: str, shape: tuple[int, ...]) -> None:
    x = floats(*shape)
    tpu, fallbacks = lowered(relu_net(shape), x, chip, "int8")
    assert not fallbacks
    flat = assert_machine_is_flat(tpu, x)
    op = op_called(tpu, "r")
    assert isinstance(op, TpuRelu)
    np.testing.assert_array_equal(flat["r"], np.maximum(flat["a"], 0))
    given_shift = (op.multiplier and op.multiplier.value.data, op.rshift and op.rshift.value.data)
    assert given_shift == ((64, 6) if chip == "bm1684" else (None, None))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 2, 3, 2, 2, 2)])
def test_relu_of_the_input_is_a_byte_move_of_an_unsigned_tensor(chip: str, shape: tuple[int, ...]) -> None:
    """Its range goes backward to the input, which is quantised without negatives already."""
    x = floats(*shape)
    tpu, fallbacks = lowered(imported([node("Relu", "x", "y")], x.shape, {}), x, chip, "int8")
    assert not fallbacks
    flat = assert_machine_is_flat(tpu, x)
    assert flat["y"].dtype == np.uint8
    positive = np.maximum(x, 0)
    np.testing.assert_array_equal(flat["y"], np.floor(positive / (positive.max() / 255) + 0.5))


def test_float_relu_with_a_limit() -> None:
    weights = {"lo": np.array(0, np.float32), "hi": np.array(0.75, np.float32)}
    x = floats(2, 3, 4, 4)
    tpu, _ = lowered(imported([node("Clip", "x lo hi", "y")], x.shape, weights), x, "bm1684x", "f32")
    assert isinstance(op_called(tpu, "y"), TpuRelu)
    np.testing.assert_array_equal(assert_machine_is_flat(tpu, x)["y"], np.clip(x, 0, np.float32(0.75)))


@pytest.mark.parametrize(
    ("chip", "x", "y", "expected"),
    [
        ("bm1684x", S8, S8, {}),
        ("bm1684x", S8, QuantParams.of(0.05, 0, signed=False), "one scale for input and output, got 0.1 and 0.05"),
        ("bm1684x", QuantParams.of(0.1, 3, signed=True), S8, "zero points"),
        ("bm1684", None, S8, "not calibrated"),
        ("bm1684", S8, QuantParams.of(0.05, 0, signed=False), (64, 5)),
        ("bm1684", S8, QuantParams.of(0.0005, 0, signed=False), (127, 0)),
    ],
)
def test_what_an_integer_relu_needs(chip: str, x: QuantParams | None, y: QuantParams, expected: object) -> None:
    model = imported([node("Relu", "x", "y")], (1, 2), {})
    op = op_called(model, "y")
    assert isinstance(op, TopRelu)
    quants = {op.input: x, op.output: y}
    ctx = SimpleNamespace(
        chip=chips.load(chip),
        asymmetric=any(q is not None and q.zero_point for q in quants.values()),
        quant=lambda value: quants[value],
        operand=lambda *_: None,
        quantised_type=lambda _: None,
        build=lambda cls, operands, attributes, *rest: attributes,
    )
    found = ask(op, IntegerLowering, ctx.chip).lower_integer(ctx)  # type: ignore[arg-type]
    if isinstance(expected, str):
        assert isinstance(found, str)
        assert expected in found
    elif isinstance(expected, tuple):
        assert isinstance(found, dict)
        assert tuple(found[k].value.data for k in ("multiplier", "rshift")) == expected  # type: ignore[attr-defined]
    else:
        assert found == expected


# ---------------------------------------------------------------------------------------------------------------- Clip


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("mode", ["int8", "f32"])
@pytest.mark.parametrize("shape", [(2, 5), (3, 70, 5, 7), (2, 2, 3, 2, 2, 2)])
def test_clip_runs_in_float(chip: str, mode: str, shape: tuple[int, ...]) -> None:
    weights = {"lo": np.array(-0.5, np.float32), "hi": np.array(0.25, np.float32)}
    x = floats(*shape)
    tpu, fallbacks = lowered(imported([node("Clip", "x lo hi", "y")], shape, weights), x, chip, mode)
    whole = chip != "bm1684"
    why = ["Clip has no integer form (numerics.md 12.1)"] if whole else ["input or output is not calibrated"] * 2
    assert [f.why for f in fallbacks] == (why if mode == "int8" else [])
    flat = assert_machine_is_flat(tpu, x)
    kind = flat["y"].dtype  # in INT8 mode the chip's 16-bit float, where it has one
    narrow = kind == (np.float16 if mode == "int8" and chip == "bm1684x" else np.float32)
    assert narrow
    np.testing.assert_array_equal(flat["y"], np.clip(x.astype(kind), kind.type(-0.5), kind.type(0.25)))
