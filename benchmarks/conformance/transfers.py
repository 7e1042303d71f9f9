"""Single transfers of global memory on both sides: those of the same direction and as many bytes, in order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from difflib import SequenceMatcher

import msgspec

from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.timing import profile
from benchmarks.conformance.upstream import Files
from tpusim import chips

LOAD, STORE = 0, 1
"""Directions as upstream's profile counts them; others stay within a chip or within global memory."""


class Transfer(msgspec.Struct, frozen=True, array_like=True):
    """One transfer. direction: 0 loads, 1 stores; moved: bytes of global memory; cycles: of the TIU."""

    direction: int
    moved: int
    cycles: float


def their_transfers(files: Files) -> list[Transfer]:
    """Loads and stores of upstream's profile, in its order."""
    return [
        Transfer(command.direction, command.moved, command.end - command.start + 1)
        for command in profile(files.text("profile.txt"))
        if command.direction in (LOAD, STORE)
    ]


def our_transfers(compiled: Compiled) -> list[Transfer]:
    """Our loads and stores by start time; a command that moves both ways is neither."""
    program, chip = compiled.program(), chips.load(compiled.chip)
    found = list[Transfer]()
    for span in sorted(compiled.timeline().spans, key=lambda s: s.start_ns):
        loaded, stored = program.commands[span.index].traffic()
        if span.engines == ("gdma",) and bool(loaded) != bool(stored):
            cycles = (span.stop_ns - span.start_ns) * chip.tiu_mhz / 1000
            found.append(Transfer(STORE if stored else LOAD, loaded or stored, cycles))
    return found


def transfer_ratios(ours: Iterable[Transfer], theirs: Iterable[Transfer]) -> tuple[tuple[float, ...], ...]:
    """Cycles ours / theirs of the transfers that both sides have: of loads, of stores.

    Runs of transfers with the same bytes in the same order are paired first, then the rest by bytes.
    """
    here, there = list(ours), list(theirs)
    ways = ([[t for t in side if t.direction == way] for side in (here, there)] for way in (LOAD, STORE))
    return tuple(tuple(round(a.cycles / b.cycles, 3) for a, b in _pairs(*sides)) for sides in ways)


def _pairs(ours: list[Transfer], theirs: list[Transfer]) -> list[tuple[Transfer, Transfer]]:
    """Transfers of both sides that move as many bytes, in the order of theirs."""
    sizes = ([transfer.moved for transfer in side] for side in (ours, theirs))
    blocks = SequenceMatcher(None, *sizes, autojunk=False).get_matching_blocks()
    found = {b + i: a + i for a, b, size in blocks for i in range(size)}
    left = defaultdict[int, list[int]](list)
    for at in sorted(set(range(len(ours))) - set(found.values())):
        left[ours[at].moved].append(at)
    for at, transfer in enumerate(theirs):
        if at not in found and left[transfer.moved]:
            found[at] = left[transfer.moved].pop(0)
    return [(ours[found[at]], theirs[at]) for at in sorted(found)]
