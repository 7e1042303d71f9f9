"""Another order of a tensor's axes by transpositions of matrices, as the library does it (hardware.md 5.2, DH-08)."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.layout import ceil_div, gmem_strides
from tpusim.isa.region import View

_COPIED = 4
"""Most axes that a single copy can reorder, if rows stay whole."""


class Matrices(NamedTuple):
    """`number` matrices of one shape, each of which is transposed."""

    number: int
    rows: int
    columns: int


class Transposition(NamedTuple):
    """The work of a chip to transpose matrices: vector steps in its lanes, and runs that are loaded and stored."""

    steps: int
    loaded: int
    stored: int


def transpositions(shape: Sequence[int], order: Sequence[int]) -> tuple[Matrices, ...]:
    """The matrices that are transposed in sequence until axis i of the result is the operand's order[i].

    Axes that stay adjacent count as one. For each axis of the result, from the first on, the remaining axes are rotated
    until the wanted axis comes first: the axes before it are the matrix's rows, the others its columns. Empty if a
    single copy is enough: up to four axes, the last of which stays last.
    """
    parts = _together(shape, order)
    sizes = [prod(shape[axis] for axis in part) for part in parts]
    now = sorted(range(len(parts)), key=lambda part: parts[part][0])
    if now[-1:] == [len(parts) - 1] and len(parts) <= _COPIED:
        return ()
    found = list[Matrices]()
    for place in range(len(parts)):
        at = now.index(place)
        if at > place:
            number, rows, columns = (prod(sizes[i] for i in now[a:b]) for a, b in ((0, place), (place, at), (at, None)))
            found.append(Matrices(number, rows, columns))
            now[place:] = now[at:] + now[place:at]
    return tuple(found)


def keeps_order(shape: Sequence[int], order: Sequence[int]) -> bool:
    """Whether the elements keep their order in memory."""
    return len(_together(shape, order)) <= 1


def _together(shape: Sequence[int], order: Sequence[int]) -> list[list[int]]:
    """The operand's axes in the order of the result; adjacent axes that stay adjacent form a list; none of length 1."""
    place = {axis: i for i, axis in enumerate(axis for axis, size in enumerate(shape) if size > 1)}
    found = list[list[int]]()
    for axis in order:
        if axis in place and found and place[found[-1][-1]] + 1 == place[axis]:
            found[-1].append(axis)
        elif axis in place:
            found.append([axis])
    return found


def turned_matrices(view: View) -> tuple[Matrices, ...]:
    """The transpositions that a copy of a whole tensor stands for; the result is stored in the order of its axes."""
    strides = gmem_strides(view)
    before = sorted(range(len(strides)), key=lambda axis: (-strides[axis], axis))
    return transpositions([view.shape[axis] for axis in before], [before.index(a) for a in range(len(before))])


def transposition(matrices: Matrices, size: int, chip: ChipSpec) -> Transposition:
    """A chip's steps and runs for matrices of elements of `size` bytes.

    The longer axis is divided evenly over the lanes if it is longer than the numbers of lanes and of matrices and fills
    at least half the lanes; the other axis then moves in runs of a part. Else the lanes share whole matrices.
    """
    number, rows, columns = matrices
    vector, longer, shorter = chip.eu_elements(size), max(rows, columns), min(rows, columns)
    part = _even(longer, chip.lanes)
    if longer <= max(chip.lanes, number) or 2 * longer < part * chip.lanes:
        steps = _even(number, chip.lanes) * ceil_div(rows * columns, vector) * min(rows, vector)
        return Transposition(steps, number, number)
    parts = number * longer // part
    runs = (parts * shorter, parts) if columns >= rows else (parts, parts * shorter)
    return Transposition(number * ceil_div(part * shorter, vector) * min(part, vector), *runs)


def _even(number: int, lanes: int) -> int:
    """Passes over the lanes for `number` items, if every pass has equally many."""
    return next(turns for turns in range(ceil_div(number, lanes), number + 1) if number % turns == 0)
