"""Softmax: of floats, of integers by a table, and by BF16 tables; its times are those of the profile (U-90).

Extremes and sums are windows (PorD): along rows one window over whole vectors and one over the rest, else one over the
axis. An exponential is a series of 10 terms (7 in 16 bits) with the steps around it; sums and their reciprocals, or
logarithms, are f32. Steps whose operands share a bank of local memory are doubled.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps, Unit
from tpusim.isa.functions.rules import equal_shapes, has_axis
from tpusim.isa.layout import align, ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import DIVISION_STEPS, row_windows, steps

EXP_TERMS, _LOG_TERMS = {4: 10, 2: 7}, {4: 16, 2: 8}
"""Bytes of an element -> terms of the series; each term is a constant (F-15, F-16, F-47)."""
_LOGARITHM = {4: 37, 2: 29}
"""AR steps of the logarithm of a sum (F-18, F-19)."""
_LAST, _NARROW_STEPS = 3, 2
"""The last axis; and the AR steps of the exponent, which has half as many bits."""
_HALF_CYCLES = 7
"""Half cycles for an element along the axis of a softmax of integers."""


class Softmax(Function, frozen=True, tag="softmax"):
    """Softmax along `axis` in f32 (numerics.md 11.1): subtract max, times beta, exp, divide by the sum; or its log."""

    axis: int
    log: bool = False
    beta: float = 1.0

    def made_of(self, operands: int) -> Steps:
        """Max and sum by windows, subtract, scale, divide; exp, and log if `log` is set, take the steps of U-91."""
        return Steps(arithmetic=25, series=2 if self.log else 1)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Step by step along h or w of an image, else by its parts; a fill along one element."""
        if output.shape[self.axis] == 1:
            return steps(output, itemsize(output.dtype), chip)
        if len(output.shape) == 4 and self.axis > 1:  # noqa: PLR2004  n, c, h, w
            return _softmax_cycles(output, self, chip)
        return super().cycles(inputs, output, chip)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return equal_shapes(operands, result) or has_axis(self.axis, result)


class SoftmaxInt(Function, frozen=True, tag="softmax_int"):
    """INT8 softmax along `axis` by a table of 256 exponentials, scale and zero point of the result (11.1)."""

    axis: int
    scale: float
    zero_point: int = 0

    def made_of(self, operands: int) -> Steps:
        """One step to subtract, one to multiply, one requant."""
        return Steps(arithmetic=4, requants=1)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """The sum of its parts; max and sum take a cycle per element of the axis (all in one lane), the table 1.5."""
        length = output.shape[self.axis]
        serial = _HALF_CYCLES * length * ceil_div(output.elements // length, chip.lanes)
        return super().cycles(inputs, output, chip) + ceil_div(serial, 2)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The integers, of the result's shape, and the table."""
        if (why := equal_shapes(operands, result, 2) or has_axis(self.axis, result)) is not None:
            return why
        return None if prod(operands[1]) == 256 else Misfit("a table of 256 entries", f"{operands[1]}")


class SoftmaxTables(Function, frozen=True, tag="softmax_tables"):
    """Softmax along `axis`, or its logarithm, by BF16 tables (11.1).

    Operands: x, base and slope of the exponential over +-limit, exponent and mantissa entries of the reciprocal (or the
    logarithm).
    """

    axis: int
    limit: float
    log: bool = False

    def made_of(self, operands: int) -> Steps:
        """Subtract, five steps of the exponential, weight, sum, product; two pairs of tables."""
        return Steps(arithmetic=9, series=2)

    def needs(self) -> Unit:
        """It needs BF16 tables."""
        return "tables"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and four tables."""
        return equal_shapes(operands, result, 5) or has_axis(self.axis, result)


class _Passes(NamedTuple):
    """Cycles of a pass over all elements and of windows over the axis, by bytes of an element, and of other passes.

    results: a pass over the sums. steps: passes of subtraction, exponential and product without the series.
    """

    image: dict[int, int]
    folded: dict[int, int]
    results: int
    steps: int


def _softmax_cycles(output: View, function: Softmax, chip: ChipSpec) -> int:
    """TIU cycles of a softmax of (n, c, h, w) along h or w."""
    size = itemsize(output.dtype)
    half = size == 2  # noqa: PLR2004  bytes
    image, folded, results, steps = _passes(output.shape, function.axis, size, chip)
    extra = _NARROW_STEPS * image[size // 2] + folded[size] + folded[4] + half * (image[4] + 2 * results)
    after = _LOGARITHM[size] if function.log else DIVISION_STEPS
    terms = [EXP_TERMS[size], *[_LOG_TERMS[size]] * function.log]
    constants = sum(ceil_div(count * size, chip.eu_bytes) for count in terms)
    return constants + (steps + EXP_TERMS[size]) * image[size] + extra + after * results


def _passes(shape: Shape, axis: int, size: int, chip: ChipSpec) -> _Passes:
    """The passes along single rows, rows of an image, or columns whose lines begin at whole vectors.

    Decision: columns take the cycles of the library's kernel, also in a group, although lines lie closer there and two
    more passes would be doubled.
    """
    n, c, h, w = shape
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


def _over_rows(h: int, w: int, vector: int, each: int, chip: ChipSpec) -> int:
    """Windows over the rows of one channel; a row longer than a vector is filled up to whole vectors."""
    if w <= vector:
        return row_windows(h, w, each, chip)
    line = align(w, vector)
    copied = ceil_div(h * w, each) if line > w and each == vector else 0
    return copied + ceil_div(h * (line - w), each) + row_windows(h, line, each, chip)
