"""Convolution and matrix product: kernel and machine against Python integers, with values that strain both."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from bench import Bench, pack
from hypothesis import given
from hypothesis import strategies as st
from integer_oracles import (
    INT32,
    MULTIPLIERS,
    SHIFTS,
    SHORT,
    Array,
    accumulated,
    bounded,
    channels,
    filled,
    floored,
    inside_int32,
    lists,
    saturated,
    shifted,
    tensors,
    zeros,
)
from tpusim_kernels.conv import conv2d_accumulate, conv2d_int
from tpusim_kernels.matmul import matmul_accumulate, matmul_int

from tpusim.isa import commands as isa

# name: x shape, w shape, strides, pads, dilations, groups
GEOMETRIES: dict[str, tuple[Any, ...]] = {
    "3x3": ((2, 5, 6, 5), (4, 5, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "strided": ((1, 5, 7, 6), (3, 5, 3, 2), (2, 3), (0, 1, 2, 1), (1, 1), 1),
    "dilated": ((1, 3, 7, 7), (4, 3, 3, 3), (1, 2), (2, 1, 2, 1), (2, 3), 1),
    "grouped": ((2, 6, 5, 5), (4, 3, 3, 2), (1, 1), (1, 0, 1, 1), (1, 1), 2),
    "depthwise": ((2, 5, 6, 5), (5, 1, 3, 3), (2, 1), (1, 0, 1, 2), (1, 2), 5),
    "wide": ((1, 70, 3, 2), (6, 70, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
}
# x type, filter type, relu, output type
FORMS = [
    ("int8", "int8", False, "int8"),
    ("uint8", "int8", True, "uint8"),
    ("int8", "uint8", True, "int8"),
    ("uint8", "uint8", False, "uint8"),
]
EVERY = pytest.mark.parametrize(("case", "form"), [(c, f) for c in GEOMETRIES for f in FORMS])
BIASES = st.sampled_from(("most", "least", "float", "random", "zero"))
"""How the bias of a channel is chosen: accumulators reach an end of int32, or 2^24 + 1, or anything between."""


def geometry(case: str) -> tuple[Any, Any, dict[str, Any]]:
    x, w, *rest = GEOMETRIES[case]
    return x, w, dict(zip(("strides", "pads", "dilations", "groups"), rest, strict=True))


def biased(acc: Array, kinds: list[str], seed: int, ends: tuple[int, int] = INT32) -> list[int]:
    """A bias per channel that keeps every accumulator inside int32, if possible with one at its end."""
    rng, found = np.random.default_rng(seed), []
    for c, kind in enumerate(kinds):
        most, least = int(acc[:, c].max()), int(acc[:, c].min())
        low, high = max(ends[0], INT32[0] - least), min(ends[1], INT32[1] - most)
        wanted = {"most": high, "least": low, "float": 2**24 + 1 - least, "random": int(rng.integers(low, high + 1))}
        found.append(min(max(wanted.get(kind, 0), low), high))
    return found


@cache
def benches(chip: str) -> Bench:
    return Bench(chip)


def bench_of(chip: str) -> Bench:
    """The chip's machine with all of its local memory free."""
    bench = benches(chip)
    bench.top = 0
    return bench


def table_of(m: list[int], r: list[int], z: int, words: int) -> Array:
    """(1, oc, 1, words) int32: multiplier, -rshift, zero point; the last two in one word on a chip that packs them."""
    rows = [[a, -b, z] if words == 3 else [a, (-b & 0xFF) | (z << 16)] for a, b in zip(m, r, strict=True)]
    return np.array(rows, np.int64).astype(np.int32).reshape(1, len(m), 1, words)


def on_machine(chip: str, x: Array, w: Array, fields: dict[str, Any], out: tuple[Any, str]) -> Array:
    """The Conv or Depthwise command; `fields` holds arrays to be loaded as well as plain fields."""
    bench, (shape, dtype) = bench_of(chip), out
    loaded = {k: bench.put(v, layout="compact") if isinstance(v, np.ndarray) else v for k, v in fields.items()}
    kernel, deep = (w.shape[2], w.shape[3]), w.shape[1] == 1 and loaded["groups"] > 1
    flat = w.reshape(1, len(w), 1, -1) if deep else pack(w, bench.chip.filter_packing(1, w.shape[1]))
    if deep:
        del loaded["groups"]
    return bench.run(
        isa.Depthwise if deep else isa.Conv,
        input=bench.put(x, packed=True), filter=bench.put(flat, layout="compact"),
        output=bench.space(shape, SHORT[dtype], packed=True), kernel=kernel, **loaded,
    )  # fmt: skip


@EVERY
def test_convolution(case: str, form: tuple[str, str, bool, str]) -> None:
    """9.1 on chips with multipliers: three requant words (BM1684X) and two (BM1688)."""
    x_type, w_type, relu, out_type = form
    x_shape, w_shape, attrs = geometry(case)
    oc = w_shape[0]

    @bounded(6)
    @given(
        tensors(x_type, x_shape), tensors(w_type, w_shape), zeros(x_type), zeros(out_type), lists(MULTIPLIERS, oc),
        lists(SHIFTS, oc), st.lists(BIASES, min_size=oc, max_size=oc), st.integers(0, 99),
    )  # fmt: skip
    def check(
        x: Array, w: Array, z_in: int, z_out: int, m: list[int], r: list[int], kinds: list[str], seed: int
    ) -> None:
        acc = accumulated(x, w, z_in, **attrs)
        bias = biased(acc, kinds, seed)
        total = acc + channels(bias, 4)
        assert inside_int32(total)
        v = shifted(total * channels(m, 4), channels(r, 4)) + z_out
        expected = saturated(floored(v, z_out, relu), out_type)
        b, ms, rs = np.array(bias, np.int32), np.array(m, np.int64), np.array(r, np.int32)
        found = conv2d_int(x, w, b, ms, rs, z_in, z_out, do_relu=relu, out_dtype=out_type, **attrs)
        np.testing.assert_array_equal(found, expected)
        fields = {**attrs, "bias": b.reshape(1, oc, 1, 1), "pad_value": z_in, "relu": relu}
        for chip, words in (("bm1684x", 3), ("bm1688", 2)):
            table = {"requant_table": table_of(m, r, z_out, words)}
            got = on_machine(chip, x, w, {**fields, **table}, (expected.shape, out_type))
            np.testing.assert_array_equal(got, expected, err_msg=chip)

    check()


@pytest.mark.parametrize("case", GEOMETRIES)
def test_convolution_that_only_shifts(case: str) -> None:
    """BM1684 (5.4, 9.1): no multiplier, one shift, int16 bias, batches interleaved in words."""
    x_shape, w_shape, attrs = geometry(case)
    oc = w_shape[0]

    @bounded(6)
    @given(
        tensors("uint8", x_shape), tensors("int8", w_shape), st.integers(-3, 31),
        st.lists(BIASES, min_size=oc, max_size=oc), st.integers(0, 99),
    )  # fmt: skip
    def check(x: Array, w: Array, r: int, kinds: list[str], seed: int) -> None:
        acc = accumulated(x, w, 0, **attrs)
        bias = biased(acc, kinds, seed, (-(2**15), 2**15 - 1))
        expected = saturated(floored(shifted(acc + channels(bias, 4), r), 0, True), "int8")
        b = np.array(bias, np.int32)
        shared = {"do_relu": True, "out_dtype": "int8", "requant": "only_shift"}
        found = conv2d_int(x, w, b, np.int64(77), np.int32(r), 0, 0, **shared, **attrs)
        np.testing.assert_array_equal(found, expected)
        fields = {**attrs, "bias": b.astype(np.int16).reshape(1, oc, 1, 1), "relu": True, "requant": isa.Requant(1, r)}
        np.testing.assert_array_equal(on_machine("bm1684", x, w, fields, (expected.shape, "int8")), expected)

    check()


@EVERY
def test_accumulators(case: str, form: tuple[str, str, bool, str]) -> None:
    """The sums themselves, of the largest bytes too: the true integer, in int32."""
    x_shape, w_shape, attrs = geometry(case)
    for fill in ("highest", "lowest", "ends"):
        x, w = (filled(t, s, fill, 5) for t, s in zip(form[:2], (x_shape, w_shape), strict=True))
        z_in = int(x.flat[0])
        expected = accumulated(x, w, z_in, **attrs)
        np.testing.assert_array_equal(conv2d_accumulate(x, w, z_in, **attrs), expected.astype(np.int32))


QDM = st.integers(2**30, 2**31 - 1)


@bounded(25)
@given(tensors("int8", (1, 70, 3, 2)), tensors("int8", (6, 70, 1, 1)), lists(QDM, 6), lists(st.integers(0, 31), 6))
def test_two_step_requant(x: Array, w: Array, m: list[int], r: list[int]) -> None:
    """5.2 and 6: HALF_UP at 31 bits, then HALF_AWAY (CV18xx)."""
    attrs = geometry("wide")[2]
    first = shifted(accumulated(x, w, 0, **attrs) * channels(m, 4), 31)
    expected = saturated(shifted(first, channels(r, 4), "half_away"), "int8")
    ms, rs = np.array(m, np.int64), np.array(r, np.int32)
    found = conv2d_int(x, w, None, ms, rs, 0, 0, do_relu=False, out_dtype="int8", requant="qdm", **attrs)
    np.testing.assert_array_equal(found, expected)


# ------------------------------------------------------------------------------------------------------- matrix product

PRODUCTS = {"2-D": ((3, 600), (600, 5)), "batched": ((2, 3, 9), (2, 9, 5))}
"""600 products of the largest bytes exceed 2^24."""
TRANSPOSES = [(False, False), (True, True)]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(map(str, f)))
@pytest.mark.parametrize("transposes", TRANSPOSES, ids=["plain", "transposed"])
@pytest.mark.parametrize("case", PRODUCTS)
def test_matrix_product(case: str, transposes: tuple[bool, bool], form: tuple[str, str, bool, str]) -> None:
    """9.2: relu before the requant; per tensor on the machine, per column in the kernel too."""
    x_type, w_type, relu, out_type = form
    x_shape, w_shape = PRODUCTS[case]
    columns = w_shape[-1]

    @bounded(6)
    @given(
        tensors(x_type, x_shape), tensors(w_type, w_shape), zeros(out_type), lists(MULTIPLIERS, columns),
        lists(SHIFTS, columns), st.lists(BIASES, min_size=columns, max_size=columns), st.integers(0, 99),
    )  # fmt: skip
    def check(x: Array, w: Array, z_out: int, m: list[int], r: list[int], kinds: list[str], seed: int) -> None:
        acc = np.matmul(x.astype(object), w.astype(object))
        bias = biased(np.moveaxis(acc, -1, 1), kinds, seed)
        total = acc + np.array(bias, object)
        assert inside_int32(total)
        left, right = (np.swapaxes(v, -1, -2).copy() if t else v for v, t in zip((x, w), transposes, strict=True))
        flags = dict(zip(("left_transpose", "right_transpose"), transposes, strict=True))
        np.testing.assert_array_equal(matmul_accumulate(left, right, **flags), acc.astype(np.int32))
        b, positive = np.array(bias, np.int32), floored(total, 0, relu)
        for ms, rs in ((m, r), (m[:1] * columns, r[:1] * columns)):
            products = positive * np.array(ms, object)
            expected = saturated(shifted(products, np.array(rs, object)) + z_out, out_type)
            arrays = np.array(ms, np.int64), np.array(rs, np.int32)
            found = matmul_int(left, right, b, *arrays, z_out, do_relu=relu, out_dtype=out_type, **flags)
            np.testing.assert_array_equal(found, expected)
        bench = bench_of("bm1684x")
        views = [bench.put(v.reshape((1,) * (3 - v.ndim) + v.shape)[..., None]) for v in (left, right)]
        got = bench.run(
            isa.MatMul, left=views[0], right=views[1], bias=bench.put(b.reshape(1, 1, columns, 1)), relu=relu, **flags,
            output=bench.space((*((1,) * (3 - acc.ndim)), *acc.shape, 1), SHORT[out_type]),
            requant=isa.Requant(m[0], r[0], z_out),
        )  # fmt: skip
        np.testing.assert_array_equal(got.reshape(expected.shape), expected)

    check()
