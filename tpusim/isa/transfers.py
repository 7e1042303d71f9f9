"""How long transfers take (hardware.md 5.2), as TPU-MLIR's profile counts (U-88): by runs, pages and channels."""

from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.blocks import blocks, contiguous_runs
from tpusim.isa.layout import align, ceil_div, gmem_strides, lmem_strides
from tpusim.isa.region import View, itemsize

LEAST_WIDTH, CAST_BYTES = 8, 2
"""The fewest elements per lane of a tensor that all lanes share, and the bytes of the shorter type of a cast."""


class KernelTransfers(NamedTuple):
    """The transfers of a library kernel: their time in nanoseconds, bytes loaded and bytes stored."""

    ns: float
    loaded: int
    stored: int


def burst_bytes(view: View, chip: ChipSpec) -> int:
    """Bytes of a GMEM view with every contiguous run rounded up to whole DDR bursts."""
    runs = [contiguous_runs(block, itemsize(view.dtype), chip.dma_burst_bytes) for block in blocks(view, chip)]
    return sum(count * align(run, chip.dma_burst_bytes) for count, run in runs)


def common_run(one: View, other: View, chip: ChipSpec) -> int:
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


def by_runs(size: int, run: int, pages: int, chip: ChipSpec) -> float:
    """Equivalent bytes of runs; on chips where short runs cost as much as long ones, few pages use few channels."""
    if not chip.dma_run_bytes:
        return ceil_div(size, run) * align(run, chip.dma_burst_bytes)
    return max(size, ceil_div(size, run) * chip.dma_run_bytes) * paged(pages, chip)


def paged(pages: int, chip: ChipSpec) -> float:
    """Factor of the time if the pages are few and lie in few memory channels."""
    return chip.dma_channels / min(pages, chip.dma_channels)


def pages(view: View, run: int, chip: ChipSpec) -> int:
    """How many of the first pages (one per memory channel) have the beginning of a run; a long run counts several.

    Decision: the tensor begins at the first byte of a page.
    """
    if chip.counts_all_pages or _turned(view):
        return tile_pages(view, run, chip)
    return first_pages(view, run, chip)


def _turned(view: View) -> bool:
    """Whether the axes lie in another order in memory."""
    return in_order(view) != sorted(in_order(view))


def tile_pages(view: View, run: int, chip: ChipSpec) -> int:
    """Pages of a library tile, or of axes in another memory order: all pages count.

    If adjacent channels lie closer than rows, it is the number of pages that the bytes alone would fill.
    """
    return ceil_div(view.nbytes, chip.dma_page_bytes) if _turned(view) else all_pages(view, run, chip)


def all_pages(view: View, run: int, chip: ChipSpec) -> int:
    """The most pages in which runs can begin."""
    size, axes = itemsize(view.dtype), zip(view.shape, gmem_strides(view), strict=True)
    last = sum((length - 1) * stride for length, stride in axes) * size + size - run
    inside = (run - 1) // chip.dma_page_bytes
    count = ceil_div(view.nbytes, run) * (inside + 1)
    return max(1, min(count, last // chip.dma_page_bytes + inside + 1))


def first_pages(view: View, run: int, chip: ChipSpec) -> int:
    """Number of the first pages (one per memory channel) in which a run begins or continues."""
    size = itemsize(view.dtype)
    axes = ((length, stride * size) for length, stride in zip(view.shape, gmem_strides(view), strict=True))
    return _pages_met(tuple((length, step) for length, step in axes if length > 1 and step >= run), run, chip)


@lru_cache(1 << 12)
def _pages_met(axes: tuple[tuple[int, int], ...], run: int, chip: ChipSpec) -> int:
    """Pages in which runs begin. axes: (length, distance in bytes) of the axes that no run follows."""
    page, found = chip.dma_page_bytes, {0}
    end = page * chip.dma_channels
    for length, step in axes:
        found = {at for start in found for at in range(start, min(end, start + length * step), step)}
    pages = (range(at // page, at // page + ceil_div(run, page)) for at in found)
    return len({page for each in pages for page in each if page < chip.dma_channels})


def plane_bytes(source: View) -> tuple[int, int]:
    """(planes, bytes loaded of each) if the last two axes of all batch items (axis 0) are one plane.

    Each row is loaded from its first to its last element.
    """
    batch, *_, rows, columns = source.shape
    run = (columns - 1) * gmem_strides(source)[-1] + 1
    return source.elements // (batch * rows * columns), batch * rows * run * itemsize(source.dtype)


def plane_by_plane(source: View, target: View, chip: ChipSpec) -> float:
    """Nanoseconds of a copy whose planes (`plane_bytes`) pass local memory one after the other."""
    (planes, loaded), size, ns = plane_bytes(source), itemsize(source.dtype), 0.0
    for way, view, moved in (("s2l", source, loaded), ("l2s", target, source.nbytes // planes)):
        batch, *_, rows, _ = view.shape
        axes = tuple((n, gmem_strides(view)[at] * size) for n, at in ((batch, 0), (rows, -2)) if n > 1)
        run = moved // (batch * rows)
        ns += planes * transfer_ns(way, by_runs(moved, run, _pages_met(axes, run, chip), chip), chip)
    return ns


def rows_of_blocks(source: View, target: View, chip: ChipSpec) -> float:
    """Nanoseconds of a copy by rows of blocks: the last axes are rows of blocks, rows and columns in a block.

    For each row of the blocks the library loads runs of the columns and stores whole rows of the target.
    """
    height, columns, width = source.shape[-3:]
    size, ns = itemsize(source.dtype), 0.0
    for way, view, run in (("s2l", source, columns * size), ("l2s", target, columns * width * size)):
        axes = [(n, step * size) for n, step in zip(view.shape, gmem_strides(view), strict=True)]
        begun = [(n, step) for n, step in (*axes[:-3], *axes[-2:]) if n > 1 and step >= run]
        met = _pages_met(tuple(sorted(begun, key=lambda axis: -axis[1])), run, chip)
        ns += height * transfer_ns(way, by_runs(source.nbytes // height, run, met, chip), chip)
    return ns


def begun_pages(view: View, chip: ChipSpec) -> int:
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
    return pages(seen, run * size, chip)


def transfer_ns(direction: str, moved: float, chip: ChipSpec) -> float:
    """Nanoseconds of a transfer of `moved` bytes at the rate of its direction."""
    return chip.latency_ns(direction) + moved / float(getattr(chip.bandwidth, direction))


def kernel_ns(direction: str, moved: float, chip: ChipSpec) -> float:
    """Nanoseconds of a transfer of a library kernel."""
    return chip.latency_ns(direction) + moved / (chip.kernel_gbs or float(getattr(chip.bandwidth, direction)))


def in_order(view: View) -> list[int]:
    """The axes of a tensor in global memory by their strides."""
    strides = gmem_strides(view)
    return sorted((axis for axis, size in enumerate(view.shape) if size > 1), key=lambda axis: -strides[axis])


def over_lanes(view: View, least: int, chip: ChipSpec) -> float:
    """Equivalent bytes of a matrix whose equal runs, of at least `least` elements, go to all lanes."""
    width = max(least, ceil_div(view.elements, chip.lanes))
    return max(view.nbytes, view.elements / width * chip.dma_run_bytes)
