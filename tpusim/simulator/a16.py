"""What a product with weights of 4 or 8 bits computes, in NumPy (numerics.md 14)."""

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.region import View, numpy_dtype
from tpusim.simulator.product import product_by_depth

Operands = tuple[np.ndarray, ...]
_NIBBLE_BITS = 4


def a16_matmul(function: fn.A16MatMul, operands: Operands, output: View) -> np.ndarray:
    """The sums as the array makes them, rounded to the type of the result; the interpreter's in float64."""
    inner = operands[0].shape[-1]
    x = operands[0].reshape(-1, inner)
    weights = _weights(function, operands[1:4], output.elements // len(x), inner)
    if function.arithmetic == "chip" or function.bits > _NIBBLE_BITS:
        weights = _narrow(weights, output)
    y = product_by_depth(x, weights.T, function.depth if function.arithmetic == "chip" else inner)
    bias = operands[4].reshape(-1).astype(np.float32) if function.bias else None
    y = _narrow(y, output) if function.arithmetic == "chip" else y
    return (y if bias is None else y + _narrow(bias, output)).reshape(output.shape)


def _weights(function: fn.A16MatMul, operands: Operands, columns: int, inner: int) -> np.ndarray:
    """(N, K) weights in f32."""
    codes = operands[0].reshape(columns, -1)
    if function.bits == _NIBBLE_BITS:
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(columns, inner)
    scales, zeros = (_by_row(part, columns).astype(np.float32) for part in operands[1:])
    group = inner // scales.shape[1]
    return (codes.astype(np.float32) - np.repeat(zeros, group, 1)) * np.repeat(scales, group, 1)


def _by_row(part: np.ndarray, columns: int) -> np.ndarray:
    """(N, groups) of scales or zero points, stored so or (lanes, passes, groups)."""
    return (part if part.ndim == 2 else part.swapaxes(-3, -2)).reshape(columns, -1)  # noqa: PLR2004


def _narrow(values: np.ndarray, output: View) -> np.ndarray:
    """Through the type of the result, in f32."""
    return values.astype(numpy_dtype(output.dtype)).astype(np.float32)
