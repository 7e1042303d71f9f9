"""Reductions and normalisations of the machine (FN layernorm, groupnorm, reduce) in NumPy (numerics.md 11.2, 11.3).

Sums are taken in float64 and rounded to f32 once; everything after them is f32 step by step.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from tpusim.isa import functions as fn
from tpusim.isa.region import View
from tpusim.simulator.float_tables import layernorm_tables
from tpusim.simulator.integer import narrowed

Operands = tuple[np.ndarray, ...]


def reduce(function: fn.Reduce, operands: Operands, output: View) -> np.ndarray:
    """In float64, rounded to f32; the mean is that times `scale`."""
    (x,) = operands
    with np.errstate(over="ignore"):
        found = REDUCTIONS[function.mode](x.astype(np.float64), function.axes).astype(np.float32)
        if function.mode == "ReduceMean":
            found = found * np.float32(function.scale)
    return np.asarray(found, np.float32).reshape(output.shape)


REDUCTIONS: dict[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    "ReduceMean": lambda x, axes: x.sum(axis=axes),
    "ReduceSum": lambda x, axes: x.sum(axis=axes),
    "ReduceMax": lambda x, axes: x.max(axis=axes),
    "ReduceMin": lambda x, axes: x.min(axis=axes),
    "ReduceL1": lambda x, axes: np.abs(x).sum(axis=axes),
    "ReduceL2": lambda x, axes: np.sqrt((x * x).sum(axis=axes)),
    "ReduceProd": lambda x, axes: x.prod(axis=axes),
}


def _mean(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return x.mean(axis=axes, keepdims=True, dtype=np.float64).astype(np.float32)


def _normalised(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """(x - mean)/sqrt(variance + epsilon), biased variance."""
    d = x - _mean(x, axes)
    return d * (np.float32(1) / np.sqrt(_mean(d * d, axes) + np.float32(epsilon)))


def _normalised_by(x: np.ndarray, axes: tuple[int, ...], epsilon: float, weight: np.float32) -> np.ndarray:
    """As `_normalised`, mean and variance divided by a weight; NaN for a weight that is not above 0."""
    mean = _mean(x, axes)
    d = x - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.float32(1) / weight
        return (x - mean * factor) / np.sqrt(_mean(d * d, axes) * factor + np.float32(epsilon))


def layernorm(function: fn.LayerNorm, operands: Operands, output: View) -> np.ndarray:
    """By tables, in BF16 steps or in f32."""
    tables = operands[-2:] if function.tables else ()
    x, *rest = operands[: len(operands) - len(tables)]
    weight = rest[0] if function.weight else None
    bias = rest[-1] if function.bias else None
    axes, epsilon = tuple(range(function.axis, x.ndim)), function.epsilon
    if tables:
        return layernorm_tables(x, (weight, bias), tables, function.axis, epsilon)
    if function.bf16_steps:
        return _layernorm_bf16(x, weight, bias, axes, epsilon)
    y = _normalised(x, axes, epsilon)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def rmsnorm(function: fn.RMSNorm, operands: Operands, output: View) -> np.ndarray:
    """In f32; the quotient as the result is stored, or for the interpreter in F32 or in BF16 steps."""
    x, *rest = operands
    axes = tuple(range(function.axis, x.ndim))
    if function.arithmetic == "interpreter" and output.dtype == "bf16":
        return _rmsnorm_bf16(x, rest[0] if rest else None, axes, function.epsilon)
    y = x * (np.float32(1) / np.sqrt(_mean(x * x, axes) + np.float32(function.epsilon)))
    y = narrowed(y, output.dtype).astype(np.float32) if function.arithmetic == "chip" else y
    return y * rest[0] if function.weight else y


def _rmsnorm_bf16(x: np.ndarray, weight: np.ndarray | None, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """Every step rounded to BF16, the sum in float64."""
    average = _bf16(np.full((), 1.0 / prod(x.shape[a] for a in axes), np.float32))
    squares = _bf16(_bf16(x * x) * average).astype(np.float64)
    mean = _bf16(_bf16(squares.sum(axis=axes, keepdims=True)) + _bf16(np.full((), epsilon, np.float32)))
    y = _bf16(x * _bf16(np.float32(1) / _bf16(np.sqrt(mean))))
    return y if weight is None else _bf16(y * weight)


def _bf16(values: np.ndarray) -> np.ndarray:
    return narrowed(values, "bf16").astype(np.float32)


def _deviations_bf16(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(1/N, x - mean) in BF16, the sum in float64."""
    average = _bf16(np.full((), 1.0 / prod(x.shape[a] for a in axes), np.float32))
    return average, _bf16(x - _bf16((x.astype(np.float64) * average).sum(axis=axes, keepdims=True)))


def _layernorm_bf16(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, axes: tuple[int, ...], epsilon: float
) -> np.ndarray:
    """Layer norm in BF16 (numerics.md 11.2): every step rounded, the two sums in float64."""
    average, d = _deviations_bf16(x, axes)
    squares = _bf16(_bf16(d * d) * average).astype(np.float64)
    variance = _bf16(_bf16(squares.sum(axis=axes, keepdims=True)) + _bf16(np.full((), epsilon, np.float32)))
    y = _bf16(d * _bf16(np.float32(1) / _bf16(np.sqrt(variance))))
    y = y if weight is None else _bf16(y * weight)
    return y if bias is None else _bf16(y + bias)


def groupnorm(function: fn.GroupNorm, operands: Operands, output: View) -> np.ndarray:
    """Statistics of a sample's runs of channels, all depths together."""
    x, *scalars = operands
    groups, depth = function.groups, function.depth
    n, c, *image = x.shape
    samples = np.moveaxis(x.reshape(depth, n // depth, c, *image), 0, 2)
    rows = samples.reshape(n // depth, groups, -1)
    rounded = _bf16 if function.bf16_steps else np.asarray
    if function.weight_as_factor:
        y = _normalised_by(rows, (2,), function.epsilon, scalars.pop(0).reshape(-1)[0])
    else:
        y = (_normalised_bf16 if function.bf16_steps else _normalised)(rows, (2,), function.epsilon)
    y = np.moveaxis(y.reshape(samples.shape), 2, 0).reshape(x.shape)
    per_channel = (1, -1, *(1,) * (x.ndim - 2))
    if function.weight and not function.weight_as_factor:
        y = rounded(y * scalars.pop(0).reshape(per_channel))
    return rounded(y + scalars[0].reshape(per_channel)) if function.bias else y


def pixelnorm(function: fn.PixelNorm, operands: Operands, output: View) -> np.ndarray:
    """Of axis 1: bytes in F16, floats in BF16 steps or in f32."""
    x, *scalars = operands
    scalars = [s.reshape(1, -1, *(1,) * (x.ndim - 2)) for s in scalars]
    weight = scalars[0] if function.weight else None
    bias = scalars[-1] if function.bias else None
    if function.scale:
        y, rounded = _bytes_normalised(x, function), _f16
    elif function.bf16_steps:
        y, rounded = _normalised_bf16(x, (1,), function.epsilon), _bf16
    else:
        y, rounded = _normalised(x, (1,), function.epsilon), np.asarray
    y = y if weight is None else rounded(y * weight)
    return y if bias is None else rounded(y + bias)


def _f16(values: np.ndarray) -> np.ndarray:
    return narrowed(values, "f16").astype(np.float32)


def _bytes_normalised(x: np.ndarray, function: fn.PixelNorm) -> np.ndarray:
    """(x - mean)*rstd of bytes over axis 1: sums in integers, then every step in F16; E[x^2] may be infinite."""
    number = [np.full((), v, np.float32) for v in (1.0 / x.shape[1], function.epsilon, function.scale)]
    average, epsilon, scale = map(_f16, number)
    whole = x.astype(np.int64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        sums = [_f16(v.sum(axis=1, keepdims=True).astype(np.float32)) for v in (whole, whole * whole)]
        mean, squares = (_f16(s * average) for s in sums)
        variance = np.maximum(_f16(squares - _f16(mean * mean)), np.float32(0))
        shifted = _f16(_f16(variance * _f16(scale * scale)) + epsilon)
        rstd = _f16(_f16(np.float32(1) / np.sqrt(shifted)) * scale)
        return _f16(_f16(x.astype(np.float32) - mean) * rstd)


def _normalised_bf16(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """`_normalised` of a group norm in BF16: root and reciprocal in f32, every other step rounded, sums in float64."""
    average, d = _deviations_bf16(x, axes)
    squares = _bf16(d * d).astype(np.float64) * average
    variance = _bf16(_bf16(squares.sum(axis=axes, keepdims=True)) + _bf16(np.full((), epsilon, np.float32)))
    return _bf16(d * (np.float32(1) / np.sqrt(variance)))
