"""How the library's kernel of attention in 16 bits cuts it (FAttention, numerics.md 11.6)."""

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div

_MOST_ROWS = 8
"""Rows of lanes of a tile at most."""
_SCORE_BYTES, _HEAD_BYTES = 14, 10
"""What a tile takes for each score and each element of a head: fitted to where the profile's tiles get fewer heads."""


def block_sizes(rows: int, keys: int, heads: int, size: int, chip: ChipSpec) -> tuple[int, int]:
    """(rows and keys, heads) of a tile: a power of two, and half of the heads again and again until they fit."""
    block = min(1 << min(rows, keys).bit_length() - 1, _MOST_ROWS * chip.lanes)
    each = ceil_div(block, chip.lanes) * (_SCORE_BYTES * block + _HEAD_BYTES * size)
    room = min(chip.lmem_bytes, chip.kernel_memory_bytes // chip.lanes or chip.lmem_bytes)
    while heads > 1 and heads * each > room:
        heads //= 2
    return block, heads
