"""Slices compared with their tensors: which window a transfer moves, and which window a command works on.

A transfer of a layer group states which window of its tensor it moves (`Move.start`); the table of slices states which
window an op computes. The checks compare both with the addresses and with each other: a transfer moves the bytes of its
window; a sliding window pads only beyond the border of its tensor and has the same offset to its result at every step;
a store writes the window that was computed. Nothing depends on a value.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.commands import Arith, Command, Move, Source
from tpusim.isa.commands.window import Window
from tpusim.isa.layout import ceil_div, distance_bytes, gmem_sizes, gmem_strides, lmem_strides
from tpusim.isa.region import View, is_packed, itemsize
from tpusim.isa.stream import Program, TensorEntry

Index = tuple[int, ...]


@dataclass(frozen=True)
class Slice:
    """A slice in local memory: where it is, (n, c, d, h, w) of its first element, and of its tensor."""

    view: View
    start: Index
    whole: Index


def check_windows(program: Program, chip: ChipSpec) -> None:
    """Raise SimulationError for a transfer or an operand whose window differs from the stated or needed window."""
    known = slices(program)
    transfers, operands = _Transfers(program, known, chip), _Operands(known, chip)
    for command in program.commands:
        if isinstance(command, Move):
            transfers.check(command)
        else:
            operands.check(command)


def silent_transfers(program: Program) -> list[Move]:
    """Transfers between a tensor of the table and local memory that do not say which window they move."""
    names = {entry.name for entry in program.tensors}
    moves = (c for c in program.commands if isinstance(c, Move) and c.direction in ("s2l", "l2s") and c.start is None)
    return [move for move in moves if _tensor(move) in names]


def _tensor(move: Move) -> str:
    """Name of the tensor of global memory, empty if the transfer does not say."""
    return move.tensor or next((source.name for source in move.sources if not source.step), "")


def slices(program: Program) -> dict[Source, list[Slice]]:
    """Source -> its slices in local memory."""
    found: dict[Source, list[Slice]] = {}
    for move in program.commands:
        if isinstance(move, Move) and move.direction == "s2l" and move.start is not None and move.whole is not None:
            found.setdefault(move.owner, []).append(Slice(move.output, move.start, move.whole))
    for location in program.locations:
        owner = program.commands[location.command].slice_owner(location.tensor)
        found.setdefault(owner, []).append(Slice(location.view, location.start, location.whole))
    return found


def _wrong(command: Command, required: str, got: object, advice: str) -> SimulationError:
    return SimulationError(f"{command.label}: {required} is required, got {got}; {advice}")


# ----------------------------------------------------------------------------------------------------------- transfers


class _Transfers:
    """Checks of the windows that transfers state: their place in global memory and in the computed slices."""

    def __init__(self, program: Program, slices: dict[Source, list[Slice]], chip: ChipSpec) -> None:
        self._entries = {entry.name: entry for entry in program.tensors}
        self._silent = {id(move) for move in silent_transfers(program)}
        self._spoken = any(isinstance(c, Move) and c.start is not None for c in program.commands)
        self._slices = slices
        self._chip = chip

    def check(self, move: Move) -> None:
        """Raise SimulationError for a transfer of other elements than it states."""
        if self._spoken and id(move) in self._silent:
            raise _wrong(move, "the window that it moves", "none", "give start and whole, as other transfers have")
        if (move.start is None) != (move.whole is None):
            raise _wrong(move, "both start and whole, or none,", "one", "give the other")
        if move.start is None or move.whole is None or not _tensor(move):
            return
        entry = self._entries.get(_tensor(move))
        if entry is None or move.direction not in ("s2l", "l2s"):
            wanted = "a tensor of the table on one side and local memory on the other"
            raise _wrong(move, wanted, f"'{_tensor(move)}'", "correct the names, or take start and whole away")
        if move.direction == "s2l":
            _check_global(move, move.input, entry, move.start, move.whole)
        else:
            _check_global(move, move.output, entry, move.start, move.whole)
            self._check_stored(move, move.start, move.whole)

    def _check_stored(self, move: Move, start: Index, whole: Index) -> None:
        """A store of a window writes the computed slice of this window."""
        known = [piece for source in move.sources for piece in self._slices.get(source, [])]
        found = list(_found(move.input, known, self._chip))
        if len(known) == 1 and not found and whole[2] == 1:
            raise _no_window(move, move.input, move.sources[0], known[0])
        for first, other in found:
            axes = [axis for axis in range(5) if axis not in (0, 2) or whole[2] == 1]
            if other != whole or any(first[axis] != start[axis] for axis in axes):
                wanted, got = f"the window at {start} of {whole}, which it stores,", f"that at {first} of {other}"
                raise _wrong(move, wanted, got, "correct the address in local memory, or start")


def _no_window(command: Command, view: View, source: Source, piece: Slice) -> SimulationError:
    got = f"{view.shape} at {view.address:#x}, the slice is {piece.view.shape} at {piece.view.address:#x}"
    return _wrong(command, f"a window of '{source}'", got, "correct the operand's address, shape or strides")


def _check_global(move: Move, view: View, entry: TensorEntry, start: Index, whole: Index) -> None:
    """The elements moved in global memory are those of the window."""
    base = View("gmem", entry.view.address, whole, entry.view.dtype, "dense", interleave=entry.view.interleave)
    who = f"the window at {start} of {whole} of '{entry.name}'"
    fits = base.nbytes == entry.view.nbytes if move.origin is None else base.nbytes <= entry.view.nbytes
    if not fits or view.dtype != base.dtype:
        got = f"{view.dtype}, the tensor is {entry.view.dtype} {entry.view.shape}"
        raise _wrong(move, who, got, "correct the type, or start and whole")
    n, c, d, h, w = strides = move.strides or gmem_strides(base)
    words = (start[0] // base.interleave, *start[1:])
    before = sum(i * step for i, step in zip(words, strides, strict=True)) + (move.origin or 0)
    address = base.address + distance_bytes(base, before)
    steps = [(first, c, h, w) for first in ((n, d) if whole[2] > 1 else (n,))]
    turned = bool(move.kind) and _turned(view, (n, c, h, w))
    if view.address != address or not (turned or any(_steps(view, each) for each in steps)):
        got = f"{view.address:#x} with strides {gmem_strides(view)}"
        raise _wrong(move, f"{who}, {address:#x} with strides {steps[-1]},", got, "correct the address, or start")


def _steps(view: View, strides: Index) -> bool:
    """Whether a view has these strides, along axes longer than 1."""
    axes = zip(gmem_sizes(view), gmem_strides(view), strides, strict=False)
    return len(view.shape) == len(strides) and all(size == 1 or got == wanted for size, got, wanted in axes)


def _turned(view: View, strides: Index) -> bool:
    """Whether a view has these strides in another order, along axes longer than 1: a tile may have permuted axes.

    An axis may be divided, as over lanes: the two axes of a view then lie as densely as the one.
    """
    axes = sorted((stride, size) for size, stride in zip(gmem_sizes(view), gmem_strides(view), strict=True) if size > 1)
    found, end = list[int](), 0
    for stride, size in axes:
        if stride != end:
            found.append(stride)
        end = stride * size
    return len(set(found)) == len(found) and set(found) <= set(strides)


# -------------------------------------------------------------------------------------------------------- local memory


def _found(view: View, known: list[Slice], chip: ChipSpec) -> Iterator[tuple[Index, Index]]:
    """(first element, tensor's extents) for each slice of which the view is a box."""
    for piece in known:
        inner = _offset(view, piece.view, chip)
        if inner is not None:
            n, c, d, h, w = piece.start
            yield (n + inner[0], c + inner[1], d, h + inner[2], w + inner[3]), piece.whole
            return


def _offset(part: View, whole: View, chip: ChipSpec) -> Index | None:
    """(n, c, h, w) of a view's first element in another view; None if the first is no box of the other."""
    if (part.interleave, itemsize(part.dtype)) != (whole.interleave, itemsize(whole.dtype)) or is_packed(whole.dtype):
        return None
    outer, sizes = lmem_strides(whole, chip), _sizes(whole, chip)
    pairs = zip(lmem_strides(part, chip), outer, _sizes(part, chip), strict=True)
    if any(a != b and size > 1 for a, b, size in pairs):
        return None
    left, rest = divmod(part.address - whole.address, itemsize(whole.dtype) * whole.interleave)
    at = [0, 0, 0, 0]
    for axis in sorted(range(4), key=lambda axis: -outer[axis]):
        if sizes[axis] > 1 and outer[axis] > 0 and left > 0:
            at[axis] = min(left // outer[axis], sizes[axis] - 1)
            left -= at[axis] * outer[axis]
    found = (at[0] * whole.interleave, at[1] * chip.lanes + part.lane - whole.lane, at[2], at[3])
    fits = all(i >= 0 and i + size <= most for i, size, most in zip(found, part.shape, whole.shape, strict=True))
    return found if fits and not left and not rest else None


def _sizes(view: View, chip: ChipSpec) -> Index:
    n, c, h, w = view.shape
    return ceil_div(n, view.interleave), ceil_div(view.lane + c, chip.lanes), h, w


# ------------------------------------------------------------------------------------------------------------- operands


def _reshapes(command: Command) -> bool:
    """Whether a command may read its operand in another shape: a copy (reshape)."""
    return isinstance(command, Arith) and command.kind == "copy"


class _Operands:
    """Checks of the windows that commands read and write, and of their offset to the results at every step."""

    def __init__(self, slices: dict[Source, list[Slice]], chip: ChipSpec) -> None:
        self._slices = slices
        self._chip = chip
        self._seen: dict[tuple[object, ...], tuple[int, str]] = {}

    def check(self, command: Command) -> None:
        """Raise SimulationError for an operand that is no window, or another window than the result needs."""
        window = command.window
        if (window is None and not command.shapes) or len(command.sources) != len(command.reads()):
            return
        results = list(_found(command.writes()[0], self._slices.get(command.owner, []), self._chip))
        for view, source in zip(command.reads(), command.sources, strict=True):
            if view.memory != "lmem" or source not in self._slices:
                continue
            known = self._slices[source]
            found = list(_found(view, known, self._chip))
            if not found and len(known) == 1 and source != command.owner and not _reshapes(command):
                raise _no_window(command, view, source, known[0])  # its work buffer is a source of the same op
            for first, whole in found:
                if window is None:
                    self._check_elementwise(command, source, first, whole, results)
                elif view is command.reads()[0]:  # and not the accumulated sum
                    self._check_sliding(command, window, first, whole, results)

    def _check_elementwise(
        self, command: Command, source: Source, first: Index, whole: Index, results: list[tuple[Index, Index]]
    ) -> None:
        """An element-wise operand has the index of its result, except along broadcast axes."""
        for made, other in results:
            for axis, name in enumerate("ncdhw"):
                if name in "nd" and whole[2] > 1:  # either may be the outer one
                    continue
                if whole[axis] == other[axis] and first[axis] != made[axis]:
                    wanted = f"'{source}' from {name} = {made[axis]} on, like its result,"
                    raise _wrong(command, wanted, first[axis], "correct the operand's address, or the table of slices")

    def _check_sliding(
        self, command: Command, window: Window, first: Index, whole: Index, results: list[tuple[Index, Index]]
    ) -> None:
        if len(window.kernel) != 2 or any(window.inserts):
            return
        for at, axis in ((2, "h"), (3, "w")):
            self._check_border(command, window, at, axis, first, whole)
            for made, _ in results:
                self._check_shift(command, window, at, axis, first, made)

    @staticmethod
    def _check_border(command: Command, window: Window, at: int, axis: str, first: Index, whole: Index) -> None:
        """Padding replaces only elements beyond the border of the tensor."""
        start, size, length = first[at + 1], command.reads()[0].shape[at], whole[at + 1]
        before, after = window.pads[at - 2], window.pads[at]
        if (before and start) or (after and start + size < length):
            got = f"{before} before and {after} after {axis} [{start}, {start + size}) of {length}"
            raise _wrong(command, "padding only beyond the border of the tensor", got, "read the elements instead")

    def _check_shift(self, command: Command, window: Window, at: int, axis: str, first: Index, made: Index) -> None:
        """All windows of an op begin at the same distance before their results."""
        stride, pad = window.strides[at - 2], window.pads[at - 2]
        shift = made[at + 1] * stride - first[at + 1] + pad
        key = (type(command), command.op, axis, window.kernel, stride)
        known, label = self._seen.setdefault(key, (shift, command.label))
        if shift != known:
            wanted = f"a window that begins {known} before its result along {axis}, as that of {label},"
            raise _wrong(command, wanted, shift, "correct the operand's address, the pads or the table of slices")
