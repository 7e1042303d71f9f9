"""TFLite files: small networks compared with arithmetic of the test, scales kept, damaged files refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.tflite_network import (
    BIAS,
    DEEP,
    DEEP_BIAS,
    DEEP_SCALES,
    FILTER,
    FILTER_SCALES,
    LAST,
    MATRIX,
    RNG,
    SAME,
    VALID,
    bytes_of,
    network,
)  # fmt: skip
from tflite_files import Op, T, written
from tflite_rows import ROWS, Row

import tpusim
from tpusim.errors import ConfigError, ImportModelError, TpusimError, UnsupportedError
from tpusim.frontend import onnx_outputs
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.imported_scales import imported_ranges

with np.load(Path(__file__).parent / "tflite_litert.npz") as recorded:
    LITERT = dict(recorded)
"""What LiteRT 2.3 gives for `tflite_rows.ROWS`, by the row's name and the number of the result."""
IN_FLOAT: dict[str, Any] = {"rtol": 3e-5, "atol": 3e-6}
"""Functions and sums of float32 in other orders."""


def windows(x: np.ndarray, stride: int) -> np.ndarray:
    """(h, w, 3, 3, c) of an image with one pixel of zeros around it (SAME of a 3x3 window over 9 or 5 pixels)."""
    wide = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (0, 1)).transpose(0, 1, 3, 4, 2)[::stride, ::stride]


def quantised(x: np.ndarray, scale: float, zero: int) -> np.ndarray:
    """The real number of the byte."""
    return (np.clip(np.round(x / scale) + zero, -128, 127) - zero) * scale


def by_hand(x: np.ndarray) -> np.ndarray:
    """The network of the file, step by step in double."""
    x = quantised(x[0], 0.05, 3)
    conv = np.einsum("hwijc,oijc,o->hwo", windows(x, 2), FILTER, FILTER_SCALES) + BIAS * (FILTER_SCALES * 0.05)
    conv = quantised(np.maximum(conv, 0), 0.04, -128)
    deep = np.einsum("hwijc,ijc,c->hwc", windows(conv, 1), DEEP[0], DEEP_SCALES) + DEEP_BIAS * (DEEP_SCALES * 0.04)
    total = quantised(conv + quantised(deep, 0.03, 10), 0.06, -5)
    pool = total[:4, :4].reshape(2, 2, 2, 2, 8).max(axis=(1, 3))
    logits = quantised(pool.reshape(-1) @ (MATRIX.T * 0.004) + LAST * (0.06 * 0.004), 0.2, 1)
    e = np.exp(logits - logits.max())
    return e / e.sum()


def test_network_of_a_file_in_its_own_integers(tmp_path: Path) -> None:
    """Filters are the file's bytes, types its scales and zero points; results within a step of arithmetic by hand."""
    path = tmp_path / "net.tflite"
    path.write_bytes(network())
    net = tpusim.compile(path, asymmetric=True)
    stored = [a for a in net.tpu.weights.values() if a.dtype == np.int8 and a.size > 8]
    for ours, theirs in zip(stored, (FILTER.transpose(0, 3, 1, 2), DEEP.transpose(3, 0, 1, 2), MATRIX.T), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    found = imported_ranges(net.top)["conv/Relu"]
    assert (found.low, found.high, np.float32(found.scale)) == (0, 255, np.float32(0.04))
    samples = RNG.normal(size=(8, 1, 9, 9, 4)).astype(np.float32) * 2
    ours = next(iter(net.flat(samples[:, 0]).values()))
    expected = np.stack([by_hand(x) for x in samples])
    assert np.abs(ours - expected).max() < 0.06  # a step of the logits is a factor of 1.22
    assert np.mean(np.argmax(ours, axis=1) == np.argmax(expected, axis=1)) > 0.8
    verified = net.verify({"x": samples[0]})
    assert verified.comparisons["top_vs_onnx"].passed and verified.bit_exact


def run_one(tmp_path: Path, op: Op, shape: tuple[int, ...], result: tuple[int, ...], *constants: T) -> np.ndarray:
    """A float op of a file in ONNX Runtime, for an x that counts up."""
    tensors = [T("x", shape, np.float32), *constants, T("y", result, np.float32)]
    path = tmp_path / "one.tflite"
    path.write_bytes(written(tensors, [op], ["x"], ["y"]))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    top = tpusim.load(path)
    ours = tpusim.infer(top, {"x": x})[op_name(top.results[0].owner)]
    np.testing.assert_allclose(ours, onnx_outputs(path, {"x": x}, ["y"])["y"], rtol=1e-6)
    return ours


def test_single_ops(tmp_path: Path) -> None:
    """What the network above has not, each by a formula over NHWC."""
    x = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
    one = lambda kind, shape, options, *constants: run_one(  # noqa: E731
        tmp_path, Op(kind, ["x", *(c.name for c in constants)], "y", options), x.shape, shape, *constants
    )
    pool = {"Padding": SAME, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}
    np.testing.assert_allclose(one("AVERAGE_POOL_2D", (1, 2, 2, 2), pool), x.reshape(1, 2, 2, 2, 2, 2).mean((2, 4)))
    axes = T("axes", (2,), np.int32, data=np.array([1, 2], np.int32))
    np.testing.assert_allclose(one("MEAN", (1, 2), {"KeepDims": False}, axes), x.mean((1, 2)), rtol=1e-6)
    pads = T("pads", (4, 2), np.int32, data=np.array([[0, 0], [1, 0], [0, 2], [0, 1]], np.int32))
    np.testing.assert_array_equal(one("PAD", (1, 5, 6, 3), None, pads), np.pad(x, pads.data))
    row = T("row", (2,), np.float32, data=np.array([2, 3], np.float32))
    np.testing.assert_array_equal(one("MUL", x.shape, {"FusedActivationFunction": 3}, row), np.clip(x * row.data, 0, 6))
    image = T("image", x.shape, np.float32, data=-x)
    np.testing.assert_array_equal(one("CONCATENATION", (1, 4, 4, 4), {"Axis": 3}, image), np.concatenate([x, -x], 3))
    size = T("size", (2,), np.int32, data=np.array([8, 8], np.int32))
    twice = x.repeat(2, 1).repeat(2, 2)
    np.testing.assert_array_equal(one("RESIZE_NEAREST_NEIGHBOR", twice.shape, {}, size), twice)
    linear = one("RESIZE_BILINEAR", twice.shape, {"HalfPixelCenters": True}, size)
    np.testing.assert_allclose(linear[0, 0, :3, 0], [0, 0.5, 1.5])
    np.testing.assert_allclose(one("LOGISTIC", x.shape, None), 1 / (1 + np.exp(-x)), rtol=1e-5)


def test_refused_ops_are_one_list(tmp_path: Path) -> None:
    tensors = [*(T(n, (1, 4), np.float32) for n in "xabcdy"), T("m", (4, 4), np.float32, data=np.eye(4, dtype="f"))]
    ops = [
        Op("ATAN2", ["x", "x"], "a"),
        Op("RFFT2D", ["a"], "b"),
        Op("ATAN2", ["b", "a"], "c"),
        Op("GATHER", ["c", "c"], "d", {"BatchDims": 1}),
        Op("FULLY_CONNECTED", ["d", "m"], "y", {"WeightsFormat": 1}),
    ]
    path = tmp_path / "odd.tflite"
    path.write_bytes(written(tensors, ops, ["x"], ["y"]))
    with pytest.raises(UnsupportedError) as caught:
        tpusim.load(path)
    assert str(caught.value).splitlines()[1:] == [
        "  ATAN2: tpusim has no such op (2, first 'a')",
        "  RFFT2D: tpusim has no such op (1, first 'b')",
        "  GATHER: batch_dims 0 is required, got 1 (1, first 'd')",
        "  FULLY_CONNECTED: a matrix in the plain form is required (1, first 'y')",
    ]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Cut off anywhere, or with any byte changed: a message, or the network still."""
    whole, path = network(), tmp_path / "bad.tflite"
    cut = [whole[:n] for n in (0, 7, 8, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1)]
    changed: list[bytes] = []
    for place in np.random.default_rng(1).integers(8, len(whole), 60):
        changed.append(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    for number, content in enumerate([*cut, *changed]):
        path.write_bytes(content)
        try:
            tpusim.load(path)
        except TpusimError as error:
            assert number >= len(cut) or isinstance(error, ImportModelError)
            assert "bad.tflite" in str(error) or number >= len(cut)
        else:
            assert number >= len(cut) - 1  # the last byte may be padding


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite", None)
    with pytest.raises(ConfigError, match=r"pip install 'tpusim\[tflite\]'"):
        tpusim.load(tmp_path / "x.tflite")


def halves(*shape: int) -> np.ndarray:
    """Weights as MediaPipe stores them."""
    return RNG.normal(size=shape).astype(np.float16)


W16, B16, D16, A16, M16 = halves(6, 1, 1, 4), halves(6), halves(1, 3, 3, 6), halves(1, 1, 6), halves(5, 150)


def float16_network() -> bytes:
    """A float network whose weights are float16 with a Dequantize each: conv, prelu, depthwise, residual, matrix."""
    weights = {"w": W16, "b": B16, "d": D16, "a": A16, "m": M16}
    tensors = [T(f"{n}16", k.shape, np.float16, data=k) for n, k in weights.items()]
    tensors += [T(n, k.shape, np.float32) for n, k in weights.items()]
    shapes = {"x": (1, 5, 5, 4), **dict.fromkeys(("c", "p", "q", "s"), (1, 5, 5, 6)), "f": (1, 150), "y": (1, 5)}
    tensors += [T(n, shape, np.float32) for n, shape in shapes.items()]
    tensors.append(T("row", (2,), np.int32, data=np.array([1, 150], np.int32)))
    ones = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1, "Padding": SAME}
    ops = [
        *(Op("DEQUANTIZE", [f"{n}16"], n) for n in weights),
        Op("CONV_2D", ["x", "w", "b"], "c", ones),
        Op("PRELU", ["c", "a"], "p"),
        Op("DEPTHWISE_CONV_2D", ["p", "d", "b"], "q", {**ones, "DepthMultiplier": 1}),
        Op("ADD", ["p", "q"], "s", {}),
        Op("RESHAPE", ["s", "row"], "f"),
        Op("FULLY_CONNECTED", ["f", "m", ""], "y", {}),
    ]
    return written(tensors, ops, ["x"], ["y"])


def test_weights_in_float16(tmp_path: Path) -> None:
    """They are the float32 numbers of the same value, wherever an op wants a constant; on the chip too."""
    path = tmp_path / "half.tflite"
    path.write_bytes(float16_network())
    x = RNG.normal(size=(1, 5, 5, 4)).astype(np.float32)
    w, b, d, a, m = (k.astype(np.float64) for k in (W16, B16, D16, A16, M16))
    conv = x[0].astype(np.float64) @ w[:, 0, 0].T + b
    slope = np.where(conv > 0, conv, conv * a[0])
    total = slope + np.einsum("hwijc,ijc->hwc", windows(slope, 1), d[0]) + b
    found = tpusim.compile(path, [{"x": x}], mode="f32")
    np.testing.assert_allclose(next(iter(found.flat(x).values()))[0], m @ total.reshape(-1), rtol=1e-5, atol=1e-5)
    assert tpusim.compile(path, [{"x": x}]).verify({"x": x}).passed


def test_integers_behind_a_dequantize_keep_their_scales(tmp_path: Path) -> None:
    """A filter of int8 by channel that a Dequantize op reads is that filter."""
    tensors = [
        T("x", (1, 3, 3, 4), np.float32), T("w8", FILTER.shape, scale=FILTER_SCALES, data=FILTER),
        T("w", FILTER.shape, np.float32), T("y", (1, 1, 1, 8), np.float32),
    ]  # fmt: skip
    ones = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1, "Padding": VALID}
    path = tmp_path / "weights.tflite"
    path.write_bytes(
        written(tensors, [Op("DEQUANTIZE", ["w8"], "w"), Op("CONV_2D", ["x", "w"], "y", ones)], ["x"], ["y"])
    )
    x = RNG.normal(size=(1, 3, 3, 4)).astype(np.float32)
    expected = np.einsum("hwc,ohwc,o->o", x[0], FILTER, FILTER_SCALES)
    np.testing.assert_allclose(onnx_outputs(path, {"x": x}, ["y"])["y"].reshape(-1), expected, rtol=1e-4, atol=1e-4)
    stored = [a for a in tpusim.compile(path, [{"x": x}]).tpu.weights.values() if a.dtype == np.int8]
    np.testing.assert_array_equal(stored[0], FILTER.transpose(0, 3, 1, 2))


def test_shapes_are_constants(tmp_path: Path) -> None:
    """As converters flatten: a Shape, its first number, Pack, Reshape; and zeros and ranks as operands."""
    one, two = (np.array([n], np.int32) for n in (1, 2))
    tensors = [
        T("x", (2, 3, 4), np.float32), T("shape", (3,), np.int32), T("zero", (1,), np.int32, data=one - 1),
        T("one", (1,), np.int32, data=one), T("first", (), np.int32), T("rest", (), np.int32, data=(two * 6)[0]),
        T("target", (2,), np.int32), T("flat", (2, 12), np.float32), T("zeros", (2, 12), np.float32),
        T("rank", (), np.int32), T("three", (), np.float32), T("sum", (2, 12), np.float32), T("y", (2, 12), np.float32),
    ]  # fmt: skip
    ops = [
        Op("SHAPE", ["x"], "shape", {"OutType": 2}),
        Op("STRIDED_SLICE", ["shape", "zero", "one", "one"], "first", {"ShrinkAxisMask": 1}),
        Op("PACK", ["first", "rest"], "target", {"Axis": 0, "ValuesCount": 2}),
        Op("RESHAPE", ["x", "target"], "flat"),
        Op("ZEROS_LIKE", ["flat"], "zeros"),
        Op("RANK", ["x"], "rank"),
        Op("CAST", ["rank"], "three", {"InDataType": 2, "OutDataType": 0}),
        Op("ADD", ["flat", "zeros"], "sum", {}),
        Op("MUL", ["sum", "three"], "y", {}),
    ]
    path = tmp_path / "shapes.tflite"
    path.write_bytes(written(tensors, ops, ["x"], ["y"]))
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    top = tpusim.load(path)
    np.testing.assert_array_equal(tpusim.infer(top, {"x": x})[op_name(top.results[0].owner)], 3 * x.reshape(2, 12))


def test_quantised_ops_of_a_file_on_the_machine(tmp_path: Path) -> None:
    """Slices, slopes, joins and sums between pairs: results a step from arithmetic by hand, and the machine exact."""
    slope = bytes_of(1, 1, 4)
    tensors = [
        T("x", (1, 4, 4, 4), scale=0.02, zero=5), T("begin", (4,), np.int32, data=np.zeros(4, np.int32)),
        T("end", (4,), np.int32, data=np.array([1, 4, 4, 4], np.int32)),
        T("step", (4,), np.int32, data=np.array([1, 2, 1, 1], np.int32)),
        T("cut", (1, 2, 4, 4), scale=0.02, zero=5), T("a", slope.shape, scale=0.01, data=slope),
        T("p", (1, 2, 4, 4), scale=0.03, zero=-10), T("n", (1, 2, 4, 4), scale=0.03, zero=10),
        T("pair", (1, 2, 4, 8), scale=0.03, zero=0), T("axes", (2,), np.int32, data=np.array([1, 2], np.int32)),
        T("y", (1, 8), scale=0.2, zero=0),
    ]  # fmt: skip
    ops = [
        Op("STRIDED_SLICE", ["x", "begin", "end", "step"], "cut", {}),
        Op("PRELU", ["cut", "a"], "p"),
        Op("RELU", ["p"], "n"),
        Op("CONCATENATION", ["p", "n"], "pair", {"Axis": 3}),
        Op("SUM", ["pair", "axes"], "y", {"KeepDims": False}),
    ]
    path = tmp_path / "quantised.tflite"
    path.write_bytes(written(tensors, ops, ["x"], ["y"]))
    x = RNG.normal(size=(1, 4, 4, 4)).astype(np.float32)
    cut = quantised(x, 0.02, 5)[:, ::2]
    p = quantised(np.where(cut > 0, cut, cut * (slope * 0.01)), 0.03, -10)
    pair = quantised(np.concatenate([p, quantised(np.maximum(p, 0), 0.03, 10)], -1), 0.03, 0)
    net = tpusim.compile(path, asymmetric=True)
    verified = net.verify({"x": x})
    ours = next(iter(net.flat(x).values()))
    assert np.abs(ours - quantised(pair.sum((1, 2)), 0.2, 0)).max() < 0.2 + 8 * 0.03  # a step, and one of each addend
    assert verified.comparisons["top_vs_onnx"].passed and verified.bit_exact


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
@pytest.mark.every
def test_op_is_what_its_formula_says(row: Row, tmp_path: Path) -> None:
    """The ONNX nodes of every op, computed by ONNX Runtime, and by LiteRT 2.3 (its numbers are recorded)."""
    path, names = tmp_path / "one.tflite", [f"y{i}" for i in range(len(row.results()))]
    path.write_bytes(row.file())
    found = onnx_outputs(path, {"x": row.x}, names)
    assert len(tpusim.load(path).results) == len(names)
    for i, expected in enumerate(row.results()):
        assert found[names[i]].shape == expected.shape and found[names[i]].dtype == expected.dtype
        np.testing.assert_allclose(found[names[i]], expected, **IN_FLOAT)
        np.testing.assert_allclose(found[names[i]], LITERT[f"{row.name}/{i}"], **IN_FLOAT)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_module_computes_the_op(row: Row, tmp_path: Path) -> None:
    path = tmp_path / "one.tflite"
    path.write_bytes(row.file())
    top = tpusim.load(path)
    found = tpusim.infer(top, {"x": row.x})
    for value, expected in zip(top.results, row.results(), strict=True):
        np.testing.assert_allclose(found[value_name(value)], expected, **IN_FLOAT)
