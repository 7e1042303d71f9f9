"""The scale with which a command casts between integers and floats: a tensor's step in the numbers of that command.

Both follow numerics.md 8.1, also outside the range of a 16-bit float: below half of F16's least number a scale is 0,
above its largest number it is an infinity.
"""

import numpy as np

from tpusim.isa.region import DType, numpy_dtype

BF16: DType = "bf16"


def dequantizing_scale(step: float, output: DType, *, bf16_unit: bool) -> np.float32:
    """The step rounded to the type of the result, or to BF16 on a chip whose float unit is BF16."""
    with np.errstate(over="ignore"):
        return _rounded(np.float32(step), BF16 if bf16_unit else output)


def quantizing_scale(step: float, operand: DType, *, in_bf16: bool, bf16_unit: bool) -> np.float32:
    """1/step in double, narrowed to f32 and to the type of the operand, or to BF16 (`in_bf16`).

    bf16_unit: the float unit is BF16, so the chip's CPU quantises everything else with f32(1)/f32(step).
    """
    with np.errstate(over="ignore", divide="ignore"):
        if bf16_unit and not in_bf16:
            return np.float32(1) / np.float32(step)
        reciprocal = np.float32(np.float64(1.0) / np.float64(step))
    return _rounded(reciprocal, BF16 if in_bf16 else operand)


def _rounded(scale: np.float32, kind: DType) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(scale.astype(numpy_dtype(kind)))
