"""How the codes of a dialect are described: each form is a code, the class it stands for and its fields in order.

One table serves reading and writing. `Tables` is what a form needs of the file that is read, `Output` of the file that
is written; `DialectCodes` is everything that a dialect, also one of a plug-in, says about its bytecode.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.varints import WORD, signed, varint

Classes = type | tuple[type, ...]


class Tables(Protocol):
    """The tables of a file that is read."""

    def attribute(self, cursor: Cursor, wanted: Classes = Attribute) -> Attribute:
        """The attribute whose id comes next, of one of the wanted classes."""
        ...

    def type(self, cursor: Cursor) -> Attribute:
        """The type whose id comes next."""
        ...

    def attributes(self, cursor: Cursor, count: int) -> list[Attribute]:
        """The attributes whose ids come next."""
        ...

    def text(self, cursor: Cursor) -> str:
        """The text whose index comes next."""
        ...

    def raw_text(self, cursor: Cursor) -> bytes:
        """The bytes of the text whose index comes next; they need not be UTF-8."""
        ...

    def handle(self, cursor: Cursor) -> tuple[str, str]:
        """The dialect and key of the resource whose number comes next."""
        ...

    def version_of(self, dialect: str) -> object:
        """What `read_version` of a dialect made of its version bytes; None without any."""
        ...

    def distinct(self) -> int:
        """A number that no attribute of the file has yet."""
        ...

    def spend(self, size: int) -> bool:
        """Whether `size` bytes may be made that the file does not hold: of a splat, of an identity map."""
        ...


class Output(Protocol):
    """Where the fields of an entry are written."""

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        ...

    def attribute(self, value: Attribute) -> None:
        """A reference to an attribute, which becomes an entry."""
        ...

    def attributes(self, values: Sequence[Attribute]) -> None:
        """References to attributes, without their number."""
        ...

    def type(self, value: Attribute) -> None:
        """A reference to a type, which becomes an entry."""
        ...

    def text(self, value: str) -> None:
        """A reference to a text."""
        ...

    def handle(self, dialect: str, key: str) -> None:
        """A reference to a resource of a dialect."""
        ...


@dataclass(frozen=True)
class Codec:
    """One field: how it is read and written."""

    read: Callable[[Cursor, Tables], Any]
    write: Callable[[Any, Output], None]


def _write_varint(value: int, out: Output) -> None:
    if not 0 <= value < WORD:
        raise ValueError(f"an integer of 0 or more and at most 64 bits is required, got {value}")
    out.raw(varint(value))


def _write_signed(value: int, out: Output) -> None:
    if not -WORD // 2 <= value < WORD // 2:
        raise ValueError(f"an integer of 64 bits with a sign is required, got {value}")
    out.raw(signed(value))


VARINT = Codec(lambda cursor, _: cursor.varint(), _write_varint)
SIGNED = Codec(lambda cursor, _: cursor.signed(), _write_signed)
BOOL = Codec(lambda cursor, _: cursor.boolean(), lambda value, out: out.raw(bytes((bool(value),))))
TYPE = Codec(lambda cursor, tables: tables.type(cursor), lambda value, out: out.type(value))
ATTRIBUTE = Codec(lambda cursor, tables: tables.attribute(cursor), lambda value, out: out.attribute(value))
TEXT = Codec(lambda cursor, tables: tables.text(cursor), lambda value, out: out.text(value))
HANDLE = Codec(lambda cursor, tables: tables.handle(cursor), lambda value, out: out.handle(*value))


def _write_blob(value: bytes, out: Output) -> None:
    out.raw(varint(len(value)))
    out.raw(value)


BLOB = Codec(lambda cursor, _: bytes(cursor.blob()), _write_blob)


def _read_double(cursor: Cursor, _: Tables) -> float:
    return struct.unpack("<d", struct.pack("<Q", cursor.signed() & (WORD - 1)))[0]


DOUBLE = Codec(_read_double, lambda value, out: out.raw(signed(struct.unpack("<q", struct.pack("<d", value))[0])))


def attribute_of(first: type, *others: type) -> Codec:
    """A reference to an attribute of one of these classes."""
    wanted = (first, *others) if others else first
    return Codec(lambda cursor, tables: tables.attribute(cursor, wanted), lambda value, out: out.attribute(value))


def is_of(value: Attribute, wanted: Classes) -> bool:
    """`isinstance`, which takes long for classes that the value is not of: those of xDSL are abstract."""
    return (isinstance(wanted, tuple) and type(value) in wanted) or isinstance(value, wanted)


def many(codec: Codec) -> Codec:
    """A list: its length, then the elements."""

    def read(cursor: Cursor, tables: Tables) -> list[Any]:
        return [codec.read(cursor, tables) for _ in range(cursor.count("elements"))]

    def write(values: Sequence[Any], out: Output) -> None:
        out.raw(varint(len(values)))
        for value in values:
            codec.write(value, out)

    return Codec(read, write)


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Form:
    """A code and what it stands for.

    cls: the class of the attributes it writes. fields: in the order of the file. parts: attribute -> a value for each
    field. build: these values -> attribute. fits: whether it can write an attribute of its class.
    """

    code: int
    cls: type
    fields: tuple[Codec, ...]
    parts: Callable[[Any], tuple[Any, ...]]
    build: Callable[..., Attribute]
    fits: Callable[[Any], bool] = _always
    unique: bool = False

    def read(self, cursor: Cursor, tables: Tables) -> Attribute:
        """The attribute whose fields come next."""
        reads = self._reads
        if len(reads) == 1:
            return self.build(reads[0](cursor, tables))
        return self.build(*[read(cursor, tables) for read in reads])

    @cached_property
    def _reads(self) -> tuple[Callable[[Cursor, Tables], Any], ...]:
        return tuple(field.read for field in self.fields)

    def write(self, value: Attribute, out: Output) -> None:
        """The code and the fields of an attribute."""
        out.raw(varint(self.code))
        for field, part in zip(self.fields, self.parts(value), strict=True):
            field.write(part, out)


def unchecked(cls: Any, **fields: object) -> Any:
    """An attribute without xDSL's checks, for parts that were checked when they were read: those of locations know no
    `FileRangeLoc`, and those of integers take long for millions of bits.
    """
    found: object = object.__new__(cls)
    vars(found).update(fields)
    return found


def constant(code: int, value: Attribute) -> Form:
    """The form of an attribute or type that has no fields."""
    return Form(code, type(value), (), lambda _: (), lambda: value)


def no_version() -> bytes | None:
    """The version bytes of a dialect that writes none."""
    return None


def no_upgrade(module: ModuleOp, version: object) -> None:
    """The upgrade of a dialect that needs none."""


@dataclass(frozen=True)
class DialectCodes:
    """A dialect's bytecode: its codes and the three hooks for its version.

    write_version: the bytes to write, None for none. read_version: these bytes -> the version, in any form of the
    dialect's choice (`Tables.version_of`). upgrade: brings a module that was read up to date.
    """

    name: str
    attributes: tuple[Form, ...] = ()
    types: tuple[Form, ...] = ()
    write_version: Callable[[], bytes | None] = no_version
    read_version: Callable[[bytes], object] = bytes
    upgrade: Callable[[ModuleOp, object], None] = no_upgrade
