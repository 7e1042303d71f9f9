"""Windows whose stride or dilation no command allows, as several commands (codegen.md DC-09).

The rows that each row of the result reads are copied next to each other, and so are the columns. The stride of the
product then is the number of taps. Many taps are processed in parts, whose products are summed in 32 bits. Padding
between the copies is filled in.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import Arith, ChannelRescale, Command, Conv, Depthwise, Where
from tpusim.isa.commands.window import MOST_STEPS
from tpusim.isa.layout import ceil_div, lmem_bytes, lmem_strides
from tpusim.isa.region import DType, View, itemsize

ROWS, COLUMNS = 2, 3
"""Axes of a view (n, c, h, w)."""
INTEGERS = ("i8", "u8")


class Taps(NamedTuple):
    """Gathered taps along one axis.

    copies: (target places, source places). fills: places with padding. extent: places in total. pads: padding that the
    product adds before and after.
    """

    copies: list[tuple[range, range]]
    fills: list[range]
    extent: int
    pads: tuple[int, int]


@dataclass(frozen=True)
class WindowAxis:
    """One axis of a window. size: elements of the input in local memory; count: elements of the result."""

    size: int
    count: int
    kernel: int
    stride: int
    dilation: int
    pads: tuple[int, int] = (0, 0)

    def wide(self, chip: ChipSpec) -> bool:
        """Whether no command of the chip allows the stride or dilation."""
        return self.stride > chip.max_stride or self.dilation > MOST_STEPS

    def most(self, chip: ChipSpec) -> int:
        """The most taps of one product."""
        return ceil_div(self.kernel, ceil_div(self.kernel, chip.max_stride))

    def parts(self, chip: ChipSpec, *, equal: bool) -> list[range]:
        """The taps of each product: all, or at most `most`. equal: all products have the same number of taps."""
        if not self.wide(chip):
            return [range(self.kernel)]
        most = self.most(chip)
        if equal:
            most = max(size for size in range(1, most + 1) if self.kernel % size == 0)
        return [range(first, min(first + most, self.kernel)) for first in range(0, self.kernel, most)]

    def gathered(self, taps: range) -> Taps:
        """The copies that put the elements for each element of the result next to each other.

        Padding at both ends is left to the product, unless all is padding.
        """
        copies: list[tuple[range, range]] = []
        fills: list[range] = []
        for out in range(self.count):
            first, place = out * self.stride - self.pads[0] + taps.start * self.dilation, out * len(taps)
            low = min(max(ceil_div(-first, self.dilation), 0), len(taps))
            high = max(low, min((self.size - 1 - first) // self.dilation + 1, len(taps)))
            if low < high:
                source = range(first + low * self.dilation, first + (high - 1) * self.dilation + 1, self.dilation)
                copies.append((range(place + low, place + high), source))
            fills += [range(place, place + low), range(place + high, place + len(taps))]
        return _without_ends(copies, [fill for fill in fills if fill], self.count * len(taps))


def _without_ends(copies: list[tuple[range, range]], fills: list[range], extent: int) -> Taps:
    """The taps with fills at both ends turned into padding of the product."""
    if not copies:
        return Taps([], [range(extent)], extent, (0, 0))
    start, stop = copies[0][0].start, copies[-1][0].stop
    before, after = min(start, MOST_STEPS), min(extent - stop, MOST_STEPS)
    moved = [(range(to.start - before, to.stop - before), source) for to, source in copies]
    inner = [range(max(fill.start, before), min(fill.stop, extent - after)) for fill in fills]
    left = [range(fill.start - before, fill.stop - before) for fill in inner if fill]
    return Taps(moved, left, extent - before - after, (before, after))


@dataclass(frozen=True)
class Gathers:
    """A convolution of images (n, c, h, w) in local memory, image by image, whose window is wide along an axis.

    channels, dtype: those of the input. output: (oc, oh, ow).
    """

    rows: WindowAxis
    columns: WindowAxis
    channels: int
    dtype: DType
    output: tuple[int, int, int]
    chip: ChipSpec

    @staticmethod
    def of(command: Conv | Depthwise, chip: ChipSpec) -> "Gathers":
        """The gathers of a command in local memory."""
        (_, channels, height, width), (_, oc, oh, ow) = command.input.shape, command.output.shape
        (top, left, bottom, right), (kh, kw) = command.pads, command.kernel
        (sh, sw), (dh, dw) = command.strides, command.dilations
        rows, columns = (
            WindowAxis(height, oh, kh, sh, dh, (top, bottom)),
            WindowAxis(width, ow, kw, sw, dw, (left, right)),
        )
        return Gathers(rows, columns, channels, command.input.dtype, (oc, oh, ow), chip)

    @property
    def areas(self) -> tuple[int, int, int]:
        """Bytes of the gathered rows, the gathered columns and the sums of one image, in whole vectors."""
        tall, wide = (axis.count * axis.most(self.chip) for axis in (self.rows, self.columns))
        height = tall if self.rows.wide(self.chip) else self.rows.size
        rows = self._bytes(self.channels, tall, self.columns.size, self.dtype) * self.rows.wide(self.chip)
        columns = self._bytes(self.channels, height, wide, self.dtype) * self.columns.wide(self.chip)
        return rows, columns, self._bytes(*self.output, "f32")

    def _bytes(self, channels: int, height: int, width: int, dtype: DType) -> int:
        return lmem_bytes((1, channels, height, width), dtype, self.chip)

    def wide(self) -> bool:
        """Whether the window is wide along an axis."""
        return self.rows.wide(self.chip) or self.columns.wide(self.chip)

    def work_bytes(self, *, depthwise: bool) -> int:
        """Bytes of the commands' work area in local memory."""
        rows, columns, sums = self.areas
        several = max(axis.kernel for axis in (self.rows, self.columns) if axis.wide(self.chip)) > self.chip.max_stride
        return rows + columns + sums * (1 + (depthwise and several))


def gathered(command: Conv | Depthwise, work: int, chip: ChipSpec) -> Iterator[Command]:
    """The commands that replace this command in local memory. work: address of a work area of `Gathers.work_bytes`."""
    for image in range(command.input.shape[0]):
        one = {name: _image(view, image, chip) for name, view in (("input", command.input), ("output", command.output))}
        yield from _Image(replace(command, **one), work, chip).commands()


def _image(view: View, index: int, chip: ChipSpec) -> View:
    """One image of a batch."""
    return _window(view, (index, 0, 0, 0), (1, *view.shape[1:]), lmem_strides(view, chip))


def _window(view: View, start: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """A part of a tensor in local memory with the strides of the whole. start: the first element; channel 0 only."""
    at = sum(first * stride for first, stride in zip(start, strides, strict=True))
    return replace(
        view, address=view.address + at * itemsize(view.dtype), shape=shape, layout="strided", strides=strides
    )


class _Laid(NamedTuple):
    """The gathered taps of one axis: the commands, the view that they write, and the window of the product over it."""

    commands: list[Command]
    view: View
    taps: range
    stride: int
    dilation: int
    pads: tuple[int, int]


class _Image:
    """The commands of one image."""

    def __init__(self, command: Conv | Depthwise, work: int, chip: ChipSpec) -> None:
        self.command, self.chip = command, chip
        self.gathers = Gathers.of(command, chip)
        rows, columns, sums = self.gathers.areas
        self.at = {ROWS: work, COLUMNS: work + rows}
        integer = command.input.dtype in INTEGERS
        self.wide_type: DType = "i32" if integer else "f32"
        self.rows, self.columns = (
            axis.parts(chip, equal=integer) for axis in (self.gathers.rows, self.gathers.columns)
        )
        self.several = len(self.rows) * len(self.columns) > 1
        plane = View(
            "lmem", work + rows + columns, command.output.shape, self.wide_type, "aligned", lane=command.output.lane
        )
        self.sums = plane if self.several and command.output.dtype != self.wide_type else command.output
        self.added = replace(plane, address=plane.address + sums)
        """Where a depthwise product is stored until another command adds it to the sums."""

    def commands(self) -> Iterator[Command]:
        """For each part of the rows: gather them; for each part of the columns: gather them, then multiply."""
        for taps_h in self.rows:
            rows = self._laid(self.gathers.rows, taps_h, self.command.input, ROWS)
            yield from rows.commands
            for taps_w in self.columns:
                columns = self._laid(self.gathers.columns, taps_w, rows.view, COLUMNS)
                yield from columns.commands
                yield from self._product(rows, columns)
        yield from self._stored()

    def _laid(self, axis: WindowAxis, taps: range, source: View, place: int) -> _Laid:
        """The gathered elements along one axis; the source itself if a command allows stride and dilation."""
        if not axis.wide(self.chip):
            return _Laid([], source, taps, axis.stride, axis.dilation, axis.pads)
        found = axis.gathered(taps)
        shape = tuple(found.extent if at == place else size for at, size in enumerate(source.shape))
        target = replace(source, address=self.at[place], shape=shape, layout="aligned", strides=None)
        commands = [self._copy(source, target, place, *ranges) for ranges in found.copies]
        commands += [self._fill(source, target, place, fill) for fill in found.fills]
        return _Laid(commands, target, taps, len(taps), 1, found.pads)

    def _copy(self, source: View, target: View, place: int, to: range, seen: range) -> Command:
        return self._command(
            Arith, kind="copy", a=self._along(source, place, seen), output=self._along(target, place, to)
        )

    def _fill(self, source: View, target: View, place: int, to: range) -> Command:
        """Fill places with padding: a Where that gives the same value for both conditions."""
        pixel = _window(source, (0, 0, 0, 0), (1, source.shape[1], 1, 1), lmem_strides(source, self.chip))
        value = self.command.pad_value
        output = self._along(target, place, to)
        return self._command(Where, condition=pixel, on_true=value, on_false=value, output=output)

    def _along(self, view: View, place: int, elements: range) -> View:
        """Some elements along one axis."""
        strides, shape = list(lmem_strides(view, self.chip)), list(view.shape)
        start = [elements.start if at == place else 0 for at in range(len(shape))]
        shape[place] = len(elements)
        part = _window(view, tuple(start), tuple(shape), tuple(strides))
        strides[place] *= elements.step
        return replace(part, strides=tuple(strides))

    def _product(self, rows: _Laid, columns: _Laid) -> Iterator[Command]:
        """The product of the gathered taps, added to the sums of the taps before."""
        command, depthwise = self.command, isinstance(self.command, Depthwise)
        first = (rows.taps, columns.taps) == (self.rows[0], self.columns[0])
        last = (rows.taps, columns.taps) == (self.rows[-1], self.columns[-1])
        relu = command.relu and last and self._ends_in_product
        (top, bottom), (left, right) = rows.pads, columns.pads
        apart = depthwise and not first
        fields: dict[str, object] = {
            "input": columns.view, "output": self.added if apart else self.sums,
            "filter": self._filter(rows.taps, columns.taps), "kernel": (len(rows.taps), len(columns.taps)),
            "strides": (rows.stride, columns.stride), "dilations": (rows.dilation, columns.dilation),
            "pads": (top, left, bottom, right),
        }  # fmt: skip
        if self.several:
            bias = command.bias if first else None
            fields |= {"requant": None, "requant_table": None, "bias": bias, "relu": relu and not apart}
            fields |= {} if depthwise else {"accumulate": not first}
        yield replace(command, **fields)
        if apart:
            yield self._command(
                Arith, kind="add", a=self.sums, b=self.added, output=self.sums, relu=relu,
                relu_limit=command.relu_limit,
            )  # fmt: skip

    @property
    def _ends_in_product(self) -> bool:
        """Whether the last sum applies the relu: if it is the result, or if a requant, which has no relu, follows."""
        return self.sums is self.command.output or self.wide_type == "i32"

    def _stored(self) -> Iterator[Command]:
        """The conversion of 32-bit sums to the type of the result."""
        command = self.command
        if self.sums is command.output:
            return
        if command.requant_table is not None:
            table = command.requant_table
            yield self._command(ChannelRescale, input=self.sums, table=table, output=command.output, rounding="half_up")
        else:
            yield self._command(
                Arith, kind="copy", a=self.sums, output=command.output, relu=command.relu,
                relu_limit=command.relu_limit,
            )  # fmt: skip

    def _filter(self, rows: range, columns: range) -> View:
        """The filter of some taps: a window of every block of packed channels (hardware.md 2.3)."""
        filter, (kh, kw) = self.command.filter, self.command.kernel
        if (len(rows), len(columns)) == (kh, kw):
            return filter
        _, row, _, _ = lmem_strides(filter, self.chip)
        depthwise = isinstance(self.command, Depthwise)
        packing = 1 if depthwise else self._packing
        blocks = filter.elements // (filter.shape[1] * kh * kw * packing)
        strides = (kh * kw * packing, row, kw * packing, 1)
        shape = (blocks, filter.shape[1], len(rows), len(columns) * packing)
        return _window(filter, (0, 0, rows.start, columns.start * packing), shape, strides)

    @property
    def _packing(self) -> int:
        """Input channels that are interleaved in the filter."""
        command = self.command
        assert isinstance(command, Conv)
        each = command.input.shape[1] // command.groups
        return command.packing or self.chip.filter_packing(itemsize(command.filter.dtype), each, command.groups)

    def _command(self, cls: type[Command], **fields: object) -> Command:
        return cls(id=0, dep=0, op=self.command.op, **fields)  # type: ignore[arg-type]
