"""Attributes and types by id, decoded when they are first used."""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from array import array
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import Any, NoReturn

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import Attribute, TypeAttribute

from tpusim.errors import TpusimError, first_line
from tpusim.ir.attrs import i64_attr
from tpusim.ir.bytecode.cursor import INSTALL, Cursor, places
from tpusim.ir.bytecode.forms import Classes, DialectCodes, Form, is_of
from tpusim.ir.bytecode.names import Names
from tpusim.ir.bytecode.resources import Resources
from tpusim.ir.bytecode.strings import Strings
from tpusim.ir.nesting import LEVELS, MOST, extent
from tpusim.ir.splats import Budget

CUSTOM, BUILTIN = 1, 2
"""Flags of an entry: the encoding is its dialect's and not text; the dialect is builtin."""
TextParser = Callable[[str, bool], Attribute]
"""(MLIR text, whether it is a type) -> attribute."""
Forms = Mapping[int, Form]


class _Undecoded:
    """Marks an entry that is being decoded: an entry that refers to it refers to itself."""


IN_PROGRESS = _Undecoded()
LEAF = (1, 0)
"""The extent of an attribute that contains no others; its bytes are those of the index that refers to it."""


@dataclass
class _Kind:
    """The attributes, or the types, of a file: tables that take few bytes for each.

    begin: the places where the encodings begin, and the end of the last. flags: CUSTOM and BUILTIN of each. dialects,
    from_: entries from the id `from_[i]` on are of `dialects[i]`. values: id -> decoded attribute. nested: id -> extent
    of an attribute that contains others.
    """

    what: str
    begin: "array[int]"
    flags: bytearray = field(default_factory=bytearray)
    dialects: list[str] = field(default_factory=list[str])
    from_: list[int] = field(default_factory=list[int])
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    nested: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])

    def __len__(self) -> int:
        return len(self.flags)

    def dialect(self, index: int) -> str:
        """The dialect of an entry."""
        return self.dialects[bisect(self.from_, index) - 1]


class Entries:
    """The entries of sections ATTR_TYPE_OFFSET and ATTR_TYPE; what a form needs of a file (`forms.Tables`).

    regions: the levels of regions around what is read.
    """

    def __init__(
        self, offsets: Cursor, data: Cursor, names: Names, strings: Strings, resources: Resources,
        dialects: Mapping[str, DialectCodes], parse: TextParser, budget: Budget,
    ) -> None:  # fmt: skip
        self.names, self.strings, self.resources = names, strings, resources
        self._data, self._parse, self._dialects = data, parse, dialects
        self._forms: dict[tuple[str, bool], Forms] = {}
        self._depth, self._most = 0, MOST + data.end - data.position
        self.start()
        self._distinct = numbers()
        self.spend = budget.spend
        self._integers: set[int] = set()
        self._attributes, self._types = _Kind("attribute", places(data.end)), _Kind("type", places(data.end))
        self._read_offsets(offsets)

    def _read_offsets(self, offsets: Cursor) -> None:
        wanted = [(kind, offsets.count(f"{kind.what}s")) for kind in (self._attributes, self._types)]
        position = self._data.position
        for kind, count in wanted:
            while len(kind) < count:
                position = self._read_group(offsets, kind, count, position)
            kind.begin.append(position)
        offsets.require_end("the table of attributes and types")
        if position != self._data.end:
            self._data.fail(f"{position:,} bytes of encodings are announced, there are {self._data.end:,}")

    def _read_group(self, offsets: Cursor, kind: _Kind, count: int, position: int) -> int:
        dialect, number = self.names.dialect(offsets), offsets.count("entries")
        if number > count - len(kind):
            offsets.fail(f"{count:,} {kind.what}s are announced, a group has {number:,} after {len(kind):,}")
        kind.dialects.append(dialect)
        kind.from_.append(len(kind))
        begin, flag, end = kind.begin.append, kind.flags.append, self._data.end
        builtin = BUILTIN if dialect == "builtin" else 0
        for size in offsets.varints(number):
            begin(position)
            flag(builtin | size & CUSTOM)
            position += size >> 1
            if position > end:
                offsets.fail(f"{position:,} bytes of encodings are announced, there are {end:,}")
        return position

    def start(self) -> None:
        """Begin to read an op that is in no region."""
        self.regions = self._levels = self._size = 0

    # -- what forms ask for

    def attribute(self, cursor: Cursor, wanted: Classes = Attribute) -> Attribute:
        """The attribute whose id comes next, of one of the wanted classes."""
        index = cursor.varint()
        found = self._attributes.values.get(index, IN_PROGRESS)
        if found is IN_PROGRESS:
            found = self._at(self._attributes, index, cursor)
        else:
            self._meet(self._attributes.nested.get(index, LEAF), cursor)
        if wanted is not Attribute and type(found) is not wanted and not is_of(found, wanted):
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

    def attributes(self, cursor: Cursor, count: int) -> list[Attribute]:
        """The attributes whose ids come next: nearly all of a lowered module are arrays of i64, decoded here."""
        data, position, end = cursor.data, cursor.position, cursor.end
        value_of, found = self._attributes.values.get, list[Attribute]()
        known, nested = len(self._attributes), self._attributes.nested
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
            value = value_of(index)
            if value is None or value is IN_PROGRESS:
                value = self._integer_at(index) if index < known else None
                if value is None:
                    cursor.position = position
                    value = self.attribute_at(index, cursor)
            elif index in nested:
                self._meet(nested[index], cursor)
            add(value)
        cursor.position = position
        self._levels = self._levels or min(count, 1)
        return found

    def _integer_at(self, index: int) -> Attribute | None:
        """An i64 attribute decoded without a cursor; None for any other attribute."""
        kind = self._attributes
        begin, end = kind.begin[index], kind.begin[index + 1]
        data = self._data.data
        if end - begin < 3 or data[begin] != _INTEGER_CODE or kind.flags[index] != CUSTOM | BUILTIN:
            return None
        head = data[begin + 1]
        if not head & 1 or not self._is_i64(head >> 1):
            return None
        first = data[begin + 2]
        size = (first & -first).bit_length() if first else 9
        if begin + 2 + size != end:
            return None
        raw = int.from_bytes(data[begin + 2 : end], "little") >> (size if first else 8)
        value = kind.values[index] = i64_attr((raw >> 1) ^ -(raw & 1))
        return value

    def _is_i64(self, index: int) -> bool:
        if index in self._integers:
            return True
        found = self._types.values.get(index)
        if isinstance(found, IntegerType) and (found.width.data, found.signedness.data) == (64, Signedness.SIGNLESS):
            self._integers.add(index)
            return True
        return False

    # -- decoding

    def attribute_at(self, index: int, user: Cursor) -> Attribute:
        """The attribute of an id that `user` has just read."""
        found = self._attributes.values.get(index, IN_PROGRESS)
        if found is IN_PROGRESS:
            return self._at(self._attributes, index, user)
        self._meet(self._attributes.nested.get(index, LEAF), user)
        return found

    def type_at(self, index: int, user: Cursor) -> Attribute:
        """The type of an id that `user` has just read."""
        found = self._types.values.get(index, IN_PROGRESS)
        if found is IN_PROGRESS:
            return self._at(self._types, index, user)
        self._meet(self._types.nested.get(index, LEAF), user)
        return found

    def _at(self, kind: _Kind, index: int, user: Cursor) -> Attribute:
        if index >= len(kind.flags):
            user.fail(f"{kind.what} {index:,} of {len(kind):,} does not exist")
        found = kind.values.get(index)
        if found is IN_PROGRESS:
            user.fail(f"{kind.what} {index:,} is a part of itself")
        if found is None:
            if self._depth >= LEVELS:
                self._fail_levels(user)
            levels, size = self._levels, self._size
            self._levels = self._size = 0
            found = self._decode(kind, index)
            inner, known = self._levels, (self._levels + 1, self._size + kind.begin[index + 1] - kind.begin[index])
            if inner:
                kind.nested[index] = known
            self._levels, self._size = levels, size
            self._meet(known, user)
        return found

    def _meet(self, part: tuple[int, int], user: Cursor) -> None:
        """Count a part (levels, bytes) of what is read. Fails if it is nested too deeply or too large."""
        levels, size = part
        self._size += size
        if levels > self._levels:
            self._levels = levels
            if levels + self.regions > LEVELS:
                self._fail_levels(user)
        if self._size > self._most:
            user.fail(f"at most {MOST:,} bytes more than the file has are required after shared parts are written out")

    @staticmethod
    def _fail_levels(user: Cursor) -> NoReturn:
        user.fail(f"attributes in attributes and regions of at most {LEVELS} levels are required")

    def _decode(self, kind: _Kind, index: int) -> Any:
        kind.values[index] = IN_PROGRESS
        self._depth += 1
        data = self._data
        cursor = Cursor(data.data, data.base, kind.begin[index], kind.begin[index + 1], data.section, data.file)
        found: Any = None
        try:
            made = self._read(kind, index, cursor)
            if cursor.position != cursor.end:
                cursor.require_end(f"{kind.what} {index:,}")
            if kind is self._types and not isinstance(made, TypeAttribute):
                cursor.fail(f"type {index:,} must be a type, it is of {type(made).__name__}")
            found = made
        except TpusimError:
            raise
        except Exception as error:  # noqa: BLE001  xDSL's classes meet parts that do not fit with errors of every kind
            dialect = kind.dialect(index)
            cursor.fail(
                f"{kind.what} {index:,} of dialect '{dialect}' cannot be made of its fields, {first_line(error)}"
            )
        finally:
            self._depth -= 1
            if found is None:
                del kind.values[index]
            else:
                kind.values[index] = found
        return found

    def _read(self, kind: _Kind, index: int, cursor: Cursor) -> Attribute:
        flags = kind.flags[index]
        if not flags & CUSTOM:
            found = self._parse(cursor.terminated(), kind is self._types)
            self._levels = extent(found, {}).levels - 1
            return found
        dialect = "builtin" if flags & BUILTIN else kind.dialect(index)
        forms = self._forms_of(dialect, kind is self._types)
        if forms is None:
            cursor.fail(
                f"{kind.what} {index:,} is of dialect '{dialect}', whose encoding is not known; known are "
                f"{', '.join(self._dialects)} and all that is written as text",
                then=INSTALL.format("tpusim.bytecode"),
            )
        code = cursor.varint()
        form = forms.get(code)
        if form is None:
            cursor.fail(f"{kind.what} {index:,}: dialect '{dialect}' has no {kind.what} of code {code}")
        return form.read(cursor, self)

    def _forms_of(self, dialect: str, types: bool) -> Forms | None:
        found = self._forms.get((dialect, types))
        if found is None and dialect in self._dialects:
            codes = self._dialects[dialect]
            forms = codes.types if types else codes.attributes
            found = self._forms[dialect, types] = {form.code: form for form in reversed(forms)}
        return found


_INTEGER_CODE = 8 << 1 | 1
"""An integer attribute's code as a varint."""
