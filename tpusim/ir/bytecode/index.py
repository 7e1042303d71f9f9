"""The ops directly in a module and where they begin, read without making any op."""

from collections import Counter
from dataclasses import dataclass

from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.headers import Header, read_block_header, read_header
from tpusim.ir.bytecode.names import Names
from tpusim.ir.bytecode.sections import Section, read_section
from tpusim.ir.nesting import DEEPEST


@dataclass(frozen=True)
class Located:
    """An op directly in the module. position: where it begins in section `body`; values: numbers reserved around it."""

    header: Header
    body: Cursor
    position: int
    values: int


def again(cursor: Cursor) -> Cursor:
    """A second cursor at the same place."""
    return Cursor(cursor.data, cursor.base, cursor.position, cursor.end, cursor.section, cursor.file)


class Index:
    """Walks section IR by its numbers alone."""

    def __init__(self, cursor: Cursor, version: int, names: Names) -> None:
        self._cursor, self._version, self._names = cursor, version, names

    def top(self) -> list[Located]:
        """The ops directly in the module's first region."""
        cursor = again(self._cursor)
        header = read_header(cursor)
        found: list[Located] = []
        if not header.regions:
            return found
        body = self._body(cursor, header)
        blocks = body.count("blocks")
        values = body.count("values") if blocks else 0
        for _ in range(blocks):
            for _ in range(read_block_header(body, self._version).ops):
                start = body.position
                inner = read_header(body)
                found.append(Located(inner, body, start, values))
                self._pass_regions(body, inner, 1, None)
        return found

    def counts(self) -> Counter[str]:
        """How many ops of each name the file has."""
        counts: Counter[int] = Counter()
        self._op(again(self._cursor), 0, counts)
        known = self._names.ops
        wrong = [number for number in counts if number >= len(known)]
        if wrong:
            self._cursor.fail(f"op name {wrong[0]:,} of {len(known):,} does not exist")
        named: Counter[str] = Counter()
        for number, count in counts.items():
            named[known[number]] += count
        return named

    def _body(self, cursor: Cursor, header: Header) -> Cursor:
        """Where an op's regions lie: in a section, or right here."""
        sectioned = header.isolated and self._version >= 2
        return read_section(cursor, Section.IR)[1] if sectioned else cursor

    def _op(self, cursor: Cursor, depth: int, counts: Counter[int] | None) -> None:
        header = read_header(cursor)
        if counts is not None:
            counts[header.name] += 1
        self._pass_regions(cursor, header, depth, counts)

    def _pass_regions(self, cursor: Cursor, header: Header, depth: int, counts: Counter[int] | None) -> None:
        """Skip an op's regions; a section is not entered unless ops are counted."""
        if not header.regions:
            return
        if depth > DEEPEST:
            cursor.fail(f"regions in regions of at most {DEEPEST} levels are required")
        body = self._body(cursor, header)
        if body is not cursor and counts is None:
            return
        for _ in range(header.regions):
            blocks = body.count("blocks")
            if blocks:
                body.varint()
            for _ in range(blocks):
                for _ in range(read_block_header(body, self._version).ops):
                    self._op(body, depth + 1, counts)
