"""Differences whose reason is known, maintained by hand; a difference that no line matches is unexplained."""

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


TABLE: tuple[Explained, ...] = (
    # upstream's interpreter disagrees with the closed simulator of its own compiler, or with its own types
    Explained("the interpreter keeps results of F16 LayerNorm and Interp in f32, they are stored as f16 here",
              ("vit/*", "bert/*", "segformer/*", "norms/*", "resize/*", "enlarge/*"),
              ("layernormalization*", "*_Resize*"),
              ("LayerNorm in f16", "Cast in i8", "Cast in f32")),
    Explained("D13: the interpreter clamps unsigned results of a BM1684 Deconv at 127; the closed simulator does not "
              "(it is equal in channel 0, of the others it takes another bias)", ("deconv/bm1684/*",), ("relued*",)),
    # forms of ops that tpusim does not have
    Explained("the table of a square root is an operand of the ReduceL2 there; the values are equal",
              ("reduce/cv18*",), ("l2_*",), ("0 constants here*",)),
)  # fmt: skip
"""Only what was traced to its cause with the real tool belongs here: a decision, a quirk of upstream, a known gap."""


def reason(key: Key, part: str, found: Difference) -> str | None:
    """The reason why a tensor differs in this part of the cell; None if it is unknown."""
    return next((e.reason for e in TABLE if e.covers(key, part, found)), None)
