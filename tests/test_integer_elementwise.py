"""Element-wise integer kernels and the machine's commands against Python integers, with values that strain both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench import Bench
from hypothesis import given
from hypothesis import strategies as st
from integer_oracles import (
    BYTE_MULTIPLIERS,
    BYTE_SHIFTS,
    MULTIPLIERS,
    SHIFTS,
    SHORT,
    Array,
    bounded,
    channels,
    exact,
    floored,
    lists,
    saturated,
    shifted,
    tensors,
    zeros,
)
from tpusim_kernels import activation, arith, movement
from tpusim_kernels.prim.rounding import RoundMode

from tpusim.isa import commands as isa
from tpusim.isa import functions

SHAPE, NARROW = (2, 3, 2, 5), (1, 3, 1, 5)
BYTES = ("int8", "uint8")
# type of each operand, relu, output type
FORMS = [
    (("int8", "uint8"), False, "int8"),
    (("uint8", "int8"), True, "uint8"),
    (("int8", "int8", "uint8"), True, "int8"),
]
BY_FORM = pytest.mark.parametrize(("dtypes", "relu", "out"), FORMS)
TYPES = [("int8", False, "int8"), ("uint8", True, "int8"), ("int8", True, "uint8")]
BY_TYPE = pytest.mark.parametrize(("dtype", "relu", "out"), TYPES)
BENCH = Bench()


def bench() -> Bench:
    BENCH.top = 0
    return BENCH


def operands(dtypes: tuple[str, ...]) -> st.SearchStrategy[tuple[Array, ...]]:
    """The first of the full shape, the others broadcast."""
    return st.tuples(*(tensors(t, NARROW if i else SHAPE) for i, t in enumerate(dtypes)))


def macro(function: functions.Function, xs: tuple[Array, ...], out: str) -> Array:
    """One Fn command on the machine."""
    machine = bench()
    views = tuple(machine.put(np.broadcast_to(x, SHAPE).copy()) for x in xs)
    return machine.run(isa.Fn, function=function, inputs=views, output=machine.space(SHAPE, SHORT[out]))


@BY_FORM
def test_add(dtypes: tuple[str, ...], relu: bool, out: str) -> None:
    """9.0, 9.5: every operand rounded alone, summed, relu before the zero point; no left shifts (5.1 positive)."""
    n = len(dtypes)

    @bounded(25)
    @given(
        operands(dtypes), lists(BYTE_MULTIPLIERS, n), lists(st.integers(0, 30), n),
        st.tuples(*(zeros(t) for t in dtypes)), zeros(out),
    )  # fmt: skip
    def check(xs: tuple[Array, ...], m: list[int], r: list[int], z: tuple[int, ...], z_out: int) -> None:
        total = sum(shifted((exact(x) - z[i]) * m[i], r[i]) for i, x in enumerate(xs))
        expected = saturated(floored(total, 0, relu) + z_out, out)
        found = arith.add_int(xs, m, r, z, z_out, do_relu=relu, out_dtype=out)
        np.testing.assert_array_equal(found, expected)
        function = functions.AddInt(tuple(m), tuple(r), tuple(z), z_out, relu)
        np.testing.assert_array_equal(macro(function, xs, out), expected)

    check()


@BY_FORM
def test_sub(dtypes: tuple[str, ...], relu: bool, out: str) -> None:
    """9.0: the difference of two rounded products."""
    pair = dtypes[:2]

    @bounded(25)
    @given(operands(pair), lists(BYTE_MULTIPLIERS, 2), lists(st.integers(0, 30), 2))
    def check(xs: tuple[Array, ...], m: list[int], r: list[int]) -> None:
        a, b = (shifted(exact(x) * m[i], r[i]) for i, x in enumerate(xs))
        expected = saturated(floored(a - b, 0, relu), out)
        np.testing.assert_array_equal(arith.sub_int(xs, m, r, do_relu=relu, out_dtype=out), expected)
        np.testing.assert_array_equal(macro(functions.SubInt(tuple(m), tuple(r), relu), xs, out), expected)

    check()


@BY_FORM
def test_mul(dtypes: tuple[str, ...], relu: bool, out: str) -> None:
    """9.0, 9.5: relu on the raw product; the shift may be a left shift (best fit general)."""

    @bounded(25)
    @given(operands(dtypes), BYTE_MULTIPLIERS, BYTE_SHIFTS, st.tuples(*(zeros(t) for t in dtypes)), zeros(out))
    def check(xs: tuple[Array, ...], m: int, r: int, z: tuple[int, ...], z_out: int) -> None:
        product: Any = 1
        for x, zero in zip(xs, z, strict=True):
            product = product * (exact(x) - zero)
        expected = saturated(shifted(floored(product, 0, relu) * m, r) + z_out, out)
        found = arith.mul_int(xs, m, r, z, z_out, do_relu=relu, out_dtype=out)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(macro(functions.MulInt(z, m, r, z_out, relu), xs, out), expected)

    check()


@BY_TYPE
def test_requants_of_bytes(dtype: str, relu: bool, out: str) -> None:
    """9.0 MulShift, MulConst and 6 RequantInt: HALF_UP and HALF_AWAY."""

    @bounded(25)
    @given(tensors(dtype, SHAPE), BYTE_MULTIPLIERS, BYTE_SHIFTS, zeros(dtype), zeros(out))
    def check(x: Array, m: int, r: int, z_in: int, z_out: int) -> None:
        product = (exact(x) - z_in) * m
        up = saturated(shifted(product, r) + z_out, out)
        np.testing.assert_array_equal(arith.mulshift_int(x, m, r, z_in, z_out, out_dtype=out), up)
        floor = saturated(floored(shifted(product, r) + z_out, z_out, relu), out)
        found = arith.mulconst_int(x, m, r, z_in, z_out, do_relu=relu, out_dtype=out)
        np.testing.assert_array_equal(found, floor)
        away = saturated(shifted(product, r, "half_away") + z_out, out)
        mode = RoundMode.HALF_AWAY_FROM_ZERO
        np.testing.assert_array_equal(arith.requant_int(x, m, r, z_in, z_out, mode=mode, out_dtype=out), away)
        for rounding, with_relu, expected in (
            ("half_up", False, up),
            ("half_up", relu, floor),
            ("half_away", False, away),
        ):
            machine = bench()
            got = machine.run(
                isa.Rescale, input=machine.put(x), output=machine.space(SHAPE, SHORT[out]), input_zero=z_in,
                requant=isa.Requant(m, r, z_out, rounding), relu=with_relu,  # type: ignore[arg-type]
            )  # fmt: skip
            np.testing.assert_array_equal(got, expected, err_msg=rounding)

    check()


@bounded(40)
@given(tensors("int32", SHAPE), lists(MULTIPLIERS, 3), lists(SHIFTS, 3), zeros("int8"))
def test_requant_of_accumulators(x: Array, m: list[int], r: list[int], z_out: int) -> None:
    """6 RequantIntAxis: all of int32, 32-bit multipliers, shifts both ways, per channel; one channel on the machine."""
    for mode, kernel_mode in (("half_up", RoundMode.HALF_UP), ("half_away", RoundMode.HALF_AWAY_FROM_ZERO)):
        expected = saturated(shifted(exact(x) * channels(m, 4), channels(r, 4), mode) + z_out, "int8")
        arrays = np.array(m, np.int64), np.array(r, np.int32)
        found = arith.requant_int(x, *arrays, 0, np.array([z_out] * 3), mode=kernel_mode, out_dtype="int8")
        np.testing.assert_array_equal(found, expected)
        machine = bench()
        got = machine.run(
            isa.Rescale, input=machine.put(x[:, :1].copy()), output=machine.space((2, 1, 2, 5), "i8"),
            requant=isa.Requant(m[0], r[0], z_out, mode),  # type: ignore[arg-type]
        )  # fmt: skip
        np.testing.assert_array_equal(got, expected[:, :1])


@BY_TYPE
@pytest.mark.parametrize("clamp16", [False, True])
def test_scale(dtype: str, relu: bool, out: str, clamp16: bool) -> None:
    """9.4: the sum shifted DOWN; BM1684 clamps it to 16 bits of the output's sign first."""

    @bounded(15)
    @given(tensors(dtype, SHAPE), tensors("int8", (3,)), tensors("int16", (3,)), lists(st.integers(0, 31), 3))
    def check(x: Array, m: Array, b: Array, r: list[int]) -> None:
        total = exact(x) * channels(m.tolist(), 4) + channels(b.tolist(), 4)
        if clamp16:
            total = exact(saturated(total, "int16" if out == "int8" else "uint16"))
        expected = saturated(floored(shifted(total, channels(r, 4), "down"), 0, relu), out)
        shifts = np.array(r, np.int32)
        found = arith.scale_int(x, m, b, shifts, 0, do_relu=relu, out_dtype=out, clamp16=clamp16)
        np.testing.assert_array_equal(found, expected)
        machine, column = bench(), (1, 3, 1, 1)
        views = {k: machine.put(v.reshape(column)) for k, v in (("scale", m), ("bias", b), ("rshift", shifts))}
        got = machine.run(
            isa.ChannelScale, input=machine.put(x), output=machine.space(SHAPE, SHORT[out]), clamp16=clamp16,
            relu=relu, **views,
        )  # fmt: skip
        np.testing.assert_array_equal(got, expected)

    check()


CONSTANTS = st.sampled_from((0, 1, -1, 2**15 - 1, -(2**15), 2**24 + 1, -(2**24) - 1)) | st.integers(-(2**30), 2**30)


@BY_TYPE
def test_constants(dtype: str, relu: bool, out: str) -> None:
    """9.3: AddConst, SubConst both ways round, MaxConst, MinConst."""

    @bounded(25)
    @given(tensors(dtype, SHAPE), BYTE_MULTIPLIERS, st.integers(0, 30), CONSTANTS, zeros(out))
    def check(x: Array, m: int, r: int, c: int, z: int) -> None:
        t = exact(x) * m
        attrs: dict[str, Any] = {"do_relu": relu, "out_dtype": out}
        forms = {
            "add": (t + c, 0, arith.addconst_int(x, m, r, c, **attrs)),
            "max": (np.maximum(t, c), 0, arith.maxconst_int(x, m, r, c, **attrs)),
            "min": (np.minimum(t, c), 0, arith.minconst_int(x, m, r, c, **attrs)),
            "sub": (t - c, z, arith.subconst_int(x, m, r, c, z, **attrs)),
            "reverse": (c - t, z, arith.subconst_int(x, m, r, c, z, **attrs, is_reverse=True)),
        }
        for kind, (value, zero, found) in forms.items():
            expected = saturated(floored(shifted(value, r) + zero, zero, relu), out)
            np.testing.assert_array_equal(found, expected, err_msg=kind)
            named: Any = "sub" if kind == "reverse" else kind
            got = macro(functions.ConstInt(named, m, r, c, zero, relu, kind == "reverse"), (x,), out)
            np.testing.assert_array_equal(got, expected, err_msg=kind)

    check()


@bounded(15)
@given(tensors("int8", SHAPE), BYTE_MULTIPLIERS, st.integers(0, 16), CONSTANTS, zeros("int8"))
def test_constant_is_added_after_the_zero_point(x: Array, m: int, r: int, c: int, z: int) -> None:
    """9.3 AddConst: v = (q - z_in)*m + C."""
    expected = saturated(shifted((exact(x) - z) * m + c, r), "int8")
    np.testing.assert_array_equal(arith.addconst_int(x, m, r, c, z, do_relu=False, out_dtype="int8"), expected)


@pytest.mark.parametrize(("dtype", "out"), [("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"), ("uint8", "int8")])
def test_slopes(dtype: str, out: str) -> None:
    """9.0 LeakyRelu and PRelu: the shift may be a left shift, the slope negative."""

    @bounded(20)
    @given(tensors(dtype, SHAPE), BYTE_MULTIPLIERS, BYTE_SHIFTS, tensors("int8", (3,)))
    def check(x: Array, m: int, r: int, slope: Array) -> None:
        q = exact(x)
        one = saturated(np.where(q >= 0, q, shifted(q * m, r)), out)
        np.testing.assert_array_equal(arith.leaky_relu_int(x, m, r, out_dtype=out), one)
        each = saturated(np.where(q >= 0, q, shifted(q * channels(slope.tolist(), 4), r)), out)
        np.testing.assert_array_equal(arith.prelu_int(x, slope, r, out_dtype=out), each)
        machine = bench()
        view, column = machine.put(x), machine.put(slope.reshape(1, 3, 1, 1))
        for factor, expected in ((float(m), one), (column, each)):
            output = machine.space(SHAPE, SHORT[out])
            got = machine.run(isa.Select, input=view, slope=factor, rshift=r, output=output)
            np.testing.assert_array_equal(got, expected)

    check()


@pytest.mark.parametrize("dtype", BYTES)
def test_bytes(dtype: str) -> None:
    """9.0, 9.7, DN-14: Max, Min, Relu, Abs, Pad and the table, of bytes."""

    @bounded(20)
    @given(tensors(dtype, SHAPE), tensors(dtype, NARROW), tensors("int8", (256,)), zeros(dtype))
    def check(a: Array, b: Array, table: Array, value: int) -> None:
        machine = bench()
        views = machine.put(a), machine.put(np.broadcast_to(b, SHAPE).copy())

        def arith_command(kind: str, other: Any, relu: bool = False) -> Array:
            output = machine.space(SHAPE, SHORT[dtype])
            return machine.run(isa.Arith, kind=kind, a=views[0], b=other, output=output, relu=relu)

        for kind, pick, kernel in (("max", np.maximum, arith.max_int), ("min", np.minimum, arith.min_int)):
            plain = saturated(pick(exact(a), exact(b)), dtype)
            np.testing.assert_array_equal(kernel((a, b)), plain)
            np.testing.assert_array_equal(arith_command(kind, views[1]), plain)
            relu = np.maximum(plain, plain.dtype.type(0))
            np.testing.assert_array_equal(kernel((a, b), do_relu=True), relu)
            np.testing.assert_array_equal(arith_command(kind, views[1], relu=True), relu)
        for out in BYTES:
            positive = saturated(np.maximum(exact(a), 0), out)
            np.testing.assert_array_equal(arith.relu_int(a, out_dtype=out), positive)
        np.testing.assert_array_equal(arith_command("copy", 0.0, relu=True), saturated(np.maximum(exact(a), 0), dtype))
        magnitude = np.abs(exact(a)).astype(np.int64).astype(dtype)
        np.testing.assert_array_equal(arith.abs_int(a), magnitude)
        np.testing.assert_array_equal(macro(functions.Active("ABSVAL"), (a,), dtype), magnitude)
        widths = [(0, 0), (0, 0), (1, 2), (0, 3)]
        padded = np.pad(exact(a), widths, constant_values=value).astype(np.int64).astype(dtype)
        np.testing.assert_array_equal(movement.pad(a, widths, mode="constant", value=value), padded)
        machine.top = 0
        function = functions.Pad("constant", (0, 0, 1, 0), (0, 0, 2, 3), value)
        view, out_view = machine.put(a), machine.space(padded.shape, SHORT[dtype])
        got = machine.run(isa.Fn, function=function, inputs=(view,), output=out_view)
        np.testing.assert_array_equal(got, padded)
        looked_up = np.array([table[int(v) % 256] for v in a.ravel()], np.int8).reshape(SHAPE)
        np.testing.assert_array_equal(activation.lut(a, table), looked_up)
        entries = machine.put(table.reshape(1, 1, 1, 256))
        got = machine.run(isa.Lut, input=view, table=entries, output=machine.space(SHAPE, "i8"))
        np.testing.assert_array_equal(got, looked_up)

    check()


@pytest.mark.parametrize(
    ("a", "b", "out"), [("int16", "int16", "int8"), ("int32", "int16", "int32"), ("uint8", "int8", "int16")]
)
def test_saturating_arithmetic(a: str, b: str, out: str) -> None:
    """AR on integers, as Add and Mul use it in local memory: exact, then saturated."""

    @bounded(15)
    @given(tensors(a, SHAPE), tensors(b, SHAPE))
    def check(x: Array, y: Array) -> None:
        machine = bench()
        views = machine.put(x), machine.put(y)
        for kind, value in (("add", exact(x) + exact(y)), ("sub", exact(x) - exact(y)), ("mul", exact(x) * exact(y))):
            output = machine.space(SHAPE, SHORT[out])
            got = machine.run(isa.Arith, kind=kind, a=views[0], b=views[1], output=output)
            np.testing.assert_array_equal(got, saturated(value, out), err_msg=kind)

    check()
