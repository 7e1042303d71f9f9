"""Pooling, softmax by table and casts: kernel and machine against exact arithmetic, with values that strain both."""

from __future__ import annotations

from fractions import Fraction
from math import floor, prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bench import Bench
from hypothesis import given
from hypothesis import strategies as st
from integer_oracles import (
    BYTE_MULTIPLIERS,
    BYTE_SHIFTS,
    SEEDS,
    SHORT,
    Array,
    bounded,
    exact,
    floored,
    framed,
    per_window,
    ratio,
    saturated,
    shifted,
    tensors,
    zeros,
)
from tpusim_kernels.cast import dequantize, quantize
from tpusim_kernels.pool import avgpool2d_asym, avgpool2d_int, maxpool2d
from tpusim_kernels.prim.multiplier import avgpool_table
from tpusim_kernels.prim.smallfloat import narrowed
from tpusim_kernels.softmax import softmax_int

from tpusim.isa import commands as isa
from tpusim.isa import functions

SHAPE = (2, 3, 7, 6)
# kernel, strides, pads
WINDOWS: dict[str, tuple[Any, ...]] = {
    "2x2": ((2, 2), (2, 2), (0, 0, 0, 0)),
    "3x3": ((3, 3), (2, 1), (1, 1, 1, 1)),
    "uneven": ((3, 2), (2, 2), (0, 0, 1, 1)),
    "global": ((7, 6), (1, 1), (0, 0, 0, 0)),
}
BY_WINDOW = pytest.mark.parametrize("case", WINDOWS)
BYTES = ("int8", "uint8")
BENCH = Bench()


def bench() -> Bench:
    BENCH.top = 0
    return BENCH


def window(case: str) -> dict[str, Any]:
    return dict(zip(("kernel", "strides", "pads"), WINDOWS[case], strict=True))


def on_machine(x: Array, shape: tuple[int, ...], out: str, **fields: Any) -> Array:
    machine = bench()
    return machine.run(isa.Pool, input=machine.put(x), output=machine.space(shape, SHORT[out]), **fields)


@BY_WINDOW
@pytest.mark.parametrize("dtype", BYTES)
def test_maximum(case: str, dtype: str) -> None:
    """9.6, DN-17: padding never wins, whatever the zero point."""
    geometry = window(case)

    @bounded(20)
    @given(tensors(dtype, SHAPE), zeros(dtype), st.booleans())
    def check(x: Array, z: int, relu: bool) -> None:
        best = floored(per_window(x, **geometry, of=lambda v: v.max(axis=(2, 3))), 0, relu)
        expected = best.astype(dtype)
        np.testing.assert_array_equal(maxpool2d(x, **geometry, do_relu=relu), expected)
        got = on_machine(x, expected.shape, dtype, mode="max", relu=relu, pad_value=z, **geometry)
        np.testing.assert_array_equal(got, expected)

    check()


AVERAGES = [("int8", True, "int8"), ("uint8", False, "uint8"), ("int8", False, "uint8")]


@BY_WINDOW
@pytest.mark.parametrize(("dtype", "include", "out"), AVERAGES)
def test_average(case: str, dtype: str, include: bool, out: str) -> None:
    """9.6 symmetric: round-half-away(sum*kh*kw/count), then the requant; the BM1684 table of 1/k too."""
    geometry = window(case)
    size = prod(geometry["kernel"])

    @bounded(20)
    @given(
        tensors(dtype, SHAPE), st.tuples(BYTE_MULTIPLIERS, BYTE_SHIFTS) | st.just(avgpool_table(size)), st.booleans()
    )
    def check(x: Array, pair: tuple[int, int], relu: bool) -> None:
        m, r = pair
        sums = per_window(x, **geometry, of=lambda v: v.sum(axis=(2, 3)))
        counts = per_window(x, **geometry, of=lambda v: np.full(v.shape[:2], prod(v.shape[2:])))
        average = ratio(sums * size, size if include else counts)
        expected = saturated(floored(shifted(average * m, r), 0, relu), out)
        found = avgpool2d_int(x, m, r, **geometry, count_include_pad=include, do_relu=relu, out_dtype=out)
        np.testing.assert_array_equal(found, expected)
        got = on_machine(
            x, expected.shape, out, mode="avg", requant=isa.Requant(m, r), count_include_pad=include, relu=relu,
            **geometry,
        )  # fmt: skip
        np.testing.assert_array_equal(got, expected)

    check()


@BY_WINDOW
@pytest.mark.parametrize(("dtype", "out"), [("int8", "int8"), ("uint8", "uint8")])
def test_average_with_zero_points(case: str, dtype: str, out: str) -> None:
    """9.6 asymmetric: padding is z_in; the scale and the offset are doubles, each operation one double rounding."""
    geometry = window(case)
    plain, size = {**geometry, "pads": (0, 0, 0, 0)}, prod(geometry["kernel"])

    @bounded(20)
    @given(tensors(dtype, SHAPE), zeros(dtype), zeros(out), st.floats(0.01, 8), st.booleans())
    def check(x: Array, z_in: int, z_out: int, step: float, relu: bool) -> None:
        scale, offset = step / size, z_out - step * z_in
        whole = framed(x, geometry["pads"], z_in)
        sums = per_window(whole, **plain, of=lambda v: v.sum(axis=(2, 3)))
        real = sums.astype(np.float64) * scale + offset
        expected = saturated(floored(half_away(real), z_out, relu), out)
        shared = {**geometry, "count_include_pad": True}
        found = avgpool2d_asym(x, scale, offset, z_in, z_out, **shared, do_relu=relu, out_dtype=out)
        np.testing.assert_array_equal(found, expected)
        fields = {**shared, "scale": scale, "offset": offset, "pad_value": z_in, "zero_point": z_out, "relu": relu}
        np.testing.assert_array_equal(on_machine(x, expected.shape, out, mode="avg", **fields), expected)

    check()


def half_away(real: Array) -> Array:
    """Round floats half away from zero, by fractions."""

    def one(v: float) -> int:
        exact_value = Fraction(v)
        return floor(abs(exact_value) + Fraction(1, 2)) * (1 if exact_value >= 0 else -1)

    return np.array([one(float(v)) for v in real.ravel()], object).reshape(real.shape)


# ------------------------------------------------------------------------------------------------------------ softmax


@pytest.mark.parametrize(("dtype", "out"), [("int8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
def test_softmax(dtype: str, out: str) -> None:
    """11.1: table, f32 sum in index order, product and quotient in f32, rounded half away."""
    shape = (2, 37, 3, 1)

    @bounded(25)
    @given(tensors(dtype, shape), st.floats(1e-4, 0.5), st.floats(1 / 300, 1 / 100), zeros(out))
    def check(x: Array, step: float, s_out: float, z_out: int) -> None:
        table = np.exp(-np.float64(step) * np.arange(256)).astype(np.float32)
        q = x.astype(np.int64)
        terms = table[q.max(axis=1, keepdims=True) - q]
        total = np.zeros((2, 3, 1), np.float32)
        for i in range(shape[1]):
            total = (total + terms[:, i]).astype(np.float32)
        p = terms / (total * np.float32(s_out))[:, None]
        expected = saturated(half_away(p) + z_out, out)
        np.testing.assert_array_equal(softmax_int(x, table, s_out, z_out, axis=1, out_dtype=out), expected)
        machine = bench()
        views = machine.put(x), machine.put(table.reshape(1, 1, 1, 256))
        function = functions.SoftmaxInt(1, s_out, z_out)
        output = machine.space(shape, SHORT[out])
        got = machine.run(isa.Fn, function=function, inputs=views, output=output)
        np.testing.assert_array_equal(got, expected)

    check()


# -------------------------------------------------------------------------------------------------------------- casts

LINE = (1, 1, 4, 16)
SCALES = st.floats(1e-6, 1e3) | st.sampled_from((1.0, 0.5, 1 / 127, 1 / 255, 2.0**-20))
NARROW = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def near_halves(seed: int, scale: float) -> Array:
    """f32 values at and next to k + 1/2 steps, far outside the range, and NaN."""
    rng = np.random.default_rng(seed)
    with np.errstate(over="ignore"):
        halves = ((rng.integers(-300, 300, 32) + 0.5) * scale).astype(np.float32)
        beside = np.nextafter(halves[:16], np.float32(np.inf))
        wide = (rng.standard_normal(10) * 1e4 * scale).astype(np.float32)
    ends = np.array([np.inf, -np.inf, np.nan, 0.0, 3e38, -3e38], np.float32)
    return np.concatenate([halves, beside, wide, ends]).reshape(LINE)


@pytest.mark.parametrize("out", BYTES)
@pytest.mark.parametrize("kind", NARROW)
def test_cast_to_integers(kind: str, out: str) -> None:
    """8.1: f32 product of x and f32(1/s); for a 16-bit input both are rounded to its type."""

    @bounded(25)
    @given(SEEDS, SCALES, zeros(out))
    def check(seed: int, scale: float, z: int) -> None:
        with np.errstate(all="ignore"):
            x = near_halves(seed, scale).astype(NARROW[kind])
            wide, inverse = x.astype(np.float32), np.float32(1.0 / scale)
            inverse = np.float32(inverse.astype(NARROW[kind]))
            product = (wide * inverse).astype(NARROW[kind])
        bounds = np.nan_to_num(product.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30)
        expected = saturated(half_away(bounds) + z, out)
        found = quantize(wide, inverse, z, out_dtype=out, through=NARROW[kind].name)
        np.testing.assert_array_equal(found, expected)
        machine = bench()
        fields = {"scale": float(inverse), "zero_point": z, "output": machine.space(LINE, SHORT[out])}
        with np.errstate(all="ignore"):
            got = machine.run(isa.Quantize, input=machine.put(x), **fields)
        np.testing.assert_array_equal(got, expected)

    check()


@pytest.mark.parametrize("dtype", (*BYTES, "int16"))
@pytest.mark.parametrize("kind", NARROW)
def test_cast_to_floats(kind: str, dtype: str) -> None:
    """8.1: F(F(s) * F(q - z)); 16-bit integers are not exact in 16-bit floats."""

    @bounded(25)
    @given(tensors(dtype, LINE), SCALES, zeros(dtype))
    def check(q: Array, scale: float, z: int) -> None:
        step = np.float32(np.float32(scale).astype(NARROW[kind]))
        with np.errstate(over="ignore"):
            centred = (q.astype(np.int64) - z).astype(np.float32).astype(NARROW[kind])
            expected = (np.float64(step) * centred.astype(np.float64)).astype(np.float32).astype(NARROW[kind])
        found = narrowed(dequantize(q, step, z, through=NARROW[kind].name), NARROW[kind])
        np.testing.assert_array_equal(np.asarray(found), expected)
        machine = bench()
        output = machine.space(LINE, kind)
        got = machine.run(isa.Dequantize, input=machine.put(q), output=output, scale=float(step), zero_point=z)
        np.testing.assert_array_equal(got, expected)

    check()


@bounded(30)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8, max_size=8))
def test_int32_to_float_is_one_rounding(values: list[int]) -> None:
    """Beyond 2^24 the integer is rounded to f32, then multiplied."""
    q = np.array(values, np.int32)
    expected = np.float32(0.37) * np.array([np.float32(v) for v in values], np.float32)
    np.testing.assert_array_equal(dequantize(q, np.float32(0.37), 0), expected)
    assert exact(q).tolist() == values
