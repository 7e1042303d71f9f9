"""TIU commands that need no window over field elements."""

import numpy as np

from tpusim.field import PRIME, Elements, Field, extreme, plus, product, requanted, saturated, shifted, summed, times
from tpusim.field.integers import by_channel, clamped
from tpusim.field.selected import chosen, related
from tpusim.isa.commands import (
    Arith,
    ChannelRescale,
    ChannelScale,
    Compare,
    Dequantize,
    FloatLut,
    Fn,
    Lut,
    MatMul,
    Pick,
    Quantize,
    Requant,
    Rescale,
    Select,
    Where,
)
from tpusim.isa.region import NARROW, View
from tpusim.simulator.field.functions import function
from tpusim.simulator.field.memory import FieldMachine
from tpusim.simulator.field.scaling import floats_limited, scaling
from tpusim.simulator.integer import is_float
from tpusim.simulator.tiu import bias_rows, matrices, picked


def _operand(given: View | float, memory: FieldMachine) -> Elements:
    """A view's elements, or that of a number."""
    return memory.read(given) if isinstance(given, View) else np.array(memory.field.constant(given), np.int64)


def matmul(command: MatMul, memory: FieldMachine) -> None:
    """MM2: relu comes before the requant (9.2)."""
    field, output = memory.field, command.output
    left = matrices(memory.read(command.left), command.left, command.left_transpose)
    right = matrices(memory.read(command.right), command.right, command.right_transpose)
    total = product(left, right)
    if command.bias is not None:
        total = memory.rounded(total, output.dtype) if command.depth and command.bias_after else total
        total = (total + bias_rows(memory.read(command.bias), right.shape)) % PRIME
    if is_float(command.left.dtype):
        if command.partial is not None:
            total = (total + memory.read(command.partial).reshape(total.shape)) % PRIME
        memory.store(output, floats_limited(field, total, command.relu, -1.0).reshape(output.shape))
        return
    total = clamped(field, total, 0, None) if command.relu else total
    memory.write(output, _requantised(command, total, right.shape[:-2], memory).reshape(output.shape))


def _requantised(command: MatMul, total: Elements, batch: tuple[int, ...], memory: FieldMachine) -> Elements:
    """One requant for all, a multiplier per column, or a requant per right matrix."""
    field, dtype = memory.field, command.output.dtype
    if command.multipliers is not None:
        by = command.requant or Requant()
        columns = memory.read(command.multipliers).reshape(-1)
        found = shifted(field, times(total, columns), by.rshift, by.rounding)
        return saturated(field, plus(found, by.zero_point), dtype)
    if not command.requants:
        return requanted(field, total, scaling(command.requant or Requant()), dtype)
    apart = total.reshape(-1, len(command.requants), *total.shape[-2:])
    rows = [requanted(field, apart[:, i], scaling(by), dtype) for i, by in enumerate(command.requants)]
    return np.stack(rows, 1).reshape(total.shape)


def _combined(field: Field, kind: str, a: Elements, b: Elements) -> Elements:
    match kind:
        case "add":
            return summed((a, b))
        case "sub":
            return (a - b) % PRIME
        case "mul":
            return times(a, b)
        case "max" | "min":
            return extreme(field, kind, a, b)
        case "copy":
            return a
        case _:
            return field.apply((kind,), a, b)


def arith(command: Arith, memory: FieldMachine) -> None:
    """AR: sums, differences and products of the field; extremes of the elements; what remains is a function."""
    field, output, kind = memory.field, command.output, command.kind
    a = memory.read(command.a)
    b = a if kind in ("copy", "truncate") else _operand(command.b, memory)
    if kind == "div" and not isinstance(command.b, View) and b:
        kind, b = "mul", np.array(pow(int(b), -1, PRIME))
    found = field.apply(("away", output.dtype), a) if command.away else _combined(field, kind, a, b)
    found = np.broadcast_to(found, output.shape)
    keeps = kind == "copy" or (
        kind in ("max", "min") and isinstance(command.b, View) and command.b.dtype == command.a.dtype
    )
    if is_float(output.dtype):
        found = floats_limited(field, found, command.relu, command.relu_limit)
        negated = kind == "mul" and command.b == -1.0
        exact = (
            (keeps or negated)
            and command.a.dtype in (output.dtype, *NARROW)
            and output.dtype in ("f32", command.a.dtype)
        )
        (memory.write if exact else memory.store)(output, found)
        return
    known = command.a.dtype if keeps else ""
    if command.relu and command.relu_limit >= 0:
        found = clamped(field, found, 0, command.relu_limit)
    floor = 0 if command.relu else None
    memory.write(output, saturated(field, found, output.dtype, floor=floor, known=known))


def compare(command: Compare, memory: FieldMachine) -> None:
    """A relation of two elements."""
    a, b = memory.read(command.a), _operand(command.b, memory)
    found = related(memory.field, command.kind, a, b)
    memory.write(command.output, np.broadcast_to(found, command.output.shape))


def where(command: Where, memory: FieldMachine) -> None:
    """A selection by the condition, unless both branches are equal."""
    condition = memory.read(command.condition)
    true, false = (_operand(branch, memory) for branch in (command.on_true, command.on_false))
    found = chosen(memory.field, condition, true, false)
    memory.write(command.output, np.broadcast_to(found, command.output.shape))


def rescale(command: Rescale, memory: FieldMachine) -> None:
    """RQ rq1: one requant for all channels."""
    x, known = memory.read(command.input), command.input.dtype
    if command.input_zero:
        x, known = plus(x, -command.input_zero), ""
    by, dtype = scaling(command.requant), command.output.dtype
    memory.write(command.output, requanted(memory.field, x, by, dtype, relu=command.relu, known=known))


def channel_rescale(command: ChannelRescale, memory: FieldMachine) -> None:
    """RQ rq1 with a table."""
    x, words = memory.read(command.input), memory.read(command.table)
    words = words.reshape(words.shape[1], -1)
    found = by_channel(memory.field, x, words, command.output.dtype, relu=False, rounding=command.rounding)
    memory.write(command.output, found)


def _narrow_type(dtype: str) -> str:
    return dtype if dtype in NARROW else ""


def quantize(command: Quantize, memory: FieldMachine) -> None:
    """RQ rq0, by its parameters."""
    rounding = ("bf16", _narrow_type(command.input.dtype)) if command.bf16 else (_narrow_type(command.input.dtype),)
    key = ("quantize", float(np.float32(command.scale)), command.zero_point, command.output.dtype, *rounding)
    memory.write(command.output, memory.field.apply(key, memory.read(command.input)))


def dequantize(command: Dequantize, memory: FieldMachine) -> None:
    """DQ dq0, by its parameters."""
    key = ("dequantize", float(np.float32(command.scale)), command.output.dtype, command.bf16)
    x = plus(memory.read(command.input), -command.zero_point)
    memory.write(command.output, memory.field.apply(key, x))


def channel_scale(command: ChannelScale, memory: FieldMachine) -> None:
    """AR mac: the field's product and sum; integers by the shifts of their channels."""
    field, output = memory.field, command.output
    total = times(memory.read(command.input), memory.read(command.scale))
    if command.bias is not None:
        total = (total + memory.read(command.bias)) % PRIME
    if is_float(output.dtype):
        memory.store(output, floats_limited(field, total, command.relu, -1.0))
        return
    if command.clamp16:
        total = field.apply(("16 bits", output.dtype.startswith("u")), total)
    if command.rshift is not None:
        total = field.apply(("channel shift", "down"), total, memory.read(command.rshift))
    floor = 0 if command.relu else None
    memory.write(output, saturated(field, plus(total, command.zero_point), output.dtype, floor=floor))


def select(command: Select, memory: FieldMachine) -> None:
    """A slope for what is not above 0."""
    field, output = memory.field, command.output
    x, slope = memory.read(command.input), _operand(command.slope, memory)
    if is_float(output.dtype):
        memory.store(output, np.broadcast_to(field.apply(("slope",), x, slope), output.shape))
        return
    positive = None if command.positive is None else (command.positive.multiplier, command.positive.rshift)
    found = field.apply(("integer slope", command.rshift, positive, output.dtype), x, slope)
    memory.write(output, np.broadcast_to(found, output.shape))


def lut(command: Lut, memory: FieldMachine) -> None:
    """A function of the byte that the table's contents name."""
    table = memory.field.row(memory.read(command.table))
    found = memory.field.apply(("table",), memory.read(command.input), table.reshape(()))
    memory.write(command.output, found)


def pick(command: Pick, memory: FieldMachine) -> None:
    """The elements at the indices, which are constants."""
    places = picked(command, memory.constants)
    n, c, h, w = command.output.shape
    planes = memory.read(command.input).reshape(n, c, -1)
    memory.write(command.output, planes[:, :, places].reshape(n, c, h, w))


def float_lut(command: FloatLut, memory: FieldMachine) -> None:
    """A function that both tables name."""
    field = memory.field
    tables = [field.row(memory.read(view)).reshape(()) for view in (command.table, command.mantissa)]
    key = ("float table", command.mode, command.low, command.high)
    memory.store(command.output, field.apply(key, memory.read(command.input), *tables))


def macro(command: Fn, memory: FieldMachine) -> None:
    """FN: the meaning of its function."""
    operands = tuple(memory.read(view) for view in command.inputs)
    found, unchanged = function(command, operands, memory.field)
    (memory.write if unchanged else memory.store)(command.output, found)
