"""The sections of a file: their ids, how a file is split into them, and how it is put together."""

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from tpusim.host.files import opened
from tpusim.ir.bytecode.cursor import PADDING, Cursor
from tpusim.ir.bytecode.varints import varint

MAGIC = b"ML\xefR"
VERSIONS = range(7)
"""Versions of the format. 1: versions of dialects; 2: sections around isolated regions; 3: use-list orders; 4: number
of op names, no unknown locations of arguments; 5: properties; 6: segment sizes as sparse arrays."""
ALIGNED = 0x80


def is_bytecode(path: Path) -> bool:
    """Whether a file begins like MLIR bytecode."""
    try:
        with opened(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class Section(IntEnum):
    """The sections by id."""

    STRING = 0
    DIALECT = 1
    ATTR_TYPE = 2
    ATTR_TYPE_OFFSET = 3
    IR = 4
    RESOURCE = 5
    RESOURCE_OFFSET = 6
    DIALECT_VERSIONS = 7
    PROPERTIES = 8


TOP_LEVEL = frozenset(Section) - {Section.DIALECT_VERSIONS}
REQUIRED = (Section.STRING, Section.DIALECT, Section.ATTR_TYPE, Section.ATTR_TYPE_OFFSET, Section.IR)


def read_section(cursor: Cursor, expected: Section | None = None) -> tuple[Section, Cursor]:
    """One section's id and contents. Refuses an id that is unknown, or not the expected one."""
    start = cursor.position
    head, size = cursor.byte(), cursor.varint()
    code = head & ~ALIGNED
    if code > max(Section) or expected not in (None, code):
        cursor.position = start
        cursor.fail(
            f"a section {expected.name if expected is not None else 'id from 0 to 8'} is required, got id {code}"
        )
    if head & ALIGNED:
        cursor.align(cursor.varint())
    found = Section(code)
    return found, cursor.within(size, found.name)


def read_sections(cursor: Cursor, version: int) -> dict[Section, Cursor]:
    """The sections at the top of a file. Refuses duplicates and a missing one."""
    found: dict[Section, Cursor] = {}
    while not cursor.at_end():
        start = cursor.position
        section, body = read_section(cursor)
        if section in found or section not in TOP_LEVEL:
            cursor.position = start
            cursor.fail(
                f"a second section {section.name}" if section in found else f"{section.name} at the top of a file"
            )
        found[section] = body if section is Section.RESOURCE else body.copied()
    required = {*REQUIRED, *([Section.PROPERTIES] if version >= 5 else [])}
    if Section.RESOURCE in found or Section.RESOURCE_OFFSET in found:
        required |= {Section.RESOURCE, Section.RESOURCE_OFFSET}
    missing = sorted(required - found.keys())
    if missing:
        cursor.fail(f"a file of version {version} requires section {', '.join(s.name for s in missing)}")
    return found


def section_bytes(section: Section, body: bytes) -> bytes:
    """A section without alignment."""
    return bytes((section,)) + varint(len(body)) + body


def aligned_section(section: Section, body: bytes, at: int, alignment: int) -> bytes:
    """A section whose contents begin at a multiple of `alignment`, if it is written at byte `at` of the file."""
    head = bytes((section | ALIGNED,)) + varint(len(body)) + varint(alignment)
    return head + bytes((PADDING,)) * (-(at + len(head)) % alignment) + body


def sizes(sections: Mapping[Section, Cursor]) -> dict[str, int]:
    """Bytes of each section by name, in the order of the file."""
    order = sorted(sections.items(), key=lambda item: item[1].base + item[1].position)
    return {section.name: body.end - body.position for section, body in order}
