"""Convolution, depthwise convolution and pools over field elements."""

from math import prod

import numpy as np

from tpusim.field import (
    PRIME,
    Elements,
    Scaling,
    Sliding,
    convolved,
    inverse,
    largest,
    requanted,
    saturated,
    seen,
    summed,
    times,
)
from tpusim.field.integers import by_channel
from tpusim.field.windows import padded
from tpusim.isa.commands import Conv, Depthwise, Pool, Requant
from tpusim.simulator.conv import counts, filter_rows
from tpusim.simulator.field.memory import FieldMachine
from tpusim.simulator.field.scaling import floats_limited, scaling
from tpusim.simulator.integer import is_float


def _sliding(command: Conv | Depthwise) -> Sliding:
    return Sliding(command.kernel, command.strides, command.pads, command.dilations, command.inserts)


def conv(command: Conv, memory: FieldMachine) -> None:
    """CONV: sums of products in the field; a turned kernel has its taps in the other order."""
    image, packed = memory.read(command.input), memory.read(command.filter)
    channels, taps = image.shape[1] // command.groups, prod(command.kernel)
    weights = filter_rows(command, packed, memory.chip).reshape(-1, channels, taps)
    weights = weights[:, :, ::-1] if command.rotate and not command.turned else weights
    pad = memory.field.constant(command.pad_value)
    sums = convolved(memory.field, image, weights, _sliding(command), command.groups, command.output.shape[2:], pad)
    if command.accumulate:
        sums = (sums + memory.read(command.output)) % PRIME
    _finish(command, sums, memory)


def depthwise(command: Depthwise, memory: FieldMachine) -> None:
    """One filter for each channel."""
    image, packed = memory.read(command.input), memory.read(command.filter)
    weights = packed.reshape(packed.shape[1], 1, -1)
    weights = weights[:, :, ::-1] if command.rotate and not command.turned else weights
    pad = memory.field.constant(command.pad_value)
    sums = convolved(memory.field, image, weights, _sliding(command), len(weights), command.output.shape[2:], pad)
    _finish(command, sums, memory)


def _bias(command: Conv | Depthwise, memory: FieldMachine) -> Elements:
    """One per channel; two planes of 16 bits are the upper and the lower halves."""
    assert command.bias is not None
    stored = memory.read(command.bias)
    if command.bias.dtype == "u16":
        upper, lower = stored.reshape(2, -1)
        stored = memory.field.apply(("halves of a float",), upper, lower)
    return stored.reshape(-1, *(1,) * (len(command.output.shape) - 2))


def _finish(command: Conv | Depthwise, sums: Elements, memory: FieldMachine) -> None:
    """Add the bias, requantise or round, apply the relu, and store."""
    field, output, table = memory.field, command.output, command.requant_table
    if table is not None and table.dtype == "u8":
        rows = memory.read(table)[0, :, 0]
        memory.write(output, by_channel(field, sums, rows, output.dtype, relu=command.relu, rounding="packed"))
        return
    if command.bias is not None:
        sums = summed((sums, _bias(command, memory)))
    if is_float(command.input.dtype):
        memory.store(output, floats_limited(field, sums, command.relu, command.relu_limit))
    elif table is not None:
        words = memory.read(table)
        words = words.reshape(words.shape[1], -1)
        memory.write(output, by_channel(field, sums, words, output.dtype, relu=command.relu, rounding="half_up"))
    else:
        by = scaling(command.requant or Requant())
        memory.write(output, requanted(field, sums, by, output.dtype, relu=command.relu))


def pool(command: Pool, memory: FieldMachine) -> None:
    """The largest element of each window, or a mean."""
    axes = len(command.kernel)
    window = Sliding(command.kernel, command.strides, command.pads, (1,) * axes)
    image = memory.read(command.input)
    if command.mode == "avg":
        _average(command, image, window, memory)
        return
    best = largest(memory.field, image, window, command.output.shape[2:])
    if is_float(command.input.dtype):
        memory.write(command.output, floats_limited(memory.field, best, command.relu, -1.0))
        return
    by, known = scaling(command.requant or Requant()), command.input.dtype
    memory.write(
        command.output, requanted(memory.field, best, by, command.output.dtype, relu=command.relu, known=known)
    )


def _average(command: Pool, image: Elements, window: Sliding, memory: FieldMachine) -> None:
    field, output = memory.field, command.output
    image = padded(image, window, field.constant(command.pad_value))
    total = summed(seen(image, window, at, output.shape[2:]) for at in window.positions())
    elements, counted = command.summed
    whole, divisors = prod(window.kernel) * elements, counts(command) * counted
    memory.store(output, mean(command, total, whole, divisors, memory))


def mean(command: Pool, total: Elements, whole: int, divisors: np.ndarray, memory: FieldMachine) -> Elements:
    """Sums of windows divided by the elements that count; whole: elements of the kernel."""
    field, output = memory.field, command.output
    if is_float(command.input.dtype):
        return floats_limited(field, times(total, inverse(divisors)), command.relu, -1.0)
    if command.scale > 0:
        key = ("real mean", command.scale, command.offset)
        found = field.apply(key, times(total, whole), divisors)
        return saturated(field, found, output.dtype, floor=command.zero_point if command.relu else None)
    rounded = field.apply(("mean", command.first_rounding), times(total, whole), divisors)
    average = np.where(divisors == whole, total, rounded)
    by: Scaling = scaling(command.requant or Requant())
    return requanted(field, average, by, output.dtype, relu=command.relu)
