"""How many multiply-accumulates an op has: one definition, by which ops count theirs and the machine its commands.

A convolution has each tap for each output, also where it meets padding; a transposed one each tap for each input, also
where its output is cut off, and none for what is inserted between inputs. Halos that slices compute again do not count.
"""

from collections.abc import Sequence
from math import prod

from tpusim.isa.commands import ChannelScale, Command, Conv, Depthwise, Fn, MatMul
from tpusim.isa.shapes import matrix_shape


def of_convolution(outputs: int, channels: int, kernel: Sequence[int]) -> int:
    """outputs: elements; channels: input channels of one group."""
    return outputs * channels * prod(kernel)


def of_transposed(inputs: int, channels: int, kernel: Sequence[int]) -> int:
    """inputs: elements, without inserted ones; channels: output channels of one group."""
    return inputs * channels * prod(kernel)


def of_product(outputs: int, inner: int) -> int:
    """outputs: elements; inner: length of the axis that is summed."""
    return outputs * inner


def of_channel_scale(outputs: int) -> int:
    """One for each element of the result."""
    return outputs


def is_transposed(command: Command) -> bool:
    """Whether a command is (a part of) a transposed convolution."""
    return isinstance(command, Conv | Depthwise) and command.rotate


def depths(command: Conv) -> int:
    """Taps along the depth of a filter of which a 2-D command of a volume reads one: a window of rows that have all."""
    view = command.filter
    row = view.elements // view.shape[1]
    return 1 if view.strides is None else view.strides[1] // row


def of_command(command: Command, outputs: int, inputs: int, depth: int = 1) -> int:
    """What a command has for so many outputs, and inputs if it is transposed; depth: further taps of its filter."""
    if isinstance(command, Conv | Depthwise):
        groups = command.groups if isinstance(command, Conv) else command.input.shape[1]
        kernel = (depth, *command.kernel)
        if command.rotate:
            return of_transposed(inputs, command.output.shape[1] // groups, kernel)
        return of_convolution(outputs, command.input.shape[1] // groups, kernel)
    if isinstance(command, MatMul):
        return of_product(outputs, matrix_shape(command.left, command.left_transpose)[1])
    if isinstance(command, Fn):
        return command.function.multiplications([view.shape for view in command.inputs])
    return of_channel_scale(outputs) if isinstance(command, ChannelScale) else 0
