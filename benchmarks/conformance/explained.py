"""Differences whose reason is known, kept by hand; one that no line here matches is called unexplained."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.accuracy.results import Key
from benchmarks.conformance.results import Difference


@dataclass(frozen=True)
class Explained:
    """cells: globs NETWORK/CHIP/MODE. tensors: globs of our names. what: globs of what differs. parts: all if empty."""

    reason: str
    cells: tuple[str, ...]
    tensors: tuple[str, ...] = ("*",)
    what: tuple[str, ...] = ("*",)
    parts: tuple[str, ...] = ()

    def covers(self, key: Key, part: str, found: Difference) -> bool:
        """Whether this is the reason of that difference."""
        return (
            key.matches(self.cells)
            and (not self.parts or part in self.parts)
            and any(fnmatchcase(found.tensor, glob) for glob in self.tensors)
            and any(fnmatchcase(found.what, glob) for glob in self.what)
        )


TABLE: tuple[Explained, ...] = ()
"""Only what was traced to its cause with the real tool belongs here."""


def reason(key: Key, part: str, found: Difference) -> str | None:
    """Why a tensor differs in this part of the cell; None if nobody knows."""
    return next((e.reason for e in TABLE if e.covers(key, part, found)), None)
