"""Attributes and types to write: each gets one entry, and ids are given by use once all are known."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from xdsl.dialects.builtin import UnregisteredAttr
from xdsl.ir import Attribute, BuiltinAttribute, TypeAttribute
from xdsl.printer import Printer

from tpusim.errors import ConfigError, TpusimError, UnsupportedError, first_line
from tpusim.ir.bytecode.dialects import Codes
from tpusim.ir.bytecode.forms import DialectCodes, Form
from tpusim.ir.bytecode.missing import kind_of
from tpusim.ir.bytecode.releases import Release
from tpusim.ir.bytecode.strings import StringTable
from tpusim.ir.bytecode.varints import flagged, varint
from tpusim.ir.nesting import parts

LANES = 8


class Lane(IntEnum):
    """What a token refers to: token = number * LANES + lane. A number is given when a thing is first met."""

    ATTRIBUTE = 0
    TYPE = 1
    TYPE_ALONE = 2  # of an argument without a location
    TYPE_LOCATED = 3  # of an argument whose location follows
    OP = 4
    HANDLE = 5
    PRESENT = 6  # an attribute as an optional reference


Token = bytes | int
"""Bytes as they are, or a reference whose id is not known yet."""


class Entry(NamedTuple):
    """An attribute or type: its dialect, whether the dialect encodes it, and the encoding."""

    dialect: str
    custom: bool
    tokens: tuple[Token, ...]


@dataclass
class _Kind:
    """The attributes, or the types, of a file. kept: what numbers by identity are of, so that no id is reused."""

    lane: Lane
    by_identity: dict[int, int] = field(default_factory=dict[int, int])
    by_contents: dict[object, int] = field(default_factory=dict[object, int])
    entries: list[Entry] = field(default_factory=list[Entry])
    uses: list[int] = field(default_factory=list[int])
    kept: list[Attribute] = field(default_factory=list[Attribute])


class _Parts:
    """Where a form writes one entry (`forms.Output`)."""

    __slots__ = ("_numbering", "tokens")

    def __init__(self, numbering: "Numbering") -> None:
        self.tokens: list[Token] = []
        self._numbering = numbering

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self.tokens.append(data)

    def attribute(self, value: Attribute) -> None:
        """A reference to an attribute."""
        self.tokens.append(self._numbering.attribute(value))

    def attributes(self, values: Sequence[Attribute]) -> None:
        """References to attributes, without their number."""
        self.tokens += map(self._numbering.attribute, values)

    def type(self, value: Attribute) -> None:
        """A reference to a type."""
        self.tokens.append(self._numbering.type(value))

    def text(self, value: str) -> None:
        """A reference to a text."""
        self.tokens.append(self._numbering.strings.reference(value))

    def handle(self, dialect: str, key: str) -> None:
        """A reference to a resource of a dialect."""
        handles = self._numbering.handles
        self.tokens.append(handles.setdefault((dialect, key), len(handles)) * LANES + Lane.HANDLE)


_Forms = dict[type, list[tuple[str, Form]]]
"""By class of attribute: the dialect and form of each code."""


class Numbering:
    """Numbers attributes and types when they are first met; equal ones are one entry.

    Equality is that of the encoding: it tells 0.0 from -0.0, and costs nothing for what is nested.
    """

    def __init__(self, release: Release, codes: Codes, strings: StringTable) -> None:
        self.strings = strings
        self.handles: dict[tuple[str, str], int] = {}
        self.attributes, self.types = _Kind(Lane.ATTRIBUTE), _Kind(Lane.TYPE)
        self._release = release
        self._codes, self._attribute_forms, self._type_forms = codes, _Forms({}), _Forms({})
        self._met = {one.name for one in codes.loaded}
        for one in codes.loaded:
            self._take(one)
        self._limits = {("builtin", False): release.attributes, ("builtin", True): release.types}
        self._limits["quant", True] = release.quant

    def _take(self, codes: DialectCodes) -> None:
        self._known_attributes, self._known_types = _Forms({}), _Forms({})
        for found, forms in ((self._attribute_forms, codes.attributes), (self._type_forms, codes.types)):
            for form in forms:
                found.setdefault(form.cls, []).append((codes.name, form))

    def attribute(self, value: Attribute) -> int:
        """The token of an attribute; a type used as an attribute has another token than the type itself."""
        number = self.attributes.by_identity.get(id(value))
        if number is None:
            number = self._number(self.attributes, value)
        self.attributes.uses[number] += 1
        return number * LANES

    def type(self, value: Attribute) -> int:
        """The token of a type."""
        number = self.types.by_identity.get(id(value))
        if number is None:
            number = self._number(self.types, value)
        self.types.uses[number] += 1
        return number * LANES + Lane.TYPE

    def _number(self, kind: _Kind, value: Attribute) -> int:
        entry, unique = self._encoded(value, kind is self.types)
        contents = (*entry, unique)
        number = kind.by_contents.get(contents)
        if number is None:
            number = kind.by_contents[contents] = len(kind.entries)
            kind.entries.append(entry)
            kind.uses.append(0)
        else:
            self._uncount(entry)
        kind.by_identity[id(value)] = number
        kind.kept.append(value)
        return number

    def _uncount(self, entry: Entry) -> None:
        """Forget the uses by an encoding that is not written, so that the file does not depend on shared objects."""
        for token in entry.tokens:
            if isinstance(token, int) and token % LANES in (Lane.ATTRIBUTE, Lane.TYPE):
                kind = self.types if token % LANES else self.attributes
                kind.uses[token // LANES] -= 1

    def _encoded(self, value: Attribute, is_type: bool) -> tuple[Entry, Attribute | None]:
        """The entry of an attribute, and the attribute itself if it equals no other."""
        found = self._form(value, is_type)
        if found is None:
            _require_known(value, self._release)
            return Entry(_dialect_of(value), False, (_text_of(value),)), None
        entry = _Parts(self)
        dialect, form = found
        try:
            form.write(value, entry)
        except (TpusimError, RecursionError):
            raise
        except Exception as error:  # a package's form may raise anything
            raise ConfigError(
                f"bytecode: code {form.code} of dialect '{dialect}' cannot write {value}, {first_line(error)}; "
                "write the module as text, or repair the dialect's package"
            ) from error
        return Entry(dialect, True, tuple(entry.tokens)), value if form.unique else None

    def _form(self, value: Attribute, is_type: bool) -> tuple[str, Form] | None:
        """The first form that can write an attribute for the release; None if it is written as text."""
        known = self._known_types if is_type else self._known_attributes
        forms = known.get(type(value))
        if forms is None:
            forms = self._forms(value, is_type)
            if not isinstance(value, UnregisteredAttr):  # whose dialect is not that of its class
                known[type(value)] = forms
        for dialect, form in forms:
            if form.fits(value):
                return dialect, form
        return None

    def _forms(self, value: Attribute, is_type: bool) -> list[tuple[str, Form]]:
        """The forms of an attribute's class that the release knows."""
        name = _dialect_of(value)
        if name not in self._met:  # an encoding of a package is imported when it is needed
            self._met.add(name)
            if name in self._codes:
                self._take(self._codes[name])
        forms = self._type_forms if is_type else self._attribute_forms
        cls = TypeAttribute if isinstance(value, TypeAttribute) and not is_type else type(value)
        limits = self._limits
        return [
            found for found in forms.get(cls, ()) if found[1].code <= limits.get((found[0], is_type), found[1].code)
        ]


def _require_known(value: Attribute, release: Release) -> None:
    """Raise UnsupportedError for text that a release refuses: an attribute or type in it is of a later one."""
    if kind_of(value) in release.lacks:
        raise UnsupportedError(
            f"bytecode for {release.name}: it has no {kind_of(value)}, got {value}; choose a later reader, or remove it"
        )
    for part in parts(value) if release.lacks else ():
        _require_known(part, release)


def _text_of(value: Attribute) -> bytes:
    stream = io.StringIO()
    Printer(stream).print_attribute(value)
    return stream.getvalue().encode("utf-8", "surrogateescape") + b"\0"


def _dialect_of(value: Attribute) -> str:
    """The dialect of what is written as text."""
    if isinstance(value, UnregisteredAttr):
        return value.attr_name.data.split(".", 1)[0]
    return "builtin" if isinstance(value, BuiltinAttribute) else value.name.split(".", 1)[0]


@dataclass(frozen=True)
class Order:
    """The order of entries in the file: by dialect, then by use. ids: number when met -> id."""

    numbers: list[int]
    ids: list[int]


def order_of(kind: _Kind, dialects: Mapping[str, int]) -> Order:
    """What is used most gets the smallest ids of its dialect, which are the shortest."""
    entries, uses = kind.entries, kind.uses
    numbers = sorted(range(len(entries)), key=lambda n: (dialects[entries[n].dialect], -uses[n], n))
    ids = [0] * len(numbers)
    for index, number in enumerate(numbers):
        ids[number] = index
    return Order(numbers, ids)


def references(lane: Lane, ids: Sequence[int]) -> dict[int, bytes]:
    """The bytes of every token of a lane."""
    if lane in (Lane.TYPE_ALONE, Lane.TYPE_LOCATED, Lane.PRESENT):
        flag = lane is not Lane.TYPE_ALONE
        return {number * LANES + lane: flagged(index, flag) for number, index in enumerate(ids)}
    return {number * LANES + lane: varint(index) for number, index in enumerate(ids)}
