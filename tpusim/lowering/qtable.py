"""Quantisation tables: which op runs in which mode (spec/numerics.md 13).

Text, one `name MODE` per line (F32, F16, BF16, INT8), `#` comments and blank lines ignored; or the same inline as
`name:MODE,name:MODE`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from warnings import warn

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, ModeWarning
from tpusim.ops.base import NumberMode

MODES: dict[str, NumberMode] = {"F32": "f32", "F16": "f16", "BF16": "bf16", "INT8": "int8"}


def read_qtable(source: str | Path) -> dict[str, NumberMode]:
    """Op name -> mode. Raises ConfigError that names the line and what is wrong with it."""
    path = Path(source)
    if path.is_file():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"quantisation table '{path}' cannot be read as text: {error}") from error
        return dict(_entries(enumerate(lines, 1), str(path)))
    text = str(source)
    if ":" not in text:
        raise ConfigError(
            f"quantisation table '{text}': a file, or name:MODE,name:MODE is required; there is no such file"
        )
    pairs = (part.rpartition(":") for part in text.split(","))
    return dict(_entries(((i, f"{name} {mode}") for i, (name, _, mode) in enumerate(pairs, 1)), "inline table"))


def _entries(lines: Iterator[tuple[int, str]], where: str) -> Iterator[tuple[str, NumberMode]]:
    for number, line in lines:
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(words) != 2 or words[1].upper() not in MODES:
            raise ConfigError(
                f"quantisation table {where}, line {number}: 'name MODE' with MODE one of {', '.join(MODES)} is "
                f"required, got '{line.strip()[:80]}'"
            )
        yield words[0], MODES[words[1].upper()]


def table_for_chip(table: Mapping[str, NumberMode], chip: ChipSpec) -> dict[str, NumberMode]:
    """The table with float modes the chip does not have replaced by its float type (numerics.md 13).

    BM1684: f32. CV18xx: bf16, with a ModeWarning.
    """
    missing = [name for name, mode in table.items() if mode not in chip.modes]
    if missing and chip.bf16_unit:
        shown = ", ".join(missing[:8]) + (" ..." if len(missing) > 8 else "")
        warn(ModeWarning(f"quantisation table: {shown}: {chip.name} has bf16 only, which is used"), stacklevel=3)
    return {name: mode if mode in chip.modes else chip.float_fallback for name, mode in table.items()}
