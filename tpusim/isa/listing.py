"""A whole program as text, and back: what `tpusim dis` prints and `tpusim asm` reads.

Lines as in `isa.text`: `header`, `group`, `tensor` and `constant` lines first, then every command in issue order, each
followed by the `slice` lines of the tensors that are complete in local memory after it. `;` begins a comment line.
Coefficients are not text: `assemble` takes their bytes as an argument. A listing of selected commands has no header
and is for reading only.
The header counts commands and slices, so that a truncated text is refused; after adding or removing lines by hand,
correct `commands=` and `slices=`, or remove them.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from tpusim.errors import ImportModelError
from tpusim.isa.archive import read_here
from tpusim.isa.commands import Command, Engine
from tpusim.isa.stream import (
    FORMAT_VERSION,
    READ_VERSIONS,
    CoefficientEntry,
    GroupEntry,
    Header,
    Location,
    Program,
    TensorEntry,
    upgraded,
)
from tpusim.isa.text import command_line, parse_command, parse_record, record_line


class _Counts(Header, frozen=True, kw_only=True):
    """The header line: the program's header, and how many command and slice lines must follow."""

    commands: int | None = None
    slices: int | None = None

    @property
    def header(self) -> Header:
        """The header of the program without its commands."""
        return Header(**{name: getattr(self, name) for name in Header.__struct_fields__})


_TITLE = "; tpusim program, format {}: header, tables, then commands in issue order (tpusim asm reads this)"
_PART = "; some commands of a tpusim program: {} of {}"


def listing(program: Program) -> str:
    """The program as text, all but the bytes of its coefficients."""
    after: dict[int, list[Location]] = defaultdict(list)
    for location in program.locations:
        after[location.command].append(location)
    counts = f" commands={len(program.commands)} slices={len(program.locations)}"  # first: no cut keeps half of it
    lines = [_TITLE.format(FORMAT_VERSION), record_line("header", program.header, ("checksums",), counts)]
    lines += [record_line("group", group) for group in program.groups]
    lines += [record_line("tensor", tensor) for tensor in program.tensors]
    lines += [record_line("constant", constant) for constant in program.constants]
    for index, command in enumerate(program.commands):
        lines.append(command_line(command))
        lines += [record_line("slice", location, ("command",)) for location in after[index]]
    return "\n".join(lines) + "\n"


def extract(program: Program, *, op: str | None = None, engine: Engine | None = None, core: int | None = None) -> str:
    """The commands of one op, engine or core as text, for reading only. Raises ImportModelError if there is none."""
    found = [
        c for c in program.commands if op in (None, c.op) and engine in (None, c.engine) and core in (None, c.core)
    ]
    if not found:
        known = sorted({c.op for c in program.commands})
        shown = ", ".join(known[:12]) + (" ..." if len(known) > 12 else "")
        where = f"engine {engine or 'tiu or gdma'}" + ("" if core is None else f" of core {core}")
        which = "any op" if op is None else f"op '{op}'"
        cores = sorted({c.core for c in program.commands})
        raise ImportModelError(f"no command of {which} on {where}; cores are {cores}, ops are {shown}")
    head = _PART.format(len(found), len(program.commands))
    return "\n".join([head, *map(command_line, found)]) + "\n"


@dataclass
class _Assembly:
    """What the lines read so far have declared."""

    headers: list[_Counts] = field(default_factory=list[_Counts])
    groups: list[GroupEntry] = field(default_factory=list[GroupEntry])
    tensors: list[TensorEntry] = field(default_factory=list[TensorEntry])
    constants: list[CoefficientEntry] = field(default_factory=list[CoefficientEntry])
    commands: list[Command] = field(default_factory=list[Command])
    locations: list[Location] = field(default_factory=list[Location])

    def read(self, line: str) -> None:
        """Take in one line. Raises ValueError."""
        word, _, _ = line.partition(" ")
        rest = line[len(word) :]
        if word in ("tiu", "gdma"):
            self.commands.append(parse_command(line))
        elif word == "slice":
            if not self.commands:
                raise ValueError("a slice line must follow the command that completes it")
            self.locations.append(parse_record(rest, Location, command=len(self.commands) - 1))
        elif word == "tensor":
            self.tensors.append(parse_record(rest, TensorEntry))
        elif word == "constant":
            self.constants.append(parse_record(rest, CoefficientEntry))
        elif word == "group":
            self.groups.append(parse_record(rest, GroupEntry))
        elif word == "header":
            self.headers.append(parse_record(rest, _Counts, checksums={}))
        else:
            raise ValueError(
                f"a line begins with header, group, tensor, constant, slice, tiu or gdma, got '{word[:40]}'"
            )


def assemble(text: str, coefficients: np.ndarray, source: str = "text") -> Program:
    """The program of a listing, with these coefficient bytes. Raises ImportModelError that names the line."""
    found = _Assembly()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith(";"):
            try:
                found.read(line.rstrip())
            except ValueError as error:
                raise ImportModelError(
                    f"{source}:{number}: {error}; `tpusim dis` shows what a line looks like"
                ) from error
    if len(found.headers) != 1:
        raise ImportModelError(
            f"{source}: one header line is required, got {len(found.headers)}; a listing of some commands only "
            "(`dis --op`, `--engine`) has none; assemble a whole listing"
        )
    counts = found.headers[0]
    header = counts.header
    if header.format_version not in READ_VERSIONS:
        read = read_here(READ_VERSIONS)
        raise ImportModelError(f"{source}: format versions {read} are read here, the text has {header.format_version}")
    for word, said, got in (
        ("commands", counts.commands, len(found.commands)),
        ("slices", counts.slices, len(found.locations)),
    ):
        if said is not None and said != got:
            raise ImportModelError(
                f"{source}: its header has {word}={said}, the text has {got:,}; take the whole text of `tpusim dis`, "
                f"or, where lines were added or removed by hand, write {word}={got}"
            )
    if coefficients.nbytes != header.coeff_bytes:
        raise ImportModelError(
            f"{source}: its header has {header.coeff_bytes:,} bytes of coefficients, got {coefficients.nbytes:,}; "
            "give the program the listing was made of"
        )
    program = Program(
        header=header,
        tensors=tuple(found.tensors),
        groups=tuple(found.groups),
        commands=tuple(found.commands),
        coefficients=coefficients,
        locations=tuple(found.locations),
        constants=tuple(found.constants),
    )
    return upgraded(program)
