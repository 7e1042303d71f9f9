"""How long the library's kernel of attention in 16 bits takes, and how it cuts it (FAttention, numerics.md 11.6).

The profile of 40 sizes (U-90; BM1688 in F16 and BF16, BM1690 in F16) is counted cycle by cycle. The kernel goes
through blocks of keys with the largest score so far, and corrects sums and results as it grows; here the scores are
kept until all are known, as in U-26. So the steps of a block are those of `FlashScores`, what it
does once for a tile those of `FlashMix`.
"""

from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Fn
from tpusim.isa.functions import FlashScores
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import itemsize
from tpusim.isa.softmax import DIVISION_STEPS, EXP_TERMS

_HALF_BYTES = 2
_MOST_ROWS = 8
"""Rows of lanes of a tile at most."""
_SCORE_BYTES, _HEAD_BYTES = 14, 10
"""What a tile takes for each score (F-25) and each element of a head (F-26)."""


class Steps16(NamedTuple):
    """Vector steps of a tile: one for each row and head, over the keys in 16 bits, 8 bits and 32, and over a head."""

    rows: int
    keys: int
    bytes: int
    words: int
    head: int


def block_sizes(rows: int, keys: int, heads: int, size: int, chip: ChipSpec) -> tuple[int, int]:
    """(rows and keys, heads) of a tile: a power of two, and half of the heads again and again until they fit."""
    block = min(1 << min(rows, keys).bit_length() - 1, _MOST_ROWS * chip.lanes)
    each = ceil_div(block, chip.lanes) * (_SCORE_BYTES * block + _HEAD_BYTES * size)
    room = min(chip.lmem_bytes, chip.kernel_memory_bytes // chip.lanes or chip.lmem_bytes)
    while heads > 1 and heads * each > room:
        heads //= 2
    return block, heads


def flash_cycles(command: Fn, chip: ChipSpec) -> int:
    """TIU cycles of a block of keys, or of what a tile needs once."""
    return (_scores if isinstance(command.function, FlashScores) else _mix)(command, chip)


def _scores(command: Fn, chip: ChipSpec) -> int:
    """Both products, and a softmax with its correction, of which BF16 has more steps in f32."""
    (heads, rows, _, size), keys = command.inputs[0].shape, command.inputs[1].shape[1]
    step, vector = _steps(rows, heads, keys, size, chip), chip.eu_elements(_HALF_BYTES)
    masked, uneven = len(command.inputs) > 2, keys % vector > 0  # noqa: PLR2004
    once = 2 * vector + 23 + 2 * uneven
    if itemsize(command.output.dtype) == _HALF_BYTES:
        softmax = (12 + EXP_TERMS[_HALF_BYTES] + 2 * masked) * step.keys + 2 * step.bytes
    else:
        once += 1
        softmax = (13 + EXP_TERMS[_HALF_BYTES] + masked) * step.keys + (5 + 2 * masked) * step.words
    return _products(rows, heads, keys, size, chip) + softmax + once * step.rows + 4 * step.head


def _products(rows: int, heads: int, keys: int, size: int, chip: ChipSpec) -> int:
    """The longer of keys and head over the pixels of the array, the inner axis over its depth."""
    pixels, depth = chip.cube_pixels * 2 // chip.half_mac_divisor, chip.filter_packing(_HALF_BYTES, size)
    steps = ceil_div(keys, pixels) * ceil_div(size, depth) + ceil_div(size, pixels) * ceil_div(keys, depth)
    return ceil_div(rows, chip.lanes) * heads * steps


def _mix(command: Fn, chip: ChipSpec) -> int:
    """The queries' scale in F16, zeros, and the division by the sums."""
    heads, rows, _, size = command.output.shape
    step = _steps(rows, heads, 1, size, chip)
    return (2 + (command.output.dtype == "f16")) * step.head + (4 + DIVISION_STEPS) * step.rows


def _steps(rows: int, heads: int, keys: int, size: int, chip: ChipSpec) -> Steps16:
    once = ceil_div(rows, chip.lanes) * heads
    halves, singles, words = (
        ceil_div(keys, chip.eu_elements(width)) * once for width in (_HALF_BYTES, 1, 2 * _HALF_BYTES)
    )
    return Steps16(once, halves, singles, words, ceil_div(size, chip.eu_elements(_HALF_BYTES)) * once)
