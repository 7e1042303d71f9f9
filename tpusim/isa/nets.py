"""Several programs of one chip with one weight store: named nets, and tensors that live across their runs.

Each net is a whole `Program`, so that every tool works on it; all of them have the same image of coefficients, in which
a constant of several nets is stored once. Neurons of different nets share their bytes, because one net runs at a time.
A *persistent* tensor is an input of one or several nets in bytes that nothing else uses: what one run leaves in it, the
next one reads. `tpusim.isa.linking` makes it of programs. In a file (format 9) the tables of net number i are members
of the folder `i`, and the header has the headers of all nets.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from tpusim.errors import ConfigError, ImportModelError, meant, option
from tpusim.isa.archive import checksum, format_version, npy_array, npy_bytes, read_members, refusal, write_members
from tpusim.isa.layout import extent
from tpusim.isa.region import Address, View
from tpusim.isa.stream import (
    COEFFICIENTS,
    MEMBERS,
    NETS_VERSION,
    READ_VERSIONS,
    Bytes,
    Header,
    Program,
    TensorEntry,
    decoded,
    load,
    malformed,
    members_of,
    require_sound,
)


class Persistent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of global memory that live across runs.

    tensors: net -> its input that has these bytes, or their first part.
    """

    name: str
    address: Address
    size: Bytes
    tensors: dict[str, str]

    @property
    def stop(self) -> int:
        """First address after it."""
        return self.address + self.size


class Nets(Mapping[str, Program]):
    """Name -> program, in the order of the nets. Raises ImportModelError for nets that do not fit together."""

    def __init__(self, nets: Mapping[str, Program], persistent: tuple[Persistent, ...] = ()) -> None:
        self._nets = dict(nets)
        self.persistent = persistent
        if not self._nets:
            raise ConfigError("nets: one net or more is required, got none")
        _check(self)

    def __repr__(self) -> str:
        """Names, chip and bytes of coefficients."""
        return (
            f"<Nets {', '.join(self)} for {self.chip}: {self.coefficients.nbytes:,} bytes of coefficients, "
            f"{len(self.persistent)} persistent tensors>"
        )

    def __getitem__(self, name: str) -> Program:
        """The program of a net. Raises KeyError; `net` raises an error for users."""
        return self._nets[name]

    def __iter__(self) -> Iterator[str]:
        """The names of the nets."""
        return iter(self._nets)

    def __len__(self) -> int:
        """The number of nets."""
        return len(self._nets)

    def net(self, name: str) -> Program:
        """The program of a net. Raises ConfigError for an unknown name."""
        if name not in self._nets:
            known = ", ".join(self._nets)
            raise ConfigError(f"{option('net', name)}: one of the nets {known} is required{meant(name, [*self._nets])}")
        return self._nets[name]

    @property
    def first(self) -> Program:
        """The first net, which says what all have in common."""
        return next(iter(self._nets.values()))

    @property
    def chip(self) -> str:
        """The chip of all nets."""
        return self.first.header.chip

    @property
    def coefficients(self) -> np.ndarray:
        """The coefficients of all nets, uint8."""
        return self.first.coefficients

    def persistent_of(self, net: str) -> dict[str, Persistent]:
        """Input of a net -> the persistent tensor that it is."""
        return {found.tensors[net]: found for found in self.persistent if net in found.tensors}


def shapes(entries: tuple[TensorEntry, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Tensor -> its type and its shape in the network."""
    return {entry.name: (entry.view.dtype, entry.shape or entry.view.shape) for entry in entries}


# -------------------------------------------------------------------------------------------------------------- checks


def _check(nets: Nets) -> None:
    first = nets.first.header
    common = first.chip, first.chip_definition, first.coeff_address, first.coeff_bytes
    for name, program in nets.items():
        header = program.header
        if (header.chip, header.chip_definition, header.coeff_address, header.coeff_bytes) != common:
            raise ImportModelError(
                f"net '{name}': the chip and the coefficients of net '{next(iter(nets))}' are required, "
                f"{first.chip} with {first.coeff_bytes:,} bytes at {first.coeff_address:#x}, got {header.chip} with "
                f"{header.coeff_bytes:,} bytes at {header.coeff_address:#x}; link the programs again"
            )
    for found in nets.persistent:
        _check_tensors(found, nets)
    names = [found.name for found in nets.persistent]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ImportModelError(f"persistent tensors of different names are required, got '{twice[0]}' twice")
    ordered = sorted(nets.persistent, key=lambda found: found.address)
    for one, other in pairwise(ordered):
        if other.address < one.stop:
            raise ImportModelError(
                f"persistent tensors '{one.name}' and '{other.name}' overlap at {other.address:#x}; give each bytes of "
                "its own, or link the programs again"
            )
    for name, program in nets.items():
        _check_apart(name, program, ordered)


def _check_tensors(found: Persistent, nets: Nets) -> None:
    """A persistent tensor is inputs of nets, in the same type, which begin where it does."""
    types, who = set[str](), f"persistent tensor '{found.name}'"
    if not found.tensors:
        raise ImportModelError(f"{who}: an input of a net is required, got none; link the programs again")
    for net, tensor in found.tensors.items():
        inputs = {entry.name: entry for entry in nets[net].inputs} if net in nets else {}
        if tensor not in inputs:
            raise ImportModelError(
                f"{who}: an input of a net is required, got '{tensor}' of net '{net}', whose inputs are "
                f"{', '.join(inputs) or 'not known'}"
            )
        reach = extent(inputs[tensor].view, nets[net].header.chip_spec)
        whole = dict(nets[net].header.io_regions).get(found.address) == found.size
        if reach.start != found.address or reach.stop > found.stop or not whole:
            raise ImportModelError(
                f"{who}: bytes [{found.address:#x}, {found.stop:#x}) are required, input '{tensor}' of net '{net}' has "
                f"[{reach.start:#x}, {reach.stop:#x}); link the programs again"
            )
        types.add(inputs[tensor].view.dtype)
    if len(types) > 1:
        raise ImportModelError(
            f"persistent tensor '{found.name}': one type is required, its inputs have {', '.join(sorted(types))}; "
            "compile the nets in one mode"
        )


def _check_apart(name: str, program: Program, persistent: Sequence[Persistent]) -> None:
    """No command of a net writes into a persistent tensor, and no other tensor of a net lies in one.

    persistent: by address.
    """
    chip, starts = program.header.chip_spec, [found.address for found in persistent]

    def hit(view: View) -> Persistent | None:
        reach = extent(view, chip)
        at = bisect_left(starts, reach.stop) - 1
        return persistent[at] if reach.memory == "gmem" and at >= 0 and reach.start < persistent[at].stop else None

    for entry in program.tensors:
        found = hit(entry.view)
        if found is not None and found.tensors.get(name) != entry.name:
            raise ImportModelError(
                f"net '{name}': its tensor '{entry.name}' overlaps persistent tensor '{found.name}', "
                f"[{found.address:#x}, {found.stop:#x}), which would change between runs; link the programs again"
            )
    for command in program.commands:
        for view in command.writes():
            found = hit(view)
            if found is not None:
                raise ImportModelError(
                    f"net '{name}': {command.label} writes at {view.address:#x}, which overlaps persistent tensor "
                    f"'{found.name}', [{found.address:#x}, {found.stop:#x}); link the programs again"
                )


# --------------------------------------------------------------------------------------------------------------- files


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The header of a file with several nets: their headers by name, with one set of checksums."""

    format_version: int
    nets: dict[str, Header]
    persistent: tuple[Persistent, ...]
    checksums: dict[str, str]


def save_nets(nets: Nets, path: Path) -> None:
    """Write nets to `path` atomically."""
    members = {f"{i}/{name}": data for i, net in enumerate(nets.values()) for name, data in members_of(net).items()}
    members[COEFFICIENTS] = npy_bytes(nets.coefficients)
    headers = {name: msgspec.structs.replace(net.header, checksums={}) for name, net in nets.items()}
    header = _Header(NETS_VERSION, headers, nets.persistent, {name: checksum(data) for name, data in members.items()})
    write_members(path, msgspec.json.format(msgspec.json.encode(header)), members)


def _members(header: bytes) -> tuple[str, ...]:
    count = len(msgspec.json.decode(header, type=_Header).nets)
    return (*(f"{i}/{name}" for i in range(count) for name in MEMBERS), COEFFICIENTS)


def load_nets(path: Path) -> Nets:
    """The nets of a program file; a file of one program is one net, by its model's name.

    Raises ImportModelError as `tpusim.isa.stream.load` does, and for nets that do not fit together.
    """
    if format_version(path, (*READ_VERSIONS, NETS_VERSION)) != NETS_VERSION:
        program = load(path)
        return Nets({program.header.model: program})
    data, members = read_members(path, (NETS_VERSION,), _members)
    with malformed(path):
        header = msgspec.json.decode(data, type=_Header)
        coefficients = npy_array(members[COEFFICIENTS])
        coefficients.flags.writeable = False
        nets = {
            name: decoded(one, {member: members[f"{i}/{member}"] for member in MEMBERS}, coefficients)
            for i, (name, one) in enumerate(header.nets.items())
        }
    if not nets:
        raise refusal(path, "has no net")
    for program in nets.values():
        require_sound(path, program)
    return Nets(nets, header.persistent)


def load_net(path: Path, name: str, chip: str = "") -> Program:
    """One net of a program file; `chip`: it must be for this one. Raises ConfigError for an unknown name."""
    program = load_nets(path).net(name)
    require_sound(path, program, chip)
    return program
