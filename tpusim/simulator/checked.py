"""Compare the results of commands with reference tensors while the program runs.

A slice in local memory is compared when the program's table of locations says that it is complete. What a command
stores in global memory is compared right after the command, and the whole tensor after its last part was stored (a
store to a wrong address leaves a gap). Integers must be equal; floats may differ by a bound, because sums are rounded
in another order.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, SimulationError
from tpusim.isa.blocks import offsets
from tpusim.isa.commands import Command, Source
from tpusim.isa.region import View, numpy_dtype
from tpusim.isa.stream import Location, Program, TensorEntry
from tpusim.numbers.closeness import FRACTION_BITS, Bound, bound_of, ulps_apart
from tpusim.simulator.memory import Machine, regions_of
from tpusim.simulator.stored import StoredTensors


@dataclass(frozen=True)
class Mismatch:
    """The first element of a slice or tensor that differs from the reference.

    where: its index in the tensor, as axis name and number (n, c, h, w, with d if the tensor has it; axis0 .. of a
    tensor of another rank), empty if the command wrote outside the tensor. lane: -1 in global memory. address: byte in
    the lane, or in global memory. wrong: how many of `elements` differ.
    """

    command: str
    index: int
    tensor: str
    where: tuple[tuple[str, int], ...]
    memory: str
    lane: int
    address: int
    expected: float | int
    found: float | int
    wrong: int
    elements: int

    def __str__(self) -> str:
        return f"{self.headline}: expected {self.expected}, found {self.found}"

    @property
    def headline(self) -> str:
        """Command, tensor, element and place, without the values."""
        element = ", ".join(f"{axis}={number}" for axis, number in self.where) or "an element outside it"
        place = f"lane {self.lane}, local byte {self.address:,}" if self.lane >= 0 else f"global byte {self.address:#x}"
        return (
            f"{self.command}: tensor '{self.tensor}' is wrong, {self.wrong:,} of {self.elements:,} elements it "
            f"produced; the first is {element} at {place}"
        )


class WrongResult(SimulationError):
    """The first result that differs from the reference."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(str(mismatch))
        self.mismatch = mismatch


class Checker:
    """Follows a run (`Simulator.run(inputs, after=checker.after)`) and compares.

    reference: tensors by name, in the dtype and with the elements the machine has (tpu_outputs.npz; bf16 as bits in
    uint16). collect: note every wrong command in `mismatches` instead of raising SimulationError at the first one.
    float_ulps: bound of float differences, in units of the last place of the tensor's largest magnitude; None: the
    bound of `tpusim.numbers.closeness` for results of a whole network. expected: a memory like those of the run,
    without values of commands; None: one of bytes.
    """

    def __init__(
        self,
        program: Program,
        chip: ChipSpec,
        reference: Mapping[str, np.ndarray],
        *,
        collect: bool = False,
        float_ulps: int | None = None,
        expected: Machine | None = None,
    ) -> None:
        self.mismatches: list[Mismatch] = []
        self.checked = 0
        """Slices, stores and tensors compared so far."""
        self._program = program
        self._chip = chip
        self._collect = collect
        self._ulps = float_ulps
        self._narrowest = min(map(_fraction_bits, program.commands), default=FRACTION_BITS["float32"])
        self._slices: dict[int, list[Location]] = defaultdict(list)
        for location in program.locations:
            self._slices[location.command].append(location)
        self._entries = {entry.name: entry for entry in program.tensors}
        self._stored = StoredTensors(program)
        self._again = _read_again(program)
        self._expected = expected or Machine(chip, regions_of(program), program.coefficients)
        self._reference = self._converted(reference)
        self._in_expected = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Every tensor the program produces, in the order of its tables."""
        made = [entry.name for entry in self._program.tensors if entry.role != "input"]
        return tuple(dict.fromkeys([*(location.tensor for location in self._program.locations), *made]))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Tensors that are missing from the reference."""
        return tuple(name for name in self.names if name not in self._reference)

    def _converted(self, reference: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        wanted = {entry.name: (entry.view, entry.view.elements) for entry in self._program.tensors}
        for location in self._program.locations:
            wanted[location.tensor] = (location.view, int(np.prod(location.whole)))
        known = [name for name in self.names if name in reference]
        found = {name: self._expected.expects(name, reference[name], *wanted[name]) for name in known}
        if not found:
            raise ConfigError(
                f"reference: none of the program's tensors is in it; they are {', '.join(self.names[:8])} ..., "
                "take tpu_outputs.npz of the same run"
            )
        return found

    def after(self, index: int, memory: Machine) -> None:
        """Compare the results of the command with this index, which has just run. Raises SimulationError."""
        for location in self._slices.get(index, ()):
            if location.tensor in self._reference:
                self._slice(index, location, memory)
        command = self._program.commands[index]
        known = command.tensor in self._reference and command.tensor in self._entries
        if known and index >= self._again.get((command.tensor, command.group), 0):
            for view in command.writes():
                self._store(index, self._entries[command.tensor], view, memory)
        for entry in self._stored.finished(index):
            if entry.name in self._reference:
                self._store(index, entry, entry.view, memory)

    def forget(self, name: str) -> None:
        """Compare a tensor no more."""
        self._reference.pop(name, None)

    def skip(self, index: int) -> None:
        """Count the command with this index as run and right; a run that begins after it compares only the rest."""
        self._stored.finished(index)

    def _slice(self, index: int, location: Location, memory: Machine) -> None:
        def logical(part: np.ndarray) -> np.ndarray:
            return part.reshape(location.depth, -1, *part.shape[1:]).transpose(1, 2, 0, 3, 4)

        found = logical(memory.read(location.view))
        window = tuple(slice(s, s + size) for s, size in zip(location.start, found.shape, strict=True))
        expected = self._reference[location.tensor].reshape(location.whole)[window]
        wrong = self._differing(location.tensor, found, expected)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            at = int(logical(offsets(location.view, self._chip))[first])
            whole = tuple(s + i for s, i in zip(location.start, first, strict=True))
            where = _named(location.shape, int(np.ravel_multi_index(whole, location.whole)))
            self._report(index, location.tensor, where, location.view, at, (expected[first], found[first]), wrong)

    def _store(self, index: int, entry: TensorEntry, view: View, memory: Machine) -> None:
        """Compare a part of a tensor in global memory; the expected bytes are written to a separate memory."""
        if self._in_expected != entry.name:
            self._expected.write(entry.view, self._reference[entry.name].reshape(entry.view.shape))
            self._in_expected = entry.name
        found, expected = memory.read(view), self._expected.read(view)
        wrong = self._differing(entry.name, found, expected)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            at = int(offsets(view, self._chip)[first])
            inside = np.flatnonzero(offsets(entry.view, self._chip) == at)
            where = _named(entry.shape or entry.view.shape, int(inside[0])) if len(inside) else ()
            self._report(index, entry.name, where, view, at, (expected[first], found[first]), wrong)

    def _differing(self, name: str, found: np.ndarray, expected: np.ndarray) -> np.ndarray:
        self.checked += 1
        if found.dtype.kind in "iu":
            return found != expected
        bound = bound_of(found.dtype, narrowest=self._narrowest)
        if self._ulps is not None:
            bound = Bound(FRACTION_BITS[found.dtype.name], self._ulps)
        return ulps_apart(found, expected, self._reference[name], bound.fraction_bits) > bound.ulps

    def _report(
        self,
        index: int,
        tensor: str,
        where: tuple[tuple[str, int], ...],
        view: View,
        at: int,
        values: tuple[np.generic, np.generic],
        wrong: np.ndarray,
    ) -> None:
        lane, address = divmod(at, self._chip.lmem_bytes) if view.memory == "lmem" else (-1, at)
        mismatch = Mismatch(
            command=self._program.commands[index].label,
            index=index,
            tensor=tensor,
            where=where,
            memory=view.memory,
            lane=lane,
            address=address,
            expected=_number(values[0]),
            found=_number(values[1]),
            wrong=int(wrong.sum()),
            elements=wrong.size,
        )
        if not self._collect:
            raise WrongResult(mismatch)
        if not self.mismatches or (self.mismatches[-1].index, self.mismatches[-1].tensor) != (index, tensor):
            self.mismatches.append(mismatch)


def _read_again(program: Program) -> dict[tuple[str, int], int]:
    """(tensor, layer) -> the last command that reads it in the layer, where several steps of one store it."""
    stored = {(command.tensor, command.group) for command in program.commands if command.tensor}
    return {
        (source.name, command.group): index
        for index, command in enumerate(program.commands)
        for source in command.sources
        if (source.name, command.group) in stored and source == Source(source.name)
    }


def _number(value: np.generic) -> float | int:
    return int(value) if value.dtype.kind in "iu" else float(value)  # type: ignore[call-overload]


def _fraction_bits(command: Command) -> int:
    """The fewest that a float operand of a command has."""
    kinds = {numpy_dtype(view.dtype).name for view in (*command.reads(), *command.writes())}
    return min((FRACTION_BITS[kind] for kind in kinds if kind in FRACTION_BITS), default=FRACTION_BITS["float32"])


_AXES = {4: "nchw", 5: "ncdhw"}


def _named(shape: tuple[int, ...], flat: int) -> tuple[tuple[str, int], ...]:
    """Index of an element by axis, from its number in row-major order."""
    names = _AXES.get(len(shape)) or [f"axis{i}" for i in range(len(shape))]
    return tuple((name, int(i)) for name, i in zip(names, np.unravel_index(flat, shape), strict=True))
