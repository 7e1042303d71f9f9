"""Integer kernels and commands of CV18xx against exact arithmetic (numerics.md 4.4, 5.2, 8.1, 9.0, 9.7, 11.3)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bench import Bench, pack
from hypothesis import given
from hypothesis import strategies as st
from integer_oracles import (
    SEEDS,
    Array,
    accumulated,
    bounded,
    channels,
    exact,
    floored,
    lists,
    saturated,
    shifted,
    tensors,
)
from tpusim_kernels import arith_shift
from tpusim_kernels.conv import conv2d_int

from tpusim.isa import commands as isa
from tpusim.isa import functions

SHAPE = (2, 3, 2, 5)
BENCH = Bench("cv183x")
SMALL = st.sampled_from((-128, 127, 0, 1)) | st.integers(-128, 127)
SHIFTS = st.integers(0, 22)
PAIRS = st.tuples(tensors("int8", SHAPE), tensors("int8", SHAPE))


def bench() -> Bench:
    BENCH.top = 0
    return BENCH


def macro(function: functions.Function, xs: tuple[Array, ...], shape: tuple[int, ...] = SHAPE) -> Array:
    machine = bench()
    views = tuple(machine.put(x) for x in xs)
    return machine.run(isa.Fn, function=function, inputs=views, output=machine.space(shape, "i8"))


MULTIPLIERS = [(64, 127), (127, -128), (1, 0)]
"""Of Add, of Sub (the second negative), and the least; they are compiled in, so they are few."""


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("m", MULTIPLIERS)
def test_sums_and_extremes(m: tuple[int, int], relu: bool) -> None:
    """9.0: one shift for all operands; Add and Sub round the sum, Max and Min each operand."""

    @bounded(15)
    @given(PAIRS, SHIFTS)
    def check(xs: tuple[Array, Array], r: int) -> None:
        a, b = (exact(x) * k for x, k in zip(xs, m, strict=True))
        expected = saturated(shifted(floored(a + b, 0, relu), r), "int8")
        found = arith_shift.sum_int(xs, r, ms=m, do_relu=relu, out_dtype="int8")
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(macro(functions.SumShift(m, r, relu), xs), expected)
        for kind, pick in (("max", np.maximum), ("min", np.minimum)):
            best = saturated(floored(pick(shifted(a, r), shifted(b, r)), 0, relu), "int8")
            shared: dict[str, Any] = {"ms": m, "do_relu": relu, "out_dtype": "int8"}
            np.testing.assert_array_equal(arith_shift.extreme_int(xs, r, largest=kind == "max", **shared), best)
            function = functions.ExtremeShift(kind, m, r, relu)  # type: ignore[arg-type]
            np.testing.assert_array_equal(macro(function, xs), best)

    check()


@bounded(25)
@given(tensors("int8", SHAPE), SMALL, SHIFTS, lists(SMALL, 3), SHIFTS)
def test_slopes(x: Array, m_pos: int, r_pos: int, m_neg: list[int], r_neg: int) -> None:
    """9.7: positives and negatives have a multiplier and a shift each."""
    q = exact(x)
    above, below = shifted(q * m_pos, r_pos), shifted(q * channels(m_neg, 4), r_neg)
    expected = saturated(np.where(q >= 0, above, below), "int8")
    found = arith_shift.sloped_int(x, m_pos, r_pos, np.array(m_neg, np.int8), r_neg, out_dtype="int8")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", arith_shift.REDUCTIONS)
def test_reductions(mode: str) -> None:
    """11.3: the exact sum or extreme, times m in f32, over 2^r, half up."""
    of = {"ReduceMax": np.max, "ReduceMin": np.min, "ReduceL1": lambda v, axis: np.abs(v).sum(axis=axis)}

    @bounded(20)
    @given(tensors("int8", SHAPE), SMALL, SHIFTS)
    def check(x: Array, m: int, r: int) -> None:
        value = of.get(mode, np.sum)(x.astype(np.int64), axis=(2, 3))  # type: ignore[operator]
        expected = saturated(shifted(exact(value) * m, r), "int8")
        found = arith_shift.reduce_int(x, m, r, mode=mode, axes=(2, 3), keepdims=False, out_dtype="int8")
        np.testing.assert_array_equal(found, expected)
        function = functions.ReduceInt(mode, (2, 3), m, r)  # type: ignore[arg-type]
        got = macro(function, (x,), (2, 3, 1, 1))
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)

    check()


@bounded(30)
@given(SEEDS, st.floats(1e-5, 1e3))
def test_cast_from_bf16(seed: int, scale: float) -> None:
    """8.1: sat(RNE(BF16(x * BF16(1/s)))), half to even twice."""
    bf16 = ml_dtypes.bfloat16
    inverse = np.float32(np.float32(1 / scale).astype(bf16))
    x = ((np.random.default_rng(seed).integers(-300, 300, 64) + 0.5) * scale).astype(bf16).reshape(1, 1, 4, 16)
    product = (x.astype(np.float32) * inverse).astype(bf16).astype(np.float64)
    expected = saturated(np.array([round(v) for v in product.ravel()], object).reshape(x.shape), "int8")
    found = arith_shift.quantize_bf16(x.astype(np.float32), inverse, out_dtype="int8")
    np.testing.assert_array_equal(found, expected)
    machine = bench()
    output = machine.space(x.shape, "i8")
    got = machine.run(isa.Quantize, input=machine.put(x), output=output, scale=float(inverse), bf16=True)
    np.testing.assert_array_equal(got, expected)


GEOMETRY: dict[str, Any] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
OC = 4


@pytest.mark.parametrize("relu", [False, True])
def test_convolution(relu: bool) -> None:
    """5.2, 9.1: HALF_UP at 31 bits, then HALF_AWAY; bias, multiplier and shift are nine bytes per channel."""

    @bounded(20)
    @given(
        tensors("int8", (1, 5, 6, 5)), tensors("int8", (OC, 5, 3, 3)), lists(st.integers(2**30, 2**31 - 1), OC),
        lists(st.integers(0, 31), OC), lists(st.sampled_from((0, 2**31 - 2**20, -(2**31) + 2**20, 2**24 + 1)), OC),
    )  # fmt: skip
    def check(x: Array, w: Array, m: list[int], r: list[int], bias: list[int]) -> None:
        total = accumulated(x, w, 0, **GEOMETRY) + channels(bias, 4)
        v = shifted(shifted(total * channels(m, 4), 31), channels(r, 4), "half_away")
        expected = saturated(floored(v, 0, relu), "int8")
        b, ms, rs = np.array(bias, np.int32), np.array(m, np.int64), np.array(r, np.int32)
        attrs: dict[str, Any] = {"do_relu": relu, "out_dtype": "int8", "requant": "qdm", **GEOMETRY}
        np.testing.assert_array_equal(conv2d_int(x, w, b, ms, rs, 0, 0, **attrs), expected)
        rows = [np.array([k, a], "<i4").tobytes() + np.int8(n).tobytes() for k, a, n in zip(bias, m, r, strict=True)]
        table = np.frombuffer(b"".join(rows), np.uint8).reshape(1, OC, 1, 9)
        machine = bench()
        packed = pack(w, machine.chip.filter_packing(1, 5))
        got = machine.run(
            isa.Conv, input=machine.put(x), filter=machine.put(packed, layout="compact"), kernel=(3, 3), relu=relu,
            requant_table=machine.put(table, layout="compact"), output=machine.space(expected.shape, "i8"), **GEOMETRY,
        )  # fmt: skip
        np.testing.assert_array_equal(got, expected)

    check()
