"""The machine's memories: a core's local memory of every lane, and one buffer per region of global memory (DH-05).

`Memory` locates the bytes of a view; `Machine` reads and writes values through it; `Shadow` is the same memory with
one mark per byte (initialised or not). All of them check bounds and write protection.
"""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, SimulationError
from tpusim.isa.blocks import Block, Index, blocks
from tpusim.isa.layout import Extent, align, extent, work_area
from tpusim.isa.region import NARROW, DType, View, byte_view, is_packed, itemsize, numpy_dtype, pair_axis
from tpusim.isa.stream import Program
from tpusim.registry import HANDLERS, Table
from tpusim.simulator.integer import limits, narrowed

Cells = tuple[Index, np.ndarray]
"""One box of a view: its part of the tensor, and a writable window into memory."""


@dataclass(frozen=True)
class Region:
    """A range of absolute global-memory addresses."""

    name: str
    start: int
    nbytes: int
    writable: bool

    @property
    def stop(self) -> int:
        """First address after the region."""
        return self.start + self.nbytes

    def __str__(self) -> str:
        return f"{self.name} [{self.start:#x}, {self.stop:#x})"


def regions_of(program: Program) -> tuple[Region, ...]:
    """The coefficient and the neuron region of a program, and the regions of outputs outside these."""
    header = program.header
    return (
        Region("coefficients", header.coeff_address, header.coeff_bytes, writable=False),
        Region("neurons", header.neuron_address, header.neuron_bytes, writable=True),
        *(Region(f"output {i}", start, size, writable=True) for i, (start, size) in enumerate(header.io_regions)),
    )


LANE_UNIT = 64
"""Lanes are allocated in multiples of this many bytes, so that elements of every type are aligned."""


def lane_reach(program: Program, chip: ChipSpec) -> dict[int, int]:
    """Core -> how many bytes of each of its lanes are used; core 0 is always a key.

    The views of the program lie inside local memory (`check_bounds`), and its tables name commands (`check_tables`).
    """
    views = {0: {entry.view for entry in program.tensors}}
    for command in program.commands:
        views.setdefault(command.core, set()).update((*command.reads(), *command.writes()))
    for location in program.locations:
        views[program.commands[location.command].core].add(location.view)
    return {
        core: align(max((extent(view, chip).stop for view in some if view.memory == "lmem"), default=0), LANE_UNIT)
        for core, some in views.items()
    }


def span_text(reach: Extent) -> str:
    """Lanes and bytes of an extent, for messages."""
    if reach.memory == "gmem":
        return f"global memory [{reach.start:#x}, {reach.stop:#x})"
    return f"lanes {reach.first_lane}-{reach.last_lane}, local bytes [{reach.start:,}, {reach.stop:,})"


def bytes_text(view: View, box: Block, hit: np.ndarray, chip: ChipSpec) -> str:
    """The span of the bytes of a view's box that `hit` marks (a last axis for the bytes of an element)."""
    places = box.offset + np.argwhere(hit) @ np.array((*box.strides, 1), np.int64)
    if view.memory == "gmem":
        return f"global memory [{places.min():#x}, {places.max() + 1:#x})"
    lane, byte = np.divmod(places, chip.lmem_bytes)
    return f"lanes {lane.min()}-{lane.max()}, local bytes [{byte.min():,}, {byte.max() + 1:,})"


class Memory:
    """Byte buffers addressed by views. `who` names the command in errors.

    lane_bytes: how many bytes of every lane are allocated, by default all. A program uses few, and zeroing the others
    takes longer than running a small program.
    """

    cell: type[np.generic] = np.uint8
    """The type stored for each byte of memory."""

    def __init__(self, chip: ChipSpec, regions: tuple[Region, ...], lane_bytes: int | None = None):
        self.chip = chip
        self.regions = regions
        self.lane_bytes = chip.lmem_bytes if lane_bytes is None else lane_bytes
        self.lmem = np.zeros(chip.lanes * self.lane_bytes, self.cell)
        self.gmem = {region.name: self._zeroed(region) for region in regions}

    def _zeroed(self, region: Region) -> np.ndarray:
        """The buffer of a region. Raises SimulationError if this computer has no room for it."""
        try:
            return np.zeros(region.nbytes, self.cell)
        except MemoryError as error:
            raise SimulationError(
                f"{region.nbytes:,} bytes of global memory for region {region} cannot be allocated on this computer; "
                "if the program needs so much, run it where more memory is free"
            ) from error

    def with_lanes(self, lane_bytes: int) -> Self:
        """The same global memory with other local memory (DC-06), of so many bytes in every lane."""
        other = copy(self)
        other.lane_bytes = lane_bytes
        other.lmem = np.zeros(self.chip.lanes * lane_bytes, self.cell)
        return other

    def of_cores(self, lane_bytes: Mapping[int, int]) -> dict[int, Self]:
        """Core -> its memory, with so many bytes in every lane (`lane_reach`); core 0 has this one."""
        return {core: self.with_lanes(size) if core else self for core, size in lane_bytes.items()}

    def reset(self) -> None:
        """Zero everything that commands may write."""
        self.lmem[:] = 0
        for region in self.regions:
            if region.writable:
                self.gmem[region.name][:] = 0

    def check(self, view: View, who: str, *, writing: bool) -> None:
        """Raise SimulationError unless `view` lies inside one memory that permits the access."""
        region = self._locate(view, who)
        if region is not None and writing and not region.writable:
            raise SimulationError(
                f"{who}: writes {span_text(extent(view, self.chip))}, but region {region} is read-only; "
                "store results in the neuron region"
            )

    def kept(self, work: View) -> View | None:
        """The part of a work area inside the allocated bytes of every lane."""
        size = min(work.address + work.shape[-1], self.lane_bytes) - work.address
        return work_area(work.address, size, self.chip) if size > 0 else None

    def cells(self, view: View, who: str = "access", *, as_bytes: bool = False) -> list[Cells]:
        """Windows onto the bytes of `view`, typed as the view, or as bytes in an additional last axis.

        For 4-bit elements a window has bytes of two elements, along half of the axis (`isa.region.byte_view`).
        """
        buffer, base = self._buffer(view, who)
        found: list[Cells] = []
        for block in blocks(view, self.chip, self.lane_bytes):
            shape, strides, dtype = block.shape, block.strides, cell_dtype(view.dtype)
            if as_bytes:
                shape, strides, dtype = (*shape, dtype.itemsize), (*strides, 1), np.dtype(np.uint8)
            found.append((block.index, np.ndarray(shape, dtype, buffer, block.offset - base, strides)))
        return found

    def _buffer(self, view: View, who: str) -> tuple[np.ndarray, int]:
        region = self._locate(view, who)
        return (self.lmem, 0) if region is None else (self.gmem[region.name], region.start)

    def _locate(self, view: View, who: str) -> Region | None:
        """The region of a GMEM view, None for local memory. Raises SimulationError out of bounds."""
        chip = self.chip
        if view.laned and not 0 <= view.lane < chip.lanes:
            raise SimulationError(
                f"{who}: start lane {view.lane} at address {view.address:#x}, but {chip.name} has {chip.lanes} lanes; "
                "correct the view"
            )
        if view.memory == "gmem":
            return self._region(view, who)
        reach = extent(view, chip)
        if reach.start < 0 or reach.stop > chip.lmem_bytes:
            raise SimulationError(
                f"{who}: accesses {span_text(reach)}, but a lane of {chip.name} has {chip.lmem_bytes:,} bytes; "
                "place the tensor lower or cut the slice smaller"
            )
        return None

    def _region(self, view: View, who: str) -> Region:
        boxes = blocks(view, self.chip)
        start = min((box.offset for box in boxes), default=view.address)
        stop = max((box.last() + itemsize(view.dtype) for box in boxes), default=start)
        for region in self.regions:
            if region.start <= start < region.stop:
                if stop <= region.stop:
                    return region
                raise SimulationError(
                    f"{who}: accesses global memory [{start:#x}, {stop:#x}), but region {region} ends before; "
                    "enlarge the region or correct the address"
                )
        known = ", ".join(str(region) for region in self.regions)
        raise SimulationError(
            f"{who}: no region of global memory holds address {start:#x}; the program has {known}; "
            "assign the tensor an address inside a region"
        )


class Machine(Memory):
    """The memories with values: what commands read and write.

    `handlers` says what commands do to them, by opcode: for bytes here; a class with other values has another table.
    """

    handlers: ClassVar[Table[Any]] = HANDLERS

    def __init__(
        self,
        chip: ChipSpec,
        regions: tuple[Region, ...],
        coefficients: np.ndarray,
        lane_bytes: int | None = None,
    ):
        super().__init__(chip, regions, lane_bytes)
        self.gmem["coefficients"] = np.ascontiguousarray(coefficients, np.uint8)
        self._found: dict[View, list[Cells]] = {}

    def with_region(self, region: Region) -> Self:
        """The constants of this memory and one more region; with an empty cache of windows."""
        other = copy(self)
        other.regions = (self.regions[0], region)
        other.gmem = {"coefficients": self.gmem["coefficients"], region.name: self._zeroed(region)}
        other._found = {}
        return other

    def with_lanes(self, lane_bytes: int) -> Self:
        """As of every memory, with an empty cache of windows."""
        other = super().with_lanes(lane_bytes)
        other._found = {}
        return other

    def _cells(self, view: View) -> list[Cells]:
        found = self._found.get(view)
        if found is None:
            self._reach(view)
            found = self._found[view] = self.cells(view)
        return found

    def _reach(self, view: View) -> None:
        """Allocate whole lanes if an access reaches beyond the allocated bytes, which nothing has written yet."""
        if view.memory == "lmem" and self.lane_bytes < extent(view, self.chip).stop <= self.chip.lmem_bytes:
            lanes = np.zeros((self.chip.lanes, self.chip.lmem_bytes), self.cell)
            lanes[:, : self.lane_bytes] = self.lmem.reshape(self.chip.lanes, self.lane_bytes)
            self.lmem, self.lane_bytes = lanes.reshape(-1), self.chip.lmem_bytes
            self._found.clear()

    def read(self, view: View) -> np.ndarray:
        """The tensor of `view`: a new contiguous array of the view's shape and dtype.

        A byte stores two elements of 4 bits, the low half first; i4 is two's complement (numerics.md 14).
        """
        out = np.empty(byte_view(view).shape, cell_dtype(view.dtype))
        for index, window in self._cells(view):
            out[index].reshape(window.shape)[...] = window
        return _halves(out, view) if is_packed(view.dtype) else out

    def load(self, view: View) -> np.ndarray:
        """The operand of a TIU command: as `read`, narrow floats widened to f32, in which the TIU computes."""
        array = self.read(view)
        return array.astype(np.float32) if view.dtype in NARROW else array

    def store(self, view: View, array: np.ndarray) -> None:
        """The result of a TIU command: as `write`, f32 results narrowed once to the float type of the view."""
        narrow = view.dtype in NARROW
        self.write(view, narrowed(array, view.dtype, finite=self.chip.hardware.bf16_unit) if narrow else array)

    def expects(self, name: str, array: np.ndarray, view: View, elements: int) -> np.ndarray:
        """A reference tensor as this memory reads it through views like `view`. Raises ConfigError."""
        dtype = numpy_dtype(view.dtype)
        bits = view.dtype == "bf16" and array.dtype == np.uint16
        if view.dtype == "f8e5m2" and array.dtype == np.float32:  # as files have them
            array = array.astype(dtype)
        if array.size != elements or not (array.dtype == dtype or bits):
            raise ConfigError(
                f"reference '{name}': {elements:,} elements of {dtype.name} are required, as the machine has them, got "
                f"{array.size:,} of {array.dtype}; take tpu_outputs.npz of the same run"
            )
        return np.ascontiguousarray(array).view(dtype)

    def write(self, view: View, array: np.ndarray) -> None:
        """Store `array`, which must have the view's shape and dtype, into the view's bytes and no others.

        The half byte after a row of an odd number of 4-bit elements becomes 0.
        """
        if array.shape != view.shape or array.dtype != numpy_dtype(view.dtype):
            raise SimulationError(
                f"write: the view at {view.address:#x} takes {view.dtype} of shape {view.shape}, "
                f"got {array.dtype} of shape {array.shape}; this is a defect of the simulator"
            )
        stored = _joined(array, view) if is_packed(view.dtype) else array
        for index, window in self._cells(view):
            window[...] = stored[index].reshape(window.shape)


def cell_dtype(dtype: DType) -> np.dtype:
    """The type of a window onto memory: that of the elements, bytes for 4-bit ones."""
    return np.dtype(np.uint8) if is_packed(dtype) else numpy_dtype(dtype)


def _halves(stored: np.ndarray, view: View) -> np.ndarray:
    """The 4-bit elements of bytes, one per byte."""
    axis = pair_axis(view)
    found = np.repeat(stored, 2, axis=axis)
    odd = (slice(None),) * axis + (slice(1, None, 2),)
    found[odd] >>= 4
    found = found[(slice(None),) * axis + (slice(0, view.shape[axis]),)] & 15
    if view.dtype == "i4":
        found = np.where(found > 7, found.astype(np.int16) - 16, found)
    return np.ascontiguousarray(found.astype(numpy_dtype(view.dtype)))


def _joined(array: np.ndarray, view: View) -> np.ndarray:
    """Bytes of two 4-bit elements. Raises SimulationError for a value that needs more bits."""
    low, high = limits(view.dtype)
    if array.size and not low <= int(array.min()) <= int(array.max()) <= high:
        raise SimulationError(
            f"write: the view at {view.address:#x} takes {view.dtype}, {low} to {high}, got {int(array.min())} to "
            f"{int(array.max())}; saturate to 4 bits first"
        )
    axis, halves = pair_axis(view), array.astype(np.uint8) & 15
    even, odd = (halves[(slice(None),) * axis + (slice(first, None, 2),)] for first in (0, 1))
    stored = even.copy()
    stored[(slice(None),) * axis + (slice(0, odd.shape[axis]),)] |= odd << 4
    return stored


class Shadow(Memory):
    """One mark per byte: whether something has written it since the start. Coefficients are initialised."""

    def __init__(self, chip: ChipSpec, regions: tuple[Region, ...], lane_bytes: int | None = None):
        super().__init__(chip, regions, lane_bytes)
        for region in regions:
            if not region.writable:
                self.gmem[region.name][:] = 1

    def mark(self, view: View, who: str) -> None:
        """Note that every byte of `view` has been written."""
        for _, window in self.cells(view, who, as_bytes=True):
            window[...] = 1

    def forget(self, work: View) -> None:
        """Note that the content of a command's work area is undefined now."""
        view = self.kept(work)
        for _, window in self.cells(view, as_bytes=True) if view is not None else ():
            window[...] = 0

    def require(self, view: View, who: str) -> None:
        """Raise SimulationError if `view` has a byte that nothing has written."""
        for box, (_, window) in zip(blocks(view, self.chip), self.cells(view, who, as_bytes=True), strict=True):
            if not window.all():
                raise SimulationError(f"{who}: {self._poison_text(view, box, window)}")

    def _poison_text(self, view: View, box: Block, window: np.ndarray) -> str:
        bad = window == 0
        return (
            f"reads {int(bad.sum()):,} of the {view.nbytes:,} bytes of its {view.dtype}{list(view.shape)} operand "
            f"uninitialised ({bytes_text(view, box, bad, self.chip)}); load or compute them first, or shrink the view"
        )
