"""Faults of order and number: dependencies, exchanged, missing and doubled commands."""

from __future__ import annotations

import numpy as np
from msgspec import structs

from mutation.mutant import Mutant, Mutator, changed, chip_of, loads, pick, renumbered, stores
from tpusim.isa.commands import GlobalKernel
from tpusim.isa.stream import Program


def _with_dep(program: Program, index: int, dep: int, kind: str) -> Mutant:
    command = program.commands[index]
    new = structs.replace(command, dep=dep)
    commands = (*program.commands[:index], new, *program.commands[index + 1 :])
    note = f"{command.label}: dep {command.dep} -> {dep}"
    return Mutant(kind, index, note, structs.replace(program, commands=commands))


def drop_dependency(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command waits for nothing."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.dep])
    return None if index is None else _with_dep(program, index, 0, "drop_dependency")


def weaken_dependency(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command waits for an earlier one than it must."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.dep > 1])
    if index is None:
        return None
    dep = program.commands[index].dep
    return _with_dep(program, index, dep - 1 if rng.integers(2) else int(rng.integers(1, dep)), "weaken_dependency")


def wait_too_long(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command waits for a later one than it must: slow, or a deadlock."""
    index = pick(rng, list(range(len(program.commands))))
    other = "gdma" if program.commands[index].engine == "tiu" else "tiu"
    core = program.commands[index].core
    most = sum((c.engine, c.core) == (other, core) for c in program.commands)
    dep = program.commands[index].dep + 1 + int(rng.integers(4))
    return _with_dep(program, index, dep, "wait_too_long") if dep <= most + 1 else None


def swap_loads(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Two neighbouring loads change places in the queue; what waits for a load waits for its old number."""
    found = loads(program)
    pairs = [(a, b) for (a, one), (b, two) in zip(found, found[1:], strict=False) if one.core == two.core]
    pair = pick(rng, pairs)
    if pair is None:
        return None
    a, b = pair
    one, other = program.commands[a], program.commands[b]
    commands = list(program.commands)
    commands[a] = structs.replace(other, id=one.id, dep=one.dep)
    commands[b] = structs.replace(one, id=other.id, dep=other.dep)
    return Mutant("swap_loads", a, f"{one.label} <-> {other.label}", structs.replace(program, commands=tuple(commands)))


def _without(program: Program, index: int, kind: str) -> Mutant:
    order = [i for i in range(len(program.commands)) if i != index]
    return Mutant(kind, index, f"no {program.commands[index].label}", renumbered(program, [*order]))


def drop_load(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A load is missing."""
    site = pick(rng, loads(program))
    return None if site is None else _without(program, site[0], "drop_load")


def drop_store(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A store is missing."""
    site = pick(rng, stores(program))
    return None if site is None else _without(program, site[0], "drop_store")


def drop_command(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A compute command is missing."""
    site = pick(rng, [i for i, c in enumerate(program.commands) if c.engine == "tiu"])
    return None if site is None else _without(program, site, "drop_command")


def store_twice(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A second store puts other bytes into the place of a tensor."""
    site = pick(rng, [s for s in stores(program) if s[1].input.memory == "lmem"])
    if site is None:
        return None
    index, command = site
    address = command.input.address + chip_of(program).eu_bytes * int(rng.integers(1, 4))
    again = structs.replace(command, input=structs.replace(command.input, address=address), sources=())
    order = [*range(index + 1), (index, again), *range(index + 1, len(program.commands))]
    return Mutant("store_twice", index, f"{command.label} again from {address}", renumbered(program, [*order]))


def tensor_name(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A store says that it stores another tensor."""
    names = sorted({c.tensor for c in program.commands if c.tensor})
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.tensor])
    other = pick(rng, [name for name in names if name != program.commands[index].tensor])
    if other is None:
        return None
    command = program.commands[index]
    if isinstance(command, GlobalKernel):
        commands = list(program.commands)
        commands[index] = structs.replace(command, tensor=other)
        note = f"{command.label}: tensor={other}"
        return Mutant("tensor_name", index, note, structs.replace(program, commands=tuple(commands)))
    return changed(program, (index, command), "tensor_name", tensor=other)


ORDER: tuple[Mutator, ...] = (
    drop_dependency,
    weaken_dependency,
    wait_too_long,
    swap_loads,
    drop_load,
    drop_store,
    drop_command,
    store_twice,
    tensor_name,
)
