"""How long a transfer takes (hardware.md 5.2), as TPU-MLIR's profile counts (U-88): by runs, pages and channels."""

from functools import lru_cache
from math import prod

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa import cycles_cv18xx
from tpusim.isa.blocks import blocks, contiguous_runs
from tpusim.isa.commands import (
    Arith,
    Command,
    Dequantize,
    Fill,
    Fn,
    GlobalKernel,
    HostCall,
    MatMul,
    Move,
    MoveRows,
    Quantize,
)
from tpusim.isa.functions import Arg
from tpusim.isa.layout import align, ceil_div, gmem_strides, lmem_strides
from tpusim.isa.region import View, is_packed, itemsize
from tpusim.isa.shapes import matrix_shape
from tpusim.isa.transposition import Matrices, transposition, turned_matrices

_EXTREMES = 4
"""Neighbours along the last axis whose extremes one lane looks for."""
_PARTS = 8
"""Parts of local memory one of which has room for what a tile of a kernel loads and stores (F-28)."""
_CAST_PARTS = 32
"""Parts of local memory one of which has room for what a tile of a cast loads and stores (F-27)."""
LEAST_WIDTH, CAST_BYTES = 8, 2
"""Elements that a lane gets at least of a tensor that is spread over all, and bytes of the shorter type of a cast."""


def _burst_bytes(view: View, chip: ChipSpec) -> int:
    """Bytes of a GMEM view with every contiguous run rounded up to whole DDR bursts."""
    runs = [contiguous_runs(block, itemsize(view.dtype), chip.dma_burst_bytes) for block in blocks(view, chip)]
    return sum(count * align(run, chip.dma_burst_bytes) for count, run in runs)


def _common_run(one: View, other: View, chip: ChipSpec) -> int:
    """Bytes of the runs that are contiguous on both sides of a copy."""
    strides = [lmem_strides(v, chip) if v.laned else gmem_strides(v) for v in (one, other)]
    run = 1
    across = 1 if one.laned or other.laned else None
    for axis in sorted(range(len(one.shape)), key=lambda a: (a == across, strides[1][a], -a)):
        size = one.shape[axis]
        if size == 1:
            continue
        if any(s[axis] != run for s in strides) or axis == across:
            break
        run *= size
    return run * itemsize(one.dtype)


def _by_runs(size: int, run: int, pages: int, chip: ChipSpec) -> float:
    """Bytes that runs cost as much as; where short ones cost as much as long ones, few pages have few channels."""
    if not chip.dma_run_bytes:
        return ceil_div(size, run) * align(run, chip.dma_burst_bytes)
    return max(size, ceil_div(size, run) * chip.dma_run_bytes) * _paged(pages, chip)


def _paged(pages: int, chip: ChipSpec) -> float:
    """How many times as long few pages take, which lie in few memory channels."""
    return chip.dma_channels / min(pages, chip.dma_channels)


def _pages(view: View, run: int, chip: ChipSpec) -> int:
    """Of the pages that the memory's channels have first, how many have the beginning of a run; a long one has several.

    Decision: the tensor's first byte is a page's.
    """
    if chip.dma_pages == "all" or _turned(view):
        return _tile_pages(view, run, chip)
    return _first_pages(view, run, chip)


def _turned(view: View) -> bool:
    """Whether the axes lie in another order in memory."""
    return _in_order(view) != sorted(_in_order(view))


def _tile_pages(view: View, run: int, chip: ChipSpec) -> int:
    """Of a tile of the library, or where the axes lie in another order: all pages count.

    Where neighbouring channels lie closer than rows these are the pages that the bytes alone would fill.
    """
    return ceil_div(view.nbytes, chip.dma_page_bytes) if _turned(view) else _all_pages(view, run, chip)


def _all_pages(view: View, run: int, chip: ChipSpec) -> int:
    """As many as runs begin in at most."""
    size, axes = itemsize(view.dtype), zip(view.shape, gmem_strides(view), strict=True)
    last = sum((length - 1) * stride for length, stride in axes) * size + size - run
    inside = (run - 1) // chip.dma_page_bytes
    count = ceil_div(view.nbytes, run) * (inside + 1)
    return max(1, min(count, last // chip.dma_page_bytes + inside + 1))


def _first_pages(view: View, run: int, chip: ChipSpec) -> int:
    """Of as many pages as there are channels, from the first byte on, those in which a run begins or goes on."""
    size = itemsize(view.dtype)
    axes = ((length, stride * size) for length, stride in zip(view.shape, gmem_strides(view), strict=True))
    return _pages_met(tuple((length, step) for length, step in axes if length > 1 and step >= run), run, chip)


@lru_cache(1 << 12)
def _pages_met(axes: tuple[tuple[int, int], ...], run: int, chip: ChipSpec) -> int:
    """axes: length and distance in bytes of those that no run goes along."""
    page, found = chip.dma_page_bytes, {0}
    end = page * chip.dma_channels
    for length, step in axes:
        found = {at for start in found for at in range(start, min(end, start + length * step), step)}
    pages = (range(at // page, at // page + ceil_div(run, page)) for at in found)
    return len({page for each in pages for page in each if page < chip.dma_channels})


def _begun_pages(view: View, chip: ChipSpec) -> int:
    """Pages in which the runs of a tensor's last two axes begin, in the order of memory."""
    strides, size = gmem_strides(view), itemsize(view.dtype)
    run = 1
    for length, step in list(zip(view.shape, strides, strict=True))[:-3:-1]:
        if length > 1 and step != run:
            break
        run *= length
    ordered = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    seen = replace(
        view, shape=tuple(view.shape[a] for a in ordered), layout="strided", strides=tuple(strides[a] for a in ordered)
    )
    return _pages(seen, run * size, chip)


def _transfer_ns(direction: str, moved: float, chip: ChipSpec) -> float:
    return chip.latency_ns(direction) + moved / float(getattr(chip.bandwidth, direction))


def _system_copy_ns(command: Move, chip: ChipSpec) -> float:
    """A copy in global memory, by runs that are contiguous on both sides; few pages count at the ends the chip says.

    Pages are those in which an end's own runs of rows begin. Single elements of a transposition go through local
    memory, where they are put in order.
    """
    if command.kind == "turns" and chip.dma_run_bytes:
        return sum(_transposition_ns(command.input, matrices, chip) for matrices in turned_matrices(command))
    size, run = command.input.nbytes, _common_run(command.input, command.output, chip)
    moved = _by_runs(size, run, chip.dma_channels, chip)
    if chip.dma_run_bytes:
        for end in (command.input, command.output)[: chip.copy_page_ends]:
            moved *= _paged(_begun_pages(end, chip), chip)
    direct = _transfer_ns("s2s", moved, chip)
    if run > itemsize(command.input.dtype) or _in_order(command.input) == _in_order(command.output):
        return direct
    if chip.dma_run_bytes and (matrix := _matrix_of(command)) is not None:
        return _transposition_ns(command.input, matrix, chip)
    whole = _by_runs(size, size, ceil_div(size, chip.dma_page_bytes), chip)
    there, back = (_transfer_ns(way, whole, chip) for way in ("s2l", "l2s"))
    return min(direct, there + back + command.output.elements / 2 * 1000 / chip.tiu_mhz)


def _matrix_of(command: Move) -> Matrices | None:
    """The matrices that a copy transposes, each dense on both sides; None for another order of axes."""
    axes = _merged(command)
    if len(axes) not in (2, 3):
        return None
    (rows, *source), (columns, *target) = axes[-1], axes[-2]
    count = command.input.elements // (rows * columns)
    return Matrices(count, rows, columns) if [*source, *target] == [columns, 1, 1, rows] else None


def _merged(command: Move) -> list[tuple[int, int, int]]:
    """(size, step in the source, step in the target) of axes of a copy; neighbours dense on both sides are one."""
    found = list[tuple[int, int, int]]()
    sides = (gmem_strides(view) for view in (command.input, command.output))
    for size, here, there in zip(command.input.shape, *sides, strict=True):
        if size > 1 and found and found[-1][1:] == (here * size, there * size):
            found[-1] = found[-1][0] * size, here, there
        elif size > 1:
            found.append((size, here, there))
    return found


def _transposition_ns(view: View, matrices: Matrices, chip: ChipSpec) -> float:
    """A load, a copy inside the lanes and a store, one after the other (the same profile)."""
    found = transposition(matrices, itemsize(view.dtype), chip)
    slow = _paged(ceil_div(view.nbytes, chip.dma_page_bytes), chip)
    ways = (("s2l", found.loaded), ("l2s", found.stored))
    moved = sum(_kernel_ns(way, max(view.nbytes, runs * chip.dma_run_bytes) * slow, chip) for way, runs in ways)
    return moved + found.steps * 1000 / chip.tiu_mhz


def _kernel_ns(direction: str, moved: float, chip: ChipSpec) -> float:
    """A transfer of a library kernel."""
    return chip.latency_ns(direction) + moved / (chip.kernel_gbs or float(getattr(chip.bandwidth, direction)))


def _in_order(view: View) -> list[int]:
    """The axes of a tensor in global memory by their strides."""
    strides = gmem_strides(view)
    return sorted((axis for axis, size in enumerate(view.shape) if size > 1), key=lambda axis: -strides[axis])


def traffic(command: Command) -> tuple[int, int]:
    """(bytes loaded from, bytes stored to) global memory: payload, without padding; of FN what it moves for itself.

    What is put into another order by several transpositions is loaded and stored by each.
    """
    if isinstance(command, Fn):
        shapes = [view.shape for view in command.inputs]
        return command.function.moved(shapes, command.output.shape, itemsize(command.output.dtype))
    if isinstance(command, GlobalKernel):
        return command.load_bytes, command.store_bytes
    if isinstance(command, MoveRows):
        return command.indices.nbytes + command.output.nbytes, command.output.nbytes
    if isinstance(command, Move | Fill):
        times = len(turned_matrices(command)) if isinstance(command, Move) and command.kind == "turns" else 1
        sides = (command.reads(), command.writes())
        load, store = (times * sum(view.nbytes for view in views if view.memory == "gmem") for views in sides)
        return load, store
    return 0, 0


def dma_ns(command: Move | Fill, chip: ChipSpec) -> float:
    """DMA time: latency + bytes / bandwidth of the direction; a fill counts as l2l (local memory) or l2s (global).

    Runs count where short ones cost as much as long ones; there a fill of global memory counts as a load.
    """
    if chip.cycle_model == "cv18xx":
        return cycles_cv18xx.dma_ns(command, chip)
    if isinstance(command, MoveRows):
        return _rows_ns(command, chip)
    if isinstance(command, Move) and command.kind not in ("", "turns") and chip.dma_run_bytes:
        return _tile_ns(command, chip)
    system = [view for _, view in command.operands() if view.memory == "gmem"]
    plain = all(view.interleave == 1 and not is_packed(view.dtype) for _, view in command.operands())
    if isinstance(command, Move) and plain and len(system) > 1:
        return _system_copy_ns(command, chip)
    if isinstance(command, Fill) and plain and system and chip.dma_run_bytes:
        runs = command.output.nbytes // _common_run(command.output, command.output, chip)
        return _transfer_ns("s2l", max(command.output.nbytes, runs * chip.dma_run_bytes), chip)
    direction = command.direction if isinstance(command, Move) else "l2s" if system else "l2l"
    if isinstance(command, Move) and plain and chip.dma_run_bytes:
        run = _common_run(command.input, command.output, chip)
        pages = _pages(system[0], run, chip) if system else ceil_div(command.input.nbytes, chip.dma_page_bytes)
        return _transfer_ns(direction, _by_runs(command.input.nbytes, run, pages, chip), chip)
    moved = max((_burst_bytes(view, chip) for view in system), default=command.output.nbytes)
    return _transfer_ns(direction, moved, chip)


def _rows_ns(command: MoveRows, chip: ChipSpec) -> float:
    """A load of the indices into every lane, then the rows, which cost their bytes however short they are."""
    spread = command.indices.nbytes * chip.lanes / (chip.matrix_gbs or chip.kernel_gbs or chip.bandwidth.s2l)
    gathered = command.output.nbytes / (chip.gather_gbs or chip.bandwidth.s2s)
    return chip.latency_ns("s2l") + spread + chip.latency_ns("s2s") + gathered


def _tile_ns(command: Move, chip: ChipSpec) -> float:
    """A transfer of a tile: a tensor by its runs, a matrix by what its runs cost, a constant by its bytes.

    Of heads, which are batches in local memory, each begins a run.
    """
    size, loads = command.input.nbytes, command.direction == "s2l"
    run = _common_run(command.input, command.output, chip)
    match command.kind:
        case "matrix" if command.width:
            moved = max(size, command.input.elements / min(command.width, command.input.shape[-1]) * chip.dma_run_bytes)
        case "matrix":
            least = CAST_BYTES if chip.casts_fill_lanes else LEAST_WIDTH
            moved = _spread(command.input, min(least, run // itemsize(command.input.dtype)), chip)
        case "broadcast":
            moved = max(size, chip.dma_run_bytes)
        case "lanes":
            return _lane_by_lane_ns(command, run, chip)
        case "heads":
            run = command.input.shape[-1] * itemsize(command.input.dtype)
            moved = _by_runs(size, run, _first_pages(_outside(command), run, chip), chip)
        case _:
            moved = _by_runs(size, run, _tile_pages(_outside(command), run, chip), chip)
    rate = chip.kernel_gbs or (chip.bandwidth.s2l if loads else chip.bandwidth.l2s)
    if command.kind in ("matrix", "broadcast"):
        rate = (chip.matrix_gbs if loads else chip.matrix_store_gbs) or rate
    return chip.latency_ns(command.direction) + moved / rate


def _lane_by_lane_ns(command: Move, run: int, chip: ChipSpec) -> float:
    """A transfer for every lane of a batch, of all batches: a command stands for all that the library issues.

    Short runs that begin some pages apart fall into fewer memory channels.
    """
    outside = _outside(command)
    n, lanes, *plane = outside.shape
    strides = gmem_strides(outside)
    one = replace(outside, shape=(n, 1, *plane), layout="strided", strides=strides)
    apart = strides[2] * itemsize(one.dtype) // chip.dma_page_bytes if run < chip.dma_page_bytes else 1
    pages = min(_pages(one, run, chip), ceil_div(chip.dma_channels, max(1, apart)))
    return lanes * _kernel_ns(command.direction, _by_runs(one.nbytes, run, pages, chip), chip)


def kernel_dma_ns(command: GlobalKernel, chip: ChipSpec) -> float:
    """DMA time of a global kernel: loads and stores, a latency each per tile (DL-06), by runs where these count.

    A call of the host has none.
    """
    if isinstance(command, HostCall):
        return 0.0
    load, store = chip.kernel_gbs or chip.bandwidth.s2l, chip.kernel_gbs or chip.bandwidth.l2s
    loaded, stored = float(command.load_bytes), float(command.store_bytes)
    if chip.dma_run_bytes:
        loaded *= _lengthened(command.reads(), command.body, chip)
        stored *= _lengthened(command.writes(), command.body, chip)
    waits = max(command.tiles, _matrix_tiles(command.body, chip))
    return waits * (chip.latency_ns("s2l") + chip.latency_ns("l2s")) + loaded / load + stored / store


def kernel_tiles(command: GlobalKernel, chip: ChipSpec) -> float:
    """How many pieces a kernel goes through, of which one is moved while another is computed; fractions: no jumps.

    Decision: what moves for one of them fills an eighth of local memory, beside buffers and what is on its way; of a
    cast a 32nd (the tiles of the real profile are a 30th on BM1688, a 34th on BM1684X). A kernel is made for its chip:
    where more or less local memory is tried its tiles stay as they are.
    """
    parts = _CAST_PARTS if _casts(command.body) else _PARTS
    room = chip.kernel_memory_bytes or chip.lanes * chip.lmem_bytes
    moved = (command.load_bytes + command.store_bytes) * parts / room
    return max(1.0, moved, _matrix_tiles(command.body, chip))


def _matrix_tiles(body: Command, chip: ChipSpec) -> int:
    """Pieces that the product of one row comes in: a load of the row and one of two matrix rows per lane for each."""
    if not isinstance(body, MatMul):
        return 1
    rows, inner = matrix_shape(body.left, body.left_transpose)
    return ceil_div(inner, 2 * chip.lanes) if rows == 1 else 1


def _lengthened(views: tuple[View, ...], body: Command, chip: ChipSpec) -> float:
    """How many times as long as their bytes the transfers of a kernel's operands take."""
    size = sum(view.nbytes for view in views)
    return sum(_kernel_bytes(view, body, chip) for view in views) / size if size else 1.0


def _kernel_bytes(view: View, body: Command, chip: ChipSpec) -> float:
    """Bytes that a kernel's operand costs as much as, by rows of a matrix, planes of channels, or shares of lanes."""
    size = itemsize(view.dtype)
    if fills_lanes(body, chip):
        return _spread(view, max(1, CAST_BYTES // min(itemsize(v.dtype) for _, v in body.operands())), chip)
    run = prod(view.shape[2:])
    if isinstance(body, Fn) and isinstance(body.function, Arg):
        run = min(run, _EXTREMES)
    if run == 1 and isinstance(body, Fn | MatMul):
        run = prod(view.shape[1:] or view.shape)
    return _by_runs(view.nbytes, run * size, _pages(view, run * size, chip), chip)


def _spread(view: View, least: int, chip: ChipSpec) -> float:
    """Bytes that a matrix costs as much as, whose equal runs go to all lanes, of so many elements at least."""
    width = max(least, ceil_div(view.elements, chip.lanes))
    return max(view.nbytes, view.elements / width * chip.dma_run_bytes)


def _outside(command: Move) -> View:
    """The side of a transfer that lies in global memory."""
    return command.input if command.input.memory == "gmem" else command.output


def _casts(body: Command) -> bool:
    return isinstance(body, Quantize | Dequantize) or (isinstance(body, Arith) and body.kind == "copy")


def fills_lanes(body: Command, chip: ChipSpec) -> bool:
    """Whether a kernel gives every lane an equal share of its elements, whatever their shape."""
    return _casts(body) and chip.casts_fill_lanes and body.writes()[0].memory == "gmem"
