"""Macro functions of CV18xx in NumPy integers: one shift for all operands, reductions, joined tensors.

Products of bytes and 8-bit multipliers stay below 2**24, where the chip's f32 steps are exact; only a reduction can
pass it, and its requant says "f32".
"""

from collections.abc import Callable
from math import prod

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import Fn
from tpusim.simulator.integer import float_multiply, rounding_shift, saturate

Operands = tuple[np.ndarray, ...]


def _multiplied(command: Fn, operands: Operands) -> list[np.ndarray]:
    """Each operand times its multiplier, parameters m0, m1 ..."""
    return [x.astype(np.int64) * int(command.params[f"m{i}"]) for i, x in enumerate(operands)]


def _floor(command: Fn) -> int | None:
    return 0 if command.params["relu"] else None


def sum_shift(command: Fn, operands: Operands) -> np.ndarray:
    """sat(RSR(relu(sum q_i*m_i), r)) (numerics.md 9.0 Add, Sub); params m0, m1, ..., r, relu."""
    first, *rest = _multiplied(command, operands)
    for term in rest:
        first = first + term
    scaled = rounding_shift(first, int(command.params["r"]), "half_up")
    return saturate(scaled, command.output.dtype, floor=_floor(command))


def extreme_shift(command: Fn, operands: Operands) -> np.ndarray:
    """The largest (kind "max") or smallest RSR(q_i*m_i, r), relu, saturated (9.0); params kind, m0, ..., r, relu."""
    pick: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {"max": np.maximum, "min": np.minimum}
    kind = str(command.params["kind"])
    if kind not in pick:
        raise SimulationError(f"{command.label}: kind max or min is required, got {kind!r}")
    first, *rest = (rounding_shift(t, int(command.params["r"]), "half_up") for t in _multiplied(command, operands))
    for term in rest:
        first = pick[kind](first, term)
    return saturate(first, command.output.dtype, floor=_floor(command))


def reduce_int(command: Fn, operands: Operands) -> np.ndarray:
    """Reduction `mode` over `axes` ("1,2"), times m / 2**r in f32, half up (11.3); params mode, axes, m, r."""
    axes = tuple(int(axis) for axis in str(command.params["axes"]).split(","))
    mode, x = str(command.params["mode"]), operands[0].astype(np.int64)
    if mode not in _REDUCE:
        raise SimulationError(f"{command.label}: mode {', '.join(_REDUCE)} is required, got {mode!r}")
    if prod(x.shape[axis] for axis in axes) > _MOST_TERMS and mode not in ("ReduceMax", "ReduceMin"):
        raise SimulationError(f"{command.label}: a sum of more than {_MOST_TERMS:,} bytes leaves the 24 bits of f32")
    found = float_multiply(_REDUCE[mode](x, axes), int(command.params["m"]), int(command.params["r"]))
    return saturate(found, command.output.dtype).reshape(command.output.shape)


_MOST_TERMS = 2**24 // 128

_REDUCE: dict[str, Callable[[np.ndarray, tuple[int, ...]], np.ndarray]] = {
    "ReduceMean": lambda x, axes: x.sum(axis=axes),
    "ReduceSum": lambda x, axes: x.sum(axis=axes),
    "ReduceMax": lambda x, axes: x.max(axis=axes),
    "ReduceMin": lambda x, axes: x.min(axis=axes),
    "ReduceL1": lambda x, axes: np.abs(x).sum(axis=axes),
}


def concat_shift(command: Fn, operands: Operands) -> np.ndarray:
    """Operands joined along `axis`, each sat(RSR(q_i*m_i, r_i)) (9.0 Concat); params axis, m0, r0, m1, r1, ..."""
    parts = [
        saturate(rounding_shift(t, int(command.params[f"r{i}"]), "half_up"), command.output.dtype)
        for i, t in enumerate(_multiplied(command, operands))
    ]
    return np.concatenate(parts, axis=int(command.params["axis"]))
