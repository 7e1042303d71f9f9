"""The support table: every op on every chip in every mode, as measured from the op rows of the tests.

`make support` writes `support.json` in this folder; it is never edited by hand, and a test compares it with the code.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from tpusim.errors import ConfigError, meant
from tpusim.fidelity.card import WORST_FIRST, Status
from tpusim.ir.formats import BF16, F16, F32, INT8, INT8_ASYMMETRIC

MODES: tuple[str, ...] = tuple(f.title for f in (INT8, INT8_ASYMMETRIC, F16, BF16, F32))
"""The columns of the table; int8-asym is int8 with zero points."""


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lowered form of an op in some cells ("chip/mode"), with the op rows that show it.

    number: the stored type. decisions, reason: as on the tpu op (`tpusim.fidelity.card`).
    """

    status: Status
    number: str
    rows: tuple[str, ...]
    cells: tuple[str, ...]
    decisions: tuple[str, ...] = ()
    reason: str = ""


class OpSupport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One op of the top dialect: its sections of numerics.md and its outcomes."""

    op: str
    spec: tuple[str, ...]
    outcomes: tuple[Outcome, ...]


class Support(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table.

    refused: cell -> why the chip lacks the mode. oracles, tests: cell -> node id, with {row} in it, of the test that
    compares a row's integers with an independent oracle, or that executes it flat and on the machine; in other cells
    rows are only lowered. rewritten: ops that canonicalization always turns into others. frames: tpu ops that
    `--fuse-preprocess` adds after an input; the rows of their outcomes are node ids of tests.
    """

    chips: tuple[str, ...]
    ops: tuple[OpSupport, ...]
    refused: dict[str, str]
    oracles: dict[str, str]
    tests: dict[str, str]
    rewritten: tuple[str, ...] = ()
    frames: tuple[OpSupport, ...] = ()


class Line(msgspec.Struct, frozen=True):
    """One line of `tpusim support`: an op on a chip in a mode with one outcome."""

    op: str
    chip: str
    mode: str
    status: Status
    number: str
    decisions: tuple[str, ...]
    reason: str
    spec: tuple[str, ...]
    rows: tuple[str, ...]
    test: str
    """The test that proves it: node id of its first row in this cell, or in another cell of the same outcome."""
    executed: bool
    """Whether that test runs on this chip in this mode."""


@cache
def load() -> Support:
    """The table that ships with tpusim."""
    return msgspec.json.decode((files("tpusim.fidelity") / "support.json").read_bytes(), type=Support)


def encoded(support: Support) -> bytes:
    """The content of support.json."""
    return msgspec.json.format(msgspec.json.encode(support), indent=1) + b"\n"


def cell(chip: str, mode: str) -> str:
    """The name of a chip and mode in the table."""
    return f"{chip}/{mode}"


def proof(outcome: Outcome, where: str, support: Support) -> tuple[str, bool]:
    """(node id of a test that executes the outcome, whether in this cell); ("", False) if it is only lowered."""
    for place in (where, *outcome.cells):
        oracle = support.oracles.get(place) if outcome.number == "int8" else None
        found = oracle or support.tests.get(place)
        if found is not None:
            return found.format(row=outcome.rows[0]), place == where
    return "", False


def worst_first(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes in the order refused, float fallbacks, decisions, exact; within a class by falling number of rows."""
    return sorted(outcomes, key=lambda o: (WORST_FIRST.index(o.status), -len(o.rows), o.number, o.rows))


def lines(support: Support, chip: str | None = None, mode: str | None = None, op: str | None = None) -> list[Line]:
    """The table as lines, optionally for one chip, mode or op. Raises ConfigError for an unknown one."""
    entries = (*support.ops, *support.frames)
    names = [s.op for s in entries]
    named = None if op is None else _named(op, names)
    chip, mode = chip and chip.lower(), mode and mode.lower()
    for asked, known, what in ((chip, support.chips, "chip"), (mode, MODES, "mode"), (named, names, "op")):
        if asked is not None and asked not in known:
            raise ConfigError(
                f"support: {what} '{asked}' is not in the table; there are {', '.join(known)}"
                f"{meant(asked, [name.rpartition('.')[2] for name in known])}"
            )
    wanted = [
        (s, c, m)
        for s in entries
        for c in support.chips
        for m in MODES
        if chip in (None, c) and mode in (None, m) and named in (None, s.op)
    ]
    return [row for s, c, m in wanted for row in _lines_of(support, s, c, m)]


def _named(op: str, names: Sequence[str]) -> str:
    """The name in the table, of a top op or of a tpu op of frames."""
    return next((name for one in (op, f"top.{op}", f"tpu.{op}") for name in names if name.lower() == one.lower()), op)


def _lines_of(support: Support, entry: OpSupport, chip: str, mode: str) -> Iterator[Line]:
    where = cell(chip, mode)
    if where in support.refused:
        yield Line(entry.op, chip, mode, "refused", "", (), support.refused[where], entry.spec, (), "", False)
        return
    for o in worst_first(o for o in entry.outcomes if where in o.cells):
        of_frames = entry in support.frames  # their rows are node ids of tests
        test, executed = (o.rows[0], len(o.rows) == 1) if of_frames else proof(o, where, support)
        yield Line(entry.op, chip, mode, o.status, o.number, o.decisions, o.reason, entry.spec, o.rows, test, executed)
