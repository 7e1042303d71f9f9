"""What a set says as a whole: rates by chip and mode, and the kinds of differences; the sets of the page are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks.conformance.fuzz.judge import BYTES, CYCLES, Judged
from benchmarks.conformance.fuzz.triage import kinds, refusals
from tpusim.host.files import replacing

PUBLISHED = Path(__file__).parent / "published.json"
"""The sets that docs/conformance.md leads with."""


class Rate(msgspec.Struct, frozen=True):
    """Counts of cells. comparable: the real tool compiles and agrees with itself; timed: of those with a profile."""

    cells: int
    compiled: int
    comparable: int
    equal: int
    timed: int
    cycles_near: int
    bytes_near: int
    groups_equal: int
    groups: int
    table_accepted: int

    @classmethod
    def of(cls, cells: Sequence[Judged]) -> Rate:
        """The counts of some cells."""
        compiled = [c for c in cells if not c.there]
        comparable = [c for c in compiled if not c.disagreeing]
        timed = [c for c in compiled if c.timed and c.cycles[1]]
        return cls(
            len(cells), len(compiled), len(comparable), sum(c.equal for c in comparable), len(timed),
            sum(_near(c.cycles, CYCLES) for c in timed), sum(_near(c.bytes, BYTES) for c in timed),
            sum(c.groups[0] for c in compiled), sum(c.groups[1] for c in compiled),
            sum(not any(f.stage == "table" for f in c.findings) for c in compiled),
        )  # fmt: skip


def _near(both: tuple[int, int], limit: float) -> bool:
    return abs(both[0] - both[1]) <= limit * max(both[1], 1)


class Difference(msgspec.Struct, frozen=True):
    """One kind: its line, how many networks and cells have it, and a cell that does."""

    kind: str
    networks: int
    cells: int
    example: str


class Summary(msgspec.Struct, frozen=True):
    """A set. name: seedN or idioms; rates: by CHIP/MODE; refused: messages of the real tool and their number."""

    name: str
    networks: int
    rates: dict[str, Rate]
    kinds: tuple[Difference, ...]
    refused: dict[str, int]

    @classmethod
    def of(cls, name: str, cells: Iterable[Judged]) -> Summary:
        """The summary of judged cells."""
        every = list(cells)
        where = sorted({(c.key.chip, c.key.mode) for c in every})
        rates = {f"{chip}/{mode}": Rate.of([c for c in every if (c.key.chip, c.key.mode) == (chip, mode)])
                 for chip, mode in where}  # fmt: skip
        found = tuple(Difference(str(k), len(k.networks), len(k.cells), str(k.cells[0].key)) for k in kinds(every))
        return cls(name, len({c.key.network for c in every}), rates, found, refusals(every))


def published(path: Path = PUBLISHED) -> tuple[Summary, ...]:
    """The sets of the page; none if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=tuple[Summary, ...]) if path.exists() else ()


def publish(summary: Summary, path: Path = PUBLISHED) -> None:
    """Add a set to the page, in place of an earlier one of its name."""
    kept = [s for s in published(path) if s.name != summary.name]
    with replacing(path) as target:
        target.write_bytes(msgspec.json.format(msgspec.json.encode([*kept, summary]), indent=1) + b"\n")


def section(summaries: Sequence[Summary]) -> str:
    """The sets as Markdown; empty without any."""
    return "\n".join(_of(summary) for summary in summaries)


def _of(summary: Summary) -> str:
    called = "Exporters' idioms" if summary.name == "idioms" else f"Networks drawn at random: {summary.name}"
    header = ["cell", "networks", "compiled there", "comparable", "equal", "table accepted", "groups", "cycles within "
              f"{CYCLES:.0%}", f"bytes within {BYTES:.0%}"]  # fmt: skip
    rows = [header, ["---"] * len(header), *([name, *_row(rate)] for name, rate in summary.rates.items())]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    shown = "\n".join(
        f"* {d.networks} networks, {d.cells} cells: {_plain(d.kind)} ({d.example})" for d in summary.kinds
    )
    refused = "\n".join(f"* {count}: {_plain(why)}" for why, count in summary.refused.items())
    return (
        f"## {called}\n\n{summary.networks} networks. Comparable: the real tool compiles the cell, and its simulator "
        f"agrees with its interpreter. Kinds are named by the first stage that differs.\n\n{table}\n\n{shown}\n\n"
        f"Refused by the real tool:\n\n{refused or '* none'}\n"
    )


def _row(rate: Rate) -> list[str]:
    timed = (_share(n, rate.timed) for n in (rate.cycles_near, rate.bytes_near))
    return [str(rate.cells), str(rate.compiled), str(rate.comparable), _share(rate.equal, rate.comparable),
            _share(rate.table_accepted, rate.compiled), _share(rate.groups_equal, rate.groups), *timed]  # fmt: skip


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.0%})" if whole else "-"


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("*", "\\*").replace("`", "'").replace("<", "&lt;")
