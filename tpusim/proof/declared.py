"""Declarations of a program that its computation does not use, compared with the module: tables, regions, work areas.

None of it changes a value, so no expression shows it. Tables are those of the module. What commands say (work areas,
the kind and width of a transfer, names) is compared where the program has as many commands, of the same classes, as the
module's; other commands are another compiler's, and only their expressions are compared.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tpusim.codegen import generate
from tpusim.ir.module import Model
from tpusim.isa.commands import Command
from tpusim.isa.stream import Program

_MOST = 8
"""Most differences that are told."""
_HEADER = ("mode", "coeff_address", "coeff_bytes", "neuron_address", "neuron_bytes", "macs", "io_regions")
_OF_COMMANDS = ("op", "step", "group", "home", "tensor", "sources", "work")
_OF_TRANSFERS = ("kind", "width", "start", "whole", "strides", "origin")


def differences(model: Model, program: Program) -> tuple[str, ...]:
    """What the program declares otherwise than the module, the first of them."""
    cores = 1 + max((command.core for command in program.commands), default=0)
    return tuple(islice(unlike(generate(model, cores), program), _MOST))


def _alike(right: Program, program: Program) -> bool:
    return [type(c) for c in right.commands] == [type(c) for c in program.commands]


def unlike(right: Program, program: Program) -> Iterator[str]:
    """What a program declares otherwise than a right one of the same network."""
    for name in _HEADER:
        yield from _unlike(f"header: {name}", getattr(right.header, name), getattr(program.header, name))
    for what, wanted, got in (
        ("tensor", right.tensors, program.tensors),
        ("constant", right.constants, program.constants),
        ("group", right.groups, program.groups),
    ):
        yield from _table(what, wanted, got)
    if not _alike(right, program):
        return
    yield from _table("slice", right.locations, program.locations)
    for wanted, got in zip(right.commands, program.commands, strict=True):
        yield from _of_command(wanted, got)


def _table(what: str, wanted: tuple[Any, ...], got: tuple[Any, ...]) -> Iterator[str]:
    """Entries that differ, in order; of different lengths only that."""
    if len(wanted) != len(got):
        yield f"table of {what}s: {len(wanted)} entries are the module's, got {len(got)}"
        return
    for number, (one, other) in enumerate(zip(wanted, got, strict=True)):
        for name in one.__struct_fields__:
            yield from _unlike(f"{what} {number}: {name}", getattr(one, name), getattr(other, name))


def _of_command(wanted: Command, got: Command) -> Iterator[str]:
    for name in (*_OF_COMMANDS, *_OF_TRANSFERS):
        if hasattr(wanted, name):
            yield from _unlike(f"{got.label}: {name}", getattr(wanted, name), getattr(got, name))


def _unlike(what: str, wanted: object, got: object) -> Iterator[str]:
    if wanted != got:
        yield f"{what} {_short(wanted)} is the module's, got {_short(got)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004  a line
