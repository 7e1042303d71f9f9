"""The program: one command stream per engine in one issue order, coefficients, and the table of tensors in GMEM.

File form (`.tpusim`, DC-01): one zip archive with JSON tables, one command per line, the coefficient image as an npy
member, a format version and SHA-256 checksums. It is written to a temporary name and then renamed.
"""

import hashlib
import io
import zipfile
import zlib
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from tpusim.errors import ImportModelError
from tpusim.ir.files import replacing
from tpusim.isa.commands import AnyCommand
from tpusim.isa.region import View

FORMAT_VERSION = 1


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tensor in global memory. scale/zero_point say how integers stand for reals; 0.0: not quantised."""

    name: str
    view: View
    role: Literal["input", "output", "interior"]
    scale: float = 0.0
    zero_point: int = 0
    shape: tuple[int, ...] | None = None
    """Shape in the network if it differs from the view's."""
    parts: tuple[str, ...] = ()
    """Tensors whose bytes this one is made of in place (reshape, concat): complete when all of them are."""


class Location(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one slice of a tensor is in local memory, and from when on (upstream's tensor_location.json).

    command: index in the program's commands after which the slice is complete. start: (n, c, h, w) of its first
    element in the tensor's logical shape `whole`; shape: of the tensor in the network.
    """

    command: int
    tensor: str
    view: View
    start: tuple[int, int, int, int]
    whole: tuple[int, int, int, int]
    shape: tuple[int, ...]


class GroupEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One layer group, or one global layer (ops of length 1, lmem_peak_bytes 0)."""

    id: int
    ops: tuple[str, ...]
    secs: dict[str, int]
    lmem_peak_bytes: int = 0
    reason: str = ""
    """For a global layer: why it is not in local memory."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Identity of a program file."""

    format_version: int
    tpusim: str
    chip: str
    model: str
    mode: str
    coeff_address: int
    coeff_bytes: int
    neuron_address: int
    neuron_bytes: int
    macs: int
    checksums: dict[str, str]


class Program(msgspec.Struct, frozen=True):
    """What the machine runs."""

    header: Header
    tensors: tuple[TensorEntry, ...]
    groups: tuple[GroupEntry, ...]
    commands: tuple[AnyCommand, ...]
    coefficients: np.ndarray
    """uint8 image of the coefficient region."""
    locations: tuple[Location, ...] = ()
    """Slices of the tensors that live in local memory only, in program order."""

    def tensor(self, name: str) -> TensorEntry:
        """The tensor table's entry of that name. Raises KeyError."""
        for entry in self.tensors:
            if entry.name == name:
                return entry
        raise KeyError(name)

    @property
    def inputs(self) -> tuple[TensorEntry, ...]:
        """Network inputs in order."""
        return tuple(t for t in self.tensors if t.role == "input")

    @property
    def outputs(self) -> tuple[TensorEntry, ...]:
        """Network outputs in order."""
        return tuple(t for t in self.tensors if t.role == "output")


_MEMBERS = ("tensors.json", "groups.json", "commands.jsonl", "locations.jsonl", "coefficients.npy")


def _encode(program: Program) -> dict[str, bytes]:
    coefficients = io.BytesIO()
    np.save(coefficients, program.coefficients, allow_pickle=False)
    return {
        "tensors.json": msgspec.json.encode(program.tensors),
        "groups.json": msgspec.json.encode(program.groups),
        "commands.jsonl": msgspec.json.Encoder().encode_lines(program.commands),
        "locations.jsonl": msgspec.json.Encoder().encode_lines(program.locations),
        "coefficients.npy": coefficients.getvalue(),
    }


def save(program: Program, path: Path) -> None:
    """Write `program` to `path` atomically."""
    members = _encode(program)
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    header = msgspec.structs.replace(program.header, format_version=FORMAT_VERSION, checksums=sums)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", msgspec.json.format(msgspec.json.encode(header)))
        for name, data in members.items():
            archive.writestr(name, data)


def load(path: Path) -> Program:
    """Read a program file. Raises ImportModelError if it is truncated, altered, newer or no program at all."""

    def refuse(why: str, cause: Exception | None = None) -> ImportModelError:
        error = ImportModelError(f"program file '{path}': {why}; write it again with `tpusim codegen`")
        error.__cause__ = cause
        return error

    try:
        with zipfile.ZipFile(path) as archive:
            header = msgspec.json.decode(archive.read("header.json"), type=Header)
            if header.format_version != FORMAT_VERSION:
                raise refuse(f"format version {FORMAT_VERSION} is read here, the file has {header.format_version}")
            members = {name: archive.read(name) for name in _MEMBERS}
    except OSError as error:
        raise refuse(f"cannot be opened ({error.strerror or error})", error) from error
    except (zipfile.BadZipFile, zlib.error, KeyError, msgspec.DecodeError, RuntimeError, EOFError) as error:
        raise refuse(f"is not a complete program archive ({error})", error) from error
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != header.checksums.get(name):
            raise refuse(f"member {name} does not match its checksum")
    try:
        return Program(
            header=header,
            tensors=msgspec.json.decode(members["tensors.json"], type=tuple[TensorEntry, ...]),
            groups=msgspec.json.decode(members["groups.json"], type=tuple[GroupEntry, ...]),
            commands=tuple(msgspec.json.Decoder(AnyCommand).decode_lines(members["commands.jsonl"])),
            locations=tuple(msgspec.json.Decoder(Location).decode_lines(members["locations.jsonl"])),
            coefficients=np.load(io.BytesIO(members["coefficients.npy"]), allow_pickle=False),
        )
    except (msgspec.DecodeError, ValueError) as error:
        raise refuse(f"is malformed ({error})", error) from error
