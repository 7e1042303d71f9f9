"""Elements of tensors: from MLIR's raw buffers to the bytes that xDSL's attributes hold, and back.

MLIR packs i1 eight to a byte, stores any other integer in whole bytes without its sign, and stores one element where
all are equal. xDSL stores every element, signed, in the bytes of the next struct format.
"""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    ComplexType,
    DenseArrayBase,
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    MemRefType,
    StringAttr,
    TensorType,
    VectorType,
)
from xdsl.ir import Attribute

from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.forms import Codec, Output, Tables
from tpusim.ir.bytecode.missing import DenseStringsAttr, RawDenseAttr
from tpusim.ir.bytecode.numbers import is_unsigned, width_of
from tpusim.ir.bytecode.varints import varint

SHAPED = TensorType | VectorType | MemRefType


def stored_bytes(element: Attribute) -> int:
    """Bytes of an element in MLIR's buffer; 1 for an i1, eight of which share a byte."""
    if isinstance(element, ComplexType):
        return 2 * stored_bytes(cast("Attribute", element.element_type))
    bits = width_of(element) if isinstance(element, IntegerType | IndexType) else cast("Any", element).bitwidth
    return (bits + 7) // 8


def _unpackable_bytes(element: Attribute) -> int:
    """Bytes of an element in xDSL's attribute, 0 if it cannot hold it."""
    try:
        return cast("Any", element).compile_time_size
    except NotImplementedError:
        return 0


def _elements(cursor: Cursor, kind: Attribute) -> tuple[Attribute, int]:
    """Element type and number of elements of a shaped type. Refuses other types and unknown extents."""
    if not isinstance(kind, SHAPED) or any(extent < 0 for extent in kind.get_shape()):
        cursor.fail(f"a tensor, vector or memref type of known extents is required, got {kind}")
    return cast("Attribute", kind.get_element_type()), prod(kind.get_shape())


def _read_dense(cursor: Cursor, tables: Tables) -> Attribute:
    kind = tables.type(cursor)
    element, count = _elements(cursor, kind)
    raw = bytes(cursor.blob())
    size = stored_bytes(element)
    if _is_bit(element):
        raw, size = _unpacked_bits(cursor, raw, count), 1
    if len(raw) not in (size * count, size) or (not count and raw):
        cursor.fail(f"{count:,} elements of {size} bytes are required, got {len(raw):,} bytes")
    held = _unpackable_bytes(element)
    if not held:
        return RawDenseAttr(kind, BytesAttr(raw))
    raw = _extended(raw, element, size, held)
    if len(raw) < held * count and tables.spend(held * count):
        raw *= count
    return DenseIntOrFPElementsAttr(cast("Any", kind), BytesAttr(raw))


def _is_bit(element: Attribute) -> bool:
    return isinstance(element, IntegerType) and width_of(element) == 1


def _unpacked_bits(cursor: Cursor, raw: bytes, count: int) -> bytes:
    """Bits of i1 elements as bytes of 0 or 1; one of them for a splat."""
    if len(raw) == 1 and count > 8 and raw[0] in (0, 0xFF):
        return bytes((raw[0] & 1,))
    if len(raw) != (count + 7) // 8:
        cursor.fail(f"{count:,} bits are required, got {len(raw):,} bytes")
    return np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[:count].tobytes()


def _extended(raw: bytes, element: Attribute, size: int, held: int) -> bytes:
    """Integers of odd widths as xDSL holds them: with their sign, in `held` bytes."""
    width = width_of(element) if isinstance(element, IntegerType) else 0
    if width == 8 * held or not width or not raw:
        return raw
    signed = not is_unsigned(element)
    words = np.zeros((len(raw) // size, 8), np.uint8)
    words[:, :size] = np.frombuffer(raw, np.uint8).reshape(-1, size)
    values = words.view(np.int64).reshape(-1) & ((1 << width) - 1)
    if signed:
        values = (values ^ (1 << (width - 1))) - (1 << (width - 1))
    return values.astype(np.dtype(f"<i{held}")).tobytes()


def _narrowed(data: bytes, element: Attribute, size: int, held: int) -> bytes:
    """The reverse of `_extended`."""
    width = width_of(element) if isinstance(element, IntegerType) else 0
    if width == 8 * held or not width:
        return data
    values = np.frombuffer(data, np.dtype(f"<i{held}")).astype(np.int64) & ((1 << width) - 1)
    return values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :size].tobytes()


def _write_dense(value: DenseIntOrFPElementsAttr, out: Output) -> None:
    element, count = cast("Attribute", value.get_element_type()), prod(value.get_shape())
    held = _unpackable_bytes(element)
    data = value.data.data
    if count > 1 and data[:held] * (len(data) // held) == data:
        data = data[:held]
    raw = _narrowed(data, element, stored_bytes(element), held)
    if _is_bit(element):
        splat = len(data) < count
        raw = (
            bytes((0xFF * raw[0],)) if splat else np.packbits(np.frombuffer(raw, np.uint8), bitorder="little").tobytes()
        )
    out.type(value.type)
    out.raw(varint(len(raw)) + raw)


DENSE = Codec(_read_dense, _write_dense)


def _write_raw(value: RawDenseAttr, out: Output) -> None:
    out.type(value.type)
    out.raw(varint(len(value.data.data)) + value.data.data)


RAW_DENSE = Codec(_read_dense, _write_raw)


def _read_array(cursor: Cursor, tables: Tables) -> Attribute:
    kind = cast("Any", tables.type(cursor))
    count, data = cursor.varint(), bytes(cursor.blob())
    if count * kind.size != len(data):
        cursor.fail(f"{count:,} elements of {kind} are required, got {len(data):,} bytes")
    if _is_bit(kind):
        data = bytes(0xFF * (byte & 1) for byte in data)
    return DenseArrayBase(kind, BytesAttr(data))


def _write_array(value: DenseArrayBase, out: Output) -> None:
    kind, data = cast("Attribute", value.elt_type), value.data.data
    if _is_bit(kind):
        data = bytes(byte & 1 for byte in data)
    out.type(kind)
    out.raw(varint(len(value)) + varint(len(data)) + data)


ARRAY = Codec(_read_array, _write_array)


def _read_strings(cursor: Cursor, tables: Tables) -> Attribute:
    kind = tables.type(cursor)
    _, count = _elements(cursor, kind)
    splat = cursor.varint()
    if splat > 1:
        cursor.fail(f"a mark of equal strings of 0 or 1 is required, got {splat}")
    number = 1 if splat else count
    if number > cursor.end - cursor.position:
        cursor.fail(f"{number:,} strings are announced, {cursor.end - cursor.position:,} bytes are left")
    texts = [StringAttr(tables.text(cursor)) for _ in range(number)]
    return DenseStringsAttr(kind, ArrayAttr(texts))


def _write_strings(value: DenseStringsAttr, out: Output) -> None:
    count = prod(cast("Any", value.type).get_shape())
    out.type(value.type)
    out.raw(varint(int(len(value.texts) == 1 and count != 0)))
    for text in value.texts:
        out.text(text.data)


STRINGS = Codec(_read_strings, _write_strings)
