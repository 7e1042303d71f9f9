"""The attributes and locations of the builtin dialect by code."""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from xdsl.dialects.builtin import (
    AffineMapAttr,
    AffineSetAttr,
    ArrayAttr,
    BytesAttr,
    CallSiteLoc,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    DictionaryAttr,
    FileLineColLoc,
    FloatAttr,
    FusedLoc,
    IntAttr,
    IntegerAttr,
    NameLoc,
    NoneAttr,
    StridedLayoutAttr,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, TypeAttribute

from tpusim.ir.bytecode import affine, dense
from tpusim.ir.bytecode.builtin_types import DYNAMIC
from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.forms import (
    ATTRIBUTE,
    HANDLE,
    SIGNED,
    TEXT,
    TYPE,
    VARINT,
    Codec,
    Form,
    Output,
    Tables,
    attribute_of,
    constant,
    many,
    unchecked,
)  # fmt: skip
from tpusim.ir.bytecode.missing import (
    BitsFloatAttr,
    DenseStringsAttr,
    DistinctAttr,
    FileRangeLoc,
    RawDenseAttr,
    SparseAttr,
    TypedStringAttr,
)  # fmt: skip
from tpusim.ir.bytecode.numbers import FLOAT, INTEGER
from tpusim.ir.bytecode.varints import varint

LOCATIONS = (UnknownLoc, FileLineColLoc, CallSiteLoc, NameLoc, FusedLoc, FileRangeLoc)
STRING, LOCATION, SYMBOL = attribute_of(StringAttr), attribute_of(*LOCATIONS), attribute_of(SymbolRefAttr)
NUMBERS, TENSOR = (
    attribute_of(DenseIntOrFPElementsAttr),
    attribute_of(*[DenseIntOrFPElementsAttr, RawDenseAttr, DenseStringsAttr]),
)

NOTHING = NoneAttr()


def _itself(value: Any) -> tuple[Any]:
    return (value,)


def _same(value: Attribute) -> Attribute:
    return value


def _read_attributes(cursor: Cursor, tables: Tables) -> list[Attribute]:
    return tables.attributes(cursor, cursor.count("elements"))


def _write_attributes(values: Sequence[Attribute], out: Output) -> None:
    out.raw(varint(len(values)))
    out.attributes(values)


ELEMENTS = Codec(_read_attributes, _write_attributes)


@lru_cache(maxsize=1 << 10)
def _key(name: str) -> StringAttr:
    """The name of an entry as an attribute; the same few occur in every op."""
    return StringAttr(name)


def _read_text(cursor: Cursor, tables: Tables) -> Attribute:
    raw = tables.raw_text(cursor)
    try:
        return unchecked(StringAttr, data=raw.decode())
    except UnicodeDecodeError:
        return BytesAttr(raw)


ANY_TEXT = Codec(_read_text, TEXT.write)
"""A string; bytes that are no UTF-8 are a bytes attribute, as in xDSL's parser."""


def _read_dictionary(cursor: Cursor, tables: Tables) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for _ in range(cursor.count("entries", 2)):
        name: Any = tables.attribute(cursor, StringAttr)
        key = name.data
        if key in found:
            cursor.fail(f"two entries of a dictionary are called '{key}'")
        found[key] = tables.attribute(cursor)
    return found


def _write_dictionary(value: dict[str, Attribute], out: Output) -> None:
    out.raw(varint(len(value)))
    for key in sorted(value, key=lambda name: name.encode("utf-8", "surrogateescape")):
        out.attribute(_key(key))
        out.attribute(value[key])


ENTRIES = Codec(_read_dictionary, _write_dictionary)


def _read_distinct(cursor: Cursor, tables: Tables) -> Attribute:
    return DistinctAttr(IntAttr(tables.distinct()), tables.attribute(cursor))


DISTINCT = Codec(_read_distinct, ATTRIBUTE.write)
"""Distinct attributes, numbered in the order in which they are read."""


def _symbol(root: StringAttr, nested: list[SymbolRefAttr] | None = None) -> SymbolRefAttr:
    return SymbolRefAttr(root, [part.root_reference for part in nested or ()])


def _nested(value: SymbolRefAttr) -> tuple[Any, ...]:
    return value.root_reference, [SymbolRefAttr(part) for part in value.nested_references.data]


def _file_location(filename: StringAttr, places: list[int]) -> Attribute:
    """A place in a file by up to four numbers: line, column, end line (left out if it is the same), end column."""
    if len(places) > 4:
        raise ValueError(f"at most 4 numbers of a place in a file, got {len(places)}")
    if len(places) < 3:
        line, column = [*places, 0, 0][:2]
        return FileLineColLoc(filename, IntAttr(line), IntAttr(column))
    return FileRangeLoc(filename, ArrayAttr(map(IntAttr, places)))


def _named(name: StringAttr, location: Attribute) -> Attribute:
    return unchecked(NameLoc, desc=name, location=NOTHING if isinstance(location, UnknownLoc) else location)


def _fused(parts: list[Attribute], metadata: Attribute | None = None) -> Attribute:
    return unchecked(FusedLoc, locations=ArrayAttr(parts), metadata=metadata or NOTHING)


def _parts_of(value: FusedLoc) -> tuple[Attribute, ...]:
    return cast("ArrayAttr[Attribute]", value.locations).data


def _has_metadata(value: FusedLoc) -> bool:
    return not isinstance(value.metadata, NoneAttr)


def _numbers(value: Any) -> tuple[int, ...]:
    return tuple(part.data for part in value)


def _stride(value: int) -> int | None:
    return None if value == DYNAMIC else value


def _stride_of(value: Attribute) -> int:
    return value.data if isinstance(value, IntAttr) else DYNAMIC


ATTRIBUTES = (
    Form(0, ArrayAttr, (ELEMENTS,), lambda a: (a.data,), ArrayAttr),
    Form(1, DictionaryAttr, (ENTRIES,), lambda a: (a.data,), DictionaryAttr),
    Form(2, StringAttr, (ANY_TEXT,), lambda a: (a.data,), _same),
    Form(2, BytesAttr, (ANY_TEXT,), lambda a: (a.data.decode("utf-8", "surrogateescape"),), _same),
    Form(3, TypedStringAttr, (TEXT, TYPE), lambda a: (a.text.data, a.type),
         lambda text, kind: TypedStringAttr(StringAttr(text), kind)),
    Form(4, SymbolRefAttr, (STRING,), lambda a: (a.root_reference,), _symbol,
         lambda a: not a.nested_references.data),
    Form(5, SymbolRefAttr, (STRING, many(SYMBOL)), _nested, _symbol),
    Form(6, TypeAttribute, (TYPE,), _itself, _same),
    constant(7, UnitAttr()),
    Form(8, IntegerAttr, (INTEGER,), _itself, _same),
    Form(9, FloatAttr, (FLOAT,), _itself, _same),
    Form(9, BitsFloatAttr, (FLOAT,), _itself, _same),
    Form(10, CallSiteLoc, (LOCATION, LOCATION), lambda a: (a.callee, a.caller),
         lambda callee, caller: unchecked(CallSiteLoc, callee=callee, caller=caller)),
    Form(11, FileLineColLoc, (STRING, VARINT, VARINT), lambda a: (a.filename, a.line.data, a.column.data),
         lambda filename, line, column: FileLineColLoc(filename, IntAttr(line), IntAttr(column))),
    Form(12, FusedLoc, (many(LOCATION),), lambda a: (_parts_of(a),), _fused, lambda a: not _has_metadata(a)),
    Form(13, FusedLoc, (many(LOCATION), ATTRIBUTE), lambda a: (_parts_of(a), a.metadata), _fused),
    Form(14, NameLoc, (STRING, LOCATION),
         lambda a: (a.desc, UnknownLoc() if isinstance(a.location, NoneAttr) else a.location), _named),
    constant(15, UnknownLoc()),
    Form(16, DenseResourceAttr, (TYPE, HANDLE), lambda a: (a.type, ("builtin", a.resource_handle.data)),
         lambda kind, handle: DenseResourceAttr(StringAttr(handle[1]), kind)),
    Form(17, DenseArrayBase, (dense.ARRAY,), _itself, _same),
    Form(18, DenseIntOrFPElementsAttr, (dense.DENSE,), _itself, _same),
    Form(18, RawDenseAttr, (dense.RAW_DENSE,), _itself, _same),
    Form(19, DenseStringsAttr, (dense.STRINGS,), _itself, _same),
    Form(20, SparseAttr, (TYPE, NUMBERS, TENSOR), lambda a: (a.type, a.indices, a.values), SparseAttr),
    Form(21, DistinctAttr, (DISTINCT,), lambda a: (a.referenced,), _same, unique=True),
    Form(22, FileRangeLoc, (STRING, many(VARINT)), lambda a: (a.filename, _numbers(a.places)), _file_location),
    Form(11, FileRangeLoc, (STRING, VARINT, VARINT), lambda a: (a.filename, *_numbers(a.places)[:2]), _same),
    Form(23, AffineMapAttr, (affine.MAP,), lambda a: (a.data,), AffineMapAttr),
    Form(24, AffineSetAttr, (affine.SET,), lambda a: (a.data,), AffineSetAttr),
    Form(25, StridedLayoutAttr, (SIGNED, many(SIGNED)),
         lambda a: (_stride_of(a.offset), [_stride_of(s) for s in a.strides.data]),
         lambda offset, strides: StridedLayoutAttr([_stride(s) for s in strides], _stride(offset))),
)  # fmt: skip
"""LLVM 16 reads the codes 0 to 16, later versions read 17 to 20 too, LLVM 22 also 21 and 22, LLVM 24 all."""
