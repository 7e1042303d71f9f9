"""Pooling, softmax and normalisation: exact against NumPy oracles in INT8, float against ONNX Runtime."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_onnx_reference import run_onnx
from kernel_oracles import pad2d, rsr, sat, windows
from tpusim_kernels.norm import batchnorm_float, lrn_float
from tpusim_kernels.pool import avgpool2d_asym, avgpool2d_float, avgpool2d_int, maxpool2d
from tpusim_kernels.prim.multiplier import avgpool_table, best_fit
from tpusim_kernels.prim.scale import round_half_away
from tpusim_kernels.softmax import softmax_float, softmax_int

# name: kernel, strides, pads
POOLS = {
    "2x2": ((2, 2), (2, 2), (0, 0, 0, 0)),
    "3x3": ((3, 3), (2, 1), (1, 1, 1, 1)),
    "ceil": ((3, 2), (2, 2), (0, 0, 1, 1)),
    "global": ((7, 6), (1, 1), (0, 0, 0, 0)),
}
SHAPE = (2, 3, 7, 6)
MODES = pytest.mark.parametrize("case", POOLS)


def attributes(case: str) -> dict:
    return dict(zip(("kernel", "strides", "pads"), POOLS[case], strict=True))


def tensor(seed: int, dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, SHAPE).astype(dtype)


@MODES
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32"])
def test_maxpool(case: str, dtype: str) -> None:
    kernel, strides, pads = POOLS[case]
    x = -np.abs(tensor(0, "int8").astype(np.int64)) if dtype != "uint8" else tensor(0, dtype)
    x = x.astype(dtype)
    got = maxpool2d(x, **attributes(case))
    want = windows(pad2d(x, pads, -(2**20)), kernel, strides).max(axis=(4, 5))  # padding never wins, even below zero
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got, want.astype(dtype))
    np.testing.assert_array_equal(maxpool2d(x, **attributes(case), do_relu=True), np.maximum(want, 0).astype(dtype))


@MODES
@pytest.mark.parametrize("include", [True, False])
def test_avgpool_float_against_onnxruntime(case: str, include: bool) -> None:
    kernel, strides, pads = POOLS[case]
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    got = avgpool2d_float(x, **attributes(case), count_include_pad=include, do_relu=False)
    want = run_onnx("AveragePool", [x], kernel_shape=kernel, strides=strides, pads=pads, count_include_pad=int(include))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def average_parts(x: np.ndarray, case: str, include: bool, value: int = 0) -> tuple[np.ndarray, np.ndarray, int]:
    """Window sums, window counts, kernel size."""
    kernel, strides, pads = POOLS[case]
    sums = windows(pad2d(x, pads, value), kernel, strides).sum(axis=(4, 5))
    ones = windows(pad2d(np.ones_like(x), pads, 1 if include else 0), kernel, strides).sum(axis=(4, 5))
    return sums, ones, kernel[0] * kernel[1]


def half(values: np.ndarray, counts: np.ndarray, up: bool) -> np.ndarray:
    """Return values / counts rounded half away (or half up), in rationals."""

    def one(a: int, b: int) -> int:
        x = Fraction(int(a), int(b))
        if up or x >= 0:
            return math.floor(x + Fraction(1, 2))
        return -math.floor(-x + Fraction(1, 2))

    flat = [one(a, b) for a, b in zip(values.reshape(-1), counts.reshape(-1), strict=True)]
    return np.array(flat, object).reshape(values.shape)


@MODES
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_avgpool_int(case: str, include: bool, dtype: str) -> None:
    x = tensor(2, dtype)
    sums, counts, size = average_parts(x, case, include)
    v = half(sums * size, counts, up=False)
    for m, r in (best_fit(1.37 / size, 8), avgpool_table(size)):
        want = sat(np.maximum(rsr(v * m, r, "HALF_UP"), -5), "int8")
        got = avgpool2d_int(x, m, r, **attributes(case), count_include_pad=include, do_relu=False, out_dtype="int8")
        np.testing.assert_array_equal(np.maximum(got, np.int8(-5)), want)


def all_sums(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every sum of `count` bytes: the exact first rounding, upstream's in f32, and whether the value is a half."""
    sums = np.arange(-128 * count, 255 * count + 1)
    value = sums * size
    exact = np.sign(value) * ((2 * np.abs(value) + count) // (2 * count))
    upstream = sums.astype(np.float32) / np.float32(count) * np.float32(size)
    return exact, round_half_away(upstream).astype(np.int64), (2 * value) % (2 * count) == count


@pytest.mark.parametrize("k", range(1, 8))
def test_avgpool_first_rounding_is_upstreams_f32_formula(k: int) -> None:
    """For full windows always; for cut windows that count less it may differ, but at exact halves only."""
    for rows in range(1, k + 1):
        exact, upstream, half_way = all_sums(k * k, rows * k)
        differs = exact != upstream
        assert not (differs & ~half_way).any()
        assert differs.any() == ((k, rows) in {(5, 2), (5, 4), (7, 2), (7, 4), (7, 6)})


@pytest.mark.parametrize("include", [True, False])
def test_avgpool_kernel_against_upstreams_f32_formula(include: bool) -> None:
    x = tensor(3, "int8")
    sums, counts, size = average_parts(x, "3x3", include)
    upstream = round_half_away(sums.astype(np.float32) / counts.astype(np.float32) * np.float32(size))
    got = avgpool2d_int(x, 1, 0, **attributes("3x3"), count_include_pad=include, do_relu=False, out_dtype="int16")
    np.testing.assert_array_equal(got, upstream.astype(np.int16))


def test_avgpool_cv18xx_rounds_half_up() -> None:
    x = tensor(4, "int8")
    sums, counts, size = average_parts(x, "3x3", False)
    v = half(sums * size, counts, up=True)
    want = sat(np.maximum(rsr(v * 57, 9, "HALF_UP"), 0), "int8")
    got = avgpool2d_int(
        x, 57, 9, **attributes("3x3"), count_include_pad=False, do_relu=True, out_dtype="int8", first_round="half_up"
    )
    np.testing.assert_array_equal(got, want)


@MODES
def test_avgpool_asymmetric(case: str) -> None:
    x = tensor(5, "int8")
    s_in, s_out, z_in, z_out = 0.031, 0.027, -7, 11
    sums, counts, size = average_parts(x, case, True, z_in)
    scale, offset = s_in / (size * s_out), z_out - s_in / s_out * z_in
    exact = sums * size / counts * scale + offset
    want = sat(np.maximum(np.trunc(exact + np.copysign(0.5, exact)), z_out), "int8")
    got = avgpool2d_asym(
        x, scale, offset, z_in, z_out, **attributes(case), count_include_pad=True, do_relu=True, out_dtype="int8"
    )
    np.testing.assert_array_equal(got, want)


def test_pool_refuses_a_window_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        maxpool2d(tensor(0, "int8"), kernel=(8, 1), strides=(1, 1), pads=(0, 0, 0, 0))
    with pytest.raises(ValueError, match="first_round"):
        avgpool2d_int(
            tensor(0, "int8"),
            1,
            0,
            **attributes("2x2"),
            count_include_pad=True,
            do_relu=False,
            out_dtype="int8",
            first_round="nearest",
        )


@pytest.mark.parametrize(("op", "log"), [("Softmax", False), ("LogSoftmax", True)])
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax_float_against_onnxruntime(op: str, log: bool, axis: int) -> None:
    x = 30 * np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    got = softmax_float(x, axis=axis, log=log)
    halved = softmax_float(x, axis=axis, log=log, beta=0.5)
    for found, values in ((got, x), (halved, x / 2)):
        expected = run_onnx(op, [values], axis=axis)
        small = expected < np.log(np.finfo(np.float32).tiny)  # the logarithm of a quotient that underflowed (11.1)
        assert small.any() == (log and values is x) and np.all(np.asarray(found)[small] < -86)
        np.testing.assert_allclose(np.where(small, 0, found), np.where(small, 0, expected), rtol=2e-5, atol=1e-6)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["int8", "uint8"]), st.sampled_from(["int8", "uint8"]))
def test_softmax_int(seed: int, dtype: str, out_dtype: str) -> None:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (2, 37, 3)).astype(dtype)
    x[:, 1:] = np.where(rng.random((2, 36, 3)) < 0.5, x[:, :1], x[:, 1:])
    table = np.exp(-rng.uniform(0.001, 0.2) * np.arange(256)).astype(np.float32)
    q = x.astype(np.int64)
    t = table[q.max(axis=1, keepdims=True) - q]
    total = np.zeros((2, 3), np.float32)
    for i in range(37):  # index order, in f32
        total = total + t[:, i]
    p = t / (total * np.float32(1 / 255))[:, None]
    want = sat(np.floor(p.astype(np.float64) + 0.5).astype(np.int64) - 2, out_dtype)
    np.testing.assert_array_equal(softmax_int(x, table, 1 / 255, -2, axis=1, out_dtype=out_dtype), want)


@pytest.mark.parametrize(("equals", "want"), [(2, 127), (6, 42), (34, 7), (102, 2)])
def test_softmax_int_of_equal_logits(equals: int, want: int) -> None:
    """As TPU-MLIR 1.30.2 computes; with the quotient in double these were 128, 43, 8 and 3."""
    table = np.exp(-0.02 * np.arange(256)).astype(np.float32)
    got = softmax_int(np.full((1, equals, 1), 9, np.int8), table, 1 / 255, 0, axis=1, out_dtype="uint8")
    assert set(np.asarray(got).reshape(-1).tolist()) == {want}


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_lrn_against_onnxruntime(size: int) -> None:
    x = np.random.default_rng(7).standard_normal((2, 8, 3, 2)).astype(np.float32)
    got = lrn_float(x, size=size, alpha=0.3, beta=0.75, bias=1.5)
    if size % 2:  # ONNX Runtime accepts odd sizes only
        np.testing.assert_allclose(got, run_onnx("LRN", [x], size=size, alpha=0.3, beta=0.75, bias=1.5), rtol=1e-5)
    around = (size - 1) // 2
    for c in range(8):
        total = (x[:, max(0, c - around) : c + around + 1].astype(np.float64) ** 2).sum(axis=1)
        np.testing.assert_allclose(got[:, c], x[:, c] / (1.5 + 0.3 / size * total) ** 0.75, rtol=1e-5)


def test_batchnorm_against_onnxruntime() -> None:
    rng = np.random.default_rng(8)
    x, g, b, m = (rng.standard_normal(s).astype(np.float32) for s in (SHAPE, 3, 3, 3))
    v = rng.uniform(0.1, 2, 3).astype(np.float32)
    got = batchnorm_float(x, g, b, m, v, epsilon=1e-3)
    want = run_onnx("BatchNormalization", [x, g, b, m, v], epsilon=1e-3)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
