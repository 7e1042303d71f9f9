"""Attention in 16 bits as the library's kernel computes it (FAttention, numerics.md 11.6), and how long it takes.

The profile of 40 sizes, and of 50 with high precision, is counted cycle by cycle (U-90). The kernel walks
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
_HALF_BYTES, _WORD_BYTES = 2, 4


class _TileSteps(NamedTuple):
    """Vector steps of a tile: over rows and heads, over the keys in 16, 8 and 32 bits, over a head in 16 and 32."""

    rows: int
    keys: int
    bytes: int
    words: int
    head: int
    head_words: int


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
        """Both products, and a softmax in f32 with its correction, alike for F16 and BF16."""
        heads, rows = laid = _laid(inputs[0].shape, inputs[1].shape[0])
        keys, size = inputs[1].shape[1], inputs[0].shape[-1]
        step, vector = _tile_steps(laid, keys, size, chip), chip.eu_elements(_WORD_BYTES)
        once = 2 * vector + 16 + EXP_TERMS[_WORD_BYTES] + 2 * (keys % vector > 0)
        softmax = (15 + EXP_TERMS[_WORD_BYTES]) * step.words + 2 * step.keys
        if self.mask:
            softmax += 2 * step.words + _mask_steps(step, rows, heads, inputs[3].shape[1])
        return _products(rows, heads, keys, size, chip) + softmax + once * step.rows + 4 * step.head_words

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
    """The values weighed so far, divided by the sum of the weights: the end of a tile with high precision (11.6).

    shared: heads of queries that read one head of keys.
    """

    shared: int = 1

    def cycles(self, inputs: Sequence[View], output: View, chip: ChipSpec) -> int:
        """What a tile needs once: zeros, the division by the sums, and the rounding."""
        step = _tile_steps(_laid(output.shape, output.shape[0] // self.shared), 1, output.shape[-1], chip)
        return 4 * step.head_words + (2 + DIVISION_STEPS) * step.rows

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
        """The queries' scale in F16, zeros, and the division by the sums."""
        step = _tile_steps(_laid(output.shape, inputs[0].shape[0]), 1, output.shape[-1], chip)
        return (2 + (output.dtype == "f16")) * step.head + (4 + DIVISION_STEPS) * step.rows

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
    heads, rows = laid = _laid(inputs[0].shape, inputs[1].shape[0])
    keys, size = inputs[1].shape[1], inputs[0].shape[-1]
    step, vector = _tile_steps(laid, keys, size, chip), chip.eu_elements(_HALF_BYTES)
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


def heads_are_rows(rows: int, shared: int) -> bool:
    """Whether heads of queries lie over the lanes: if more than two of one query read one head of keys."""
    return rows == 1 and shared > 2  # noqa: PLR2004


def _laid(queries: Shape, heads: int) -> tuple[int, int]:
    """(heads, rows) of queries as the library lays them out; heads: of the keys."""
    shared = queries[0] // heads
    return (heads, shared) if heads_are_rows(queries[1], shared) else (queries[0], queries[1])


def _mask_steps(step: _TileSteps, rows: int, heads: int, mask_rows: int) -> int:
    """The mask of one head becomes f32. One row for several is sent to all lanes first."""
    return step.words // heads * (3 if mask_rows < rows else 1)


def _tile_steps(laid: tuple[int, int], keys: int, size: int, chip: ChipSpec) -> _TileSteps:
    heads, rows = laid
    once = ceil_div(rows, chip.lanes) * heads
    halves, singles, words, head, head_words = (
        ceil_div(count, chip.eu_elements(width)) * once
        for count, width in (
            (keys, _HALF_BYTES),
            (keys, 1),
            (keys, _WORD_BYTES),
            (size, _HALF_BYTES),
            (size, _WORD_BYTES),
        )
    )
    return _TileSteps(once, halves, singles, words, head, head_words)
