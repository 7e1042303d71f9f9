"""Macro functions (FN) in NumPy, one function per name; `FUNCTIONS` is the dispatch table.

The exponential and the power are computed in float64 and rounded to f32 once; everything else is f32 step by step,
except where a docstring says otherwise.
"""

from collections.abc import Callable

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import Fn
from tpusim.simulator.activation import active
from tpusim.simulator.cv18xx import concat_shift, extreme_shift, reduce_int, sum_shift
from tpusim.simulator.float_tables import lrn_tables, softmax_tables
from tpusim.simulator.integer import (
    doubling_multiply,
    float_to_integer,
    is_float,
    round_half_away,
    rounding_shift,
    saturate,
)
from tpusim.simulator.statistics import groupnorm, layernorm, reduce

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
    quotient = powers / total
    if not command.params.get("log", False):
        return quotient
    with np.errstate(divide="ignore"):  # a quotient that underflowed: minus infinity
        return np.log(quotient.astype(np.float64)).astype(np.float32)


def softmax_int(command: Fn, operands: Operands) -> np.ndarray:
    """INT8 softmax by table (numerics.md 11.1): idx = max - q, S = f32 sum of t[idx] in index order.

    p = t[idx] / (S * s_out), all in f32; round half away, which for p >= 0 is trunc(p + 0.5) too; + z_out, saturated.
    """
    q, table = operands
    axis = int(command.params["axis"])
    wide = q.astype(np.int16)
    index = (wide.max(axis=axis, keepdims=True) - wide).astype(np.uint8)
    terms = table.reshape(-1)[index]
    # accumulate (not sum, which adds pairwise) fixes the order of the f32 additions.
    total = np.add.accumulate(terms, axis=axis, dtype=np.float32).take([-1], axis=axis)
    p = terms / (total * np.float32(command.params["s_out"]))
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
    """Integer product (9.0): sat(RSR(relu(prod (q_i - z_i))*m, r) + z), or QDM; params z0, ..., m, r, z, relu, qdm."""
    first, *rest = _integers(command, operands)
    for factor in rest:
        first = first * factor
    if command.params["relu"]:
        first = np.maximum(first, 0)
    multiplier, shift = int(command.params["m"]), int(command.params["r"])
    if command.params.get("qdm", False):
        scaled = doubling_multiply(first, multiplier, shift)
    else:
        scaled = rounding_shift(first * multiplier, shift, "half_up")
    return saturate(scaled + int(command.params["z"]), command.output.dtype)


def sub_int(command: Fn, operands: Operands) -> np.ndarray:
    """Integer difference (numerics.md 9.0): sat(relu(RSR(q_0*m_0, r_0) - RSR(q_1*m_1, r_1))); params as add_int."""
    first, second = (
        rounding_shift(x * int(command.params[f"m{i}"]), int(command.params[f"r{i}"]), "half_up")
        for i, x in enumerate(_integers(command, operands))
    )
    return saturate(first - second, command.output.dtype, floor=0 if command.params["relu"] else None)


def const_int(command: Fn, operands: Operands) -> np.ndarray:
    """A tensor and a number (numerics.md 9.3): t = q*m; t + c, t - c (or c - t), max or min; RSR(t, r) + z; relu at z.

    params: kind, m, r, c, z, relu, reverse.
    """
    term, number = operands[0].astype(np.int64) * int(command.params["m"]), np.int64(int(command.params["c"]))
    match command.params["kind"]:
        case "add":
            term = term + number
        case "sub":
            term = number - term if command.params["reverse"] else term - number
        case "max":
            term = np.maximum(term, number)
        case "min":
            term = np.minimum(term, number)
        case kind:
            raise SimulationError(f"{command.label}: kind add, sub, max or min is required, got {kind!r}")
    zero = int(command.params["z"])
    scaled = rounding_shift(term, int(command.params["r"]), "half_up") + zero
    return saturate(scaled, command.output.dtype, floor=zero if command.params["relu"] else None)


def _whole(command: Fn, name: str) -> tuple[int, ...]:
    """The integers of the parameters name0, name1 ..., one per axis or as many as there are."""
    found: list[int] = []
    while f"{name}{len(found)}" in command.params:
        found.append(int(command.params[f"{name}{len(found)}"]))
    return tuple(found)


def pad(command: Fn, operands: Operands) -> np.ndarray:
    """Padding before (params b0 ...) and after (a0 ...) every axis: mode constant (value), reflect or edge."""
    widths = list(zip(_whole(command, "b"), _whole(command, "a"), strict=True))
    mode = str(command.params["mode"])
    if mode == "constant":
        x = operands[0]
        value = np.asarray(command.params["value"]).astype(x.dtype)
        return np.pad(x, widths, constant_values=value)
    return np.pad(operands[0], widths, mode=mode)  # type: ignore[call-overload]


def slice_(command: Fn, operands: Operands) -> np.ndarray:
    """Every step-th element (params s0 ...) from an offset (o0 ...) along each axis, as many as the output has."""
    starts, steps, sizes = _whole(command, "o"), _whole(command, "s"), command.output.shape
    parts = zip(starts, steps, sizes, strict=True)
    return operands[0][tuple(slice(o, o + (n - 1) * s + 1, s) for o, s, n in parts)]


def tile(command: Fn, operands: Operands) -> np.ndarray:
    """The operand repeated t0, t1 ... times along each axis."""
    return np.tile(operands[0], _whole(command, "t"))


def gather(command: Fn, operands: Operands) -> np.ndarray:
    """Elements of the first operand at the indices that the second holds, along `axis`."""
    data, indices = operands
    return np.take(data, indices, axis=int(command.params["axis"])).reshape(command.output.shape)


def arg(command: Fn, operands: Operands) -> np.ndarray:
    """Index of the extreme along `axis` (params axis, mode, select_last), the first of equals or last."""
    (x,), axis = operands, int(command.params["axis"])
    best = {"ArgMax": np.argmax, "ArgMin": np.argmin}[str(command.params["mode"])]
    found = best(np.flip(x, axis), axis) if command.params["select_last"] else best(x, axis)
    found = x.shape[axis] - 1 - found if command.params["select_last"] else found
    return found.reshape(command.output.shape).astype(np.int32)


def interp(command: Fn, operands: Operands) -> np.ndarray:
    """Linear interpolation of rows, then columns, in f32 (numerics.md 11.4): a + d*(b - a).

    params: scale_h, scale_w (input per output element), align_corners; the last element has no right neighbour.
    """
    (image,) = operands
    for axis, scale in ((2, float(command.params["scale_h"])), (3, float(command.params["scale_w"]))):
        last, places = image.shape[axis] - 1, np.arange(command.output.shape[axis])
        source = places * scale if command.params["align_corners"] else (places + 0.5) * scale - 0.5
        source = np.minimum(np.maximum(source, 0.0), float(last))
        left = source.astype(np.int64)
        d = (source - left).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(4)])
        a, b = image.take(left, axis), image.take(np.minimum(left + 1, last), axis)
        image = a + d * (b - a)
    return image


def concat(command: Fn, operands: Operands) -> np.ndarray:
    """Operands one after the other along `axis`; bytes are moved unchanged."""
    return np.concatenate(operands, axis=int(command.params["axis"]))


def reshape(command: Fn, operands: Operands) -> np.ndarray:
    """The operand's elements in order, in the output's shape."""
    return operands[0].reshape(command.output.shape)


FUNCTIONS: dict[str, Callable[[Fn, Operands], np.ndarray]] = {
    "softmax": softmax,
    "softmax_int": softmax_int,
    "softmax_tables": softmax_tables,
    "lrn": lrn,
    "lrn_tables": lrn_tables,
    "active": active,
    "layernorm": layernorm,
    "groupnorm": groupnorm,
    "reduce": reduce,
    "arg": arg,
    "add_int": add_int,
    "mul_int": mul_int,
    "sub_int": sub_int,
    "const_int": const_int,
    "sum_shift": sum_shift,
    "extreme_shift": extreme_shift,
    "reduce_int": reduce_int,
    "concat_shift": concat_shift,
    "pad": pad,
    "slice": slice_,
    "tile": tile,
    "gather": gather,
    "interp": interp,
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
