"""Roundings to 8 and 16 bits: every stored pattern, every tie between two of them, and their neighbours (8.2, 8.3)."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tpusim_kernels.prim.smallfloat import to_bf16, to_f8e4m3, to_f8e5m2, to_f16

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
Rounding = Callable[[np.ndarray], object]


def stored(dtype: type) -> np.ndarray:
    """Every finite value of a float type >= 0, ascending, as f32; patterns of one sign are in order."""
    size = np.dtype(dtype).itemsize
    bits = np.arange(2 ** (8 * size - 1), dtype=np.uint16)
    values = bits.astype(np.uint8 if size == 1 else np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float32)
    return wide[np.isfinite(wide)]


def around(dtype: type) -> np.ndarray:
    """Every value, every tie of neighbours (exact in f32), one f32 above and below each; both signs."""
    values = stored(dtype)
    ties = (values[:-1] + values[1:]) / np.float32(2)
    places = np.concatenate([values, ties])
    with np.errstate(over="ignore"):
        places = np.concatenate([places, np.nextafter(places, np.float32(np.inf)), np.nextafter(places, -places)])
    return np.concatenate([places, -places])


def bits_of(x: object) -> np.ndarray:
    return np.asarray(x, np.float32).view(np.uint32)


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(np.float16, to_f16), (E4M3, to_f8e4m3), (E5M2, to_f8e5m2)], ids=["f16", "e4m3", "e5m2"]
)
def test_round_half_to_even_as_ml_dtypes(dtype: type, rounding: Rounding) -> None:
    """Within the finite range NumPy and ml_dtypes round the same way, subnormals kept, zeros signed."""
    x = around(dtype)
    np.testing.assert_array_equal(bits_of(rounding(x)), bits_of(x.astype(dtype).astype(np.float32)))


@pytest.mark.parametrize("dtype", [np.float16, E4M3, E5M2, ml_dtypes.bfloat16])
def test_stored_values_stay(dtype: type) -> None:
    rounding = {np.float16: to_f16, E4M3: to_f8e4m3, E5M2: to_f8e5m2, ml_dtypes.bfloat16: to_bf16}[dtype]
    x = stored(dtype)
    x = x[(x == 0) | (x >= np.finfo(np.float32).tiny)]  # BF16 has f32's exponents: its subnormals flush
    x = np.concatenate([x, -x])
    np.testing.assert_array_equal(bits_of(rounding(x)), bits_of(x))


def test_f16_half_away_from_zero() -> None:
    """The second entry point, at every tie: the larger magnitude of two neighbours."""
    values = stored(np.float16)
    x = (values[:-1] + values[1:]) / np.float32(2)
    np.testing.assert_array_equal(bits_of(to_f16(x, away=True)), bits_of(values[1:]))
    np.testing.assert_array_equal(bits_of(to_f16(-x, away=True)), bits_of(-values[1:]))
    beside = np.nextafter(x, np.float32(0))
    np.testing.assert_array_equal(bits_of(to_f16(beside, away=True)), bits_of(values[:-1]))
    assert np.asarray(to_f16(np.float32(65520), away=True)) == np.inf
    assert np.asarray(to_f16(np.float32(65519.996), away=True)) == 65504
    assert bits_of(to_f16(np.float32(np.nan), away=True)) == 0xFFC00000


def test_limits_of_e4m3() -> None:
    """Largest 448, smallest 2^-9 = 1.9531250e-3; saturates when asked, else NaN."""
    x = np.array([464, 464.00003, 465, 1e30, np.inf, -np.inf, -480], np.float32)
    np.testing.assert_array_equal(to_f8e4m3(x), [448] * 5 + [-448] * 2)
    loose = np.asarray(to_f8e4m3(x, saturating=False))
    assert loose[0] == 448
    assert np.isnan(loose[1:]).all()
    assert (bits_of(loose)[1:] & 0x7FFFFFFF == 0x7FFFFFFF).all()
    nan = np.asarray(to_f8e4m3(np.array([np.nan, -np.nan], np.float32)))
    assert np.isnan(nan).all()
    assert nan.astype(E4M3).view(np.uint8).tolist() == [0x7F, 0xFF]
    assert np.asarray(to_f8e4m3(x[:1])).astype(E4M3).view(np.uint8).tolist() == [0x7E]
    small = np.array([2.0**-10, 2.0**-10 * 1.0000001, -(2.0**-10), 1e-40, -1e-40, 3 * 2.0**-10], np.float32)
    got = bits_of(to_f8e4m3(small)).view(np.float32).tolist()
    assert got == [0.0, 1.9531250e-3, -0.0, 0.0, -0.0, 2 * 1.9531250e-3]
    assert bits_of(to_f8e4m3(small))[[2, 4]].tolist() == [0x80000000] * 2


def test_limits_of_e5m2() -> None:
    """Largest 57344, smallest 2^-16 = 1.5258789e-5; never saturates: infinity."""
    x = np.array([57344, 61439.996, 61440, 1e30, np.inf, -np.inf, -61440], np.float32)
    np.testing.assert_array_equal(to_f8e5m2(x), [57344, 57344, *[np.inf] * 3, -np.inf, -np.inf])
    assert np.asarray(to_f8e5m2(x)).astype(E5M2).view(np.uint8).tolist() == [0x7B, 0x7B, *[0x7C] * 3, 0xFC, 0xFC]
    assert np.isnan(np.asarray(to_f8e5m2(np.array([np.nan, -np.nan], np.float32)))).all()
    small = np.array([2.0**-17, 2.0**-17 * 1.0000001, 1e-40, 3 * 2.0**-17], np.float32)
    assert np.asarray(to_f8e5m2(small)).tolist() == [0.0, 2.0**-16, 0.0, 2 * 2.0**-16]


@pytest.mark.parametrize("step", [0.1, 3.0, 2.0**-20, 448.0])
def test_the_step_divides_first(step: float) -> None:
    """In double, narrowed once to f32."""
    x = np.random.default_rng(1).uniform(-2000, 2000, 4000).astype(np.float32) * np.float32(step)
    scaled = (x.astype(np.float64) / step).astype(np.float32)
    np.testing.assert_array_equal(bits_of(to_f8e4m3(x, step=step)), bits_of(to_f8e4m3(scaled)))
    np.testing.assert_array_equal(bits_of(to_f8e5m2(x, step=step)), bits_of(to_f8e5m2(scaled)))


def test_bf16_of_every_upper_half() -> None:
    """All 65536 upper halves with the low halves around the tie, against the rule in integers (8.2, BM chips)."""
    upper = np.arange(65536, dtype=np.int64) << 16
    for low in (0x0000, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        bits = upper | low
        sign, magnitude = bits & 0x80000000, bits & 0x7FFFFFFF
        want = (magnitude + 0x7FFF + (magnitude >> 16 & 1)) & 0xFFFF0000
        want = np.where(magnitude < 0x800000, np.where(magnitude >= 0x7F8000, 0x800000, 0), want) | sign
        want = np.where(magnitude > 0x7F800000, 0x7FFF0000, want)
        got = bits_of(to_bf16(bits.astype(np.uint32).view(np.float32)))
        np.testing.assert_array_equal(got, want.astype(np.uint32))
