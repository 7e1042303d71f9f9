"""Every TIU and GDMA command on the machine against naive Python-int (or float64) arithmetic."""

from fractions import Fraction
from itertools import product
from math import floor
from typing import Any

import numpy as np
import pytest
from bench import Bench, numbers, pack
from convolution import gathered
from hypothesis import given
from hypothesis import strategies as st
from streams import NEURON, gmem

from tpusim import chips
from tpusim.errors import SimulationError
from tpusim.isa import commands as isa
from tpusim.isa import functions
from tpusim.isa.commands import Requant
from tpusim.isa.cycles import tiu_cycles
from tpusim.isa.layout import align
from tpusim.isa.region import dtype_of, numpy_dtype
from tpusim.simulator.integer import rounding_shift
from tpusim.simulator.product import carrier

MODES = ("half_up", "half_away", "half_even", "down")


def exact_shift(value: int, n: int, mode: str) -> int:
    """RSR by fractions: numerics.md 4.3."""
    if n <= 0:
        return value << -n
    exact = Fraction(value, 1 << min(n, 63))
    if mode == "down":
        return floor(exact)
    if mode == "half_up" or (mode == "half_away" and exact >= 0):
        return floor(exact + Fraction(1, 2))
    return round(exact) if mode == "half_even" else -floor(-exact + Fraction(1, 2))


def clamp(value: int, dtype: str) -> int:
    info = np.iinfo(numpy_dtype(dtype))  # type: ignore[arg-type]
    return max(int(info.min), min(int(info.max), value))


def rescaled(value: int, requant: Requant, dtype: str, *, relu: bool = False) -> int:
    shifted = exact_shift(value * requant.multiplier, requant.rshift, requant.rounding) + requant.zero_point
    return clamp(max(shifted, requant.zero_point) if relu else shifted, dtype)


def each(function: Any, array: np.ndarray, dtype: str) -> np.ndarray:
    """Apply a Python-int function to every element."""
    return np.array([function(int(v)) for v in array.flat], object).reshape(array.shape).astype(numpy_dtype(dtype))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- rounding


@given(st.integers(-(2**40), 2**40), st.integers(-1, 1), st.integers(-4, 80), st.sampled_from(MODES))
def test_rounding_shift(halves: int, delta: int, n: int, mode: str) -> None:
    """Values at and next to ties."""
    value = max(-(2**62), min(2**62, halves * 2 ** max(min(n, 63) - 1, 0) + delta))
    expected = exact_shift(value, n, mode)
    got = int(rounding_shift(np.array([value], np.int64), n, mode)[0])  # type: ignore[arg-type]
    if n < 0:  # saturated types cannot tell values beyond 32 bits apart
        assert clamp(got, "i32") == clamp(expected, "i32")
    else:
        assert got == expected


@pytest.mark.parametrize(
    "src, up, away, even, down",
    [(6, 2, 2, 2, 1), (-6, -1, -2, -2, -2), (2, 1, 1, 0, 0), (-2, 0, -1, 0, -1)]
    + [(10, 3, 3, 2, 2), (-10, -2, -3, -2, -3), (7, 2, 2, 2, 1), (-7, -2, -2, -2, -2)],
)
def test_worked_rounding(src: int, up: int, away: int, even: int, down: int) -> None:
    """The table of numerics.md 4.3, n = 2."""
    assert [int(rounding_shift(np.array([src]), 2, mode)[0]) for mode in MODES] == [up, away, even, down]  # type: ignore[arg-type]
    assert [int(rounding_shift(np.array([-1]), 1, mode)[0]) for mode in MODES] == [0, -1, 0, -1]  # type: ignore[arg-type]


def test_carrier_is_the_narrowest_exact_type() -> None:
    i8, u8, i16, i32, f32 = (np.dtype(t) for t in ("i1", "u1", "i2", "i4", "f4"))
    assert carrier(u8, i8, 513) == np.float32 and carrier(u8, i8, 515) == np.float64
    assert carrier(i16, i16, 1000) == np.float64 and carrier(i32, i32, 2) == np.int64
    assert carrier(f32, f32, 1) == np.float64


# ---------------------------------------------------------------------------------------------------- convolution


def sums(x: np.ndarray, w: np.ndarray, case: dict[str, Any]) -> np.ndarray:
    """Accumulators as Python integers (or floats), which no later sum or shift wraps."""
    geometry = {name: case[name] for name in ("strides", "pads", "dilations", "groups")}
    return gathered(x, w, case["pad_value"], **geometry).astype(object)


PLAIN: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1, "pad_value": 0}
WINDOWS = [
    ((2, 5, 5, 6), 7, (3, 3), {"pads": (1, 1, 1, 1), "pad_value": -5}),
    ((1, 4, 7, 8), 6, (3, 2), {"strides": (2, 3), "pads": (0, 2, 1, 0), "groups": 2}),
    ((1, 3, 8, 7), 2, (2, 3), {"dilations": (2, 2)}),
    ((1, 70, 4, 4), 66, (1, 1), {"strides": (2, 2)}),
    ((1, 6, 3, 3), 4, (1, 1), {}),
    ((1, 130, 3, 3), 3, (3, 3), {"pads": (1, 1, 1, 1)}),
]


@pytest.mark.parametrize("chip", chips.available())
@pytest.mark.parametrize("types", [("i8", "i8"), ("u8", "i8"), ("i8", "u8"), ("f32", "f32")], ids="-".join)
@pytest.mark.parametrize("shape, oc, kernel, more", WINDOWS)
def test_conv(chip: str, types: tuple[str, str], shape: Any, oc: int, kernel: Any, more: dict[str, Any]) -> None:
    case = {**PLAIN, **more}
    bench = Bench(chip)
    x, w = numbers(shape, types[0]), numbers((oc, shape[1] // case["groups"], *kernel), types[1])
    acc = sums(x, w, case)
    bias = numbers((1, oc, 1, 1), "f32" if types[0] == "f32" else "i32")
    total = acc + bias.astype(object)
    packing = bench.chip.filter_packing(w.itemsize, w.shape[1])
    fields = {
        **case,
        "kernel": kernel,
        "input": bench.put(x, packed=True),
        "filter": bench.put(pack(w, packing), layout="compact"),
        "bias": bench.put(bias, layout="compact"),
        "relu": True,
    }
    if types[0] == "f32":
        got = bench.run(isa.Conv, output=bench.space(acc.shape, "f32"), **fields, relu_limit=20.0)
        expected = np.clip(total.astype(np.float64), 0, 20).astype(np.float32)
        np.testing.assert_allclose(got, expected, rtol=2e-7, atol=1e-6)
        return
    requant = Requant(1, 9, (3, 0, -3)[oc % 3])
    got = bench.run(isa.Conv, output=bench.space(acc.shape, "i8", packed=True), **fields, requant=requant)
    np.testing.assert_array_equal(got, each(lambda v: rescaled(v, requant, "i8", relu=True), total, "i8"))


def test_conv_requant_table_and_raw_accumulator() -> None:
    bench = Bench()
    x, w = numbers((1, 3, 6, 6), "u8") & 0xF0, numbers((70, 3, 3, 3), "i8")
    acc = sums(x, w, PLAIN)
    rng = np.random.default_rng(7)
    table = np.zeros((1, 70, 1, 3), np.int32)
    table[0, :, 0, 0] = rng.integers(1 << 29, 1 << 30, 70)
    table[0, :, 0, 1] = -rng.integers(35, 42, 70)
    table[0, :5, 0, 1] = [0, 1, 2, -62, -70]  # no shift, left shifts, long shifts
    table[0, 5:20, 0, :2] = [1, -8]
    assert any(v % 256 == 128 and v < 0 for v in acc[:, 5:20].flat)  # a tie
    table[0, :, 0, 2] = rng.integers(-9, 9, 70)
    fields = {"input": bench.put(x), "filter": bench.put(pack(w, 64), layout="compact"), "kernel": (3, 3)}
    raw = bench.run(isa.Conv, output=bench.space(acc.shape, "i32"), **fields)
    np.testing.assert_array_equal(raw, acc.astype(np.int32))
    view = bench.put(table, layout="compact")
    got = bench.run(isa.Conv, output=bench.space(acc.shape, "i8"), requant_table=view, **fields)
    floored = bench.run(isa.Conv, output=bench.space(acc.shape, "i8"), requant_table=view, relu=True, **fields)
    for c in range(70):
        m, left, z = (int(v) for v in table[0, c, 0])
        expected = each(lambda v, m=m, left=left, z=z: rescaled(v, Requant(m, -left, z), "i8"), acc[:, c], "i8")
        np.testing.assert_array_equal(got[:, c], expected)
        np.testing.assert_array_equal(floored[:, c], np.maximum(expected, z))  # relu at the zero point


@pytest.mark.parametrize("dtype", ["i8", "u8", "f32"])
def test_depthwise(dtype: str) -> None:
    bench = Bench()
    case = {**PLAIN, "strides": (2, 1), "pads": (1, 0, 1, 2), "dilations": (1, 2), "groups": 9, "pad_value": 4}
    x, w = numbers((2, 9, 6, 7), dtype), numbers((9, 1, 3, 3), "f32" if dtype == "f32" else "i8")
    acc = sums(x, w, case)
    fields = {k: v for k, v in case.items() if k != "groups"}
    operands = {"input": bench.put(x), "filter": bench.put(w.reshape(1, 9, 1, 9), layout="compact")}
    output = bench.space(acc.shape, "f32" if dtype == "f32" else "i32")
    got = bench.run(isa.Depthwise, kernel=(3, 3), output=output, **operands, **fields)
    if dtype == "f32":
        np.testing.assert_allclose(got, acc.astype(np.float64), rtol=2e-7, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, acc.astype(np.int32))


def test_accumulator_overflow_is_an_error() -> None:
    bench = Bench()
    x, w = np.full((1, 1, 1, 1), 127, np.int8), np.full((1, 1, 1, 64), 127, np.int8)
    bias = np.full((1, 1, 1, 1), 2**31 - 1, np.int32)
    operands = {"input": bench.put(x), "filter": bench.put(w), "bias": bench.put(bias)}
    with pytest.raises(SimulationError, match=r"Conv 1 \(tiu\) of op 'op': the accumulator reaches 2,147,499,776"):
        bench.run(isa.Conv, kernel=(1, 1), output=bench.space((1, 1, 1, 1), "i32"), **operands)


# -------------------------------------------------------------------------------------------------------- pooling


def naive_windows(x: np.ndarray, case: dict[str, Any]) -> list[tuple[tuple[int, int, int, int], list[Any]]]:
    """Every output position with the list of values its window sees inside the image."""
    (kh, kw), (sh, sw), (top, left, bottom, right) = case["kernel"], case["strides"], case["pads"]
    n, c, h, w = x.shape
    sizes = (n, c, (h + top + bottom - kh) // sh + 1, (w + left + right - kw) // sw + 1)
    found = []
    for b, ch, i, j in product(*(range(size) for size in sizes)):
        taps = product(range(i * sh - top, i * sh - top + kh), range(j * sw - left, j * sw - left + kw))
        found.append(((b, ch, i, j), [x[b, ch, p, q].item() for p, q in taps if 0 <= p < h and 0 <= q < w]))
    return found


@pytest.mark.parametrize("dtype", ["i8", "u8", "f32"])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("mode", ["max", "avg"])
def test_pool(mode: str, include: bool, dtype: str) -> None:
    bench = Bench()
    case: dict[str, Any] = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 1, 1, 0)}
    x = numbers((2, 5, 5, 6), dtype)
    windows = naive_windows(x, case)
    requant = Requant(100, 8, 2) if mode == "avg" and dtype != "f32" else None
    shape = tuple(max(at[axis] for at, _ in windows) + 1 for axis in range(4))
    got = bench.run(
        isa.Pool, mode=mode, input=bench.put(x), output=bench.space(shape, dtype), count_include_pad=include,
        requant=requant, relu=True, **case,
    )  # fmt: skip
    for at, values in windows:
        count = 6 if include else len(values)
        if mode == "max":
            assert got[at] == max(max(values), 0)
        elif requant is None:
            assert got[at] == pytest.approx(max(sum(values) / count, 0), rel=2e-7)
        else:
            exact = Fraction(sum(values) * 6, count)
            rounded = floor(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
            assert got[at] == rescaled(rounded, requant, dtype, relu=True)


# ------------------------------------------------------------------------------------------------- matrix product


@pytest.mark.parametrize("place, multiplier", [("lmem", 77), ("gmem", -77)])
@pytest.mark.parametrize("transposes", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", ["i8", "u8", "f32"])
def test_matmul(dtype: str, transposes: tuple[bool, bool], place: str, multiplier: int) -> None:
    bench = Bench()
    left, right = numbers((3, 5, 600), dtype), numbers((3, 600, 4), "f32" if dtype == "f32" else "i8")
    bias = numbers((4,), "f32" if dtype == "f32" else "i32")
    total = np.matmul(left.astype(object), right.astype(object)) + bias.astype(object)
    stored = [a.swapaxes(1, 2).copy() if t else a for a, t in zip((left, right), transposes, strict=True)]
    out_type = "f32" if dtype == "f32" else "i8"
    if place == "lmem":
        views = [bench.put(a[..., None]) for a in stored]
        bias_view, output = bench.put(bias.reshape(1, 1, 4, 1)), bench.space((3, 5, 4, 1), out_type)
    else:
        views = [gmem(NEURON + 40000 * i, s.shape, dtype_of(s.dtype)) for i, s in enumerate(stored)]
        bias_view, output = gmem(NEURON + 80000, (4,), dtype_of(bias.dtype)), gmem(NEURON + 90000, (3, 5, 4), out_type)
        for view, array in zip((*views, bias_view), (*stored, bias), strict=True):
            bench.machine.write(view, array)
    requant = None if dtype == "f32" else Requant(multiplier, 17, -3)
    got = bench.run(
        isa.MatMul, left=views[0], right=views[1], bias=bias_view, output=output, requant=requant, relu=True,
        left_transpose=transposes[0], right_transpose=transposes[1],
    ).reshape(3, 5, 4)  # fmt: skip
    if requant is None:
        np.testing.assert_allclose(got, np.maximum(total.astype(np.float64), 0), rtol=3e-7, atol=1e-5)
    else:  # relu before the requant: numerics.md 9.2
        np.testing.assert_array_equal(got, each(lambda v: rescaled(max(v, 0), requant, "i8"), total, "i8"))


# --------------------------------------------------------------------------------------------------- element-wise

PYTHON = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
    "copy": lambda a, b: a,
}


@pytest.mark.parametrize("kind", PYTHON)
@pytest.mark.parametrize(
    "types", [("i8", "i8", "i8"), ("u8", "i8", "i16"), ("i32", "i16", "i32"), ("f32", "f32", "f32")]
)
def test_arith(kind: str, types: tuple[str, str, str]) -> None:
    bench = Bench()
    a, b = numbers((2, 70, 3, 4), types[0]), numbers((1, 70, 1, 4), types[1])
    output = bench.space(a.shape, types[2])
    got = bench.run(isa.Arith, kind=kind, a=bench.put(a), b=bench.put(b), output=output, relu=True, relu_limit=100.0)
    if types[0] == "f32":
        expected = [PYTHON[kind](x, y) for x, y in zip(a.flat, np.broadcast_to(b, a.shape).flat, strict=True)]
        assert all(isinstance(v, np.float32) for v in expected)
        np.testing.assert_array_equal(got.ravel(), np.clip(np.array(expected, np.float32), 0, 100))
        return
    pairs = zip(a.flat, np.broadcast_to(b, a.shape).flat, strict=True)
    expected = [clamp(min(max(PYTHON[kind](int(x), int(y)), 0), 100), types[2]) for x, y in pairs]
    np.testing.assert_array_equal(got.ravel(), expected)


def test_arith_saturates_and_takes_constants() -> None:
    bench = Bench()
    a = np.array([-128, -1, 0, 127], np.int8).reshape(1, 1, 1, 4)
    view = bench.put(a)
    got = bench.run(isa.Arith, kind="add", a=view, b=100.0, output=bench.space(a.shape, "i8"))
    assert got.ravel().tolist() == [-28, 99, 100, 127]
    got = bench.run(isa.Arith, kind="mul", a=view, b=-3.0, output=bench.space(a.shape, "i16"))
    assert got.ravel().tolist() == [384, 3, 0, -381]


@pytest.mark.parametrize("rounding", MODES)
def test_rescale(rounding: str) -> None:
    bench = Bench()
    q = numbers((1, 66, 2, 3), "i16")
    requant = Requant(123_456_789, 33, 7, rounding)  # type: ignore[arg-type]
    got = bench.run(
        isa.Rescale, input=bench.put(q), output=bench.space(q.shape, "u8"), requant=requant, input_zero=11, relu=True
    )
    np.testing.assert_array_equal(got, each(lambda v: rescaled(v - 11, requant, "u8", relu=True), q, "u8"))


def test_quantize_rounds_half_away_and_saturates() -> None:
    bench = Bench()
    x = np.array([0.25, -0.25, 0.75, -0.75, 1e9, -1e9, np.nan, np.inf, 0.24999999], np.float32).reshape(1, 1, 1, 9)
    got = bench.run(isa.Quantize, input=bench.put(x), output=bench.space(x.shape, "i8"), scale=2.0, zero_point=3)
    assert got.ravel().tolist() == [4, 2, 5, 1, 127, -128, 3, 127, 3]


def test_dequantize() -> None:
    bench = Bench()
    q = numbers((1, 3, 2, 2), "u8")
    got = bench.run(isa.Dequantize, input=bench.put(q), output=bench.space(q.shape, "f32"), scale=0.1, zero_point=9)
    expected = [np.float32(0.1) * np.float32(int(v) - 9) for v in q.flat]
    np.testing.assert_array_equal(got.ravel(), expected)


@pytest.mark.parametrize("clamp16", [False, True])
def test_channel_scale_integer(clamp16: bool) -> None:
    bench = Bench()
    q, scale = numbers((1, 5, 2, 3), "i8"), numbers((1, 5, 1, 1), "i8")
    bias, shift = numbers((1, 5, 1, 1), "i16"), np.arange(5, dtype=np.int32).reshape(1, 5, 1, 1)
    got = bench.run(
        isa.ChannelScale, input=bench.put(q), scale=bench.put(scale), bias=bench.put(bias), rshift=bench.put(shift),
        output=bench.space(q.shape, "i16"), zero_point=2, clamp16=clamp16, relu=True,
    )  # fmt: skip
    for at in np.ndindex(q.shape):
        c = at[1]
        total = int(q[at]) * int(scale[0, c, 0, 0]) + int(bias[0, c, 0, 0])
        total = clamp(total, "i16") if clamp16 else total
        assert got[at] == clamp(max((total >> c) + 2, 0), "i16")


def test_channel_scale_float_rounds_twice() -> None:
    bench = Bench()
    x, scale, bias = (numbers(s, "f32") for s in ((1, 5, 2, 3), (1, 5, 1, 1), (1, 5, 1, 1)))
    views = {"input": bench.put(x), "scale": bench.put(scale), "bias": bench.put(bias)}
    got = bench.run(isa.ChannelScale, output=bench.space(x.shape, "f32"), **views)
    for at in np.ndindex(x.shape):
        assert got[at] == np.float32(np.float32(x[at] * scale[0, at[1], 0, 0]) + bias[0, at[1], 0, 0])


@pytest.mark.parametrize("chip", ["bm1684x", "bm1684"])
@pytest.mark.parametrize(
    "types", [("i8", "i8"), ("i8", "u8"), ("u8", "i8"), ("u8", "f32"), ("i8", "f16")], ids="-".join
)
def test_lut(chip: str, types: tuple[str, str]) -> None:
    """Every byte, in more lanes than the chip has; the table lies in lane 0."""
    bench = Bench(chip)
    byte = np.dtype(np.int8 if types[0] == "i8" else np.uint8)
    x = np.arange(256 * 6).astype(np.uint8).view(byte).reshape(6, 128, 1, 2)
    packed = chip == "bm1684" and types[1] != "f16"
    table = numbers((1, 1, 1, 256), types[1])
    views = {"input": bench.put(x, packed=packed), "table": bench.put(table)}
    got = bench.run(isa.Lut, output=bench.space(x.shape, types[1], packed=packed), **views)
    expected = [table[0, 0, 0, int(v) + 256 if v < 0 else int(v)] for v in x.ravel()]
    assert got.ravel().tolist() == [v.item() for v in expected]
    stored = gmem(NEURON, x.shape, types[0])
    bench.machine.write(stored, x)
    out = gmem(NEURON + 4096, x.shape, types[1])
    np.testing.assert_array_equal(bench.run(isa.Lut, input=stored, table=views["table"], output=out), got)


@pytest.mark.parametrize("types", [("i8", "i8"), ("i8", "u8"), ("u8", "u8")], ids="-".join)
@pytest.mark.parametrize("shift", [-2, 0, 1, 7])
def test_select_integer(types: tuple[str, str], shift: int) -> None:
    bench = Bench()
    q, slope = numbers((2, 70, 3, 2), types[0]), numbers((1, 70, 1, 1), "i8")
    view = bench.put(q)
    got = bench.run(
        isa.Select, input=view, slope=bench.put(slope, layout="compact"), rshift=shift,
        output=bench.space(q.shape, types[1]),
    )  # fmt: skip
    one = bench.run(isa.Select, input=view, slope=-77.0, rshift=shift, output=bench.space(q.shape, types[1]))
    for at in np.ndindex(q.shape):
        v, factor = int(q[at]), int(slope[0, at[1], 0, 0])
        assert got[at] == clamp(v if v >= 0 else exact_shift(v * factor, shift, "half_up"), types[1])
        assert one[at] == clamp(v if v >= 0 else exact_shift(v * -77, shift, "half_up"), types[1])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_select_float_is_one_product(dtype: str) -> None:
    bench = Bench()
    x, slope = numbers((1, 5, 2, 3), dtype), numbers((1, 5, 1, 1), dtype)
    got = bench.run(isa.Select, input=bench.put(x), slope=bench.put(slope), output=bench.space(x.shape, dtype))
    for at in np.ndindex(x.shape):
        product = np.float32(x[at]) * np.float32(slope[0, at[1], 0, 0])
        assert got[at] == (x[at] if x[at] > 0 else product.astype(x.dtype))


def test_table_and_select_cost_what_their_steps_cost() -> None:
    """The table to all lanes; SG: one element per lane and cycle; AR select: two passes (hardware.md 5.1)."""
    bench = Bench()
    view, table = bench.space((2, 65, 3, 5), "i8"), bench.space((1, 1, 1, 256), "i8")
    common = {"id": 1, "dep": 0, "op": "op", "input": view, "output": view}
    lanes, vector = bench.chip.lanes, bench.chip.eu_elements(1)
    assert tiu_cycles(isa.Lut(table=table, **common), bench.chip) == 2 * 256 // vector + 2 * 2 * 15
    elements = 2 * 2 * lanes * align(15, vector)
    assert tiu_cycles(isa.Select(slope=3.0, **common), bench.chip) == 2 * elements // (vector * lanes)


def test_copies_between_lanes_and_memories() -> None:
    bench = Bench()
    x = numbers((2, 70, 3, 3), "i8")
    source = bench.put(x)
    shifted = bench.space(x.shape, "i8", lane=10)
    np.testing.assert_array_equal(bench.run(isa.LaneCopy, input=source, output=shifted), x)
    stored = gmem(NEURON + 64, x.shape)
    np.testing.assert_array_equal(bench.run(isa.Move, input=shifted, output=stored), x)
    assert isa.Move(id=1, dep=0, op="o", input=shifted, output=stored).direction == "l2s"
    assert (bench.run(isa.Fill, output=gmem(NEURON, (4,), "f32"), value=1.5) == np.float32(1.5)).all()


# ------------------------------------------------------------------------------------------------ macro functions


@pytest.mark.parametrize("log", [False, True])
def test_softmax(log: bool) -> None:
    bench = Bench()
    x = numbers((2, 70, 1, 3), "f32") * (10 if log else 20)  # the logarithm is of the quotient, which may underflow
    function = functions.Softmax(1, log, beta=0.5)
    got = bench.run(isa.Fn, function=function, inputs=(bench.put(x),), output=bench.space(x.shape, "f32"))
    power = np.exp((x.astype(np.float64) - x.max(1, keepdims=True)) * 0.5)
    exact = power / power.sum(1, keepdims=True)
    # x - max is rounded to f32 at magnitude 100, which moves the exponent by up to 2**-18.
    np.testing.assert_allclose(got, np.log(exact) if log else exact, rtol=1e-5, atol=1e-6 if log else 1e-30)


@pytest.mark.parametrize(
    "dtype, scale, width", [("u8", 1 / 255, 2), ("i8", 1 / 127, 2), ("i32", 1e-8, 1)], ids=["u8", "i8", "last bit"]
)
def test_softmax_int(dtype: str, scale: float, width: int) -> None:
    bench = Bench()
    q = numbers((1, 250, 2, width) if width > 1 else (1, 250, 1, 1), "u8")
    table = np.exp(-0.02 * np.arange(256)).astype(np.float32)
    views = (bench.put(q), bench.put(table.reshape(1, 1, 1, 256)))
    function = functions.SoftmaxInt(1, scale, 1)
    got = bench.run(isa.Fn, function=function, inputs=views, output=bench.space(q.shape, dtype))
    for h, w in product(range(q.shape[2]), range(width)):
        column = [int(v) for v in q[0, :, h, w]]
        terms = [table[max(column) - v] for v in column]
        total = np.float32(0)
        for term in terms:
            total = np.float32(total + term)
        exact = [float(term / (total * np.float32(scale))) for term in terms]
        assert got[0, :, h, w].tolist() == [clamp(floor(p + 0.5) + 1, dtype) for p in exact]


def test_lrn() -> None:
    bench = Bench()
    x = numbers((1, 7, 2, 2), "f32")
    function = functions.Lrn(size=4, alpha=0.3, beta=0.75, bias=2.0)
    got = bench.run(isa.Fn, function=function, inputs=(bench.put(x),), output=bench.space(x.shape, "f32"))
    for at in np.ndindex(x.shape):
        near = x[at[0], max(0, at[1] - 1) : at[1] + 2, at[2], at[3]].astype(np.float64)  # of an even size one too few
        assert got[at] == pytest.approx(x[at] / (2.0 + 0.3 / 4 * (near**2).sum()) ** 0.75, rel=2e-7)
