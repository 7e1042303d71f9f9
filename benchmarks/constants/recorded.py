"""What the tool's profile of a case says, layer by layer (tests/upstream/profiles.json)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from benchmarks.conformance.timing import profile
from benchmarks.constants.networks import Case

FILE = Path(__file__).parents[2] / "tests" / "upstream" / "profiles.json"
KEPT = 6
"""Transfers of a layer that are kept: those of its first tile, and one of the next."""


class Transfer(msgspec.Struct, frozen=True, array_like=True):
    """direction: 0 loads, 1 stores, 2 copies in global memory; moved: bytes; cycles: of the TIU."""

    direction: int
    moved: int
    cycles: int


class Layer(msgspec.Struct, frozen=True):
    """tiu: cycles of its compute commands; steps: of the first ones; transfers: its first ones."""

    tiu: int
    steps: tuple[int, ...]
    transfers: tuple[Transfer, ...]


Layers = dict[str, tuple[Layer, ...]]
"""The layers of a profile by the kind of their op, in order."""


def layers(text: str) -> Layers:
    """Of a profile as the tool writes it."""
    found: dict[str, list[tuple[str, int, int | None, int]]] = {}
    for c in profile(text):
        found.setdefault(c.layer, []).append((c.kind, c.moved, c.direction, max(0, c.end - c.start + 1)))
    kinds: dict[str, tuple[Layer, ...]] = {}
    for layer, commands in found.items():
        computed = [cycles for kind, _, _, cycles in commands if not kind.startswith("GDMA")]
        moved = [Transfer(way, size, cycles) for _, size, way, cycles in commands if way in (0, 1, 2)]
        one = Layer(sum(computed), tuple(computed[:KEPT]), tuple(moved[:KEPT]))
        kind = layer.rpartition("_")[0]
        kinds[kind] = (*kinds.get(kind, ()), one)
    return kinds


@cache
def recorded() -> dict[Case, Layers]:
    """All recorded cases."""
    return {Case.of(key): each for key, each in msgspec.json.decode(FILE.read_bytes(), type=dict[str, Layers]).items()}


def write(found: dict[str, Layers]) -> None:
    """Write the file, a case on a line."""
    lines = (f'"{key}": {msgspec.json.encode(each).decode()}' for key, each in sorted(found.items()))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
