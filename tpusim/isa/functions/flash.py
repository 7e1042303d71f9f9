"""Attention in 16 bits as the library's kernel computes it (FAttention, numerics.md 11.6), and how long it takes.

The profile of 40 sizes (U-90) is counted cycle by cycle. The kernel walks
through blocks of keys, remembers the largest score so far, and corrects sums and results when it grows; tpusim keeps
the scores until all are known (U-26). `FlashScores` therefore counts the steps of a block, and `FlashMix` the steps
that a tile needs once.
"""

from collections.abc import Sequence
from math import prod
from typing import Literal, NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.functions.base import Function, Misfit, Shape, Steps
from tpusim.isa.functions.rules import counted
from tpusim.isa.functions.softmax import EXP_TERMS
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.isa.steps import DIVISION_STEPS

_AXES = 4
_HALF_BYTES = 2


class _Steps16(NamedTuple):
    """Vector steps of a tile: over rows and heads, over the keys in 16, 8 and 32 bits, and over a head."""

    rows: int
    keys: int
    bytes: int
    words: int
    head: int


class FlashAttention(Function, frozen=True, tag="flash_attention"):
    """Attention of all heads in 16 bits in global memory (11.6). Operands: queries, keys, values, maybe a mask.

    key_block: keys whose scores are known at a time, with f32 sums over `depth` products at once (high precision); 0:
    all scores are known before the softmax, whose steps are rounded.
    """

    scale: float
    mask: bool
    key_block: int = 0
    depth: int = 0

    def made_of(self, operands: int) -> Steps:
        """Decision: a softmax of the result's size with two products, as the number of scores is not known here."""
        return Steps(arithmetic=60, series=1)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """The scores' product, and their product with the values."""
        return 2 * prod(operands[0]) * operands[1][1]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Queries (B, M, H, D) with as many elements as the result, equal keys and values, a mask (1, 1, M, N)."""
        if (why := counted(operands, 3 + self.mask)) is not None:
            return why
        q, k, v = operands[:3]
        if len(q) != 4 or prod(q) != prod(result):
            return Misfit("queries (B, M, H, D) of the result's size", f"{q}")
        if len(k) != 4 or k != v or (k[0], k[3]) != (q[0], q[3]) or q[2] % k[2]:
            return Misfit(f"keys and values ({q[0]}, N, H', {q[3]})", f"{k} and {v}")
        wanted = (1, 1, q[1], k[1])
        return Misfit(f"a mask {wanted}", f"{operands[3]}") if self.mask and operands[3] != wanted else None


class FlashBlock(Function, frozen=True, tag="flash_block"):
    """Some queries and a block of keys of a tile of FlashAttention with high precision (11.6), in f32.

    Operands: queries (H, M, 1, D), keys and values (H', N, 1, D), maybe a mask (1, M, 1, N), and, but for the first
    block, the result of the block before; the result is (H, M, 1, D + 2): the weighed values so far, the sum of the
    weights and the largest score. narrow: the type in which weights meet the values.
    """

    scale: float
    mask: bool
    first: bool
    depth: int
    narrow: Literal["f16", "bf16"]

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Both products and the softmax of a block of keys."""
        return _scores(inputs[: 2 + self.mask], output, chip)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """The scores' product, and their product with the values."""
        return 2 * prod(operands[0]) * operands[1][1]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """Equal keys and values, a mask for all heads, and a state of the result's shape."""
        count = 3 + self.mask + (not self.first)
        if (why := counted(operands, count) or _headed(operands[:2])) is not None:
            return why
        (heads, rows, _, size), keys, values, *more = operands
        if keys != values:
            return Misfit(f"as many values as keys, {keys}", f"{values}")
        if result != (heads, rows, 1, size + 2):
            return Misfit(f"a result {(heads, rows, 1, size + 2)}", f"{result}")
        wanted = [(1, rows, 1, keys[1])] * self.mask + [result] * (not self.first)
        return None if more == wanted else Misfit(f"{wanted}", f"{more}")


class FlashResult(Function, frozen=True, tag="flash_result"):
    """The values weighed so far, divided by the sum of the weights: the end of a tile with high precision (11.6)."""

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """What a tile needs once."""
        return _mix(output, chip)

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A state of two more elements than the result."""
        if (why := counted(operands, 1)) is not None:
            return why
        wanted = (*result[:-1], result[-1] + 2)
        return None if operands[0] == wanted else Misfit(f"a state {wanted}", f"{operands[0]}")


class FlashScores(Function, frozen=True, tag="flash_scores"):
    """Scores of some queries and some keys of a tile of FlashAttention (11.6), in f16, or in f32 for bf16.

    Operands: queries (H, M, 1, D), keys (H', N, 1, D), maybe a mask (1, M, 1, N); the result is (H, M, 1, N). The
    library also weighs the values of these keys and corrects the sum when larger scores come; that time counts here.
    """

    scale: float
    mask: bool

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """Both products and the softmax of a block of keys."""
        return _scores(inputs, output, chip)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """The multiply-accumulates of queries and keys."""
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

    Operands: values (H', N, 1, D), scores (H, M, 1, N); the result is (H, M, 1, D). Its
    time is what the library does before the first and after the last keys of a tile.
    """

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """What a tile needs once."""
        return _mix(output, chip)

    def multiplications(self, operands: Sequence[Shape]) -> int:
        """The multiply-accumulates of weights and values."""
        return prod(operands[1]) * operands[0][3]

    def misfit(self, operands: Sequence[Shape], result: Shape) -> Misfit | None:
        """A score for each value, and heads that share the values evenly."""
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
    """Two operands (heads, rows, 1, elements); the heads of the first are a multiple of those of the second."""
    (heads, *_, size), other = operands
    if len(other) != _AXES or other[2:] != (1, size) or heads % other[0]:
        return Misfit(f"heads that divide {heads}, of (N, 1, {size})", f"{other}")
    return None


def _scores(inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
    """Both products, and a softmax with its correction; BF16 has more steps in f32."""
    (heads, rows, _, size), keys = inputs[0].shape, inputs[1].shape[1]
    step, vector = _tile_steps(rows, heads, keys, size, chip), chip.eu_elements(_HALF_BYTES)
    masked, uneven = len(inputs) > 2, keys % vector > 0  # noqa: PLR2004
    once = 2 * vector + 23 + 2 * uneven
    if itemsize(output.dtype) == _HALF_BYTES:
        softmax = (12 + EXP_TERMS[_HALF_BYTES] + 2 * masked) * step.keys + 2 * step.bytes
    else:
        once += 1
        softmax = (13 + EXP_TERMS[_HALF_BYTES] + masked) * step.keys + (5 + 2 * masked) * step.words
    return _products(rows, heads, keys, size, chip) + softmax + once * step.rows + 4 * step.head


def _products(rows: int, heads: int, keys: int, size: int, chip: ChipSpec) -> int:
    """The longer of keys and head runs over the array's pixels, the inner axis over its depth."""
    pixels, depth = chip.cube_pixels * 2 // chip.half_mac_divisor, chip.filter_packing(_HALF_BYTES, size)
    steps = ceil_div(keys, pixels) * ceil_div(size, depth) + ceil_div(size, pixels) * ceil_div(keys, depth)
    return ceil_div(rows, chip.lanes) * heads * steps


def _mix(output: View, chip: ChipSpec) -> int:
    """The queries' scale in F16, zeros, and the division by the sums."""
    heads, rows, _, size = output.shape
    step = _tile_steps(rows, heads, 1, size, chip)
    return (2 + (output.dtype == "f16")) * step.head + (4 + DIVISION_STEPS) * step.rows


def _tile_steps(rows: int, heads: int, keys: int, size: int, chip: ChipSpec) -> _Steps16:
    once = ceil_div(rows, chip.lanes) * heads
    halves, singles, words = (
        ceil_div(keys, chip.eu_elements(width)) * once for width in (_HALF_BYTES, 1, 2 * _HALF_BYTES)
    )
    return _Steps16(once, halves, singles, words, ceil_div(size, chip.eu_elements(_HALF_BYTES)) * once)
