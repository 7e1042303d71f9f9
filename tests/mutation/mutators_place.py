"""Faults of place and shape: addresses, lanes, layouts, strides, sizes, operands."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from msgspec import structs

from mutation.mutant import Mutant, Mutator, changed, chip_of, loads, pick, sites, stores, view_fields
from tpusim.isa.commands import Conv, Depthwise, Fn, Move, Pool
from tpusim.isa.layout import gmem_strides, lmem_strides
from tpusim.isa.region import View, itemsize
from tpusim.isa.stream import Program


def _local(program: Program) -> list[tuple[Any, str]]:
    """(site, field) of every operand in local memory."""
    return [
        (site, name)
        for site in sites(program)
        for name in view_fields(site[1])
        if getattr(site[1], name).memory == "lmem"
    ]


def _shifted(program: Program, place: tuple[Any, str] | None, by: int, kind: str) -> Mutant | None:
    if place is None:
        return None
    site, name = place
    view: View = getattr(site[1], name)
    address = view.address + by
    return changed(program, site, kind, **{name: structs.replace(view, address=address)}) if address >= 0 else None


def shift_row(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An operand in local memory lies one row of its image further."""
    place = pick(rng, _local(program))
    if place is None:
        return None
    view: View = getattr(place[0][1], place[1])
    step = lmem_strides(view, chip_of(program))[2] * itemsize(view.dtype) * view.interleave
    return _shifted(program, place, step * int(rng.choice([-1, 1])), "shift_row")


def shift_eu(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An operand in local memory lies EU_BYTES further."""
    step = chip_of(program).eu_bytes * int(rng.choice([-1, 1]))
    return _shifted(program, pick(rng, _local(program)), step, "shift_eu")


def shift_bank(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An operand in local memory lies a bank further."""
    step = chip_of(program).lmem_bank_bytes * int(rng.choice([-1, 1]))
    return _shifted(program, pick(rng, _local(program)), step, "shift_bank")


def shift_element(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An operand that need not be aligned lies one element further."""
    found = [p for p in _local(program) if getattr(p[0][1], p[1]).layout != "aligned"]
    place = pick(rng, found)
    if place is None:
        return None
    view: View = getattr(place[0][1], place[1])
    return _shifted(program, place, itemsize(view.dtype) * int(rng.choice([-1, 1])), "shift_element")


def wrong_lane(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An operand in local memory starts at the next lane."""
    place = pick(rng, _local(program))
    if place is None:
        return None
    site, name = place
    view: View = getattr(site[1], name)
    lane = view.lane + int(rng.choice([-1, 1])) if view.lane else 1
    return changed(program, site, "wrong_lane", **{name: structs.replace(view, lane=lane)})


def wrong_layout(program: Program, rng: np.random.Generator) -> Mutant | None:
    """EU-aligned for compact, or compact for EU-aligned."""
    found = [p for p in _local(program) if getattr(p[0][1], p[1]).layout != "strided"]
    place = pick(rng, found)
    if place is None:
        return None
    site, name = place
    view: View = getattr(site[1], name)
    other = "compact" if view.layout == "aligned" else "aligned"
    return changed(program, site, "wrong_layout", **{name: structs.replace(view, layout=other)})


def wrong_stride(program: Program, rng: np.random.Generator) -> Mutant | None:
    """One stride of an operand is one more or less."""
    found = [(site, n) for site in sites(program) for n in view_fields(site[1]) if getattr(site[1], n).strides]
    place = pick(rng, found)
    if place is None:
        return None
    site, name = place
    view: View = getattr(site[1], name)
    strides = list(view.strides or ())
    axis = int(rng.integers(len(strides)))
    strides[axis] += int(rng.choice([-1, 1])) if strides[axis] else 1
    return changed(program, site, "wrong_stride", **{name: structs.replace(view, strides=tuple(strides))})


def load_offset(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A load takes its bytes from another place in global memory."""
    return _transfer(program, pick(rng, loads(program)), "input", rng, "load_offset")


def store_offset(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A store puts its bytes at another place in global memory."""
    return _transfer(program, pick(rng, stores(program)), "output", rng, "store_offset")


def _transfer(program: Program, site: Any, name: str, rng: np.random.Generator, kind: str) -> Mutant | None:
    if site is None:
        return None
    view: View = getattr(site[1], name)
    unit = itemsize(view.dtype) * view.interleave
    strides = [1, *(gmem_strides(view) if not view.lane_pitch else ())]
    by = unit * int(rng.choice([s for s in strides if s])) * int(rng.choice([-1, 1]))
    return _shifted(program, (site, name), by, kind)


def _cut(view: View, axis: int, chip: Any) -> View:
    """The view without its last index along an axis, all else in its place."""
    shape = tuple(size - (i == axis) for i, size in enumerate(view.shape))
    strides = lmem_strides(view, chip) if view.laned else gmem_strides(view)
    return structs.replace(view, shape=shape, layout="strided", strides=strides)


def _shrunk(program: Program, site: Any, rng: np.random.Generator, kind: str) -> Mutant | None:
    if site is None:
        return None
    command: Move = site[1]
    axis = pick(rng, [i for i, size in enumerate(command.input.shape) if size > 1])
    if axis is None or command.input.interleave > 1 and axis == command.input.batch_axis:
        return None
    chip = chip_of(program)
    return changed(program, site, kind, input=_cut(command.input, axis, chip), output=_cut(command.output, axis, chip))


def shrink_store(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A store leaves out the last row, channel or column."""
    return _shrunk(program, pick(rng, stores(program)), rng, "shrink_store")


def shrink_load(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A load leaves out the last row, channel or column."""
    return _shrunk(program, pick(rng, loads(program)), rng, "shrink_load")


def halo_off_by_one(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A window op reads one row too few or too many of its halo, and pads the other way."""
    found = [s for s in sites(program, Conv, Depthwise, Pool) if s[1].input.laned and len(s[1].kernel) == 2]
    site = pick(rng, found)
    if site is None:
        return None
    command, chip = site[1], chip_of(program)
    view: View = command.input
    n, c, h, w = view.shape
    strides = lmem_strides(view, chip)
    row = strides[2] * itemsize(view.dtype) * view.interleave
    top, left, bottom, right = command.pads
    by = int(rng.choice([-1, 1]))
    if rng.integers(2):
        address, pads = view.address + by * row, (top + by, left, bottom, right)
    else:
        address, pads = view.address, (top, left, bottom + by, right)
    if address < 0 or h - by < 1:
        return None
    cut = structs.replace(view, address=address, shape=(n, c, h - by, w), layout="strided", strides=strides)
    return changed(program, site, "halo_off_by_one", input=cut, pads=pads)


def reuse_live_buffer(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A result goes where a later command finds an operand."""
    outputs = [s for s in sites(program) if getattr(s[1], "output", None) is not None and s[1].output.memory == "lmem"]
    site = pick(rng, outputs)
    if site is None:
        return None
    later = [
        v.address
        for c in program.commands[site[0] + 1 : site[0] + 6]
        for v in c.reads()
        if v.memory == "lmem" and v.address != site[1].output.address
    ]
    address = pick(rng, later)
    if address is None:
        return None
    output = structs.replace(site[1].output, address=address)
    return changed(program, site, "reuse_live_buffer", output=output)


def wrong_operand(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A command reads where another command's operand is."""
    place = pick(rng, [p for p in _local(program) if p[1] in p[0][1].inputs_])
    if place is None:
        return None
    site, name = place
    view: View = getattr(site[1], name)
    near = program.commands[max(0, site[0] - 6) : site[0] + 6]
    others = {v.address for c in near for v in c.reads() if v.memory == "lmem"} - {view.address}
    address = pick(rng, sorted(others))
    return None if address is None else _shifted(program, place, address - view.address, "wrong_operand")


def swapped_operands(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Two operands of one command are exchanged; what they are said to hold is not."""
    found = [
        (site, a, b)
        for site in sites(program)
        for names in [view_fields(site[1], writes=False)]
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    place = pick(rng, found)
    if place is None:
        return None
    site, a, b = place
    return changed(program, site, "swapped_operands", **{a: getattr(site[1], b), b: getattr(site[1], a)})


def swapped_inputs(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Two operands of a macro function, or of a function of the host, are exchanged."""
    pairs = [(site, *pair) for site in sites(program, Fn) for pair in combinations(range(len(site[1].inputs)), 2)]
    place = pick(rng, pairs)
    if place is None:
        return None
    site, a, b = place
    inputs = list(site[1].inputs)
    inputs[a], inputs[b] = inputs[b], inputs[a]
    return changed(program, site, "swapped_inputs", inputs=tuple(inputs))


def stale_weight(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A load fetches the coefficients of another layer."""
    header = program.header
    found = [s for s in loads(program) if header.coeff_address <= s[1].input.address < header.neuron_address]
    site = pick(rng, found)
    if site is None:
        return None
    others = [c.input.address for _, c in found if c.input.address != site[1].input.address]
    address = pick(rng, sorted(set(others)))
    return (
        None if address is None else _shifted(program, (site, "input"), address - site[1].input.address, "stale_weight")
    )


PLACE: tuple[Mutator, ...] = (
    shift_row,
    shift_eu,
    shift_bank,
    shift_element,
    wrong_lane,
    wrong_layout,
    wrong_stride,
    load_offset,
    store_offset,
    shrink_store,
    shrink_load,
    halo_off_by_one,
    reuse_live_buffer,
    wrong_operand,
    swapped_operands,
    stale_weight,
)
