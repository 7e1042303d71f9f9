"""Groups and the clock of one cell on both sides."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.conformance.compare import Pairs
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.results import Clock, Difference, Part
from benchmarks.conformance.upstream import Files

_COMMAND = re.compile(r"(\S+)\|(\w+)\|s:(\d+)\|b:\d+\|g:\d+\|e:(\d+)\|t:\d+(?:\|dr:(\d+)\|sz:(\d+))?")
_TOTAL = re.compile(r"TCYC : (\d+)")
_BYTES = re.compile(r"\bdr\[(\d)\] \w+:(\d+)")
END = "func.return"


@dataclass(frozen=True)
class Command:
    """One command of upstream's profile: layer, kind, cycles from start to end, bytes of global memory it moves."""

    layer: str
    kind: str
    start: int
    end: int
    moved: int = 0


@dataclass(frozen=True)
class Group:
    """A layer group: names of its ops, sections along n, c, d, h, w; a global layer has none."""

    ops: tuple[str, ...]
    sections: tuple[int, ...] = ()


def profile(text: str) -> list[Command]:
    """The commands of a compiler profile in the order of the file."""
    return [
        Command(layer, kind, int(start), int(end), int(size or 0))
        for layer, kind, start, end, _, size in _COMMAND.findall(text)
    ]


def their_clock(files: Files) -> Clock | None:
    """Cycles and bytes of upstream's profile; None where its compiler writes none (CV18xx)."""
    text = files.text("profile.txt")
    total = _TOTAL.search(text)
    if total is None:
        return None
    moved = {int(direction): int(size) for direction, size in _BYTES.findall(text)}
    found = their_groups(files)
    local = sum(bool(g.sections) for g in found)
    loaded, saved, both = (moved.get(n, 0) for n in range(3))
    return Clock(int(total[1]), loaded + both, saved + both, len(profile(text)), local, len(found) - local)


def our_clock(compiled: Compiled) -> Clock:
    """Cycles and bytes of our clock."""
    found, program = compiled.timeline(), compiled.program()
    local = sum(not g.reason for g in program.groups)
    return Clock(
        found.cycles, found.load_bytes, found.store_bytes, len(program.commands), local, len(program.groups) - local
    )


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


def our_groups(compiled: Compiled) -> list[Group]:
    """Groups and global layers of ours, in execution order."""
    return [Group(g.ops, () if g.reason else tuple(g.secs[a] for a in "ncdhw")) for g in compiled.program().groups]


def matching_groups(ours: Sequence[Group], theirs: Sequence[Group], pairs: Pairs) -> list[bool]:
    """Of each group or global layer of upstream, whether we have it with the same ops and sections.

    A group of one op is the tiled form of a global layer: upstream never makes one.
    """
    name = {b.name: a.name for a, b in pairs}
    here = {_identity(g.ops, g.sections) for g in ours}
    return [_identity([name.get(o, o) for o in g.ops], g.sections) in here for g in theirs]


def _identity(ops: Sequence[str], sections: tuple[int, ...]) -> tuple[frozenset[str], tuple[int, ...]]:
    return frozenset(ops), sections if len(ops) > 1 else ()


def compare_groups(compiled: Compiled, files: Files, pairs: Pairs) -> Part:
    """How many of upstream's groups and global layers we have with the same ops and sections."""
    name = {b.name: a.name for a, b in pairs}
    found, theirs = list[Difference](), their_groups(files)
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
