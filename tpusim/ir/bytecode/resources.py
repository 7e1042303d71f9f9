"""Resources: named blobs, booleans and texts after the module, which are mapped and not copied.

A group belongs to a tool ("external") or to a dialect; those of dialects are what `dense_resource` handles refer to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tpusim.ir.bytecode.cursor import PADDING, Cursor
from tpusim.ir.bytecode.names import Names
from tpusim.ir.bytecode.strings import Strings, StringTable
from tpusim.ir.bytecode.varints import varint

BLOB, BOOL, TEXT = range(3)


@dataclass(frozen=True, eq=False)
class Blob:
    """Bytes, read as a view of the file. alignment: their place in a file is a multiple of it (0: any place)."""

    data: memoryview | np.ndarray | bytes
    alignment: int = 0

    @property
    def raw(self) -> memoryview:
        """The bytes, not copied unless an array is not contiguous."""
        data = self.data
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        return memoryview(data).cast("B")


Resource = Blob | bool | str
"""A blob, a boolean or a text."""
Groups = Mapping[str, Mapping[str, Resource | None]]
"""Owner -> key -> resource; None for a key that is declared without contents."""
ALIGNMENT, MAPPED_ALIGNMENT, MAPPED_BYTES = 16, 64, 1 << 16
"""Blobs of files that LLVM reads into memory are aligned to 16 bytes, those of larger files, which it maps, to 64."""


@dataclass(frozen=True)
class Resources:
    """external, of_dialects: groups by owner. handles: (dialect, key) by the number a handle has in the file."""

    external: dict[str, dict[str, Resource | None]] = field(default_factory=dict[str, dict[str, "Resource | None"]])
    of_dialects: dict[str, dict[str, Resource | None]] = field(default_factory=dict[str, dict[str, "Resource | None"]])
    handles: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def read_resources(offsets: Cursor, data: Cursor, strings: Strings, names: Names) -> Resources:
    """All groups of sections RESOURCE_OFFSET and RESOURCE; blobs stay in the file."""
    found = Resources()
    for _ in range(offsets.count("groups of resources")):
        owner = strings.read(offsets)
        found.external.setdefault(owner, {}).update(_read_group(offsets, data, strings))
    while not offsets.at_end():
        owner = names.dialect(offsets)
        group = _read_group(offsets, data, strings)
        found.of_dialects.setdefault(owner, {}).update(group)
        found.handles.extend((owner, key) for key in group)
    data.require_end("the resources")
    return found


def _read_group(offsets: Cursor, data: Cursor, strings: Strings) -> dict[str, Resource | None]:
    group: dict[str, Resource | None] = {}
    for _ in range(offsets.count("resources", 3)):
        key, size, kind = strings.read(offsets), offsets.varint(), offsets.byte()
        if kind > TEXT:
            offsets.fail(f"a resource of kind 0, 1 or 2 is required, '{key}' has {kind}")
        if key in group:
            offsets.fail(f"two resources of a group are called '{key}'")
        group[key] = _read_entry(data.within(size, data.section), kind, strings) if size else None
    return group


def _read_entry(entry: Cursor, kind: int, strings: Strings) -> Resource:
    value: Resource
    if kind == BLOB:
        alignment, size = entry.varint(), entry.varint()
        entry.align(alignment)
        value = Blob(memoryview(entry.take(size)), alignment)
    else:
        value = entry.boolean() if kind == BOOL else strings.read(entry)
    entry.require_end("a resource")
    return value


@dataclass(frozen=True)
class EncodedResources:
    """The two sections and the alignment that the second requires in the file."""

    offsets: bytes
    data: list[bytes | memoryview]
    alignment: int

    @property
    def size(self) -> int:
        """Bytes of section RESOURCE."""
        return sum(len(part) for part in self.data)


def encode_resources(external: Groups, of_dialects: Mapping[int, Mapping[str, Resource | None]],
                     strings: StringTable) -> EncodedResources:  # fmt: skip
    """The resources of a file; of_dialects by the dialect's id."""
    values = [value for group in (*external.values(), *of_dialects.values()) for value in group.values()]
    blobs = [value for value in values if isinstance(value, Blob)]
    alignment = MAPPED_ALIGNMENT if sum(len(blob.raw) for blob in blobs) >= MAPPED_BYTES else ALIGNMENT
    writer = _ResourceWriter(strings, alignment)
    offsets = varint(len(external))
    offsets += b"".join(strings.reference(owner) + writer.group(group) for owner, group in external.items())
    offsets += b"".join(varint(dialect) + writer.group(group) for dialect, group in of_dialects.items())
    return EncodedResources(offsets, writer.data, max((blob.alignment or alignment for blob in blobs), default=1))


class _ResourceWriter:
    """Appends entries to section RESOURCE, whose contents begin at a multiple of the alignment."""

    def __init__(self, strings: StringTable, alignment: int) -> None:
        self.strings, self.alignment = strings, alignment
        self.data: list[bytes | memoryview] = []
        self._size = 0

    def group(self, group: Mapping[str, Resource | None]) -> bytes:
        """What section RESOURCE_OFFSET says of a group."""
        written = [varint(len(group))]
        for key, value in group.items():
            before = self._size
            kind = self._entry(value)
            written += [self.strings.reference(key), varint(self._size - before), bytes((kind,))]
        return b"".join(written)

    def _append(self, part: bytes | memoryview) -> None:
        self.data.append(part)
        self._size += len(part)

    def _entry(self, value: Resource | None) -> int:
        if value is None:
            return BLOB
        if isinstance(value, bool):
            self._append(bytes((value,)))
            return BOOL
        if isinstance(value, str):
            self._append(self.strings.reference(value))
            return TEXT
        blob, alignment = value.raw, value.alignment or self.alignment
        self._append(varint(alignment) + varint(len(blob)))
        self._append(bytes((PADDING,)) * (-self._size % alignment))
        self._append(blob)
        return BLOB
