"""Rows as files: csv and json always, parquet where pyarrow is installed. Equal rows give equal files."""

import csv
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from tpusim.errors import ConfigError
from tpusim.host.documents import decode
from tpusim.host.files import content, replacing
from tpusim.studies.explore.row import Row

CSV, JSON, PARQUET = FILES = ("results.csv", "results.json", "results.parquet")
NO_PARQUET = "no results.parquet: it needs pyarrow, extra 'parquet': pip install 'tpusim[parquet]'"
KINDS = {str: "string", bool: "bool_", int: "int64", float: "float64"}


def write_results(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write all rows and return the files. Without pyarrow, an old parquet file is removed."""
    with replacing(folder / JSON) as temporary:
        lines = ",\n".join(msgspec.json.encode(row).decode() for row in rows)
        temporary.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    with replacing(folder / CSV) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, Row.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(msgspec.structs.asdict(row) for row in rows)
    if has_parquet():
        _write_parquet(rows, folder / PARQUET)
        return [folder / name for name in FILES]
    (folder / PARQUET).unlink(missing_ok=True)
    return [folder / CSV, folder / JSON]


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a results.json. Raises ConfigError for another file."""
    try:
        return decode(content(path), list[Row])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: a results.json of `tpusim explore` is required, {error}") from error


def has_parquet() -> bool:
    """Whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def _write_parquet(rows: Sequence[Row], path: Path) -> None:
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    fields = [(field.name, getattr(arrow, _kind(field.type))()) for field in msgspec.structs.fields(Row)]
    table = arrow.Table.from_pylist([msgspec.structs.asdict(row) for row in rows], schema=arrow.schema(fields))
    with replacing(path) as temporary:
        parquet.write_table(table, temporary)


def _kind(type_: Any) -> str:
    """Arrow's name of a field's type, `T` or `T | None`."""
    return KINDS[next(kind for kind in KINDS if type_ in (kind, kind | None))]
