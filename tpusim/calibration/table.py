"""The calibration table, byte-compatible with TPU-MLIR's text format (U-66).

Source: numerics.md 3.1 (reading, `ImportCalibration.cpp`) and 15.1 (writing, `kld_calibrator.py`).

    # genetated time: 2026-01-31 12:00:00.000000        header, comments all
    # op_name    threshold    min    max
    conv1 2.5000000 -2.5000000 1.9000000                one tensor: threshold, least and largest value
    #int4_th                                            a marker begins another block; INT8 entries cannot follow it

A name may contain blanks (TPU-MLIR writes such names but cannot read them), so the numbers are counted from the end.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TypeVar

import numpy as np

from tpusim.errors import CalibrationError, ConfigError
from tpusim.host.files import content, replacing
from tpusim.ir.imported_scales import ImportedRange
from tpusim.version import __version__

INFINITY_STAND_IN = 6.5e4
"""The meaning of `inf` in a table: about the largest f16."""
DECIMALS = 7
"""Digits after the point in the lines of a table."""

T = TypeVar("T")

_NUMBER = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|inf)")
_BLANK = re.compile(r"[ \t\r\f\v]+")
_WORD = r"[ \t\r\f\v]+([^ \t\r\f\v]+)"
_COUNT = re.compile(r"[ \t\r\f\v]+([0-9]{1,9})(?![^ \t\r\f\v])")
_ENTRY = re.compile(rf"(.+?){_WORD}{_WORD}{_WORD}")


@dataclass(frozen=True)
class Entry:
    """The range of one tensor: the threshold for symmetric, minimum and maximum for asymmetric quantisation."""

    threshold: float
    minimum: float
    maximum: float


@dataclass(frozen=True)
class CalibrationTable:
    """All blocks of a table.

    `weight_scales` maps `<opname>_weight` to scales per channel (in `weight_scales_fp8` they are thresholds);
    `asym_ops` and `int4_ops` name ops; `header` has the comment lines before the first entry, `notes` the reader's
    replacements and warnings about the samples. `imported` are the ranges of a quantised network, which become types
    exactly; a file cannot express them.
    """

    entries: Mapping[str, Entry]
    int4: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    fp8: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    weight_scales: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    weight_scales_fp8: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    asym_ops: tuple[str, ...] = ()
    int4_ops: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    imported: Mapping[str, ImportedRange] = field(default_factory=dict[str, ImportedRange])

    def __repr__(self) -> str:
        """Show how many entries each block of the table has."""
        filled = (f"{len(block)} {f.name}" for f in fields(self) if (block := getattr(self, f.name)))
        return f"<CalibrationTable: {', '.join(filled) or 'empty'}>"


class _Block(Enum):
    INT8 = ""
    WEIGHT_SCALE_FP8 = "#weight_scale_fp8"
    WEIGHT_SCALE = "#weight_scale"
    INT4_TH = "#int4_th"
    FP8 = "#tpu-mlir-fp8"
    FP8_MQBENCH = "mqbench-fp8"
    ASYM_OP = "asym_op"
    INT4_OP = "int4_op"


_NOTE = "# warning: "
"""The prefix of a note's line; a note that a reader could mistake for a block's marker is not written."""


def _marker(line: str) -> _Block | None:
    """The block whose marker a comment has."""
    return next((block for block in _Block if block.value and block.value in line), None)


def read_table(path: str | Path) -> CalibrationTable:
    """Read a table; a line that fits no rule of its block is a `ConfigError` that names it."""
    try:
        text = content(path).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"calibration table {path}: cannot be read, {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"calibration table {path}: UTF-8 text is required, byte {error.start} is not") from error
    return parse_table(text, str(path))


def parse_table(text: str, source: str = "table") -> CalibrationTable:
    """Read the text of a table; `source` is the name errors give it."""
    reader = _Reader(source)
    for number, line in enumerate(text.split("\n"), start=1):
        reader.read_line(number, line.strip(" \t\r\f\v"))
    return reader.table()


def write_table(
    path: str | Path,
    table: CalibrationTable,
    *,
    method: str,
    samples: int,
    bins: int,
    tune: int,
    module: str = "",
    time: datetime | None = None,
) -> None:
    """Write a table as U-66 says: header, 7 decimals, other blocks after the INT8 block; the file appears whole.

    module: the file that was measured, named in the header. time: for reproducible files, by default now. A fused name
    (`fused["a", ...]`) is written as its first member.
    """
    path = Path(path)
    stamp = time if time is not None else datetime.now()
    made_by = [f"# mlir version: tpusim {__version__} cali version 1.0", f"# mlir: {module}"] if module else []
    header = [
        *made_by,
        f"# genetated time: {stamp}",  # U-66: its spelling
        f"# quantization threshold calculation method: {method}",
        f"# histogram number: {bins}",
        f"# sample number: {samples}",
        "###",
        f"# tune number: {tune}",
        *(f"{_NOTE}{note}" for note in table.notes if _marker(note) is None and note.isprintable()),
        "###",
        "# op_name    threshold    min    max",
    ]
    lines = [*header, *_body(table, str(path))]
    with replacing(path) as temporary:
        temporary.write_bytes(("\n".join(lines) + "\n").encode())


def as_printed(entry: Entry) -> Entry:
    """The entry as it is read back from its line: constants are compiled from the table, not from the statistics."""
    return Entry(*(float(f"{value:.{DECIMALS}f}") for value in (entry.threshold, entry.minimum, entry.maximum)))


def table_name(tensor: str) -> str:
    """The name of a tensor in a table: for a fused name the first member."""
    match = re.match(r'fused\["([^"]+)"', tensor)
    return match[1] if match else tensor


class _Reader:
    """The blocks read so far and the block the next line belongs to."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._block = _Block.INT8
        self._entries: dict[_Block, dict[str, Entry]] = {_Block.INT8: {}, _Block.INT4_TH: {}, _Block.FP8: {}}
        self._scales: dict[_Block, dict[str, tuple[float, ...]]] = {
            _Block.WEIGHT_SCALE: {},
            _Block.WEIGHT_SCALE_FP8: {},
        }
        self._names: dict[_Block, list[str]] = {_Block.ASYM_OP: [], _Block.INT4_OP: []}
        self._header: list[str] = []
        self._notes: list[str] = []

    def read_line(self, number: int, line: str) -> None:
        """Read one line, without its surrounding blanks."""
        if not line:
            return
        if line.startswith("#"):
            self._read_comment(line)
            return
        place = f"{self._source}:{number}"
        if self._block in self._entries:
            self._read_entry(place, line)
        elif self._block in self._scales:
            self._read_scales(place, line)
        else:
            self._names[self._block].append(line)

    def table(self) -> CalibrationTable:
        """The calibration table that was read."""
        return CalibrationTable(
            entries=self._entries[_Block.INT8],
            int4=self._entries[_Block.INT4_TH],
            fp8=self._entries[_Block.FP8],
            weight_scales=self._scales[_Block.WEIGHT_SCALE],
            weight_scales_fp8=self._scales[_Block.WEIGHT_SCALE_FP8],
            asym_ops=tuple(self._names[_Block.ASYM_OP]),
            int4_ops=tuple(self._names[_Block.INT4_OP]),
            header=tuple(self._header),
            notes=tuple(self._notes),
        )

    def _read_comment(self, line: str) -> None:
        marked = _marker(line)
        if marked is not None:
            self._block = _Block.FP8 if marked is _Block.FP8_MQBENCH else marked
        elif self._block is _Block.INT8 and not self._entries[_Block.INT8]:
            self._header.append(line)
            if line.startswith(_NOTE):
                self._notes.append(line.removeprefix(_NOTE))

    def _read_entry(self, place: str, line: str) -> None:
        found = _ENTRY.fullmatch(line)
        if found is None:
            fields = _BLANK.split(line)
            raise ConfigError(
                f"{place}: a line must be 'name threshold min max', got {len(fields)} fields: {_quote(line)}"
            )
        name, *numbers = found.groups()
        threshold, minimum, maximum = (self._number(place, name, line, value) for value in numbers)
        if threshold < 0 or minimum > maximum:
            raise ConfigError(f"{place}: threshold >= 0 and min <= max are required, got {_quote(line)}")
        self._entries[self._block][name] = Entry(threshold, minimum, maximum)

    def _read_scales(self, place: str, line: str) -> None:
        """`name N s0 .. s(N-1)`; zero points after the scales, which some writers add, are ignored (U-66)."""
        found = _scale_line(line)
        if found is None:
            raise ConfigError(f"{place}: a weight scale line must be 'name N' and N numbers, got {_quote(line)}")
        name, numbers = found
        self._scales[self._block][name] = tuple(self._number(place, name, line, value) for value in numbers)

    def _number(self, place: str, name: str, line: str, text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ConfigError(f"{place}: a decimal number is required, got '{text[:40]}' in {_quote(line)}")
        value = float(text)
        if math.isinf(value):
            self._notes.append(f"{place}: '{name}' has {text[:40]}, taken as {INFINITY_STAND_IN:g}")
            value = math.copysign(INFINITY_STAND_IN, value)
        return value


def _body(table: CalibrationTable, source: str) -> Iterator[str]:
    def entry_line(name: str, entry: Entry) -> str:
        text = _decimal if name in table.imported else _rounded
        return " ".join([name, *(text(v) for v in (entry.threshold, entry.minimum, entry.maximum))])

    def scale_line(name: str, scales: tuple[float, ...]) -> str:
        return " ".join([name, str(len(scales)), *map(repr, scales)])

    yield from _block_lines(table.entries, entry_line, source)
    for marker, entries in (("#int4_th", table.int4), ("#tpu-mlir-fp8 caliration table", table.fp8)):
        yield from _marked(marker, _block_lines(entries, entry_line, source))
    for marker, scales in (("#weight_scale", table.weight_scales), ("#weight_scale_fp8", table.weight_scales_fp8)):
        yield from _marked(marker, _block_lines(scales, scale_line, source))
    for marker, names in (("#asym_op", table.asym_ops), ("#int4_op", table.int4_ops)):
        yield from _marked(marker, (_writable(name, source) for name in names))


def _rounded(value: float) -> str:
    return f"{value:.{DECIMALS}f}"


def _decimal(value: float) -> str:
    """A number with at least 7 decimals, exactly: the steps of a quantised network must not change."""
    text = _rounded(value)
    return text if float(text) == value else np.format_float_positional(value, trim="-")


def _block_lines(values: Mapping[str, T], line: Callable[[str, T], str], source: str) -> Iterator[str]:
    for tensor, value in values.items():
        yield line(_writable(table_name(tensor), source), value)


def _marked(marker: str, lines: Iterator[str]) -> Iterator[str]:
    first = next(lines, None)
    if first is not None:
        yield from ("", marker, first)
        yield from lines


def _scale_line(line: str) -> tuple[str, list[str]] | None:
    """(name, N scales) of `name N s0 .. s(N-1)`, perhaps followed by `N` and N zero points; None for no such line.

    In a name with blanks the first number that the rest of the line fits is N, else the first one.
    """
    loose = list[tuple[str, list[str]]]()
    for match in _COUNT.finditer(line):
        count, rest = int(match[1]), line[match.end() :].split()
        found = line[: match.start()], rest[:count]
        if len(rest) == count or (len(rest) == 2 * count + 1 and rest[count] == match[1]):
            return found
        if len(rest) > count:
            loose.append(found)
    return loose[0] if loose else None


def require_writable(names: Iterable[str], source: str = "") -> None:
    """Raise ConfigError for a tensor name that cannot start a line of a table."""
    for name in names:
        if not name or name.startswith("#") or name.strip(" \t\r\f\v") != name or "\n" in name:
            raise ConfigError(
                f"calibration table{source and ' '}{source}: a tensor name must not begin with '#', begin or end with "
                f"a blank or have a line break, got {name!r}; rename the tensor in the model"
            )


def _writable(name: str, source: str) -> str:
    require_writable([name], source)
    return name


def _quote(text: str) -> str:
    text = " ".join(_BLANK.split(text))
    return f"'{text[:77]}...'" if len(text) > 80 else f"'{text}'"


def _with_threshold(entry: Entry, new: float) -> Entry:
    """The range with another threshold; minimum and maximum reach at least as far."""
    return Entry(new, min(entry.minimum, -new) if entry.minimum < 0 else entry.minimum, max(entry.maximum, new))


def with_thresholds(table: CalibrationTable, thresholds: Mapping[str, float]) -> CalibrationTable:
    """The same table with other thresholds of some tensors, as `rewrite_thresholds` writes them."""
    changed = {name: _with_threshold(table.entries[name], new) for name, new in thresholds.items()}
    return replace(table, entries={**table.entries, **changed})


def rewrite_thresholds(source: Path, target: Path, thresholds: Mapping[str, float]) -> None:
    """Write a table again with other thresholds of some tensors; every other line stays as it is.

    Minimum and maximum reach at least as far. Raises CalibrationError for a table that cannot be read, or without the
    line of a tensor.
    """
    known = read_table(source).entries
    if missing := sorted(thresholds.keys() - known.keys()):
        raise CalibrationError(f"calibration table '{source}': lines of {', '.join(missing)} are required, got none")
    lines = [f"{line}\n" for line in content(source).decode("utf-8").removesuffix("\n").split("\n")]
    done = set[str]()
    for number, line in enumerate(lines):
        found = _ENTRY.fullmatch(line.strip(" \t\r\f\v\n"))
        name = found[1] if found is not None else ""
        if name in thresholds and name not in done:
            done.add(name)
            entry = _with_threshold(known[name], thresholds[name])
            lines[number] = f"{name} {entry.threshold:.7f} {entry.minimum:.7f} {entry.maximum:.7f}\n"
    with replacing(target) as file:
        file.write_text("".join(lines), encoding="utf-8")
