"""Attributes as plain Python values, op names (and the framework's tensors) as locations, and `#tpu.lg`."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    CallSiteLoc,
    FloatAttr,
    FusedLoc,
    IntAttr,
    IntegerAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
    i64,
)
from xdsl.ir import Attribute, Data, Operation, SSAValue
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from tpusim.ir.upstream.spelling import FRAMEWORK


@lru_cache(maxsize=1 << 14, typed=True)
def int_attr(value: int) -> IntegerAttr:
    """An i64 attribute; an equal attribute is shared, because many shifts are equal."""
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        return IntegerAttr(value, i64)
    return i64_attr(value)


def i64_attr(value: int) -> IntegerAttr:
    """An attribute of an integer that is known to have 64 bits.

    It is made without xDSL's checks: a large network has a multiplier for each of 26,000 channels.
    """
    number, found = object.__new__(IntAttr), object.__new__(IntegerAttr)
    object.__setattr__(number, "data", value)
    object.__setattr__(found, "value", number)
    object.__setattr__(found, "type", i64)
    return found


def ints_attr(values: Iterable[int]) -> ArrayAttr[IntegerAttr]:
    """An array of integer attributes of type i64."""
    return ArrayAttr([int_attr(int(v)) for v in values])


def floats_attr(values: Iterable[float]) -> ArrayAttr[Attribute]:
    """An array of float attributes of type f64."""
    return ArrayAttr([float_attr(v) for v in values])


def float_attr(value: float) -> FloatAttr:
    """A float attribute of type f64."""
    return FloatAttr(float(value), 64)


_FLAGS = BoolAttr.from_bool(False), BoolAttr.from_bool(True)


def flag(value: bool) -> BoolAttr:
    """An i1 attribute, printed as true or false."""
    return _FLAGS[bool(value)]


def text(value: str) -> StringAttr:
    """A string attribute of this text."""
    return StringAttr(value)


def texts_attr(values: Iterable[str]) -> ArrayAttr[Attribute]:
    """An array of string attributes."""
    return ArrayAttr([text(value) for value in values])


def texts(attribute: Attribute) -> tuple[str, ...]:
    """The strings of an array attribute."""
    return tuple(a.data for a in cast("ArrayAttr[StringAttr]", attribute).data)


def ints(attribute: Attribute) -> tuple[int, ...]:
    """The Python integers of an array attribute."""
    return tuple(a.value.data for a in cast("ArrayAttr[IntegerAttr]", attribute).data)


def floats(attribute: Attribute) -> tuple[float, ...]:
    """The Python floats of an array attribute."""
    return tuple(a.value.data for a in cast("ArrayAttr[FloatAttr]", attribute).data)


def op_name(op: Operation) -> str:
    """The op's name in the network: its location's string (`location_name`); "" if it has none."""
    return location_name(op.location)


def location_name(location: Attribute) -> str:
    """The first name in a location (U-96); "" of `unknown` and of a place in a file."""
    named = _named(location)
    return named.desc.data if named else ""


def _named(location: Attribute) -> NameLoc | None:
    """The location itself, of `fused[a, b]` and `callsite(a at b)` the first part that has a name."""
    if isinstance(location, NameLoc):
        return location
    return next((named for part in _parts(location) if (named := _named(part))), None)


def _parts(location: Attribute) -> tuple[Attribute, ...]:
    if isinstance(location, FusedLoc):
        return cast("ArrayAttr[Attribute]", location.locations).data
    return (location.callee, location.caller) if isinstance(location, CallSiteLoc) else ()


def framework_name(op: Operation) -> str:
    """The framework's tensor that the op's result equals: the attribute FRAMEWORK; without one the op's name."""
    stated = op.attributes.get(FRAMEWORK)
    return stated.data if isinstance(stated, StringAttr) else op_name(op)


def set_op_name(op: Operation, name: str, framework: str = "") -> None:
    """Give the op its network name as a location, and, if its name differs, the framework's tensor that it equals."""
    op.location = name_location(name)
    set_framework_name(op, framework)


def set_framework_name(op: Operation, framework: str) -> None:
    """State the framework's tensor that the op's result equals; empty: it has the op's name."""
    if framework:
        op.attributes[FRAMEWORK] = text(framework)
    else:
        op.attributes.pop(FRAMEWORK, None)


def copy_name(op: Operation, source: Operation) -> None:
    """Call an op like the one whose value it gives now."""
    op.location = source.location
    stated = source.attributes.get(FRAMEWORK)
    set_framework_name(op, stated.data if isinstance(stated, StringAttr) else "")


def take_framework_name(op: Operation) -> None:
    """Move the framework's name out of the location, where earlier releases had it: `loc("y_Relu"("y"))`."""
    named = _named(op.location)
    inner = named.location if named else None
    if isinstance(inner, NameLoc):
        set_framework_name(op, inner.desc.data)
        op.location = _without_framework(op.location)


def _without_framework(location: Attribute) -> LocationAttr:
    if isinstance(location, FusedLoc):
        return FusedLoc(tuple(map(_without_framework, _parts(location))), location.metadata)
    nested = isinstance(location, NameLoc) and isinstance(location.location, NameLoc)
    return name_location(location_name(location)) if nested else cast("LocationAttr", location)


def name_place(op: Operation, name: str) -> None:
    """Give the op a name before its present location: `loc("name"("model.py":3:7))`."""
    place = op.location
    op.location = NameLoc(StringAttr(name), NoneAttr() if isinstance(place, UnknownLoc) else place)


def copy_name_as(op: Operation, source: Operation, old: str, new: str) -> None:
    """As `copy_name`, but `y_OLD` of the framework's tensor y becomes `y_NEW`: it fuses into another node (U-33)."""
    tensor = framework_name(source)
    copy_name(op, source)
    if op_name(source) == f"{tensor}_{old}":
        set_op_name(op, f"{tensor}_{new}", tensor)


def name_location(name: str) -> NameLoc:
    """The location of a name: `loc("name")`."""
    return NameLoc(StringAttr(name), NoneAttr())


def results_location(names: Iterable[str]) -> LocationAttr:
    """The location of an op with results of these names: `loc("a")`, of several `loc(fused["a", "b"])`."""
    places = tuple(map(name_location, names))
    return places[0] if len(places) == 1 else FusedLoc(places, NoneAttr())


def value_name(value: SSAValue) -> str:
    """The tensor name of a value: the name of the op that makes it, of several results the part of `fused[...]`."""
    owner = value.owner
    if not isinstance(owner, Operation):
        return f"arg{value.index}"  # type: ignore[attr-defined]
    parts = _parts(owner.location) if isinstance(owner.location, FusedLoc) else ()
    one_each = len(owner.results) == len(parts) > 1
    return location_name(parts[value.index]) if one_each else op_name(owner)  # type: ignore[arg-type]


@dataclass(frozen=True)
class LayerGroupInfo:
    """Where and how one op of a group lives in local memory (docs/spec/layer_group.md 14).

    Addresses and sizes are bytes per lane; idx/slice arrays have one entry per section of that axis, or one entry for a
    tensor that stays resident.
    """

    out_addr: int = 0
    out_size: int = 0
    buffer_addr: int = 0
    buffer_size: int = 0
    eu_align: bool = True
    can_merge: bool = False
    in_hslice_offset: tuple[int, ...] = ()
    n_idx: tuple[int, ...] = (0,)
    n_slice: tuple[int, ...] = (1,)
    c_idx: tuple[int, ...] = (0,)
    c_slice: tuple[int, ...] = (1,)
    d_idx: tuple[int, ...] = (0,)
    d_slice: tuple[int, ...] = (1,)
    h_idx: tuple[int, ...] = (0,)
    h_slice: tuple[int, ...] = (1,)
    w_idx: tuple[int, ...] = (0,)
    w_slice: tuple[int, ...] = (1,)
    id: int = 0
    stage: int = 1
    slice_idx: int = 0
    group_type: int = 0


@irdl_attr_definition
class LayerGroupAttr(Data[LayerGroupInfo]):
    """`#tpu.lg<out_addr = 0, out_size = 64, ...>`; every field is printed, any may be left out when read."""

    name = "tpu.lg"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> LayerGroupInfo:
        """`<key = value, ...>` where a value is an integer, a boolean or a list of integers."""
        known = _FIELDS
        values: dict[str, object] = {}

        def entry() -> None:
            start = parser.pos
            key = parser.expect(parser.parse_optional_identifier, "a field of #tpu.lg is expected")
            if key not in known or key in values:
                parser.raise_error(f"#tpu.lg: unknown or repeated field '{key}', fields are {', '.join(known)}", start)
            parser.parse_punctuation("=")
            values[key] = _parse_value(parser, known[key])

        parser.parse_comma_separated_list(parser.Delimiter.ANGLE, entry)
        return LayerGroupInfo(**values)  # type: ignore[arg-type]

    @classmethod
    def of_text(cls, printed: str) -> "LayerGroupAttr | None":
        """The attribute of a whole text such as it is printed; None for any other spelling, which the parser reads."""
        match = _PRINTED.fullmatch(printed)
        if match is None:
            return None
        values = [read(group) for read, group in zip(_READ, match.groups(), strict=True)]
        return cls(LayerGroupInfo(*cast("list[Any]", values)))

    def print_parameter(self, printer: Printer) -> None:
        """Print the fields in the form that is parsed."""
        items = ", ".join(f"{f.name} = {_value_text(getattr(self.data, f.name))}" for f in fields(self.data))
        printer.print_string(f"<{items}>")


_FIELDS = {f.name: f.default for f in fields(LayerGroupInfo)}


def _printed_ints(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(", "))) if text else ()


def _printed_kind(value: object) -> tuple[str, Callable[[str], object]]:
    """The pattern of a field as it is printed, and what reads its group."""
    if isinstance(value, tuple):
        return r"\[((?:-?\d+(?:, -?\d+)*)?)\]", _printed_ints
    return ("(true|false)", "true".__eq__) if isinstance(value, bool) else (r"(-?\d+)", int)


_PRINTED = re.compile(
    f"#tpu.lg<{', '.join(f'{name} = {_printed_kind(value)[0]}' for name, value in _FIELDS.items())}>", re.ASCII
)
_READ = [_printed_kind(value)[1] for value in _FIELDS.values()]


def _parse_value(parser: AttrParser, like: object) -> object:
    if isinstance(like, tuple):
        return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer))
    if isinstance(like, bool):
        return parser.parse_boolean()
    return parser.parse_integer()


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(str(v) for v in cast('tuple[int, ...]', value))}]"
    return str(value)
