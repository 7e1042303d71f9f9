"""Attention: its weights, and whole blocks in global memory (numerics.md 11.5)."""

from collections.abc import Sequence
from math import prod

from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import broadcast, counted, equal_shapes

_AXES = 4


class AttentionWeights(Function, frozen=True, tag="attention_weights"):
    """Softmax of masked scores along the last axis, as a block of attention has it (11.5).

    integer: int8 by a table of 256 exponentials; a score whose mask is not 0 counts as far below all others; scale: the
    result's. Otherwise x * scale + mask in f32. Operands: scores, the table if any, the mask if any.
    """

    scale: float
    integer: bool
    mask: bool

    def made_of(self, operands: int) -> Steps:
        """The steps that U-91 measured for 197 rows and columns; few sizes need more."""
        if self.integer:
            return Steps(arithmetic=10 + self.mask, lookups=1)
        return Steps(arithmetic=14 + self.mask, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The scores, of the result's shape, the table, and a mask that broadcasts."""
        count = 1 + self.integer + self.mask
        if (why := equal_shapes(operands, result, count)) is not None:
            return why
        if self.integer and prod(operands[1]) != 256:
            return Misfit("a table of 256 entries", f"{operands[1]}")
        return broadcast([result, operands[-1]], result, 2) if self.mask else None


def attention_products(batch: int, rows: int, others: int, sizes: tuple[int, int, int, int]) -> int:
    """Multiplications of a head's six products. rows, others: of the input and of keys; sizes: those of `Attention`."""
    queries, keys, columns, out = sizes
    return batch * columns * (rows * (queries + out) + 2 * others * (keys + rows))


class Attention(Function, frozen=True, tag="attention"):
    """A head of attention in global memory (11.5).

    sizes: rows of the matrix of queries, of those of keys and values, their columns, columns of the last layer.
    sources: how many of input, keys, values are given, in this order. has_bias: a bit for each of the four layers.
    requants: multiplier and shift of queries, keys, values, scores and mixed values; none in float. Operands: sources,
    packed matrices, row of biases, last matrix, mask, table; each may be absent.
    """

    sizes: tuple[int, int, int, int]
    sources: int
    has_bias: int
    mask: bool
    scale: float
    requants: tuple[tuple[int, int], ...]

    def made_of(self, operands: int) -> Steps:
        """Decision: a step for 32 products of a result's row; those of the scores are not known here."""
        return Steps(arithmetic=8 + sum(self.sizes[:3]) // 32, series=0 if self.requants else 1)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """Multiplications of the block's six products."""
        (batch, rows, _), others = operands[0], operands[self.sources > 1][1]
        return attention_products(batch, rows, others, self.sizes)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The sources have the result's batch; the number of other operands follows from the parameters."""
        count = self.sources + 2 + bool(self.has_bias) + self.mask + bool(self.requants)
        if (why := counted(operands, count)) is not None:
            return why
        wanted = (*result[:-1], self.sizes[0])
        return None if operands[0] == wanted else Misfit(f"an input {wanted}", f"{operands[0]}")
