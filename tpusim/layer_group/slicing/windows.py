"""The cuts of a group output (layer_group.md 6)."""

from collections.abc import Iterable

from tpusim.isa.layout import align, ceil_div
from tpusim.ops.framework.base import Window


def even_windows(length: int, sections: int, step: int = 1) -> tuple[Window, ...]:
    """Near-even cuts, the first (length mod sections) one longer; with a step, sizes are multiples of it."""
    if step > 1:
        size = align(ceil_div(length, sections), step)
        return tuple((i, min(size, length - i)) for i in range(0, length, size))
    base, longer = divmod(length, sections)
    return _in_turn(base + (i < longer) for i in range(sections))


def lane_windows(channels: int, sections: int, lanes: int) -> tuple[Window, ...]:
    """Near-even cuts in whole rows of lanes, the last clipped: every slice starts at lane 0 (section 6)."""
    rows = even_windows(ceil_div(channels, lanes), sections)
    return tuple((start * lanes, min(size * lanes, channels - start * lanes)) for start, size in rows)


def _in_turn(sizes: Iterable[int]) -> tuple[Window, ...]:
    found: list[Window] = []
    end = 0
    for size in sizes:
        if size:
            found.append((end, size))
        end += size
    return tuple(found)
