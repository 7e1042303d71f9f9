"""Tensor copy (GDMA): its command, legality and time."""

from functools import cached_property
from math import prod
from typing import Literal

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.ir.packing import PER_BYTE
from tpusim.isa import transfers
from tpusim.isa.commands.base import ANYWHERE, Command, Place, Source
from tpusim.isa.commands.copies import copies
from tpusim.isa.finding import Finding
from tpusim.isa.layout import ceil_div, gmem_strides
from tpusim.isa.region import Length, View, byte_view, is_packed, itemsize
from tpusim.isa.transposition import Matrices, transposition, turned_matrices

TransferKind = Literal[
    "", "tensor", "lanes", "heads", "matrix", "broadcast", "places", "turns", "rows", "elements", "planes", "blocks",
    "repeats", "channels",
]  # fmt: skip
INSIDE: tuple[TransferKind, ...] = ("turns", "elements", "planes", "blocks", "repeats")
"""The kinds of copies inside global memory."""


class Move(Command, frozen=True, tag="move"):
    """Tensor copy (GDMA tensor/general): output[i] = input[i], same shape and dtype, any layouts and memories.

    whole: for a slice that a layer group loads or stores, (n, c, d, h, w) of its tensor as the group sees it.
    start: (n, c, d, h, w) of the first moved element; axis 0 of the views counts n or d.
    strides: elements of global memory between neighbours along (n, c, d, h, w), if the tensor is not stored in the
        order in which the group sees it.
    origin: elements of global memory before the first element, if padding surrounds the tensor, or
        if only the channels of this transfer have equal distances along c (it may be negative).
    start and whole are given together; without them the command moves a constant, or belongs to no group and no tile.
    kind: for a tile of a global layer, how the library moves it: a tensor, a tensor lane by lane, heads of attention, a
        matrix over all lanes, or a constant for every lane; "places", one transfer for each place of axis h. For a load
        of a layer group: "channels", channel by channel, each to all lanes that need it (`Conv.spread`). For a copy in
        global memory: "turns", several transpositions of matrices in sequence; "elements", one by one; "planes", the
        last two axes one after the other through local memory; "blocks", rows of blocks, whose last axes are (row in a
        block, column, column in a block); "repeats", gathers of rows that repeat one axis after the other. For both:
        "rows", whose rows are moved one by one even if they are neighbours. The kinds differ in cost (hardware.md 5.2).
    width: for a matrix, how many columns of a row the library gives to one lane; 0: as in the views.
    """

    engine = "gdma"
    inputs_ = ("input",)
    memory = None
    four_bits = ("input", "output")
    rules = (copies,)

    input: View
    output: View
    start: Place | None = None
    whole: Place | None = None
    strides: Place | None = None
    origin: int | None = None
    kind: TransferKind = ""
    width: Length = 0

    @cached_property
    def form(self) -> "Command":
        """The form of any command; if only one side is in global memory, its address does not matter either."""
        views = {"input": self.input, "output": self.output}
        if self.input.memory != self.output.memory:
            views = {name: replace(v, address=0) if v.memory == "gmem" else v for name, v in views.items()}
        return replace(
            self, **ANYWHERE, step=self._form_step, start=None, whole=None, strides=None, origin=None, **views
        )

    @property
    def owner(self) -> Source:
        """The source of the written bytes; bytes that come from global memory are marked as loaded."""
        return self.slice_owner(self.op, loaded=True) if self.direction == "s2l" else super().owner

    @property
    def direction(self) -> Literal["s2l", "l2s", "s2s", "l2l"]:
        """Source and target memory; s is system (global) memory, l local memory."""
        source = "s" if self.input.memory == "gmem" else "l"
        target = "s" if self.output.memory == "gmem" else "l"
        return f"{source}2{target}"  # type: ignore[return-value]

    @property
    def stage(self) -> str:
        """Its stage: a load, a store, or a copy inside one memory."""
        return {"s2l": "load", "l2s": "store"}.get(self.direction, "copy")

    def memory_misfit(self) -> Finding | None:
        """A copy by turns, planes, blocks, repeats or single elements stays in global memory."""
        if self.kind in INSIDE and (self.input.laned or self.output.laned):
            got = f"{self.input.memory} and {self.output.memory}"
            return Finding(f"a copy by {self.kind} inside gmem", got, "take kind away")
        return None

    def traffic(self) -> tuple[int, int]:
        """Its bytes; each of several transpositions loads and stores all of them."""
        if self.kind == "planes":
            planes, loaded = transfers.plane_bytes(self.input)
            return planes * loaded, self.output.nbytes
        if self.kind == "repeats":
            gathered = sum(self._gathered())
            return gathered, gathered
        times = len(turned_matrices(self.input)) if self.kind == "turns" else 1
        sides = (self.reads(), self.writes())
        load, store = (times * sum(view.nbytes for view in views if view.memory == "gmem") for views in sides)
        return load, store

    def dma_ns(self, chip: ChipSpec) -> float:
        """Latency + bytes / bandwidth of the direction; by runs on chips where short runs cost as much as long ones."""
        if is_packed(self.input.dtype):
            bytes_ = {"input": byte_view(self.input), "output": byte_view(self.output)}
            return replace(self, **bytes_, width=ceil_div(self.width, PER_BYTE)).dma_ns(chip)
        if self.kind == "channels":
            return self._channel_by_channel_ns(chip)
        inside = self.input.memory == self.output.memory
        if self.kind not in ("", *INSIDE) and not inside and chip.dma_run_bytes:
            return self._tile_ns(chip)
        if self.kind == "repeats" and chip.gather_gbs:
            latency = chip.latency_ns("s2s")
            return sum(latency + moved / chip.gather_gbs for moved in self._gathered())
        system = [view for _, view in self.operands() if view.memory == "gmem"]
        plain = all(view.interleave == 1 for _, view in self.operands())
        if plain and len(system) > 1:
            return self._system_copy_ns(chip)
        if plain and chip.dma_run_bytes:
            run = transfers.common_run(self.input, self.output, chip)
            pages = (
                transfers.pages(system[0], run, chip) if system else ceil_div(self.input.nbytes, chip.dma_page_bytes)
            )
            return transfers.transfer_ns(self.direction, transfers.by_runs(self.input.nbytes, run, pages, chip), chip)
        moved = max((transfers.burst_bytes(view, chip) for view in system), default=self.output.nbytes)
        return transfers.transfer_ns(self.direction, moved, chip)

    def _channel_by_channel_ns(self, chip: ChipSpec) -> float:
        """A load of an image with a broadcast per channel. Its pages do not matter (the same profile)."""
        channels, run = self.input.shape[1], transfers.common_run(self.input, self.output, chip)
        moved = transfers.by_runs(self.input.nbytes // channels, run, chip.dma_channels, chip)
        return channels * (chip.latency_ns("s2l") + moved / (chip.matrix_gbs or chip.bandwidth.s2l))

    def _gathered(self) -> list[int]:
        """The bytes of each gather: an axis that is read without a step repeats all before it, the shortest first."""
        source = zip(self.input.shape, gmem_strides(self.input), strict=True)
        times = sorted(size for size, step in source if size > 1 and not step)
        first = self.output.nbytes // prod(times)
        return [first * prod(times[: at + 1]) for at in range(len(times))]

    def _system_copy_ns(self, chip: ChipSpec) -> float:
        """A copy in global memory, by runs that are contiguous on both sides; the chip says at which ends pages count.

        The pages of an end are those in which its runs of rows begin. Single elements of a transposition go through
        local memory, where they are put in order.
        """
        if self.kind == "planes" and chip.dma_run_bytes:
            return transfers.plane_by_plane(self.input, self.output, chip)
        if self.kind == "blocks" and chip.dma_run_bytes:
            return transfers.rows_of_blocks(self.input, self.output, chip)
        if self.kind == "elements" and chip.dma_run_bytes:
            return transfers.transfer_ns("s2s", self.input.elements * chip.dma_run_bytes, chip)
        if self.kind == "turns" and chip.dma_run_bytes:
            return sum(_transposition_ns(self.input, matrices, chip) for matrices in turned_matrices(self.input))
        size, run = self.input.nbytes, transfers.common_run(self.input, self.output, chip)
        if self.kind == "rows":
            run = min(run, self.input.shape[-1] * itemsize(self.input.dtype))
        moved = transfers.by_runs(size, run, chip.dma_channels, chip)
        if chip.dma_run_bytes:
            moved *= self._paged(run, chip)
        direct = transfers.transfer_ns("s2s", moved, chip)
        if run > itemsize(self.input.dtype) or transfers.in_order(self.input) == transfers.in_order(self.output):
            return direct
        if chip.dma_run_bytes and (matrix := self._matrix()) is not None:
            return _transposition_ns(self.input, matrix, chip)
        whole = transfers.by_runs(size, size, ceil_div(size, chip.dma_page_bytes), chip)
        there, back = (transfers.transfer_ns(way, whole, chip) for way in ("s2l", "l2s"))
        return min(direct, there + back + self.output.elements / 2 * 1000 / chip.tiu_mhz)

    def _paged(self, run: int, chip: ChipSpec) -> float:
        """Factor of the time of a copy in global memory whose ends lie in few pages.

        Of a part of a tensor that becomes dense, the pages of the tensor count twice: those in which runs begin among
        the first pages, and all. Of other copies the chip says which ends count.
        """
        sides = self.input, self.output
        same_order = transfers.in_order(self.input) == transfers.in_order(self.output)
        if same_order and transfers.common_run(self.output, self.output, chip) == self.output.nbytes:
            pages = transfers.first_pages(self.input, run, chip), transfers.all_pages(self.input, run, chip)
        else:
            pages = tuple(transfers.begun_pages(side, chip) for side in sides[: chip.copy_page_ends])
        return prod(transfers.paged(count, chip) for count in pages)

    def _matrix(self) -> Matrices | None:
        """The matrices that a copy transposes, each dense on both sides; None if it is no transposition of matrices."""
        axes = self._merged()
        if len(axes) not in (2, 3):
            return None
        (rows, *source), (columns, *target) = axes[-1], axes[-2]
        count = self.input.elements // (rows * columns)
        return Matrices(count, rows, columns) if [*source, *target] == [columns, 1, 1, rows] else None

    def _merged(self) -> list[tuple[int, int, int]]:
        """(size, source step, target step) of each axis of a copy; adjacent axes dense on both sides are merged."""
        found = list[tuple[int, int, int]]()
        sides = (gmem_strides(view) for view in (self.input, self.output))
        for size, here, there in zip(self.input.shape, *sides, strict=True):
            if size > 1 and found and found[-1][1:] == (here * size, there * size):
                found[-1] = found[-1][0] * size, here, there
            elif size > 1:
                found.append((size, here, there))
        return found

    def _tile_ns(self, chip: ChipSpec) -> float:
        """A transfer of a tile: a tensor by its runs, a matrix by the cost of its runs, a constant by its bytes.

        Heads are batches in local memory; each head begins a run.
        """
        size, loads = self.input.nbytes, self.direction == "s2l"
        run = transfers.common_run(self.input, self.output, chip)
        match self.kind:
            case "matrix" if self.width:
                moved = max(size, self.input.elements / min(self.width, self.input.shape[-1]) * chip.dma_run_bytes)
            case "matrix":
                least = transfers.CAST_BYTES if chip.casts_fill_lanes else transfers.LEAST_WIDTH
                moved = transfers.over_lanes(self.input, min(least, run // itemsize(self.input.dtype)), chip)
            case "broadcast":
                moved = max(size, chip.dma_run_bytes)
            case "lanes":
                return self._lane_by_lane_ns(run, chip)
            case "places" if self.input.shape[2] > 1:
                return self.input.shape[2] * self._one_place()._tile_ns(chip)
            case "rows":
                run = min(run, self.input.shape[-1] * itemsize(self.input.dtype))
                moved = transfers.by_runs(size, run, transfers.all_pages(self.outside, run, chip), chip)
            case "heads":
                run = self.input.shape[-1] * itemsize(self.input.dtype)
                moved = transfers.by_runs(size, run, transfers.first_pages(self.outside, run, chip), chip)
            case _:
                moved = transfers.by_runs(size, run, transfers.tile_pages(self.outside, run, chip), chip)
        rate = chip.kernel_gbs or (chip.bandwidth.s2l if loads else chip.bandwidth.l2s)
        if self.kind in ("matrix", "broadcast"):
            rate = (chip.matrix_gbs if loads else chip.matrix_store_gbs) or rate
        return chip.latency_ns(self.direction) + moved / rate

    def _one_place(self) -> "Move":
        """The transfer of one place of axis h."""
        views = {name: _place(view) for name, view in (("input", self.input), ("output", self.output))}
        return replace(self, **views)

    def _lane_by_lane_ns(self, run: int, chip: ChipSpec) -> float:
        """Transfers for every lane of every batch: one command stands for all transfers that the library issues.

        Short runs that begin several pages apart use fewer memory channels.
        """
        outside = self.outside
        n, lanes, *plane = outside.shape
        strides = gmem_strides(outside)
        one = replace(outside, shape=(n, 1, *plane), layout="strided", strides=strides)
        apart = strides[2] * itemsize(one.dtype) // chip.dma_page_bytes if run < chip.dma_page_bytes else 1
        pages = min(transfers.pages(one, run, chip), ceil_div(chip.dma_channels, max(1, apart)))
        return lanes * transfers.kernel_ns(self.direction, transfers.by_runs(one.nbytes, run, pages, chip), chip)

    @property
    def outside(self) -> View:
        """The side of a transfer that lies in global memory."""
        return self.input if self.input.memory == "gmem" else self.output


def _place(view: View) -> View:
    n, c, _, w = view.shape
    if view.laned:
        return replace(view, shape=(n, c, 1, w), layout="aligned", strides=None)
    return replace(view, shape=(n, c, 1, w), layout="strided", strides=gmem_strides(view))


def _transposition_ns(view: View, matrices: Matrices, chip: ChipSpec) -> float:
    """A load, a copy inside the lanes and a store in sequence (the same profile)."""
    found = transposition(matrices, itemsize(view.dtype), chip)
    slow = transfers.paged(ceil_div(view.nbytes, chip.dma_page_bytes), chip)
    ways = (("s2l", found.loaded), ("l2s", found.stored))
    moved = sum(
        transfers.kernel_ns(way, max(view.nbytes, runs * chip.dma_run_bytes) * slow, chip) for way, runs in ways
    )
    return moved + found.steps * 1000 / chip.tiu_mhz
