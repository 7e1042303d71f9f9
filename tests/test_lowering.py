"""Lowering from hand-written calibrated modules: every number is recomputed from docs/spec/numerics.md 2 to 9."""

from collections.abc import Sequence
from fractions import Fraction
from math import floor, log2
from typing import Any

import numpy as np
import pytest
from builders.calibrated import HALF, ORDER, WINDOW, Array, Range, Row, image, lowered, module, op, propagated, x
from compiling import to_program, to_tpu, to_tpu_with_fallbacks
from hypothesis import given, settings
from hypothesis import strategies as st
from tpusim_kernels.prim.multiplier import avgpool_table, best_fit, best_fit_positive
from tpusim_kernels.prim.scale import asymmetric_scale
from xdsl.dialects.builtin import f16
from xdsl.ir import Operation

from tpusim import chips, simulate
from tpusim.errors import CalibrationError, ImportModelError, UnsupportedError
from tpusim.fidelity import DECISIONS, fidelity_of
from tpusim.ir.attrs import ints, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.text import print_module
from tpusim.ir.types import element_of, f32, is_tensor, uniform_of
from tpusim.lowering.marks import float_marks
from tpusim.lowering.propagate import propagate
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.builder import ModuleBuilder
from tpusim.ops.relu import TopRelu

CHIPS = ("bm1684x", "bm1684")
ON_CHIPS = pytest.mark.parametrize("chip", CHIPS)


# ------------------------------------------------------------------------------------------------------ modules as text


def scale(limit: float, *, signed: bool = True) -> float:
    return limit / (127 if signed else 255)


def half_away(v: Any) -> Array:
    v = np.asarray(v, np.float64)
    return (np.sign(v) * np.floor(np.abs(v) + 0.5)).astype(np.int64)


def brute_fit(value: float, limit: int, exponents: Sequence[int]) -> tuple[int, int] | None:
    """Numerics.md 5.1 in exact fractions; errors are compared in f32 as the specification says."""
    s = Fraction(float(np.float32(value)))
    best: tuple[np.float32, int, int] | None = None
    for n in exponents:
        exact = s * Fraction(2) ** n
        m = floor(exact + Fraction(1, 2)) if exact >= 0 else -floor(-exact + Fraction(1, 2))
        error = np.float32(float(abs(Fraction(m) / Fraction(2) ** n - s)))
        if abs(m) < limit and (best is None or error < best[0]):
            best = error, m, n
    return None if best is None else best[1:]


GENERAL, POSITIVE = range(-32, 31), range(31)


# -------------------------------------------------------------------------------------------------- 5: multiplier pairs


@given(st.floats(1e-6, 120.0) | st.sampled_from([1.0, 0.5, 0.3, 0.9, 0.1, 0.75, 1 / 3, 0.0123, 2.5, 100.0, 126.4]))
@settings(max_examples=150, deadline=None)
def test_pairs_are_those_of_an_exhaustive_search(value: float) -> None:
    assert best_fit(value, 8) == brute_fit(value, 127, GENERAL)
    assert best_fit_positive(value) == brute_fit(value, 127, POSITIVE)
    assert best_fit(value) == brute_fit(value, 2**31 - 1, GENERAL)


@pytest.mark.parametrize(
    ("value", "general", "positive", "wide"),
    [
        (1.0, (1, 0), (1, 0), (1, 0)),
        (0.5, (1, 1), (1, 1), (1, 1)),
        (0.3, (77, 8), (77, 8), None),
        (0.9, (115, 7), (115, 7), None),
        (0.1, (51, 9), (51, 9), (13421773, 27)),
        (0.75, (3, 2), (3, 2), (3, 2)),
        (1 / 3, (85, 8), (85, 8), (11184811, 25)),
        (0.0123, (101, 13), (101, 13), (825439, 26)),
        (2.5, (5, 1), (5, 1), (5, 1)),
        (100.0, (25, -2), (100, 0), None),
    ],
)
def test_pairs_of_the_specification(
    value: float, general: tuple[int, int], positive: tuple[int, int], wide: tuple[int, int] | None
) -> None:
    assert best_fit(value, 8) == general and best_fit_positive(value) == positive
    assert wide is None or best_fit(value) == wide


def test_average_pool_table() -> None:
    for k in range(1, 226):
        m, r = avgpool_table(k)
        assert 0 < m <= 255 and abs(Fraction(m, 2**r) - Fraction(1, k)) <= Fraction(1, 2 ** (r + 1))
    examples = {1: (1, 0), 3: (171, 9), 9: (57, 9), 49: (167, 13), 64: (1, 6), 225: (73, 14)}
    assert {k: avgpool_table(k) for k in examples} == examples


# ----------------------------------------------------------------------------------------------- 2: scales, zero points


def test_scales_of_the_worked_examples() -> None:
    """Numerics.md 2.3."""
    low, high = -4.1780586242675781, 4.4932479858398438
    shape, turned = (1, 4), "order = [1 : i64, 0 : i64]"
    rows = [x("a", shape, low, high), Row("y", "Permute", "a", (4, 1), (low, high), turned)]
    rows += [x("b", shape, 0.0, 6.0), Row("z", "Permute", "b", (4, 1), (0.0, 6.0), turned)]
    _, ops, fallbacks = lowered(module(*rows, results="y z"))
    y, z = uniform_of(ops["y"].output), uniform_of(ops["z"].output)
    assert y is not None and z is not None and not fallbacks
    assert (y.scale.data, y.zero_point.value.data, y.signed) == (0.03537990540031373, 0, True)
    assert (z.scale.data, z.zero_point.value.data, z.signed) == (0.023529411764705882, 0, False)
    assert asymmetric_scale(low, high) == (0.034005123961205579, -5, True)
    assert asymmetric_scale(0.5, 6.0) == (6 / 255, 0, False)


def test_modes_a_chip_does_not_have_are_refused() -> None:
    model = module(x("a", (1, 4), -1.0, 1.0), Row("y", "Relu", "a", (1, 4), (0.0, 1.0)))
    with pytest.raises(UnsupportedError, match="asymmetric"):
        to_tpu(model, "bm1684", asymmetric=True)
    with pytest.raises(UnsupportedError, match="mode f16 on bm1684"):
        to_tpu(model, "bm1684", "f16")
    with pytest.raises(ImportModelError, match="TOP_CALIBRATED"):
        to_tpu(to_tpu(model))


# --------------------------------------------------------------------------------------------------------------- 9: Add


@ON_CHIPS
def test_add(chip: str) -> None:
    shape = (1, 4, 3, 3)
    model = module(x("a", shape, -1.0, 1.0), x("b", shape, 0.0, 3.0), Row("y", "Add", "a b", shape, (-2.5, 2.5)))
    _, ops, fallbacks = lowered(model, chip)
    ratios = [scale(1.0) / scale(2.5), scale(3.0, signed=False) / scale(2.5)]
    found = list(zip(ints(ops["y"].multipliers), ints(ops["y"].rshifts), strict=True))
    if chip == "bm1684x":
        assert found == [brute_fit(r, 127, POSITIVE) for r in ratios]
    else:
        shifts = [floor(log2(127 / r)) for r in ratios]
        assert found == [(min(int(half_away(r * 2.0**s)), 127), s) for r, s in zip(ratios, shifts, strict=True)]
    assert not fallbacks


def test_add_of_a_constant() -> None:
    """A constant has the scale of its largest magnitude, signed only if it is (numerics.md 9.3)."""
    shape = (1, 2, 2, 2)
    for values in ([0.5, -1.5], [0.25, 3.0]):
        c = np.array(values, np.float32).reshape(1, 2, 1, 1)
        model = module(
            x("a", shape, -1.0, 1.0), Row("y", "Add", "a c", shape, (-3.0, 3.0)), weights={"c": c}
        )  # fmt: skip
        result, ops, _ = lowered(model)
        signed = min(values) < 0
        limit = 127 if signed else 255
        stored = result.weights["c_int8"]
        assert stored.dtype == (np.int8 if signed else np.uint8)
        assert stored.reshape(-1).tolist() == half_away(np.array(values) * limit / max(map(abs, values))).tolist()
        m, r = brute_fit(max(map(abs, values)) / limit / scale(3.0), 127, POSITIVE) or (0, 0)
        assert (ints(ops["y"].multipliers)[1], ints(ops["y"].rshifts)[1]) == (m, r)


# -------------------------------------------------------------------------------------------------------------- 9: Conv

CONV = WINDOW.format(k=3, s=1, p=1)


def conv_module(w: Array, bias: Array | None, limit: float = 2.0, low: float = -1.5, high: float = 1.5) -> Model:
    oc, ic = w.shape[:2]
    weights = {"w": w.astype(np.float32)} | ({} if bias is None else {"b": bias.astype(np.float32)})
    rows = [x("a", (1, ic, 4, 4), low, high)]
    rows.append(Row("y", "Conv", f"a w {'none' if bias is None else 'b'}", (1, oc, 4, 4), (-limit, limit), CONV))
    return module(*rows, weights=weights)


def filters(oc: int = 5, ic: int = 3, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((oc, ic, 3, 3)) * np.array([0.1, 1.0, 0.01, 3.0, 0.5])[:oc, None, None, None]).astype(
        np.float32
    )


def test_conv_per_channel() -> None:
    w, b = filters(), np.array([0.5, -1.0, 0.001, 20.0, 0.0], np.float32)
    result, ops, fallbacks = lowered(conv_module(w, b))
    s_in, s_out = scale(1.5), scale(2.0)
    s_w = np.maximum(np.abs(w).max(axis=(1, 2, 3)) / np.float32(127), np.float32(1e-5)).astype(np.float64)
    expected = [brute_fit(s * s_in / s_out, 2**31 - 1, GENERAL) for s in s_w]
    found = list(zip(ints(ops["y"].multiplier), ints(ops["y"].rshift), strict=True))
    assert found == expected and not fallbacks
    quantised = result.weights["w_int8"]
    assert quantised.dtype == np.int8
    assert np.array_equal(quantised, np.clip(half_away(w / s_w[:, None, None, None]), -128, 127))
    bias = result.weights["w_bias_int32"]
    assert bias.dtype == np.int32 and bias.tolist() == half_away(b / (s_w * s_in)).tolist()


def test_sign_of_a_filter() -> None:
    """Signed if any weight is negative or with a bias, else unsigned with 255 steps (numerics.md 7.1)."""
    w = np.abs(filters(2)) + np.float32(0.013)
    for bias, dtype, steps in ((None, np.uint8, 255), (np.zeros(2), np.int8, 127)):
        result, _, _ = lowered(conv_module(w, bias))
        stored = result.weights["w_int8"]
        assert stored.dtype == dtype and stored.max(axis=(1, 2, 3)).tolist() == [steps] * 2


@pytest.mark.parametrize("exponent", [0, 2, 6])
def test_filters_that_are_integers_stay_what_they_are(exponent: int) -> None:
    """The all-int8 shortcut: scale 2^-i for the smallest i that makes every weight an integer of 8 bits."""
    whole = np.random.default_rng(1).integers(-128, 127, (2, 3, 3, 3))
    whole[0, 0, 0, :2] = 1, -128
    result, ops, _ = lowered(conv_module(whole / 2.0**exponent, None))
    assert np.array_equal(result.weights["w_int8"], whole)
    pair = brute_fit(2.0**-exponent * scale(1.5) / scale(2.0), 2**31 - 1, GENERAL)
    assert pair == (ints(ops["y"].multiplier)[1], ints(ops["y"].rshift)[1])


def test_filters_that_are_almost_integers_are_scaled() -> None:
    for exponent, value in ((7, 1), (0, 200)):  # 2^-7 is too fine, 200 needs more than 8 bits
        whole = np.full((1, 1, 3, 3), value)
        whole[0, 0, 0, 0] = -1
        result, _, _ = lowered(conv_module(whole / 2.0**exponent, None))
        assert np.abs(result.weights["w_int8"]).max() == 127


@pytest.mark.parametrize("bias", [None, 0.0, 0.5])
def test_a_tiny_input_scale_is_replaced(bias: float | None) -> None:
    """Numerics.md 7.1: s_in <= 1e-5 becomes max|W|/127 without a bias worth it, else max|b|/127."""
    w = filters(2)
    b = None if bias is None else np.array([bias, -bias / 2])
    result, ops, _ = lowered(conv_module(w, b, low=-1e-4, high=1e-4))
    s_in = (0.5 if bias else float(np.abs(w).max())) / 127
    s_w = (np.abs(w).max(axis=(1, 2, 3)) / np.float32(127)).astype(np.float64)
    pairs = [brute_fit(s * s_in / scale(2.0), 2**31 - 1, GENERAL) for s in s_w]
    assert list(zip(ints(ops["y"].multiplier), ints(ops["y"].rshift), strict=True)) == pairs
    if b is not None:
        assert result.weights["w_bias_int32"].tolist() == half_away(b.astype(np.float32) / (s_w * s_in)).tolist()


def doublings(value: float) -> int:
    """Doublings needed to reach 127, minus one (numerics.md 5.4)."""
    count = 0
    while value < 127:
        value, count = value * 2, count + 1
    return count - 1


def test_conv_that_only_shifts() -> None:
    w, b = filters(), np.array([0.5, -1.0, 0.001, 0.2, 0.0], np.float32)
    result, ops, fallbacks = lowered(conv_module(w, b), "bm1684")
    s_in, s_out = scale(1.5), scale(2.0)
    r = doublings(float(np.abs(w).max()) * s_in / s_out)
    assert ints(ops["y"].rshift) == (r,) and ops["y"].quant_mode.data == "OnlyShift" and not fallbacks
    ratio = 2.0**r * s_in / s_out
    assert np.array_equal(result.weights["w_int8"], np.clip(half_away(w.astype(np.float64) * ratio), -128, 127))
    bias = result.weights["w_bias_int16"]
    assert bias.dtype == np.int16 and bias.tolist() == half_away(b.astype(np.float64) * 2.0**r / s_out).tolist()


@pytest.mark.parametrize(("saturated", "channels"), [(1, 20), (1, 40)])
def test_more_than_three_percent_saturated_biases_lower_the_shift(saturated: int, channels: int) -> None:
    """5 % are too many, 2.5 % are not: then the shift stays and those biases saturate (numerics.md 5.4)."""
    w = np.full((channels, 1, 3, 3), 0.25, np.float32)
    b = np.zeros(channels, np.float32)
    s_in, s_out = scale(1.5), scale(2.0)
    first = doublings(0.25 * s_in / s_out)
    b[:saturated] = 32767.4 * s_out / 2.0**first * 3  # two doublings too much
    result, ops, _ = lowered(conv_module(w, b), "bm1684")
    (r,) = ints(ops["y"].rshift)
    lowered_by = 2 if saturated / channels > 0.03 else 0
    assert r == first - lowered_by
    assert (result.weights["w_bias_int16"] == 32767).sum() == (0 if lowered_by else saturated)
    assert np.array_equal(result.weights["w_int8"].reshape(-1)[:1], half_away([0.25 * 2.0**r * s_in / s_out]))


def test_conv_with_a_negative_shift_runs_in_float() -> None:
    _, ops, fallbacks = lowered(conv_module(filters() * 1000, None), "bm1684")
    assert [(f.op, f.kind) for f in fallbacks] == [("y", "top.Conv")] and "negative" in fallbacks[0].why
    assert element_of(ops["y"].output) == f32


# -------------------------------------------------------------------------------------------- MatMul, pool, Mul, Concat


@ON_CHIPS
def test_matmul(chip: str) -> None:
    rng = np.random.default_rng(5)
    w, b = rng.standard_normal((6, 5)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
    model = module(
        x("a", (2, 6), -1.5, 1.5), Row("y", "MatMul", "a w b", (2, 5), (-2.0, 2.0)), weights={"w": w, "b": b}
    )  # fmt: skip
    result, ops, fallbacks = lowered(model, chip)
    s_in, s_out = scale(1.5), scale(2.0)
    largest = float(np.abs(w).max())
    pair = ints(ops["y"].multipliers)[0], ints(ops["y"].rshifts)[0]
    assert not fallbacks
    if chip == "bm1684x":
        s_w = largest / 127
        assert pair == brute_fit(s_w * s_in / s_out, 2**31 - 1, GENERAL)
        assert np.array_equal(result.weights["w_int8"], half_away(w.astype(np.float64) / s_w))
        bias = result.weights["y_bias_int32"]
        assert bias.dtype == np.int32 and bias.tolist() == half_away(b.astype(np.float64) / (s_w * s_in)).tolist()
    else:
        r = doublings(largest * s_in / s_out)
        assert pair == (1, r)
        stored = half_away(w.astype(np.float64) * 2.0**r * s_in / s_out)
        assert np.array_equal(result.weights["w_int8"], np.clip(stored, -128, 127))
        bias = result.weights["y_bias_int16"]
        assert bias.dtype == np.int16 and bias.tolist() == half_away(b.astype(np.float64) * 2.0**r / s_out).tolist()


def test_matmul_that_only_shifts_never_shifts_left() -> None:
    w = np.full((6, 5), 100.0, np.float32)
    model = module(
        x("a", (2, 6), -1.5, 1.5), Row("y", "MatMul", "a w none", (2, 5), (-0.1, 0.1)), weights={"w": w}
    )  # fmt: skip
    _, ops, fallbacks = lowered(model, "bm1684")
    assert (ints(ops["y"].multipliers), ints(ops["y"].rshifts)) == ((1,), (0,)) and not fallbacks


def test_matmul_of_two_activations() -> None:
    rows = [x("a", (2, 6), -1.5, 1.5), x("b", (6, 5), 0.0, 3.0), Row("y", "MatMul", "a b none", (2, 5), (-2.0, 2.0))]
    _, ops, _ = lowered(module(*rows))
    pair = brute_fit(scale(1.5) * scale(3.0, signed=False) / scale(2.0), 2**31 - 1, GENERAL)
    assert (ints(ops["y"].multipliers)[0], ints(ops["y"].rshifts)[0]) == pair
    _, _, fallbacks = lowered(module(*rows), "bm1684")
    assert [f.op for f in fallbacks] == ["y"]


@ON_CHIPS
def test_average_pool(chip: str) -> None:
    rows = [x("a", (1, 3, 6, 6), -1.5, 1.5), Row("y", "AvgPool", "a", (1, 3, 2, 2), (-1.0, 1.0))]
    rows[1] = Row("y", "AvgPool", "a", (1, 3, 2, 2), (-1.0, 1.0), WINDOW.format(k=3, s=3, p=0))
    _, ops, fallbacks = lowered(module(*rows), chip)
    pair = ops["y"].multiplier.value.data, ops["y"].rshift.value.data
    out = uniform_of(ops["y"].output)
    assert out is not None and not fallbacks
    if chip == "bm1684x":
        assert pair == brute_fit(scale(1.5) / (scale(1.0) * 9), 127, GENERAL) and out.scale.data == scale(1.0)
    else:  # the table of 1/9 at the input's scale, which propagation gave the output
        assert pair == (57, 9) and out.scale.data == scale(1.5)


@ON_CHIPS
def test_mul(chip: str) -> None:
    shape = (1, 3, 2, 2)
    for limit in (1.0, 1e-3):
        rows = [x("a", shape, -1.5, 1.5), x("b", shape, 0.0, 3.0), Row("y", "Mul", "a b", shape, (-limit, limit))]
        _, ops, fallbacks = lowered(module(*rows), chip)
        pair = brute_fit(scale(1.5) * scale(3.0, signed=False) / scale(limit), 127, GENERAL)
        assert pair is not None and not fallbacks
        assert (ops["y"].multiplier.value.data, ops["y"].rshift.value.data) == pair


def test_a_left_shift_of_mul_is_clamped_where_there_is_none() -> None:
    shape = (1, 3, 2, 2)
    rows = [x("a", shape, -100.0, 100.0), x("b", shape, -1000.0, 1000.0), Row("y", "Mul", "a b", shape, (-1.0, 1.0))]
    ratio = scale(100.0) * scale(1000.0) / scale(1.0)
    general = brute_fit(ratio, 127, GENERAL)
    assert general is not None and general[1] < 0
    for chip, expected in (("bm1684x", general), ("bm1684", (general[0], 0))):
        _, ops, _ = lowered(module(*rows), chip)
        assert (ops["y"].multiplier.value.data, ops["y"].rshift.value.data) == expected


def concat_rows(*ranges: Range, extra: bool) -> list[Row]:
    """Make y = Concat(a, b); with `extra` a has another user, so that it keeps its range."""
    shape, (first, second, out) = (1, 3, 2, 2), ranges
    rows = [x("a", shape, *first), x("b", shape, *second)]
    rows.append(Row("y", "Concat", "a b", (1, 6, 2, 2), out, "axis = 1 : i64"))
    return [*rows, Row("z", "Add", "a b", shape, (-4.0, 4.0))] if extra else rows


def test_concat_requantises_operands_of_another_scale() -> None:
    rows = concat_rows((-1.0, 1.0), (-2.0, 2.0), (-2.0, 2.0), extra=True)
    _, ops, _ = lowered(module(*rows, results="y z"))
    shift = next(op for name, op in ops.items() if name.endswith("_to_y"))
    assert shift.name == "tpu.MulShift" and sum(name.endswith("_to_y") for name in ops) == 1
    assert (shift.multiplier.value.data, shift.rshift.value.data) == brute_fit(0.5, 127, POSITIVE) == (1, 1)
    assert [op_name(v.owner) for v in ops["y"].inputs] == [op_name(shift), op_name(ops["z"].inputs[1].owner)]
    assert element_of(shift.output) == element_of(ops["y"].output)


def test_concat_of_one_range_moves_bytes() -> None:
    _, ops, _ = lowered(module(*concat_rows((-1.0, 1.0), (-2.0, 2.0), (-2.0, 2.0), extra=False)))
    assert not any(op.name == "tpu.MulShift" for op in ops.values())
    out = uniform_of(ops["y"].output)
    assert out is not None and out.scale.data == scale(2.0)


# ----------------------------------------------------------------------------------------------------- casts, fallbacks


def test_casts_are_inserted_once_per_type() -> None:
    shape = (1, 3, 2, 2)
    rows = [
        x("a", shape, -1.0, 1.0),
        Row("r", "Add", "a a", shape, (-1.0, 1.0)),
        Row("s", "Add", "a r", shape, (-1.5, 1.5)),
        Row("u", "Add", "s r", shape),  # not calibrated: float
        Row("v", "Add", "u s", shape),
    ]
    _, ops, fallbacks = lowered(module(*rows, results="s v"))
    casts = {name: op_name(op.input.owner) for name, op in ops.items() if op.name == "tpu.Cast"}
    assert casts == {"ar_si8": "a", "su_f16": "s", "ru_f16": "r", "s_f32": "s", "v_f32": "v"}
    assert [(f.op, f.why) for f in fallbacks] == [("u", "the output is not calibrated")] + [
        ("v", "the output is not calibrated")
    ]
    assert {value_name(v) for v in ops["s"].inputs} == {"ar_si8", "r"}
    assert all(element_of(v) == f16 for v in ops["v"].inputs)  # DN-05: the chip's float type


@pytest.mark.parametrize(
    "relus",
    [
        {"x": "yz", "xy": "z"},  # both casts are x + yz and xy + z
        {"x": "yzw", "xy": "zw", "xyz": "w"},
        {"x": "yz_1", "xy": "z_1"},
        {"x": "y", "z": "xy_f16"},  # the cast of x is called like the second op
        {"z": "xy_f16", "x": "y"},
        {"x": "y_f16", "z": "xy_f16_f16", "xy": "_f16"},
    ],
    ids=" ".join,
)
def test_tensors_have_one_name_each(relus: dict[str, str]) -> None:
    """Names of casts are put together (U-33), so two can be equal; an op of the network keeps its name."""
    builder = ModuleBuilder()
    inputs = {name: builder.input(name, (1, 4)) for name in relus}
    results = [TopRelu.make(builder, inputs[name], name=relu) for name, relu in relus.items()]
    found = to_tpu(builder.finish(results, name="names"), "bm1684x", "f16")
    names = [op_name(op) for op in found.ops if op.name not in ("top.Weight", "top.None", "func.return")]
    assert len(names) == len(set(names)) == 4 * len(relus)
    assert [op_name(op) for op in found.ops if op.name == "tpu.Relu"] == list(relus.values())
    sample = {name: np.full((1, 4), i - 0.5, np.float32) for i, name in enumerate(relus)}
    tensors = simulate(to_program(found), sample).tensors
    assert [tensors[name].max() for name in relus.values()] == [max(i - 0.5, 0.0) for i in range(len(relus))]


SHAPE = (1, 3, 2, 2)
WIDE_TO_NARROW = {
    "add": [Row("y", "Add", "a a", SHAPE, (-1.0, 1.0))],
    "sub": [Row("y", "Sub", "a a", SHAPE, (-1.0, 1.0))],
    "subconst": [Row("y", "SubConst", "a", SHAPE, (-1.0, 1.0), "const_val = 0.5 : f64")],
    "concat": [Row("y", "Concat", "a b", (1, 6, 2, 2), (-1.0, 1.0), "axis = 1 : i64")],
}


@pytest.mark.parametrize("kind", WIDE_TO_NARROW)
@pytest.mark.parametrize(("limit", "in_float"), [(126.0, False), (127.0, True)])
def test_a_scale_above_126_5_runs_in_float_by_decision(kind: str, limit: float, in_float: bool) -> None:
    """DN-08: no 8-bit multiplier exists; the op says so in the module and in its card."""
    rows = [x("a", SHAPE, -limit, limit), x("b", SHAPE, -limit, limit), *WIDE_TO_NARROW[kind]]
    rows.append(Row("z", "Add", "a b", SHAPE, (-250.0, 250.0)))  # so that no operand takes the range of y
    tpu = to_tpu(module(*rows, results="y z"), qtable="y:INT8")  # the marks of 3.4 let tables alone
    op = next(o for o in tpu.ops if op_name(o) == "y")
    assert (uniform_of(op.results[0]) is None) == in_float
    seen = fidelity_of(op)
    assert (seen.decisions == ("DN-08",)) == in_float and (seen.status == "float") == in_float
    assert not in_float or "126" in seen.reason or "multiplier" in seen.reason
    assert "126.5" in DECISIONS["DN-08"]


@pytest.mark.parametrize("how", ["mark", "table", "int8"])
@pytest.mark.parametrize(("chip", "wide"), [("bm1684x", True), ("bm1688", True), ("bm1690", False), ("bm1684", False)])
@pytest.mark.parametrize("low", [-2.0, 0.0])
def test_a_product_before_a_sum_in_float_has_16_bits(low: float, chip: str, wide: bool, how: str) -> None:
    """numerics.md 2.2: s*255/65535, int16, whether the mark of 3.4 or a table puts the sum into float.

    DN-29: without negative values it stays 8 bits wide.
    """
    far = 200.0 if how == "mark" else 2.0
    rows = [
        x("a", (1, 4), -1.0, 1.0),
        x("b", (1, 4), -far, far),
        Row("m", "MatMul", "a w none", (1, 4), (low, 2.0)),
        Row("y", "Add", "m b", (1, 4), (-far, far)),
    ]
    model = module(*rows, weights={"w": np.eye(4, dtype=np.float32)})
    tpu = to_tpu(model, chip, qtable="y:F16" if how == "table" else None)
    ops = {op_name(op): op for op in tpu.ops}
    product, asked = uniform_of(ops["m"].results[0]), wide and how != "int8"
    assert product is not None and (uniform_of(ops["y"].results[0]) is None) == (how != "int8")
    assert fidelity_of(ops["m"]).decisions == (("DN-29",) if asked and low == 0 else ())
    assert product.storage.width.data == (16 if asked and low else 8)
    if asked and low:
        assert product.scale.data == 2.0 / 127 * 255 / 65535 and product.zero_point.value.data == 0
        m, r = (ints(ops["m"].attributes[key])[0] for key in ("multipliers", "rshifts"))
        assert m / 2**r == pytest.approx((1 / 127) ** 2 / product.scale.data, rel=1e-6)


def test_results_are_f32() -> None:
    model = module(x("a", (1, 4), -1.0, 1.0), Row("y", "Add", "a a", (1, 4), (-1.0, 1.0)))
    result, ops, _ = lowered(model)
    assert [value_name(v) for v in result.results] == ["y_f32"]
    assert element_of(ops["y_f32"].output) == f32 and ops["y_f32"].input is ops["y"].output


def test_a_degenerate_range_is_no_range() -> None:
    model = module(x("a", (1, 4), -1.0, 1.0), Row("y", "Add", "a a", (1, 4), (0.0, 0.0)))
    _, ops, fallbacks = lowered(model)
    assert [f.why for f in fallbacks] == ["the output is not calibrated"] and element_of(ops["y"].output) == f16


def test_f32_mode_has_no_integers() -> None:
    w = filters(2)
    result, fallbacks = to_tpu_with_fallbacks(conv_module(w, None), mode="f32")
    assert not fallbacks
    for one in result.ops:
        assert all(element_of(v) == f32 for v in one.results if is_tensor(v))
    assert np.array_equal(result.weights["w"], w)


# ----------------------------------------------------------------------------------------------------- 3.4: float marks


@pytest.mark.parametrize(
    ("second", "marked"), [(64.0, False), (64.5, True), (1 / 64.5, True), (1 / 64.0, False), (1e-9, False)]
)
def test_an_unbalanced_add_runs_in_float(second: float, marked: bool) -> None:
    rows = [x("a", (1, 4), -1.0, 0.5), x("b", (1, 4), 0.0, second), Row("y", "Add", "a b", (1, 4), (-70.0, 70.0))]
    model = module(*rows)
    assert bool(float_marks(model)) == marked
    _, ops, fallbacks = lowered(model)
    float_y = element_of(ops["y"].output) == f16  # numerics.md 3.4
    assert float_y == bool(fallbacks)
    if marked:
        assert [f.op for f in fallbacks] == ["y"] and "more than 64" in fallbacks[0].why


def test_an_add_of_a_constant_is_never_marked() -> None:
    model = module(
        x("a", (1, 4), -1.0, 1.0), Row("y", "Add", "a c", (1, 4), (-100.0, 100.0)),
        weights={"c": np.full((1, 4), 100.0, np.float32)},
    )  # fmt: skip
    assert not float_marks(model)


def test_marks_are_made_before_propagation() -> None:
    """Relu would give its input the small range that makes the Add unbalanced; the mark looks at the table."""
    rows = [
        x("a", (1, 4), -1.0, 1.0), x("b", (1, 4), -1.0, 1.0),
        Row("c", "Add", "a a", (1, 4), (-100.0, 100.0)), Row("r", "Relu", "b", (1, 4), (0.0, 1.0)),
        Row("y", "Add", "c r", (1, 4), (-100.0, 100.0)),
    ]  # fmt: skip
    _, _, fallbacks = lowered(module(*rows))
    assert [f.op for f in fallbacks] == ["y"]


# ----------------------------------------------------------------------------------------------------- 3.3: propagation


def test_step_1_layout_ops_take_their_input() -> None:
    found = propagated(image("a", -1.0, 1.0), op("p", "Permute", "a", -9.0, 9.0), op("y", "Permute", "p", 0.0, 3.0))
    assert found == {"a": (-1.0, 1.0), "p": (-1.0, 1.0), "y": (-1.0, 1.0)}


def test_step_2_signs_of_pools() -> None:
    found = propagated(image("a", -1.0, 1.0), op("y", "AvgPool", "a", 0.0, 2.0))
    assert found["y"] == (float(np.float32(-0.1 * 2.0)), 2.0)
    found = propagated(image("a", 0.0, 1.0), op("y", "AvgPool", "a", -1.0, 2.0))
    assert found["y"] == (0.0, 2.0)
    layout = Row("y", "Permute", "p", (1, 2, 2, 2), (-5.0, 5.0), ORDER)
    found = propagated(image("a", 0.0, 1.0), op("p", "AvgPool", "a", -1.0, 2.0), layout)
    assert found["y"] == found["p"] == (0.0, 2.0)


def test_step_2_sum_of_non_negative_inputs() -> None:
    found = propagated(image("a", 0.0, 1.0), image("b", 0.0, 2.0), op("y", "Add", "a b", -1.0, 3.0))
    assert found["y"] == (0.0, 3.0)
    found = propagated(image("a", 0.0, 1.0), image("b", -0.5, 2.0), op("y", "Add", "a b", -1.0, 3.0))
    assert found["y"] == (-1.0, 3.0)


def test_step_2_comes_before_concat() -> None:
    """The pool becomes unsigned in time for the Concat, which skips mixed signs."""
    rows = [image("a", 0.0, 1.0), op("p", "AvgPool", "a", -1.0, 2.0), x("b", (1, 2, 2, 2), 0.0, 3.0)]
    joined = Row("y", "Concat", "p b", (1, 4, 2, 2), (0.0, 4.0), "axis = 1 : i64")
    assert propagated(*rows, joined) == {"a": (0.0, 1.0), "p": (0.0, 4.0), "b": (0.0, 4.0), "y": (0.0, 4.0)}


def test_step_3_sign_of_products() -> None:
    found = propagated(image("a", -1.0, 1.0), image("b", -2.0, 2.0), op("y", "Mul", "a b", 0.0, 3.0))
    assert found["y"] == (float(np.float32(-0.1 * 3.0)), 3.0)
    found = propagated(image("a", 0.0, 1.0), image("b", 0.0, 2.0), op("y", "Mul", "a b", -1.0, 3.0))
    assert found["y"] == (0.0, 3.0)  # the sign of a table that contradicts itself; upstream stops here
    with pytest.raises(CalibrationError, match=r"top.Mul 'y': both factors are non-negative.*\(-3.0, 0.0\)"):
        propagated(image("a", 0.0, 1.0), image("b", 0.0, 2.0), op("y", "Mul", "a b", -3.0, 0.0))
    for signs in ((-1.0, 0.0, -1.0), (0.0, -1.0, -1.0), (0.0, 0.0, 0.0)):
        rows = [image("a", signs[0], 1.0), image("b", signs[1], 1.0), op("y", "Mul", "a b", signs[2], 1.0)]
        assert propagated(*rows)["y"] == (signs[2], 1.0)


def test_step_3_counts_a_scalar_constant() -> None:
    weights = {"w": np.full((1, 1, 1, 1), -0.5, np.float32)}
    found = propagated(image("a", -1.0, 1.0), op("y", "Mul", "a w", 0.0, 3.0), weights=weights)
    assert found["y"] == (float(np.float32(-0.1 * 3.0)), 3.0)


def test_step_4_concat() -> None:
    def joined(a: Range, b: Range, out: Range, *more: Row, results: str = "y") -> Any:
        return propagated(image("a", *a), image("b", *b), op("y", "Concat", "a b", *out), *more, results=results)

    assert joined((-1, 1), (-2, 2), (-3, 3)) == {"a": (-3, 3), "b": (-3, 3), "y": (-3, 3)}
    assert joined((-1, 1), (-1, 1), (-3, 3)) == {"a": (-1, 1), "b": (-1, 1), "y": (-1, 1)}
    mixed = joined((0, 1), (-2, 2), (-3, 3))
    assert mixed == {"a": (0, 1), "b": (-2, 2), "y": (-3, 3)}
    other = joined((-1, 1), (-2, 2), (-3, 3), op("z", "Relu", "a", 0, 1), results="y z")
    assert (other["a"], other["b"], other["y"]) == ((-1, 1), (-2, 2), (-3, 3))
    pooled = joined((-1, 1), (-2, 2), (-3, 3), op("z", "MaxPool", "a", -1, 1), results="y z")
    assert pooled == {"a": (-3, 3), "b": (-3, 3), "y": (-3, 3), "z": (-3, 3)}  # z in step 9


def test_step_4_reaches_through_layout_ops() -> None:
    rows = [image("a", -1.0, 1.0), image("b", -2.0, 2.0), op("p", "Permute", "a", -1.0, 1.0)]
    found = propagated(*rows, op("y", "Concat", "p b", -3.0, 3.0))
    assert found == {"a": (-3.0, 3.0), "b": (-3.0, 3.0), "p": (-3.0, 3.0), "y": (-3.0, 3.0)}


def test_step_5_relu_and_max_pool_go_backward() -> None:
    for kind in ("Relu", "MaxPool"):
        rows = [image("a", -5.0, 5.0), op("p", "Permute", "a", -5.0, 5.0), op("y", kind, "p", -0.1, 3.0)]
        assert propagated(*rows) == dict.fromkeys(("a", "p", "y"), (-0.1, 3.0))


def test_step_5_leaves_a_tensor_with_two_uses_and_step_9_goes_forward() -> None:
    rows = [image("a", -5.0, 5.0), op("r", "Relu", "a", 0.0, 3.0), op("y", "Add", "a r", -6.0, 6.0)]
    assert propagated(*rows) == {"a": (-5.0, 5.0), "r": (-5.0, 5.0), "y": (-6.0, 6.0)}


@ON_CHIPS
def test_step_6_products_that_feed_a_sum(chip: str) -> None:
    rows = [image("a", -1.0, 1.0), image("b", -2.0, 2.0), op("m", "Mul", "a b", -2.0, 2.0)]
    rows += [op("n", "Mul", "a a", -1.0, 1.0), op("y", "Add", "m n", -3.0, 3.0)]
    found = propagated(*rows, chip=chip)
    multiplied = chip == "bm1684x"
    assert (found["m"], found["n"]) == (((-3.0, 3.0),) * 2 if multiplied else ((-2.0, 2.0), (-1.0, 1.0)))
    rows[-1] = op("y", "Add", "m a", -3.0, 3.0)
    assert propagated(*rows, results="y n", chip=chip)["m"] == (-2.0, 2.0)


@ON_CHIPS
def test_step_9_average_pool_on_a_chip_that_only_shifts(chip: str) -> None:
    found = propagated(image("a", -1.0, 1.0), op("y", "AvgPool", "a", -0.7, 0.7), chip=chip)
    assert found["y"] == ((-0.7, 0.7) if chip == "bm1684x" else (-1.0, 1.0))


def test_step_10_repeats_the_sign_rules() -> None:
    """The Relu's range becomes non-negative only in step 9; the sum learns of it in step 10."""
    rows = [image("a", 0.0, 1.0), op("r", "Relu", "a", -2.0, 2.0), op("y", "Add", "r a", -3.0, 3.0)]
    assert propagated(*rows) == {"a": (0.0, 1.0), "r": (0.0, 1.0), "y": (0.0, 3.0)}


def test_one_step_runs_to_its_fix_point() -> None:
    """Backward through three ops needs several passes in program order."""
    rows = [image("a", -9.0, 9.0), op("r", "Relu", "a", 0.0, 8.0), op("s", "Relu", "r", 0.0, 7.0)]
    assert propagated(*rows, op("y", "Relu", "s", 0.0, 6.0)) == dict.fromkeys(("a", "r", "s", "y"), (0.0, 6.0))


def test_propagation_repeated_changes_nothing() -> None:
    rows = [image("a", -1.0, 1.0), image("b", 0.0, 2.0), op("c", "Concat", "a b", -3.0, 3.0)]
    rows += [Row("p", "MaxPool", "c", (1, 4, 2, 2), (-2.5, 2.5), HALF), Row("y", "Relu", "p", (1, 4, 2, 2), (0.0, 2.0))]
    model = module(*rows)
    propagate(model, chips.load("bm1684x"))
    once = print_module(model.module)
    propagate(model, chips.load("bm1684x"))
    assert print_module(model.module) == once


def test_lowering_leaves_its_input_alone() -> None:
    model = module(*concat_rows((-1.0, 1.0), (-2.0, 2.0), (-3.0, 3.0), extra=False))
    before = print_module(model.module)
    _, ops, _ = lowered(model)
    assert print_module(model.module) == before
    assert all(isinstance(op_, Operation) for op_ in ops.values()) and isinstance(ops["y"], TpuOp)


@pytest.mark.parametrize("kind", ["Add", "Sigmoid"])
def test_a_range_of_one_number_has_no_asymmetric_scale(kind: str) -> None:
    """The op runs in float, and the report says so (DN-05); symmetric it has a scale."""
    rows = [x("a", (1, 4), 0.5, 0.5), Row("y", kind, "a a" if kind == "Add" else "a", (1, 4), (0.5, 1.0))]
    model = module(*rows)
    _, fallbacks = to_tpu_with_fallbacks(model, asymmetric=True)
    assert [f.op for f in fallbacks] == ["y"]
    assert not to_tpu_with_fallbacks(model)[1]
