"""Positions of inputs and outputs of a transposed convolution along one axis (layer_group.md 7.2).

stride - 1 elements are inserted between the inputs, and P = K - 1 - pad elements are padded before them, where K is the
extent of the dilated kernel. Input i then is at position P + i*stride, and output o reads positions o .. o + K - 1. A
negative P cuts elements off.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tpusim.ops.framework.base import Window


class Need(NamedTuple):
    """The inputs that an output window reads, and the padding before and after them, inserted elements included."""

    window: Window
    before: int
    after: int


def deconv_need(window: Window, size: int, reach: int, stride: int, pad: int) -> Need | None:
    """The input window of an output window; None if it reads no input, so that the cut is impossible.

    first = ceil((o-P)/stride), last = floor((o+s+K-2-P)/stride), both within 0 .. size-1.
    """
    offset = reach - 1 - pad
    first_place, last_place = window[0], window[0] + window[1] + reach - 2
    first = min(max(-((offset - first_place) // stride), 0), size - 1)
    last = min(max((last_place - offset) // stride, 0), size - 1)
    before, after = offset + first * stride - first_place, last_place - (offset + last * stride)
    if first > last or min(before, after) < 0:
        return None
    return Need((first, last - first + 1), before, after)


def deconv_extent(size: int, reach: int, stride: int, pads: tuple[int, int], output_padding: int) -> int:
    """Output elements: (size-1)*stride + K - pads + output_padding. Raises ValueError if no output reads an input."""
    extent = (size - 1) * stride + reach - sum(pads) + output_padding
    if extent < 1 or deconv_need((0, extent), size, reach, stride, pads[0]) is None:
        raise ValueError(
            f"an output that reads an input is required, got none from {size} elements with stride {stride}, "
            f"a kernel of {reach} and pads {pads}"
        )
    return extent


def deconv_extents(sizes: Sequence[int], reach: Sequence[int], geometry: Mapping[str, Any]) -> tuple[int, ...]:
    """`deconv_extent` along every axis after the channels; geometry: strides, pads and output_padding."""
    pads = geometry["pads"]
    sides = zip(pads[: len(sizes)], pads[len(sizes) :], strict=True)
    axes = zip(sizes, reach, geometry["strides"], sides, geometry["output_padding"], strict=True)
    return tuple(deconv_extent(*axis) for axis in axes)
