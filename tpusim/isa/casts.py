"""The scale with which a command casts between integers and floats: a tensor's step in the numbers of that command.

Both are of numerics.md 8.1, down to numbers that a 16-bit float has not: below half of F16's least one a scale is 0,
above the largest it is an infinity.
"""

import numpy as np

from tpusim.isa.region import DType, numpy_dtype

BF16: DType = "bf16"


def dequantizing_scale(step: float, output: DType, *, bf16_unit: bool) -> np.float32:
    """The step rounded to the type of the result, on a chip whose float unit is BF16 always to that."""
    with np.errstate(over="ignore"):
        return _rounded(np.float32(step), BF16 if bf16_unit else output)


def quantizing_scale(step: float, operand: DType, *, in_bf16: bool, bf16_unit: bool) -> np.float32:
    """1/step in double, narrowed to f32 and to the type of the operand, or to BF16 (`in_bf16`).

    bf16_unit: of such a chip what is not in BF16 is quantised by its CPU, f32(1)/f32(step).
    """
    with np.errstate(over="ignore", divide="ignore"):
        if bf16_unit and not in_bf16:
            return np.float32(1) / np.float32(step)
        reciprocal = np.float32(np.float64(1.0) / np.float64(step))
    return _rounded(reciprocal, BF16 if in_bf16 else operand)


def _rounded(scale: np.float32, kind: DType) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(scale.astype(numpy_dtype(kind)))
