"""Programs that were compiled one by one become nets with one weight store (`tpusim.isa.nets`).

Only the addresses of its views in global memory bind a program to a place. So linking moves views: constants to their
place in the common store, neurons to one area for all nets, separate inputs and results (`addr_mode` io_alone) to bytes
after that area, and persistent inputs to bytes that nothing else uses. Order, sizes and dependencies of commands stay,
and so do the cycles.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, ImportModelError
from tpusim.isa.commands import Command, GlobalKernel
from tpusim.isa.layout import align, extent
from tpusim.isa.nets import Nets, Persistent
from tpusim.isa.region import View
from tpusim.isa.stream import CoefficientEntry, Program

Place = Callable[[View], View]
"""A view of a program -> the same bytes after linking."""


def link(programs: Mapping[str, Program], persistent: Mapping[str, Mapping[str, str]] | None = None) -> Nets:
    """Programs by the name of their net, as nets. persistent: name -> net -> the input that has these bytes.

    Raises ConfigError for programs of several chips, and for a persistent tensor that is no input, or whose bytes its
    program uses for other tensors too.
    """
    if not programs:
        raise ConfigError("nets: one program or more is required, got none")
    chip = _chip_of(programs)
    wanted = _wanted(persistent or {})
    store = _Store(chip)
    constants = {net: store.add(program) for net, program in programs.items()}
    image, start = store.image(), chip.neuron_start or align(store.stop, chip.gmem_align_bytes)
    kept: list[Persistent] = []
    for name, tensors in wanted.items():
        size = max(_io_region(programs, net, tensor)[1] for net, tensor in tensors.items())
        kept.append(Persistent(name, start, size, tensors))
        start = align(start + size, chip.gmem_align_bytes)
    linked: dict[str, Program] = {}
    for net, program in programs.items():
        mine = {_io_region(programs, net, p.tensors[net])[0]: p for p in kept if net in p.tensors}
        linked[net] = _moved(net, program, constants[net], image, start, mine, chip)
    return Nets(linked, tuple(kept))


def _wanted(given: object) -> dict[str, dict[str, str]]:
    """The inputs of each persistent tensor by net. Raises ConfigError for an input of two such tensors."""
    if not isinstance(given, Mapping):
        raise ConfigError(
            "persistent: inputs by net are required for each name, as {'name': {'net': 'input'}}, got "
            f"{type(given).__name__}"
        )
    found = {
        str(name): _tensors(str(name), tensors) for name, tensors in cast("Mapping[object, object]", given).items()
    }
    owners: dict[tuple[str, str], str] = {}
    for name, tensors in found.items():
        for pair in tensors.items():
            if owners.setdefault(pair, name) != name:
                net, tensor = pair
                raise ConfigError(
                    f"persistent: one name for input '{tensor}' of net '{net}' is required, got '{owners[pair]}' and "
                    f"'{name}'"
                )
    return found


def _tensors(name: str, given: object) -> dict[str, str]:
    """The inputs of a persistent tensor by net. Raises ConfigError for anything else."""
    found = dict(cast("Mapping[object, object]", given)) if isinstance(given, Mapping) else dict[object, object]()
    if not found or not all(isinstance(x, str) for pair in found.items() for x in pair):
        raise ConfigError(f"persistent: inputs by net are required for '{name}', as {{'net': 'input'}}, got {given!r}")
    return {str(net): str(tensor) for net, tensor in found.items()}


def _chip_of(programs: Mapping[str, Program]) -> ChipSpec:
    """The chip of all programs. Raises ConfigError if there are several."""
    first, *others = programs
    for other in others:
        one, two = programs[first].header, programs[other].header
        if (one.chip, one.chip_definition) != (two.chip, two.chip_definition):
            raise ConfigError(f"nets: one chip is required, '{first}' is for {one.chip}, '{other}' for {two.chip}")
    return programs[first].header.chip_spec


def _io_region(programs: Mapping[str, Program], net: str, tensor: str) -> tuple[int, int]:
    """(address, bytes) of an input that shares its bytes with no other tensor. Raises ConfigError for others."""
    program = programs.get(net)
    entry = next((entry for entry in program.inputs if entry.name == tensor), None) if program is not None else None
    if program is None or entry is None:
        known = ", ".join(e.name for e in program.inputs) if program is not None else ", ".join(programs)
        what = "an input" if program is not None else "a net"
        raise ConfigError(f"persistent: {what} is required, one of {known}, got '{tensor}' of net '{net}'")
    start = extent(entry.view, program.header.chip_spec).start
    size = dict(program.header.io_regions).get(start)
    if size is None:
        raise ConfigError(
            f"persistent: input '{tensor}' of net '{net}' shares bytes with other tensors; compile the net with the "
            "address mode io_alone"
        )
    return start, size


class _Store:
    """The constants of all nets; bytes that several nets have are stored once."""

    def __init__(self, chip: ChipSpec) -> None:
        self._chip = chip
        self.stop = chip.coeff_start
        self._places: dict[tuple[bytes, int], int] = {}
        self._parts: list[tuple[int, np.ndarray]] = []

    def add(self, program: Program) -> tuple[CoefficientEntry, ...]:
        """The constants of a program in the order of their addresses, with their addresses in the store."""
        found: list[CoefficientEntry] = []
        seen: dict[bytes, int] = {}
        for entry in sorted(program.constants, key=lambda entry: entry.address):
            data = _bytes_of(program, entry)
            digest = hashlib.sha256(data.tobytes()).digest()
            number = seen[digest] = seen.get(digest, -1) + 1  # two constants of one net share no bytes
            address = self._places.get((digest, number))
            if address is None:
                address = align(self.stop, self._chip.gmem_align_bytes)
                self._places[digest, number] = address
                self._parts.append((address, data))
                self.stop = address + entry.size
            found.append(CoefficientEntry(entry.name, address, entry.size))
        return tuple(found)

    def image(self) -> np.ndarray:
        """The bytes of the coefficient region, which nothing may change."""
        self.stop = align(self.stop, self._chip.gmem_align_bytes)
        image = np.zeros(self.stop - self._chip.coeff_start, np.uint8)
        for address, data in self._parts:
            offset = address - self._chip.coeff_start
            image[offset : offset + data.size] = data
        image.flags.writeable = False
        return image


def _bytes_of(program: Program, entry: CoefficientEntry) -> np.ndarray:
    offset = entry.address - program.header.coeff_address
    if offset < 0 or offset + entry.size > program.coefficients.size:
        raise ImportModelError(
            f"constant '{entry.name}' of {program.header.model}: bytes inside the coefficients are required, got "
            f"[{entry.address:#x}, {entry.address + entry.size:#x}); compile the network again"
        )
    return program.coefficients[offset : offset + entry.size]


@dataclass(frozen=True)
class _Piece:
    """Addresses [start, stop) of a program that linking moves by `distance`."""

    start: int
    stop: int
    distance: int


def _moved(
    net: str, program: Program, constants: tuple[CoefficientEntry, ...], image: np.ndarray, start: int,
    persistent: Mapping[int, Persistent], chip: ChipSpec,
) -> Program:  # fmt: skip
    """A program with its constants in the store and its neurons from `start` on."""
    header = program.header
    old = sorted(program.constants, key=lambda entry: entry.address)
    pieces = [_Piece(a.address, a.address + a.size, b.address - a.address) for a, b in zip(old, constants, strict=True)]
    pieces.append(
        _Piece(header.neuron_address, header.neuron_address + header.neuron_bytes, start - header.neuron_address)
    )
    free, regions = align(start + header.neuron_bytes, chip.gmem_align_bytes), list[tuple[int, int]]()
    for address, size in header.io_regions:
        if address in persistent:
            place, size_there = persistent[address].address, persistent[address].size
        elif chip.io_start and address >= chip.io_start:
            place, size_there = address, size
        else:
            place, size_there = free, size
            free = align(free + size, chip.gmem_align_bytes)
        pieces.append(_Piece(address, address + size, place - address))
        regions.append((place, size_there))
    place_of = _placing(net, pieces)
    return replace(
        program,
        header=replace(
            header,
            model=net,
            coeff_address=chip.coeff_start,
            coeff_bytes=image.nbytes,
            neuron_address=start,
            io_regions=tuple(sorted(regions)),
            checksums={},
        ),
        tensors=tuple(replace(entry, view=place_of(entry.view)) for entry in program.tensors),
        commands=tuple(_placed(command, place_of) for command in program.commands),
        locations=tuple(replace(location, view=place_of(location.view)) for location in program.locations),
        coefficients=image,
        constants=constants,
    )


def _placing(net: str, pieces: Iterable[_Piece]) -> Place:
    """A function that moves a view with the piece that contains its address."""
    ordered = sorted((piece for piece in pieces if piece.stop > piece.start), key=lambda piece: piece.start)
    starts = [piece.start for piece in ordered]
    known: dict[View, View] = {}

    def place(view: View) -> View:
        if view.memory != "gmem":
            return view
        found = known.get(view)
        if found is None:
            at = bisect_right(starts, view.address) - 1
            if at < 0 or view.address >= ordered[at].stop:
                raise ImportModelError(
                    f"net '{net}': an address in a constant, in the neurons or in an input or result is required, got "
                    f"{view.address:#x}; compile the network again"
                )
            found = known[view] = replace(view, address=view.address + ordered[at].distance)
        return found

    return place


def _placed(command: Command, place: Place) -> Command:
    if isinstance(command, GlobalKernel):
        return replace(command, body=_placed(command.body, place))
    return command.with_operands(place(view) for _, view in command.operands())
