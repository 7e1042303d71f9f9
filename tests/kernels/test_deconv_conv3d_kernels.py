"""Transposed and 3-D convolution and 3-D pools: kernels against NumPy int64 loops, also beyond 2^24."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from convolution import gathered, scattered
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_oracles import rsr, sat
from tpusim_kernels import arith, conv3d, deconv, pool

Array = np.ndarray
RNG = np.random.default_rng(0)


def bytes_of(shape: tuple[int, ...], dtype: str, seed: int = 0, *, extreme: bool = False) -> Array:
    """Any bytes, or only the two ends of the type."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    if extreme:
        return rng.choice([info.min, info.max], shape).astype(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def deconv_acc(x: Array, w: Array, z_in: int, strides, pads, output_padding, dilations, groups) -> Array:
    """Every input less z_in adds its multiple of the kernel to the output; z_in*sum(w) is what the bias takes out."""
    size = [
        (x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1
        - pads[i] - pads[2 + i] + output_padding[i]
        for i in range(2)
    ]  # fmt: skip
    geometry = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    taken_out = z_in * w.astype(np.int64).sum(axis=(1, 2, 3))
    return scattered(x.astype(np.int64) - z_in, w, size, **geometry) + taken_out[:, None, None]


DECONVS = st.fixed_dictionaries({
    "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
    "dilations": st.tuples(st.integers(1, 2), st.integers(1, 2)),
    "pads": st.tuples(*[st.integers(0, 2)] * 4),
    "output_padding": st.tuples(st.integers(0, 1), st.integers(0, 1)),
    "groups": st.sampled_from([1, 2, 4]),
})  # fmt: skip
TYPES = st.sampled_from(["int8", "uint8"])


@settings(max_examples=12, deadline=None)
@given(DECONVS, TYPES, TYPES, st.integers(2, 3), st.integers(-128, 255), st.booleans(), st.booleans())
def test_deconv_is_exact(geometry, dtype, filter_dtype, k, z_in, relu, extreme) -> None:  # noqa: ANN001
    """Any strides, pads (some beyond the kernel), dilations, groups, zero points, signs; the ends of the types."""
    z_in = int(np.clip(z_in, np.iinfo(dtype).min, np.iinfo(dtype).max))
    for i, size in enumerate((3, 4)):
        reach = (k - 1) * geometry["dilations"][i] + geometry["output_padding"][i]
        assume((size - 1) * geometry["strides"][i] + reach >= geometry["pads"][i] + geometry["pads"][2 + i])
    x = bytes_of((2, 4, 3, 4), dtype, extreme=extreme)
    w = bytes_of((4, 4 // geometry["groups"], k, k), filter_dtype, 1, extreme=extreme)
    b = RNG.integers(-(2**20), 2**20, 4).astype(np.int32)
    expected = deconv_acc(x, w, z_in, **geometry) + b[:, None, None]
    found = np.asarray(deconv.deconv2d_accumulate(x, w, b, z_in, **geometry, do_relu=relu))
    np.testing.assert_array_equal(found, (np.maximum(expected, 0) if relu else expected).astype(np.int32), strict=True)


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(*[st.integers(1, 2)] * 3), st.tuples(*[st.integers(1, 2)] * 3), st.tuples(*[st.integers(0, 2)] * 6),
    st.sampled_from([1, 2, 4]), TYPES, TYPES, st.tuples(*[st.integers(1, 2)] * 3), st.integers(-128, 255),
    st.booleans(),
)  # fmt: skip
def test_conv3d_is_exact(strides, dilations, pads, groups, dtype, filter_dtype, kernel, z_in, relu) -> None:  # noqa: ANN001
    z_in = int(np.clip(z_in, np.iinfo(dtype).min, np.iinfo(dtype).max))
    assume(all(size + pads[i] + pads[3 + i] > (kernel[i] - 1) * dilations[i] for i, size in enumerate((4, 3, 4))))
    x, w = bytes_of((2, 4, 4, 3, 4), dtype), bytes_of((4, 4 // groups, *kernel), filter_dtype, 1)
    geometry = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    expected = gathered(x, w, z_in, **geometry)
    found = np.asarray(conv3d.conv3d_accumulate(x, w, None, z_in, **geometry, do_relu=relu))
    np.testing.assert_array_equal(found, (np.maximum(expected, 0) if relu else expected).astype(np.int32), strict=True)


@pytest.mark.parametrize("groups", [1, 2])
def test_accumulators_beyond_24_bits(groups: int) -> None:
    """600 channels of the largest bytes: sums near 2^28, odd, which no f32 holds."""
    flat = {"pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": groups}
    x, w = np.full((1, 600, 3, 3), 255, np.uint8), np.full((2, 600 // groups, 3, 3), 255, np.uint8)
    x[:, ::7] = 254
    one = {"strides": (1, 1), "output_padding": (0, 0), **flat}
    found = np.asarray(deconv.deconv2d_accumulate(x, w, None, 0, **one, do_relu=False))
    expected = deconv_acc(x, w, 0, **one)
    assert expected.max() > 2**26 and (expected % 4 != 0).any()
    np.testing.assert_array_equal(found, expected)
    volume, kernel = x[:, :, None].repeat(2, 2), w[:, :, None].repeat(2, 2)
    two = {"strides": (1, 1, 1), "pads": (0, 1, 1, 0, 1, 1), "dilations": (1, 1, 1), "groups": groups}
    found = np.asarray(conv3d.conv3d_accumulate(volume, kernel, None, 0, **two, do_relu=False))
    np.testing.assert_array_equal(found[:, :, 0], 2 * expected)


@pytest.mark.parametrize("requant", ["only_shift", "qdm"])
def test_fused_requant_of_a_deconv(requant: str) -> None:
    """BM1684 shifts half up; CV18xx multiplies by m/2^31 half up, then shifts half away (numerics 5.2)."""
    geometry = {"strides": (2, 2), "pads": (1, 1, 1, 1), "output_padding": (0, 0), "dilations": (1, 1), "groups": 1}
    x, w = bytes_of((2, 4, 3, 4), "int8"), bytes_of((4, 4, 4, 4), "int8", 1)
    b = RNG.integers(-(2**12), 2**12, 4).astype(np.int32)
    m, r = np.array([2**30 + 1, 2**31 - 1, 2**30 + 77, 2**31 - 5]), np.array([7, 8, 6, 0])
    acc = deconv_acc(x, w, 0, **geometry) + b[:, None, None]
    rows: list[Array] = []
    for c in range(4):
        v = acc[:, c]
        if requant == "only_shift":
            rows.append(rsr(v, int(r[c]), "HALF_UP"))
            continue
        scaled = np.clip(rsr(v.astype(object) * int(m[c]), 31, "HALF_UP"), -(2**31), 2**31 - 1)
        rows.append(rsr(scaled, int(r[c]), "HALF_AWAY_FROM_ZERO"))
    expected = sat(np.stack(rows, axis=1), "int8")
    found = deconv.deconv2d_int(x, w, b, m, r, 0, 0, **geometry, do_relu=False, out_dtype="int8", requant=requant)
    np.testing.assert_array_equal(np.asarray(found), expected, strict=True)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=12, max_size=12), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_requant_per_channel(values: list[int], seed: int) -> None:
    """Any int32, ties included, with shifts from -3 (left) to 40; half away from zero."""
    rng = np.random.default_rng(seed)
    m, r = rng.integers(0, 2**31 - 1, 3), rng.integers(-3, 41, 3)
    m[0], r[0] = 1, 1  # every odd number is a tie
    x = np.array(values, np.int32).reshape(1, 3, 2, 2)
    wide = [rsr(x[:, c].astype(object) * int(m[c]), int(r[c]), "HALF_AWAY_FROM_ZERO") for c in range(3)]
    expected = sat(np.stack(wide, axis=1) - 5, "int8")
    found = arith.requant_int(x, m, np.maximum(r, -3), 0, -5, out_dtype="int8")
    inside = np.abs(np.stack([w.astype(float) for w in wide], axis=1)) < 2.0**62  # a left shift may leave 64 bits
    np.testing.assert_array_equal(np.asarray(found)[inside], expected[inside])


@pytest.mark.parametrize("counted", [False, True])
def test_average_of_volumes(counted: bool) -> None:
    """Integer table form and real form against Python integers (numerics 5.4, 9.6); a zero point needs counted pads."""
    zero = 7 if counted else 0
    kernel, strides, pads = (2, 3, 2), (1, 2, 2), (1, 0, 1, 0, 1, 0)
    x = bytes_of((2, 3, 4, 5, 4), "int8")
    window = {"kernel": kernel, "strides": strides, "pads": pads}
    table = np.asarray(pool.avgpool2d_int(
        x, 171, 11, **window, count_include_pad=counted, do_relu=False, out_dtype="int8"))  # fmt: skip
    real = np.asarray(pool.avgpool2d_asym(
        x, 0.25, -3.0, zero, 4, **window, count_include_pad=counted, do_relu=False, out_dtype="int8"))  # fmt: skip
    for place in product(*map(range, table.shape[2:])):
        starts = [p * s - before for p, s, before in zip(place, strides, pads, strict=False)]
        box = tuple(slice(max(a, 0), a + k) for a, k in zip(starts, kernel, strict=True))
        inside = x[(slice(None), slice(None), *box)].astype(np.int64)
        seen = int(np.prod(inside.shape[2:]))
        sums, count = inside.sum(axis=(2, 3, 4)), 12 if counted else seen
        where = (slice(None), slice(None), *place)
        whole = np.sign(sums) * ((2 * np.abs(sums) * 12 + count) // (2 * count))
        np.testing.assert_array_equal(table[where], sat(rsr(whole * 171, 11, "HALF_UP"), "int8"))
        total = (sums + zero * (12 - seen)) * 12 / count * 0.25 - 3.0
        np.testing.assert_array_equal(real[where], sat(np.sign(total) * np.floor(np.abs(total) + 0.5), "int8"))


def test_operands_that_do_not_fit_are_refused() -> None:
    x, w = np.zeros((1, 4, 3, 3), np.int8), np.zeros((4, 3, 2, 2), np.int8)
    flat = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1, "do_relu": False}
    with pytest.raises(ValueError, match=r"a convolution needs x \(n, ic, h, w\)"):
        deconv.deconv2d_accumulate(x, w, None, 0, output_padding=(0, 0), **flat)
    volume = {"strides": (1, 1, 1), "pads": (0,) * 6, "dilations": (1, 1, 1), "groups": 1, "do_relu": False}
    with pytest.raises(ValueError, match="d, h, w"):
        conv3d.conv3d_accumulate(x, w, None, 0, **volume)
