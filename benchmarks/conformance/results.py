"""The compared results on disk: one record per network, chip and mode, in a JSON file that is written atomically."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.accuracy.measure import config
from benchmarks.accuracy.results import Key
from tpusim.host.files import replacing

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
PAGE = FOLDER.parents[1] / "docs" / "conformance.md"
SHOWN = 6
"""Differences of a part that are kept by name."""

SIMULATED_AS_INTEGERS = ("resnet50", "inception_v2", "densenet121", "zfnet512", "vgg19")
"""Networks that the closed simulator runs in INT8 only: one sample in floats takes it ten minutes and more."""


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tensor or op that differs: what differs, in which share of its values, and by how much at most.

    largest: in integer steps, or of floats in units of the last place. inherited: an operand differs already, so that
    the reason may lie there. tolerated: floats that are as near as the orders of two sums allow.
    """

    tensor: str
    what: str
    share: float = 0.0
    largest: float = 0.0
    inherited: bool = False
    tolerated: bool = False

    def __str__(self) -> str:
        amount = f" ({self.share:.3%} of the values, by {self.largest:.4g})" if self.share else ""
        return f"`{self.tensor}`: {self.what}{amount}"


class Part(msgspec.Struct, frozen=True):
    """One part of a cell's comparison; differing: not even within the tolerance of floats.

    The differences are in program order, those not tolerated and not inherited first.
    """

    compared: int
    equal: int
    differing: int = 0
    differences: tuple[Difference, ...] = ()

    @classmethod
    def of(cls, compared: int, equal: int, found: list[Difference]) -> Part:
        """A part with these differences."""
        ordered = sorted(found, key=lambda d: (d.tolerated, d.inherited))
        return cls(compared, equal, sum(not d.tolerated for d in found), tuple(ordered))

    def shortened(self) -> Part:
        """The part with its first few differences."""
        return msgspec.structs.replace(self, differences=self.differences[:SHOWN])


class Clock(msgspec.Struct, frozen=True):
    """Cycles and bytes of one side."""

    cycles: int
    load_bytes: int
    store_bytes: int
    commands: int
    groups: int
    global_layers: int

    @property
    def moved(self) -> int:
        """Bytes loaded and stored."""
        return self.load_bytes + self.store_bytes


class Cell(msgspec.Struct, frozen=True):
    """One network on one chip in one mode. refused: the error of tpusim ("here") or of TPU-MLIR ("there")."""

    key: Key
    upstream: str
    parts: dict[str, Part] = {}
    disagreeing: tuple[str, ...] = ()
    """Outputs in which upstream's interpreter and its closed simulator disagree."""
    refused: dict[str, str] = {}
    here: Clock | None = None
    there: Clock | None = None

    @property
    def equal(self) -> bool:
        """Whether constants and tensors are, and the outputs where upstream agrees with itself and was simulated.

        Tolerated differences of lowering are ops that move elements and have no partner.
        """
        lowering, *values = (self.parts.get(name) for name in ("lowering", "tensors", "outputs"))
        if not simulated(self.key):
            values.pop()
        equal = all(part is not None and not part.differences for part in values)
        return not self.refused and equal and lowering is not None and not lowering.differing

    @property
    def near(self) -> bool:
        """Whether constants are equal, and every op on upstream's operands but for the tolerance of floats."""
        parts = [self.parts.get(name) for name in ("lowering", "ops")]
        return not self.refused and all(part is not None and not part.differing for part in parts)


def simulated(key: Key) -> bool:
    """Whether the closed simulator runs the cell; else it is compared with the interpreter alone."""
    return config(key.chip, key.mode).format.calibrated or key.network not in SIMULATED_AS_INTEGERS


class Results(msgspec.Struct, frozen=True):
    """All cells, sorted."""

    cells: tuple[Cell, ...] = ()

    def get(self, key: Key) -> Cell | None:
        """The cell, None if it was not compared."""
        return next((c for c in self.cells if c.key == key), None)

    def with_cell(self, cell: Cell) -> Results:
        """These results and one more, of which they keep the first few differences of each part."""
        cell = msgspec.structs.replace(cell, parts={name: part.shortened() for name, part in cell.parts.items()})
        others = [c for c in self.cells if c.key != cell.key]
        return Results(tuple(sorted((*others, cell), key=lambda c: c.key)))


def read(path: Path = RESULTS) -> Results:
    """The results so far; none if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def write(results: Results, path: Path = RESULTS) -> None:
    """One line per cell."""
    lines = ",\n".join(msgspec.json.encode(cell).decode() for cell in results.cells)
    with replacing(path) as target:
        target.write_text(f'{{"cells": [\n{lines}\n]}}\n', encoding="utf-8")
