"""What macro functions (FN) mean for field elements.

A meaning takes the field, the function, its operands' elements and the result's view. Functions of rows name their
row by a hash of its elements in order, so that rows may be distributed over slices.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tpusim.field import (
    PRIME,
    Elements,
    Field,
    Scaling,
    extreme,
    plus,
    product,
    requanted,
    saturated,
    shifted,
    summed,
    times,
)
from tpusim.field.integers import clamped
from tpusim.field.selected import channels_around, gathered, of_samples, of_whole, picked, weighed
from tpusim.isa import functions as fn
from tpusim.isa.commands import Fn
from tpusim.isa.region import View
from tpusim.registry import FIELD_MEANINGS
from tpusim.simulator.attention import by_batch, by_blocks, unpacked_biases, unpacked_matrices
from tpusim.simulator.field.memory import NotJudged
from tpusim.simulator.function import nearest, neighbours
from tpusim.simulator.integer import is_float
from tpusim.simulator.meanings import meaning_of

Operands = tuple[Elements, ...]


@cache
def _meaning(kind: type[fn.Function]) -> Callable[[Field, Any, Operands, View], Elements]:
    name = str(kind.__struct_config__.tag)
    if name not in FIELD_MEANINGS:
        raise NotJudged(f"macro function '{name}' has no field meaning (entry points {FIELD_MEANINGS.group})")
    return FIELD_MEANINGS.get(name)


def function(command: Fn, operands: Operands, field: Field) -> tuple[Elements, bool]:
    """The result of a macro command in the shape of its view, and whether it moves elements unchanged."""
    meaning = _meaning(type(command.function))
    unchanged = command.function.copies or meaning in (moved, pad, gather, gather_elements)
    return meaning(field, command.function, operands, command.output), unchanged


# ----------------------------------------------------------------------------------------------------------- movement


def moved(field: Field, function: fn.Function, operands: Operands, output: View) -> Elements:
    """As for bytes: elements only move."""
    del field
    return meaning_of(type(function))(function, operands, output)


def pad(field: Field, function: fn.Pad, operands: Operands, output: View) -> Elements:
    """Padding is the element of its value."""
    del output
    x, widths = operands[0], list(zip(function.before, function.after, strict=True))
    if function.mode == "constant":
        return np.pad(x, widths, constant_values=field.constant(function.value))
    return np.pad(x, widths, mode=function.mode)


def gather(field: Field, function: fn.Gather, operands: Operands, output: View) -> Elements:
    """Lines of the data at indices."""
    return gathered(field, *operands, function.axis).reshape(output.shape)  # type: ignore[misc]


def gather_elements(field: Field, function: fn.GatherElements, operands: Operands, output: View) -> Elements:
    """A function of the data and of an index and its place."""
    data, indices = operands
    return picked(field, ("gather elements", function.axis), indices, data)


# ----------------------------------------------------------------------------------------------------------- integers


def _requanted(
    field: Field, function: fn.AddInt | fn.SubInt, operands: Operands, zeros: tuple[int, ...]
) -> list[Elements]:
    terms = zip(operands, zeros, function.multipliers, function.rshifts, strict=True)
    return [shifted(field, times(plus(x, -z), m), r, "half_up") for x, z, m, r in terms]


def add_int(field: Field, function: fn.AddInt, operands: Operands, output: View) -> Elements:
    """Each operand is scaled, then they are added; a relu is before the zero point."""
    total = summed(_requanted(field, function, operands, function.operand_zero_points))
    if function.relu and function.zero_point:
        total = clamped(field, total, 0, None)
    floor = 0 if function.relu and not function.zero_point else None
    return saturated(field, plus(total, function.zero_point), output.dtype, floor=floor)


def sub_int(field: Field, function: fn.SubInt, operands: Operands, output: View) -> Elements:
    """Each operand is scaled."""
    first, second = _requanted(field, function, operands, (0, 0))
    return saturated(field, (first - second) % PRIME, output.dtype, floor=0 if function.relu else None)


def mul_int(field: Field, function: fn.MulInt, operands: Operands, output: View) -> Elements:
    """The product, relu, one requant."""
    found = np.ones((), np.int64)
    for x, zero in zip(operands, function.operand_zero_points, strict=True):
        found = times(found, plus(x, -zero))
    found = clamped(field, found, 0, None) if function.relu else found
    found = times(found, function.multiplier)
    if function.qdm:
        scaled = field.apply(("doubling product", function.rshift), found)
    else:
        scaled = shifted(field, found, function.rshift, "half_up")
    return saturated(field, plus(scaled, function.zero_point), output.dtype)


def const_int(field: Field, function: fn.ConstInt, operands: Operands, output: View) -> Elements:
    """The operation with a constant, then one requant."""
    term, number = times(operands[0], function.multiplier), function.constant % PRIME
    match function.kind:
        case "add":
            term = (term + number) % PRIME
        case "sub":
            term = (number - term if function.reverse else term - number) % PRIME
        case "max" | "min":
            term = extreme(field, function.kind, term, np.array(number))
    zero = function.zero_point
    found = (shifted(field, term, function.rshift, "half_up") + zero) % PRIME
    return saturated(field, found, output.dtype, floor=zero if function.relu else None)


def _multiplied(operands: Operands, multipliers: tuple[int, ...]) -> list[Elements]:
    return [times(x, m) for x, m in zip(operands, multipliers, strict=True)]


def sum_shift(field: Field, function: fn.SumShift, operands: Operands, output: View) -> Elements:
    """Products, relu of their sum, one shift."""
    total = summed(_multiplied(operands, function.multipliers))
    total = clamped(field, total, 0, None) if function.relu else total
    return saturated(field, shifted(field, total, function.rshift, "half_up"), output.dtype)


def extreme_shift(field: Field, function: fn.ExtremeShift, operands: Operands, output: View) -> Elements:
    """Each product is shifted, then compared."""
    terms = (shifted(field, x, function.rshift, "half_up") for x in _multiplied(operands, function.multipliers))
    return saturated(field, extreme(field, function.kind, *terms), output.dtype, floor=0 if function.relu else None)


def concat_shift(field: Field, function: fn.ConcatShift, operands: Operands, output: View) -> Elements:
    """Every part is scaled."""
    parts = [
        saturated(field, shifted(field, x, r, "half_up"), output.dtype)
        for x, r in zip(_multiplied(operands, function.multipliers), function.rshifts, strict=True)
    ]
    return np.concatenate(parts, axis=function.axis)


# --------------------------------------------------------------------------------------------------------------- rows


def _named(function: fn.Function, *without: str) -> tuple[object, ...]:
    """The name of a function: its class and parameters, without those that say where a row lies."""
    fields = ((name, getattr(function, name)) for name in function.__struct_fields__)
    return (function.__struct_config__.tag, *((name, value) for name, value in fields if name not in without))


def elementwise(field: Field, function: fn.Function, operands: Operands, output: View) -> Elements:
    """A function of the elements at one place."""
    return np.broadcast_to(field.apply(_named(function), *operands), output.shape)


def active(field: Field, function: fn.Active, operands: Operands, output: View) -> Elements:
    """A function of one element; integers are another function."""
    del output
    return field.apply(_named(function), operands[0])


def _along(x: Elements, axis: int, count: int) -> Elements:
    """Numbers from 0 along an axis of x."""
    return np.arange(count).reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def along_axis(field: Field, function: Any, operands: Operands, output: View) -> Elements:
    """The result is a function of an element, its row along `axis`, its place in it, and tables."""
    x, *tables = operands
    places = _along(x, function.axis, x.shape[function.axis])
    named = [field.row(table).reshape(()) for table in tables]
    key = (*_named(function, "axis"), output.dtype if not is_float(output.dtype) else "")
    return field.apply(key, x, field.row(x, (function.axis,)), places, *named)


def softmax(field: Field, function: fn.Softmax, operands: Operands, output: View) -> Elements:
    """A function of an element and its row; along one element it is 1, or 0 as a logarithm, whatever the operand."""
    if operands[0].shape[function.axis] > 1:
        return along_axis(field, function, operands, output)
    return np.full(operands[0].shape, field.constant(float(not function.log)), np.int64)


def normalised(field: Field, function: fn.LayerNorm | fn.RMSNorm, operands: Operands, output: View) -> Elements:
    """The result is a function of an element, its row from `axis` on, weight and bias of its place, and tables."""
    count = 1 + function.weight + getattr(function, "bias", False)
    tables = [field.row(table).reshape(()) for table in operands[count:]]
    x, axes = operands[0], tuple(range(function.axis, operands[0].ndim))
    narrow = output.dtype if isinstance(function, fn.RMSNorm) else ""
    return field.apply((*_named(function, "axis"), narrow), x, field.row(x, axes), *operands[1:count], *tables)


def groupnorm(field: Field, function: fn.GroupNorm, operands: Operands, output: View) -> Elements:
    """The result is a function of an element, its sample's run of channels, and weight and bias of its channel."""
    x, *scalars = operands
    n, c, *image = x.shape
    samples = np.moveaxis(x.reshape(function.depth, n // function.depth, c, *image), 0, 2)
    rows = field.row(samples.reshape(n // function.depth, function.groups, -1), (2,))
    named = np.broadcast_to(rows, (*rows.shape[:2], samples[0].size // function.groups)).reshape(samples.shape)
    named = np.moveaxis(named, 2, 0).reshape(x.shape)
    per_channel = [s.reshape(1, -1, *(1,) * len(image)) for s in scalars]
    return field.apply(_named(function, "depth"), x, named, *per_channel)


def pixelnorm(field: Field, function: fn.PixelNorm, operands: Operands, output: View) -> Elements:
    """The result is a function of an element, its position's channels, and weight and bias of its channel."""
    x, *scalars = operands
    per_channel = [s.reshape(1, -1, *(1,) * (x.ndim - 2)) for s in scalars]
    return field.apply(_named(function), x, field.row(x, (1,)), *per_channel)


def reduced(field: Field, function: Any, operands: Operands, output: View) -> Elements:
    """The result is a function of the elements along `axes`, in order."""
    key = _named(function, "axes")
    return field.apply(key, field.row(operands[0], function.axes)).reshape(output.shape)


def arg(field: Field, function: fn.Arg, operands: Operands, output: View) -> Elements:
    """The result is a function of the row along the axis."""
    return field.apply(_named(function, "axis"), field.row(operands[0], (function.axis,))).reshape(output.shape)


def topk(field: Field, function: fn.TopK, operands: Operands, output: View) -> Elements:
    """The result is a function of the row along the axis and the rank."""
    ranks = _along(operands[0], function.axis, function.k)
    return field.apply(_named(function, "axis", "first"), field.row(operands[0], (function.axis,)), ranks)


def lrn(field: Field, function: fn.Lrn | fn.LrnTables, operands: Operands, output: View) -> Elements:
    """The result is a function of an element, the channels of its window, and tables."""
    x, *tables = operands
    named = [field.row(table).reshape(()) for table in tables]
    return field.apply(_named(function), x, channels_around(field, x, function.size), *named)


def channel_tables(field: Field, function: fn.ChannelTables, operands: Operands, output: View) -> Elements:
    """The result is a function of an element and the table of its channel."""
    data, tables = operands
    named = field.row(tables.reshape(data.shape[1], -1), (1,)).reshape(-1, *(1,) * (data.ndim - 2))
    return field.apply(("table",), data, named)


# ---------------------------------------------------------------------------------------------------------- attention


def attention_weights(field: Field, function: fn.AttentionWeights, operands: Operands, output: View) -> Elements:
    """The result is a function of a score, its row, the mask, and the table."""
    scores = operands[0]
    tables = [field.row(operands[1]).reshape(())] if function.integer else []
    if function.mask:
        scores = field.apply(("masked",), scores, operands[-1])
    return field.apply(_named(function), scores, field.row(scores, (-1,)), *tables)


def attention(field: Field, function: fn.Attention, operands: Operands, output: View) -> Elements:
    """Product by product, as the commands of a head in a layer group."""
    sources, rest = list(operands[: function.sources]), list(operands[function.sources :])
    sources += sources[-1:] * (3 - function.sources)
    matrices = unpacked_matrices(rest.pop(0), function.sizes)
    biases = unpacked_biases(rest.pop(0), function) if function.has_bias else [None] * 4
    last, more = rest[0][0], rest[1:]

    def stored(total: Elements, layer: int) -> Elements:
        if not function.requants:
            return _narrowed(field, total, output)
        return requanted(field, total, Scaling(*function.requants[layer], rounding="half_away"), "i8")

    layers = enumerate(zip(sources, matrices, biases[:3], strict=True))
    q, k, v = (stored(_with_bias(product(x, w), bias), i) for i, (x, w, bias) in layers)
    scores = product(q, k.swapaxes(-1, -2))
    scores = stored(scores, 3) if function.requants else scores
    rows = [more.pop(0)] if function.mask else []
    table = more if function.requants else []
    named = fn.AttentionWeights(function.scale, integer=bool(table), mask=function.mask)
    weights = attention_weights(field, named, (scores, *table, *(x.reshape(-1, 1, x.shape[-1]) for x in rows)), output)
    mixed = stored(product(weights if function.requants else _narrowed(field, weights, output), v), 4)
    result = _with_bias(product(mixed, last), biases[3])
    return (requanted(field, result, Scaling(), output.dtype) if function.requants else result).reshape(output.shape)


def _with_bias(total: Elements, bias: Elements | None) -> Elements:
    return total if bias is None else (total + bias) % PRIME


def _narrowed(field: Field, x: Elements, output: View) -> Elements:
    """As a command stores a result of this type."""
    return x if output.dtype == "f32" else field.apply(("narrow", output.dtype), x)


def _heads(x: Elements, times: int) -> Elements:
    """(heads, rows, columns); each head is repeated for the heads of the queries that share it."""
    return np.repeat(x[:, :, 0], times, axis=0)


def _scores(field: Field, scale: float, operands: Operands, *, half: bool) -> Elements:
    q, k, *mask = operands
    found = product(_heads(q, 1), _heads(k, len(q) // len(k)).swapaxes(-1, -2))[:, :, None]
    found = field.apply(("scores", float(scale), half), found)
    return (found + mask[0]) % PRIME if mask else found


def a16_matmul(field: Field, function: fn.A16MatMul, operands: Operands, output: View) -> Elements:
    """Every result is a function of a row of the input, and of codes, scales, zero points and bias of its column."""
    inner = operands[0].shape[-1]
    x = operands[0].reshape(-1, inner)
    columns = int(np.prod(output.shape)) // len(x)
    codes, *grouped = operands[1:4]
    rows = [codes, *(part if part.ndim == 2 else part.swapaxes(-3, -2) for part in grouped)]  # noqa: PLR2004  by lanes
    weights = [field.row(part.reshape(columns, -1), (1,)).reshape(1, -1) for part in rows]
    bias = [operands[4].reshape(1, -1)] if function.bias else []
    return field.apply(
        (*_named(function, "depth"), output.dtype), field.row(x, (1,)).reshape(-1, 1), *weights, *bias
    ).reshape(output.shape)


def flash_scores(field: Field, function: fn.FlashScores, operands: Operands, output: View) -> Elements:
    """Products of queries and keys, scaled, with the mask added."""
    return _scores(field, function.scale, operands, half=output.dtype == "f16")


def flash_mix(field: Field, function: fn.FlashMix, operands: Operands, output: View) -> Elements:
    """Values weighed by a function of each score and its row."""
    values, scores = operands
    weights = field.apply(("weights", output.dtype), scores, field.row(scores, (-1,)))
    return product(_heads(weights, 1), _heads(values, len(scores) // len(values)))[:, :, None]


def flash_block(field: Field, function: fn.FlashBlock, operands: Operands, output: View) -> Elements:
    """The state of a query is a function of the query, the keys, the values of its place, the mask and the state."""
    q, k, v, *more = operands
    times, (heads, rows, _, size) = len(q) // len(k), q.shape
    keys = np.repeat(field.row(k[:, :, 0], (1, 2)).reshape(-1, 1, 1), times, 0)
    values = np.repeat(field.row(v[:, :, 0], (1,)).reshape(len(v), 1, size), times, 0)
    values = np.concatenate([values, np.zeros((heads, 1, 2), values.dtype)], -1)
    places = np.concatenate([np.zeros(size, np.int64), np.array([1, 2])])
    state = (
        [] if function.first else [more[-1][:, :, 0], field.row(more[-1][:, :, 0, -2:], (2,)).reshape(heads, rows, 1)]
    )
    mask = [field.row(more[0][:, :, 0], (2,)).reshape(1, rows, 1)] if function.mask else []
    query = field.row(q[:, :, 0], (2,)).reshape(heads, rows, 1)
    found = field.apply(_named(function, "depth"), query, keys, values, places, *mask, *state)
    return np.broadcast_to(found, (heads, rows, size + 2))[:, :, None]


def flash_result(field: Field, function: fn.FlashResult, operands: Operands, output: View) -> Elements:
    """A function of a weighed value and the sum of the weights, whatever heads share keys."""
    del function
    (state,) = operands
    return field.apply(("flash_result",), state[..., :-2], state[..., -2:-1])


def _by_blocks(field: Field, function: fn.FlashAttention, operands: Operands, output: View) -> Elements:
    found = list[Elements]()
    for of_batch in by_batch(operands):
        state = ()
        for block, part in by_blocks(function, of_batch, output):
            state = (flash_block(field, block, (*part, *state), output),)
        found.append(flash_result(field, fn.FlashResult(), state, output).swapaxes(0, 1))
    return np.stack(found).reshape(output.shape)


def flash_attention(field: Field, function: fn.FlashAttention, operands: Operands, output: View) -> Elements:
    """Batch by batch, as a tile with all keys or with its blocks of keys."""
    half, found = output.dtype == "f16", list[Elements]()
    if function.key_block:
        return _by_blocks(field, function, operands, output)
    for q, k, v, *mask in by_batch(operands):
        scores = _scores(field, function.scale, (q, k, *mask), half=half)
        scores = field.apply(("narrow", output.dtype), scores) if half else scores
        found.append(flash_mix(field, fn.FlashMix(), (v, scores), output).swapaxes(0, 1))
    return np.stack(found).reshape(output.shape)


def whole(field: Field, function: fn.Function, operands: Operands, output: View) -> Elements:
    """The result is a function of all operands as a whole and of the place; such a function is never cut."""
    return of_whole(field, _named(function, "moves"), operands, output.shape)


def by_sample(field: Field, function: fn.Function, operands: Operands, output: View) -> Elements:
    """The result is a function of all elements of a sample (axis 0) and the place in it."""
    return of_samples(field, _named(function), operands, output.shape)


def interp(field: Field, function: fn.Interp, operands: Operands, output: View) -> Elements:
    """The neighbours of every place, weighed, in the order of sums that the function's parameters name."""
    (x,), size = operands, output.shape[2:]
    if function.nearest:
        rows, columns = nearest(function, x.shape[2:], size)
        return x[:, :, rows][:, :, :, columns]
    key = ("interp", function.align_corners, function.host, function.asymmetric)
    return weighed(field, key, x, [neighbours(function, i, x.shape[2 + i], count) for i, count in enumerate(size)])
