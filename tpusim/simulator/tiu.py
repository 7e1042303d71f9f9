"""TIU commands that need no window: matrix product, element-wise arithmetic, requant, casts, copies.

Each function executes one command on the machine. Integers are exact in 64 bits; f32 is one IEEE operation per step.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.commands import (
    Arith,
    ChannelRescale,
    ChannelScale,
    Compare,
    Dequantize,
    FloatLut,
    Fn,
    LaneCopy,
    Lut,
    MatMul,
    Pick,
    Quantize,
    Requant,
    Rescale,
    Select,
    Where,
)
from tpusim.isa.region import NARROW, DType, View, numpy_dtype
from tpusim.simulator.float_tables import by_mantissa, by_slope
from tpusim.simulator.integer import (
    channel_parameters,
    check_accumulator,
    doubling_multiply,
    finite_bf16,
    float_to_integer,
    is_float,
    limits,
    narrowed,
    requantize,
    round_half_away,
    rounding_shift,
    saturate,
)
from tpusim.simulator.meanings import function
from tpusim.simulator.memory import Machine
from tpusim.simulator.product import carrier, product_by_depth


def matrices(array: np.ndarray, view: View, transpose: bool) -> np.ndarray:
    """A matmul operand as (..., rows, columns); in LMEM (n, c, h, w) is batch n of c x h*w."""
    if view.laned:
        array = array.reshape(array.shape[0], array.shape[1], -1)
    return array.swapaxes(-1, -2) if transpose else array


def matmul(command: MatMul, memory: Machine) -> None:
    """MM2: batched product; f32 accumulates in float64 with one rounding; relu comes before the requant (9.2)."""
    left = matrices(memory.load(command.left), command.left, command.left_transpose)
    right = matrices(memory.load(command.right), command.right, command.right_transpose)
    if command.depth:
        _product_by_depth(command, left, right, memory)
        return
    wide = carrier(left.dtype, right.dtype, left.shape[-1])
    acc = left.astype(wide) @ right.astype(wide)
    bias = None if command.bias is None else bias_rows(memory.load(command.bias), right.shape)
    if is_float(command.left.dtype):
        before = None if command.partial is None else memory.load(command.partial).reshape(acc.shape)
        total = sum((term for term in (before, bias) if term is not None), start=acc)
        result = (np.maximum(total, 0.0) if command.relu else total).astype(np.float32)
    else:
        total = acc.astype(np.int64)
        if bias is not None:
            total += bias
        check_accumulator(total, command)
        total = np.maximum(total, 0) if command.relu else total
        columns = None if command.multipliers is None else memory.load(command.multipliers)
        result = _requantized(command, total, right.shape[:-2], columns)
    memory.store(command.output, result.reshape(command.output.shape))


def _product_by_depth(command: MatMul, left: np.ndarray, right: np.ndarray, memory: Machine) -> None:
    """16-bit floats as the array adds them up (numerics.md 14, DN-24)."""
    narrow = numpy_dtype(command.output.dtype)
    y = product_by_depth(left, right, command.depth)
    y = y.astype(narrow).astype(np.float32) if command.bias_after else y
    y = y if command.bias is None else y + bias_rows(memory.load(command.bias), right.shape).astype(np.float32)
    y = np.maximum(y, 0) if command.relu else y
    memory.store(command.output, y.reshape(command.output.shape))


def bias_rows(bias: np.ndarray, right: tuple[int, ...]) -> np.ndarray:
    """N elements for all rows, or N for each right matrix."""
    columns = right[-1]
    return bias.reshape(-1) if bias.size == columns else bias.reshape(*right[:-2], 1, columns)


def _requantized(command: MatMul, total: np.ndarray, batch: tuple[int, ...], columns: np.ndarray | None) -> np.ndarray:
    """One requant for all, a multiplier per column, or a requant per right matrix."""
    if columns is not None:
        requant = command.requant or Requant()
        scaled = rounding_shift(total * columns.reshape(-1).astype(np.int64), requant.rshift, requant.rounding)
        return saturate(scaled + requant.zero_point, command.output.dtype)
    if not command.requants:
        return requantize(total, command.requant or Requant(), command.output.dtype)
    rows = np.array([(r.multiplier, r.rshift) for r in command.requants], np.int64)
    multiplier, shift = (rows[:, i].reshape(*batch, 1, 1) for i in (0, 1))
    return saturate(doubling_multiply(total, multiplier, shift), command.output.dtype)


def _truncated(a: Any, b: Any) -> Any:
    """The upper 16 bits of every f32."""
    del b
    return (np.ascontiguousarray(a).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _rounded_away(a: np.ndarray, dtype: DType) -> np.ndarray:
    """Each f32 as the nearest number of the narrow type, halves away from zero."""
    narrow = a.astype(numpy_dtype(dtype))
    nearest = narrow.astype(np.float32)
    outward = np.nextafter(narrow, np.copysign(np.array(np.inf, narrow.dtype), narrow)).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        tied = np.abs(a) - np.abs(nearest) == np.abs(outward) - np.abs(a)  # exact: neighbours in the type
    return np.where(tied & (np.abs(nearest) < np.abs(a)), outward, nearest)


def _quotient(a: Any, b: Any) -> Any:
    """IEEE division: by zero gives an infinity or NaN, no warning."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.divide(a, b)


_ARITH: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _quotient,
    "max": np.maximum,
    "min": np.minimum,
    "copy": lambda a, b: a,
    "truncate": _truncated,
}


def arith(command: Arith, memory: Machine) -> None:
    """AR: element-wise; integers exact and saturated, f32 one IEEE operation."""
    floating = is_float(command.output.dtype)
    kind = np.dtype(np.float32 if floating else np.int64)
    a = memory.load(command.a).astype(kind)
    b = memory.load(command.b).astype(kind) if isinstance(command.b, View) else kind.type(command.b)
    result = _rounded_away(a, command.output.dtype) if command.away else _ARITH[command.kind](a, b)
    if command.relu:
        result = np.maximum(result, 0)
        result = np.minimum(result, kind.type(command.relu_limit)) if command.relu_limit >= 0 else result
    result = np.broadcast_to(result, command.output.shape)
    dtype = command.output.dtype
    memory.store(command.output, result.astype(np.float32) if floating else saturate(result, dtype))


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}


def compare(command: Compare, memory: Machine) -> None:
    """AR select of 1 and 0; integers of any width and sign compare as numbers."""
    kind = np.dtype(np.float32 if is_float(command.a.dtype) else np.int64)
    a = memory.load(command.a).astype(kind)
    b = memory.load(command.b).astype(kind) if isinstance(command.b, View) else kind.type(command.b)
    found = np.broadcast_to(_RELATIONS[command.kind](a, b), command.output.shape)
    floating = is_float(command.output.dtype)
    memory.store(command.output, found.astype(np.float32 if floating else numpy_dtype(command.output.dtype)))


def where(command: Where, memory: Machine) -> None:
    """AR select: one of two branches by the condition; a branch may be a constant."""
    kind = np.float32 if is_float(command.output.dtype) else numpy_dtype(command.output.dtype)
    true, false = (
        memory.load(branch) if isinstance(branch, View) else np.asarray(branch).astype(kind)
        for branch in (command.on_true, command.on_false)
    )
    found = np.where(memory.load(command.condition) != 0, true, false)
    memory.store(command.output, np.broadcast_to(found, command.output.shape).astype(kind))


def rescale(command: Rescale, memory: Machine) -> None:
    """RQ rq1: integer requant, relu at the zero point."""
    values = memory.load(command.input).astype(np.int64)
    if command.input_zero:
        values -= command.input_zero
    memory.store(command.output, requantize(values, command.requant, command.output.dtype, relu=command.relu))


def channel_rescale(command: ChannelRescale, memory: Machine) -> None:
    """RQ rq1 per channel: integer requant by a table of multipliers, shifts and zero points."""
    values = memory.load(command.input).astype(np.int64)
    multiplier, rshift, zero = channel_parameters(memory.load(command.table), values.ndim)
    scaled = rounding_shift(values * multiplier, rshift, command.rounding)
    memory.store(command.output, saturate(scaled + zero, command.output.dtype))


def quantize(command: Quantize, memory: Machine) -> None:
    """RQ rq0: one f32 product (rounded to the type of a 16-bit input), then round half away, zero point, saturate.

    In BF16 both roundings are half to even, and an f32 is truncated to its upper 16 bits.
    """
    values = memory.load(command.input)
    if command.bf16 and command.input.dtype == "f32":
        values = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    product = values * np.float32(command.scale)
    if command.bf16:
        rounded = np.rint(finite_bf16(product).astype(np.float64))
        memory.store(command.output, float_to_integer(rounded, command.zero_point, command.output.dtype))
        return
    if command.input.dtype in NARROW:
        product = narrowed(product, command.input.dtype).astype(np.float32)
    memory.store(command.output, float_to_integer(round_half_away(product), command.zero_point, command.output.dtype))


def dequantize(command: Dequantize, memory: Machine) -> None:
    """DQ dq0: f32 product of the scale and integer minus zero point, which is first rounded to a 16-bit output."""
    values = (memory.load(command.input).astype(np.int64) - command.zero_point).astype(np.float32)
    if command.output.dtype in NARROW:
        values = narrowed(values, command.output.dtype).astype(np.float32)
    product = values * np.float32(command.scale)
    memory.store(command.output, finite_bf16(product).astype(np.float32) if command.bf16 else product)


def channel_scale(command: ChannelScale, memory: Machine) -> None:
    """AR mac per channel: f32 product then sum, each rounded; integers shifted down, saturated (9.4)."""
    values, scale = memory.load(command.input), memory.load(command.scale)
    bias = None if command.bias is None else memory.load(command.bias)
    if is_float(command.output.dtype):
        total = values.astype(np.float32) * scale.astype(np.float32)
        total = total if bias is None else total + bias.astype(np.float32)
        total = np.maximum(total, 0) if command.relu else total
        memory.store(command.output, total.astype(np.float32))
        return
    total = values.astype(np.int64) * scale
    if bias is not None:
        total += bias
    if command.clamp16:
        total = np.clip(total, *limits("u16" if command.output.dtype.startswith("u") else "i16"))
    if command.rshift is not None:
        total = rounding_shift(total, memory.load(command.rshift), "down")
    memory.store(
        command.output,
        saturate(total + command.zero_point, command.output.dtype, floor=0 if command.relu else None),
    )


def select(command: Select, memory: Machine) -> None:
    """AR select: values above 0 unchanged, the others times their slope (9.0); integers shifted and saturated."""
    values = memory.load(command.input)
    floating = is_float(command.output.dtype)
    kind = np.dtype(np.float32 if floating else np.int64)
    values = values.astype(kind)
    slope = memory.load(command.slope).astype(kind) if isinstance(command.slope, View) else kind.type(command.slope)
    scaled = values * slope
    if floating:
        memory.store(command.output, np.where(values > 0, values, scaled))
        return
    scaled = rounding_shift(scaled, command.rshift, "half_up")
    kept = values
    if command.positive is not None:
        kept = rounding_shift(values * command.positive.multiplier, command.positive.rshift, "half_up")
    memory.store(command.output, saturate(np.where(values > 0, kept, scaled), command.output.dtype))


def lut(command: Lut, memory: Machine) -> None:
    """SG: the entry of the input's byte."""
    index = memory.read(command.input).view(np.uint8)
    entries = memory.read(command.table).reshape(-1)
    memory.write(command.output, entries[index].astype(numpy_dtype(command.output.dtype), copy=False))


def picked(command: Pick, memory: Machine) -> np.ndarray:
    """The places of the plane that a gather reads, in order; the indices lie across the lanes."""
    elements, indices = prod(command.input.shape[2:]), memory.read(command.indices)
    places = indices.reshape(indices.shape[1], -1).T.reshape(-1)[: prod(command.output.shape[2:])].view(np.uint16)
    if places.max() >= elements:
        raise SimulationError(
            f"{command.label}: indices below {elements:,}, the elements of a plane, are required, got "
            f"{places.max():,}; correct the table"
        )
    return places


def pick(command: Pick, memory: Machine) -> None:
    """SG: the plane's elements at the indices."""
    n, c, h, w = command.output.shape
    planes = memory.read(command.input).reshape(n, c, -1)
    memory.write(command.output, planes[:, :, picked(command, memory)].reshape(n, c, h, w))


def float_lut(command: FloatLut, memory: Machine) -> None:
    """A function by two BF16 tables."""
    x, table, mantissa = (memory.load(view) for view in (command.input, command.table, command.mantissa))
    if command.mode == "slope":
        result = by_slope(x, table, mantissa, command.low, command.high)
    else:
        result = by_mantissa(x, table, mantissa, log=command.mode == "log")
    memory.store(command.output, result)


def lane_copy(command: LaneCopy, memory: Machine) -> None:
    """The copy between lanes by TRANS/BC."""
    memory.write(command.output, memory.read(command.input))


def macro(command: Fn, memory: Machine) -> None:
    """FN: compute a macro function of the operands."""
    memory.store(command.output, function(command, tuple(memory.load(view) for view in command.inputs)))
