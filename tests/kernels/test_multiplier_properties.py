"""Multipliers and shifts (numerics 5) against a search over every shift, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tpusim_kernels.prim import multiplier as mul

FEW = settings(deadline=None, derandomize=True, database=None, max_examples=150)
F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
"""Every f32: zero, subnormals, negative and huge scales."""
USUAL = st.floats(1e-7, 300.0) | st.integers(1, 2**14).map(lambda k: k / 128)
LIMITS = {8: 127, 16: 127, 32: 2**31 - 1}
"""5.1: any width but 32 has the limit of 8."""


def away(x: Fraction) -> int:
    return math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)


def two_to(n: int) -> Fraction:
    return Fraction(2) ** n


def searched(scale: float, bits: int, first: int) -> tuple[int, int] | None:
    """Every n from `first` to 30: the first that has the smallest f32 error."""
    s = Fraction(float(np.float32(scale)))
    best: tuple[np.float32, int, int] | None = None
    for n in range(first, 31):
        m = away(s * two_to(n))
        with np.errstate(over="ignore"):
            error = np.float32(float(abs(Fraction(m) / two_to(n) - s)))
        if abs(m) < LIMITS[bits] and (best is None or error < best[0]):
            best = error, m, n
    return None if best is None else best[1:]


@pytest.mark.parametrize("bits", LIMITS)
@FEW
@given(scale=F32 | USUAL)
@example(scale=1e-45)
@example(scale=-(2.0**-149))
@example(scale=126.5)
@example(scale=-126.5)
@example(scale=126.49999)
@example(scale=2.0**31 - 1)
@example(scale=2.0**62)
@example(scale=2.0**-127)
def test_best_fit(bits: int, scale: float) -> None:
    for search, first in ((mul.best_fit, -32), (mul.best_fit_positive, 0)):
        expected = searched(scale, bits, first)
        if expected is None:
            with pytest.raises(ValueError, match=f"{bits}-bit"):
                search(scale, bits)
        else:
            assert search(scale, bits) == expected


@FEW
@given(st.lists(USUAL, min_size=1, max_size=6))
def test_best_fit_of_many_is_that_of_each(scales: list[float]) -> None:
    m, r = mul.best_fit_array(scales, 32)
    assert list(zip(m.tolist(), r.tolist(), strict=True)) == [mul.best_fit(s, 32) for s in scales]


@pytest.mark.parametrize("scale", [1e39, 1e300, -1e300, math.inf, math.nan])
def test_a_scale_beyond_f32_has_no_fit(scale: float) -> None:
    for search in (mul.best_fit, mul.best_fit_positive):
        with pytest.raises(ValueError, match="multiplier"):
            search(scale, 8)


@FEW
@given(st.floats(2.0**-7, 2.0**20, width=32))
def test_32_bits_hold_every_scale_above_two_to_minus_seven(scale: float) -> None:
    """5.1: exactly, with m <= 2^24 and r <= 30."""
    m, r = mul.best_fit(scale)
    assert Fraction(m) / two_to(r) == Fraction(scale)
    assert m <= 2**24
    assert r <= 30


@pytest.mark.parametrize(("exponent", "error"), [(-8, 1e-7), (-13, 1e-6), (-19, 1e-4), (-22, 1e-3)])
def test_relative_error_of_small_scales(exponent: int, error: float) -> None:
    """5.1: about 1e-7 at 2^-8, 1e-6 at 2^-13, 1e-4 at 2^-19, 1e-3 at 2^-22, because r ends at 30."""
    scales = [float(np.float32(2.0**exponent * (1 + i / 997))) for i in range(1, 400)]
    m, r = mul.best_fit_array(scales)
    worst = [abs(Fraction(int(a)) / two_to(int(b)) / Fraction(s) - 1) for a, b, s in zip(m, r, scales, strict=True)]
    assert max(r) == 30
    assert error / 4 < float(sum(worst) / len(worst)) < 4 * error


@FEW
@given(st.floats(2.0**-60, 2.0**40))
@example(1 - 2.0**-40)
@example(2.0**-33)
@example(2.0**-32)
@example(2.0**30)
def test_tflite_multiplier(scale: float) -> None:
    """5.2: the exponent is found by trying each, then carried, flushed or saturated."""
    exact = Fraction(scale)
    e = next(n for n in range(-70, 70) if Fraction(1, 2) <= exact / two_to(n) < 1)
    q = away(exact / two_to(e) * two_to(31))
    if q == 2**31:
        q, e = q // 2, e + 1
    expected = (0, 0) if e < -31 else (2**31 - 1, 30) if e > 30 else (q, e)
    assert mul.tflite_multiplier(scale) == expected


@FEW
@given(st.floats(2.0**-50, 300.0))
@example(127.0)
@example(63.5)
@example(127 / 2**20)
@example(0.9921874999999999)
def test_small_multiplier(q: float) -> None:
    """5.3: the smallest r >= 0 with q*2^(r+1) >= 127, m truncated."""
    exact = Fraction(q)
    r = next(n for n in range(64) if exact * two_to(n + 1) >= 127)
    expected = (127, 0) if exact > 127 else (math.floor(exact * two_to(r)), r)
    assert mul.small_multiplier(q) == expected


@FEW
@given(st.lists(st.floats(-2.0, 2.0).filter(lambda v: abs(v) > 2.0**-40), min_size=1, max_size=8))
def test_multipliers_that_share_a_shift(slopes: list[float]) -> None:
    """5.3: r of the largest; each is truncated towards zero to int8."""
    m, r = mul.shared_small_multiplier(slopes)
    largest = max(abs(Fraction(v)) for v in slopes)
    assert r == next(n for n in range(64) if largest * two_to(n + 1) >= 127)
    assert m.tolist() == [max(-128, min(127, math.trunc(Fraction(v) * two_to(r)))) for v in slopes]


@FEW
@given(st.integers(-60, 60), st.sampled_from((1.0, 127.0, 64.0, 3.0)) | st.floats(2.0**-7, 200.0, width=32))
def test_bm1684_right_shift(exponent: int, coeff: float) -> None:
    """5.4: the largest r <= 31 with |coeff|*s_i/s_o*2^r <= 127, at exact powers of two as well."""
    s_in, s_out = 2.0**exponent, 1.0
    exact = Fraction(coeff) * Fraction(s_in)
    r = max(n for n in range(-80, 32) if exact * two_to(n) <= 127)
    assert mul.right_shift_fit(coeff, s_in, s_out) == (min(127, away(exact * two_to(r))), r)


@FEW
@given(st.floats(2.0**-40, 2.0**10, width=32), st.integers(-10, 10))
@example(127.0, 0)
@example(63.5, 0)
@example(2.0**-26, 0)
@example(2.0**-25, 0)
def test_bm1684_conv_shift(largest: float, exponent: int) -> None:
    """5.4: doublings to reach 127, less one; 31 beyond 32 of them."""
    exact = Fraction(largest) * two_to(exponent)
    count = next((n for n in range(33) if exact * two_to(n) >= 127), 33)
    assert mul.product_shift(largest, 2.0**exponent, 1.0) == (31 if count > 32 else count - 1)


def test_average_pool_table_of_every_kernel() -> None:
    """5.4: the largest E with round-half-up(2^E/k) <= 255, then halved while even."""
    for k in range(1, 226):
        fits = [e for e in range(40) if math.floor(Fraction(2**e, k) + Fraction(1, 2)) <= 255]
        m, r = math.floor(Fraction(2 ** max(fits), k) + Fraction(1, 2)), max(fits)
        while m % 2 == 0 and r > 0:
            m, r = m // 2, r - 1
        assert mul.avgpool_table(k) == (m, r)
