"""Functions that normalise: softmax, LRN, layer and group normalisation."""

from collections.abc import Sequence
from math import prod

from tpusim.isa.functions.base import Function, Misfit, Shape, Steps, Unit
from tpusim.isa.functions.rules import alike, has_axis, image


class Softmax(Function, frozen=True, tag="softmax"):
    """Softmax along `axis` in f32 (numerics.md 11.1): subtract max, times beta, exp, divide by the sum; or its log."""

    axis: int
    log: bool = False
    beta: float = 1.0

    def made_of(self, operands: int) -> Steps:
        """Max and sum by windows, subtract, scale, divide; exp, and log if asked: as many steps as U-91 has."""
        return Steps(arithmetic=25, series=2 if self.log else 1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape."""
        return alike(operands, result) or has_axis(self.axis, result)


class SoftmaxInt(Function, frozen=True, tag="softmax_int"):
    """INT8 softmax along `axis` by a table of 256 exponentials, scale and zero point of the result (11.1)."""

    axis: int
    scale: float
    zero_point: int = 0

    def made_of(self, operands: int) -> Steps:
        """Subtract, multiply, requant; max and sum a cycle each along the axis, the table one and a half."""
        return Steps(arithmetic=4, requants=1, serial=7)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The integers, of the result's shape, and the table."""
        if (why := alike(operands, result, 2) or has_axis(self.axis, result)) is not None:
            return why
        return None if prod(operands[1]) == 256 else Misfit("a table of 256 entries", f"{operands[1]}")


class SoftmaxTables(Function, frozen=True, tag="softmax_tables"):
    """Softmax along `axis`, or its logarithm, by BF16 tables (CV18xx, 11.1).

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
        """It needs the BF16 tables of CV18xx."""
        return "tables"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and four tables."""
        return alike(operands, result, 5) or has_axis(self.axis, result)


class Lrn(Function, frozen=True, tag="lrn"):
    """LRN over channels of (n, c, h, w), one fewer if even: x / (bias + alpha/size * sum of squares)**beta."""

    size: int
    alpha: float
    beta: float
    bias: float

    def made_of(self, operands: int) -> Steps:
        """Square, one shifted sum per neighbour, scale, bias, multiply; log and exp in as many steps as there."""
        return Steps(arithmetic=46 + self.size, series=2, shifts=self.size - 1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """One operand of the result's shape, of four axes."""
        return alike(operands, result) or image(result)


class LrnTables(Function, frozen=True, tag="lrn_tables"):
    """LRN with every step in BF16 and the power -beta by tables (CV18xx): x, exponent and mantissa entries."""

    size: int
    alpha: float
    bias: float

    def made_of(self, operands: int) -> Steps:
        """Square twice, one sum per neighbour, bias, power, product; one pair of tables."""
        return Steps(arithmetic=4 + self.size, series=1)

    def needs(self) -> Unit:
        """It needs the BF16 tables of CV18xx."""
        return "tables"

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape and four axes, and two tables."""
        return alike(operands, result, 3) or image(result)


class LayerNorm(Function, frozen=True, tag="layernorm"):
    """Normalise over the axes from `axis` on, times the weight, plus the bias, as far as there are any (11.2).

    Operands: x, then weight and bias if they are there, then two BF16 tables of the power -0.5 if `tables`. bf16_steps:
    every step is rounded to BF16; tables: every step is a BF16 step of CV18xx.
    """

    axis: int
    epsilon: float
    weight: bool
    bias: bool
    bf16_steps: bool = False
    tables: bool = False

    def made_of(self, operands: int) -> Steps:
        """Two sums by windows, subtract, square, add, divide, three products; root: as many as U-91 has."""
        return Steps(arithmetic=9, series=1)

    def needs(self) -> Unit:
        """Its tables, if it has any."""
        return "tables" if self.tables else ""

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and what the parameters promise."""
        return alike(operands, result, 1 + self.weight + self.bias + 2 * self.tables) or has_axis(self.axis, result)


class RMSNorm(Function, frozen=True, tag="rmsnorm"):
    """Divide by the root of the mean of squares along the axes from `axis` on, times the weight if it has one (11.2).

    Operands: x, then the weight. In 16 bits the quotient is rounded in front of the product.
    """

    axis: int
    epsilon: float
    weight: bool

    def made_of(self, operands: int) -> Steps:
        """Square, sum by windows, add, two products; root: as many as U-91 has for a layer norm's half."""
        return Steps(arithmetic=5, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The tensor, of the result's shape, and what the weight promises."""
        return alike(operands, result, 1 + self.weight) or has_axis(self.axis, result)


class GroupNorm(Function, frozen=True, tag="groupnorm"):
    """Normalise every sample's `groups` runs of channels (axis 1), times weight[c], plus bias[c]: x and those it has.

    depth: the batch axis is (depth, batch), and a sample has all of its depths (hardware.md 2.1). weight_as_factor:
    mean and variance are divided by the first weight, and nothing is multiplied (CV18xx's host). bf16_steps: every step
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
        """As a layer norm."""
        return Steps(arithmetic=9, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Whole groups of channels, whole depths."""
        if (why := alike(operands, result, 1 + self.weight + self.bias)) is not None:
            return why
        if self.weight_as_factor and not self.weight:
            return Misfit("a weight for the factor", "none")
        if len(result) < 2 or self.groups < 1 or result[1] % self.groups:
            return Misfit(f"channels in {self.groups} equal groups", f"{result}")
        whole = self.depth >= 1 and result[0] % self.depth == 0
        return None if whole else Misfit(f"a batch axis of {self.depth} depths", f"{result}")
