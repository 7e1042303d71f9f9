"""How many multiply-accumulates an op has: the one definition for ops and for the commands of the machine.

A convolution counts each tap for each output, padding included. A transposed convolution counts each tap for each
input, also where its output is cut off, and nothing for elements inserted between inputs. Halos do not count twice.
"""

from collections.abc import Sequence
from math import prod


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
