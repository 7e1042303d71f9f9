"""Casts, small floats, lookup tables and activation functions."""

from __future__ import annotations

import math

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tpusim_kernels.activation import FUNCTIONS, activation_float, lut
from tpusim_kernels.cast import dequantize, quantize
from tpusim_kernels.prim import smallfloat
from tpusim_kernels.prim.scale import round_half_away, saturate_np


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**32 - 1), st.floats(1e-4, 10), st.integers(-128, 255), st.sampled_from(["int8", "uint8", "int16"])
)
def test_quantize(seed: int, scale: float, z: int, out_dtype: str) -> None:
    inv = np.float32(1 / scale)
    rng = np.random.default_rng(seed)
    halves = ((rng.integers(-130, 130, 32) + 0.5) * scale).astype(np.float32)
    x = np.concatenate([halves, (rng.standard_normal(32) * 100 * scale).astype(np.float32)])
    want = saturate_np(round_half_away(x * inv).astype(np.float64) + z, out_dtype)
    got = quantize(x, inv, z, out_dtype=out_dtype)
    assert got.dtype == np.dtype(out_dtype)
    np.testing.assert_array_equal(got, want)


def test_quantize_of_non_finite_values() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 3e38], np.float32)
    assert np.asarray(quantize(x, np.float32(1), 5, out_dtype="int8")).tolist() == [127, -128, 5, 127]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_dequantize(dtype: str) -> None:
    q = np.array([0, 1, 100, np.iinfo(dtype).max], dtype)
    scale = np.float32(0.0123)
    got = dequantize(jnp.asarray(q), 0.0123, -3)
    np.testing.assert_array_equal(got, scale * (q.astype(np.int64) + 3).astype(np.float32))
    assert got.dtype == np.float32
    assert not got.weak_type


def patterns(seed: int) -> np.ndarray:
    """f32 values: random bit patterns, exact ties of F16 and BF16, the ends."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**32, 3000, dtype=np.uint32)
    near_f16 = (rng.integers(0x33000000, 0x47FFFFFF, 1000) & ~0xFFF).astype(np.uint32)
    near_bf16 = (rng.integers(0x00800000, 0x7F7FFFFF, 1000) & ~0x7FFF).astype(np.uint32)
    ends = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x477FEFFF, 0x477FF000, 0x33000000], np.uint32)
    return np.concatenate([bits, near_f16, near_bf16, ends]).view(np.float32)


def bits_of(x) -> np.ndarray:
    return np.asarray(x, np.float32).view(np.uint32)


def test_f16() -> None:
    x = patterns(0)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(np.float32)  # NumPy rounds to nearest even and keeps subnormals
    want = np.where(np.isnan(x), np.uint32(0xFFC00000), bits_of(want))
    np.testing.assert_array_equal(bits_of(smallfloat.to_f16(x)), want)


def test_bf16() -> None:
    x = patterns(1)
    magnitude = bits_of(x) & 0x7FFFFFFF
    with np.errstate(invalid="ignore"):
        want = bits_of(x.astype(ml_dtypes.bfloat16).astype(np.float32))
    sign = bits_of(x) & np.uint32(0x80000000)
    small = np.where(magnitude >= 0x7F8000, sign | np.uint32(0x00800000), sign)
    want = np.where(magnitude < 0x800000, small, want)
    want = np.where(np.isnan(x), np.uint32(0x7FFF0000), want)
    np.testing.assert_array_equal(bits_of(smallfloat.to_bf16(x)), want)
    named = np.array([0x007F7FFF, 0x007F8000, 0x807FFFFF, 0x7F800000, 0xFFC00001], np.uint32).view(np.float32)
    got = bits_of(smallfloat.to_bf16(named)).tolist()
    assert got == [0, 0x00800000, 0x80800000, 0x7F800000, 0x7FFF0000]


def test_bf16_cv18xx() -> None:
    x = patterns(2)
    bits = bits_of(x).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    want = np.where((rounded & 0x7F800000) == 0x7F800000, np.uint32(0x7F7F0000), rounded)
    np.testing.assert_array_equal(bits_of(smallfloat.to_finite_bf16(x)), want)
    np.testing.assert_array_equal(bits_of(smallfloat.truncate_bf16(x)), bits_of(x) & 0xFFFF0000)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_lut_is_indexed_by_the_byte(dtype: str) -> None:
    x = np.arange(256, dtype=np.uint8).view(dtype).reshape(2, 128)
    table = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)
    got = lut(x, table)
    assert got.dtype == np.int8
    np.testing.assert_array_equal(got, table.reshape(2, 128))
    assert lut(x, np.linspace(0, 1, 256, dtype=np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="256"):
        lut(x, table[:10])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


PYTHON = {
    "ABSVAL": (abs, ()),
    "CEIL": (math.ceil, ()),
    "FLOOR": (math.floor, ()),
    "ROUND": (lambda x: math.copysign(math.floor(abs(x) + 0.5), x), ()),
    "ROUND_EVEN": (round, ()),
    "SQRT": (lambda x: math.sqrt(x) if x >= 0 else math.nan, ()),
    "RSQRT": (lambda x: 1 / math.sqrt(x) if x > 0 else math.nan, ()),
    "SQUARE": (lambda x: x * x, ()),
    "EXP": (math.exp, ()),
    "LN": (lambda x: math.log(x) if x > 0 else math.nan, ()),
    "LOG2": (lambda x: math.log2(x) if x > 0 else math.nan, ()),
    "ERF": (math.erf, ()),
    "SIN": (math.sin, ()),
    "COS": (math.cos, ()),
    "TAN": (math.tan, ()),
    "SINH": (math.sinh, ()),
    "COSH": (math.cosh, ()),
    "TANH": (math.tanh, ()),
    "ARCCOS": (lambda x: math.acos(x) if abs(x) <= 1 else math.nan, ()),
    "ARCTANH": (lambda x: math.atanh(x) if abs(x) < 1 else math.nan, ()),
    "SIGMOID": (sigmoid, ()),
    "LOG_SIGMOID": (lambda x: math.log(sigmoid(x)), ()),
    "SILU": (lambda x: x * sigmoid(x), ()),
    "SWISH": (lambda x: x * sigmoid(1.5 * x), (1.5,)),
    "GELU": (lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))), ()),
    "TGELU": (lambda x: 0.5 * x * (1 + math.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))), ()),
    "QGELU": (lambda x: x * sigmoid(1.702 * x), ()),
    "ELU": (lambda x: x if x > 0 else 0.7 * (math.exp(x) - 1), (0.7,)),
    "HSIGMOID": (lambda x: max(0, min(1, 0.2 * x + 0.4)), (0.4, 0.2)),
    "HSWISH": (lambda x: x * max(0, min(1, (x + 3) / 6)), ()),
    "SOFT_PLUS": (lambda x: math.log(math.exp(x) + 1), ()),
    "SOFT_SIGN": (lambda x: x / (1 + abs(x)), ()),
    "MISH": (lambda x: x * math.tanh(math.log(math.exp(x) + 1)), ()),
    "SIGN": (lambda x: (x > 0) - (x < 0), ()),
    "RECIPROCAL": (lambda x: 2.5 / x if x else math.inf, (2.5,)),
    "POW": (lambda x: math.pow(x, 1.5) if x >= 0 else math.nan, (1.5,)),
    "ARCSIN": (lambda x: math.asin(x) if abs(x) <= 1 else math.nan, ()),
    "ARCTAN": (math.atan, ()),
    "TRUNC": (math.trunc, ()),
}


def test_every_activation_has_a_reference() -> None:
    assert set(PYTHON) == set(FUNCTIONS)
    with pytest.raises(ValueError, match="NOPE"):
        activation_float(np.zeros(1, np.float32), mode="NOPE")


@pytest.mark.parametrize("mode", PYTHON)
def test_activation(mode: str) -> None:
    x = np.concatenate([np.linspace(-6, 6, 49), np.linspace(-0.99, 0.99, 12), [2.5, -2.5]]).astype(np.float32)
    function, coeffs = PYTHON[mode]
    want = np.array([function(float(v)) for v in x])
    got = np.asarray(activation_float(x, mode=mode, coeffs=coeffs))
    inside = np.isfinite(want)  # poles and arguments outside the domain are not compared
    assert inside.sum() > 15
    got, want = got[inside], want[inside]
    # double inside: within one unit in the last place of f32; MISH is f32 throughout
    np.testing.assert_allclose(
        got, want, rtol=1e-5 if mode == "MISH" else 1.2e-7, atol=1e-6 if mode == "MISH" else 1e-12
    )


@pytest.mark.parametrize("mode", ["MISH", "SILU", "SIGMOID", "SOFT_PLUS", "GELU", "LOG_SIGMOID"])
def test_saturating_activations_survive_large_inputs(mode: str) -> None:
    got = np.asarray(activation_float(np.array([-200.0, 200.0], np.float32), mode=mode))
    assert np.isfinite(got).all()
    assert got[1] in (1.0, 200.0, 0.0)


# ---------------------------------------------------------------------------- numbers that TPU-MLIR 1.30.2 computes


def test_from_f16_every_step_is_in_f16() -> None:
    """In f32 these were 21, -99, -34 and -60."""
    x = np.array([0.45703125, -2.115234375, -0.7333984375, -1.2861328125], np.float32)
    inverse = np.float32(np.float16(1 / 0.021259842519685039))
    assert np.asarray(quantize(x, inverse, 0, out_dtype="int8", through="float16")).tolist() == [22, -100, -35, -61]


def test_integers_of_16_bits_are_rounded_to_f16_first() -> None:
    """With one rounding the first is 1.1044921875."""
    q = np.array([16962, 7379, 13071, -11985, -8939, 9109], np.int16)
    got = smallfloat.to_f16(dequantize(q, np.float16(6.5058877416587519e-5), 0, through="float16"))
    assert np.asarray(got).tolist() == [
        1.103515625, 0.48046875, 0.85107421875, -0.77978515625, -0.58154296875, 0.59326171875
    ]  # fmt: skip
