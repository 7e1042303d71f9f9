"""Attributes and types by id, decoded when they are first used."""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import Any, cast

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import Attribute, TypeAttribute

from tpusim.errors import TpusimError, first_line
from tpusim.ir.attrs import int_attr
from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.forms import Classes, DialectCodes, Form
from tpusim.ir.bytecode.names import Names
from tpusim.ir.bytecode.resources import Resources
from tpusim.ir.bytecode.strings import Strings

DEEPEST = 64
"""Levels of attributes in attributes."""
SPARE = 1 << 20
"""Bytes that splats may become beyond the size of the file, all together."""
TextParser = Callable[[str, bool], Attribute]
"""(MLIR text, whether it is a type) -> attribute."""
Forms = Mapping[int, Form]


class _Undecoded:
    """Marks an entry that is being decoded: an entry that refers to it refers to itself."""


IN_PROGRESS = _Undecoded()


@dataclass
class _Kind:
    """The attributes, or the types, of a file. begin: where the encodings begin, with the end of the last."""

    what: str
    begin: list[int] = field(default_factory=list[int])
    custom: list[bool] = field(default_factory=list[bool])
    dialect: list[str] = field(default_factory=list[str])
    values: list[Any] = field(default_factory=list[Any])


class Entries:
    """The entries of sections ATTR_TYPE_OFFSET and ATTR_TYPE; what a form needs of a file (`forms.Tables`)."""

    def __init__(
        self, offsets: Cursor, data: Cursor, names: Names, strings: Strings, resources: Resources,
        dialects: Mapping[str, DialectCodes], parse: TextParser,
    ) -> None:  # fmt: skip
        self.names, self.strings, self.resources = names, strings, resources
        self._data, self._parse, self._dialects = data, parse, dialects
        self._forms: dict[tuple[str, bool], Forms] = {}
        self._depth = 0
        self._distinct = numbers()
        self._spare = SPARE + data.end
        self._integers: set[int] = set()
        self._attributes, self._types = _Kind("attribute"), _Kind("type")
        self._read_offsets(offsets)

    def _read_offsets(self, offsets: Cursor) -> None:
        wanted = [(kind, offsets.count(f"{kind.what}s")) for kind in (self._attributes, self._types)]
        position = self._data.position
        for kind, count in wanted:
            while len(kind.custom) < count:
                position = self._read_group(offsets, kind, count, position)
            kind.begin.append(position)
            kind.values = [None] * count
        offsets.require_end("the table of attributes and types")
        if position != self._data.end:
            self._data.fail(f"{position:,} bytes of encodings are announced, there are {self._data.end:,}")

    def _read_group(self, offsets: Cursor, kind: _Kind, count: int, position: int) -> int:
        dialect, number = self.names.dialect(offsets), offsets.count("entries")
        if number > count - len(kind.custom):
            offsets.fail(f"{count:,} {kind.what}s are announced, a group has {number:,} after {len(kind.custom):,}")
        begin, custom, varint = kind.begin.append, kind.custom.append, offsets.varint
        for _ in range(number):
            size = varint()
            begin(position)
            custom(bool(size & 1))
            position += size >> 1
        kind.dialect += [dialect] * number
        return position

    # -- what forms ask for

    def attribute(self, cursor: Cursor, wanted: Classes = Attribute) -> Attribute:
        """The attribute whose id comes next, of one of the wanted classes."""
        index = cursor.varint()
        found = self.attribute_at(index, cursor)
        if not isinstance(found, wanted):
            names = " or ".join(cls.__name__ for cls in (wanted if isinstance(wanted, tuple) else (wanted,)))
            cursor.fail(f"attribute {index:,} must be of {names}, it is of {type(found).__name__}")
        return found

    def type(self, cursor: Cursor) -> Attribute:
        """The type whose id comes next."""
        return self.type_at(cursor.varint(), cursor)

    def text(self, cursor: Cursor) -> str:
        """The text whose index comes next."""
        return self.strings.read(cursor)

    def raw_text(self, cursor: Cursor) -> bytes:
        """The bytes of the text whose index comes next; they need not be UTF-8."""
        return self.strings.bytes_at(cursor.varint(), cursor)

    def handle(self, cursor: Cursor) -> tuple[str, str]:
        """The dialect and key of the resource whose number comes next."""
        index = cursor.varint()
        if index >= len(self.resources.handles):
            cursor.fail(f"resource {index:,} of {len(self.resources.handles):,} does not exist")
        return self.resources.handles[index]

    def version_of(self, dialect: str) -> object:
        """What `read_version` of a dialect made of its version bytes; None without any."""
        stated, codes = self.names.versions.get(dialect), self._dialects.get(dialect)
        return codes.read_version(stated) if codes and stated is not None else None

    def distinct(self) -> int:
        """A number that no attribute of the file has yet."""
        return next(self._distinct)

    def spend(self, size: int) -> bool:
        """Whether `size` more bytes may be made of splats."""
        if size > self._spare:
            return False
        self._spare -= size
        return True

    def attributes(self, cursor: Cursor, count: int) -> list[Attribute]:
        """The attributes whose ids come next: nearly all of a lowered module are arrays of i64, decoded here."""
        data, position, end = cursor.data, cursor.position, cursor.end
        values, found = self._attributes.values, list[Attribute]()
        known = len(values)
        add = found.append
        for _ in range(count):
            first = data[position] if position < end else 0
            if first & 1:
                index = first >> 1
                position += 1
            elif first & 2 and position + 1 < end:
                index = (first | data[position + 1] << 8) >> 2
                position += 2
            elif first & 4 and position + 2 < end:
                index = (first | data[position + 1] << 8 | data[position + 2] << 16) >> 3
                position += 3
            else:
                cursor.position = position
                index = cursor.varint()
                position = cursor.position
            value = values[index] if index < known else None
            if value is None or value is IN_PROGRESS:
                value = self._integer_at(index) if index < known else None
                if value is None:
                    cursor.position = position
                    value = self.attribute_at(index, cursor)
            add(value)
        cursor.position = position
        return found

    def _integer_at(self, index: int) -> Attribute | None:
        """An i64 attribute decoded without a cursor; None for any other attribute."""
        kind = self._attributes
        begin, end = kind.begin[index], kind.begin[index + 1]
        data = self._data.data
        if (
            end - begin < 3
            or data[begin] != _INTEGER_CODE
            or not kind.custom[index]
            or kind.dialect[index] != "builtin"
        ):
            return None
        head = data[begin + 1]
        if not head & 1 or not self._is_i64(head >> 1):
            return None
        first = data[begin + 2]
        size = (first & -first).bit_length() if first else 9
        if begin + 2 + size != end:
            return None
        raw = int.from_bytes(data[begin + 2 : end], "little") >> (size if first else 8)
        value = kind.values[index] = int_attr((raw >> 1) ^ -(raw & 1))
        return value

    def _is_i64(self, index: int) -> bool:
        if index in self._integers:
            return True
        found = self._types.values[index] if index < len(self._types.values) else None
        if isinstance(found, IntegerType) and (found.width.data, found.signedness.data) == (64, Signedness.SIGNLESS):
            self._integers.add(index)
            return True
        return False

    # -- decoding

    def attribute_at(self, index: int, user: Cursor) -> Attribute:
        """The attribute of an id that `user` has just read."""
        return self._at(self._attributes, index, user)

    def type_at(self, index: int, user: Cursor) -> Attribute:
        """The type of an id that `user` has just read."""
        found = self._at(self._types, index, user)
        if not isinstance(found, TypeAttribute):
            user.fail(f"type {index:,} must be a type, it is of {type(found).__name__}")
        return found

    def _at(self, kind: _Kind, index: int, user: Cursor) -> Attribute:
        if index >= len(kind.values):
            user.fail(f"{kind.what} {index:,} of {len(kind.values):,} does not exist")
        found = kind.values[index]
        if found is IN_PROGRESS:
            user.fail(f"{kind.what} {index:,} is a part of itself")
        if found is None:
            if self._depth >= DEEPEST:
                user.fail(f"attributes in attributes of at most {DEEPEST} levels are required")
            found = self._decode(kind, index)
        return cast("Attribute", found)

    def _decode(self, kind: _Kind, index: int) -> Attribute:
        kind.values[index] = IN_PROGRESS
        self._depth += 1
        data = self._data
        cursor = Cursor(data.data, data.base, kind.begin[index], kind.begin[index + 1], data.section, data.file)
        found: Attribute | None = None
        try:
            found = self._read(kind, index, cursor)
            cursor.require_end(f"{kind.what} {index:,}")
        except TpusimError:
            raise
        except Exception as error:  # noqa: BLE001  xDSL's classes meet parts that do not fit with errors of every kind
            dialect = kind.dialect[index]
            cursor.fail(
                f"{kind.what} {index:,} of dialect '{dialect}' cannot be made of its fields, {first_line(error)}"
            )
        finally:
            self._depth -= 1
            kind.values[index] = found
        return cast("Attribute", found)

    def _read(self, kind: _Kind, index: int, cursor: Cursor) -> Attribute:
        dialect = kind.dialect[index]
        if not kind.custom[index]:
            return self._parse(cursor.terminated(), kind is self._types)
        forms = self._forms_of(dialect, kind is self._types)
        if forms is None:
            cursor.fail(
                f"{kind.what} {index:,} is of dialect '{dialect}', whose encoding is not known; known are "
                f"{', '.join(self._dialects)} and all that is written as text"
            )
        code = cursor.varint()
        if code not in forms:
            cursor.fail(f"{kind.what} {index:,}: dialect '{dialect}' has no {kind.what} of code {code}")
        return forms[code].read(cursor, self)

    def _forms_of(self, dialect: str, types: bool) -> Forms | None:
        if dialect not in self._dialects:
            return None
        if (dialect, types) not in self._forms:
            codes = self._dialects[dialect]
            forms = codes.types if types else codes.attributes
            self._forms[dialect, types] = {form.code: form for form in reversed(forms)}
        return self._forms[dialect, types]


_INTEGER_CODE = 8 << 1 | 1
"""An integer attribute's code as a varint."""
