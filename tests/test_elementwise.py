"""Sub, Div, Max, Min, ops with a number, padding, parts, repetition, resizing: constants, extremes, rewrites, refusals.

The rows of op_cases_elementwise.py say that they work in every stage; here are the numbers of numerics.md 9.3 by hand,
the ends of every byte range, the propagation steps they take part in, and what is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import onnx
import pytest
from builders.calibrated import Row, image, lowered, module, op, propagated, x
from compiling import to_canonical, to_program, to_tpu
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases_elementwise import CASES
from op_row import CHIPS, OpCase, network, node, values
from plain_names import import_onnx
from rotation import marks, turn
from rows import canonical, imported
from rows import lowered as row_lowered
from tpusim_kernels import arith as kernels
from tpusim_kernels.resize import interp_linear, interp_nearest, interp_on_host, nearest_index

from tpusim import chips
from tpusim.calibration.stage import calibrated_limits
from tpusim.calibration.table import Entry
from tpusim.canonicalize import canonicalize
from tpusim.errors import UnsupportedError
from tpusim.frontend import OnnxReference
from tpusim.inference import run
from tpusim.ir.attrs import ints, op_name
from tpusim.ir.types import element_of, f32
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.region import DType, View
from tpusim.lowering.marks import float_marks
from tpusim.ops.interfaces import needed_window
from tpusim.ops.resize import TpuUpsample, nearest_source
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.simulator.meanings import function

Array = np.ndarray
ON_CHIPS = pytest.mark.parametrize("chip", CHIPS)
DTYPES: dict[str, tuple[int, int]] = {"int8": (-128, 127), "uint8": (0, 255)}
SHORT: dict[str, DType] = {"int8": "i8", "uint8": "u8"}


# ------------------------------------------------------------------------------------------------- integers by Python


def half_up(v: int, r: int) -> int:
    """RSR HALF_UP on Python integers."""
    return floor(Fraction(v, 2**r) + Fraction(1, 2)) if r >= 0 else v << -r


def saturated(v: int, dtype: str) -> int:
    return min(max(v, DTYPES[dtype][0]), DTYPES[dtype][1])


@st.composite
def byte_tensors(draw: Any, count: int) -> tuple[list[Array], list[str]]:
    """Tensors of six bytes, ends of the range more often than not."""
    kinds = [draw(st.sampled_from(sorted(DTYPES))) for _ in range(count)]
    arrays: list[Array] = []
    for kind in kinds:
        low, high = DTYPES[kind]
        element = st.one_of(st.sampled_from([low, high, 0, 1, high - 1, low + 1]), st.integers(low, high))
        arrays.append(np.array(draw(st.lists(element, min_size=6, max_size=6)), kind))
    return arrays, kinds


MULTIPLIERS, SHIFTS = st.integers(0, 127), st.integers(0, 30)
OUT = st.sampled_from(sorted(DTYPES))


def macro(wanted: Any, operands: Sequence[Array], out_dtype: str, shape: tuple[int, ...] | None = None) -> Array:
    """What the machine's macro function gives."""
    views = tuple(View("gmem", 0, a.shape, SHORT.get(str(a.dtype), "f32"), "dense") for a in operands)
    output = View("gmem", 0, shape or operands[0].shape, SHORT.get(out_dtype, "f32"), "dense")
    return function(isa.Fn(id=1, dep=0, op="y", function=wanted, inputs=views, output=output), tuple(operands))


@settings(max_examples=60, deadline=None)
@given(byte_tensors(2), st.tuples(MULTIPLIERS, MULTIPLIERS), st.tuples(SHIFTS, SHIFTS), st.booleans(), OUT)
def test_difference(tensors: Any, m: tuple[int, int], r: tuple[int, int], relu: bool, out: str) -> None:
    (a, b), _ = tensors
    expected = []
    for p, q in zip(a.tolist(), b.tolist(), strict=True):
        v = half_up(p * m[0], r[0]) - half_up(q * m[1], r[1])
        expected.append(saturated(max(v, 0) if relu else v, out))
    found = np.asarray(kernels.sub_int((a, b), m, r, do_relu=relu, out_dtype=out))
    np.testing.assert_array_equal(found, np.array(expected, out), strict=True)
    np.testing.assert_array_equal(macro(functions.SubInt(m, r, relu), (a, b), out), found, strict=True)


@settings(max_examples=120, deadline=None)
@given(
    byte_tensors(1), st.sampled_from(["add", "sub", "max", "min"]), MULTIPLIERS, SHIFTS, st.integers(-(2**24), 2**24),
    st.booleans(), st.booleans(), OUT,
)  # fmt: skip
def test_ops_with_a_number(
    tensors: Any, kind: str, m: int, r: int, c: int, relu: bool, reverse: bool, out: str
) -> None:
    (a,), _ = tensors
    expected = []
    for q in a.tolist():
        t = q * m
        v = {"add": t + c, "sub": c - t if reverse else t - c, "max": max(t, c), "min": min(t, c)}[kind]
        v = half_up(v, r)
        expected.append(saturated(max(v, 0) if relu else v, out))
    call = {
        "add": kernels.addconst_int,
        "sub": kernels.subconst_int,
        "max": kernels.maxconst_int,
        "min": kernels.minconst_int,
    }
    more = {"is_reverse": reverse} if kind == "sub" else {}
    found = np.asarray(call[kind](a, m, r, c, do_relu=relu, out_dtype=out, **more))  # type: ignore[operator]
    np.testing.assert_array_equal(found, np.array(expected, out), strict=True)
    wanted = functions.ConstInt(kind, m, r, c, 0, relu, reverse)  # type: ignore[arg-type]
    np.testing.assert_array_equal(macro(wanted, (a,), out), found, strict=True)


@settings(max_examples=60, deadline=None)
@given(
    byte_tensors(1), st.integers(-126, 126), SHIFTS, st.integers(-128, 127), st.integers(-128, 127), st.booleans(), OUT
)
def test_product_with_a_number(tensors: Any, m: int, r: int, z_in: int, z_out: int, relu: bool, out: str) -> None:
    (a,), _ = tensors
    exact = [half_up((q - z_in) * m, r) + z_out for q in a.tolist()]
    expected = np.array([saturated(max(v, z_out) if relu else v, out) for v in exact], out)
    found = kernels.mulconst_int(a, m, r, z_in, z_out, do_relu=relu, out_dtype=out)
    np.testing.assert_array_equal(np.asarray(found), expected, strict=True)


@settings(max_examples=40, deadline=None)
@given(byte_tensors(1), st.integers(-128, 127), st.booleans(), st.booleans())
def test_difference_with_zero_point(tensors: Any, z_out: int, relu: bool, reverse: bool) -> None:
    """9.3 SubConst asymmetric: relu(t), shift, + z_out, relu at z_out."""
    (a,), (kind,) = tensors
    m, r, c = 93, 6, 1234
    expected = []
    for q in a.tolist():
        t = c - q * m if reverse else q * m - c
        v = half_up(max(t, 0) if relu else t, r) + z_out
        expected.append(saturated(max(v, z_out) if relu else v, kind))
    found = kernels.subconst_int(a, m, r, c, z_out, do_relu=relu, is_reverse=reverse, out_dtype=kind)
    np.testing.assert_array_equal(np.asarray(found), np.array(expected, kind), strict=True)
    wanted = functions.ConstInt("sub", m, r, c, z_out, relu, reverse)
    np.testing.assert_array_equal(macro(wanted, (a,), kind), np.array(expected, kind), strict=True)


@settings(max_examples=30, deadline=None)
@given(byte_tensors(1), st.booleans())
def test_extremes_of_raw_bytes(tensors: Any, relu: bool) -> None:
    (a,), (kind,) = tensors
    b = a[::-1].copy()
    for kernel, pick in ((kernels.max_int, max), (kernels.min_int, min)):
        expected = [pick(p, q) for p, q in zip(a.tolist(), b.tolist(), strict=True)]
        expected = [max(v, 0) for v in expected] if relu else expected
        found = np.asarray(kernel((a, b), do_relu=relu))
        np.testing.assert_array_equal(found, np.array(expected, kind), strict=True)


INTEGER_ROWS = [c for c in CASES if not c.fallback and c.result != "tpu.Conv2D"]


@pytest.mark.parametrize(
    ("case", "chip"),
    [
        pytest.param(case, chip, id=f"{case.id}-{chip}", marks=marks(turn(case, number, 8)))
        for case in INTEGER_ROWS
        for number, chip in enumerate(CHIPS)
    ],
)
def test_machine_equals_flat_where_bytes_saturate(case: OpCase, chip: str) -> None:
    """Inputs three times as large as calibrated reach -128, 127 and 255; in groups, and every op global."""
    tpu, _ = row_lowered(case.id, chip, "int8")
    feeds = {name: 3 * array for name, array in case.feeds(7).items()}
    expected = run(tpu, feeds)
    stored = [a for a in expected.values() if a.dtype in (np.int8, np.uint8)]
    assert any(a.max() == np.iinfo(a.dtype).max or a.min() == np.iinfo(a.dtype).min for a in stored)
    for opt in ("1", "off"):
        program = to_program(tpu, opt)
        found = Simulator(program, options=SimulatorOptions("late")).run(feeds, watch=True).tensors
        for name in found.keys() & expected.keys() - feeds.keys():
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name, strict=True)


# ------------------------------------------------------------------------------------------- constants, numerics.md 9.3


def const_row(kind: str, value: float, out: tuple[float, float], more: str = "") -> Row:
    return Row("y", kind, "a", (1, 4), out, f"const_val = {value!r} : f64{more}")


def constants(kind: str, value: float, source: tuple[float, float], out: tuple[float, float], chip: str) -> Any:
    """(m, r, C) of the lowered op, or its reason to be float."""
    _, ops, fallbacks = lowered(module(x("a", (1, 4), *source), const_row(kind, value, out)), chip)
    if fallbacks:
        return fallbacks[0].why
    y = ops["y"]
    constant = y.const_val.value.data if "const_val" in y.attributes else None
    return y.multiplier.value.data, y.rshift.value.data, constant


def test_addconst_on_the_multiplier_chip() -> None:
    """s_in/s_out = 1/2: (1, 1); C = round(0.7/(2/127)) << 1 = 44 << 1."""
    assert constants("AddConst", 0.7, (-1, 1), (-2, 2), "bm1684x") == (1, 1, 88.0)
    assert constants("SubConst", -0.7, (-1, 1), (-2, 2), "bm1684x") == (1, 1, -88.0)
    assert "126 times" in constants("AddConst", 0.001, (-200, 200), (-1, 1), "bm1684x")
    assert "leaves 32 bits" in constants("AddConst", 3e9, (-1, 1), (-2, 2), "bm1684x")


def test_addconst_on_the_shift_chip() -> None:
    """s_in/s_out = 1/2: r = floor(log2(127*2)) = 7, m = 64, C = sat16(0.7*2^7*127/2)."""
    assert constants("AddConst", 0.7, (-1, 1), (-2, 2), "bm1684") == (64, 7, float(round(0.7 * 128 * 127 / 2)))
    assert constants("AddConst", 70.0, (-1, 1), (-2, 2), "bm1684") == (64, 7, 32767.0)
    assert constants("SubConst", 0.25, (-1, 1), (-1, 1), "bm1684") == (64, 6, float(round(0.25 * 64 * 127)))


def test_mulconst_takes_the_range_of_its_input() -> None:
    """Step 9 makes s_in*|c|/s_out = 1, so m = 1 and only the sign is left; BM1684: 64/2^6."""
    assert constants("MulConst", 3.0, (-1, 1), (-9, 9), "bm1684x") == (1, 0, None)
    assert constants("MulConst", -3.0, (-1, 1), (-9, 9), "bm1684x") == (-1, 0, None)
    assert constants("MulConst", -3.0, (-1, 1), (-9, 9), "bm1684") == (-64, 6, 0.0)


def test_max_and_min_const_compare_at_the_input_scale() -> None:
    """C = round(c/s_in), m = 1; BM1684: C = sat16(c*2^r/s_out), r lowered at most 5 times."""
    assert constants("MaxConst", -0.2, (-1, 1), (-9, 9), "bm1684x") == (1, 0, float(round(-0.2 * 127)))
    assert constants("MinConst", 0.3, (-1, 1), (-1, 1), "bm1684") == (64, 6, float(round(0.3 * 64 * 127)))
    assert constants("MinConst", 30.0, (-1, 1), (-1, 1), "bm1684") == (8, 3, float(round(30.0 * 8 * 127)))
    assert constants("MinConst", 900.0, (-1, 1), (-1, 1), "bm1684") == (2, 1, 32767.0)


def test_a_constant_operand_of_sub_is_stored_at_the_output_scale() -> None:
    w = np.array([[0.5, -1.0, 0.004, 2.5]], np.float32)
    rows = [x("a", (1, 4), -1.0, 1.0), Row("y", "Sub", "a w", (1, 4), (-3.0, 3.0))]
    model, ops, fallbacks = lowered(module(*rows, weights={"w": w}))
    y = ops["y"]
    assert not fallbacks
    assert (ints(y.multipliers)[1], ints(y.rshifts)[1]) == (1, 0)
    np.testing.assert_array_equal(model.weights[op_name(y.inputs[1].owner)], np.int8([[21, -42, 0, 106]]))
    assert ints(y.multipliers)[0] / 2 ** ints(y.rshifts)[0] == pytest.approx(1 / 3, rel=5e-3)


def test_a_constant_outside_f16_runs_in_f32() -> None:
    model = import_onnx(network([node("Mul", "x w")], {"w": np.array(1e6, np.float32)})({"x": (2, 3)}))
    for mode, expected in (("f16", np.float32), ("bf16", None)):
        tpu = to_tpu(to_canonical(model), "bm1684x", mode)
        y = run(tpu, {"x": np.ones((2, 3), np.float32)})["y"]
        assert expected is None or y.dtype == expected


# ------------------------------------------------------------------------------------ ranges (3.1, 3.3) and marks (3.4)


def test_the_table_gives_sub_a_signed_range() -> None:
    model = module(image("a", 0, 1), image("b", 0, 1), op("y", "Sub", "a b", 0, 1))
    sub = next(o for o in model.ops if o.name == "top.Sub")
    assert calibrated_limits(sub, Entry(2.0, 0.1, 2.0), asymmetric=False) == (-1e-5, 2.0)  # type: ignore[arg-type]
    assert calibrated_limits(sub, Entry(2.0, -0.1, 2.0), asymmetric=False) == (-2.0, 2.0)  # type: ignore[arg-type]


def test_step_2_numbers_below_zero() -> None:
    def y(kind: str, value: float, low: float = 0.0) -> Any:
        row = Row("y", kind, "a", image("a", 0, 1).shape, (0.0, 3.0), f"const_val = {value!r} : f64")
        return propagated(image("a", low, 1), row)["y"]

    assert y("AddConst", -0.5) == y("SubConst", -0.5) == (-0.1 * 3.0, 3.0)
    assert y("AddConst", 0.5) == (0.0, 3.0)
    assert y("AddConst", -0.5, -1.0) == (0.0, 3.0)


def test_step_3_the_result_of_sub_is_signed() -> None:
    found = propagated(image("a", 0, 1), image("b", 0, 1), op("y", "Sub", "a b", 0.0, 3.0))
    assert found["y"] == (-0.1 * 3.0, 3.0)


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_step_4_max_and_min(kind: str) -> None:
    def both(b: tuple[float, float]) -> Any:
        return propagated(image("a", -1, 1), image("b", *b), op("y", kind, "a b", -3, 3))

    assert both((-2, 2)) == {"a": (-3, 3), "b": (-3, 3), "y": (-3, 3)}
    assert both((-1, 1)) == {"a": (-1, 1), "b": (-1, 1), "y": (-1, 1)}
    assert both((0, 2)) == {"a": (-3, 3), "b": (-3, 3), "y": (-3, 3)}


def test_step_9_numbers() -> None:
    def y(kind: str, value: float, low: float = -1.0, more: str = "") -> Any:
        row = Row("y", kind, "a", image("a", 0, 1).shape, (-9.0, 9.0), f"const_val = {value!r} : f64{more}")
        return propagated(image("a", low, 2), row)["y"]

    assert y("MulConst", 3.0) == (-3.0, 6.0)
    assert y("MulConst", -3.0) == (-6.0, 3.0)
    assert y("MulConst", 0.0) == (-1.0, 2.0)
    assert y("MulConst", -3.0, more=", do_relu = true") == (-6.0, 3.0)
    assert y("MaxConst", 0.5) == y("MinConst", 0.5) == (-1.0, 2.0)


@ON_CHIPS
def test_a_small_difference_runs_in_float(chip: str) -> None:
    def rows(out: float) -> list[Row]:
        return [x("a", (1, 4), -4.0, 4.0), x("b", (1, 4), 0.0, 1.0), Row("y", "Sub", "a b", (1, 4), (-out, out))]

    assert not float_marks(module(*rows(4.0)))
    _, ops, fallbacks = lowered(module(*rows(3.5)), chip)
    assert "threshold 3.5 is below an operand's 4" in fallbacks[0].why
    assert (element_of(ops["y"].output) == f32) == (chip == "bm1684")
    number = [x("a", (1, 4), -1.0, 1.0), const_row("SubConst", 5.0, (-4.9, -3.0))]
    assert len(float_marks(module(*number))) == 1
    assert not float_marks(module(x("a", (1, 4), -1.0, 1.0), const_row("AddConst", 5.0, (-4.9, -3.0))))


# ------------------------------------------------------------------------------------------------------------- rewrites


def rewritten(nodes: list[onnx.NodeProto], weights: dict[str, Array], shape: tuple[int, ...], opset: int = 17) -> Any:
    """Firings and op names after canonicalisation; outputs stay those of ONNX Runtime."""
    proto = network(nodes, weights, opset)({"x": shape})
    feeds = {"x": values(shape, 5)}
    top, firings = canonicalize(import_onnx(proto))
    expected = OnnxReference(proto, threads=1).run(feeds)["y"]
    np.testing.assert_allclose(run(top, feeds)["y"], expected, rtol=1e-5, atol=1e-5)
    return firings, [o.name.removeprefix("top.") for o in top.ops if o.operands and o.results][1:]


IMAGE = (2, 3, 6, 5)
PADS = {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1])}


def test_div_by_a_constant() -> None:
    assert rewritten([node("Div", "x w")], {"w": values((3, 6, 5), low=1.0, high=2.0)}, IMAGE) == (
        {"DivToMul": 1},
        ["Mul"],
    )
    scalar = {"w": np.array(4.0, np.float32)}
    assert rewritten([node("Div", "x w")], scalar, IMAGE) == ({"DivToMulConst": 1}, ["MulConst"])
    assert rewritten([node("Div", "w x")], scalar, IMAGE) == ({"DivToReciprocal": 1}, ["Reciprocal"])


def test_pad_goes_into_what_follows() -> None:
    zero = PADS | {"v": np.array(0, np.float32), "w": values((4, 3, 3, 3))}
    pad = node("Pad", "x p v", "a")
    assert rewritten([pad, node("Conv", "a w")], zero, IMAGE) == ({"TopFusePad": 1}, ["Conv"])
    window = {"kernel_shape": [3, 3]}
    fused = ({"TopFusePad": 1}, ["AvgPool"])
    assert rewritten([pad, node("AveragePool", "a", **window)], zero, IMAGE) == fused
    assert (
        rewritten([pad, node("AveragePool", "a", count_include_pad=1, pads=[0, 1, 0, 0], **window)], zero, IMAGE)
        == fused
    )
    lowest = zero | {"v": np.array(-np.inf, np.float32)}
    assert rewritten([pad, node("MaxPool", "a", **window)], lowest, IMAGE) == ({"TopFusePad": 1}, ["MaxPool"])


def test_pad_stays() -> None:
    zero = PADS | {"v": np.array(0, np.float32), "w": values((4, 3, 3, 3))}
    pad = node("Pad", "x p v", "a")
    one = zero | {"v": np.array(1, np.float32)}
    assert rewritten([pad, node("Conv", "a w")], one, IMAGE) == ({}, ["Pad", "Conv"])
    window = {"kernel_shape": [3, 3]}
    assert rewritten([pad, node("MaxPool", "a", **window)], zero, IMAGE) == ({}, ["Pad", "MaxPool"])
    uncounted = node("AveragePool", "a", pads=[0, 1, 0, 0], **window)
    assert rewritten([pad, uncounted], zero, IMAGE) == ({}, ["Pad", "AvgPool"])
    assert rewritten([pad, node("AveragePool", "a", kernel_shape=[2, 2])], zero, IMAGE) == ({}, ["Pad", "AvgPool"])
    batch = zero | {"p": np.array([1, 0, 0, 0, 0, 0, 0, 0])}
    assert rewritten([pad, node("Conv", "a w")], batch, IMAGE) == ({}, ["Pad", "Conv"])
    reflect = node("Pad", "x p", "a", mode="reflect")
    assert rewritten([reflect, node("Conv", "a w")], zero, IMAGE) == ({}, ["Pad", "Conv"])
    both = [pad, node("Conv", "a w", "c", pads=[0, 0, 0, 0]), node("MaxPool", "a", "m", kernel_shape=[3, 3]),
            node("ReduceMean", "m", "r", axes=[1], keepdims=1), node("Mul", "c r")]  # fmt: skip
    assert rewritten(both, zero, IMAGE)[0].get("TopFusePad") is None


def test_gather_of_even_indices_is_a_slice() -> None:
    def found(indices: Any, axis: int = 2) -> Any:
        return rewritten([node("Gather", "x i", axis=axis)], {"i": np.array(indices)}, IMAGE)

    assert found([1, 3, 5]) == ({"TopGatherToSlice": 1}, ["Slice"])
    assert found([-1]) == ({"TopGatherToSlice": 1}, ["Slice"])
    assert found(2) == ({"TopGatherToSlice": 1}, ["Slice", "Squeeze"])
    assert found([3, 2, 1]) == ({}, ["Gather"])
    assert found([1, 1]) == ({}, ["Gather"])
    assert found([[1, 2]]) == ({}, ["Gather"])


def test_a_1d_convolution_takes_norm_and_relu() -> None:
    weights = {"w": values((4, 3, 3)), **{k: values((4,), i, 0.5, 1.5) for i, k in enumerate("gbmv")}}
    nodes = [node("Conv", "x w", "a", pads=[1, 1]), node("BatchNormalization", "a g b m v", "n"), node("Relu", "n")]
    firings, names = rewritten(nodes, weights, (2, 3, 9))
    assert names == ["Reshape", "Conv", "Reshape"]
    assert firings == {"FoldBatchNormIntoConv": 1, "ReshapeBeforeChannelOp": 2, "TopFuseRelu": 1}


# ------------------------------------------------------------------------------------------------- floats and resizing


def test_quotients_by_zero_are_those_of_ieee() -> None:
    """The machine divides without a warning and as the kernel does."""
    case = next(c for c in CASES if c.id == "div")
    feeds = case.feeds()
    feeds["z"][0] = 0.0
    feeds["x"][0, 0, 0, :2] = 0.0
    tpu, _ = row_lowered("div", "bm1684x", "f32")
    program = to_program(tpu)
    expected = run(tpu, feeds)["y"]
    assert np.isnan(expected).any() and np.isinf(expected).any()
    np.testing.assert_array_equal(Simulator(program).run(feeds, watch=True).tensors["y"], expected)


@settings(max_examples=12, deadline=None)
@given(st.tuples(st.integers(1, 6), st.integers(1, 6)), st.tuples(st.integers(1, 9), st.integers(1, 9)), st.booleans())
def test_interpolation(size: tuple[int, int], out: tuple[int, int], align: bool) -> None:
    """Against exact fractions; kernel and machine give the same bits."""
    image_ = values((1, 1, *size), 3)
    scales = tuple(((i - 1) / (o - 1) if o > 1 else 0.0) if align else i / o for i, o in zip(size, out, strict=True))
    found = np.asarray(interp_linear(image_, size=out, scales=scales, align_corners=align))
    exact = image_[0, 0].astype(np.float64)
    for axis in (0, 1):
        rows = []
        for o in range(out[axis]):
            source = o * scales[axis] if align else (o + 0.5) * scales[axis] - 0.5
            source = min(max(source, 0.0), size[axis] - 1.0)
            left = floor(source)
            right = min(left + 1, size[axis] - 1)
            a, b = exact.take(left, axis), exact.take(right, axis)
            rows.append(a + (source - left) * (b - a))
        exact = np.stack(rows, axis)
    np.testing.assert_allclose(found[0, 0], exact, rtol=0, atol=1e-6)
    wanted = functions.Interp(*scales, align)
    np.testing.assert_array_equal(macro(wanted, (image_,), "float32", (1, 1, *out)), found)
    host = np.asarray(interp_on_host(image_, size=out, scales=scales, align_corners=align))
    np.testing.assert_allclose(host[0, 0], exact, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(
        macro(functions.Interp(*scales, align, host=True), (image_,), "float32", (1, 1, *out)), host
    )


@settings(max_examples=12, deadline=None)
@given(st.tuples(st.integers(1, 6), st.integers(1, 6)), st.tuples(st.integers(1, 9), st.integers(1, 9)), st.booleans())
def test_nearest_elements(size: tuple[int, int], out: tuple[int, int], rounded: bool) -> None:
    """Against exact fractions; kernel and machine copy the same bytes, on the chip and on the host of CV18xx.

    The host's ceil((o + 0.5)*step - 1) is of the step in f32, which may be larger than the fraction.
    """
    image_ = np.arange(2 * size[0] * size[1], dtype=np.int8).reshape(1, 2, *size)
    for host in (False, True):
        exact, places = image_, list[np.ndarray]()
        for axis, (i, o) in enumerate(zip(size, out, strict=True), 2):
            k = np.arange(o)
            if rounded and host:
                step = Fraction(float(np.float32(i) / np.float32(o)))
                index = np.array([ceil((place + Fraction(1, 2)) * step - 1) for place in range(o)])
            elif rounded:
                index = (2 * k * (i - 1) + o - 1) // (2 * (o - 1)) if o > 1 else k
            else:
                index = k * i // o
            exact = exact.take(index, axis)
            scale = (i - 1) / (o - 1) if rounded and not host and o > 1 else 0.0 if rounded and not host else i / o
            places.append(nearest_index(i, o, scale, rounded=rounded, on_host=host))
        scales = tuple((i - 1) / max(o - 1, 1) if rounded else i / o for i, o in zip(size, out, strict=True))
        np.testing.assert_array_equal(np.asarray(interp_nearest(image_, *places)), exact)
        wanted = functions.Interp(*scales, rounded, host, not rounded, nearest=True)
        np.testing.assert_array_equal(macro(wanted, (image_,), "int8", (1, 2, *out)), exact)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize(
    ("size", "scale"),
    [(6, 2.0), (6, 0.5), (5, 1.5), (4, 0.25), (7, 3.0), (5, 0.6), (6, 2.3), (20, 0.35), (23, 1.1), (50, 0.7)],
)
def test_nearest_indices_are_those_of_onnx_runtime(coordinates: str, rounding: str, size: int, scale: float) -> None:
    attributes = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    proto = network([node("Resize", "x - s", **attributes)], {"s": np.array([1, 1, scale, 1], np.float32)}, 13)(
        {"x": (1, 1, size, 2)}
    )
    feeds = {"x": np.arange(2 * size, dtype=np.float32).reshape(1, 1, size, 2)}
    expected = OnnxReference(proto, threads=1).run(feeds)["y"]
    found = nearest_source(size, int(size * scale), scale, coordinates, rounding)
    np.testing.assert_array_equal(feeds["x"][:, :, found], expected)


# ------------------------------------------------------------------------------------------------------------- refusals


X4 = (2, 3, 6, 5)


@pytest.mark.parametrize(
    ("nodes", "weights", "opset", "words"),
    [
        ([node("Pad", "x p", mode="reflect")], {"p": np.array([0, 0, 6, 0, 0, 0, 0, 0])}, 17, "reflected pads below"),
        ([node("Slice", "x s e a t")],
         {"s": np.array([3]), "e": np.array([1]), "a": np.array([2]), "t": np.array([1])}, 17, "'y' is constant"),
        ([node("Slice", "x s e a t")],
         {"s": np.array([0]), "e": np.array([1]), "a": np.array([4]), "t": np.array([1])}, 17, "an axis of"),
        ([node("Split", "x s", axis=1)], {"s": np.array([2])}, 17, "add up to 3"),
        ([node("Split", "x", axis=9)], {}, 17, "an axis of"),
        ([node("Gather", "x i", axis=1)], {"i": np.array([3])}, 17, r"indices in \[-3, 3\)"),
        ([node("Gather", "x i", axis=5)], {"i": np.array([0])}, 17, "an axis of"),
        ([node("Tile", "x t")], {"t": np.array([1, 0, 1, 1])}, 17, "repeats of 1 or more"),
        ([node("Expand", "x s")], {"s": np.array([7, 1])}, 17, "do not broadcast"),
        ([node("Resize", "x - s", antialias=1)], {"s": np.array([1, 1, 2, 2], np.float32)}, 18, "antialias = 0"),
        ([node("Resize", "x - s")], {"s": np.array([1, 1, 0, 2], np.float32)}, 18, "scales above 0"),
        ([node("Conv", "x w")], {"w": values((4, 3, 2, 2, 2))}, 17, "1-D, 2-D or 3-D convolution"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(nodes: Any, weights: Any, opset: int, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        import_onnx(network(nodes, weights, opset)({"x": X4}))


@pytest.mark.parametrize(
    ("nodes", "weights", "opset"),
    [
        ([node("Pad", "x p", mode="wrap")], PADS, 19),
        ([node("Pad", "x p")], {"p": np.array([0, 0, -1, 0, 0, 0, 0, 0])}, 17),
        ([node("Resize", "x - s", mode="cubic")], {"s": np.array([1, 1, 2, 2], np.float32)}, 17),
        ([node("Resize", "x - s", mode="linear", coordinate_transformation_mode="asymmetric")],
         {"s": np.array([1, 1, 2, 2], np.float32)}, 17),
        ([node("Resize", "x - s", coordinate_transformation_mode="half_pixel_symmetric")],
         {"s": np.array([1, 1, 2, 2], np.float32)}, 19),
    ],
)  # fmt: skip
def test_what_was_refused_once_is_onnx_runtime(nodes: Any, weights: Any, opset: int) -> None:
    proto = network(nodes, weights, opset)({"x": X4})
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, X4).astype(np.float32)}
    found, expected = run(import_onnx(proto), feeds)["y"], OnnxReference(proto, threads=1).run(feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_computed_indices_are_refused() -> None:
    proto = network([node("Add", "x x", "a"), node("Tile", "x a")])({"x": (2,)})
    with pytest.raises(UnsupportedError, match="constant numbers of the second input are required, 'a' is computed"):
        import_onnx(proto)


def test_identities_leave_no_op() -> None:
    for nodes, weights in (
        ([node("Tile", "x t", "a"), node("Relu", "a")], {"t": np.array([1, 1, 1, 1])}),
        ([node("Expand", "x t", "a"), node("Relu", "a")], {"t": np.array([6, 1])}),
        ([node("Max", "x", "a"), node("Relu", "a")], {}),
        ([node("Resize", "x - s", "a"), node("Relu", "a")], {"s": np.ones(4, np.float32)}),
    ):
        names = [o.name for o in import_onnx(network(nodes, weights)({"x": X4})).ops]
        assert "top.Relu" in names
        assert not {"top.Tile", "top.Max", "top.Upsample", "top.Gather"} & set(names)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_canonical_form_computes_the_same(case: OpCase) -> None:
    before, after = run(imported(case.id), case.feeds()), run(canonical(case.id), case.feeds())
    scale = np.abs(before["y"]).max()
    np.testing.assert_allclose(after["y"], before["y"], rtol=1e-6, atol=1e-6 * scale)


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "bm1690", "bm1684"])
def test_where_an_upsampled_result_is_cut(chip: str) -> None:
    """layer_group.md 7.2: at multiples of the factors only but on the 1684X family."""
    tpu, _ = row_lowered("upsample-half-pixel", chip, "int8")
    spec, upsample = chips.load(chip), next(op for op in tpu.ops if isinstance(op, TpuUpsample))
    assert needed_window(upsample, spec, "w", (2, 4), 0) == (1, 2)
    assert needed_window(upsample, spec, "w", (1, 3), 0) == ((0, 2) if chip in ("bm1684x", "bm1688") else None)
