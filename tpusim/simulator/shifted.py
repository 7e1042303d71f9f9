"""Macro functions of small multipliers in NumPy integers: one shift for all operands, reductions, joined tensors.

Products of bytes and 8-bit multipliers stay below 2**24, where f32 steps are exact; only a reduction can
exceed it, and its requant has mode "f32".
"""

from math import prod

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa import functions as fn
from tpusim.isa.region import View
from tpusim.simulator.integer import float_multiply, rounding_shift, saturate
from tpusim.simulator.statistics import REDUCTIONS

Operands = tuple[np.ndarray, ...]


def _multiplied(operands: Operands, multipliers: tuple[int, ...]) -> list[np.ndarray]:
    """Each operand times its multiplier, in 64-bit integers."""
    return [x.astype(np.int64) * m for x, m in zip(operands, multipliers, strict=True)]


def sum_shift(function: fn.SumShift, operands: Operands, output: View) -> np.ndarray:
    """The sum of the products, shifted half up, then saturated."""
    first, *rest = _multiplied(operands, function.multipliers)
    for term in rest:
        first = first + term
    scaled = rounding_shift(first, function.rshift, "half_up")
    return saturate(scaled, output.dtype, floor=0 if function.relu else None)


def extreme_shift(function: fn.ExtremeShift, operands: Operands, output: View) -> np.ndarray:
    """Each product shifted half up, then the larger or the smaller of them, saturated."""
    pick = {"max": np.maximum, "min": np.minimum}[function.kind]
    terms = _multiplied(operands, function.multipliers)
    first, *rest = (rounding_shift(term, function.rshift, "half_up") for term in terms)
    for term in rest:
        first = pick(first, term)
    return saturate(first, output.dtype, floor=0 if function.relu else None)


def reduce_int(function: fn.ReduceInt, operands: Operands, output: View) -> np.ndarray:
    """Exact sums, one f32 product. Raises SimulationError for more terms than f32 adds exactly."""
    mode, axes, x = function.mode, function.axes, operands[0].astype(np.int64)
    if prod(x.shape[axis] for axis in axes) > _MOST_TERMS and mode not in ("ReduceMax", "ReduceMin"):
        raise SimulationError(f"reduce_int: a sum of more than {_MOST_TERMS:,} bytes leaves the 24 bits of f32")
    found = float_multiply(REDUCTIONS[mode](x, axes), function.multiplier, function.rshift)
    return saturate(found, output.dtype).reshape(output.shape)


_MOST_TERMS = 2**24 // 128


def concat_shift(function: fn.ConcatShift, operands: Operands, output: View) -> np.ndarray:
    """Every part is shifted half up, then saturated."""
    parts = [
        saturate(rounding_shift(term, r, "half_up"), output.dtype)
        for term, r in zip(_multiplied(operands, function.multipliers), function.rshifts, strict=True)
    ]
    return np.concatenate(parts, axis=function.axis)
