"""The sizes of the tiles of a form, their addresses in local memory, and their transfers."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import inf

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, Fn, MatMul
from tpusim.isa.functions import A16MatMul, FlashAttention, Function
from tpusim.isa.layout import align, ceil_div, lmem_bytes
from tpusim.kernel_library.a16 import a16_pieces
from tpusim.kernel_library.attention import attention_pieces
from tpusim.kernel_library.forms import Form, Part, forms
from tpusim.kernel_library.pieces import Piece, Transfer, Window, transfers
from tpusim.kernel_library.products import product_pieces

Sizes = tuple[int, int, int, int]
_REACH_BITS = 48
"""Operands without addresses are 2 to this power bytes apart."""
LEAST_SECTIONS = 3
"""A load, a computation and a store that overlap."""
_BATCH, _LANES, _COLUMNS = 0, 1, 3
"""Axes: the first is cut at whole words, the axis over the lanes at whole rows of lanes, the last into runs."""


def tiles(body: Command, chip: ChipSpec) -> tuple[Piece, ...]:
    """The tiles of a command over whole tensors in global memory, in order; none if no form fits.

    The library is written for its chip, so a variant of the chip with more local memory has the same tiles.
    """
    views = [view for _, view in body.operands()]
    bases = sorted({view.address for view in views})
    symbolic = [replace(view, address=bases.index(view.address) << _REACH_BITS) for view in views]
    return tuple(_based(piece, bases) for piece in _symbolic(body.with_operands(symbolic).form, chip))


def _based(piece: Piece, bases: Sequence[int]) -> Piece:
    """The piece with real addresses instead of symbolic ones."""

    def moved(one: Transfer) -> Transfer:
        base, offset = divmod(one.outside.address, 1 << _REACH_BITS)
        outside = replace(one.outside, address=bases[base] + offset)
        return one._replace(outside=outside)

    loads, operands = tuple(map(moved, piece.loads)), tuple(map(moved, piece.operands))
    return piece._replace(loads=loads, operands=operands, store=piece.store and moved(piece.store))


@lru_cache(16)
def _symbolic(body: Command, chip: ChipSpec) -> tuple[Piece, ...]:
    """The tiles for symbolic addresses, which are far apart; cached, because layers and heads repeat."""
    if isinstance(body, Fn) and (pieces_of := _PIECES.get(type(body.function))) is not None:
        return pieces_of(body, chip)
    if isinstance(body, MatMul) and body.on_vectors and (pieces := product_pieces(body, chip)):
        return pieces
    found: list[Piece] = []
    base = 0
    filled = min(chip.lmem_bytes, (chip.kernel_memory_bytes or inf) / chip.lanes)
    for form in forms(body, chip):
        room = chip.lmem_bytes - base
        sizes = _sizes(form, chip, int(filled / form.share), room) or _sizes(form, chip, room, room)
        if sizes is None:
            return ()
        found += _pieces(form, sizes, chip, base, len(found))
        base += sum(_laid_out(form, sizes, chip)[-1])
    return tuple(found)


_PIECES: dict[type[Function], Callable[[Fn, ChipSpec], tuple[Piece, ...]]] = {
    A16MatMul: a16_pieces,
    FlashAttention: attention_pieces,
}
"""Functions whose tiles are more than windows of the result."""


def _pieces(form: Form, sizes: Sizes, chip: ChipSpec, base: int, before: int) -> list[Piece]:
    whole = form.result.view.shape
    starts = list(product(*(range(0, n, size) for n, size in zip(whole, sizes, strict=True))))
    columns = [
        _column(part, starts, sizes, whole, places, before, again=form.again)
        for part, places in zip(form.parts, _addresses(form, sizes, chip, base), strict=True)
    ]
    found: list[Piece] = []
    for number in range(len(starts)):
        *operands, (store, _) = (column[number] for column in columns)
        moved = tuple(transfer for transfer, _ in operands)
        loads = tuple(transfer for transfer, by in operands if by == before + number)
        body = form.body.with_operands([t.inside for t in (*moved, store)])
        loaded = tuple(by for _, by in operands)
        found.append(Piece(before + number, loads, moved, loaded, body, store, first=form.one_by_one))
    return found


def _column(
    part: Part,
    starts: Sequence[tuple[int, ...]],
    sizes: Sizes,
    whole: tuple[int, ...],
    places: list[int],
    before: int,
    *,
    again: bool,
) -> list[tuple[Transfer, int]]:
    """(window of one operand, piece that loads it) for each tile; an equal window is not loaded again."""
    found: list[tuple[Transfer, int]] = []
    transfer, last, loads = transfers(part), None, 0
    for number, start in enumerate(starts):
        window = _window(part, start, sizes, whole)
        if window == last and not again:
            found.append(found[-1])
        else:
            found.append((transfer(window, places[loads % len(places)]), before + number))
            loads += 1
        last = window
    return found


# --------------------------------------------------------------------------------------------------------------- sizes


def _sizes(form: Form, chip: ChipSpec, share: int, room: int) -> Sizes | None:
    """The largest extents of one tile that fit; if possible in long runs, even if the tile then exceeds its share."""
    if form.even is not None and (sizes := _sections(form, chip, form.even)):
        return sizes
    runs = max(chip.eu_bytes, chip.dma_run_bytes)
    return _largest(form, chip, share, room, runs, least=True) or _largest(form, chip, share, room, chip.eu_elements(4))


def _largest(form: Form, chip: ChipSpec, share: int, room: int, columns: int, *, least: bool = False) -> Sizes | None:
    """The extents of a tile: axes are cut in order, each as far as necessary, the last at multiples of `columns`.

    least: if nothing fits, the smallest tile is taken although it exceeds its share.
    """
    n, c, h, w = form.result.view.shape
    sizes: Sizes = (1 if form.one_by_one else n, min(c, form.most or c), h, min(w, form.columns or w))
    if _fits(form, sizes, chip, share, room):
        return sizes
    for axis in form.cuts:
        unit = {_BATCH: form.words, _LANES: form.most or chip.lanes, _COLUMNS: columns}.get(axis, 1)
        able = [_with(sizes, axis, size) for size in (*range(unit, sizes[axis], unit), sizes[axis])]
        fitting = bisect_left(able, True, key=lambda tile: not _fits(form, tile, chip, share, room))
        if fitting:
            return able[fitting - 1]
        sizes = able[0]
    return sizes if least and _fits(form, sizes, chip, room, room) else None


def _sections(form: Form, chip: ChipSpec, axis: int) -> Sizes | None:
    """The extents of one of equal sections along an axis; None if even the smallest do not fit."""
    n, c, h, w = form.result.view.shape
    whole, bank = (n, c, h, w), chip.lmem_bank_bytes

    def exceeds(count: int) -> bool:
        sizes = _with(whole, axis, ceil_div(whole[axis], count))
        windows = [_window(part, (0, 0, 0, 0), sizes, whole)[1] for part in form.parts]
        banks = 2 * sum(ceil_div(_bytes(part, sizes, form, chip), bank) for part in form.parts)
        return banks > chip.lmem_banks or any(max(window) > chip.max_axis for window in windows)

    counts = [1, *range(LEAST_SECTIONS, max(LEAST_SECTIONS, whole[axis]) + 1)]
    found = bisect_left(counts, True, key=lambda count: not exceeds(count))
    return _with(whole, axis, ceil_div(whole[axis], counts[found])) if found < len(counts) else None


def _with(sizes: Sizes, axis: int, size: int) -> Sizes:
    n, c, h, w = (size if at == axis else old for at, old in enumerate(sizes))
    return n, c, h, w


def _fits(form: Form, sizes: Sizes, chip: ChipSpec, share: int, room: int) -> bool:
    """Whether the areas of one tile fit a share, or those of several tiles two shares, and no axis is too long."""
    windows = [_window(part, (0, 0, 0, 0), sizes, form.result.view.shape)[1] for part in form.parts]
    if any(max(window) > chip.max_axis for window in windows):
        return False
    several = sizes != form.result.view.shape
    return sum(_laid_out(form, sizes, chip)[-1]) <= min((1 + several) * share, room)


def _copies(part: Part, form: Form, sizes: Sizes) -> int:
    """The number of areas of an operand or the result: two if its window differs between tiles."""
    whole = form.result.view.shape
    return 1 + any(axis is not None and sizes[axis] < whole[axis] for axis in part.follows)


def _laid_out(form: Form, sizes: Sizes, chip: ChipSpec) -> list[tuple[int, int]]:
    """(address, bytes) of all areas in local memory, which are adjacent."""
    found: list[tuple[int, int]] = []
    at = 0
    for part in form.parts:
        size = align(_bytes(part, sizes, form, chip), chip.eu_bytes)
        for _ in range(_copies(part, form, sizes)):
            found.append((at, size))
            at += size
    return found


def _bytes(part: Part, sizes: Sizes, form: Form, chip: ChipSpec) -> int:
    n, c, h, w = _window(part, (0, 0, 0, 0), sizes, form.result.view.shape)[1]
    return lmem_bytes((n, c, h, w), part.view.dtype, chip, aligned=not part.compact, packed=part.words)


def _addresses(form: Form, sizes: Sizes, chip: ChipSpec, base: int) -> list[list[int]]:
    """The addresses of each operand and the result: one, or one each for even and odd loads."""
    areas = iter(_laid_out(form, sizes, chip))
    return [[base + next(areas)[0] for _ in range(_copies(part, form, sizes))] for part in form.parts]


# ------------------------------------------------------------------------------------------------------------- windows


def _window(part: Part, start: tuple[int, ...], sizes: Sizes, whole: tuple[int, ...]) -> Window:
    """(first element, extents) of the window of an operand for a tile of the result."""
    first, extents = [0] * 4, list(part.view.shape)
    for axis, follows in enumerate(part.follows):
        if follows is not None:
            first[axis] = start[follows]
            extents[axis] = min(sizes[follows], whole[follows] - start[follows])
    return first, extents
