"""TFLite files: the network of small ones beside arithmetic of the test's own, scales kept, damaged ones refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tflite_files import Op, T, written

import tpusim
from tpusim.errors import ConfigError, ImportModelError, TpusimError, UnsupportedError
from tpusim.frontend import onnx_outputs
from tpusim.ir.attrs import op_name
from tpusim.ir.own_scales import own_ranges

RNG = np.random.default_rng(0)
VALID, SAME, RELU = 1, 0, 1


def bytes_of(*shape: int) -> np.ndarray:
    return RNG.integers(-127, 128, shape).astype(np.int8)


FILTER, DEEP, MATRIX = bytes_of(8, 3, 3, 4), bytes_of(1, 3, 3, 8), bytes_of(5, 32)
FILTER_SCALES, DEEP_SCALES = (RNG.uniform(0.001, 0.01, 8).astype(np.float32) for _ in range(2))
BIAS, DEEP_BIAS, LAST = (RNG.integers(-2000, 2000, n).astype(np.int32) for n in (8, 8, 5))


def network() -> bytes:
    """Conv SAME of stride 2 with relu, depthwise, a residual, pools, a mean, a pad, a concat, resizes, a softmax."""
    tensors = [
        T("x", (1, 9, 9, 4), scale=0.05, zero=3),
        T("w", FILTER.shape, scale=FILTER_SCALES, axis=0, data=FILTER),
        T("b", (8,), np.int32, scale=FILTER_SCALES * np.float32(0.05), data=BIAS),
        T("conv/Relu", (1, 5, 5, 8), scale=0.04, zero=-128),
        T("d", DEEP.shape, scale=DEEP_SCALES, axis=3, data=DEEP),
        T("db", (8,), np.int32, scale=DEEP_SCALES * np.float32(0.04), data=DEEP_BIAS),
        T("deep", (1, 5, 5, 8), scale=0.03, zero=10),
        T("sum", (1, 5, 5, 8), scale=0.06, zero=-5),
        T("pool", (1, 2, 2, 8), scale=0.06, zero=-5),
        T("flat", (1, 32), scale=0.06, zero=-5),
        T("shape", (2,), np.int32, data=np.array([1, 32], np.int32)),
        T("m", MATRIX.shape, scale=0.004, data=MATRIX),
        T("mb", (5,), np.int32, scale=0.06 * 0.004, data=LAST),
        T("logits", (1, 5), scale=0.2, zero=1),
        T("y", (1, 5), scale=1 / 256, zero=-128),
    ]
    window = {"StrideW": 2, "StrideH": 2, "DilationWFactor": 1, "DilationHFactor": 1}
    ones = {"StrideW": 1, "StrideH": 1, "DilationWFactor": 1, "DilationHFactor": 1}
    pool = {"Padding": VALID, "StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}
    ops = [
        Op("CONV_2D", ["x", "w", "b"], "conv/Relu", {"Padding": SAME, "FusedActivationFunction": RELU, **window}),
        Op("DEPTHWISE_CONV_2D", ["conv/Relu", "d", "db"], "deep", {"Padding": SAME, "DepthMultiplier": 1, **ones}),
        Op("ADD", ["conv/Relu", "deep"], "sum", {}),
        Op("MAX_POOL_2D", ["sum"], "pool", pool),
        Op("RESHAPE", ["pool", "shape"], "flat"),
        Op("FULLY_CONNECTED", ["flat", "m", "mb"], "logits", {}),
        Op("SOFTMAX", ["logits"], "y", {"Beta": 1.0}),
    ]
    return written(tensors, ops, ["x"], ["y"])


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
    found = own_ranges(net.top)["conv/Relu"]
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
    tensors = [T(n, (1, 4), np.float32) for n in "xabcy"]
    ops = [
        Op("COS", ["x"], "a"),
        Op("FLOOR_DIV", ["a"], "b"),
        Op("COS", ["b"], "c"),
        Op("SOFTMAX", ["c"], "y", {"Beta": 2.0}),
    ]
    path = tmp_path / "odd.tflite"
    path.write_bytes(written(tensors, ops, ["x"], ["y"]))
    with pytest.raises(UnsupportedError) as caught:
        tpusim.load(path)
    assert str(caught.value).splitlines()[1:] == [
        "  COS: tpusim has no such op (2, first 'a')",
        "  FLOOR_DIV: tpusim has no such op (1, first 'b')",
        "  SOFTMAX: beta 1 is required, got 2.0 (1, first 'y')",
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
