"""The dialects of a file with their version bytes, and the names of its ops by id."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.sections import Section, read_section, section_bytes
from tpusim.ir.bytecode.strings import Strings, StringTable
from tpusim.ir.bytecode.varints import flagged, varint


@dataclass(frozen=True)
class Names:
    """dialects: by id. versions: version bytes by dialect. ops: full names by id. registered: whether the writer knew
    the op, by id (true for all before version 5, which does not say).
    """

    dialects: list[str] = field(default_factory=list[str])
    versions: dict[str, bytes] = field(default_factory=dict[str, bytes])
    ops: list[str] = field(default_factory=list[str])
    registered: list[bool] = field(default_factory=list[bool])

    def dialect(self, cursor: Cursor) -> str:
        """The dialect whose id comes next."""
        index = cursor.varint()
        if index >= len(self.dialects):
            cursor.fail(f"dialect {index:,} of {len(self.dialects):,} does not exist")
        return self.dialects[index]


def read_names(cursor: Cursor, strings: Strings, version: int) -> Names:
    """The tables of section DIALECT."""
    names = Names()
    for _ in range(cursor.count("dialects")):
        _read_dialect(cursor, strings, version, names)
    total = cursor.varint() if version >= 4 else None
    while not cursor.at_end():
        _read_ops(cursor, strings, version, names)
    if total not in (None, len(names.ops)):
        cursor.fail(f"{total:,} names of ops are announced, there are {len(names.ops):,}")
    return names


def _read_dialect(cursor: Cursor, strings: Strings, version: int, names: Names) -> None:
    index, versioned = (cursor.varint(), False) if version < 1 else cursor.flagged()
    name = strings.at(index, cursor)
    names.dialects.append(name)
    if versioned:
        _, body = read_section(cursor, Section.DIALECT_VERSIONS)
        names.versions[name] = bytes(body.take(body.end - body.position))


def _read_ops(cursor: Cursor, strings: Strings, version: int, names: Names) -> None:
    dialect = names.dialect(cursor)
    for _ in range(cursor.count("names of ops")):
        index, registered = (cursor.varint(), True) if version < 5 else cursor.flagged()
        text = strings.at(index, cursor)
        names.ops.append(f"{dialect}.{text}" if text else dialect)
        names.registered.append(registered)


def encode_names(
    dialects: Sequence[str], versions: dict[str, bytes], ops: Sequence[tuple[str, Sequence[tuple[str, bool]]]],
    strings: StringTable, version: int,
) -> bytes:  # fmt: skip
    """Section DIALECT. ops: groups of (dialect, (name without the dialect, whether it is known))."""
    written = [varint(len(dialects))]
    for name in dialects:
        index, own = strings.index(name), versions.get(name)
        written.append(varint(index) if version < 1 else flagged(index, own is not None))
        if own is not None and version >= 1:
            written.append(section_bytes(Section.DIALECT_VERSIONS, own))
    if version >= 4:
        written.append(varint(sum(len(group) for _, group in ops)))
    for dialect, group in ops:
        written += [varint(dialects.index(dialect)), varint(len(group))]
        for name, known in group:
            index = strings.index(name)
            written.append(varint(index) if version < 5 else flagged(index, known))
    return b"".join(written)
