"""Tables for a terminal of any width.

If there is little room, the kind of a column decides what happens: numbers and words stay, prose moves to lines below
the table, names lose their middles. If that is not enough, each row becomes a few lines.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Literal, Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from tpusim.host.labels import distinct, one_line

Kind = Literal["name", "word", "number", "prose"]
GAP = 2
"""Blanks between columns."""
NAME = 16
"""Letters that a name keeps at least."""
PROSE = 36
"""Columns of prose, below which it moves under the table."""
INDENT = 4
"""Of the further lines of a row and of a note."""


@dataclass(frozen=True)
class Column:
    """The head of a column and the kind of its cells."""

    head: str
    kind: Kind


class Table:
    """Rows under heads; `console.print(table)` lays them out for the console's width.

    A console whose attribute `whole` is true gets all names uncut.
    """

    def __init__(self, title: str = "") -> None:
        self.title = one_line(title)
        self._columns: list[Column] = []
        self._rows: list[tuple[Text, ...]] = []

    def names(self, *heads: str) -> Self:
        """Columns of names, which are cut in their middles where there is no room."""
        return self._add("name", heads)

    def words(self, *heads: str) -> Self:
        """Columns of words, which are never cut."""
        return self._add("word", heads)

    def numbers(self, *heads: str) -> Self:
        """Columns of numbers, to the right, never cut."""
        return self._add("number", heads)

    def prose(self, *heads: str) -> Self:
        """Columns of sentences, which wrap, or stand below the table."""
        return self._add("prose", heads)

    def _add(self, kind: Kind, heads: Sequence[str]) -> Self:
        self._columns += [Column(head, kind) for head in heads]
        return self

    def row(self, *cells: str | Text | list[str]) -> None:
        """Append a row: a cell for each column, a list for a cell of several lines. ValueError for another number."""
        if len(cells) != len(self._columns):
            raise ValueError(f"table '{self.title}': {len(self._columns)} cells are required, got {len(cells)}")
        self._rows.append(tuple(map(_cell, cells)))

    def _said(self) -> tuple[list[Column], list[tuple[Text, ...]]]:
        """Columns and rows, without columns of prose that are empty in every row."""
        kept = [i for i, c in enumerate(self._columns) if c.kind != "prose" or any(row[i].plain for row in self._rows)]
        return [self._columns[i] for i in kept], [tuple(row[i] for i in kept) for row in self._rows]

    @property
    def empty(self) -> bool:
        """Whether it has no rows."""
        return not self._rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title, heads, rows, notes."""
        if self.title:
            yield Text(self.title, "italic", overflow="fold")
        (columns, rows), notes = self._said(), list[str]()
        widths = _widths(columns, rows, options.max_width, whole=getattr(console, "whole", False))
        if widths is None and any(column.kind == "prose" for column in columns):
            columns, rows, notes = _noted(columns, rows)
            widths = _widths(columns, rows, options.max_width, whole=getattr(console, "whole", False))
        yield from _stacked(columns, rows, options.max_width) if widths is None else _aligned(columns, rows, widths)
        for number, note in enumerate(notes, 1):
            lead = f"{number:>{len(str(len(notes)))}}  "
            yield from map(Text, _filled(lead, note, options.max_width))


def _cell(given: str | Text | list[str]) -> Text:
    """As a text whose only line breaks are those between the lines of a list."""
    if isinstance(given, Text):
        return given if given.plain.isprintable() else Text(one_line(given.plain), given.style)
    return Text("\n".join(map(one_line, [given] if isinstance(given, str) else given)))


def _filled(lead: str, text: str, width: int) -> list[str]:
    """`lead` and the wrapped text; later lines are indented to its beginning."""
    found = wrap(text, max(width - len(lead), 8), break_on_hyphens=False) or [""]
    return [f"{lead if i == 0 else ' ' * len(lead)}{line}" for i, line in enumerate(found)]


def _longest(text: str) -> int:
    return max((cell_len(line) for line in text.split("\n")), default=0)


def _widths(
    columns: Sequence[Column], rows: Sequence[tuple[Text, ...]], width: int, *, whole: bool
) -> list[int] | None:
    """The widths of all columns within `width`; None: no room, even with names cut, and prose and heads wrapped."""
    cells = [max((_longest(row[i].plain) for row in rows), default=0) for i in range(len(columns))]
    words = [max(map(cell_len, column.head.split()), default=0) for column in columns]
    natural = [max(pair) for pair in zip(cells, words, strict=True)]
    found = [_least(column, size, whole=whole) for column, size in zip(columns, natural, strict=True)]
    room = width - GAP * (len(columns) - 1)
    if sum(found) > room:
        return None
    for kind in ("name", "prose"):  # names first: they say of what the sentences are
        _grow(found, [size if c.kind == kind else 0 for c, size in zip(columns, natural, strict=True)], room)
    _grow(found, [max(cell_len(c.head), size) for c, size in zip(columns, natural, strict=True)], room)
    return found


def _grow(found: list[int], wanted: Sequence[int], room: int) -> None:
    """Widen columns up to what they want, in equal steps, until the room is used up."""
    while (left := room - sum(found)) > 0 and (short := [i for i, size in enumerate(wanted) if found[i] < size]):
        for i in short:
            found[i] += min(wanted[i] - found[i], max(1, left // len(short)), max(0, room - sum(found)))


def _least(column: Column, natural: int, *, whole: bool) -> int:
    if column.kind == "prose":
        return min(natural, PROSE)
    return min(natural, NAME) if column.kind == "name" and not whole else natural


def _noted(
    columns: Sequence[Column], rows: Sequence[tuple[Text, ...]]
) -> tuple[list[Column], list[tuple[Text, ...]], list[str]]:
    """The table without prose: each text becomes a note, and the last column has its number."""
    prose = [i for i, column in enumerate(columns) if column.kind == "prose"]
    other = [i for i in range(len(columns)) if i not in prose]
    notes: dict[str, int] = {}
    found: list[tuple[Text, ...]] = []
    for row in rows:
        said = [(columns[i].head, row[i].plain.replace("\n", "; ")) for i in prose if row[i].plain]
        text = "; ".join(f"{head}: {says}" if len(prose) > 1 and head else says for head, says in said)
        mark = str(notes.setdefault(text, len(notes) + 1)) if text else ""
        found.append((*(row[i] for i in other), Text(mark)))
    head = "note" if len(prose) > 1 else columns[prose[0]].head.split(",")[0]
    return [*(columns[i] for i in other), Column(head, "number")], found, list(notes)


def _aligned(columns: Sequence[Column], rows: Sequence[tuple[Text, ...]], widths: Sequence[int]) -> Iterator[Text]:
    """Heads, and a line for each row, or more where a cell has more."""
    heads = [wrap(column.head, width) or [""] for column, width in zip(columns, widths, strict=True)]
    deep = max(map(len, heads), default=0)
    for i in range(deep):
        cells = [Text(head[i - deep + len(head)] if i >= deep - len(head) else "", "bold") for head in heads]
        yield _line(columns, cells, widths)
    short = [_shortened(column, [row[i] for row in rows], widths[i]) for i, column in enumerate(columns)]
    for row in rows:
        cells = [
            _lines(column, cell, width, names)
            for column, cell, width, names in zip(columns, row, widths, short, strict=True)
        ]
        for i in range(max(map(len, cells))):
            yield _line(columns, [cell[i] if i < len(cell) else Text() for cell in cells], widths)


def _shortened(column: Column, cells: Sequence[Text], width: int) -> dict[str, str]:
    """Names as they are shown; no two of a column look alike."""
    if column.kind != "name":
        return {}
    return distinct((line for cell in cells for line in cell.plain.split("\n")), width)


def _lines(column: Column, cell: Text, width: int, short: dict[str, str]) -> list[Text]:
    lines = cell.plain.split("\n")
    if column.kind == "name":
        lines = [short[line] for line in lines]
    if column.kind == "prose":
        lines = [part for line in lines for part in wrap(line, width, break_on_hyphens=False) or [""]]
    return [Text(line, cell.style) for line in lines]


def _line(columns: Sequence[Column], cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True)
    for i, (column, cell, width) in enumerate(zip(columns, cells, widths, strict=True)):
        blanks = " " * (width - cell_len(cell.plain))
        line.append(" " * GAP if i else "")
        line.append_text(Text.assemble(blanks, cell) if column.kind == "number" else Text.assemble(cell, blanks))
    line.rstrip()
    return line


def _stacked(columns: Sequence[Column], rows: Sequence[tuple[Text, ...]], width: int) -> Iterator[Text]:
    """Each row as several lines: its name, after its number or mark, then every other cell after its head."""
    first = _leading(columns, rows)
    for row in rows:
        for line in " ".join(part for cell in row[: first + 1] if (part := cell.plain)).split("\n"):
            yield Text(line, "bold", overflow="fold")
        said = [
            f"{column.head} {cell.plain}".strip().replace("\n", " ").replace(" ", "\xa0")
            for column, cell in list(zip(columns, row, strict=True))[first + 1 :]
            if cell.plain
        ]
        for line in wrap(", ".join(said), max(width - INDENT, 8), break_on_hyphens=False):
            yield Text(" " * INDENT + line.replace("\xa0", " "))


def _leading(columns: Sequence[Column], rows: Sequence[tuple[Text, ...]]) -> int:
    """The last of the columns that name a row: the first of names or words with a head that is empty in no row, or the
    name that follows such words.
    """
    called = [
        i
        for i, column in enumerate(columns)
        if column.kind in ("name", "word") and column.head and all(row[i].plain for row in rows)
    ]
    first = called[0] if called else 0
    after = next((i for i in range(first, len(columns)) if columns[i].kind != "word"), first)
    return after if columns[after].kind == "name" else first
