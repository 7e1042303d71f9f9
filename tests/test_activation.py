"""Activation functions on the chips: tables by Python floats, slopes by Python integers, floats by ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import floor
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from compiling import to_addressed, to_calibrated, to_canonical, to_program, to_tpu_with_fallbacks
from hypothesis import given, settings
from hypothesis import strategies as st
from op_row import network, node
from plain_names import import_onnx
from rotation import first_of
from streams import gmem
from tpusim_kernels.activation import FUNCTIONS as KERNELS
from tpusim_kernels.activation import activation_float
from tpusim_kernels.norm import layernorm_bf16
from tpusim_kernels.prim.multiplier import best_fit
from tpusim_kernels.prim.table import FUNCTIONS, Bytes, lookup_table
from xdsl.ir import Operation

from tpusim import chips
from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.canonicalize import canonicalize
from tpusim.errors import ConfigError, SimulationError, UnsupportedError
from tpusim.frontend import OnnxReference
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, shape_of, storage_dtype, uniform_of
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.lowering.lower import Fallback
from tpusim.ops.activation.slope import channel_slopes
from tpusim.ops.activation.tpu import TpuActive, TpuLut, work_bytes
from tpusim.ops.framework.base import NARROWEST, FloatRule, TopOp, logical_shape
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.simulator.activation import ACTIVATIONS
from tpusim.simulator.meanings import function

CHIPS = ("bm1684x", "bm1684")
Array = np.ndarray


# ------------------------------------------------------------------------------------------------------- the networks


def model(
    nodes: list[onnx.NodeProto], shape: Sequence[int], constants: Mapping[str, Array], opset: int
) -> onnx.ModelProto:
    return network(nodes, constants, opset)({"x": tuple(shape)})


def one(
    op: str, x: Array, opset: int = 20, constants: Mapping[str, Array] | None = None, **more: Any
) -> onnx.ModelProto:
    names = " ".join(["x", *(constants or {})])
    return model([node(op, names, **more)], x.shape, constants or {}, opset)


def lowered(proto: onnx.ModelProto, x: Array, chip: str, mode: str, **more: Any) -> tuple[Model, list[Fallback]]:
    """The tpu module, with thresholds from the sample itself."""
    top = to_canonical(import_onnx(proto))
    if mode == "int8":
        tensors = {"x": x, **run(top, {"x": x})}
        entries = {n: Entry(float(np.abs(v).max()), float(v.min()), float(v.max())) for n, v in tensors.items()}
        top = to_calibrated(top, CalibrationTable(entries), asymmetric=more.get("asymmetric", False))
    return to_tpu_with_fallbacks(top, chip, mode, **more)


def machine(tpu: Model, x: Array, dma: str = "late", opt: str = "1") -> dict[str, Array]:
    final = to_addressed(tpu, opt)
    return Simulator(to_program(final), options=SimulatorOptions(dma=dma)).run({"x": x}, watch=True).tensors  # type: ignore[arg-type]


def top_ops(proto: onnx.ModelProto) -> list[TopOp]:
    return [op for op in import_onnx(proto).ops if isinstance(op, TopOp)]


def the(tpu: Model, kind: str) -> Any:
    (found,) = (op for op in tpu.ops if op.name == kind)
    return found


def weight(tpu: Model, op: Operation, index: int) -> Array:
    owner = op.operands[index].owner
    assert isinstance(owner, Operation)
    return tpu.weights[op_name(owner)]


# ------------------------------------------------------------------------------------------------------------- tables

REFERENCE: dict[str, Callable[..., float]] = {
    "ABSVAL": abs,
    "CEIL": math.ceil,
    "FLOOR": math.floor,
    "ROUND": lambda x: math.copysign(math.floor(abs(x) + 0.5), x),
    "ROUND_EVEN": round,
    "SQRT": math.sqrt,
    "RSQRT": lambda x: 1 / math.sqrt(x),
    "SQUARE": lambda x: x**2,
    "EXP": math.exp,
    "LN": math.log,
    "LOG2": math.log2,
    "ERF": math.erf,
    "SIN": math.sin,
    "COS": math.cos,
    "TAN": math.tan,
    "SINH": math.sinh,
    "COSH": math.cosh,
    "TANH": math.tanh,
    "SIGMOID": lambda x: 0.5 * (1 + math.tanh(x / 2)),
    "LOG_SIGMOID": lambda x: -math.log1p(math.exp(-x)),
    "SILU": lambda x: x * 0.5 * (1 + math.tanh(x / 2)),
    "SWISH": lambda x, beta: x * 0.5 * (1 + math.tanh(beta * x / 2)),
    "GELU": lambda x: x * (1 - math.erfc(x / math.sqrt(2)) / 2),
    "TGELU": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "QGELU": lambda x: x * 0.5 * (1 + math.tanh(0.851 * x)),
    "ELU": lambda x, alpha: x if x > 0 else alpha * math.expm1(x),
    "HSIGMOID": lambda x, beta, alpha: max(0.0, min(1.0, alpha * x + beta)),
    "HSWISH": lambda x: x * max(0.0, min(1.0, (x + 3) / 6)),
    "SOFT_PLUS": lambda x: x if x > 20 else math.log1p(math.exp(x)),
    "SOFT_SIGN": lambda x: x / (1 + abs(x)),
    "MISH": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "SIGN": lambda x: (x > 0) - (x < 0),
    "RECIPROCAL": lambda x, c: c / x,
    "POW": math.pow,
}
"""Other formulas of the same functions, in Python floats."""
COEFFS = {"SWISH": (1.5,), "ELU": (0.7,), "HSIGMOID": (0.5, 0.2), "RECIPROCAL": (2.0,), "POW": (3.0,)}
SCALES = [
    (Bytes(0.03, 0, True), Bytes(0.02, 0, True)),
    (Bytes(0.03, 0, True), Bytes(1 / 255, 0, False)),
    (Bytes(0.011, 0, False), Bytes(0.04, 0, True)),
    (Bytes(0.07, -5, True), Bytes(0.03, 11, True)),
    (Bytes(0.02, 17, False), Bytes(0.05, 200, False)),
    (Bytes(1.3, 0, True), Bytes(0.9, 0, True)),
]


def stored(byte: int, signed: bool) -> int:
    return byte - 256 if signed and byte > 127 else byte


def exact_entry(value: float, target: Bytes) -> tuple[int, bool]:
    """(entry, whether it lies on a tie that the last bit of a double can move), rounded half away by fractions."""
    scaled = value / target.scale + target.zero_point
    size = Fraction(abs(scaled))
    whole = floor(size + Fraction(1, 2))
    low, high = (-128, 127) if target.signed else (0, 255)
    near = abs(size - floor(size) - Fraction(1, 2)) < Fraction(1, 10**9)
    return min(max(whole if scaled >= 0 else -whole, low), high), near


@pytest.mark.parametrize("mode", sorted(FUNCTIONS))
@pytest.mark.parametrize("scales", range(len(SCALES)))
def test_table_is_the_function_in_python(mode: str, scales: int) -> None:
    source, target = SCALES[scales]
    coeffs = COEFFS.get(mode, ())
    table = lookup_table(mode, coeffs, source, target)
    assert table.shape == (256,) and table.dtype == (np.int8 if target.signed else np.uint8)
    checked = 0
    for byte in range(256):
        x = (stored(byte, source.signed) - source.zero_point) * source.scale
        try:
            value = REFERENCE[mode](x, *coeffs)
        except (ValueError, ZeroDivisionError, OverflowError):
            continue  # infinite or no number: the next test
        entry, near = exact_entry(value, target)
        if abs(value / target.scale) >= 2**63:
            entry = np.iinfo(table.dtype).min  # DN-19: beyond 64 bits
        assert abs(int(table[byte]) - entry) <= near, (byte, x)
        checked += 1
    assert checked > (120 if mode in ("SQRT", "RSQRT", "LN", "LOG2") else 250)


def test_entries_that_are_no_numbers() -> None:
    """DN-19: what 64 bits do not hold is the smallest byte, as in the tables that TPU-MLIR 1.30.2 prints."""
    source, target = Bytes(0.5, 0, True), Bytes(0.1, 0, True)
    assert lookup_table("LN", (), source, target)[[0, 255, 128, 1]].tolist() == [-128, -128, -128, -7]
    assert lookup_table("RECIPROCAL", (1.0,), source, target)[[0, 1, 255]].tolist() == [-128, 20, -20]
    assert lookup_table("RECIPROCAL", (-1.0,), source, target)[0] == -128
    assert lookup_table("SQRT", (), source, Bytes(0.1, 3, True))[[255, 0, 2]].tolist() == [-128, 3, 13]
    byte = Bytes(1 / 255, 0, False)
    assert lookup_table("EXP", (), Bytes(30 / 127, 0, True), byte)[[127, 129, 255]].tolist() == [255, 0, 201]
    assert lookup_table("EXP", (), Bytes(60 / 127, 0, True), byte)[[60, 90, 127, 255]].tolist() == [255, 0, 0, 159]
    assert lookup_table("RSQRT", (), Bytes(0.5, 0, False), Bytes(0.1, 0, False))[[0, 2]].tolist() == [0, 10]
    with pytest.raises(ValueError, match="function must be one of"):
        lookup_table("GELLU", (), source, target)


def test_sign_of_zero_is_zero() -> None:
    table = lookup_table("SIGN", (), Bytes(0.1, 0, True), Bytes(1 / 127, 0, True))
    assert table[[0, 1, 255]].tolist() == [0, 127, -127]
    assert np.asarray(activation_float(np.zeros(1, np.float32), mode="SIGN")).tolist() == [0.0]
    assert ACTIVATIONS["SIGN"](np.zeros(1)).tolist() == [0.0]


SAMPLE = np.linspace(-4, 4, 6 * 70 * 2, dtype=np.float32).reshape(6, 70, 1, 2)


@pytest.mark.parametrize("chip", CHIPS)
def test_lowered_table_has_the_calibrated_scales(chip: str) -> None:
    tpu, fallbacks = lowered(one("Gelu", SAMPLE), SAMPLE, chip, "int8")
    op = the(tpu, "tpu.Lut")
    x, y = uniform_of(op.input), uniform_of(op.output)
    assert x is not None and y is not None and not fallbacks
    table = weight(tpu, op, 1)
    assert shape_of(op.table) == table.shape == (1, 1, 1, 256)
    mode = "TGELU" if chip == "bm1684" else "GELU"  # numerics.md 10: BM1684 has the tanh form
    for byte in (0, 1, 90, 127, 128, 200, 255):
        value = REFERENCE[mode](stored(byte, True) * x.scale.data)
        assert table[0, 0, 0, byte] == exact_entry(value, Bytes(y.scale.data, 0, y.signed))[0]


def test_asymmetric_tables_have_zero_points() -> None:
    x = SAMPLE + np.float32(2)
    tpu, fallbacks = lowered(one("Tanh", x), x, "bm1684x", "int8", asymmetric=True)
    op = the(tpu, "tpu.Lut")
    source, target = uniform_of(op.input), uniform_of(op.output)
    assert source is not None and target is not None and not fallbacks
    zeros = source.zero_point.value.data, target.zero_point.value.data
    assert all(zeros)
    sides = Bytes(source.scale.data, zeros[0], source.signed), Bytes(target.scale.data, zeros[1], target.signed)
    np.testing.assert_array_equal(weight(tpu, op, 1).reshape(-1), lookup_table("TANH", (), *sides))


def test_functions_without_a_table_on_bm1684_run_in_f32() -> None:
    for op in ("Erf", "Ceil", "Round"):
        tpu, (fallback,) = lowered(one(op, SAMPLE), SAMPLE, "bm1684", "int8")
        assert "this chip has no table of this function" in fallback.why
        assert storage_dtype(element_of(the(tpu, "tpu.Active").output)) == np.float32


def test_table_with_a_wrong_shape_is_refused() -> None:
    tpu, _ = lowered(one("Tanh", SAMPLE), SAMPLE, "bm1684x", "int8")
    op = the(tpu, "tpu.Lut")
    assert isinstance(op, TpuLut)
    op.operands[1] = op.operands[0]
    with pytest.raises(ValueError, match=r"a table of shape \(1, 1, 1, 256\) is required"):
        op.infer()


# ------------------------------------------------------------------------------------------------ machine against flat

UNARY: dict[str, tuple[int, dict[str, Any]]] = {
    "Sigmoid": (13, {}),
    "Tanh": (13, {}),
    "Gelu": (20, {}),
    "HardSigmoid": (14, {"alpha": 0.3, "beta": 0.4}),
    "HardSwish": (14, {}),
    "Elu": (13, {"alpha": 1.5}),
    "Mish": (18, {}),
    "Softplus": (13, {}),
    "Softsign": (13, {}),
    "Exp": (13, {}),
    "Log": (13, {}),
    "Sqrt": (13, {}),
    "Erf": (13, {}),
    "Abs": (13, {}),
    "Reciprocal": (13, {}),
    "Floor": (13, {}),
    "Ceil": (13, {}),
    "Sign": (13, {}),
    "Round": (13, {}),
    "Sin": (13, {}),
    "Cos": (13, {}),
    "LeakyRelu": (16, {"alpha": 0.3}),
}
DEFINED_ABOVE_0 = ("Log", "Sqrt", "Reciprocal")


def samples(op: str) -> Array:
    return np.abs(SAMPLE) + np.float32(0.1) if op in DEFINED_ABOVE_0 else SAMPLE


@pytest.mark.parametrize("chip", first_of(CHIPS))
@pytest.mark.parametrize("op", UNARY)
def test_int8_machine_is_flat_bit_for_bit(op: str, chip: str) -> None:
    opset, attributes = UNARY[op]
    x = samples(op)
    tpu, _ = lowered(one(op, x, opset, **attributes), x, chip, "int8")
    flat = run(tpu, {"x": x})
    for dma, opt in (("early", "1"), ("late", "off")):
        found = machine(tpu, x, dma, opt)
        for name in found.keys() & flat.keys() - {"x"}:
            if flat[name].dtype != np.float32:
                np.testing.assert_array_equal(found[name], flat[name], err_msg=name)
        np.testing.assert_allclose(found["y"].astype(float), flat["y"].astype(float), rtol=1e-6)


@pytest.mark.parametrize("mode, dtype", [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("op", UNARY)
def test_16_bit_floats_are_within_one_ulp(op: str, mode: str, dtype: Any) -> None:
    opset, attributes = UNARY[op]
    x = samples(op)
    proto = one(op, x, opset, **attributes)
    tpu, _ = lowered(proto, x, "bm1684x", mode)
    flat, found = run(tpu, {"x": x}), machine(tpu, x)
    (kind,) = (type(o).FLOAT for o in top_ops(proto) if op_name(o) == "y")
    result = next(
        o for o in tpu.ops if op_name(o) == "y" or o.name in ("tpu.Active", "tpu.LeakyRelu", "tpu.Reciprocal")
    )
    stored_as = storage_dtype(element_of(result.results[0]))
    assert stored_as == (dtype if getattr(kind, mode) == mode else np.float32)
    name = op_name(result)
    a, b = found[name], flat[name]
    assert a.dtype == b.dtype == stored_as
    if stored_as != np.float32:
        steps = ordered(a) - ordered(b)
        assert np.abs(steps).max() <= 1
    else:
        np.testing.assert_allclose(a, b, rtol=2e-5 if op == "Mish" else 3e-7, atol=1e-30)  # Mish: f32 step by step


def ordered(values: Array) -> Array:
    """16-bit floats as integers in their order, so that neighbours differ by 1."""
    bits = values.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def test_float_types_by_function_on_bm1684x() -> None:
    """The BM1684X column of numerics.md 12.2 and 12.3."""
    wide = [op for op in UNARY if op in ("Sigmoid", "Tanh", "Gelu", "Elu", "Mish", "Softplus", "Softsign")]
    wide += ["Sqrt", "Erf", "Reciprocal", "Sin", "Cos"]
    rules = {op: FloatRule(f16="f32", bf16="f32") for op in wide}
    rules |= {"HardSigmoid": FloatRule(f16="f32"), "Abs": NARROWEST}
    for op, (opset, attributes) in UNARY.items():
        (rule,) = (type(o).FLOAT for o in top_ops(one(op, SAMPLE, opset, **attributes)) if op_name(o) == "y")
        assert rules.get(op, FloatRule()) == rule, op


# ------------------------------------------------------------------------------------------------------ ONNX Runtime


@pytest.mark.parametrize("op", UNARY)
def test_float_is_onnx_runtime(op: str) -> None:
    """Kernel and machine, on the values a network meets; Round without ties, where the chip differs from ONNX."""
    opset, attributes = UNARY[op]
    x = samples(op)
    proto = one(op, x, opset, **attributes)
    expected = OnnxReference(proto, threads=1).run({"x": x})["y"]
    tpu, _ = lowered(proto, x, "bm1684x", "f32")
    rtol = 1e-4 if op == "Gelu" else 2e-5  # ONNX Runtime's erf and exp are f32 approximations
    for found in (run(import_onnx(proto), {"x": x})["y"], run(tpu, {"x": x})["y"], machine(tpu, x)["y"]):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "Elu", "Gelu", "Softplus", "Exp", "Softsign", "HardSwish"])
def test_far_values_do_not_warn(op: str) -> None:
    x = np.array([-1e38, -1000, -50, -0.0, 0, 50, 1000, 1e38], np.float32).reshape(1, 1, 2, 4)
    opset, attributes = UNARY[op]
    proto = one(op, x, opset, **attributes)
    tpu, _ = lowered(proto, x, "bm1684x", "f32")
    expected = OnnxReference(proto, threads=1).run({"x": x})["y"]
    for found in (run(tpu, {"x": x})["y"], machine(tpu, x)["y"]):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


HALVES = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997], np.float32).reshape(1, 1, 1, 6)


@pytest.mark.parametrize(("chip", "mode"), [("bm1684x", "f32"), ("bm1684x", "f16"), ("cv183x", "bf16")])
def test_round_goes_away_from_zero(chip: str, mode: str) -> None:
    """Upstream's rule (numerics.md 9.8), a quirk by name: with it off, and in the top module, halves are ONNX's."""
    even = OnnxReference(one("Round", HALVES, 13), threads=1).run({"x": HALVES})["y"]
    assert even.ravel().tolist() == [0, 2, 2, 0, -2, 0]
    np.testing.assert_array_equal(run(import_onnx(one("Round", HALVES, 13)), {"x": HALVES})["y"], even)
    last = 1 if mode == "f16" else 0  # 0.49999997 is a half in F16; CV18xx truncates it
    for off, wanted in (((), [1, 2, 3, -1, -3, last]), (("round_half_away",), even.ravel().tolist())):
        tpu, _ = lowered(one("Round", HALVES, 13), HALVES, chip, mode, quirks_off=off)
        assert ("DN-02 round_half_away" in str(the(tpu, "tpu.Active").attributes.get("tpusim.decisions"))) == (not off)
        assert run(tpu, {"x": HALVES})["y"].ravel().tolist() == wanted
        assert machine(tpu, HALVES)["y"].ravel().tolist() == wanted


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="approximate none or tanh is required"):
        import_onnx(one("Gelu", SAMPLE, approximate="sigmoid"))
    for op in ("LayerNormalization", "GroupNormalization"):
        more = {"num_groups": 2} if op == "GroupNormalization" else {}
        ones = {"w": np.ones(6, np.float32), "b": np.ones(6, np.float32)}
        with pytest.raises(UnsupportedError, match="stash_type 1"):
            import_onnx(one(op, np.zeros((1, 6, 2, 6), np.float32), 21, ones, stash_type=16, **more))
    with pytest.raises(UnsupportedError, match="constant axes are required"):
        import_onnx(computed_axes())


@pytest.mark.parametrize("shape", [(2,), (6, 1, 2)])
def test_slopes_of_other_shapes_are_products(shape: tuple[int, ...]) -> None:
    x, slope = SAMPLE[:, :6], np.linspace(-1, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    found = run(import_onnx(one("PRelu", x, 16, {"w": slope})), {"x": x})["y"]
    np.testing.assert_allclose(found, np.where(x < 0, slope * x, x), rtol=1e-6)


def computed_axes() -> onnx.ModelProto:
    return network([node("ReduceSum", "x z")])({"x": (2, 3), "z": (1,)})


# ------------------------------------------------------------------------------------------------------------- slopes


def sloped(q: int, multiplier: int, shift: int, low: int, high: int) -> int:
    """9.0, in exact fractions: q >= 0 ? q : RSR(q*m, r, HALF_UP), saturated."""
    value = q if q >= 0 else floor(Fraction(q * multiplier) / Fraction(2) ** shift + Fraction(1, 2))
    return min(max(value, low), high)


BYTES = np.arange(-128, 128, dtype=np.float32).reshape(1, 2, 16, 8)


def byte_calibrated(proto: onnx.ModelProto) -> Model:
    """Input and output of scale 1, signed."""
    top = to_canonical(import_onnx(proto))
    return to_calibrated(top, CalibrationTable({n: Entry(127.0, -127.0, 127.0) for n in ("x", "y")}))


@settings(deadline=None, max_examples=40)
@given(
    st.one_of(st.floats(-200, 200), st.sampled_from([0.0, 1e-9, -1e-9, 1e9, -1e9, 0.01, 126.0, 1 / 3, -0.5])),
    st.sampled_from(CHIPS),
)
def test_leaky_relu_is_python_integers(alpha: float, chip: str) -> None:
    alpha = float(np.float32(alpha))
    proto = one("LeakyRelu", BYTES, 16, alpha=alpha)
    tpu, fallbacks = to_tpu_with_fallbacks(byte_calibrated(proto), chip, "int8")
    assert not fallbacks
    multiplier, shift = best_fit(alpha, 8)
    op = the(tpu, "tpu.LeakyRelu")
    assert (op.multiplier.value.data, op.rshift.value.data) == (multiplier, shift) and abs(multiplier) <= 126
    found = run(tpu, {"x": BYTES})[op_name(op)]
    expected = [sloped(int(q), multiplier, shift, -128, 127) for q in BYTES.ravel()]
    assert found.ravel().tolist() == expected
    np.testing.assert_array_equal(machine(tpu, BYTES)[op_name(op)], found)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.one_of(st.floats(-130, 130), st.sampled_from([0.0, 127.0, 128.0, -127.0, 1e-8, 0.25, 1e9, -1e9])),
        min_size=2, max_size=2,
    ).filter(lambda slopes: np.float32(slopes[0]) != np.float32(slopes[1])),  # equal ones are a LeakyRelu's
    st.sampled_from(CHIPS),
)  # fmt: skip
def test_prelu_is_python_integers(slopes: list[float], chip: str) -> None:
    slope = np.array(slopes, np.float32)
    proto = one("PRelu", BYTES, 16, {"w": slope.reshape(2, 1, 1)})
    tpu, fallbacks = to_tpu_with_fallbacks(byte_calibrated(proto), chip, "int8")
    assert not fallbacks
    op = the(tpu, "tpu.PReluOp")
    shift, multipliers = shared_shift([float(s) for s in slope])
    assert op.rshift.value.data == shift
    assert weight(tpu, op, 1).ravel().tolist() == multipliers
    found = run(tpu, {"x": BYTES})[op_name(op)]
    for c in range(2):
        expected = [sloped(int(q), multipliers[c], shift, -128, 127) for q in BYTES[0, c].ravel()]
        assert found[0, c].ravel().tolist() == expected
    np.testing.assert_array_equal(machine(tpu, BYTES)[op_name(op)], found)


def shared_shift(slopes: list[float]) -> tuple[int, list[int]]:
    """5.3 in fractions: the smallest r >= 0 with q*2^(r+1) >= 127; q > 127 and no such r: 0. m truncated to int8."""
    largest = max(abs(Fraction(s)) for s in slopes)
    found = [r for r in range(63) if largest * 2 ** (r + 1) >= 127]
    shift = found[0] if found and largest <= 127 else 0
    return shift, [min(max(int(Fraction(s) * 2**shift), -128), 127) for s in slopes]


@pytest.mark.parametrize(("op", "kind"), [("LeakyRelu", "tpu.LeakyRelu"), ("PRelu", "tpu.PReluOp")])
def test_slopes_with_zero_points_run_in_float(op: str, kind: str) -> None:
    constants = {"w": np.linspace(0.2, 0.4, 70, dtype=np.float32).reshape(70, 1, 1)} if op == "PRelu" else {}
    x = SAMPLE + np.float32(1)
    tpu, (fallback,) = lowered(one(op, x, 16, constants), x, "bm1684x", "int8", asymmetric=True)
    assert "no integer form with zero points" in fallback.why
    assert storage_dtype(element_of(the(tpu, kind).output)) == np.float16


def test_slope_keeps_the_range_of_its_input() -> None:
    """3.3 steps 5 and 9: the input takes the output's max, the output then the input's range; no requant is needed."""
    nodes = [node("Tanh", "x", "t"), node("LeakyRelu", "t", alpha=0.1)]
    top = to_canonical(import_onnx(model(nodes, SAMPLE.shape, {}, 16)))
    entries = {"x": Entry(4.0, -4.0, 4.0), "t": Entry(2.0, -2.0, 2.0), "y": Entry(1.0, -0.25, 1.0)}
    tpu, fallbacks = to_tpu_with_fallbacks(top, ranges=CalibrationTable(entries))
    assert not fallbacks and not [op for op in tpu.ops if op.name == "tpu.MulShift"]
    scales = [uniform_of(the(tpu, kind).output) for kind in ("tpu.Lut", "tpu.LeakyRelu")]
    assert scales[0] == scales[1] and scales[0] is not None
    assert scales[0].scale.data == 2.0 / 127  # the input's min stays -2


def test_channel_slopes() -> None:
    rank4, rank2 = (2, 3, 4, 5), (2, 3)
    per_channel = np.array([1, 2, 3], np.float32)
    for shape in ((3, 1, 1), (1, 3, 1, 1)):
        found = channel_slopes(per_channel.reshape(shape), rank4, broadcasts=True)
        assert found is not None and found.tolist() == [1, 2, 3]
    assert channel_slopes(per_channel, rank4, broadcasts=True) is None
    for shape, broadcasts in ((rank2, True), (rank4, False)):
        found = channel_slopes(per_channel, shape, broadcasts=broadcasts)
        assert found is not None and found.tolist() == [1, 2, 3]
    found = channel_slopes(np.array([7], np.float32), rank4, broadcasts=True)
    assert found is not None and found.tolist() == [7, 7, 7]
    with pytest.raises(ValueError, match="two axes or more"):
        channel_slopes(per_channel, (3,), broadcasts=True)


# ---------------------------------------------------------------------------------------------------------------- Abs


@pytest.mark.parametrize("chip", [*CHIPS, "cv183x"])
def test_abs_of_bytes(chip: str) -> None:
    """DN-14: |-128| = -128, at the input's scale; the range is (-th, th) (numerics.md 3.1). A table saturates.

    CV18xx saturates too.
    """
    tpu, fallbacks = to_tpu_with_fallbacks(byte_calibrated(one("Abs", BYTES, 13)), chip)
    assert not fallbacks
    op = the(tpu, "tpu.Lut" if chip == "bm1684" else "tpu.Active")
    least = -128 if chip == "bm1684x" else 127
    found = run(tpu, {"x": BYTES})[op_name(op)]
    assert found.dtype == np.int8
    assert found.ravel().tolist() == [least if v == -128 else abs(int(v)) for v in BYTES.ravel()]
    np.testing.assert_array_equal(machine(tpu, BYTES)[op_name(op)], found)


def test_sign_rule_of_abs() -> None:
    """3.3 step 2: an unsigned input makes the output unsigned, although its table row says signed."""
    nodes = [node("Relu", "x", "r"), node("Abs", "r")]
    x = SAMPLE
    tpu, fallbacks = lowered(model(nodes, x.shape, {}, 13), x, "bm1684x", "int8")
    assert not fallbacks
    uniform = uniform_of(the(tpu, "tpu.Active").output)
    assert uniform is not None and not uniform.signed


# ------------------------------------------------------------------------------------------------------------- fusions

ROOT = np.array(math.sqrt(2), np.float32)
NUMBERS = {"root": ROOT, "inverse": (1 / ROOT).astype(np.float32), "half": np.array(0.5, np.float32),
           "one": np.ones((), np.float32), "two": np.array(2, np.float32), "three": np.array(3, np.float32),
           "slope": np.sqrt(2 / np.pi).astype(np.float32), "cube": np.array(0.044715, np.float32)}  # fmt: skip
PARTS = ["top.MulConst", "top.Erf", "top.AddConst", "top.MulConst", "top.Mul"]
GATE = [node("Mul", "x inverse", "s"), node("Erf", "s", "e"), node("Add", "e one", "g")]


def fused(nodes: list[onnx.NodeProto]) -> Model:
    return to_canonical(import_onnx(model(nodes, (1, 2, 3, 4), NUMBERS, 13)))


HALVED = [node("Mul", "half x", "h"), *GATE, node("Mul", "g h", "p")]


@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        ([*HALVED, node("Relu", "p")], ["top.GELU", "top.Relu"]),
        ([*HALVED, node("Relu", "p", "r"), node("Add", "r p")], [*PARTS, "top.Relu", "top.Add"]),
        ([*GATE, node("Mul", "x g", "p"), node("Mul", "p half")], PARTS),
        ([*GATE, node("Mul", "g half", "p"), node("Mul", "x p")], PARTS),
    ],
    ids=["half x", "half x, read twice", "half last", "half gate"],
)
def test_gelu_is_one_op_in_some_orders_of_its_parts(nodes: list[onnx.NodeProto], kinds: list[str]) -> None:
    """U-24: the orders, and that the result must have one user, as TPU-MLIR's canonical modules show."""
    found = [op.name for op in fused(nodes).ops if isinstance(op, TopOp)]
    assert sorted(found) == sorted(["top.Input", *kinds])


@pytest.mark.parametrize(
    "nodes",
    [
        [*GATE, node("Mul", "x g", "p"), node("Mul", "p two")],
        [node("Mul", "x half", "s"), node("Erf", "s", "e"), node("Add", "e one", "g"), node("Mul", "x g", "p"),
         node("Mul", "p half")],
        [*GATE[:2], node("Add", "e two", "g"), node("Mul", "x g", "p"), node("Mul", "p half")],
        [node("Mul", "x inverse", "s"), node("Tanh", "s", "e"), node("Add", "e one", "g"), node("Mul", "x g", "p"),
         node("Mul", "p half")],
        [*GATE, node("Mul", "x g", "p"), node("Mul", "p half", "h"), node("Add", "h e")],
        [node("Tanh", "x", "t"), *GATE, node("Mul", "t g", "p"), node("Mul", "p half")],
    ],
    ids=["not half", "other root", "not one", "no erf", "erf used twice", "another x"],
)  # fmt: skip
def test_other_products_are_no_gelu(nodes: list[onnx.NodeProto]) -> None:
    assert not [op for op in fused(nodes).ops if op.name == "top.GELU"]


INNER = [node("Mul", "x x", "q"), node("Mul", "q x", "c"), node("Mul", "c cube", "d"), node("Add", "x d", "n")]
POWER = [node("Pow", "x three", "c"), node("Mul", "c cube", "d"), node("Add", "d x", "n")]
FACTORED = [node("Mul", "x x", "q"), node("Mul", "q cube", "d"), node("Add", "d one", "a"), node("Mul", "x a", "n")]
TAIL = [node("Mul", "n slope", "m"), node("Tanh", "m", "t"), node("Add", "t one", "g"), node("Mul", "x g", "p")]
HALF = node("Mul", "p half")


@pytest.mark.parametrize("inner", [INNER, POWER, FACTORED], ids=["products", "power", "factored"])
def test_gelu_by_tanh_is_found_on_request(inner: list[onnx.NodeProto]) -> None:
    """As GELU of that form, whose values are those of the parts; nothing changes unless it is asked for."""
    proto = model([*inner, *TAIL, HALF], (1, 2, 3, 4), NUMBERS, 13)
    top, fired = canonicalize(import_onnx(proto), ["gelu_tanh"])
    assert [op.name for op in top.ops if isinstance(op, TopOp)] == ["top.Input", "top.GELU"]
    assert fired["MergeGeluTanh"] == 1
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    apart = to_canonical(import_onnx(proto))
    assert "top.GELU" not in {op.name for op in apart.ops}
    ours, parts = (next(reversed(run(m, {"x": x}).values())) for m in (top, apart))
    np.testing.assert_allclose(ours, parts, rtol=2e-5, atol=1e-6)  # f32 sums of eight ops


@pytest.mark.parametrize(
    "nodes",
    [
        [*INNER, node("Mul", "n inverse", "m"), *TAIL[1:], HALF],
        [node("Mul", "x x", "q"), node("Mul", "q cube", "d"), node("Add", "x d", "n"), *TAIL, HALF],
        [*INNER[:2], node("Mul", "c half", "d"), INNER[3], *TAIL, HALF],
        [*INNER, *TAIL, node("Mul", "p half", "h"), node("Add", "h t")],
        [*INNER, *TAIL[:2], node("Add", "t two", "g"), TAIL[3], HALF],
    ],
    ids=["other slope", "a square", "other factor", "tanh used twice", "not one"],
)
def test_other_tanhs_are_no_gelu(nodes: list[onnx.NodeProto]) -> None:
    top = to_canonical(import_onnx(model(nodes, (1, 2, 3, 4), NUMBERS, 13)), "gelu_tanh")
    assert "top.GELU" not in {op.name for op in top.ops}


def test_an_unknown_pattern_is_named() -> None:
    with pytest.raises(
        ConfigError, match=r"no optional pattern is called 'gelu'; the optional ones are gelu_tanh, mul_too_large"
    ):
        canonicalize(import_onnx(model([node("Relu", "x")], (1, 4), {}, 13)), ["gelu"])


@pytest.mark.parametrize("product", ["x s", "s x"])
def test_silu_is_found(product: str) -> None:
    top = fused([node("Sigmoid", "x", "s"), node("Mul", product)])
    assert [op.name for op in top.ops if isinstance(op, TopOp)] == ["top.Input", "top.SiLU"]


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Sigmoid", "x", "s"), node("Mul", "x s", "m"), node("Add", "m s")],
        [node("Tanh", "x", "t"), node("Sigmoid", "x", "s"), node("Mul", "t s")],
        [node("Sigmoid", "x", "s"), node("Mul", "s s")],
    ],
    ids=["sigmoid used twice", "another x", "square"],
)
def test_other_products_are_no_silu(nodes: list[onnx.NodeProto]) -> None:
    assert not [op for op in fused(nodes).ops if op.name == "top.SiLU"]


# ----------------------------------------------------------------------------------------------- local memory, messages


def test_work_buffers() -> None:
    """layer_group.md 9.3, one slice of 2 images of 640 bytes per lane, f32 and f16."""
    chip = chips.load("bm1684x")
    assert work_bytes("SIGMOID", 1280, 2, 4, chip) == 2 * 640 + 128
    assert work_bytes("SOFT_PLUS", 1280, 2, 4, chip) == 2 * 640 + 128 + 64
    assert work_bytes("SOFT_PLUS", 1280, 2, 2, chip) == 2 * 640 + 64 + 64
    assert work_bytes("ERF", 1280, 2, 4, chip) == 3 * 640 + 128 + 64
    assert work_bytes("GELU", 1280, 2, 2, chip) == 4 * 640 + 64 + 64
    assert work_bytes("LN", 1280, 2, 4, chip) == 2 * (640 + 128)
    assert work_bytes("ARCCOS", 1280, 2, 4, chip) == 640 + 128
    assert work_bytes("HSWISH", 1280, 2, 4, chip) == 1280
    assert work_bytes("ABSVAL", 1280, 2, 4, chip) == 0


def test_many_channels_are_global_on_bm1684() -> None:
    x = np.zeros((1, 4097, 1, 1), np.float32)
    tpu, _ = lowered(one("Tanh", x, 13), x, "bm1684", "f32")
    op = the(tpu, "tpu.Active")
    assert isinstance(op, TpuActive) and logical_shape(shape_of(op.input))[1] == 4097
    assert op.why_global(chips.load("bm1684")) == "4097 channels, more than 4096"
    assert op.why_global(chips.load("bm1684x")) is None


def test_machine_refuses_what_it_does_not_know() -> None:
    def call(dtype: str, mode: str) -> Array:
        view = gmem(0, (4,), dtype)
        command = isa.Fn(id=1, dep=0, op="op", function=functions.Active(mode), inputs=(view,), output=view)
        return function(command, (np.zeros(4, np.int8 if dtype == "i8" else np.float32),))

    with pytest.raises(ValueError, match="mode 'SWOOSH' is not one of ABSVAL"):
        call("f32", "SWOOSH")
    with pytest.raises(SimulationError, match="EXP of integers is not defined; use a Lut"):
        call("i8", "EXP")
    assert call("f32", "EXP").tolist() == [1.0] * 4


# --------------------------------------------------------------------------------------------------- norms, reductions


def bf16(value: float) -> float:
    return float(np.float32(value).astype(ml_dtypes.bfloat16))


def test_layer_norm_in_bf16_is_rounded_at_every_step() -> None:
    """numerics.md 11.2, one row, in Python."""
    rng = np.random.default_rng(3)
    x, w, b = (rng.normal(1, 2, 24).astype(ml_dtypes.bfloat16).astype(np.float32) for _ in range(3))
    average = bf16(1 / 24)
    mean = bf16(sum(float(v) * average for v in x))
    d = [bf16(float(v) - mean) for v in x]
    variance = bf16(bf16(sum(bf16(bf16(v * v) * average) for v in d)) + bf16(1e-3))
    rstd = bf16(1 / bf16(math.sqrt(variance)))
    steps = [bf16(v * rstd) for v in d]
    expected = [bf16(bf16(v * float(p)) + float(q)) for v, p, q in zip(steps, w, b, strict=True)]
    found = np.asarray(layernorm_bf16(x[None], w, b, axis=1, epsilon=1e-3))
    assert found.ravel().tolist() == expected
    proto = one("LayerNormalization", x.reshape(1, 1, 24), 17, {"w": w, "b": b}, epsilon=1e-3)
    tpu, _ = lowered(proto, x, "bm1684x", "bf16")
    assert storage_dtype(element_of(the(tpu, "tpu.LayerNorm").output)) == ml_dtypes.bfloat16
    assert machine(tpu, x.reshape(1, 1, 24))["y"].astype(np.float32).ravel().tolist() == expected


def test_instance_norm_in_bf16_keeps_its_root() -> None:
    """As TPU-MLIR's interpreter, one channel, in Python: root and reciprocal are not rounded, nor are the products."""
    rng = np.random.default_rng(4)
    x, w, b = (rng.normal(1, 2, n).astype(ml_dtypes.bfloat16).astype(np.float32) for n in (24, 1, 1))
    average = bf16(1 / 24)
    mean = bf16(sum(float(v) * average for v in x))
    d = [bf16(float(v) - mean) for v in x]
    variance = bf16(bf16(sum(bf16(v * v) * average for v in d)) + bf16(1e-3))
    rstd = np.float32(1) / np.sqrt(np.float32(variance))
    expected = [bf16(bf16(bf16(np.float32(v) * rstd) * float(w[0])) + float(b[0])) for v in d]
    image = x.reshape(1, 1, 4, 6)
    tpu, _ = lowered(one("InstanceNormalization", image, 17, {"w": w, "b": b}, epsilon=1e-3), image, "bm1684x", "bf16")
    for found in (run(tpu, {"x": image})["y"], machine(tpu, image)["y"]):
        assert found.astype(np.float32).ravel().tolist() == expected


def test_float_types_of_norms_and_reductions() -> None:
    """numerics.md 12.1 to 12.3, BM1684X: (INT8, F16, BF16)."""
    ones = {"w": np.ones(6, np.float32), "b": np.ones(6, np.float32)}
    x = np.random.default_rng(0).normal(0, 1, (2, 6, 3, 6)).astype(np.float32)
    expected = {
        "LayerNormalization": ("f16", "f16", "bf16"),
        "GroupNormalization": ("f32", "f16", "f32"),
        "InstanceNormalization": ("f32", "f32", "bf16"),
        "ReduceMean": ("f16", "f16", "bf16"),
    }
    for op, types in expected.items():
        opset = 21 if op.startswith("Group") else 17
        more: dict[str, Any] = {"num_groups": 2} if op.startswith("Group") else {}
        proto = one(op, x, opset, {} if op == "ReduceMean" else ones, **more)
        for mode, wanted in zip(("int8", "f16", "bf16"), types, strict=True):
            tpu, _ = lowered(proto, x, "bm1684x", mode)
            (result,) = (
                o for o in tpu.ops if o.name in ("tpu.LayerNorm", "tpu.GroupNorm", "tpu.InstanceNorm", "tpu.Reduce")
            )
            assert str(element_of(result.results[0])) == wanted, (op, mode)


def test_mean_multiplies_by_a_rounded_reciprocal() -> None:
    """numerics.md 11.3: 1/n is rounded to the output's type."""
    x = np.full((1, 2, 3), 100, np.float32)
    tpu, _ = lowered(one("ReduceMean", x, 13, axes=[2]), x, "bm1684x", "bf16")
    third = bf16(1 / 3)
    assert third != np.float32(1 / 3)
    expected = bf16(np.float32(300) * np.float32(third))
    for found in (run(tpu, {"x": x})["y"], machine(tpu, x)["y"]):
        assert found.astype(np.float32).ravel().tolist() == [expected] * 2


@pytest.mark.parametrize(
    "op, opset, inputs, attributes",
    [
        ("ReduceMean", 11, {}, {}),
        ("ReduceSum", 11, {}, {"axes": [-1, 0], "keepdims": 0}),
        ("ReduceSum", 13, {"a": np.array([1])}, {"noop_with_empty_axes": 1}),
        ("ReduceMax", 20, {"a": np.array([-1, 1])}, {"keepdims": 0}),
        ("ReduceL2", 18, {}, {"keepdims": 0}),
    ],
)
def test_reductions_of_every_opset(op: str, opset: int, inputs: dict[str, Array], attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(1).normal(0, 1, (3, 4, 5)).astype(np.float32)
    proto = one(op, x, opset, inputs, **attributes)
    expected = OnnxReference(proto, threads=1).run({"x": x})["y"]
    tpu, _ = lowered(proto, x, "bm1684x", "f32")
    for found in (run(tpu, {"x": x})["y"], machine(tpu, x)["y"]):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_reduction_of_nothing_is_the_input() -> None:
    x = np.random.default_rng(1).normal(0, 1, (3, 4)).astype(np.float32)
    nodes = [node("ReduceSum", "x", "r", noop_with_empty_axes=1), node("Relu", "r")]
    top = import_onnx(model(nodes, x.shape, {}, 13))
    assert [op.name for op in top.ops if isinstance(op, TopOp)] == ["top.Input", "top.Relu"]


@pytest.mark.parametrize("mode", ["f16", "bf16"])
@pytest.mark.parametrize(
    "op", ["LayerNormalization", "GroupNormalization", "InstanceNormalization", "ReduceMean", "ReduceL2"]
)
def test_16_bit_norms_are_within_one_ulp(op: str, mode: str) -> None:
    x = np.random.default_rng(2).normal(0.5, 2, (3, 8, 5, 8)).astype(np.float32)
    ones = {"w": np.linspace(-1, 2, 8, dtype=np.float32), "b": np.linspace(0, 1, 8, dtype=np.float32)}
    more: dict[str, Any] = {"num_groups": 2} if op.startswith("Group") else {"axes": [2, 3]} if op[0] == "R" else {}
    proto = one(op, x, 21 if op.startswith("Group") else 17, {} if op[0] == "R" else ones, **more)
    tpu, _ = lowered(proto, x, "bm1684x", mode)
    flat, found = run(tpu, {"x": x}), machine(tpu, x)
    for name in flat.keys() - {"x"}:
        a, b = found[name], flat[name]
        assert a.dtype == b.dtype
        if a.dtype.itemsize == 2:
            unit = np.spacing(np.abs(b.astype(np.float32)).max().astype(b.dtype)).astype(np.float32)
            assert np.abs(a.astype(np.float32) - b.astype(np.float32)).max() <= unit


def test_kernel_machine_and_table_know_the_same_functions() -> None:
    """Every function of numerics.md 9.8 exists three times: kernel, machine, and table if it has one."""
    assert set(KERNELS) == set(ACTIVATIONS)
    assert set(FUNCTIONS) == set(ACTIVATIONS) - {"ARCCOS", "ARCTANH", "ARCSIN", "ARCTAN", "TRUNC"}
    x = np.linspace(0.05, 0.95, 40, dtype=np.float32)
    for mode, compute in ACTIVATIONS.items():
        coeffs = COEFFS.get(mode, ())
        kernel = np.asarray(activation_float(x, mode=mode, coeffs=coeffs))
        np.testing.assert_allclose(compute(x.astype(np.float64), *coeffs).astype(np.float32), kernel, rtol=1e-6)
