"""Attention: its weights, and whole blocks in global memory (numerics.md 11.5)."""

from collections.abc import Sequence
from math import prod

from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import alike, broadcast, counted

_AXES = 4


class AttentionWeights(Function, frozen=True, tag="attention_weights"):
    """Softmax of masked scores along the last axis, as a block of attention has it (11.5).

    integer: of int8 by a table of 256 exponentials, where the mask is not 0 far below all others; scale: the result's.
    Else of x * scale + mask in f32. Operands: scores, the table, the mask as far as there are any.
    """

    scale: float
    integer: bool
    mask: bool

    def made_of(self, operands: int) -> Steps:
        """As many steps as U-91 has for 197 rows and columns; few of them need more."""
        if self.integer:
            return Steps(arithmetic=10 + self.mask, lookups=1)
        return Steps(arithmetic=14 + self.mask, series=1)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """The scores, of the result's shape, the table, and a mask that broadcasts."""
        count = 1 + self.integer + self.mask
        if (why := alike(operands, result, count)) is not None:
            return why
        if self.integer and prod(operands[1]) != 256:
            return Misfit("a table of 256 entries", f"{operands[1]}")
        return broadcast([result, operands[-1]], result, 2) if self.mask else None


class FlashAttention(Function, frozen=True, tag="flash_attention"):
    """Attention of all heads in 16 bits in global memory (11.6). Operands: queries, keys, values, maybe a mask."""

    scale: float
    mask: bool

    def made_of(self, operands: int) -> Steps:
        """Decision: as a softmax of its result's size with two products; those of the scores are not known here."""
        return Steps(arithmetic=60, series=1)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """Scores, and their product with the values."""
        return 2 * prod(operands[0]) * operands[1][1]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Queries (B, M, H, D) of as many elements as the result, keys and values alike, a mask (1, 1, M, N)."""
        if (why := counted(operands, 3 + self.mask)) is not None:
            return why
        q, k, v = operands[:3]
        if len(q) != 4 or prod(q) != prod(result):
            return Misfit("queries (B, M, H, D) of the result's size", f"{q}")
        if len(k) != 4 or k != v or (k[0], k[3]) != (q[0], q[3]) or q[2] % k[2]:
            return Misfit(f"keys and values ({q[0]}, N, H', {q[3]})", f"{k} and {v}")
        wanted = (1, 1, q[1], k[1])
        return Misfit(f"a mask {wanted}", f"{operands[3]}") if self.mask and operands[3] != wanted else None


class FlashScores(Function, frozen=True, tag="flash_scores"):
    """Scores of some queries and some keys of a tile of FlashAttention (11.6), in f16, or in f32 for bf16.

    Operands: queries (H, M, 1, D), keys (H', N, 1, D), maybe a mask (1, M, 1, N); the result is (H, M, 1, N). The
    library weighs the values of these keys at once and corrects it as larger scores come: its time is counted here.
    """

    scale: float
    mask: bool

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """Those of the product of queries and keys."""
        return prod(operands[0]) * operands[1][1]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A score for every query, head and key, and a mask for all heads."""
        if (why := counted(operands, 2 + self.mask) or _headed(operands[:2])) is not None:
            return why
        (heads, rows, _, _), (_, keys, _, _) = operands[:2]
        if result != (heads, rows, 1, keys):
            return Misfit(f"a result {(heads, rows, 1, keys)}", f"{result}")
        wanted = (1, rows, 1, keys)
        return Misfit(f"a mask {wanted}", f"{operands[2]}") if self.mask and operands[2] != wanted else None


class FlashMix(Function, frozen=True, tag="flash_mix"):
    """Values weighed by the softmax of their scores, of a tile of FlashAttention (11.6).

    Operands: values (H', N, 1, D), scores (H, M, 1, N); the result is (H, M, 1, D). Of the time there is what the
    library does before the first and behind the last keys of a tile.
    """

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """Those of the product of weights and values."""
        return prod(operands[1]) * operands[0][3]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """As many scores as values, and heads that share them evenly."""
        if (why := counted(operands, 2)) is not None:
            return why
        values, scores = operands
        wanted = (*scores[:3], values[-1])
        if (why := _headed((wanted, values))) is not None:
            return why
        if values[1] != scores[3]:
            return Misfit(f"{values[1]} scores for as many values", f"{scores[3]}")
        return None if result == wanted else Misfit(f"a result {wanted}", f"{result}")


def _headed(operands: Sequence[Shape]) -> Misfit | None:
    """Two (heads, rows, 1, elements), of which the first has the heads of the second once or several times."""
    (heads, *_, size), other = operands
    if len(other) != _AXES or other[2:] != (1, size) or heads % other[0]:
        return Misfit(f"heads that divide {heads}, of (N, 1, {size})", f"{other}")
    return None


def attention_products(batch: int, rows: int, others: int, sizes: tuple[int, int, int, int]) -> int:
    """Multiplications of a head's six products. rows, others: of the input and of keys; sizes: those of `Attention`."""
    queries, keys, columns, out = sizes
    return batch * columns * (rows * (queries + out) + 2 * others * (keys + rows))


class Attention(Function, frozen=True, tag="attention"):
    """A head of attention in global memory (11.5).

    sizes: rows of the matrix of queries, of those of keys and values, their columns, columns of the last layer.
    sources: input, keys, values: the first so many are there. has_bias: a bit for each of the four layers. requants:
    multiplier and shift of queries, keys, values, scores and mixed values; none in float. Operands: sources, packed
    matrices, row of biases, last matrix, mask, table, as far as they are there.
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
        """The sources with the result's batch, and as many others as the parameters promise."""
        count = self.sources + 2 + bool(self.has_bias) + self.mask + bool(self.requants)
        if (why := counted(operands, count)) is not None:
            return why
        wanted = (*result[:-1], self.sizes[0])
        return None if operands[0] == wanted else Misfit(f"an input {wanted}", f"{operands[0]}")
