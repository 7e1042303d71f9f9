"""Rounding, saturation and requant primitives against the tables of numerics 4 and 5.2 and against Python integers."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_oracles import rsr as rsr_oracle
from tpusim_kernels.prim.requant import multiply_shift, multiply_shift_f32, quantized_multiplier_apply
from tpusim_kernels.prim.rounding import UNIMPLEMENTED, RoundMode, rsr, saturate, to_int
from tpusim_kernels.prim.scale import quantised, round_half_away, saturate_np

IMPLEMENTED = [m for m in RoundMode if m not in UNIMPLEMENTED]
SHORT = {
    "HU": RoundMode.HALF_UP,
    "HD": RoundMode.HALF_DOWN,
    "HA": RoundMode.HALF_AWAY_FROM_ZERO,
    "RNE": RoundMode.HALF_TO_EVEN,
    "TZ": RoundMode.TOWARDS_ZERO,
    "DOWN": RoundMode.DOWN,
    "UP": RoundMode.UP,
}
# numerics 4.3, n = 2: src, then HU HD HA RNE TZ DOWN UP
RSR_TABLE = [
    (6, 2, 1, 2, 2, 1, 1, 2),
    (-6, -1, -2, -2, -2, -1, -2, -1),
    (2, 1, 0, 1, 0, 0, 0, 1),
    (-2, 0, -1, -1, 0, 0, -1, 0),
    (10, 3, 2, 3, 2, 2, 2, 3),
    (-10, -2, -3, -3, -2, -2, -3, -2),
    (7, 2, 2, 2, 2, 1, 1, 2),
    (-7, -2, -2, -2, -2, -1, -2, -1),
]
# numerics 4.1: the values of 1.5, -1.5, 2.5
TO_INT_TABLE = {"HA": (2, -2, 3), "HU": (2, -1, 3), "HD": (1, -2, 2), "RNE": (2, -2, 2), "TZ": (1, -1, 2)}
TO_INT_TABLE |= {"UP": (2, -1, 3), "DOWN": (1, -2, 2)}


def test_codes_are_those_of_the_spec() -> None:
    assert [m.value for m in RoundMode] == list(range(10))
    assert RoundMode.HALF_TO_EVEN == 3
    assert RoundMode.DOWN == 9


@pytest.mark.parametrize("column", range(7))
def test_rsr_table(column: int) -> None:
    mode = list(SHORT.values())[column]
    got = rsr(np.array([row[0] for row in RSR_TABLE]), 2, mode)
    assert got.dtype == np.int64
    assert np.asarray(got).tolist() == [row[column + 1] for row in RSR_TABLE]


@pytest.mark.parametrize("name", TO_INT_TABLE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_to_int_table(name: str, dtype: type) -> None:
    assert np.asarray(to_int(np.array([1.5, -1.5, 2.5], dtype), SHORT[name])).tolist() == list(TO_INT_TABLE[name])


@pytest.mark.parametrize("mode", UNIMPLEMENTED)
def test_unimplemented_modes_are_refused(mode: RoundMode) -> None:
    for call in (lambda: rsr(1, 1, mode), lambda: to_int(np.float32(1), mode)):
        with pytest.raises(ValueError, match=mode.name):
            call()


EDGES = [0, 1, -1, 2**31, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63), 3 << 40, -(5 << 39)]
INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None, max_examples=20)
@given(st.lists(INT64, min_size=8, max_size=8), st.lists(st.integers(0, 63), min_size=19, max_size=19))
def test_rsr_is_exact_for_any_int64(values: list[int], shifts: list[int]) -> None:
    v = np.array(values + EDGES, np.int64)
    for mode in IMPLEMENTED:
        got = np.asarray(rsr(v, np.array(shifts, np.int32), mode))
        want = [int(rsr_oracle([int(a)], n, mode.name)[0]) for a, n in zip(v, shifts, strict=True)]
        assert got.tolist() == want, mode


def test_rsr_negative_shift_is_a_left_shift_and_large_shift_is_63() -> None:
    assert np.asarray(rsr(np.array([-3, 3]), -4, RoundMode.HALF_UP)).tolist() == [-48, 48]
    assert np.asarray(rsr(np.array([-3, 3]), 0, RoundMode.HALF_UP)).tolist() == [-3, 3]
    assert np.asarray(rsr(np.array([-(2**63)]), 99, RoundMode.DOWN)).tolist() == [-1]


def exact_to_int(v: float, mode: RoundMode) -> int:
    """Rounding of the exact rational value of `v`."""
    if mode == RoundMode.HALF_TO_EVEN:
        v = float(np.float32(v))
    x = Fraction(v)
    half_away = math.floor(abs(x) + Fraction(1, 2)) * (1 if x >= 0 else -1)
    return {
        RoundMode.HALF_AWAY_FROM_ZERO: half_away,
        RoundMode.HALF_UP: math.floor(x + Fraction(1, 2)),
        RoundMode.HALF_DOWN: math.ceil(x - Fraction(1, 2)),
        RoundMode.HALF_TO_EVEN: round(x),
        RoundMode.TOWARDS_ZERO: math.trunc(x),
        RoundMode.UP: math.ceil(x),
        RoundMode.DOWN: math.floor(x),
    }[mode]


TRICKY = [
    0.49999999999999994,
    -0.49999999999999994,
    0.5,
    -0.5,
    2**52 + 1.0,
    -(2**52 + 1.0),
    4503599627370495.5,
    2.0**60,
]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(-(2.0**50), 2.0**50, allow_subnormal=False), min_size=8, max_size=8))
def test_to_int_is_exact(values: list[float]) -> None:
    halves = [math.floor(v) + 0.5 for v in values if abs(v) < 2**20]
    halves += [1.5] * (8 - len(halves))
    v = np.array(values + halves + TRICKY)
    for mode in IMPLEMENTED:
        assert np.asarray(to_int(v, mode)).tolist() == [exact_to_int(float(a), mode) for a in v], mode
        narrow = v.astype(np.float32)
        narrow = np.where(np.abs(narrow) < 2.0**-126, np.float32(0), narrow)  # XLA flushes f32 subnormals
        assert np.asarray(to_int(narrow, mode)).tolist() == [exact_to_int(float(a), mode) for a in narrow], mode


def test_to_int_of_non_finite_values() -> None:
    got = np.asarray(to_int(np.array([np.inf, -np.inf, np.nan], np.float32), RoundMode.HALF_AWAY_FROM_ZERO))
    assert got.tolist() == [2**62, -(2**62), 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("source", [np.int8, np.int32, np.int64])
def test_saturate(dtype: str, source: type) -> None:
    info, held = np.iinfo(dtype), np.iinfo(source)
    values = np.array([0, -1, 127, -128, held.min, held.max], source)
    got = saturate(values, dtype)
    assert got.dtype == np.dtype(dtype)
    assert np.asarray(got).tolist() == [min(max(int(v), info.min), info.max) for v in values]


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.integers(-(2**31), 2**31), min_size=8, max_size=8),
    st.lists(st.integers(-(2**31) + 1, 2**31 - 1), min_size=8, max_size=8),
    st.lists(st.integers(-8, 63), min_size=8, max_size=8),
)
def test_multiply_shift(v: list[int], m: list[int], r: list[int]) -> None:
    m = [a if s >= 0 else a % 2**20 for a, s in zip(m, r, strict=True)]
    for mode in (RoundMode.HALF_UP, RoundMode.HALF_AWAY_FROM_ZERO, RoundMode.DOWN):
        got = np.asarray(multiply_shift(np.array(v), np.array(m), np.array(r, np.int32), mode)).tolist()
        assert got == [int(rsr_oracle([a * b], s, mode.name)[0]) for a, b, s in zip(v, m, r, strict=True)]


# numerics 5.2: Q, e, then the results for 1000, -1000, 12345, -12345
QUANTIZED = [
    (2061584302, -7, [8, -8, 93, -93]),
    (1073741824, 0, [500, -500, 6173, -6172]),
    (1288490189, -1, [300, -300, 3704, -3704]),
    (1610612736, 1, [1500, -1500, 18518, -18517]),
]


@pytest.mark.parametrize(("q", "e", "want"), QUANTIZED)
def test_quantized_multiplier_apply(q: int, e: int, want: list[int]) -> None:
    assert np.asarray(quantized_multiplier_apply(np.array([1000, -1000, 12345, -12345]), q, e)).tolist() == want


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(-(2**30), 2**30), min_size=8, max_size=8), st.integers(0, 127), st.integers(0, 20))
def test_cv18xx_requant_is_the_f32_formula(v: list[int], m: int, r: int) -> None:
    want = [math.floor(Fraction(float(np.float32(a) * np.float32(m))) / 2**r + Fraction(1, 2)) for a in v]
    assert np.asarray(multiply_shift_f32(np.array(v), m, r)).tolist() == want


def test_the_users_configuration_is_untouched() -> None:
    before = jax.config.jax_enable_x64
    out = rsr(np.array([1, 2]), 1, RoundMode.UP)
    assert out.dtype == np.int64
    assert jax.config.jax_enable_x64 == before
    assert jax.numpy.asarray(np.array([1])).dtype == (np.int64 if before else np.int32)


@pytest.mark.parametrize("shape", [(70, 3, 31, 33), (3, 70_001), (1, 9), (5,)])
def test_constants_are_quantised_a_part_at_a_time(shape: tuple[int, ...]) -> None:
    """As all at once, with one scale and with one for each entry of the first axis; halves and saturation included."""
    rng = np.random.default_rng(2)
    x = (rng.integers(-300, 300, shape) / 2).astype(np.float32)
    for scale in (0.5, rng.choice([0.25, 0.5, 1.0], shape[0])):
        by = np.reshape(scale, (-1, *[1] * (x.ndim - 1)) if np.ndim(scale) else ())
        np.testing.assert_array_equal(quantised(x, scale, "int8"), saturate_np(round_half_away(x / by), "int8"))


def test_constants_that_are_no_numbers_are_quantised_as_one_by_one() -> None:
    """NaN gives 0, infinities the ends; what rounds to a zero of either sign is 0, as is what is just below a half."""
    x = np.array([np.nan, np.inf, -np.inf, 0.49999999999999994, -0.49999999999999994, -0.0, 127.5, -128.5, 2.5, -2.5])
    for dtype in ("int8", "uint8"):
        np.testing.assert_array_equal(quantised(x, 1.0, dtype), saturate_np(round_half_away(x), dtype))
