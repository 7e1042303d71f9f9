"""Sorts cells that differ into kinds: the first stage that differs, the op, and what differs without its numbers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.conformance.fuzz.judge import Finding, Judged, without_folders

_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")
_NAME = re.compile(r"'[^']*'|`[^`]*`|: [\w, ]+;")
LONGEST = 140


@dataclass
class Kind:
    """Cells with the same first finding."""

    stage: str
    op: str
    what: str
    cells: list[Judged] = field(default_factory=list[Judged])

    @property
    def networks(self) -> list[str]:
        """The networks of the cells, in order."""
        return list(dict.fromkeys(c.key.network for c in self.cells))

    def __str__(self) -> str:
        return f"{self.stage} {self.op or '-'}: {self.what}"


def signature(found: Finding) -> tuple[str, str, str]:
    """(stage, op, what): equal for differences of one kind."""
    if found.stage in ("cycles", "bytes"):
        return found.stage, found.op, "off"
    what = _NUMBER.sub("#", _NAME.sub("*", found.what))
    return found.stage, found.op.removeprefix("tpu."), what[:LONGEST]


def kinds(cells: Iterable[Judged]) -> list[Kind]:
    """The kinds of cells that differ, the one of most networks first."""
    sorted_by = defaultdict[tuple[str, str, str], list[Judged]](list)
    for cell in cells:
        if cell.first is not None:
            sorted_by[signature(cell.first)].append(cell)
    found = [Kind(*which, cells) for which, cells in sorted_by.items()]
    return sorted(found, key=lambda k: (-len(k.networks), str(k)))


def refusals(cells: Iterable[Judged]) -> dict[str, int]:
    """How often the real tool refused or crashed, by its message without numbers and names."""
    found = defaultdict[str, int](int)
    for cell in cells:
        if cell.there:
            found[_NUMBER.sub("#", _NAME.sub("*", without_folders(cell.there)))[:LONGEST]] += 1
    return dict(sorted(found.items(), key=lambda item: -item[1]))
