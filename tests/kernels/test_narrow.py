"""Requants in int32 against exact integers: every byte, saturated or not, wherever an accumulator lies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tpusim_kernels.conv import conv2d_int, filter_of
from tpusim_kernels.matmul import matmul_int
from tpusim_kernels.prim.narrow import Narrow, all_small, multiply_shift_small, narrow, requantize_narrow

INT32 = np.iinfo(np.int32)
CHANNELS = 8
SCALES = st.tuples(st.integers(1, 2**31 - 1), st.integers(0, 30))
BIAS = st.one_of(st.integers(-(2**18), 2**18), st.integers(INT32.min, INT32.max))


def exact(v: np.ndarray, m: np.ndarray, r: np.ndarray, zero_point: int, dtype: str) -> np.ndarray:
    """Stored bytes of integers of any size."""
    half = (1 << r.astype(object)) // 2
    rounded = (v.astype(object) * m + half) >> r.astype(object)
    info = np.iinfo(dtype)
    return np.clip(rounded + zero_point, info.min, info.max).astype(dtype)


def edges(m: int, r: int, bias: int) -> list[int]:
    """Accumulators at which the byte changes, near the ends of the byte and near zero, and the ends of int32."""
    steps = [-257, -129, -128, -127, -1, 0, 1, 127, 128, 255, 256]
    at = [((2 * step + 1) << r) // (2 * m) - bias for step in steps]
    near = [place + more for place in at for more in (-1, 0, 1)]
    return [*near, INT32.min, INT32.max, 0]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(SCALES, min_size=CHANNELS, max_size=CHANNELS),
    st.lists(BIAS, min_size=CHANNELS, max_size=CHANNELS),
    st.integers(-128, 127),
    st.sampled_from(["int8", "uint8"]),
)
def test_bytes_are_those_of_exact_integers(scales: list, bias: list, zero: int, dtype: str) -> None:
    zero = zero + 128 if dtype == "uint8" else zero
    m, r = np.array(scales, np.int64).T
    b = np.array(bias, np.int64)
    ends = [narrow(m[i : i + 1], r[i : i + 1], b[i : i + 1].astype(np.int32), zero, dtype) for i in range(CHANNELS)]
    taken = [i for i, one in enumerate(ends) if one is not None]
    m, r, b = m[taken], r[taken], b[taken]
    if not taken:
        return
    acc = np.array([edges(*(int(x) for x in one)) for one in zip(m, r, b, strict=True)], object).T
    acc = np.clip(acc, INT32.min, INT32.max).astype(np.int32)
    scale = narrow(m, r, b.astype(np.int32), zero, dtype)
    assert isinstance(scale, Narrow)
    found = np.asarray(requantize_narrow(acc, scale)).astype(np.int64) + zero
    info = np.iinfo(dtype)
    np.testing.assert_array_equal(np.clip(found, info.min, info.max), exact(acc + b, m, r, zero, dtype))


@pytest.mark.parametrize(("m", "r", "dtype"), [
    (0, 30, "int8"), (-5, 20, "int8"), (2**31, 30, "int8"), (1 << 20, 31, "int8"), (1 << 20, -1, "int8"),
    (1 << 20, 30, "int16"), (1, 30, "int8"), (2**14, 30, "uint8"),
])  # fmt: skip
def test_what_needs_int64_is_left_to_it(m: int, r: int, dtype: str) -> None:
    assert narrow(np.array([m]), np.array([r]), None, 0, dtype) is None


@pytest.mark.parametrize(("scale", "shift"), [(2.0**-15, 30), (0.003, 30), (0.9, 30), (1.5, 29), (100.0, 20)])
def test_the_scales_of_networks_are_taken(scale: float, shift: int) -> None:
    for dtype in ("int8", "uint8"):
        assert narrow(np.array([round(scale * 2**shift)]), np.array([shift]), None, 0, dtype) is not None


def test_kernels_give_the_bytes_of_int64() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (1, 8, 5, 5)).astype(np.int8)
    w = rng.integers(-128, 128, (12, 8, 3, 3)).astype(np.int8)
    b = rng.integers(-(2**14), 2**14, 12).astype(np.int32)
    m, r = rng.integers(1 << 18, 1 << 22, 12), rng.integers(28, 31, 12)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1, "out_dtype": "int8"}
    for relu, zero in ((False, 0), (True, -3)):
        scale = narrow(m, r, b, zero, "int8")
        assert scale is not None
        wide, in_int32 = (conv2d_int(x, w, one, m, r, 5, zero, do_relu=relu, **attrs) for one in (b, scale))
        np.testing.assert_array_equal(wide, in_int32)
        turned = {"left_transpose": False, "right_transpose": True, "do_relu": relu, "out_dtype": "int8"}
        left, right = x.reshape(25, 8), w[..., 0, 0]
        one, other = (matmul_int(left, right, c, m, r, zero, **turned) for c in (b, scale))
        np.testing.assert_array_equal(one, other)
    assert not isinstance(filter_of(w, 1), np.ndarray)


def test_small_multipliers() -> None:
    m = np.array([-(2**15) + 1, -127, 0, 1, 127, 2**15 - 1])
    r = np.arange(31)[:, None]
    v = np.array([-510, -255, -1, 0, 1, 254, 510], np.int32)[:, None, None]
    assert all_small(m.tolist(), r.reshape(-1).tolist())
    assert not all_small([2**15], [3])
    assert not all_small([1], [31])
    want = (v.astype(object) * m + (1 << r.astype(object)) // 2) >> r.astype(object)
    found = multiply_shift_small(*np.broadcast_arrays(v, m, r))
    np.testing.assert_array_equal(np.asarray(found), want.astype(np.int64))
