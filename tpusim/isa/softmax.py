"""How long a softmax in float takes, as the profile counts its commands (U-90).

Extremes and sums are windows (PorD): along rows one over whole vectors and one over what these leave, else one over the
axis. An exponential is a series of 10 terms, in 16 bits of 7, with the steps around it; sums and their reciprocals, or
logarithms, are f32. Steps whose operands share a bank of local memory are doubled.
"""

from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Fn
from tpusim.isa.functions import Softmax
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import itemsize

EXP_TERMS, _LOG_TERMS = {4: 10, 2: 7}, {4: 16, 2: 8}
"""Terms of the series by bytes of an element, each a constant (F-15, F-16, F-47)."""
DIVISION_STEPS, _LOGARITHM = 31, {4: 37, 2: 29}
"""AR steps of a division of floats (F-17), and of the logarithm of a sum (F-18, F-19)."""
_LAST, _NARROW_STEPS = 3, 2
"""The last axis, and AR steps of the exponent, in half as many bits."""


class _Passes(NamedTuple):
    """Cycles of passes over all elements and of windows over the axis, by bytes of an element, and others.

    results: a pass over the sums. steps: passes of subtraction, exponential and product beside the series.
    """

    image: dict[int, int]
    folded: dict[int, int]
    results: int
    steps: int


def softmax_cycles(command: Fn, function: Softmax, chip: ChipSpec) -> int:
    """TIU cycles of a softmax of (n, c, h, w) along h or w."""
    size = itemsize(command.output.dtype)
    half = size == 2  # noqa: PLR2004  bytes
    image, folded, results, steps = _passes(command, function.axis, size, chip)
    beside = _NARROW_STEPS * image[size // 2] + folded[size] + folded[4] + half * (image[4] + 2 * results)
    behind = _LOGARITHM[size] if function.log else DIVISION_STEPS
    terms = [EXP_TERMS[size], *[_LOG_TERMS[size]] * function.log]
    constants = sum(ceil_div(count * size, chip.eu_bytes) for count in terms)
    return constants + (steps + EXP_TERMS[size]) * image[size] + beside + behind * results


def _passes(command: Fn, axis: int, size: int, chip: ChipSpec) -> _Passes:
    """Of single rows, of rows of an image, or of columns, whose lines begin at whole vectors.

    Decision: columns are those of the library's kernel, also in a group, where lines lie closer and two passes more
    are doubled.
    """
    n, c, h, w = command.output.shape
    rows, vectors = n * ceil_div(c, chip.lanes), {s: chip.eu_elements(s) for s in (size // 2, size, 4)}
    if min(h, w) == 1:
        image = {s: rows * ceil_div(h * w, v) for s, v in vectors.items()}
        folded = {s: rows * ((h * w % v > 0) + v) + image[s] for s, v in vectors.items()}
        return _Passes(image, folded, rows, 13 if axis == _LAST else 16)
    if axis == _LAST:
        image = {s: rows * ceil_div(h * w, v) for s, v in vectors.items()}
        folded = {s: rows * _over_rows(h, w, vectors[size], v, chip) for s, v in vectors.items()}
        return _Passes(image, folded, rows * ceil_div(h, vectors[4]), 15)
    image = {s: rows * h * ceil_div(w, v) for s, v in vectors.items()}
    image[4] = image[size] * 4 // size
    return _Passes(image, image, rows * ceil_div(w, vectors[4]), 14)


def _over_rows(h: int, w: int, vector: int, own: int, chip: ChipSpec) -> int:
    """Windows over the rows of one channel: of whole vectors, filled up, where a row is longer than one."""
    if w <= vector:
        return h * w * chip.row_reduction_steps
    line = align(w, vector)
    copied = ceil_div(h * w, own) if line > w and own == vector else 0
    apart = own if chip.row_reduction_steps > 1 else 1
    return copied + ceil_div(h * (line - w), own) + h * (line // own) + h * own * apart
