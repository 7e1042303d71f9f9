"""What was measured, on disk."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.groups.measure import Gap, Row
from tpusim.host.files import replacing
from tpusim.studies import explore

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "groups.md"


class Through(msgspec.Struct, frozen=True):
    """One cut on TPU-MLIR's tools, from a row of `tpusim explore`, whose names the fields have."""

    network: str
    chip: str
    strategy: str
    cycles: int | None
    moved_bytes: int | None
    upstream_cycles: int | None
    upstream_bytes: int | None
    upstream_differ: int | None
    compiler_cycles: int | None
    compiler_bytes: int | None
    compiler_differ: int | None
    error: str

    @classmethod
    def of(cls, row: explore.Row) -> Through:
        """The figures of a row; the first error of those that it has."""
        error = row.error or row.upstream_error or row.compiler_error
        figures = {name: getattr(row, name) for name in cls.__struct_fields__ if name not in ("network", "error")}
        return cls(network=Path(row.model).stem, error=error, **figures)


class Results(msgspec.Struct, frozen=True):
    """Rows and gaps, in the order of the page, and cuts on TPU-MLIR's tools."""

    rows: tuple[Row, ...] = ()
    gaps: tuple[Gap, ...] = ()
    through: tuple[Through, ...] = ()


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
