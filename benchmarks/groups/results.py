"""What was measured, on disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.groups.measure import Gap, Row
from tpusim.host.files import replacing
from tpusim.studies import explore

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "groups.md"


class Results(msgspec.Struct, frozen=True):
    """Rows and gaps, in the order of the page, and rows of `tpusim explore --through-upstream`."""

    rows: tuple[Row, ...] = ()
    gaps: tuple[Gap, ...] = ()
    through: tuple[explore.Row, ...] = ()


def read(path: Path = RESULTS) -> Results:
    """The results; none if there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Results) if path.exists() else Results()


def write(results: Results, path: Path = RESULTS) -> None:
    """One line per row."""
    parts = {
        name: ",\n".join(msgspec.json.encode(item).decode() for item in getattr(results, name))
        for name in ("rows", "gaps", "through")
    }
    with replacing(path) as target:
        target.write_text(
            "{" + ",\n".join(f'"{name}": [\n{lines}\n]' for name, lines in parts.items()) + "}\n", encoding="utf-8"
        )
