"""Faults of value: coefficients, requants, activations, padding, types, kinds of operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import structs

from mutation.mutant import Mutant, Mutator, changed, chip_of, pick, sites
from tpusim.isa.blocks import offsets
from tpusim.isa.commands import Arith, Conv, Depthwise, Fill, Lut, Move, Pool, Requant
from tpusim.isa.region import View, itemsize
from tpusim.isa.stream import Program


def _choose(program: Program, rng: np.random.Generator, test: Callable[[Any], bool]) -> Any:
    return pick(rng, [s for s in sites(program) if test(s[1])])


def wrong_relu(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A relu too many, or one is missing."""
    site = _choose(program, rng, lambda c: isinstance(getattr(c, "relu", None), bool))
    return None if site is None else changed(program, site, "wrong_relu", relu=not site[1].relu)


def missing_bias(program: Program, rng: np.random.Generator) -> Mutant | None:
    """No bias."""
    site = _choose(program, rng, lambda c: getattr(c, "bias", None) is not None)
    if site is None:
        return None
    found = changed(program, site, "missing_bias", bias=None)
    index = site[0]
    old, new = program.commands[index], found.program.commands[index]
    at = [i for i, (name, _) in enumerate(site[1].operands()) if name == "bias"][0]
    new = structs.replace(new, sources=old.sources[:at] + old.sources[at + 1 :])
    commands = (*program.commands[:index], new, *program.commands[index + 1 :])
    return Mutant("missing_bias", index, found.note, structs.replace(program, commands=commands))


def _requant(program: Program, rng: np.random.Generator, kind: str, change: Callable[[Requant], Requant]) -> Any:
    site = _choose(program, rng, lambda c: isinstance(getattr(c, "requant", None), Requant))
    return None if site is None else changed(program, site, kind, requant=change(site[1].requant))


def wrong_multiplier(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The multiplier of a requant is one more or less, or twice as much; in a command or in a table."""
    by = int(rng.choice([-1, 1]))
    if rng.integers(2):
        return _table_byte(program, rng, "wrong_multiplier", ("multiplier",))

    def change(r: Requant) -> Requant:
        return structs.replace(r, multiplier=r.multiplier + by if r.multiplier < 1 << 16 else r.multiplier // 2)

    return _requant(program, rng, "wrong_multiplier", change)


def wrong_rshift(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The shift of a requant is one more or less; in a command or in a table."""
    by = int(rng.choice([-1, 1]))
    if rng.integers(2):
        return _table_byte(program, rng, "wrong_rshift", ("rshift",))
    return _requant(program, rng, "wrong_rshift", lambda r: structs.replace(r, rshift=r.rshift + by))


def wrong_zero_point(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The zero point of a requant is one more."""
    return _requant(program, rng, "wrong_zero_point", lambda r: structs.replace(r, zero_point=r.zero_point + 1))


def wrong_rounding(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A requant rounds down."""
    return _requant(program, rng, "wrong_rounding", lambda r: structs.replace(r, rounding="down", mode="shift"))


def _origin(program: Program, index: int, view: View) -> dict[int, int]:
    """Byte offset in local memory -> address of the coefficient that the last load before the command put there."""
    chip = chip_of(program)
    wanted = offsets(view, chip).reshape(-1)
    low, high = program.header.coeff_address, program.header.coeff_address + program.header.coeff_bytes
    found: dict[int, int] = {}
    for command in program.commands[:index]:
        if isinstance(command, Move) and command.input.memory == "gmem" and low <= command.input.address < high:
            size = np.arange(itemsize(command.input.dtype))
            source = (offsets(command.input, chip).reshape(-1, 1) + size).reshape(-1)
            target = (offsets(command.output, chip).reshape(-1, 1) + size).reshape(-1)
            if target.min() <= wanted.max() and wanted.min() <= target.max():
                found.update(zip(target.tolist(), source.tolist(), strict=True))
    return found


def patched(program: Program, site: Any, view: View, element: int, by: int, kind: str) -> Mutant | None:
    """The program with one coefficient changed that a command reads as an element of `view`."""
    index, command = site
    at = int(offsets(view, chip_of(program)).reshape(-1)[element])
    if view.memory == "gmem":
        places = {at + i: at + i for i in range(itemsize(view.dtype))}
    else:
        places = _origin(program, index, view)
    if at not in places:
        return None
    size, image = itemsize(view.dtype), program.coefficients.copy()
    base = program.header.coeff_address
    where = [places[at + i] - base for i in range(size)]
    if max(where) >= image.size:
        return None
    kind_of = {1: np.int8, 2: np.int16, 4: np.int32}[size]
    old = image[where].view(kind_of)
    new = old + np.array([by]).astype(kind_of)
    image[where] = new.view(np.uint8)
    note = f"{command.label}: element {element} of {view.dtype} at {at} {old[0]} -> {new[0]}"
    return Mutant(kind, index, note, structs.replace(program, coefficients=image))


def _table_byte(program: Program, rng: np.random.Generator, kind: str, part: tuple[str]) -> Mutant | None:
    site = _choose(program, rng, lambda c: getattr(c, "requant_table", None) is not None)
    if site is None:
        return None
    view: View = site[1].requant_table
    words, channel = view.shape[-1], int(rng.integers(view.shape[1]))
    if view.dtype == "i32":
        word, by = (0, 1 << int(rng.integers(16, 28))) if part == ("multiplier",) else (1, int(rng.choice([-1, 1])))
    else:  # bytes: int32 bias, int32 multiplier, int8 shift
        word, by = (words - 3, 1 << int(rng.integers(3, 6))) if part == ("multiplier",) else (words - 1, 1)
    return patched(program, site, view, channel * words + word, by, kind)


def wrong_filter(program: Program, rng: np.random.Generator) -> Mutant | None:
    """One weight of a filter is another."""
    site = pick(rng, [s for s in sites(program, Conv, Depthwise) if itemsize(s[1].filter.dtype) == 1])
    if site is None:
        return None
    view: View = site[1].filter
    return patched(
        program, site, view, int(rng.integers(view.elements)), int(rng.choice([-64, 16, 100])), "wrong_filter"
    )


def wrong_bias(program: Program, rng: np.random.Generator) -> Mutant | None:
    """One bias is another."""
    site = _choose(program, rng, lambda c: getattr(c, "bias", None) is not None and c.bias.dtype in ("i16", "i32"))
    if site is None:
        return None
    view: View = site[1].bias
    return patched(program, site, view, int(rng.integers(view.elements)), int(rng.choice([-1, 1])) << 10, "wrong_bias")


def wrong_table(program: Program, rng: np.random.Generator) -> Mutant | None:
    """One entry of a lookup table is another."""
    site = pick(rng, sites(program, Lut))
    if site is None:
        return None
    return patched(program, site, site[1].table, int(rng.integers(256)), int(rng.choice([-1, 1])), "wrong_table")


def wrong_pad(program: Program, rng: np.random.Generator) -> Mutant | None:
    """The padding of a window op is one off at one side, or moves from one side to the other."""
    site = _choose(program, rng, lambda c: isinstance(c, Conv | Depthwise | Pool))
    if site is None:
        return None
    pads = list(site[1].pads)
    side = int(rng.integers(len(pads)))
    by = 1 if not pads[side] or rng.integers(2) else -1
    pads[side] += by
    half = len(pads) // 2
    if rng.integers(2) and pads[(side + half) % len(pads)] >= by:
        pads[(side + half) % len(pads)] -= by
    return changed(program, site, "wrong_pad", pads=tuple(pads))


def wrong_pad_value(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Padding is another value."""
    site = _choose(program, rng, lambda c: isinstance(c, Conv | Depthwise | Pool))
    if site is None:
        return None
    value = site[1].pad_value + int(rng.choice([1, 17]))
    return changed(program, site, "wrong_pad_value", pad_value=value)


def wrong_signedness(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An operand is read or written as signed for unsigned, or the other way."""
    other = {"i8": "u8", "u8": "i8", "i16": "u16", "u16": "i16"}
    found = [(s, n) for s in sites(program) for n, v in s[1].operands() if v.dtype in other and n != "inputs"]
    place = pick(rng, found)
    if place is None:
        return None
    site, name = place
    view: View = getattr(site[1], name)
    return changed(program, site, "wrong_signedness", **{name: structs.replace(view, dtype=other[view.dtype])})


def wrong_window(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A window op moves by another stride, or its window is turned on its side."""
    site = _choose(program, rng, lambda c: isinstance(c, Conv | Depthwise | Pool))
    if site is None:
        return None
    command = site[1]
    if rng.integers(2):
        axis = int(rng.integers(len(command.strides)))
        strides = [s + (1 if s == 1 else -1) * (i == axis) for i, s in enumerate(command.strides)]
        return changed(program, site, "wrong_window", strides=tuple(strides))
    if isinstance(command, Pool):
        axis = int(rng.integers(len(command.kernel)))
        kernel = [k - (i == axis) for i, k in enumerate(command.kernel)]
        return changed(program, site, "wrong_window", kernel=tuple(kernel)) if min(kernel) > 0 else None
    return changed(program, site, "wrong_window", rotate=not command.rotate)


def wrong_kind(program: Program, rng: np.random.Generator) -> Mutant | None:
    """Another operation: sub for add, maximum for average."""
    site = pick(rng, sites(program, Arith, Pool))
    if site is None:
        return None
    command = site[1]
    if isinstance(command, Pool):
        return changed(program, site, "wrong_kind", mode="avg" if command.mode == "max" else "max")
    others = [k for k in ("add", "sub", "mul", "max", "copy") if k != command.kind]
    return changed(program, site, "wrong_kind", kind=str(rng.choice(others)))


def wrong_count(program: Program, rng: np.random.Generator) -> Mutant | None:
    """An average counts its padding, or does not."""
    site = pick(rng, sites(program, Pool))
    if site is None:
        return None
    return changed(program, site, "wrong_count", count_include_pad=not site[1].count_include_pad)


def wrong_constant(program: Program, rng: np.random.Generator) -> Mutant | None:
    """A constant operand or fill value is one more."""
    site = _choose(
        program, rng, lambda c: isinstance(c, Fill) or isinstance(c, Arith) and not isinstance(c.b, View)
        and c.kind not in ("copy", "truncate"),
    )  # fmt: skip
    if site is None:
        return None
    if isinstance(site[1], Fill):
        return changed(program, site, "wrong_constant", value=site[1].value + 1)
    return changed(program, site, "wrong_constant", b=site[1].b + 1)


VALUE: tuple[Mutator, ...] = (
    wrong_relu,
    missing_bias,
    wrong_multiplier,
    wrong_rshift,
    wrong_zero_point,
    wrong_rounding,
    wrong_filter,
    wrong_bias,
    wrong_table,
    wrong_pad,
    wrong_pad_value,
    wrong_signedness,
    wrong_window,
    wrong_kind,
    wrong_count,
    wrong_constant,
)
