"""Element-wise kernels: exact against Python-integer oracles in INT8, NumPy in float."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_oracles import requant, rsr, sat
from tpusim_kernels import arith
from tpusim_kernels.prim.rounding import RoundMode

SHAPE = (2, 3, 2, 5)
SEEDS = st.integers(0, 2**32 - 1)
OUT = st.sampled_from(["int8", "uint8"])
M8 = st.integers(0, 126)
SHIFT = st.integers(-1, 14)
ZERO = st.integers(-128, 127)


def tensor(seed: int, dtype: str = "int8", shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    info = np.iinfo(dtype)
    x = np.random.default_rng(seed).integers(info.min, info.max + 1, shape)
    x.reshape(-1)[:2] = info.min, info.max
    return x.astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(object)


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.tuples(M8, M8), st.tuples(SHIFT, SHIFT), st.tuples(ZERO, ZERO), ZERO, st.booleans(), OUT)
def test_add_sub_mul_int(seed, ms, rs, zs, z_out, do_relu, out_dtype) -> None:
    a, b = tensor(seed), tensor(seed + 1, "uint8", (3, 1, 5))
    ta = rsr((wide(a) - zs[0]) * ms[0], rs[0], "HALF_UP")
    tb = rsr((wide(b) - zs[1]) * ms[1], rs[1], "HALF_UP")
    floor = 0 if do_relu else -(10**12)
    attrs = {"do_relu": do_relu, "out_dtype": out_dtype}
    got = arith.add_int((a, b), ms, rs, zs, z_out, **attrs)
    assert got.dtype == np.dtype(out_dtype)
    np.testing.assert_array_equal(got, sat(np.maximum(ta + tb, floor) + z_out, out_dtype))
    product = np.maximum((wide(a) - zs[0]) * (wide(b) - zs[1]), floor)
    want = sat(rsr(product * ms[0], rs[0], "HALF_UP") + z_out, out_dtype)
    np.testing.assert_array_equal(arith.mul_int((a, b), ms[0], rs[0], zs, z_out, **attrs), want)
    ta, tb = rsr(wide(a) * ms[0], rs[0], "HALF_UP"), rsr(wide(b) * ms[1], rs[1], "HALF_UP")
    np.testing.assert_array_equal(arith.sub_int((a, b), ms, rs, **attrs), sat(np.maximum(ta - tb, floor), out_dtype))


@settings(deadline=None, max_examples=25)
@given(SEEDS, st.integers(-126, 126), SHIFT, ZERO, ZERO, OUT)
def test_requants(seed, m, r, z_in, z_out, out_dtype) -> None:
    x = tensor(seed)
    v = (wide(x) - z_in) * m
    want = sat(rsr(v, r, "HALF_UP") + z_out, out_dtype)
    np.testing.assert_array_equal(arith.mulshift_int(x, m, r, z_in, z_out, out_dtype=out_dtype), want)
    for mode in (RoundMode.HALF_AWAY_FROM_ZERO, RoundMode.HALF_UP):
        got = arith.requant_int(x, m, r, z_in, z_out, mode=mode, out_dtype=out_dtype)
        np.testing.assert_array_equal(got, sat(rsr(v, r, mode.name) + z_out, out_dtype))


def test_requant_per_channel_of_accumulators() -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, SHAPE).astype(np.int32)
    m, r, z = np.array([2**31 - 2, 12345, 7]), np.array([38, 30, 20]), np.array([0, -3, 9])
    got = arith.requant_int(x, m, r, 0, z, out_dtype="int8")
    want = requant(x, m, r, 1, "HALF_AWAY_FROM_ZERO") + z.reshape(3, 1, 1).astype(object)
    np.testing.assert_array_equal(got, sat(want, "int8"))


@settings(deadline=None, max_examples=25)
@given(SEEDS, OUT, st.booleans(), st.booleans(), ZERO)
def test_scale_int(seed, out_dtype, clamp16, do_relu, z_out) -> None:
    rng = np.random.default_rng(seed)
    x, m, b, r = tensor(seed), tensor(seed, shape=(3,)), tensor(seed, "int16", (3,)), rng.integers(0, 9, 3)
    column = (3, 1, 1)
    v = wide(x) * m.reshape(column).astype(object) + b.reshape(column).astype(object)
    if clamp16:
        v = wide(sat(v, "int16" if out_dtype == "int8" else "uint16"))
    v = requant(v, np.ones(3, np.int64), r, 1, "DOWN") + z_out
    v = np.maximum(v, 0) if do_relu else v
    got = arith.scale_int(x, m, b, r, z_out, do_relu=do_relu, out_dtype=out_dtype, clamp16=clamp16)
    np.testing.assert_array_equal(got, sat(v, out_dtype))


@settings(deadline=None, max_examples=25)
@given(SEEDS, M8, st.integers(0, 10), st.integers(-(2**15), 2**15), ZERO, st.booleans(), OUT)
def test_constants(seed, m, r, c, z, do_relu, out_dtype) -> None:
    x = tensor(seed)
    floor = 0 if do_relu else -(10**12)
    attrs = {"do_relu": do_relu, "out_dtype": out_dtype}
    add = np.maximum(rsr((wide(x) - z) * m + c, r, "HALF_UP"), floor)
    np.testing.assert_array_equal(arith.addconst_int(x, m, r, c, z, **attrs), sat(add, out_dtype))
    for reverse, sign in ((False, 1), (True, -1)):
        t = np.maximum(sign * (wide(x) * m - c), floor)
        want = sat(np.maximum(rsr(t, r, "HALF_UP") + z, z if do_relu else floor), out_dtype)
        np.testing.assert_array_equal(arith.subconst_int(x, m, r, c, z, **attrs, is_reverse=reverse), want)
    for kernel, pick in ((arith.maxconst_int, np.maximum), (arith.minconst_int, np.minimum)):
        want = sat(np.maximum(rsr(pick(wide(x) * m, c), r, "HALF_UP"), floor), out_dtype)
        np.testing.assert_array_equal(kernel(x, m, r, c, **attrs), want)


def test_relu_family_int() -> None:
    x = tensor(1)
    np.testing.assert_array_equal(arith.relu_int(x), np.maximum(x, 0))
    assert arith.relu_int(x, out_dtype="uint8").dtype == np.uint8
    assert np.asarray(arith.abs_int(np.array([-128, -127, 5], np.int8))).tolist() == [-128, 127, 5]  # DN-14
    leaky = np.where(x >= 0, wide(x), rsr(wide(x) * 51, 9, "HALF_UP"))
    np.testing.assert_array_equal(arith.leaky_relu_int(x, 51, 9, out_dtype="int8"), sat(leaky, "int8"))
    slope = np.array([-128, 5, 127], np.int8)
    prelu = np.where(x >= 0, wide(x), rsr(wide(x) * slope.reshape(3, 1, 1).astype(object), 6, "HALF_UP"))
    np.testing.assert_array_equal(arith.prelu_int(x, slope, 6, out_dtype="int8"), sat(prelu, "int8"))


def test_max_min_of_raw_bytes() -> None:
    a, b = tensor(1, "uint8"), tensor(2, "uint8", (5,))
    np.testing.assert_array_equal(arith.max_int((a, b)), np.maximum(a, b))
    np.testing.assert_array_equal(arith.min_int((a, b), do_relu=True), np.minimum(a, b))
    with pytest.raises(ValueError, match="one dtype"):
        arith.max_int((a, tensor(2)))


def test_float_arithmetic() -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in (SHAPE, (3, 1, 5), (1,)))
    np.testing.assert_array_equal(arith.add_float((a, b, c), do_relu=True), np.maximum(a + b + c, 0))
    np.testing.assert_array_equal(arith.add_float((a, b), coeff=(1.0, -1.0), do_relu=False), a - b)
    np.testing.assert_allclose(arith.add_float((a, b), coeff=(0.5, 3.0), do_relu=False), 0.5 * a + 3 * b, rtol=1e-5)
    np.testing.assert_array_equal(arith.sub_float((a, b), do_relu=False), a - b)
    np.testing.assert_array_equal(arith.mul_float((a, b), do_relu=True), np.maximum(a * b, 0))
    np.testing.assert_array_equal(arith.div_float((a, b), do_relu=False), a / b)
    np.testing.assert_array_equal(arith.max_float((a, b)), np.maximum(a, b))
    np.testing.assert_array_equal(arith.min_float((a, b)), np.minimum(a, b))
    np.testing.assert_array_equal(arith.mulconst_float(a, 0.3), a * np.float32(0.3))
    np.testing.assert_array_equal(arith.addconst_float(a, 0.3, do_relu=True), np.maximum(a + np.float32(0.3), 0))
    np.testing.assert_array_equal(arith.clip_float(a, -0.5, 0.25), np.clip(a, np.float32(-0.5), np.float32(0.25)))
    np.testing.assert_array_equal(arith.relu_float(a, limit=0.5), np.clip(a, 0, np.float32(0.5)))
    s = rng.standard_normal(3).astype(np.float32)
    column = s.reshape(3, 1, 1)
    np.testing.assert_allclose(arith.scale_float(a, s, s, do_relu=False), a * column + column, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(arith.prelu_float(a, s), np.where(a > 0, a, a * column))
    np.testing.assert_array_equal(arith.leaky_relu_float(a, 0.1), np.where(a > 0, a, a * np.float32(0.1)))
    with pytest.raises(ValueError, match="one coefficient"):
        arith.add_float((a, b), coeff=(1.0,), do_relu=False)
