"""Macro functions (FN) in NumPy, one function per name; `FUNCTIONS` is the dispatch table.

The exponential and the power are computed in float64 and rounded to f32 once; everything else is f32 step by step,
except where a docstring says otherwise.
"""

from collections.abc import Callable

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import Fn
from tpusim.simulator.integer import float_to_integer, is_float, round_half_away, rounding_shift, saturate

Operands = tuple[np.ndarray, ...]


def _exponential(values: np.ndarray) -> np.ndarray:
    return np.exp(values.astype(np.float64)).astype(np.float32)


def softmax(command: Fn, operands: Operands) -> np.ndarray:
    """Softmax along `axis` in f32 (numerics.md 11.1): subtract max, times beta, exp, divide by the sum; or its log."""
    (x,) = operands
    axis = int(command.params["axis"])
    shifted = (x - x.max(axis=axis, keepdims=True)) * np.float32(command.params.get("beta", 1.0))
    powers = _exponential(shifted)
    total = powers.sum(axis=axis, keepdims=True, dtype=np.float64).astype(np.float32)
    if command.params.get("log", False):
        return shifted - np.log(total.astype(np.float64)).astype(np.float32)
    return powers / total


def softmax_int(command: Fn, operands: Operands) -> np.ndarray:
    """INT8 softmax by table (numerics.md 11.1): idx = max - q, S = f32 sum of t[idx] in index order.

    p = f32(t[idx] / (S * s_out)), the product and the quotient in double (a scale is a double); round half away, which
    for p >= 0 is trunc(p + 0.5) too; + z_out, saturated.
    """
    q, table = operands
    axis = int(command.params["axis"])
    wide = q.astype(np.int16)
    index = (wide.max(axis=axis, keepdims=True) - wide).astype(np.uint8)
    terms = table.reshape(-1)[index]
    # accumulate (not sum, which adds pairwise) fixes the order of the f32 additions.
    total = np.add.accumulate(terms, axis=axis, dtype=np.float32).take([-1], axis=axis)
    p = (terms / (total * np.float64(command.params["s_out"]))).astype(np.float32)
    return float_to_integer(round_half_away(p), int(command.params.get("z_out", 0)), command.output.dtype)


def lrn(command: Fn, operands: Operands) -> np.ndarray:
    """ONNX LRN over channels, in float64, rounded to f32 once: x / (bias + alpha/size * sum of squares)**beta."""
    x = operands[0].astype(np.float64)
    size = int(command.params["size"])
    before = (size - 1) // 2
    squares = np.pad(x * x, ((0, 0), (before, size - 1 - before), (0, 0), (0, 0)))
    total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
    alpha, beta, bias = (float(command.params[name]) for name in ("alpha", "beta", "bias"))
    return (x / (bias + alpha / size * total) ** beta).astype(np.float32)


def _integers(command: Fn, operands: Operands) -> list[np.ndarray]:
    """The operands as int64 with their zero points (params z0, z1 ...) taken off."""
    return [x.astype(np.int64) - int(command.params[f"z{i}"]) for i, x in enumerate(operands)]


def add_int(command: Fn, operands: Operands) -> np.ndarray:
    """Integer sum (numerics.md 9.0): sat(relu(sum RSR((q_i - z_i)*m_i, r_i)) + z); params m0, r0, z0, ..., z, relu."""
    terms = [
        rounding_shift(x * int(command.params[f"m{i}"]), int(command.params[f"r{i}"]), "half_up")
        for i, x in enumerate(_integers(command, operands))
    ]
    total = sum(terms[1:], start=terms[0])
    if command.params["relu"]:
        total = np.maximum(total, 0)
    return saturate(total + int(command.params["z"]), command.output.dtype)


def mul_int(command: Fn, operands: Operands) -> np.ndarray:
    """Integer product (numerics.md 9.0): sat(RSR(relu(prod (q_i - z_i))*m, r) + z); params z0, ..., m, r, z, relu."""
    first, *rest = _integers(command, operands)
    for factor in rest:
        first = first * factor
    if command.params["relu"]:
        first = np.maximum(first, 0)
    scaled = rounding_shift(first * int(command.params["m"]), int(command.params["r"]), "half_up")
    return saturate(scaled + int(command.params["z"]), command.output.dtype)


def concat(command: Fn, operands: Operands) -> np.ndarray:
    """Operands one after the other along `axis`; bytes are moved unchanged."""
    return np.concatenate(operands, axis=int(command.params["axis"]))


def reshape(command: Fn, operands: Operands) -> np.ndarray:
    """The operand's elements in order, in the output's shape."""
    return operands[0].reshape(command.output.shape)


FUNCTIONS: dict[str, Callable[[Fn, Operands], np.ndarray]] = {
    "softmax": softmax,
    "softmax_int": softmax_int,
    "lrn": lrn,
    "add_int": add_int,
    "mul_int": mul_int,
    "concat": concat,
    "reshape": reshape,
}


def function(command: Fn, operands: Operands) -> np.ndarray:
    """The result of a macro command. Raises SimulationError for a name or a parameter the machine does not know."""
    compute = FUNCTIONS.get(command.function)
    if compute is None:
        raise SimulationError(
            f"{command.label}: function '{command.function}' is not one of {', '.join(sorted(FUNCTIONS))}; "
            "add it to FUNCTIONS in tpusim/simulator/function.py"
        )
    try:
        result = compute(command, operands)
    except KeyError as error:
        raise SimulationError(f"{command.label}: function '{command.function}' needs parameter {error}") from error
    return result.astype(np.float32) if is_float(command.output.dtype) else result
