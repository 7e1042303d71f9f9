"""Faults of what a program says: owners, names, tables, function parameters, number formats, messages between cores."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs

from mutation.mutant import Mutant, Mutator, changed, chip_of, loads, pick, renumbered, sites
from tpusim.isa.commands import (
    Command,
    Conv,
    Depthwise,
    Fn,
    GlobalKernel,
    MatMul,
    Move,
    Requant,
    Rescale,
    SendMessage,
    Source,
    WaitMessage,
)
from tpusim.isa.layout import extent, gmem_strides
from tpusim.isa.region import View, itemsize
from tpusim.isa.stream import Program


def _command(program: Program, index: int, kind: str, /, **fields: Any) -> Mutant:
    """Fields of the command itself, of a kernel not of its body."""
    command = program.commands[index]
    new = structs.replace(command, **fields)
    commands = (*program.commands[:index], new, *program.commands[index + 1 :])
    note = f"{command.label}: " + ", ".join(f"{name}={value}" for name, value in fields.items())
    return Mutant(kind, index, note, structs.replace(program, commands=commands))


def _table(program: Program, kind: str, note: str, **fields: Any) -> Mutant:
    return Mutant(kind, 0, note, structs.replace(program, **fields))


# -------------------------------------------------------------------------------------------------------------- owners


def stale_slice(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A load is missing whose place an earlier load of the same tensor, by another group or step, has filled."""
    found = loads(program)
    able = [
        index
        for number, (index, command) in enumerate(found)
        if any(
            old.core == command.core and old.sources == command.sources and old.output.address == command.output.address
            for _, old in found[:number]
        )
    ]
    index = pick(rng, able)
    if index is None:
        return None
    rest = [i for i in range(len(program.commands)) if i != index]
    return Mutant("stale_slice", index, f"no {program.commands[index].label}", renumbered(program, [*rest]))


def no_sources(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command does not say what it reads."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.sources])
    return None if index is None else _command(program, index, "no_sources", sources=())


def wrong_source(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command says that it reads another slice or constant."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.sources])
    if index is None:
        return None
    own = program.commands[index].sources
    other = pick(rng, sorted({source for c in program.commands for source in c.sources} - set(own), key=str))
    at = int(rng.integers(len(own)))
    fields = {"sources": (*own[:at], other, *own[at + 1 :])}
    return None if other is None else _command(program, index, "wrong_source", **fields)


def no_tensor(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A store or a kernel does not say which tensor it stores."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.tensor])
    return None if index is None else _command(program, index, "no_tensor", tensor="")


def wrong_step(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command of a group says that it belongs to another step or group."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if c.step])
    if index is None:
        return None
    if rng.integers(2):
        return _command(program, index, "wrong_step", step=program.commands[index].step + "w9")
    return _command(program, index, "wrong_step", home=program.commands[index].group + int(rng.choice([-1, 1])))


# -------------------------------------------------------------------------------------------------------------- places


def kernel_over_input(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A global kernel writes its result over a part of what it reads."""
    site = pick(rng, [s for s in sites(program) if isinstance(program.commands[s[0]], GlobalKernel)])
    if site is None:
        return None
    read = pick(rng, [v for v in site[1].reads() if v.address >= program.header.neuron_address])
    if read is None:
        return None
    output: View = structs.replace(site[1].output, address=read.address + int(rng.choice([0, 64, 4096])))
    return changed(program, site, "kernel_over_input", output=output)


def work_over_tensor(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command uses local memory for itself where a later command finds an operand."""
    able = [i for i, c in enumerate(program.commands) if c.engine == "tiu" and c.reads() and c.step]
    index = pick(rng, able)
    if index is None:
        return None
    command, chip = program.commands[index], chip_of(program)
    own = {v.address for v in (*command.reads(), *command.writes())}
    near = program.commands[index + 1 : index + 5]
    later = [v for c in near if c.core == command.core for v in c.reads() if v.memory == "lmem"]
    view = pick(rng, [v for v in later if v.address not in own])
    if view is None:
        return None
    reach = extent(view, chip)
    work = View("lmem", reach.start, (1, chip.lanes, 1, reach.stop - reach.start), "u8", "compact")
    return _command(program, index, "work_over_tensor", work=(*command.work, work))


def moved_tensor(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A tensor lies, for all that use it, where another tensor of global memory lies."""
    entries = [e for e in program.tensors if not e.parts]
    one = pick(rng, entries)
    other = pick(rng, [e for e in entries if e is not one])
    if one is None or other is None:
        return None
    by = other.view.address - one.view.address
    place = extent(one.view, chip_of(program))

    def moved(value: Any) -> Any:
        if isinstance(value, View) and value.memory == "gmem" and place.start <= value.address < place.stop:
            return structs.replace(value, address=value.address + by)
        if isinstance(value, tuple):
            return tuple(moved(item) for item in value)
        if isinstance(value, Command):
            fields = (*value.inputs_, *value.outputs_, *(("body",) if isinstance(value, GlobalKernel) else ()))
            return structs.replace(value, **{name: moved(getattr(value, name)) for name in fields})
        return value

    tensors = tuple(structs.replace(e, view=moved(e.view)) if e is one else e for e in program.tensors)
    commands = tuple(moved(command) for command in program.commands)
    index = next((i for i, (a, b) in enumerate(zip(program.commands, commands, strict=True)) if a != b), 0)
    program = structs.replace(program, tensors=tensors, commands=commands)
    return Mutant("moved_tensor", index, f"{one.name} lies where {other.name} does", program) if by else None


def swapped_constants(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Two constants of one size and different bytes change places for all that read them."""
    entries, base, bytes_of = program.constants, program.header.coeff_address, program.coefficients
    places = [slice(e.address - base, e.address - base + e.size) for e in entries]
    pair = pick(rng, [
        (i, j) for j in range(len(entries)) for i in range(j)
        if entries[i].size == entries[j].size and not np.array_equal(bytes_of[places[i]], bytes_of[places[j]])
    ])  # fmt: skip
    if pair is None:
        return None
    (a, b), (one, two) = (entries[i] for i in pair), (places[i] for i in pair)
    image = bytes_of.copy()
    image[one], image[two] = bytes_of[two], bytes_of[one]
    reads = [i for i, c in enumerate(program.commands) if {Source(a.name), Source(b.name)} & set(c.sources)]
    new = structs.replace(program, coefficients=image)
    return Mutant("swapped_constants", reads[0] if reads else 0, f"{a.name} <-> {b.name}", new)


# ------------------------------------------------------------------------------------------------------------- formats


def foreign_requant(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A requant in a mode that the chip does not have for it."""
    kinds = (Conv, Depthwise, MatMul, Rescale)
    able = [s for s in sites(program, *kinds) if s[1].requant is not None]
    qdm = chip_of(program).hardware.bf16_unit
    site = pick(rng, [s for s in able if not (qdm and isinstance(s[1], Rescale))])
    if site is None:
        return None
    requant: Requant = structs.replace(site[1].requant, mode="f32" if qdm else str(rng.choice(["qdm", "f32"])))
    return changed(program, site, "foreign_requant", requant=requant)


def wrong_function(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A parameter of a macro function is another."""
    site = pick(rng, sites(program, Fn))
    if site is None:
        return None
    function = site[1].function
    able = [n for n in function.__struct_fields__ if type(getattr(function, n)) in (int, float, bool)]
    name = pick(rng, able)
    if name is None:
        return None
    old = getattr(function, name)
    new = not old if isinstance(old, bool) else old + type(old)(rng.choice([1, 7]))
    return changed(program, site, "wrong_function", function=structs.replace(function, **{name: new}))


def both_dtypes(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A copy has another element type on both sides, of the same size or of half of it."""
    site = pick(rng, sites(program, Move))
    if site is None:
        return None
    other = {"i8": "u8", "u8": "i8", "f32": "i32", "i32": "f32", "f16": "bf16", "bf16": "f16", "i16": "u16"}
    half = {"f32": "f16", "i32": "i16", "f16": "i8", "bf16": "i8", "i16": "i8"}
    dtype = site[1].input.dtype
    new = half.get(dtype, other.get(dtype, "i8")) if rng.integers(2) else other.get(dtype, "u8")
    views = {name: structs.replace(getattr(site[1], name), dtype=new) for name in ("input", "output")}
    return changed(program, site, "both_dtypes", **views)


def both_shapes(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A copy has two axes exchanged on both sides, or one axis shorter."""
    site = pick(rng, [s for s in sites(program, Move) if max(s[1].input.shape) > 1])
    if site is None:
        return None
    shape = list(site[1].input.shape)
    axis = pick(rng, [i for i, size in enumerate(shape) if size > 1])
    if rng.integers(2):
        near = axis - 1 if axis else 1
        if near >= len(shape):
            return None
        shape[axis], shape[near] = shape[near], shape[axis]
    else:
        shape[axis] -= 1
    views = {name: structs.replace(getattr(site[1], name), shape=tuple(shape)) for name in ("input", "output")}
    return changed(program, site, "both_shapes", **views) if tuple(shape) != site[1].input.shape else None


def other_window(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A load takes another window of the same tensor."""
    able = [s for s in loads(program) if s[1].input.address >= program.header.neuron_address and s[1].input.strides]
    site = pick(rng, able)
    if site is None:
        return None
    view: View = site[1].input
    step = int(rng.choice(gmem_strides(view)[1:])) * itemsize(view.dtype) * view.interleave
    address = view.address + step * int(rng.choice([-2, -1, 1, 2]))
    return changed(program, site, "other_window", input=structs.replace(view, address=address)) if address > 0 else None


def no_window(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A transfer does not say which window of its tensor it moves."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if isinstance(c, Move) and c.start])
    return None if index is None else _command(program, index, "no_window", start=None, whole=None)


def wrong_window_said(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A transfer, or the table of slices, says another window of the same tensor."""
    moves = [i for i, c in enumerate(program.commands) if isinstance(c, Move) and c.start]
    if moves and rng.integers(2):
        index = pick(rng, moves)
        move: Any = program.commands[index]
        return _command(program, index, "wrong_window_said", start=_beside(move.start, move.whole, rng))
    at = pick(rng, list(range(len(program.locations))))
    if at is None:
        return None
    old = program.locations[at]
    new = structs.replace(old, start=_beside(old.start, old.whole, rng))
    locations = (*program.locations[:at], new, *program.locations[at + 1 :])
    return _table(
        program, "wrong_window_said", f"slice of {old.tensor}: {old.start} is {new.start}", locations=locations
    )


def _beside(start: tuple[int, ...], whole: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """The index with one more or less along an axis that is longer than 1."""
    axis = pick(rng, [i for i, size in enumerate(whole) if size > 1] or [0])
    by = int(rng.choice([-1, 1])) if start[axis] else 1
    return (*start[:axis], start[axis] + by, *start[axis + 1 :])


# -------------------------------------------------------------------------------------------------------------- tables


def wrong_scale(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The table of tensors says another scale or zero point."""
    at = pick(rng, [i for i, e in enumerate(program.tensors) if e.scale])
    if at is None:
        return None
    entry = program.tensors[at]
    fields: dict[str, Any] = {"scale": entry.scale * 2} if rng.integers(2) else {"zero_point": entry.zero_point + 1}
    tensors = (*program.tensors[:at], structs.replace(entry, **fields), *program.tensors[at + 1 :])
    return _table(program, "wrong_scale", f"{entry.name}: {fields}", tensors=tensors)


def wrong_shape(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The table of tensors says another network shape of as many elements."""
    at = pick(rng, [i for i, e in enumerate(program.tensors) if e.view.elements > 1])
    if at is None:
        return None
    entry = program.tensors[at]
    shape = (*(entry.shape or entry.view.shape)[::-1],)
    shape = shape if shape != (entry.shape or entry.view.shape) else (*shape, 1)
    tensors = (*program.tensors[:at], structs.replace(entry, shape=shape), *program.tensors[at + 1 :])
    return _table(program, "wrong_shape", f"{entry.name}: shape {shape}", tensors=tensors)


def wrong_macs(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The header says another number of multiplications."""
    macs = int(program.header.macs * float(rng.choice([0.1, 8]))) + 1
    return _table(program, "wrong_macs", f"macs={macs}", header=structs.replace(program.header, macs=macs))


def wrong_group(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The table of groups says other sections, ops, or a lower peak, or lacks a group."""
    able = [g for g in program.groups if g.lmem_peak_bytes]
    group = pick(rng, able)
    if group is None:
        return None
    kind = int(rng.integers(4))
    new = (
        structs.replace(group, secs={**group.secs, "h": group.secs["h"] + 1}),
        structs.replace(group, ops=group.ops[1:]),
        structs.replace(group, lmem_peak_bytes=group.lmem_peak_bytes // 4),
    )
    groups = tuple(g for g in program.groups if g is not group)
    if kind < len(new):
        groups = tuple(new[kind] if g is group else g for g in program.groups)
    return _table(program, "wrong_group", f"group {group.id}, {('secs', 'ops', 'peak', 'gone')[kind]}", groups=groups)


def wrong_constants(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The table of constants lacks one, calls it otherwise, or says another place."""
    at = pick(rng, list(range(len(program.constants))))
    if at is None:
        return None
    entry, kind = program.constants[at], int(rng.integers(3))
    new = ((), (structs.replace(entry, name=f"{entry.name}_"),), (structs.replace(entry, address=entry.address + 64),))
    constants = (*program.constants[:at], *new[kind], *program.constants[at + 1 :])
    return _table(program, "wrong_constants", f"{entry.name}, {('gone', 'name', 'place')[kind]}", constants=constants)


def wrong_traffic(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A global kernel says that it moves more or fewer bytes."""
    index = pick(rng, [i for i, c in enumerate(program.commands) if isinstance(c, GlobalKernel)])
    if index is None:
        return None
    name = str(rng.choice(["load_bytes", "store_bytes"]))
    value = getattr(program.commands[index], name) + int(rng.choice([-1, 1]))
    return _command(program, index, "wrong_traffic", **{name: value})


# ------------------------------------------------------------------------------------------------------------ messages


def _messages(program: Program) -> list[int]:
    return [i for i, c in enumerate(program.commands) if isinstance(c, SendMessage | WaitMessage)]


def drop_message(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A core does not send, or does not wait for, a message."""
    index = pick(rng, _messages(program))
    if index is None:
        return None
    rest = [i for i in range(len(program.commands)) if i != index]
    return Mutant("drop_message", index, f"no {program.commands[index].label}", renumbered(program, [*rest]))


def wrong_message(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A message has another number, or another count."""
    index = pick(rng, _messages(program))
    if index is None:
        return None
    command: Any = program.commands[index]
    if rng.integers(2):
        return _command(program, index, "wrong_message", message=command.message + int(rng.choice([1, 2])))
    return _command(program, index, "wrong_message", count=max(1, command.count + int(rng.choice([-1, 1]))))


def barrier_without(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A barrier is missing on all cores."""
    numbers = sorted({program.commands[i].group for i in _messages(program)})  # type: ignore[union-attr]
    group = pick(rng, numbers)
    if group is None:
        return None
    gone = [i for i in _messages(program) if program.commands[i].group == group]
    message = pick(rng, sorted({program.commands[i].message for i in gone}))  # type: ignore[union-attr]
    gone = [i for i in gone if program.commands[i].message == message]  # type: ignore[union-attr]
    rest = [i for i in range(len(program.commands)) if i not in gone]
    note = f"no barrier with message {message} of group {group}"
    return Mutant("barrier_without", gone[0], note, renumbered(program, [*rest]))


CLAIM: tuple[Mutator, ...] = (
    stale_slice,
    no_sources,
    wrong_source,
    no_tensor,
    wrong_step,
    kernel_over_input,
    work_over_tensor,
    moved_tensor,
    swapped_constants,
    foreign_requant,
    wrong_function,
    both_dtypes,
    both_shapes,
    other_window,
    no_window,
    wrong_window_said,
    wrong_scale,
    wrong_shape,
    wrong_macs,
    wrong_group,
    wrong_constants,
    wrong_traffic,
    drop_message,
    wrong_message,
    barrier_without,
)
