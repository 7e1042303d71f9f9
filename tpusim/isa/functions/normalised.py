"""Functions that normalise: softmax, LRN, layer and group normalisation."""

from collections.abc import Sequence
from math import prod
from typing import Final, Literal

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps, Unit
from tpusim.isa.functions.rules import equal_shapes, has_axis, image
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import array, row_windows

_ROOT_STEPS: Final = 30
"""Vector steps of a reciprocal root (F-50)."""
_F32 = 4


def _row_sums(rows: int, length: int, size: int, chip: ChipSpec) -> int:
    """Steps of a PorD that sums each row of a lane's plane; one row is first reduced to a vector, padded if it must."""
    vector = chip.eu_elements(size)
    if rows > 1:
        return row_windows(rows, length, vector, chip)
    return ceil_div(length, vector) + vector + (length % vector > 0)


class Lrn(Function, frozen=True, tag="lrn"):
    """LRN over `size` channels (size - 1 if even) of (n, c, h, w): x / (bias + alpha/size * sum of squares)**beta."""

    size: int
    alpha: float
    beta: float
    bias: float

    def made_of(self, operands: int) -> Steps:
        """Square, one shifted sum per neighbour, scale, bias, multiply; log and exp take their profiled steps."""
        return Steps(arithmetic=46 + self.size, series=2, shifts=self.size - 1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape, of four axes."""
        return equal_shapes(operands, result) or image(result)


class LrnTables(Function, frozen=True, tag="lrn_tables"):
    """LRN with every step in BF16 and the power -beta by tables: x, exponent and mantissa entries."""

    size: int
    alpha: float
    bias: float

    def made_of(self, operands: int) -> Steps:
        """Square twice, one sum per neighbour, bias, power, product; one pair of tables."""
        return Steps(arithmetic=4 + self.size, series=1)

    def needs(self) -> Unit:
        """The function needs BF16 tables."""
        return "tables"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape and four axes, and two tables."""
        return equal_shapes(operands, result, 3) or image(result)


class LayerNorm(Function, frozen=True, tag="layernorm"):
    """Normalise over the axes from `axis` on, times the weight if any, plus the bias if any (11.2).

    Operands: x, weight if any, bias if any, then two BF16 tables of the power -0.5 if `tables`. bf16_steps:
    every step is rounded to BF16; tables: every step is one of a BF16 unit (numerics.md 8.2).
    """

    axis: int
    epsilon: float
    weight: bool
    bias: bool
    bf16_steps: bool = False
    tables: bool = False

    def made_of(self, operands: int) -> Steps:
        """Two sums by windows, subtract, square, add, divide, three products; the root takes the steps of U-91."""
        return Steps(arithmetic=9, series=1)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Along axes inside a lane: sums by windows, steps of each element, and the root of each row (U-91, F-50).

        The difference and its square are in f32. Weight and bias are copied to all lanes.
        """
        if self.axis < 2 or self.tables:  # noqa: PLR2004  n and c lie across lanes
            return super().cycles(inputs, output, chip)
        n, c, *plane = output.shape
        rows, length = prod(plane[: self.axis - 2]), prod(plane[self.axis - 2 :])
        size = itemsize(output.dtype)
        half, checked = size < _F32, chip.roots_in_f32
        narrow, wide = (ceil_div(rows * length, chip.eu_elements(each)) for each in (size, _F32))
        sums = _row_sums(rows, length, size, chip) + _row_sums(rows, length, _F32, chip)
        root = _ROOT_STEPS + 1 + (half or checked) + 2 * checked
        each_lane = sums + 2 * wide + (2 + half) * narrow + ceil_div(rows, chip.eu_elements(_F32)) * root
        turns, constants = n * ceil_div(c, chip.lanes), self.weight + self.bias
        return turns * (each_lane + constants * narrow) + constants * 2 * ceil_div(length, chip.eu_elements(size))

    def needs(self) -> Unit:
        """Its tables, if it has any."""
        return "tables" if self.tables else ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and the operands that the parameters state."""
        return equal_shapes(operands, result, 1 + self.weight + self.bias + 2 * self.tables) or has_axis(
            self.axis, result
        )


class RMSNorm(Function, frozen=True, tag="rmsnorm"):
    """Divide by the root of the mean of squares along the axes from `axis` on, times the weight if it has one (11.2).

    Operands: x, then the weight. In 16 bits the quotient is rounded before the product; arithmetic "interpreter": in
    F16 it is not, and in BF16 every step is.
    """

    axis: int
    epsilon: float
    weight: bool
    arithmetic: Literal["chip", "interpreter"] = "chip"

    def made_of(self, operands: int) -> Steps:
        """Square, sum by windows, add, two products; the root takes half the steps that U-91 has for a layer norm."""
        return Steps(arithmetic=5, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and the weight if the function has one."""
        return equal_shapes(operands, result, 1 + self.weight) or has_axis(self.axis, result)


class PixelNorm(Function, frozen=True, tag="pixelnorm"):
    """Normalise every position over its channels (axis 1), times weight[c] if any, plus bias[c] if any (11.2).

    Operands: x, weight if any, bias if any. bf16_steps: every step is rounded to BF16. scale: x has bytes of this
    scale, whose sums are integers, and every later step is rounded to F16; 0: x has floats.
    """

    epsilon: float
    weight: bool
    bias: bool
    bf16_steps: bool = False
    scale: float = 0.0

    def made_of(self, operands: int) -> Steps:
        """Difference, product and what is around them, as `cycles` counts them for each element."""
        return Steps(arithmetic=6)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Sums over the channels by the array; steps of each element and of each position; the root (U-91, F-50)."""
        n, c, *rest = output.shape
        plane, in_bytes = prod(rest), self.scale > 0
        size = 4 if output.dtype == "f32" else 2
        wide, narrow = ceil_div(plane, chip.eu_elements(4)), ceil_div(plane, chip.eu_elements(size))
        cube = array(chip, 1 if in_bytes else size, c)
        sums = (2 + in_bytes) * ceil_div(c, cube.depth) * ceil_div(plane, cube.pixels)
        elements = ceil_div(c, chip.lanes) * narrow * (5 + (self.weight or self.bias) + 3 * in_bytes)
        positions = 2 * narrow + in_bytes * (4 * wide + 12 * narrow)
        checked = (2 if size == 4 else 4) * wide  # and cast
        root = _ROOT_STEPS * wide + checked if chip.roots_in_f32 else _ROOT_STEPS * narrow
        return n * (sums + elements + positions + root)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, with channels, and the operands that the parameters state."""
        return equal_shapes(operands, result, 1 + self.weight + self.bias) or has_axis(1, result)


class GroupNorm(Function, frozen=True, tag="groupnorm"):
    """Normalise every sample's `groups` runs of channels (axis 1), times weight[c] if any, plus bias[c] if any.

    Operands: x, weight if any, bias if any. depth: the batch axis is (depth, batch); a sample includes all of its
    depths (hardware.md 2.1). weight_as_factor:
    mean and variance are divided by the first weight, and nothing is multiplied (U-14). bf16_steps: every step
    but root and reciprocal is rounded to BF16.
    """

    groups: int
    epsilon: float
    depth: int = 1
    weight: bool = True
    bias: bool = True
    weight_as_factor: bool = False
    bf16_steps: bool = False

    def made_of(self, operands: int) -> Steps:
        """The same steps as a layer norm."""
        return Steps(arithmetic=9, series=1)

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Of single channels: two sums of the plane by windows, six steps of each element, and the root (F-50)."""
        n, c, *plane = output.shape
        if self.groups != c or self.depth > 1 or self.bf16_steps or self.weight_as_factor:
            return super().cycles(inputs, output, chip)
        size = prod(plane)
        sums, root = 2 * _row_sums(1, size, _F32, chip), _ROOT_STEPS + 2 + 2 * chip.roots_in_f32
        return n * ceil_div(c, chip.lanes) * (sums + 6 * ceil_div(size, chip.eu_elements(_F32)) + root)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Whole groups of channels, whole depths."""
        if (why := equal_shapes(operands, result, 1 + self.weight + self.bias)) is not None:
            return why
        if self.weight_as_factor and not self.weight:
            return Misfit("a weight for the factor", "none")
        if len(result) < 2 or self.groups < 1 or result[1] % self.groups:
            return Misfit(f"channels in {self.groups} equal groups", f"{result}")
        whole = self.depth >= 1 and result[0] % self.depth == 0
        return None if whole else Misfit(f"a batch axis of {self.depth} depths", f"{result}")
