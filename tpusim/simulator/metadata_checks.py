"""Metadata checks: names, places and numbers in the tables of a program are compared with its commands.

An entry that commands contradict is an error; entries that no command confirms are counted, and the count is printed.
The checks depend on no value.
"""

from collections.abc import Iterator
from math import prod

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.errors import SimulationError
from tpusim.isa.casts import dequantizing_scale, quantizing_scale
from tpusim.isa.commands import Command, Dequantize, GlobalKernel, Move, Quantize, Source
from tpusim.isa.layout import extent, gmem_sizes, gmem_strides
from tpusim.isa.region import View
from tpusim.isa.stream import CoefficientEntry, GroupEntry, Program, TensorEntry
from tpusim.simulator.multiplications import multiplications
from tpusim.simulator.placement import check_windows, silent_transfers


def check_metadata(program: Program, chip: ChipSpec) -> None:
    """Raise SimulationError for a table or a name that contradicts the commands."""
    _check_sources(program)
    _check_stores(program, chip)
    _check_constants(program)
    for command in program.commands:
        if isinstance(command, GlobalKernel):
            _check_kernel(command, program)
    _check_work(program, chip)
    _check_groups(program, chip)
    _check_shapes(program)
    for entry, command in _quantisations(program):
        _check_quantisation(entry, command, chip)
    _check_macs(program)
    check_windows(program, chip)


def unconfirmed(program: Program) -> dict[str, int]:
    """Kind of entry that no command confirms -> how often it occurs."""
    confirmed = {entry.name for entry, _ in _quantisations(program)}
    shapes = {location.tensor for location in program.locations}
    shapes |= {c.tensor for c in program.commands if isinstance(c, GlobalKernel)}
    named = {source.name for command in program.commands for source in command.sources if not source.step}
    chip = program.header.chip_spec
    found = {
        "commands that do not say what they read": sum(_is_silent(c) for c in program.commands),
        "commands that store no tensor of the table": sum(bool(_unnamed(c)) for c in program.commands),
        "transfers that do not say which window they move": len(silent_transfers(program)),
        "constants that no command names": sum(entry.name not in named for entry in program.constants),
        "scales": sum(entry.scale != 0 and entry.name not in confirmed for entry in program.tensors),
        "work areas": sum(bool(c.work) and c.in_group and not c.least_work(chip) for c in program.commands),
        "number of multiplications": multiplications(program)[1] is None,
        "shapes": sum(entry.name not in shapes for entry in program.tensors),
    }
    return {what: count for what, count in found.items() if count}


def _wrong(who: str, required: str, got: object, advice: str) -> SimulationError:
    return SimulationError(f"{who}: {required} is required, got {got}; {advice}")


# --------------------------------------------------------------------------------------------------------------- names


def _is_silent(command: Command) -> bool:
    return not command.sources and bool(command.reads())


def _check_sources(program: Program) -> None:
    """If one command names its sources, all commands must, so that no name was removed."""
    silent = next(filter(_is_silent, program.commands), None)
    if silent is not None and any(command.sources for command in program.commands):
        advice = "name them, as other commands of this program do"
        raise _wrong(silent.label, "a source for each operand it reads", "none", advice)


def _unnamed(command: Command) -> list[View]:
    """The views in global memory that a command writes without naming their tensor."""
    return [] if command.tensor else [view for view in command.writes() if view.memory == "gmem"]


def _check_stores(program: Program, chip: ChipSpec) -> None:
    """A write to the bytes of a tensor of the table names that tensor; every tensor of the table is written."""
    stored = {command.tensor for command in program.commands}
    places = [(entry, extent(entry.view, chip)) for entry in program.tensors]
    for command in program.commands:
        for view in _unnamed(command):
            reach = extent(view, chip)
            hit = next((entry.name for entry, place in places if place.overlaps(reach)), "")
            if hit:
                raise _wrong(command.label, f"the name of the tensor it stores, '{hit}',", "none", "set `tensor`")
        if command.tensor and all(view.memory == "lmem" for view in command.writes()):
            raise _wrong(command.label, f"a write to tensor '{command.tensor}'", "none", "take the name away")
    for entry in program.tensors:
        if entry.role == "interior" and entry.name not in stored and not entry.parts:
            who = f"tensor '{entry.name}'"
            raise _wrong(who, "a command that stores it", "none", "set `tensor` on it, or remove the entry")


def _check_constants(program: Program) -> None:
    """Constants lie in their region and share no byte; reads of a constant lie inside it."""
    header, entries = program.header, sorted(program.constants, key=lambda entry: entry.address)
    free = header.coeff_address
    for entry in entries:
        if entry.address < free or entry.address + entry.size > header.coeff_address + header.coeff_bytes:
            got = f"[{entry.address:#x}, {entry.address + entry.size:#x})"
            wanted = f"bytes that no other constant has, inside the coefficients, from {free:#x} on"
            raise _wrong(f"constant '{entry.name}'", wanted, got, "correct the table of constants")
        free = entry.address + entry.size
    if len({entry.name for entry in entries}) != len(entries):
        raise _wrong("table of constants", "one entry per name", "two", "rename one")


def constant_of(program: Program, start: int) -> bool:
    """Whether an address lies in the coefficient region."""
    header = program.header
    return header.coeff_address <= start < header.coeff_address + header.coeff_bytes


def check_constant(
    command: Command, source: Source, view: View, known: dict[str, CoefficientEntry], chip: ChipSpec
) -> None:
    """Raise SimulationError unless a command's read of a constant lies inside that constant."""
    entry, reach = None if source.step else known.get(source.name), extent(view, chip)
    if entry is None:
        advice = "name the constant whose bytes these are"
        raise _wrong(command.label, "a name of the table of constants", f"'{source}'", advice)
    if reach.start < entry.address or entry.address + entry.size < reach.stop:
        wanted = f"bytes of '{source}', [{entry.address:#x}, {entry.address + entry.size:#x}),"
        raise _wrong(command.label, wanted, f"[{reach.start:#x}, {reach.stop:#x})", "correct the address")


# ------------------------------------------------------------------------------------------------------------- numbers


def _check_kernel(kernel: GlobalKernel, program: Program) -> None:
    """A kernel loads activations once and constants once per tile, or constants once and activations once per tile.

    Activations count whole, even if the window of a convolution reads only a part of them. A body may state what its
    kernel moves instead.
    """
    tensors = {entry.name: entry.view.nbytes for entry in program.tensors}
    # that there is one source per operand is checked by `Ownership`
    names = [source.name for source in kernel.sources] or [""] * len(kernel.reads())
    operands = [(v, n) for v, n in zip(kernel.reads(), names, strict=False) if not constant_of(program, v.address)]
    active = sum(tensors.get(name, view.nbytes) for view, name in operands)
    stored = sum(view.nbytes for view in kernel.writes())
    constants = _constant_bytes(kernel, program)
    loads = [active + constant * kernel.tiles for constant in constants]
    loads += [active * kernel.tiles + constant for constant in constants]
    if not kernel.body.loads:
        loads = [0]
    if (known := kernel.body.kernel_transfers(program.header.chip_spec)) is not None:
        loads, stored = [known.loaded], known.stored
    if not kernel.on_chip:
        loads, stored = [0], 0
    if kernel.load_bytes not in loads or kernel.store_bytes != stored or kernel.tiles < 1:
        got = f"{kernel.load_bytes:,} and {kernel.store_bytes:,} in {kernel.tiles} tiles"
        required = f"{loads[0]:,} bytes loaded and {stored:,} stored, in one tile or more,"
        raise _wrong(kernel.label, required, got, "correct tiles, load_bytes or store_bytes")


def _constant_bytes(kernel: GlobalKernel, program: Program) -> tuple[int, int]:
    """Bytes of the constants that a kernel reads: those of its operands, and those of whole constants with gaps.

    Filter, bias and requant of a convolution may be parts of one constant, which is loaded including its gaps.
    """
    named = {source.name for source in kernel.sources}
    operands = sum(view.nbytes for view in kernel.reads() if constant_of(program, view.address))
    return operands, sum(entry.size for entry in program.constants if entry.name in named)


def _home(command: Command) -> int:
    return command.group if command.home < 0 else command.home


def _check_groups(program: Program, chip: ChipSpec) -> None:
    """A group has commands for each of its ops at every step of its sections; they stay below its peak."""
    own: dict[int, list[Command]] = {}
    for command in program.commands:
        own.setdefault(_home(command), []).append(command)
    numbers = [entry.id for entry in program.groups]
    if numbers != list(range(len(numbers))) or not set(own) - {-1} <= set(numbers):
        got = f"{numbers[:8]} for commands of groups {sorted(own)[:8]}"
        raise _wrong("table of groups", "entries 0, 1, 2 ... of every command's group", got, "correct the table")
    for entry in program.groups:
        inside = [command for command in own.get(entry.id, ()) if command.step]
        if inside:
            (_check_tiles if entry.reason else _check_group)(entry, inside, chip)


def _check_tiles(entry: GroupEntry, commands: list[Command], chip: ChipSpec) -> None:
    """The tiles of a global layer belong to its op, and are stored from where they were computed."""
    for command in commands:
        own = command.slice_owner(command.op)
        if command.engine == "tiu" and command.op not in entry.ops:
            raise _wrong(command.label, f"an op of group {entry.id}, {entry.ops},", command.op, "correct the op")
        if _is_store(command) and command.sources and command.sources[0] != own:
            raise _wrong(
                command.label, f"the tile '{own}'", f"'{command.sources[0]}'", "correct the step, or the source"
            )
    _check_peak(entry, commands, chip)


def _check_group(entry: GroupEntry, commands: list[Command], chip: ChipSpec) -> None:
    who = f"group {entry.id}"
    ops: dict[str, set[str]] = {}
    for command in commands:
        at = [(source.group, source.step) for source in command.sources[:1]]
        if at not in ([], [(entry.id, command.step)]) and _is_store(command):
            wanted = f"a source of the same step, {command.step} of group {entry.id},"
            raise _wrong(command.label, wanted, f"'{command.sources[0]}'", "correct the step, or the source")
        if command.engine == "tiu":
            ops.setdefault(command.op, set()).add(command.step)
    if set(ops) != set(entry.ops):
        odd = sorted(set(ops) ^ set(entry.ops))
        raise _wrong(who, f"the ops of its commands, {len(ops)},", f"another list: {', '.join(odd[:4])}", "correct it")
    steps = set[str]().union(*ops.values())
    if len(steps) != prod(entry.secs.values()):
        got = f"{entry.secs} for {len(steps)} steps"
        raise _wrong(who, "sections that give the steps of its commands", got, "correct the table of groups")
    for op, at in ops.items():
        if at != steps:
            raise _wrong(who, f"op '{op}' at every step", f"none at {min(steps - at)}", "restore the command")
    _check_peak(entry, commands, chip)


def _check_peak(entry: GroupEntry, commands: list[Command], chip: ChipSpec) -> None:
    """Commands stay below the peak of local memory in the table."""
    views = (v for c in commands for v in (*c.reads(), *c.writes(), *c.scratch()) if v.memory == "lmem")
    reach = max((extent(view, chip).stop for view in views), default=0)
    if not reach <= entry.lmem_peak_bytes <= chip.lmem_bytes:
        wanted = f"lmem_peak_bytes from {reach:,}, where its commands reach, to {chip.lmem_bytes:,}"
        raise _wrong(f"group {entry.id}", wanted, f"{entry.lmem_peak_bytes:,}", "correct the table of groups")


def _check_work(program: Program, chip: ChipSpec) -> None:
    """All commands of an op in a group state one work area, and none states less than its fields require.

    An op whose commands read each other's results, as those of attention do, has its work area for these instead.
    """
    stated: dict[tuple[int, str], Command] = {}
    composed = _with_intermediate_results(program)
    for command in program.commands:
        if not command.in_group or isinstance(command, Move):
            continue
        least, got = command.least_work(chip), sum(view.shape[-1] for view in command.work)
        if got < least and (command.group, command.op) not in composed:
            raise _wrong(command.label, f"a work area of {least:,} bytes or more", got, "generate the program again")
        first = stated.setdefault((command.group, command.op), command)
        if first.work != command.work:
            required = f"the work area of {first.label}, {_areas(first)},"
            raise _wrong(command.label, required, _areas(command), "give all commands of the op in this group one area")


def _with_intermediate_results(program: Program) -> set[tuple[int, str]]:
    """(group, op) of ops with a command that reads what another wrote at the same step and that it does not write."""
    written: dict[tuple[int, str, str, int], set[int]] = {}
    found: set[tuple[int, str]] = set()
    for c in program.commands:
        if not c.in_group or isinstance(c, Move):
            continue
        before, results = written.setdefault((c.group, c.op, c.step, c.core), set()), {v.address for v in c.writes()}
        if any(v.address in before - results for v in c.reads()):
            found.add((c.group, c.op))
        before |= results
    return found


def _areas(command: Command) -> str:
    return ", ".join(f"bytes [{v.address:,}, {v.address + v.shape[-1]:,})" for v in command.work) or "none"


def _is_store(command: Command) -> bool:
    return isinstance(command, Move) and command.direction == "l2s"


def _axes(view: View) -> list[tuple[int, int]]:
    """(stride, length) of the axes of a tensor in global memory; a kernel may write them in another order."""
    return sorted(axis for axis in zip(gmem_strides(view), gmem_sizes(view), strict=True) if axis[1] > 1)


def _check_shapes(program: Program) -> None:
    """A tensor has one shape in both tables, and a kernel writes that shape."""
    sliced = {location.tensor: location.shape for location in program.locations}
    kernels = {c.tensor: c for c in program.commands if isinstance(c, GlobalKernel)}
    for entry in program.tensors:
        shape = entry.shape or entry.view.shape
        if sliced.get(entry.name, shape) != shape:
            raise _wrong(
                f"tensor '{entry.name}'", f"the shape of its slices, {sliced[entry.name]},", shape, "correct it"
            )
        if entry.name in kernels:
            (made,) = kernels[entry.name].writes()
            folded = (*shape[:3], prod(shape[3:]))  # a kernel of images merges the axes after the third
            alike = made.shape in (shape, folded) or (shape == entry.view.shape and _axes(made) == _axes(entry.view))
            if not alike or made.dtype != entry.view.dtype:
                wanted = f"the {made.dtype} {made.shape} that {kernels[entry.name].label} writes"
                raise _wrong(f"tensor '{entry.name}'", wanted, f"{entry.view.dtype} {shape}", "correct it")


def _quantisations(program: Program) -> Iterator[tuple[TensorEntry, Command]]:
    """(tensor, command that casts to or from its integers)."""
    entries = {entry.name: entry for entry in program.tensors}
    loads = {c.owner: c.sources[0] for c in program.commands if isinstance(c, Move) and c.owner.loaded and c.sources}
    for command in program.commands:
        body = command.computed
        if isinstance(body, Quantize) and command.op in entries:
            yield entries[command.op], command
        if isinstance(body, Dequantize) and command.sources:
            source = loads.get(command.sources[0], command.sources[0])
            if source.name in entries and not source.loaded:
                yield entries[source.name], command


def _check_quantisation(entry: TensorEntry, command: Command, chip: ChipSpec) -> None:
    """The command's scale is exactly the tensor's scale or its reciprocal, rounded to the command's float type.

    Or it is 1: of plain integers, as indices, and where another command multiplies by the scale.
    """
    body = command.computed
    assert isinstance(body, Quantize | Dequantize)
    if (body.scale, body.zero_point) == (1.0, 0):
        return
    if isinstance(body, Quantize):
        kind, operand, unit = "1/scale", body.input.dtype, chip.hardware.bf16_unit
        due = quantizing_scale(entry.scale, operand, in_bf16=body.bf16, bf16_unit=unit)
    else:
        kind, due = "scale", dequantizing_scale(entry.scale, body.output.dtype, bf16_unit=chip.hardware.bf16_unit)
    if not 0 < entry.scale < np.inf or due != body.scale or entry.zero_point != body.zero_point:
        wanted = f"{kind} {body.scale:.9g} and zero point {body.zero_point}, with which {command.label} computes,"
        got = f"{float(due):.9g} and {entry.zero_point} of its scale {entry.scale:.9g}"
        raise _wrong(f"tensor '{entry.name}'", wanted, got, "correct the tensor table")


def _check_macs(program: Program) -> None:
    least, most = multiplications(program)
    if program.header.macs < least or (most is not None and most < program.header.macs):
        wanted = f"multiplications from {least:,}, for distinct elements, to {most or 0:,}, what its commands do,"
        raise _wrong("header", wanted, f"{program.header.macs:,}", "correct macs")
