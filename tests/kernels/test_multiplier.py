"""Multiplier, shift and scale derivation: the worked examples of numerics 2.3 and 5, and brute-force searches."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tpusim_kernels.prim import multiplier as mul
from tpusim_kernels.prim.scale import asymmetric_scale, round_half_away, saturate_np, symmetric_scale

# numerics 5.1: scale, 8 bit general, 8 bit positive, 32 bit
BEST_FIT = [
    (1.0, (1, 0), (1, 0), (1, 0)),
    (0.5, (1, 1), (1, 1), (1, 1)),
    (0.3, (77, 8), (77, 8), None),
    (0.9, (115, 7), (115, 7), None),
    (0.1, (51, 9), (51, 9), (13421773, 27)),
    (0.75, (3, 2), (3, 2), (3, 2)),
    (1 / 3, (85, 8), (85, 8), (11184811, 25)),
    (0.0123, (101, 13), (101, 13), (825439, 26)),
    (2.5, (5, 1), (5, 1), (5, 1)),
    (100, (25, -2), (100, 0), None),
]


@pytest.mark.parametrize(("scale", "general", "positive", "wide"), BEST_FIT)
def test_best_fit_table(scale: float, general: tuple, positive: tuple, wide: tuple | None) -> None:
    assert mul.best_fit(scale, 8) == general
    assert mul.best_fit_positive(scale, 8) == positive
    if wide:
        assert mul.best_fit(scale, 32) == wide


def brute_best_fit(scale: float, limit: int, first: int) -> tuple[int, int] | None:
    """The search of numerics 5.1 in rational arithmetic."""
    exact = Fraction(float(np.float32(scale)))
    best, found = None, None
    for n in range(first, 31):
        x = exact * Fraction(2) ** n
        m = math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)
        error = np.float32(float(abs(Fraction(m) / Fraction(2) ** n - exact)))
        if abs(m) < limit and (best is None or error < best):
            best, found = error, (m, n)
    return found


SCALES = st.floats(1e-9, 1e9) | st.floats(0.001, 200) | st.integers(0, 2**12).map(lambda k: k / 64)


@settings(deadline=None, max_examples=200)
@given(SCALES, st.booleans())
def test_best_fit_against_brute_force(scale: float, negative: bool) -> None:
    signed = -scale if negative else scale
    for bits, limit in ((8, 127), (32, 2**31 - 1)):
        assert mul.best_fit(signed, bits) == brute_best_fit(signed, limit, -32)
        positive = brute_best_fit(scale, limit, 0)
        if positive is None:
            with pytest.raises(ValueError, match="DN-08"):
                mul.best_fit_positive(scale, bits)
        else:
            assert mul.best_fit_positive(scale, bits) == positive


def test_best_fit_special_values() -> None:
    assert mul.best_fit(0.0) == (0, -32)
    assert mul.best_fit_positive(0.0) == (0, 0)
    with pytest.raises(ValueError, match=r"126\.6"):
        mul.best_fit_positive(126.6)
    with pytest.raises(ValueError, match="nan"):
        mul.best_fit(float("nan"))
    m, r = mul.best_fit_array([0.1, 1.0], 8)
    assert (m.tolist(), r.tolist()) == ([51, 1], [9, 0])


@pytest.mark.parametrize("scale", [2.0**-7, 0.0123, 0.3, 1.7, 250.0])
def test_32_bit_fit_is_exact_above_two_to_minus_seven(scale: float) -> None:
    m, r = mul.best_fit(scale)
    assert Fraction(m) / Fraction(2) ** r == Fraction(float(np.float32(scale)))


@pytest.mark.parametrize(
    ("M", "want"),
    [
        (0.0075, (2061584302, -7)),
        (0.5, (1073741824, 0)),
        (0.3, (1288490189, -1)),
        (1.5, (1610612736, 1)),
        (0.0, (0, 0)),
    ],
)
def test_tflite_multiplier(M: float, want: tuple[int, int]) -> None:
    assert mul.tflite_multiplier(M) == want


def test_tflite_multiplier_ends() -> None:
    assert mul.tflite_multiplier(1 - 2**-40) == (1 << 30, 1)
    assert mul.tflite_multiplier(2.0**-40) == (0, 0)
    assert mul.tflite_multiplier(2.0**40) == (2**31 - 1, 30)


@pytest.mark.parametrize(
    ("q", "want"),
    [
        (1.0, (64, 6)),
        (0.5, (64, 7)),
        (0.3, (76, 8)),
        (0.9, (115, 7)),
        (0.007, (114, 14)),
        (126, (126, 0)),
        (200, (127, 0)),
        (0.0, (0, 0)),
    ],
)
def test_small_multiplier(q: float, want: tuple[int, int]) -> None:
    assert mul.small_multiplier(q) == want


def test_shared_small_multiplier_truncates_towards_zero() -> None:
    m, r = mul.shared_small_multiplier([0.3, -0.3, 0.01, -0.9])
    assert r == 7
    assert m.dtype == np.int8
    assert m.tolist() == [38, -38, 1, -115]


@pytest.mark.parametrize(
    ("coeff", "want"), [(1.0, (64, 6)), (0.5, (64, 7)), (0.3, (77, 8)), (0.9, (115, 7)), (3.0, (96, 5))]
)
def test_bm1684_right_shift(coeff: float, want: tuple[int, int]) -> None:
    assert mul.right_shift_fit(coeff, 1.0, 1.0) == want


def test_bm1684_conv_shift() -> None:
    assert mul.product_shift(1.0, 1.0, 1.0) == 6  # 7 doublings to 128
    assert mul.product_shift(127.0, 1.0, 1.0) == -1  # none needed
    assert mul.product_shift(0.3, 0.02, 0.05) == 10  # 0.12 * 2^11 = 245.8
    assert mul.product_shift(1e-12, 1.0, 1.0) == 31


@pytest.mark.parametrize(
    ("k", "want"), [(1, (1, 0)), (3, (171, 9)), (9, (57, 9)), (49, (167, 13)), (64, (1, 6)), (225, (73, 14))]
)
def test_avgpool_table(k: int, want: tuple[int, int]) -> None:
    assert mul.avgpool_table(k) == want


def test_avgpool_table_is_close_to_the_reciprocal_everywhere() -> None:
    for k in range(1, 226):
        m, r = mul.avgpool_table(k)
        assert 1 <= m <= 255
        assert abs(m / 2**r * k - 1) < 1 / 128
    with pytest.raises(ValueError, match="226"):
        mul.avgpool_table(226)


def test_qdm_reconstructs_the_scale() -> None:
    m, r = mul.qdm_fit(0.8, 4.0, 2.0)
    assert 2**30 <= m < 2**31
    assert m / 2 ** (31 + r) == pytest.approx(0.8 * 4 / (127 * 2), rel=1e-6)
    w8 = mul.qdm_filter(np.array([0.8, -0.8, 0.4]), 4.0, 2.0, m, r)
    assert w8.tolist() == [127, -127, 64]
    raised, _ = mul.qdm_fit(1e-9, 4.0, 2.0, max_bias=3.0)
    assert raised == mul.tflite_multiplier(3.0 * 127 / (0x7FFFFFFF * 0.998 * 2.0))[0]
    assert mul.qdm_fit(500.0, 4.0, 2.0) == mul.qdm_fit(1000.0, 4.0, 2.0)
    assert mul.qdm_fit(0.0, 4.0, 2.0) == (0, 0)


def test_scales_of_the_spec() -> None:
    low, high = -4.1780586242675781, 4.4932479858398438
    assert asymmetric_scale(low, high) == (0.034005123961205579, -5, True)
    assert symmetric_scale(low, high) == (0.03537990540031373, 0, True)
    assert symmetric_scale(0, 6) == (0.023529411764705882, 0, False)
    assert asymmetric_scale(0.5, 6) == (6 / 255, 0, False)


def test_scale_ranges() -> None:
    assert symmetric_scale(-7, 3, 4) == (1.0, 0, True)
    assert symmetric_scale(0, 15, 4) == (1.0, 0, False)
    assert symmetric_scale(-32767, 3, 16) == (1.0, 0, True)
    assert asymmetric_scale(-6, -0.5) == (-6 / -255, 127, True)
    with pytest.raises(ValueError, match="min < max"):
        asymmetric_scale(1, 1)


def test_round_half_away_is_exact() -> None:
    values = np.array([0.49999999999999994, -0.49999999999999994, 0.5, -0.5, 2.5, 4503599627370497.0, -1.5])
    assert round_half_away(values).tolist() == [0, 0, 1, -1, 3, 4503599627370497.0, -2]
    narrow = round_half_away(np.array([0.49999997, 8388609.0, 2.5], np.float32))
    assert narrow.dtype == np.float32
    assert narrow.tolist() == [0, 8388609, 3]
    assert round_half_away(3).tolist() == 3


def test_saturate_np() -> None:
    assert saturate_np([300.0, -300.0, np.nan, np.inf, -np.inf], "int8").tolist() == [127, -128, 0, 127, -128]
    assert saturate_np(np.array([-5, 2**40]), "int32").tolist() == [-5, 2**31 - 1]
