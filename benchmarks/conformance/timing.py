"""Groups and the clock of one cell on both sides."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from benchmarks.conformance import recorded
from benchmarks.conformance.compare import Pairs
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.results import Clock, Difference, Part
from benchmarks.conformance.upstream import Files
from tpusim.ir.attrs import op_name, texts
from tpusim.isa import commands as isa
from tpusim.isa.functions import TopK
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.structure import Transfer

_COMMAND = re.compile(r"(\S+)\|(\w+)\|s:(\d+)\|b:\d+\|g:\d+\|e:(\d+)\|t:\d+(?:\|dr:(\d+)\|sz:(\d+))?")
_TOTAL = re.compile(r"TCYC : (\d+)")
_BYTES = re.compile(r"\bdr\[(\d)\] \w+:(\d+)")
END = "func.return"
HALF_CAST = "new_cast"
"""The suffix of the conversion's name when a cast is split into a conversion and a product with its scale."""


@dataclass(frozen=True)
class Command:
    """One command of upstream's profile: layer, kind, cycles from start to end, bytes of global memory it moves.

    direction: 0 to local memory, 1 from it, 2 within global and 3 within local memory; None if none
    is said.
    """

    layer: str
    kind: str
    start: int
    end: int
    moved: int = 0
    direction: int | None = None


@dataclass(frozen=True)
class Group:
    """A layer group: names of its ops, sections along n, c, d, h, w; a global layer has none."""

    ops: tuple[str, ...]
    sections: tuple[int, ...] = ()


def profile(text: str) -> list[Command]:
    """The commands of a compiler profile in the order of the file."""
    return [
        Command(layer, kind, int(start), int(end), int(size or 0), int(way) if way else None)
        for layer, kind, start, end, way, size in _COMMAND.findall(text)
    ]


def their_clock(files: Files) -> Clock | None:
    """Cycles and bytes of upstream's profile, all parts of a program together; None where its compiler writes none."""
    text = files.text("profile.txt")
    totals, moved = [int(total) for total in _TOTAL.findall(text)], Counter[int]()
    if not totals:
        return None
    for direction, size in _BYTES.findall(text):
        moved[int(direction)] += int(size)
    found = their_groups(files)
    local = sum(bool(g.sections) for g in found)
    loaded, saved, both = (moved[n] for n in range(3))
    return Clock(sum(totals), loaded + both, saved + both, len(profile(text)), local, len(found) - local)


def our_clock(compiled: Compiled) -> Clock:
    """Cycles and bytes of our clock.

    Upstream's profile gives the fill of a constant and a sort no bytes, so they have none here.
    """
    found, program = compiled.timeline(), compiled.program()
    silent = [command.traffic() for command in program.commands if _is_silent(command)]
    local = sum(not g.reason for g in program.groups)
    alone, (loaded, stored) = len(program.groups) - local, (sum(way) for way in zip((0, 0), *silent, strict=True))
    moved = found.load_bytes - loaded, found.store_bytes - stored
    return Clock(found.cycles, *moved, len(program.commands), local, alone)


def _is_silent(command: isa.Command) -> bool:
    """Whether upstream's profile lists no bytes of a command."""
    computed = command.computed
    return isinstance(command, isa.Fill) or (isinstance(computed, isa.Fn) and isinstance(computed.function, TopK))


def their_groups(files: Files) -> list[Group]:
    """Groups and global layers of upstream, in execution order."""
    text, found = files.text("groups.json"), list[tuple[int, int, Group]]()
    for name, part in (json.loads(text) if text else {}).items():
        if name.startswith("subfunc_"):
            number = int(name.removeprefix("subfunc_"))
            for entry in part.get("GroupLayer") or []:
                found.append((number, entry["func_start_idx"], Group(tuple(entry["locs"]), tuple(entry["shape_secs"]))))
            for entry in part.get("GlobalLayer") or []:
                if entry["loc"] != END:
                    found.append((number, entry["func_idx"], Group((entry["loc"],))))
    return [group for _, _, group in sorted(found, key=lambda f: f[:2])]


def recorded_clock(cell: recorded.Cell) -> tuple[list[Group], Clock | None]:
    """Upstream's groups and clock of a recorded cell; no clock where its compiler writes no profile."""
    groups = [Group(ops, sections) for ops, sections in cell.groups]
    local = sum(bool(g.sections) for g in groups)
    moved = cell.load_bytes, cell.store_bytes
    return groups, None if cell.cycles is None else Clock(cell.cycles, *moved, 0, local, len(groups) - local)


def our_groups(compiled: Compiled) -> list[Group]:
    """Groups and global layers of ours, in execution order; then the global layers without a command (views).

    Work that transfers do in place of global layers counts as global layers: upstream also decides this after its
    search.
    """
    groups, ops = compiled.program().groups, list(compiled.grouped().module.walk())
    found = [Group(g.ops, () if g.reason else tuple(g.secs[a] for a in "ncdhw")) for g in groups]
    placed = {op for group in groups for op in group.ops}
    moved = (name for op in ops if isinstance(op, Transfer) and op.moved for name in texts(op.moved))
    alone = (*moved, *(op_name(op) for op in ops if isinstance(op, TpuOp)))
    return found + [Group((name,)) for name in alone if name and name not in placed]


def matching_groups(ours: Sequence[Group], theirs: Sequence[Group], pairs: Pairs) -> list[bool]:
    """For each group or global layer of upstream, whether we have one with the same ops and sections.

    An op that the chip's rewriting replaced counts as the original op, whatever its name on either side. Ops that only
    one side has after rewriting (views, a transpose that a product absorbs) are not compared, and a group of only such
    ops is never equal. A group of one op is the tiled form of a global layer: upstream never makes one.
    """
    here, there = ({o: stem(o, known) for g in side for o in g.ops} for side, known in _sides(ours, theirs, pairs))
    common = set(here.values()) & set(there.values())
    mine = {_identity({here[o] for o in g.ops} & common, g.sections) for g in ours}
    return [bool(ops := {there[o] for o in g.ops} & common) and _identity(ops, g.sections) in mine for g in theirs]


def _sides(
    ours: Sequence[Group], theirs: Sequence[Group], pairs: Pairs
) -> tuple[tuple[Sequence[Group], dict[str, str]], ...]:
    """Groups of either side, and our name of each lowered op by that side's."""
    return (ours, {a.name: a.name for a, _ in pairs}), (theirs, {b.name: a.name for a, b in pairs})


def stem(name: str, known: Mapping[str, str]) -> str:
    """Our name of the lowered op that a name starts with: rewriting appends `_` and more.

    If a Permute is moved after another op, both get the names of both, and the later op counts. A cast is split in two
    before that, and the first half has another name.
    """
    found, rest = list[str](), name
    while nearest := next(_begins(rest, known), ""):
        found.append(nearest)
        rest = rest.removeprefix(nearest).removeprefix("_").removeprefix(HALF_CAST).removeprefix("_")
    order = {each: at for at, each in enumerate(known)}
    return known[found[0] if rest else max(found, key=order.__getitem__)] if found else name


def _begins(name: str, known: Mapping[str, str]) -> Iterator[str]:
    """The names of lowered ops that a name begins with, the longest first."""
    parts = name.split("_")
    return (stem for end in range(len(parts), 0, -1) if (stem := "_".join(parts[:end])) in known)


def _identity(ops: Set[str], sections: tuple[int, ...]) -> tuple[frozenset[str], tuple[int, ...]]:
    return frozenset(ops), sections if len(ops) > 1 else ()


def compare_groups(compiled: Compiled, theirs: Sequence[Group], pairs: Pairs) -> Part:
    """The number of upstream's groups and global layers that we have with the same ops and sections."""
    name = {b.name: a.name for a, b in pairs}
    found = list[Difference]()
    for group, same in zip(theirs, matching_groups(our_groups(compiled), theirs, pairs), strict=True):
        if not same:
            first, last = name.get(group.ops[0], group.ops[0]), name.get(group.ops[-1], group.ops[-1])
            what = (
                f"a group of {len(group.ops)} ops to `{last}`, sections {group.sections}"
                if group.sections
                else "global"
            )
            found.append(Difference(first, f"{what} there, not here"))
    return Part.of(len(theirs), len(theirs) - len(found), found)
