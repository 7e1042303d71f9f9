"""A small TFLite network of bytes with zero points, whose ranges clip values that its floats compute."""

from __future__ import annotations

import numpy as np
from tflite_files import Op, T, written

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
