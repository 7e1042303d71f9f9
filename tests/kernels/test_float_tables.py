"""BF16 arithmetic and lookup tables of CV18xx against Python floats, one value at a time (numerics 8.2, 10, 11)."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from tpusim_kernels.lut_bf16 import lut_mantissa, lut_slope
from tpusim_kernels.norm import layernorm_tables, lrn_tables
from tpusim_kernels.prim.bf16 import bf16_add, bf16_mul, stored_bf16
from tpusim_kernels.prim.floattable import (
    POWERS,
    SLOPE_RANGES,
    TablePair,
    activation_table,
    log_table,
    power_table,
)
from tpusim_kernels.softmax import softmax_float, softmax_tables

BF16 = ml_dtypes.bfloat16
EVERY = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
"""Every BF16 bit pattern, as f32."""
FINITE = np.isfinite(EVERY)
SMALLEST = 2.0**-126

# ------------------------------------------------------------------------------- the specification, in Python floats


def single(x: float) -> float:
    """Rounded to f32, half to even."""
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def bf16(x: float) -> float:
    """BF16 on CV18xx (8.2): add 0x7fff + lsb, cut; an infinity or NaN pattern becomes 0x7f7f."""
    (bits,) = struct.unpack("I", struct.pack("f", single(x)))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    bits = 0x7F7F if bits & 0x7F80 == 0x7F80 or math.isnan(x) else bits
    return struct.unpack("f", struct.pack("I", bits << 16))[0]


def flush(x: float) -> float:
    return 0.0 if abs(x) < SMALLEST else x


def mul(a: float, b: float) -> float:
    return bf16(flush(single(flush(a) * flush(b))))


def add(a: float, b: float) -> float:
    return bf16(flush(single(flush(a) + flush(b))))


def slope_of(x: float, base: list[float], slope: list[float], limit: float) -> float:
    t = mul(add(x, -0.0), bf16(256 / (2 * limit)))
    j = max(-128, min(127, math.trunc(t)))
    return add(base[j & 255], mul(bf16(single(t - j)), slope[j & 255]))


def mantissa_of(x: float, table: list[float], mantissa: list[float], *, log: bool, bits: int | None = None) -> float:
    bits = struct.unpack("I", struct.pack("f", x))[0] >> 16 if bits is None else bits  # a Python NaN is always quiet
    if abs(x) < SMALLEST:
        place = 0
    else:
        exponent = 64 if not math.isfinite(x) else math.floor(math.log2(abs(x)))
        place = max(-62, min(64, exponent)) + (191 if bits >> 15 else 63)
    return (add if log else mul)(table[place], mantissa[bits & 0xFF])


def plain(pair: TablePair) -> tuple[list[float], list[float]]:
    """The stored entries as Python floats."""
    return [float(v) for v in pair.table], [float(v) for v in pair.mantissa]


def wide(pair: TablePair) -> tuple[np.ndarray, np.ndarray]:
    """The stored entries as kernels get them."""
    return pair.table.astype(np.float32), pair.mantissa.astype(np.float32)


def assert_same_bits(got: object, want: list[float]) -> None:
    np.testing.assert_array_equal(
        np.asarray(got, np.float32).ravel().view(np.uint32), np.array(want, np.float32).view(np.uint32)
    )


# --------------------------------------------------------------------------------------------- arithmetic (8.2)


def test_products_and_sums_of_random_patterns() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 65536, 20000, dtype=np.uint16).view(BF16).astype(np.float32) for _ in range(2))
    with np.errstate(all="ignore"):
        pairs = [(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    assert_same_bits(bf16_mul(a, b), [mul(x, y) for x, y in pairs])
    assert_same_bits(bf16_add(a, b), [add(x, y) for x, y in pairs])


def test_rules_of_products_and_sums_in_words() -> None:
    big, inf, tiny = 3.3895313892515355e38, np.inf, 2.0**-126  # 0x7f7f, 0x0080
    a = np.array([inf, -inf, -big, inf, tiny, tiny, -tiny, 1.0], np.float32)
    b = np.array([0.0, 1.0, 2.0, 2.0, 0.5, 1.0, 0.5, -0.0], np.float32)
    assert_same_bits(bf16_mul(a, b), [big, big, big, big, 0.0, tiny, 0.0, 0.0])
    a = np.array([inf, -inf, -big, 1.0, 1.25 * tiny, -0.0, 256.0], np.float32)
    b = np.array([-inf, 1.0, -big, -1.0, -tiny, -0.0, 1.0], np.float32)
    assert_same_bits(bf16_add(a, b), [big, big, big, 0.0, 0.0, 0.0, 256.0])


def test_storing_rounds_doubles_through_f32() -> None:
    values = [1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1e39, 1e39, math.nan, 2.0**-130, -0.0, 1 + 2**-8 + 2**-40]
    assert_same_bits(stored_bf16(values).astype(np.float32), [bf16(v) for v in values])


# ---------------------------------------------------------------------------------------------------- makers (10)

FUNCTIONS: dict[str, tuple[tuple[float, ...], Callable[[float], float]]] = {
    "SIGMOID": ((), lambda x: 1 / (1 + math.exp(-x))),
    "LOG_SIGMOID": ((), lambda x: -math.log1p(math.exp(-x))),
    "TANH": ((), math.tanh),
    "EXP": ((), math.exp),
    "ELU": ((0.3,), lambda x: x if x > 0 else 0.3 * (math.exp(x) - 1)),
    "MISH": ((), lambda x: x * math.tanh(math.log1p(math.exp(x)))),
    "SOFT_PLUS": ((), lambda x: math.log1p(math.exp(x))),
    "SILU": ((), lambda x: x / (1 + math.exp(-x))),
    "SWISH": ((1.5,), lambda x: x / (1 + math.exp(-1.5 * x))),
    "GELU": ((), lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
    "TGELU": ((), lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "SOFT_SIGN": ((), lambda x: x / (1 + abs(x))),
}
RANGES = {
    "SIGMOID": 12,
    "TANH": 15,
    "EXP": 15,
    "ELU": 15,
    "MISH": 8,
    "SOFT_PLUS": 8,
    "SWISH": 12,
    "SILU": 12,
    "GELU": 8,
}


def test_ranges_are_those_of_the_specification() -> None:
    assert set(SLOPE_RANGES) == set(FUNCTIONS)
    assert {name: SLOPE_RANGES[name] for name in RANGES} == RANGES


@pytest.mark.parametrize("name", FUNCTIONS)
def test_slope_tables_are_the_formulas(name: str) -> None:
    """Written out entry by entry; one unit of the last place is left to the libraries' functions."""
    coeffs, f = FUNCTIONS[name]
    limit = SLOPE_RANGES[name]
    d = 2 * limit / 256
    got = activation_table(name, coeffs)
    base, slope = plain(got)
    assert got.table.dtype == got.mantissa.dtype == BF16
    expected = [bf16(f(i * d) if i < 128 else f(-limit + (i - 128) * d)) for i in range(256)]
    near(base, expected)
    for i in [*range(127), *range(129, 256)]:
        assert slope[i] == bf16(base[i + 1] - base[i] if i < 127 else base[i] - base[i - 1])
    near([slope[127]], [bf16((f(3 * limit) - f(limit)) / 256)])
    near([slope[128]], [bf16((f(-limit) - f(-3 * limit)) / 256)])


def near(got: list[float], want: list[float]) -> None:
    """Equal up to one unit of BF16, and equal bits in nearly all entries; f32 cancellation far from 0 is absolute."""
    a, b = np.array(got), np.array(want)
    assert np.all(np.abs(a - b) <= np.maximum(np.abs(b) * 2.0**-7, 1e-9))
    assert np.mean(a == b) >= (0.9 if len(want) > 1 else 0)


def test_worked_entries_of_the_sigmoid() -> None:
    """Steps of d = 24/256: f(d) = 0.52342..., f(-12) = 6.1442e-6; the end of the range has no slope left in BF16."""
    base, slope = plain(activation_table("SIGMOID"))
    assert base[0] == 0.5
    assert base[1] == 0.5234375
    assert base[128] == bf16(1 / (1 + math.exp(12)))
    assert slope[0] == 0.0234375
    assert slope[126] == 0.0
    assert slope[127] == bf16((1 / (1 + math.exp(-36)) - 1 / (1 + math.exp(-12))) / 256)


@pytest.mark.parametrize("exponent", [-1.0, -0.5, 0.5, 2.0, 3.0, 0.0, -2.0, 1.7])
def test_power_tables_are_the_formulas(exponent: float) -> None:
    table, mantissa = plain(power_table(exponent))
    at_zero = 3.3895313892515355e38 if exponent < 0 else 1.0 if exponent == 0 else 0.0
    assert table[0] == table[128] == at_zero
    sign = 0 if exponent != int(exponent) else -1 if int(exponent) % 2 else 1
    for i in range(127):
        power = 2.0 ** (exponent * (i - 62))
        assert table[1 + i] == bf16(power)
        assert table[129 + i] == (bf16(sign * power) if sign else 0.0)
    for i in range(128):
        assert mantissa[i] == mantissa[128 + i] == bf16((1 + i / 128) ** exponent)


def test_the_numerator_of_a_reciprocal_is_in_its_table() -> None:
    table, mantissa = plain(power_table(-1.0, 3.0))
    assert table[1 + 62] == 3.0
    assert table[129 + 62] == -3.0
    assert table[1 + 63] == 1.5
    assert mantissa == plain(power_table(-1.0))[1]


def test_log_table_is_the_formula() -> None:
    table, mantissa = plain(log_table())
    assert table[0] == -3.3895313892515355e38
    assert table[128] == 0.0
    assert set(table[129:]) == {table[0]}
    assert table[1:128] == [bf16((i - 62) * math.log(2)) for i in range(127)]
    assert mantissa == [bf16(math.log(1 + i % 128 / 128)) for i in range(256)]


# ------------------------------------------------------------------------------------------------ evaluation (10)


@cache
def by_slope(name: str) -> np.ndarray:
    limit = SLOPE_RANGES[name]
    pair = activation_table(name, FUNCTIONS[name][0])
    return np.asarray(lut_slope(EVERY, *wide(pair), low=-limit, high=limit))


@pytest.mark.parametrize("name", ["SIGMOID", "EXP", "GELU", "SOFT_SIGN"])
def test_slopes_at_every_input(name: str) -> None:
    """One function of each range, all 65536 bit patterns."""
    base, slope = plain(activation_table(name, FUNCTIONS[name][0]))
    assert_same_bits(by_slope(name), [slope_of(float(x), base, slope, SLOPE_RANGES[name]) for x in EVERY])


def test_a_range_may_lie_beside_zero() -> None:
    """The offset, which is 0 for every function of today: (low + high)/2."""
    pair, x = activation_table("SIGMOID"), np.array([3.0, 5.5, -2.0], np.float32)
    shifted = lut_slope(x, *wide(pair), low=-9.0, high=15.0)
    assert_same_bits(shifted, np.asarray(lut_slope(x - 3, *wide(pair), low=-12.0, high=12.0)).tolist())


@pytest.mark.parametrize("name", [*POWERS, "LN"])
def test_mantissas_at_every_input(name: str) -> None:
    pair = log_table() if name == "LN" else power_table(POWERS[name])
    got = lut_mantissa(EVERY, *wide(pair), log=name == "LN")
    table, mantissa = plain(pair)
    assert_same_bits(
        got, [mantissa_of(float(x), table, mantissa, log=name == "LN", bits=i) for i, x in enumerate(EVERY)]
    )


BOUNDS = {"SIGMOID": 0.005, "TANH": 0.01, "ELU": 0.09, "MISH": 0.04, "SOFT_PLUS": 0.03, "SILU": 0.06, "GELU": 0.03,
          "TGELU": 0.03, "SOFT_SIGN": 0.005}  # fmt: skip
"""Largest distance to the true function inside its range; half a unit of BF16 at 8 is 0.03, at 12 also, at 15 also.

ELU with alpha 0.3 has a kink at 0 that the step from 0 to -d takes with the slope of the other side: d*(1 - 0.3)."""


@pytest.mark.parametrize("name", BOUNDS)
def test_slope_tables_approximate_the_function(name: str) -> None:
    inside = FINITE & (np.abs(EVERY) <= SLOPE_RANGES[name])
    error = np.abs(by_slope(name)[inside] - np.array([FUNCTIONS[name][1](float(v)) for v in EVERY[inside]]))
    assert error.max() <= BOUNDS[name]


def test_the_exponential_approximates_up_to_its_last_step() -> None:
    """Relative to e^x. BF16(256/30) is 8.5625, 0.34 % too much: as much of x, up to 0.05, is the error at the ends.

    The last step already has the slope of what lies beyond the range, as numerics 10 defines it.
    """
    assert bf16(256 / 30) == 8.5625
    inside = FINITE & (EVERY >= -15) & (EVERY <= 14.75)
    assert np.abs(by_slope("EXP")[inside] / np.exp(EVERY[inside].astype(np.float64)) - 1).max() < 0.09
    last = by_slope("EXP")[EVERY == 15]
    assert last == bf16((math.exp(45) - math.exp(15)) / 256)


@pytest.mark.parametrize("name", ["SIGMOID", "TANH", "EXP", "SOFT_SIGN"])
def test_monotone_functions_stay_monotone(name: str) -> None:
    """Up to three units of BF16: y rounds twice, and just below 0 the slope is that of the step above 0 (EXP)."""
    inside = FINITE & (np.abs(EVERY) <= SLOPE_RANGES[name])
    order = np.argsort(EVERY[inside], kind="stable")
    y = by_slope(name)[inside][order].astype(np.float64)
    fall = np.maximum.accumulate(y) - y
    assert np.all(fall <= np.abs(y) * 3 * 2.0**-7)


@pytest.mark.parametrize(("name", "exponent"), [("SQRT", 0.5), ("RSQRT", -0.5), ("RECIPROCAL", -1.0)])
def test_powers_are_within_two_roundings(name: str, exponent: float) -> None:
    x = EVERY[FINITE & (EVERY >= 2.0**-62) & (EVERY < 2.0**65)].astype(np.float64)
    y = np.asarray(lut_mantissa(x.astype(np.float32), *wide(power_table(POWERS[name])), log=False))
    assert np.abs(y / x**exponent - 1).max() < 3 * 2.0**-8


def test_the_logarithm_is_within_a_unit_of_its_parts() -> None:
    x = EVERY[FINITE & (EVERY >= 2.0**-62) & (EVERY < 2.0**65)].astype(np.float64)
    y = np.asarray(lut_mantissa(x.astype(np.float32), *wide(log_table()), log=True))
    assert np.abs(y - np.log(x)).max() <= 0.125 + 0.125 + 2.0**-9  # exponent's part and the sum, both up to 45


# ------------------------------------------------------------------------------------------------ softmax, layer norm

RNG = np.random.default_rng(1)


def values(shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    return RNG.uniform(low, high, shape).astype(BF16).astype(np.float32)


EXP, RECIPROCAL, LOG, RSQRT = (
    activation_table("EXP"), power_table(-1.0), log_table(), power_table(-0.5)
)  # fmt: skip


def softmax_row(row: list[float], *, log: bool) -> list[float]:
    """11.1, CV18xx, one row."""
    largest = max(row)
    d = [add(x, -largest) for x in row]
    e = [slope_of(v, *plain(EXP), 15.0) for v in d]
    k = bf16(single(bf16(float(len(row))) / len(row)))
    total = 0.0
    for v in e:
        total = single(total + single(v * k))
    found = mantissa_of(bf16(total), *plain(LOG if log else RECIPROCAL), log=log)
    return [add(v, -found) for v in d] if log else [mul(v, found) for v in e]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("length", [1, 7, 259])
def test_softmax_rows(length: int, log: bool) -> None:
    """259: BF16(259) = 260 so that K is not 1; the sum rounds in f32."""
    x = values((3, length, 2), -30, 4)
    got = softmax_tables(x, *wide(EXP), *wide(LOG if log else RECIPROCAL), axis=1, log=log, limit=15.0)
    want = [softmax_row([float(v) for v in x[n, :, w]], log=log) for n in range(3) for w in range(2)]
    assert_same_bits(np.moveaxis(np.asarray(got), 1, 2), [v for row in want for v in row])


def test_softmax_is_near_the_true_one() -> None:
    x = values((4, 20), -8, 8)
    y = np.asarray(softmax_tables(x, *wide(EXP), *wide(RECIPROCAL), axis=1, limit=15.0))
    assert np.abs(y - np.asarray(softmax_float(x, axis=1))).max() < 0.02


def layernorm_row(row: list[float], w: list[float] | None, b: list[float] | None, epsilon: float) -> list[float]:
    """11.2, BF16 with the table of CV18xx, one row."""
    average = bf16(1 / len(row))
    total = 0.0
    for x in row:
        total = single(total + single(x * average))
    mean, variance = bf16(total), 0.0
    for x in row:
        d = bf16(single(x - mean))
        variance = single(variance + bf16(single(bf16(single(d * d)) * average)))
    rstd = mantissa_of(bf16(single(bf16(variance) + bf16(epsilon))), *plain(RSQRT), log=False)
    y = [bf16(single(bf16(single(x - mean)) * rstd)) for x in row]
    y = y if w is None else [bf16(single(v * f)) for v, f in zip(y, w, strict=True)]
    return y if b is None else [bf16(single(v + f)) for v, f in zip(y, b, strict=True)]


@pytest.mark.parametrize(("weight", "bias"), [(True, True), (True, False), (False, True), (False, False)])
def test_layernorm_rows(weight: bool, bias: bool) -> None:
    x = values((4, 3, 17), -5, 9)
    w, b = (values((3, 17), -2, 2) if given else None for given in (weight, bias))
    got = layernorm_tables(x, w, b, *wide(RSQRT), axis=1, epsilon=1e-3)
    flat = [None if p is None else [float(v) for v in p.ravel()] for p in (w, b)]
    want = [layernorm_row([float(v) for v in row.ravel()], *flat, 1e-3) for row in x]
    # a plain rounding keeps the sign of a zero, the chip's product has none
    assert_same_bits(got, [v + 0.0 for row in want for v in row])


@pytest.mark.parametrize(("channels", "size"), [(7, 5), (2, 5), (6, 3), (4, 1)])
def test_lrn_columns(channels: int, size: int) -> None:
    """One column of channels at a time; windows reach over both ends."""
    pair, alpha, bias = power_table(-0.75), 0.9, 1.7
    x = values((2, channels, 3), -6, 6)
    got = np.moveaxis(np.asarray(lrn_tables(x, *wide(pair), size=size, alpha=alpha, bias=bias)), 1, 2)
    want: list[float] = []
    for column in np.moveaxis(x, 1, 2).reshape(-1, channels):
        row = [float(v) for v in column]
        e = [mul(bf16(alpha / size), mul(v, v)) for v in row]
        for c, v in enumerate(row):
            total = e[c]
            for step in range(1, size // 2 + 1):
                total = add(total, e[c + step]) if c + step < channels else total
                total = add(total, e[c - step]) if c - step >= 0 else total
            want.append(mul(mantissa_of(add(total, bf16(bias)), *plain(pair), log=False), v))
    assert_same_bits(got, want)
    with pytest.raises(ValueError, match="an odd size is required, got 4"):
        lrn_tables(x, *wide(pair), size=4, alpha=alpha, bias=bias)


def test_results_do_not_depend_on_what_stands_around() -> None:
    """Alone, in a larger jit, and for another batch: the same bits."""
    x = values((6, 40), -6, 6)

    def network(x: jax.Array) -> list[jax.Array]:
        s = softmax_tables(x * 0.5, *wide(EXP), *wide(RECIPROCAL), axis=1, limit=15.0)
        n = layernorm_tables(s, None, None, *wide(RSQRT), axis=1, epsilon=1e-5)
        g = lut_slope(n, *wide(activation_table("SILU")), low=-12.0, high=12.0)
        m = bf16_add(bf16_mul(g, n), bf16_mul(s, n))
        return [s, n, g, m, lut_mantissa(m, *wide(LOG), log=True)]

    alone = [np.asarray(y) for y in network(jnp.asarray(x))]
    inside = [np.asarray(y) for y in jax.jit(network)(jnp.asarray(x))]
    part = [np.asarray(y) for y in network(jnp.asarray(x[2:3]))]
    for a, b, c in zip(alone, inside, part, strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
        np.testing.assert_array_equal(a[2:3].view(np.uint32), c.view(np.uint32))
