"""The machine's memories with a field element for every byte."""

from collections.abc import Iterator
from itertools import product
from typing import Self

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.field import Elements, Field, stored
from tpusim.isa.blocks import Index, blocks
from tpusim.isa.region import NARROW, DType, View, byte_view, is_packed, itemsize, pair_axis
from tpusim.registry import FIELD_HANDLERS
from tpusim.simulator.memory import Machine, Region

_CELL = np.dtype(np.int64)


class NotJudged(SimulationError):
    """What a command computes is not known as an expression."""


class FieldMachine(Machine):
    """The memories of one core. `constants` is a machine of bytes that only copies, so that tables of places are known.

    An element is written into all bytes that it covers, each joined with what its type and its place in the element
    determine. Bytes read as another type, from the middle of an element, or after narrower data took the place of some,
    are another element. Two 4-bit elements share a byte: constants are read as two functions of it; others cannot be
    written. The numbers of constants are computed where they are read: they take eight times the room of their bytes.
    """

    cell = _CELL.type
    handlers = FIELD_HANDLERS

    def __init__(
        self,
        chip: ChipSpec,
        regions: tuple[Region, ...],
        coefficients: np.ndarray,
        lane_bytes: int | None = None,
        *,
        field: Field,
    ) -> None:
        super().__init__(chip, regions, np.empty(0, np.uint8), lane_bytes)
        self.field = field
        self.constants = Machine(chip, regions, coefficients, lane_bytes)

    def with_lanes(self, lane_bytes: int) -> Self:
        """The memory of another core, which copies constants for itself."""
        other = super().with_lanes(lane_bytes)
        other.constants = self.constants.with_lanes(lane_bytes)
        return other

    def with_region(self, region: Region) -> Self:
        """The same constants, empty local memory, and one region of tensors."""
        other = super().with_region(region)
        other.constants = self.constants.with_region(region)
        return other

    def reset(self) -> None:
        """Zero everything that commands may write."""
        super().reset()
        self.constants.reset()

    def windows(self, view: View, *, writing: bool = False) -> list[tuple[Index, np.ndarray]]:
        """Windows onto the elements of a view's bytes, which are an additional last axis; copies of constants.

        Raises SimulationError for constants that are written.
        """
        view, size = byte_view(view), itemsize(view.dtype)
        if self._constant(view):
            if writing:
                self.check(view, "write", writing=True)
            return self._of_constants(view)
        self._reach(view)
        buffer, base = self._buffer(view, "access")
        step = _CELL.itemsize
        return [
            (
                block.index,
                np.ndarray(
                    (*block.shape, size),
                    _CELL,
                    buffer,
                    (block.offset - base) * step,
                    (*(s * step for s in block.strides), step),
                ),
            )
            for block in blocks(view, self.chip, self.lane_bytes)
        ]

    def _constant(self, view: View) -> bool:
        region = self._locate(view, "access") if view.memory == "gmem" else None
        return region is not None and not region.writable

    def _of_constants(self, view: View, tag: int = 0) -> list[tuple[Index, np.ndarray]]:
        return [(i, stored(self.field, data, address, tag=tag)) for i, data, address in self._bytes(view)]

    def _bytes(self, view: View) -> Iterator[tuple[Index, np.ndarray, int]]:
        """The bytes of constants in each box of a view, and the address of the first."""
        cells, boxes = self.constants.cells(view, as_bytes=True), blocks(view, self.chip, self.lane_bytes)
        for (index, data), box in zip(cells, boxes, strict=True):
            yield index, data, box.offset

    def numbers_of_constants(self) -> np.ndarray:
        """The numbers of all bytes of constants."""
        return stored(self.field, self.constants.gmem["coefficients"], self.regions[0].start)

    def raw(self, view: View) -> np.ndarray:
        """The numbers of the bytes of a view, (*shape, bytes of an element), 4-bit elements in pairs."""
        return _joined(byte_view(view), self.windows(view))

    def copy(self, source: View, target: View) -> None:
        """Copy the numbers of all bytes to another view of as many bytes per element."""
        source, target = byte_view(source), byte_view(target)
        to = self.windows(target, writing=True)
        if self._constant(source) and _is_one_box(source):
            for _, data, address in self._bytes(source):
                for index, window in to:
                    part = data[index]
                    start = address + part.ctypes.data - data.ctypes.data
                    stored(self.field, part.reshape(window.shape), start, into=window)
            return
        given = self.windows(source)
        apart = source.memory != target.memory or len(given) == len(to) == 1  # no box is read after it was written
        if apart and [window.shape for _, window in given] == [window.shape for _, window in to]:
            for (_, one), (_, other) in zip(given, to, strict=True):
                other[...] = one
        elif apart and _is_one_box(target):
            for (index, window), (_, box) in product(given, to):
                box[index].reshape(window.shape)[...] = window
        else:
            cells = given[0][1] if apart and _is_one_box(source) and given else _joined(source, given)
            for index, window in to:
                window[...] = cells[index].reshape(window.shape)

    def read(self, view: View) -> Elements:
        """The elements of a view, in its shape."""
        if not is_packed(view.dtype):
            return self._whole(view)
        pairs, axis = self.raw(view)[..., 0], pair_axis(view)
        joined = np.moveaxis(self.field.halves(np.moveaxis(pairs, axis, -1), view.dtype), -1, axis)
        return joined[(slice(None),) * axis + (slice(view.shape[axis]),)]

    def _whole(self, view: View) -> Elements:
        """Elements of a byte or more, from the first byte of each if the others belong to it."""
        tags = self.field.tags(view.dtype, itemsize(view.dtype))
        if len(tags) == 1 and self._constant(view) and _is_one_box(view) and view.elements:
            return self._of_constants(view, int(tags[0]))[0][1].reshape(view.shape)
        windows = self.windows(view)
        found = np.empty(view.shape, _CELL)
        for index, window in windows:
            part = found[index].reshape(window.shape[:-1])
            np.bitwise_xor(window[..., 0], tags[0], out=part)
            if not all(np.array_equal(window[..., i] ^ tags[i], part) for i in range(1, len(tags))):
                return self.field.of_bytes(self.raw(view), view.dtype)
        return found

    load = read

    def write(self, view: View, array: Elements) -> None:
        """Store elements in the view's shape."""
        if is_packed(view.dtype):
            raise NotJudged(f"two {view.dtype} elements share a byte")
        if array.shape != view.shape:
            raise SimulationError(f"write: the view takes {view.shape}, got {array.shape}; this is a defect")
        tags = self.field.tags(view.dtype, itemsize(view.dtype))
        for index, window in self.windows(view, writing=True):
            part = array[index].reshape(window.shape[:-1])
            for place, tag in enumerate(tags):
                np.bitwise_xor(part, tag, out=window[..., place])

    def store(self, view: View, array: Elements) -> None:
        """The result of a float command, rounded to a type of 16 bits if the view has one."""
        self.write(view, self.rounded(array, view.dtype))

    def rounded(self, array: Elements, dtype: DType) -> Elements:
        """Results of floats as a type stores them."""
        return self.field.apply(("narrow", dtype), array) if dtype in NARROW else array

    def given(self, view: View, name: str) -> Elements:
        """Fill an input with random elements and return them."""
        found = self.field.random(view.shape, "input", name)
        self.write(view, found)
        return found

    def expects(self, name: str, array: Elements, view: View, elements: int) -> Elements:
        """Elements of a tensor whose number is right. Raises SimulationError."""
        del view
        if array.size != elements:
            raise SimulationError(
                f"tensor '{name}': the module has {array.size:,} elements, the program {elements:,}; give the module "
                "of this program"
            )
        return array


def _is_one_box(view: View) -> bool:
    """Whether a view has one box (`isa.blocks`), whose shape is the view's: any part of it is a window, too."""
    return not view.laned and view.interleave == 1


def _joined(view: View, windows: list[tuple[Index, np.ndarray]]) -> np.ndarray:
    """The numbers of all windows of a view of whole bytes, in its shape and an additional last axis."""
    out = np.empty((*view.shape, itemsize(view.dtype)), _CELL)
    for index, window in windows:
        out[index].reshape(window.shape)[...] = window
    return out
