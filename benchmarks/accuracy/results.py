"""The measured results: one record per network, chip and mode, in a JSON file that is written atomically."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tpusim.host.files import replacing

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PAGE = FOLDER.parents[1] / "docs" / "accuracy.md"


class Key(msgspec.Struct, frozen=True, order=True):
    """A cell of the table."""

    network: str
    chip: str
    mode: str

    def __str__(self) -> str:
        return f"{self.network}/{self.chip}/{self.mode}"

    def matches(self, globs: Iterable[str]) -> bool:
        """Whether NETWORK/CHIP/MODE matches one of the globs; no globs match everything."""
        patterns = list(globs)
        return not patterns or any(fnmatchcase(str(self), p) for p in patterns)


class Local(msgspec.Struct, frozen=True):
    """The local-memory machine compared with the flat model: integers bit for bit, floats within their bounds."""

    compared: int
    passed: bool
    bit_exact: bool


class Top1(msgspec.Struct, frozen=True):
    """Share of labelled samples that are right, of the float and of the quantised network."""

    samples: int
    float_top1: float
    top1: float


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cell. cosine, euclidean: the worst of all compared tensors, None if it is not a number; worst: its name.

    exact, decision, fallback: ops by class of fidelity (docs/support.md).
    """

    key: Key
    version: str
    seconds: float
    compared: int
    cosine: float | None
    euclidean: float | None
    worst: str
    passed: bool
    """Within tpusim's default tolerance of the mode."""
    exact: int
    decision: int
    fallback: int
    top1: Top1 | None = None
    local: Local | None = None


class Results(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All cells by key, sorted, and the errors of cells that cannot be measured."""

    cells: tuple[Measured, ...] = ()
    failed: dict[str, str] = {}
    """Cell -> the compiler's error."""

    def get(self, key: Key) -> Measured | None:
        """The cell, None if it was not measured."""
        return next((c for c in self.cells if c.key == key), None)

    def with_cell(self, cell: Measured) -> Results:
        """These results and one more."""
        others = [c for c in self.cells if c.key != cell.key]
        failed = {k: v for k, v in self.failed.items() if k != str(cell.key)}
        return Results(tuple(sorted((*others, cell), key=lambda c: c.key)), failed)

    def with_failure(self, key: Key, why: str) -> Results:
        """These results and the reason why one cell has none."""
        others = tuple(c for c in self.cells if c.key != key)
        return Results(others, dict(sorted({**self.failed, str(key): why}.items())))


def read(path: Path = RESULTS) -> Results:
    """The results so far; none if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def write(results: Results, path: Path = RESULTS) -> None:
    """Replace the file as a whole."""
    with replacing(path) as target:
        target.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
