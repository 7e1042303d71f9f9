"""A mutant, and how one is made: commands replaced, dropped, inserted or exchanged, ids counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.isa.commands import Command, GlobalKernel, Move
from tpusim.isa.region import View
from tpusim.isa.stream import Program


@dataclass(frozen=True)
class Mutant:
    """kind: its class. index: the command in the original program. note: what was changed, unique in a program."""

    kind: str
    index: int
    note: str
    program: Program


Site = tuple[int, Any]
"""Index of a command, and the command; of a global kernel its body."""
Mutator = Callable[[Program, np.random.Generator], Mutant | None]
"""One wrong version of a right program, at a random place; None if the program has no place for it."""


def chip_of(program: Program) -> ChipSpec:
    return chips.load(program.header.chip)


def sites(program: Program, *kinds: type[Any]) -> list[Site]:
    """Commands of these classes, bodies of global kernels included."""
    found = ((i, c.body if isinstance(c, GlobalKernel) else c) for i, c in enumerate(program.commands))
    return [(i, c) for i, c in found if not kinds or isinstance(c, kinds)]


def pick(rng: np.random.Generator, found: list[Any]) -> Any:
    return found[int(rng.integers(len(found)))] if found else None


def replaced(program: Program, index: int, command: Any) -> Program:
    """The program with another command (or body) at this index."""
    old = program.commands[index]
    new = structs.replace(old, body=command) if isinstance(old, GlobalKernel) else command
    commands = (*program.commands[:index], new, *program.commands[index + 1 :])
    return structs.replace(program, commands=commands)


def changed(program: Program, site: Site, kind: str, /, **fields: Any) -> Mutant:
    """A mutant that differs in fields of one command."""
    index, command = site
    note = f"{command.label}: " + ", ".join(f"{name}={value}" for name, value in fields.items())
    return Mutant(kind, index, note, replaced(program, index, structs.replace(command, **fields)))


def view_fields(command: Any, *, reads: bool = True, writes: bool = True) -> list[str]:
    """Names of the fields that hold one view."""
    names = [*(command.inputs_ if reads else ()), *(command.outputs_ if writes else ())]
    return [name for name in names if isinstance(getattr(command, name), View)]


def renumbered(program: Program, order: list[int | tuple[int, Command]]) -> Program:
    """The program with the commands of these old indices (or new ones), ids counted anew.

    A dependency on a command that is gone becomes one on the command before it. The table of slices follows.
    """
    old = program.commands
    kept = [item if isinstance(item, tuple) else (item, old[item]) for item in order]
    counts: Counter[tuple[int, str]] = Counter()
    fresh: dict[tuple[int, str, int], int] = {}
    place: dict[int, int] = {}
    numbered: list[Command] = []
    for position, (source, command) in enumerate(kept):
        queue = command.core, command.engine
        counts[queue] += 1
        if source not in place:
            place[source] = position
            fresh[*queue, command.id] = counts[queue]
        numbered.append(structs.replace(command, id=counts[queue]))

    def moved(command: Command) -> Command:
        other = "gdma" if command.engine == "tiu" else "tiu"
        dep = command.dep
        while dep and (command.core, other, dep) not in fresh:
            dep -= 1
        return structs.replace(command, dep=fresh.get((command.core, other, dep), 0))

    def after(index: int) -> int:
        while index >= 0 and index not in place:
            index -= 1
        return place.get(index, 0)

    locations = tuple(structs.replace(each, command=after(each.command)) for each in program.locations)
    return structs.replace(program, commands=tuple(moved(c) for c in numbered), locations=locations)


def loads(program: Program) -> list[Site]:
    """Copies from global to local memory."""
    return [(i, c) for i, c in enumerate(program.commands) if isinstance(c, Move) and c.direction == "s2l"]


def stores(program: Program) -> list[Site]:
    """Copies that store a part of a tensor."""
    return [(i, c) for i, c in enumerate(program.commands) if isinstance(c, Move) and c.tensor]
