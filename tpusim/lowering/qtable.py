"""Quantisation tables: which op runs in which mode (docs/spec/numerics.md 13).

Text, one `name MODE` per line (F32, F16, BF16, INT8, W4BF16 ...), `#` comments and blank lines ignored; or the same
inline as `name:MODE,name:MODE`. A name may have blanks inside. A mode of weights in groups may have the size of its
groups after it, `name W4BF16 32` or `name:W4BF16:32`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from warnings import warn

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, ModeWarning
from tpusim.host import files
from tpusim.interfaces import rules
from tpusim.ir.formats import NumberFormat, elsewhere, number_format
from tpusim.ops.interfaces import FloatRules
from tpusim.registry import FORMATS


def read_qtable(source: str | Path, also: NumberFormat | None = None) -> dict[str, str]:
    """Op name -> mode as `number_format` takes it. Raises ConfigError that names the line and what is wrong with it.

    also: a format that may be named in addition to those of `tpusim.registry.FORMATS`.
    """
    known = {name.upper(): name for name in (*FORMATS, *(() if also is None else (also.name,)))}
    path = Path(source)
    if path.is_file():
        try:
            lines = files.text(path).split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"quantisation table '{path}' cannot be read as text: {error}") from error
        return dict(_entries(enumerate(lines, 1), str(path), known))
    text = str(source)
    if ":" not in text:
        raise ConfigError(
            f"quantisation table '{text}': a file, or name:MODE,name:MODE is required; the file does not exist"
        )
    lines = ((i, _INLINE.sub(r"\1 \2 \3", part)) for i, part in enumerate(text.split(","), 1))
    return dict(_entries(lines, "inline table", known))


_INLINE = re.compile(r"^(.*?):([^:]*?)(?::(-?\d+))?$", re.DOTALL)
"""An entry of an inline table: name, mode, and perhaps the size of groups. A name may have a : inside."""
_GROUPS = re.compile(r"^(.*\S)\s+(-?\d+)$", re.DOTALL)
"""A line that ends with the size of groups."""
_COMMENT = re.compile(r"(?:^|(?<=\s))#")
"""Where a comment begins: a name may have a # inside."""


def _entries(lines: Iterator[tuple[int, str]], where: str, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for number, line in lines:
        entry = _COMMENT.split(line, maxsplit=1)[0].strip()
        groups = _GROUPS.match(entry)
        words = (groups[1] if groups else entry).rsplit(maxsplit=1)
        if not entry:
            continue
        if len(words) != 2 or words[1].upper() not in known:
            raise ConfigError(
                f"quantisation table {where}, line {number}: 'name MODE' with MODE one of {', '.join(known)} is "
                f"required, got '{line.strip()[:80]}'{elsewhere(words[-1])}"
            )
        mode = known[words[1].upper()]
        yield words[0], _with_groups(mode, groups[2], f"{where}, line {number}") if groups else mode


def _with_groups(mode: str, size: str, where: str) -> str:
    """The mode with the size of its groups. Raises ConfigError for a mode without groups and for a wrong size."""
    if mode not in FORMATS or number_format(mode).family != "weight_only":
        able = ", ".join(name.upper() for name in FORMATS if number_format(name).family == "weight_only")
        raise ConfigError(f"quantisation table {where}: groups of {size} need a mode of {able}, got {mode.upper()}")
    try:
        return f"{mode} {number_format(f'{mode} {size}').group_size}"
    except ConfigError as error:
        raise ConfigError(f"quantisation table {where}: {error}") from error


def table_for_chip(table: Mapping[str, NumberFormat], chip: ChipSpec) -> dict[str, NumberFormat]:
    """The table with float modes the chip does not have replaced by its float type (numerics.md 13).

    With a ModeWarning where that is bf16.
    """
    missing = [name for name, format in table.items() if format.needs not in chip.modes]
    if missing and chip.hardware.bf16_unit:
        shown = ", ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
        warn(ModeWarning(f"quantisation table: {shown}: {chip.name} has bf16 only, which is used"), stacklevel=3)
    fallback = number_format(rules(chip, FloatRules).FALLBACK)
    return {name: fallback if name in missing else format for name, format in table.items()}
