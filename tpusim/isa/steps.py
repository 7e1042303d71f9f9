"""Vector steps of the lanes over tensors; the cycles of TIU commands are sums of them (hardware.md 5.1).

L lanes, E elements of the widest operand per lane and step, P input channels of the conv array, A its output pixels.
"""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import FLOATS, View, itemsize

TAYLOR_TERMS = 10
"""Decision: terms of the SFU's exp and log series; the operation count is 2*terms - 1 (hardware.md 5.1)."""

DIVISION_STEPS, ADDITION = 31, 4
"""AR steps of a division of floats (F-17), and of a sum or a product of two tensors of floats (F-31)."""


class Array(NamedTuple):
    """Widths of the multiplier array for one element type."""

    lanes: int
    vector: int
    depth: int
    pixels: int


def array(chip: ChipSpec, size: int, channels: int) -> Array:
    """P and A of the chip; f32 runs on the vector units: P = 1, A = E."""
    vector = chip.eu_elements(size)
    pixels = {4: vector, 2: chip.cube_pixels * 2 // chip.half_mac_divisor}.get(size, chip.cube_pixels)
    return Array(chip.lanes, vector, chip.filter_packing(size, channels), pixels)


def steps(view: View, size: int, chip: ChipSpec) -> int:
    """Vector steps over a view whose elements are processed as `size` bytes each."""
    return over(view, chip.eu_elements(size), chip)


def over(view: View, vector: int, chip: ChipSpec) -> int:
    """Steps over a view by vectors of so many elements."""
    return padded_elements(view, chip, vector) // (vector * chip.lanes)


def widest(views: Iterable[View], chip: ChipSpec) -> int:
    """E of hardware.md: elements per lane and cycle for the widest operand."""
    return chip.eu_elements(max(itemsize(view.dtype) for view in views))


def padded_elements(view: View, chip: ChipSpec, vector: int) -> int:
    """Product n * AL(c, L) * AL(h*w, E): elements that whole vector steps of all lanes process."""
    if len(view.shape) != 4:
        return align(view.elements, chip.lanes * vector)
    n, c, h, w = view.shape
    return n * align(c, chip.lanes) * align(h * w, vector)


def accumulated(output: View, chip: ChipSpec, *, bias: bool) -> int:
    """Steps after integer products if the array has no requant: two of 32 bits for a sum, one for a requant."""
    return (3 if bias else 1) * steps(output, 4, chip) if chip.conv_accumulators else 0


def window_steps(output: View, strides: tuple[int, ...], size: int, chip: ChipSpec) -> int:
    """Steps of a PorD for one element of its window; strided columns take several."""
    n, c, *rest, oh, ow = output.shape
    vector = chip.eu_elements(size)
    once = n * ceil_div(c, chip.lanes) * ceil_div(oh * ow, vector) * prod(rest)
    return once * (chip.strided_window_steps if strides[-1] > 1 else 1)


def row_windows(rows: int, length: int, vector: int, chip: ChipSpec) -> int:
    """Steps of a PorD whose windows are the rows of a plane.

    Rows of several whole vectors are first reduced to one vector, whose elements are then a row.
    """
    if length > vector and length % vector == 0:
        return rows * length // vector + _within_rows(rows, vector, vector, chip)
    return _within_rows(rows, length, vector, chip)


def _within_rows(rows: int, length: int, vector: int, chip: ChipSpec) -> int:
    """One step for each element; where words are read one after the other, for each word of a vector of results."""
    vectors = ceil_div(rows, vector)
    words = min(ceil_div(rows * length, vector), rows) // vectors if chip.row_words_apart else 1
    return rows * length * max(1, words)


def limits(views: Iterable[View], output: View, chip: ChipSpec, *, relu: bool, above: bool = False) -> int:
    """An AR in place for the relu of floats after another command, and one for its upper limit: two steps each."""
    if not relu or not all(view.dtype in FLOATS for view in views):
        return 0
    return 2 * (1 + above) * steps(output, itemsize(output.dtype), chip)
