"""Convolution and matrix multiplication: exact against int64 oracles, float against ONNX Runtime."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from convolution import gathered
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_onnx_reference import run_onnx
from kernel_oracles import requant, rsr, sat
from tpusim_kernels.conv import Filter, conv2d_accumulate, conv2d_int, filter_of
from tpusim_kernels.conv_float import conv2d_float
from tpusim_kernels.matmul import matmul_accumulate, matmul_float, matmul_int

# name: x shape, w shape, strides, pads, dilations, groups
CONVS = {
    "3x3": ((2, 10, 7, 6), (5, 10, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "1x1": ((2, 6, 5, 4), (5, 6, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "1x1-stride": ((1, 6, 5, 4), (5, 6, 1, 1), (2, 3), (0, 0, 0, 0), (1, 1), 1),
    "few-channels": ((1, 3, 9, 8), (4, 3, 5, 4), (2, 1), (2, 0, 1, 3), (1, 1), 1),
    "dilated": ((1, 9, 9, 8), (4, 9, 3, 2), (1, 2), (2, 1, 2, 1), (2, 3), 1),
    "depthwise": ((2, 6, 7, 6), (6, 1, 3, 3), (2, 1), (1, 0, 1, 2), (1, 2), 6),
    "grouped": ((2, 6, 7, 6), (9, 2, 3, 2), (1, 2), (1, 0, 1, 1), (2, 1), 3),
    "multiplied-depthwise": ((1, 3, 6, 6), (6, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3),
    "whole-window": ((1, 4, 5, 5), (3, 4, 5, 5), (3, 3), (0, 0, 0, 0), (1, 1), 1),
}


def bytes_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Random bytes, a quarter of them at the two ends of the range."""
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, shape)
    ends = rng.integers(0, 8, shape)
    return np.where(ends == 0, info.min, np.where(ends == 1, info.max, x)).astype(dtype)


def geometry(case: str) -> tuple[tuple, tuple, dict]:
    x, w, strides, pads, dilations, groups = CONVS[case]
    return x, w, {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}


BYTES = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]
ALL_BYTES = ("3x3", "depthwise", "grouped")  # the three code paths; the other shapes mix signs once
CONV_ROWS = [(case, x, w) for case in CONVS for x, w in (BYTES if case in ALL_BYTES else BYTES[1:2])]


@pytest.mark.parametrize(("case", "x_dtype", "w_dtype"), CONV_ROWS)
def test_conv_accumulators(case: str, x_dtype: str, w_dtype: str) -> None:
    rng = np.random.default_rng(1)
    x_shape, w_shape, attrs = geometry(case)
    x, w = bytes_of(rng, x_shape, x_dtype), bytes_of(rng, w_shape, w_dtype)
    z_in = int(np.iinfo(x_dtype).max) - 3
    got = conv2d_accumulate(x, w, z_in, **attrs)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, gathered(x, w, z_in, **attrs))


@pytest.mark.parametrize(("x_value", "w_value"), [(255, 255), (255, -128), (-128, -128), (-128, 127), (-128, 255)])
def test_extreme_bytes_do_not_saturate_inside(x_value: int, w_value: int) -> None:
    """4608 products of the largest bytes: no intermediate of the byte product may saturate or wrap."""
    x = np.full((1, 512, 4, 4), x_value, np.uint8 if x_value > 127 else np.int8)
    w = np.full((4, 512, 3, 3), w_value, np.uint8 if w_value > 127 else np.int8)
    got = conv2d_accumulate(x, w, 0, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), groups=1)
    assert set(np.asarray(got).reshape(-1).tolist()) == {4608 * x_value * w_value}


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    case=st.sampled_from(["3x3", "depthwise", "grouped"]),
    do_relu=st.booleans(),
    out_dtype=st.sampled_from(["int8", "uint8"]),
    z_in=st.integers(-128, 127),
    z_out=st.integers(-128, 127),
)
def test_conv_int(seed: int, case: str, do_relu: bool, out_dtype: str, z_in: int, z_out: int) -> None:
    rng = np.random.default_rng(seed)
    x_shape, w_shape, attrs = geometry(case)
    x, w = bytes_of(rng, x_shape, "int8"), bytes_of(rng, w_shape, "int8")
    oc = w_shape[0]
    b = rng.integers(-(2**20), 2**20, oc).astype(np.int32)
    m = rng.integers(1, 2**31 - 1, oc)
    r = rng.integers(28, 45, oc).astype(np.int32)
    got = conv2d_int(x, w, b, m, r, z_in, z_out, do_relu=do_relu, out_dtype=out_dtype, **attrs)
    v = requant(gathered(x, w, z_in, **attrs) + b[:, None, None], m, r, 1) + z_out
    v = np.maximum(v, z_out) if do_relu else v
    assert got.dtype == np.dtype(out_dtype)
    assert not got.weak_type
    np.testing.assert_array_equal(got, sat(v, out_dtype))


def test_conv_int_bm1684_shift_only_without_bias() -> None:
    rng = np.random.default_rng(2)
    x_shape, w_shape, attrs = geometry("3x3")
    x, w = bytes_of(rng, x_shape, "uint8"), bytes_of(rng, w_shape, "int8")
    for shift in (0, 9, -1):
        got = conv2d_int(x, w, None, 77, shift, 0, 0, do_relu=True, out_dtype="int16", requant="only_shift", **attrs)
        want = np.maximum(rsr(gathered(x, w, 0, **attrs), shift, "HALF_UP"), 0)
        np.testing.assert_array_equal(got, sat(want, "int16"))


def test_conv_int_bias_beyond_int32_is_exact() -> None:
    """The sum acc + b may leave int32: it is added in int64 (DN-01)."""
    x, w = np.full((1, 4, 1, 1), 127, np.int8), np.full((1, 4, 1, 1), 127, np.int8)
    b = np.array([2**31 - 1], np.int32)
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    got = conv2d_int(x, w, b, 1, 4, 0, 0, do_relu=False, out_dtype="int32", **attrs)
    assert np.asarray(got).item() == (4 * 127 * 127 + 2**31 - 1 + 8) >> 4


def test_conv_int_qdm() -> None:
    rng = np.random.default_rng(3)
    x_shape, w_shape, attrs = geometry("1x1")
    x, w = bytes_of(rng, x_shape, "int8"), bytes_of(rng, w_shape, "int8")
    m, r = rng.integers(2**30, 2**31, 5), rng.integers(1, 9, 5)
    got = conv2d_int(x, w, None, m, r, 0, 0, do_relu=False, out_dtype="int8", requant="qdm", **attrs)
    first = requant(gathered(x, w, 0, **attrs), m, np.full(5, 31), 1)
    want = requant(first, np.ones(5, np.int64), r, 1, "HALF_AWAY_FROM_ZERO")
    np.testing.assert_array_equal(got, sat(want, "int8"))


@pytest.mark.parametrize("case", CONVS)
def test_conv_float_against_onnxruntime(case: str) -> None:
    rng = np.random.default_rng(4)
    x_shape, w_shape, attrs = geometry(case)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in (x_shape, w_shape, w_shape[:1]))
    got = conv2d_float(x, w, b, do_relu=False, **attrs)
    want = run_onnx(
        "Conv",
        [x, w, b],
        strides=attrs["strides"],
        pads=attrs["pads"],
        dilations=attrs["dilations"],
        group=attrs["groups"],
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    limited = conv2d_float(x, w, b, do_relu=True, relu_limit=1.5, **attrs)
    np.testing.assert_allclose(limited, np.clip(want, 0, 1.5), rtol=1e-4, atol=1e-4)


def test_conv_refuses_shapes_that_do_not_fit() -> None:
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}
    with pytest.raises(ValueError, match="ic/groups"):
        conv2d_accumulate(np.zeros((1, 3, 4, 4), np.int8), np.zeros((2, 4, 1, 1), np.int8), 0, **attrs)
    with pytest.raises(ValueError, match="does not fit"):
        conv2d_accumulate(np.zeros((1, 3, 2, 4), np.int8), np.zeros((2, 3, 3, 3), np.int8), 0, **attrs)
    with pytest.raises(ValueError, match="int8 or uint8"):
        conv2d_accumulate(np.zeros((1, 3, 4, 4), np.int16), np.zeros((2, 3, 1, 1), np.int8), 0, **attrs)


# left shape, right shape, left_transpose, right_transpose
MATMULS = [
    ((3, 20), (20, 7), False, False),
    ((2, 3, 20), (20, 7), False, False),
    ((2, 3, 5, 20), (2, 3, 20, 7), False, False),
    ((20, 3), (7, 20), True, True),
    ((2, 1, 5, 20), (3, 7, 20), False, True),
]


MATMUL_ROWS = [(*row, *BYTES[i % 4]) for i, row in enumerate(MATMULS)] + [(*MATMULS[0], *b) for b in BYTES[1:]]


@pytest.mark.parametrize(("left", "right", "lt", "rt", "x_dtype", "w_dtype"), MATMUL_ROWS)
def test_matmul_int(left: tuple, right: tuple, lt: bool, rt: bool, x_dtype: str, w_dtype: str) -> None:
    rng = np.random.default_rng(5)
    x, w = bytes_of(rng, left, x_dtype), bytes_of(rng, right, w_dtype)
    xt = np.swapaxes(x, -1, -2) if lt else x
    wt = np.swapaxes(w, -1, -2) if rt else w
    acc = xt.astype(np.int64) @ wt.astype(np.int64)
    transposes = {"left_transpose": lt, "right_transpose": rt}
    np.testing.assert_array_equal(matmul_accumulate(x, w, **transposes), acc)
    b = rng.integers(-(2**18), 2**18, 7).astype(np.int32)
    for m, r in ((rng.integers(1, 2**31, 7), rng.integers(36, 44, 7)), (np.int64(1234567), np.int32(33))):
        got = matmul_int(x, w, b, m, r, -3, do_relu=True, out_dtype="int8", **transposes)
        want = requant(np.maximum(acc + b, 0), m, r, acc.ndim - 1) - 3
        np.testing.assert_array_equal(got, sat(want, "int8"))


def test_matmul_float() -> None:
    rng = np.random.default_rng(6)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 5, 8), (2, 7, 8), (7,)))
    got = matmul_float(x, w, b, left_transpose=False, right_transpose=True, do_relu=True)
    np.testing.assert_allclose(got, np.maximum(x @ np.swapaxes(w, 1, 2) + b, 0), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="inner sizes"):
        matmul_float(x, w, None, left_transpose=False, right_transpose=False, do_relu=False)


@pytest.mark.parametrize(("groups", "kernel"), [(1, 1), (4, 1), (1, 3), (2, 3), (8, 3)])
def test_a_filter_made_on_the_host_is_the_same_filter(groups: int, kernel: int):
    rng = np.random.default_rng(groups)
    x = rng.integers(0, 256, (2, 8, 5, 5), dtype=np.uint8)
    oc = 8 if groups == 8 else 12  # one filter per channel
    w = rng.integers(-128, 128, (oc, 8 // groups, kernel, kernel), dtype=np.int8)
    made = filter_of(w, groups)
    assert isinstance(made, Filter)
    attrs = {"strides": (1, 1), "pads": (1, 0, 1, 0), "dilations": (1, 1), "groups": groups}
    rest = (None, np.ones(oc, np.int64), np.full(oc, 9), 7, 3)
    one, other = (conv2d_int(x, f, *rest, **attrs, do_relu=True, out_dtype="int8") for f in (w, made))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("oc", "ic", "kernel", "pads"), [
    (34, 44, (2, 1), (0, 2, 1, 2)), (8, 68, (1, 2), (1, 0, 2, 1)), (9, 52, (1, 2), (0, 1, 1, 0)),
    (35, 52, (1, 3), (0, 2, 1, 2)), (6, 52, (2, 1), (1, 1, 0, 1)), (15, 64, (3, 3), (2, 2, 2, 2)),
])  # fmt: skip
def test_constant_pads_inside_a_trace(
    oc: int, ic: int, kernel: tuple[int, int], pads: tuple[int, int, int, int]
) -> None:
    """XLA knows the zero point and would move the pads into the convolution, whose library then reads too far."""
    rng = np.random.default_rng(3)
    x, w = bytes_of(rng, (1, ic, 9, 8), "int8"), bytes_of(rng, (oc, ic, *kernel), "int8")
    attrs = {"strides": (1, 1), "pads": pads, "dilations": (1, 1), "groups": 1}
    made = filter_of(w, 1)

    def accumulated(x: jax.Array, values: jax.Array) -> jax.Array:
        filters = Filter(values, made.sums) if isinstance(made, Filter) else values
        return conv2d_int(x, filters, None, 1, 0, 0, 0, do_relu=False, out_dtype="int32", **attrs)

    found = jax.jit(accumulated)(x, made.values if isinstance(made, Filter) else w)
    np.testing.assert_array_equal(found, gathered(x, w, 0, **attrs))
