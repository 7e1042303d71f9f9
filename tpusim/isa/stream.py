"""The program: one command stream per engine in one issue order, coefficients, and the table of tensors in GMEM.

File form (`.tpusim`, DC-01): one zip archive (`isa.archive`) with JSON tables that use bmodel's names for fields that
it has, one command per line of text (`isa.text`), the coefficient image as an npy member, a format version and SHA-256
checksums. It is written to a temporary name and then renamed.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from tpusim import chips
from tpusim.errors import ConfigError, ImportModelError, option
from tpusim.isa.archive import checksum, format_version, npy_array, npy_bytes, read_members, refusal, write_members
from tpusim.isa.commands import Command
from tpusim.isa.region import Address, DType, Layout, Length, View
from tpusim.isa.text import command_line, parse_command

FORMAT_VERSION = 8
READ_VERSIONS = (7, FORMAT_VERSION)
"""Format versions that are read; in 7 commands name their sources differently (`upgraded`)."""
NETS_VERSION = 9
"""The format of a file with several programs and one weight store (`tpusim.isa.nets`)."""

Bytes = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A size; checked when it is read from a file."""


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tensor in global memory. scale, zero_point: of its quantised type; 0.0: not quantised."""

    name: str
    view: View
    role: Literal["input", "output", "interior"]
    scale: float = 0.0
    zero_point: int = 0
    shape: tuple[Length, ...] | None = None
    """Shape in the network if it differs from the view's."""
    parts: tuple[str, ...] = ()
    """Tensors that share this one's bytes (reshape, concat); it is complete when all of them are."""


class CoefficientEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the bytes of one constant lie in the coefficient region. name: as in the `sources` of commands."""

    name: str
    address: Address
    size: Bytes


class Location(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a slice of a tensor is in local memory, and from which command on (upstream's tensor_location.json).

    command: index in the program's commands after which the slice is complete. start: (n, c, d, h, w) of its first
    element in the tensor's logical shape `whole`; shape: of the tensor in the network. depth: how many d the slice
    has; axis 0 of the view counts d*n, d outside (hardware.md 2.1, GROUP_3D).
    """

    command: int
    tensor: str
    view: View
    start: tuple[Length, Length, Length, Length, Length]
    whole: tuple[Length, Length, Length, Length, Length]
    shape: tuple[Length, ...]
    depth: Annotated[int, msgspec.Meta(ge=1)] = 1


class GroupEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One layer group, or one global layer (one op, with `reason`; its lmem_peak_bytes are its tiles')."""

    id: int
    ops: tuple[str, ...]
    secs: dict[str, int]
    lmem_peak_bytes: int = 0
    reason: str = ""
    """For a global layer: why it is computed in global memory."""
    function: str = ""
    """The function of TPU-MLIR that it belongs to; "": its module has one function."""


_BMODEL_NAMES = {
    "model": "name",
    "coeff_address": "coeff_addr",
    "coeff_bytes": "coeff_size",
    "neuron_address": "ctx_addr",
    "neuron_bytes": "ctx_size",
}


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=_BMODEL_NAMES):
    """Identity of a program file; in files the fields that bmodel has use its names."""

    format_version: int
    tpusim: str
    chip: str
    model: str
    mode: str
    coeff_address: Address
    coeff_bytes: Bytes
    neuron_address: Address
    neuron_bytes: Bytes
    macs: int
    checksums: dict[str, str]
    io_regions: tuple[tuple[Address, Bytes], ...] = ()
    """(address, bytes) of outputs that lie outside the neurons."""
    chip_definition: str | msgspec.UnsetType = msgspec.UNSET
    """How the chip is defined from a shipped one (`tpusim.chips.define`); unset: it is a shipped chip."""

    @property
    def chip_spec(self) -> chips.ChipSpec:
        """The chip that the program is for. Raises ConfigError."""
        return chips.resolve(self.chip, self.chip_definition or "")


class Program(msgspec.Struct, frozen=True):
    """The program that the machine runs."""

    header: Header
    tensors: tuple[TensorEntry, ...]
    groups: tuple[GroupEntry, ...]
    commands: tuple[Command, ...]
    coefficients: np.ndarray
    """uint8 image of the coefficient region."""
    locations: tuple[Location, ...] = ()
    """Slices of the tensors that exist in local memory only, in program order."""
    constants: tuple[CoefficientEntry, ...] = ()
    """The constants in the coefficient region."""

    def __repr__(self) -> str:
        """A summary with counts; `tpusim.isa.listing` gives the text of the commands."""
        head = self.header
        return (
            f"<Program {head.model} for {head.chip} in {head.mode}: {len(self.commands):,} commands, "
            f"{len(self.groups)} groups, {len(self.tensors)} tensors, {len(self.coefficients):,} bytes of coefficients>"
        )

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """The same for Rich, which would otherwise print every field."""
        return [("model", self.header.model), ("chip", self.header.chip), ("commands", len(self.commands))]

    def tensor(self, name: str) -> TensorEntry:
        """The tensor table's entry of that name. Raises KeyError."""
        for entry in self.tensors:
            if entry.name == name:
                return entry
        raise KeyError(name)

    @property
    def functions(self) -> dict[str, tuple[int, ...]]:
        """Function -> its groups, in the order of execution; one without a name if the module has one function."""
        found: dict[str, tuple[int, ...]] = {}
        for entry in self.groups:
            found[entry.function] = (*found.get(entry.function, ()), entry.id)
        return found

    @property
    def inputs(self) -> tuple[TensorEntry, ...]:
        """The network's input tensors, in its order."""
        return tuple(t for t in self.tensors if t.role == "input")

    @property
    def outputs(self) -> tuple[TensorEntry, ...]:
        """The network's output tensors, in its order."""
        return tuple(t for t in self.tensors if t.role == "output")


MEMBERS = ("tensors.json", "groups.json", "commands.txt", "slices.jsonl", "constants.json")
"""The members of a program in an archive, without header and coefficients."""
COEFFICIENTS = "coefficients.npy"
_LARGEST_REGION = 1 << 34
"""Most bytes of a region of global memory: the size of the largest boards' memory."""


class _TensorRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `TensorEntry` as written in tensors.json; fields that bmodel's table Tensor has use its names.

    stmode: 0, 1, 2 for 1N, 2N, 4N. shape: in the network; view_shape: in memory, if it differs.
    """

    name: str
    role: Literal["input", "output", "interior"]
    dtype: DType
    device_addr: Address
    size: int
    shape: tuple[Length, ...]
    stmode: Literal[0, 1, 2] = 0
    scale: float = 0.0
    zero_point: int = 0
    layout: Layout = "dense"
    strides: tuple[Address, ...] | None = None
    batch_axis: int = 0
    view_shape: tuple[Length, ...] | None = None
    parts: tuple[str, ...] = ()


def _record(entry: TensorEntry) -> _TensorRecord:
    view = entry.view
    if view.memory != "gmem" or view.laned:
        raise ImportModelError(f"tensor '{entry.name}': plain global memory is required, got {view}")
    return _TensorRecord(
        name=entry.name,
        role=entry.role,
        dtype=view.dtype,
        device_addr=view.address,
        size=view.nbytes,
        shape=view.shape if entry.shape is None else entry.shape,
        stmode=_STORE_MODES[view.interleave],
        scale=entry.scale,
        zero_point=entry.zero_point,
        layout=view.layout,
        strides=view.strides,
        batch_axis=view.batch_axis,
        view_shape=None if entry.shape is None else view.shape,
        parts=entry.parts,
    )


def _entry(record: _TensorRecord) -> TensorEntry:
    view = View(
        memory="gmem",
        address=record.device_addr,
        shape=record.shape if record.view_shape is None else record.view_shape,
        dtype=record.dtype,
        layout=record.layout,
        strides=record.strides,
        interleave=1 << record.stmode,
        batch_axis=record.batch_axis,
    )
    if view.nbytes != record.size:
        raise ValueError(f"tensor '{record.name}' has {view.nbytes:,} bytes, its record says {record.size:,}")
    return TensorEntry(
        name=record.name,
        view=view,
        role=record.role,
        scale=record.scale,
        zero_point=record.zero_point,
        shape=None if record.view_shape is None else record.shape,
        parts=record.parts,
    )


_STORE_MODES: dict[int, Literal[0, 1, 2]] = {1: 0, 2: 1, 4: 2}


def save(program: Program, path: Path) -> None:
    """Write `program` to `path` atomically."""
    members = {**members_of(program), COEFFICIENTS: npy_bytes(program.coefficients)}
    sums = {name: checksum(data) for name, data in members.items()}
    header = msgspec.structs.replace(program.header, format_version=FORMAT_VERSION, checksums=sums)
    write_members(path, msgspec.json.format(msgspec.json.encode(header)), members)


def members_of(program: Program) -> dict[str, bytes]:
    """The members of a program in an archive, without header and coefficients."""
    return {
        "tensors.json": msgspec.json.encode([_record(entry) for entry in program.tensors]),
        "groups.json": msgspec.json.encode(program.groups),
        "commands.txt": "".join(f"{command_line(c)}\n" for c in program.commands).encode(),
        "slices.jsonl": msgspec.json.Encoder().encode_lines(program.locations),
        "constants.json": msgspec.json.encode(program.constants),
    }


def load(path: Path, chip: str = "") -> Program:
    """Read a program file; `chip`: it must be for this one.

    Raises ImportModelError if it is truncated, altered, of another format version, for another chip or no program, and
    ConfigError if it has several nets.
    """
    if format_version(path, (*READ_VERSIONS, NETS_VERSION)) == NETS_VERSION:
        raise ConfigError(
            f"{path}: a program of one net is required here, this file has several; `tpusim inspect` lists them, and "
            f"{option('net', True)} NAME of `tpusim simulate` and `tpusim dis` takes one"
        )
    header_data, members = read_members(path, READ_VERSIONS, lambda _: (*MEMBERS, COEFFICIENTS))
    with malformed(path):
        header = msgspec.json.decode(header_data, type=Header)
        program = decoded(header, members, npy_array(members[COEFFICIENTS]))
    require_sound(path, program, chip)
    return upgraded(program)


@contextmanager
def malformed(path: Path) -> Generator[None]:
    """What cannot be decoded is an ImportModelError."""
    try:
        yield
    except (ValueError, OverflowError, RecursionError, TokenError) as error:  # msgspec's errors are ValueErrors
        raise refusal(path, f"is malformed ({error})") from error


def decoded(header: Header, members: Mapping[str, bytes], coefficients: np.ndarray) -> Program:
    """The program that `members_of` encoded. Raises one of the errors that `malformed` catches."""
    return Program(
        header=header,
        tensors=tuple(_entry(r) for r in msgspec.json.decode(members["tensors.json"], type=list[_TensorRecord])),
        groups=msgspec.json.decode(members["groups.json"], type=tuple[GroupEntry, ...]),
        commands=_commands(members["commands.txt"].decode()),
        locations=tuple(msgspec.json.Decoder(Location).decode_lines(members["slices.jsonl"])),
        constants=msgspec.json.decode(members["constants.json"], type=tuple[CoefficientEntry, ...]),
        coefficients=coefficients,
    )


def require_sound(path: Path, program: Program, chip: str = "") -> None:
    """Raise ImportModelError for a program that cannot be run, or is for another chip."""
    if why := _misfit(program, chip):
        raise refusal(path, why)


def upgraded(program: Program) -> Program:
    """A program of one of `READ_VERSIONS` in the present format.

    In format 7 a source is text; a slice is "conv1@g3n0h2". The text is compared with the slices that the commands
    write, so that no name is parsed; any other text is the name of a tensor or constant.
    """
    if program.header.format_version == FORMAT_VERSION:
        return program
    slices = {str(owner): owner for command in program.commands if (owner := command.owner).step}
    commands = tuple(
        msgspec.structs.replace(c, sources=tuple(slices.get(source.name, source) for source in c.sources))
        for c in program.commands
    )
    header = msgspec.structs.replace(program.header, format_version=FORMAT_VERSION)
    return msgspec.structs.replace(program, header=header, commands=commands)


def _commands(text: str) -> tuple[Command, ...]:
    found: list[Command] = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            found.append(parse_command(line))
        except ValueError as error:
            raise ValueError(f"line {number} of commands.txt: {error}") from error
    return tuple(found)


def _misfit(program: Program, chip: str) -> str:
    """Why this program cannot be run; empty if it can."""
    header = program.header
    try:
        header.chip_spec  # noqa: B018  reading it raises
    except ConfigError as error:
        return f"is for a chip that is not known: {error}"
    if chip and header.chip != chip:
        return f"is for chip {header.chip}, not for the requested {chip}"
    if program.coefficients.nbytes != header.coeff_bytes:
        return f"has {program.coefficients.nbytes:,} bytes of coefficients, its header says {header.coeff_bytes:,}"
    sizes = (header.coeff_bytes, header.neuron_bytes, *(size for _, size in header.io_regions))
    if max(sizes) > _LARGEST_REGION:
        return f"asks for {max(sizes):,} bytes of global memory in one region, {_LARGEST_REGION:,} is the most"
    return ""
