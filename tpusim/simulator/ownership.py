"""Provenance: every command reads the bytes that it names as its sources, and nothing overwrites a stored tensor.

A command names its sources (`Command.sources`). Every byte remembers the command that wrote it last, so that a read of
another tensor or another slice is detected even if the values happen to be right. Nothing depends on a
value except `Restore`: bytes that are stored twice for one tensor must have the same value both times.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.blocks import Block, blocks, offsets
from tpusim.isa.commands import Command, Source
from tpusim.isa.layout import extent
from tpusim.isa.region import View, byte_view, itemsize
from tpusim.isa.stream import Program, TensorEntry
from tpusim.simulator.memory import Machine, Memory, Region, bytes_text, lane_reach, span_text
from tpusim.simulator.metadata_checks import check_constant
from tpusim.simulator.stored import StoredTensors, completions


@dataclass(frozen=True)
class _Writer:
    """Who wrote a byte: a command, or the host that feeds an input."""

    label: str
    owner: Source | None = None
    """None: nobody reads it."""
    layer: int = -1
    """The number of a global layer, which may build its result in several stores (a pad's border, then its content)."""


_NOBODY = _Writer("")


def _reads(command: Command, source: Source, span: str) -> str:
    return f"{command.label} reads {span} as '{source}'"


def _completes(command: Command, kind: str, tensor: str, by: str, span: str) -> str:
    del span
    return f"{command.label} completes {kind} '{tensor}'{by}"


def _returned(tensor: str, function: str, span: str) -> str:
    del span
    return f"output '{tensor}' is read by the host at the end" + f" of function '{function}'" * bool(function)


def _returns(program: Program, order: Sequence[int]) -> dict[int, list[tuple[TensorEntry, str]]]:
    """Position in the order -> the results that the host reads after that command, each with its function.

    The host reads a result at the end of the function that completes it, because later functions may use its bytes.
    One that no command stores is read at the end of the program.
    """
    functions = {group: name for name, groups in program.functions.items() for group in groups}
    function = [functions.get(command.group, "") for command in program.commands]
    ends = {function[index]: at for at, index in enumerate(order)}
    at = {index: at for at, index in enumerate(order)}
    found: dict[int, list[tuple[TensorEntry, str]]] = {}
    for entry, commands in completions(program):
        if entry.role == "output":
            name = function[max(commands, key=at.__getitem__)] if commands else ""
            found.setdefault(ends[name] if commands else len(order), []).append((entry, name))
    return found


def _distinct(window: np.ndarray) -> list[int]:
    found: list[int] = np.unique(window).tolist()
    return found


class _Numbers(Memory):
    """One number per byte: the index of its last writer in a list, 0 for nobody."""

    cell = np.int32

    def __init__(self, chip: ChipSpec, regions: tuple[Region, ...], lane_bytes: int):
        super().__init__(chip, regions, lane_bytes)
        self._found: dict[View, list[np.ndarray]] = {}

    def with_lanes(self, lane_bytes: int) -> Self:
        """As of every memory, with an empty cache of windows."""
        other = super().with_lanes(lane_bytes)
        other._found = {}
        return other

    def windows(self, view: View) -> list[np.ndarray]:
        """Windows onto the numbers of a view's bytes; a last axis for the bytes of one element.

        The stride of an axis of length 1 is ignored, and may be out of bounds.
        """
        found = self._found.get(view)
        if found is None:
            found = self._found[view] = self._windows(view)
        return found

    def _windows(self, view: View) -> list[np.ndarray]:
        buffer, base = self._buffer(view, "access")
        width, pitch = itemsize(view.dtype), buffer.itemsize
        return [
            np.ndarray(
                (*block.shape, width),
                buffer.dtype,
                buffer,
                (block.offset - base) * pitch,
                (
                    *(stride * pitch * (size > 1) for stride, size in zip(block.strides, block.shape, strict=True)),
                    pitch,
                ),
            )
            for block in blocks(view, self.chip, self.lane_bytes)
        ]


@dataclass(frozen=True)
class Restore:
    """A command that stores elements (`where`, in the view's shape) which `first` has stored for the same tensor."""

    view: View
    where: np.ndarray
    first: str


class Ownership:
    """Follows a program in one legal order; as races are excluded, every other order gives the same result."""

    def __init__(self, program: Program, chip: ChipSpec, regions: tuple[Region, ...]):
        self._program = program
        self._chip = chip
        self._read_only = [region for region in regions if not region.writable]
        lane_bytes = lane_reach(program, chip)
        self._cores = _Numbers(chip, regions, lane_bytes[0]).of_cores(lane_bytes)
        self._numbers = self._cores[0]
        """The numbers of the core whose command is being checked."""
        self._writers = [_NOBODY]
        self._entries = {entry.name: entry for entry in program.tensors}
        self._constants = {entry.name: entry for entry in program.constants}
        self.restores: dict[int, list[Restore]] = {}
        """Index of a command -> what it stores again."""

    def check(self, order: list[int]) -> None:
        """Raise SimulationError for the first wrong use of bytes."""
        program, stored = self._program, StoredTensors(self._program)
        slices: dict[int, list[tuple[str, View]]] = {}
        for location in program.locations:
            slices.setdefault(location.command, []).append((location.tensor, location.view))
        for entry in program.inputs:
            self._write(entry.view, _Writer(f"the host feeding input '{entry.name}'", Source(entry.name)))
        returns = _returns(program, order)
        for at, index in enumerate(order):
            command = program.commands[index]
            self._numbers = self._cores[command.core]
            self._check_reads(command)
            for work in command.scratch():
                view = self._numbers.kept(work)
                if view is not None:
                    self._write(view, _Writer(f"{command.label} as its work area of {work.shape[-1]:,} bytes"))
            for view in command.writes():
                if view.memory == "gmem" and command.tensor:
                    self._check_store(index, command, view)
                self._write(view, _Writer(command.label, command.owner, -1 if command.in_group else command.group))
            for tensor, view in slices.get(index, ()):
                what = partial(_completes, command, "a slice of", tensor, " by the table of slices")
                self._require(view, {command.slice_owner(tensor)}, what)
            for entry in stored.finished(index):
                self._require(entry.view, self._names(entry), partial(_completes, command, "tensor", entry.name, ""))
            self._check_results(returns.get(at, ()))
        self._check_results(returns.get(len(order), ()))

    def _check_results(self, results: Iterable[tuple[TensorEntry, str]]) -> None:
        for entry, function in results:
            self._require(entry.view, self._names(entry), partial(_returned, entry.name, function))

    def _names(self, entry: TensorEntry) -> set[Source]:
        """The sources under which the bytes of a tensor in global memory may have been written."""
        found = {Source(entry.name)}
        for part in entry.parts:
            found |= self._names(self._entries[part])
        return found

    def _write(self, view: View, writer: _Writer) -> None:
        self._writers.append(writer)
        for window in self._numbers.windows(view):
            window[...] = len(self._writers) - 1

    def _check_reads(self, command: Command) -> None:
        views = command.reads()
        if not command.sources:
            return
        if len(command.sources) != len(views):
            raise SimulationError(
                f"{command.label}: one source per operand it reads is required, got {len(command.sources)} for "
                f"{len(views)} operands; name them all, or none"
            )
        for source, view in zip(command.sources, views, strict=True):
            if view.memory == "gmem" and any(r.start <= view.address < r.stop for r in self._read_only):
                check_constant(command, source, view, self._constants, self._chip)
            else:
                self._require(view, {source}, partial(_reads, command, source))

    def _require(self, view: View, names: set[Source], what: Callable[[str], str]) -> None:
        """Every byte of the view was last written for one of the names; what: the use, given the text of the bytes."""
        for place, window in enumerate(self._numbers.windows(view)):
            first = int(window[(0,) * window.ndim])
            if self._writers[first].owner in names and (window == first).all():
                continue
            for number in _distinct(window):
                if self._writers[number].owner not in names:
                    text = what(span_text(extent(view, self._chip)))
                    box = blocks(view, self._chip)[place]
                    raise self._finding(text, view, box, window == number, self._writers[number])

    def _finding(self, what: str, view: View, box: Block, hit: np.ndarray, writer: _Writer) -> SimulationError:
        owner = "" if writer.owner is None else f" for '{writer.owner}'"
        whose = f"last written by {writer.label}{owner}" if writer.label else "written by nothing"
        return SimulationError(
            f"{what}, but {int(hit.sum()):,} of its {view.nbytes:,} bytes ({bytes_text(view, box, hit, self._chip)}) "
            f"were {whose}; correct the address, or keep the tensor where it is until it was used"
        )

    def _check_store(self, index: int, command: Command, view: View) -> None:
        """A store stays inside its tensor; elements that another layer already stored are noted in `restores`."""
        entry = self._entries[command.tensor]
        reach, whole = extent(view, self._chip), extent(entry.view, self._chip)
        if reach.start < whole.start or whole.stop < reach.stop:
            raise SimulationError(
                f"{command.label} stores a part of tensor '{entry.name}' to {span_text(reach)}, the tensor is "
                f"{span_text(whole)}; correct the address or the tensor table"
            )
        view = byte_view(view)
        again = np.zeros(view.shape, np.bool_)
        first = _NOBODY
        for block, window in zip(blocks(view, self._chip), self._numbers.windows(view), strict=True):
            numbers = [n for n in _distinct(window) if self._restores(command, self._writers[n])]
            if numbers:
                again[block.index] = np.isin(window, numbers).any(-1).reshape(again[block.index].shape)
                first = self._writers[numbers[0]]
        if again.any():
            self.restores.setdefault(index, []).append(Restore(view, again, first.label))

    @staticmethod
    def _restores(command: Command, writer: _Writer) -> bool:
        """Whether the command stores what another layer or slice has stored for the same tensor."""
        return writer.owner == Source(command.tensor) and (writer.layer < 0 or writer.layer != command.group)


def check_restores(command: Command, again: Iterable[tuple[Restore, np.ndarray]], memory: Machine) -> None:
    """Raise SimulationError if `command` has stored another value where its tensor had one, given the values before."""
    for restore, before in again:
        after = memory.read(restore.view)
        with np.errstate(invalid="ignore"):  # a comparison of a signalling NaN in bf16 gives a warning
            same = (before == after) | ((before != before) & (after != after))
        wrong = restore.where & ~same
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            address = int(offsets(restore.view, memory.chip)[at])
            raise SimulationError(
                f"{command.label}: stores {int(wrong.sum()):,} elements of tensor '{command.tensor}' again with other "
                f"values; the first is at {address:#x}, {before[at]} by {restore.first}, now {after[at]}; a tensor has "
                "one value per element, correct one of the two"
            )
