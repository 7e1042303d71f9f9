"""Checks of a program except its commands: the tensor table, the table of slices, and that sizes are sane.

A program file may have right checksums and wrong content; nothing here depends on a value, so it is refused before the
machine allocates or runs anything.
"""

from collections.abc import Iterable
from itertools import pairwise
from math import prod

from tpusim.errors import SimulationError
from tpusim.isa.commands import Command
from tpusim.isa.region import View
from tpusim.isa.stream import Location, Program, TensorEntry
from tpusim.simulator.memory import Memory, Region

MAX_PADDED_ELEMENTS = 1 << 31
"""Most elements of a padded input; no tensor of a network comes near."""


def check_tables(program: Program, memory: Memory) -> None:
    """Raise SimulationError for an entry that contradicts itself or reaches outside the memories."""
    names: set[str] = set()
    for entry in program.tensors:
        if entry.name in names:
            raise SimulationError(f"tensor '{entry.name}': one entry in the tensor table is required, got two")
        names.add(entry.name)
        _check_entry(entry, memory)
    first: dict[str, Location] = {}
    for location in program.locations:
        _check_location(location, program, memory)
        _check_agree(first.setdefault(location.tensor, location), location)


def check_regions(regions: Iterable[Region]) -> None:
    """Raise SimulationError for regions of global memory that share an address: it is one address space."""
    for first, second in pairwise(sorted((r for r in regions if r.nbytes), key=lambda region: region.start)):
        if second.start < first.stop:
            raise SimulationError(
                f"the header's regions {first} and {second} overlap; global memory is one address space, give each "
                "region other addresses"
            )


def check_slices(program: Program) -> None:
    """Raise SimulationError for an op of a layer group without slices, and for sections that slices contradict.

    A program without any slices has no such table.
    """
    located = {location.tensor for location in program.locations}
    for command in program.commands if located else ():
        if command.in_group and command.engine == "tiu" and command.op not in located:
            raise SimulationError(
                f"{command.label}: slices of tensor '{command.op}' in the table of slices are required, there are "
                "none; generate the program again"
            )
    found = _sections(program)
    for group in program.groups:
        said = {axis: group.secs.get(axis, 1) for axis in _AXES}
        if group.id in found and said != found[group.id]:
            raise SimulationError(
                f"group {group.id}: says sections {said}, its slices have {found[group.id]}; correct the table "
                "of groups"
            )


def _sections(program: Program) -> dict[int, dict[str, int]]:
    """Group -> along every axis the most places at which slices of one tensor begin."""
    starts: dict[tuple[int, str], list[set[int]]] = {}
    for location in program.locations:
        command = program.commands[location.command]
        if command.in_group:
            seen = starts.setdefault((command.group, location.tensor), [set() for _ in _AXES])
            for places, start in zip(seen, location.start, strict=True):
                places.add(start)
    found: dict[int, dict[str, int]] = {}
    for (group, _), seen in starts.items():
        most = found.setdefault(group, dict.fromkeys(_AXES, 1))
        most.update({axis: max(most[axis], len(places)) for axis, places in zip(_AXES, seen, strict=True)})
    return found


_AXES = ("n", "c", "d", "h", "w")


def check_sizes(program: Program, memory: Memory) -> None:
    """Raise SimulationError for an operand with more elements than its memory has bytes.

    A view may repeat elements (strides of 0), but what it is copied to must hold them all.
    """
    for command in program.commands:
        for view in (*command.reads(), *command.writes(), *command.scratch()):
            _check_view(view, command.label, memory)
        _check_padding(command)


def _check_view(view: View, who: str, memory: Memory) -> None:
    local = memory.chip.lanes * memory.chip.lmem_bytes
    most = max(local, *(region.nbytes for region in memory.regions)) if view.memory == "gmem" else local
    if min(view.elements, view.nbytes) > most:
        raise SimulationError(
            f"{who}: an operand of at most {most:,} elements is required, one per byte of memory, got "
            f"{view.elements:,}; cut the command smaller"
        )


def _check_padding(command: Command) -> None:
    body = command.computed
    if (window := body.window) is None:
        return
    n, c, *sizes = body.reads()[0].shape
    pads = zip(window.pads[: len(sizes)], window.pads[len(sizes) :], strict=False)
    axes = zip(sizes, window.inserts, pads, strict=False)
    padded = n * c * prod(size + (size - 1) * insert + sum(pad) for size, insert, pad in axes)
    if padded > MAX_PADDED_ELEMENTS:
        raise SimulationError(
            f"{command.label}: a padded input of at most {MAX_PADDED_ELEMENTS:,} elements is required, got "
            f"{padded:,}; correct pads {window.pads}"
        )


def _check_entry(entry: TensorEntry, memory: Memory) -> None:
    who = f"tensor '{entry.name}'"
    _check_view(entry.view, who, memory)
    memory.check(entry.view, who, writing=False)
    if entry.shape is not None and prod(entry.shape) != entry.view.elements:
        raise SimulationError(
            f"{who}: shape {entry.shape} has {prod(entry.shape):,} elements, its view {entry.view.shape} has "
            f"{entry.view.elements:,}; correct the tensor table"
        )


def _check_location(location: Location, program: Program, memory: Memory) -> None:
    who = f"slice of tensor '{location.tensor}'"
    if not 0 <= location.command < len(program.commands):
        raise SimulationError(
            f"{who}: complete after command {location.command}, there are {len(program.commands)}; "
            "correct the table of slices"
        )
    _check_view(location.view, who, memory)
    memory.check(location.view, who, writing=False)
    shape = location.view.shape
    if len(shape) == 4 and 0 not in shape and shape[0] % location.depth == 0:
        outer, c, h, w = shape
        size = (outer // location.depth, c, location.depth, h, w)
        inside = all(a + b <= whole for a, b, whole in zip(location.start, size, location.whole, strict=True))
        if inside and prod(location.shape) == prod(location.whole):
            return
    raise SimulationError(
        f"{who}: {shape} with depth {location.depth} from {location.start} is no part of {location.whole} "
        f"(network shape {location.shape}); correct the table of slices"
    )


def _check_agree(first: Location, other: Location) -> None:
    one, two = ((each.whole, each.shape, each.view.dtype) for each in (first, other))
    if one != two:
        raise SimulationError(
            f"slices of tensor '{first.tensor}': one logical shape, network shape and dtype are required, got {one} "
            f"after command {first.command} and {two} after command {other.command}; correct the table of slices"
        )
