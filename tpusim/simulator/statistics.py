"""Reductions and normalisations of the machine (FN layernorm, groupnorm, reduce) in NumPy (numerics.md 11.2, 11.3).

Sums are taken in float64 and rounded to f32 once; everything after them is f32 step by step.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from tpusim.isa.commands import Fn
from tpusim.simulator.float_tables import layernorm_tables
from tpusim.simulator.integer import narrowed

Operands = tuple[np.ndarray, ...]


def _axes(text: str) -> tuple[int, ...]:
    return tuple(int(axis) for axis in text.split(",") if axis)


def reduce(command: Fn, operands: Operands) -> np.ndarray:
    """Reduction `mode` over `axes` ("1,2"); the mean is the sum times `scale` (numerics.md 11.3)."""
    (x,) = operands
    mode, axes = str(command.params["mode"]), _axes(str(command.params["axes"]))
    with np.errstate(over="ignore"):
        found = _REDUCE[mode](x.astype(np.float64), axes).astype(np.float32)
        if mode == "ReduceMean":
            found = found * np.float32(command.params["scale"])
    return np.asarray(found, np.float32).reshape(command.output.shape)


_REDUCE: dict[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
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


def layernorm(command: Fn, operands: Operands) -> np.ndarray:
    """Normalise over the axes from `axis` on, then times the weight, plus the bias, as far as there are any.

    Parameters weight and bias say which operands follow the input; bf16_steps: every step is rounded to BF16; tables:
    the last two operands are those of the power -0.5, and every step is a BF16 step of CV18xx.
    """
    params = command.params
    tables = operands[-2:] if params["tables"] else ()
    x, *rest = operands[: len(operands) - len(tables)]
    weight = rest[0] if params["weight"] else None
    bias = rest[-1] if params["bias"] else None
    axes, epsilon = tuple(range(int(params["axis"]), x.ndim)), float(params["epsilon"])
    if tables:
        return layernorm_tables(x, (weight, bias), tables, int(params["axis"]), epsilon)
    if params["bf16_steps"]:
        return _layernorm_bf16(x, weight, bias, axes, epsilon)
    y = _normalised(x, axes, epsilon)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _bf16(values: np.ndarray) -> np.ndarray:
    return narrowed(values, "bf16").astype(np.float32)


def _layernorm_bf16(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, axes: tuple[int, ...], epsilon: float
) -> np.ndarray:
    """Layer norm in BF16 (numerics.md 11.2): every step rounded, the two sums in float64."""
    average = _bf16(np.full((), 1.0 / prod(x.shape[a] for a in axes), np.float32))
    mean = _bf16((x.astype(np.float64) * average).sum(axis=axes, keepdims=True))
    d = _bf16(x - mean)
    squares = _bf16(_bf16(d * d) * average).astype(np.float64)
    variance = _bf16(_bf16(squares.sum(axis=axes, keepdims=True)) + _bf16(np.full((), epsilon, np.float32)))
    y = _bf16(d * _bf16(np.float32(1) / _bf16(np.sqrt(variance))))
    y = y if weight is None else _bf16(y * weight)
    return y if bias is None else _bf16(y + bias)


def groupnorm(command: Fn, operands: Operands) -> np.ndarray:
    """Normalise every sample's `groups` runs of channels (axis 1), then times weight[c], plus bias[c].

    depth: the batch axis is (depth, batch), and a sample has all of its depths (hardware.md 2.1).
    """
    x, weight, bias = operands
    groups, depth = int(command.params["groups"]), int(command.params.get("depth", 1))
    n, c, *image = x.shape
    samples = np.moveaxis(x.reshape(depth, n // depth, c, *image), 0, 2)
    rows = samples.reshape(n // depth, groups, -1)
    y = _normalised(rows, (2,), float(command.params["epsilon"])).reshape(samples.shape)
    y = np.moveaxis(y, 2, 0).reshape(x.shape)
    per_channel = (1, -1, *(1,) * (x.ndim - 2))
    return y * weight.reshape(per_channel) + bias.reshape(per_channel)
