"""Products with weights of 4 or 8 bits, whole and as tiles (numerics.md 14).

A tile of the library is: weights are unpacked, minus zero point, converted, times scale; product; exchange of rows
and lanes; bias. The steps were counted in profiles of TPU-MLIR (U-105).
"""

from collections.abc import Sequence
from math import prod
from typing import Literal

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View
from tpusim.isa.steps import array

_OPERANDS = 4
_HALF_BYTES = 2
_BYTE_BITS = 8


class A16MatMul(Function, frozen=True, tag="a16_matmul"):
    """R(R(x @ R((q - z) * s)^T) + bias) in f16 or bf16 (14); R rounds to the type of the result.

    depth: the array adds up so many products exactly, and these sums in f32.

    Operands: x with K as its last axis, codes of `bits` in bytes, N rows of K, scales, zero points, maybe a bias.
    Scales and zero points are N rows of groups, or with more than two axes (..., lanes, N/lanes, groups).
    arithmetic "interpreter": weights of 4 bits are not rounded, and the result is rounded once.
    """

    bits: int
    bias: bool
    depth: int
    arithmetic: Literal["chip", "interpreter"] = "chip"

    def made_of(self, operands: int) -> Steps:
        """Decision: what each result costs in a product of 2,048 columns that one row reads."""
        return Steps(arithmetic=8)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """The steps of a tile."""
        inner = inputs[0].shape[-1]
        rows = inputs[0].elements // inner
        columns = output.elements // rows
        return _weights(self.bits, columns, inner, chip) + _product(rows, columns, inner, chip, bias=self.bias)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """The product of the rows and the weights."""
        return prod(operands[0]) // operands[0][-1] * prod(operands[1]) * (_BYTE_BITS // self.bits)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """As many codes and groups as the result and the inner axis ask for."""
        if (why := counted(operands, _OPERANDS + self.bias)) is not None:
            return why
        inner = operands[0][-1]
        rows = prod(operands[0]) // inner
        columns, rest = divmod(prod(result), rows)
        if rest or prod(operands[1]) * (_BYTE_BITS // self.bits) != columns * inner:
            return Misfit(f"{columns} rows of {inner} codes of {self.bits} bits", f"{operands[1]}")
        groups, rest = divmod(prod(operands[2]), columns)
        if rest or not groups or inner % groups or prod(operands[2]) != prod(operands[3]):
            return Misfit(f"equal groups of {inner} in {columns} rows", f"{operands[2]} and {operands[3]}")
        biased = not self.bias or prod(operands[4]) == columns
        return None if biased else Misfit(f"a bias of {columns}", f"{operands[4]}")


def _weights(bits: int, columns: int, inner: int, chip: ChipSpec) -> int:
    """Bytes without zero point, in 16 bits, times the scale."""
    rows, halves = ceil_div(columns, chip.lanes), ceil_div(inner, chip.eu_elements(_HALF_BYTES))
    if bits == _BYTE_BITS:
        return rows * 3 * halves
    steps = ceil_div(inner, chip.eu_elements(1))
    if chip.nibble_steps > 1:
        whole, rest = divmod(inner // 2, chip.eu_elements(1))
        steps += (chip.nibble_steps - 1) * (whole + 1 if rest else 2 * whole)  # whole vectors take two steps each
    return rows * (steps + 2 * halves)


def _product(rows: int, columns: int, inner: int, chip: ChipSpec, *, bias: bool) -> int:
    """The columns over the lanes; the result is transposed, and before it a single row of the input."""
    unit, vector = array(chip, _HALF_BYTES, inner), chip.eu_elements(_HALF_BYTES)
    turned = chip.lanes // vector
    product = ceil_div(columns, chip.lanes) * ceil_div(rows, unit.pixels) * ceil_div(inner, unit.depth)
    transposed = (ceil_div(columns, chip.lanes) + (rows == 1) * ceil_div(inner, chip.lanes)) * turned
    added = 2 * ceil_div(rows, chip.lanes) * ceil_div(columns, vector)
    return product + transposed + bias * added
