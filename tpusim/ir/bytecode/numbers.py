"""Integers and floats of a known type: their bits in the file and the values that attributes have."""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

import struct
from typing import Any, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    Float80Type,
    Float128Type,
    FloatAttr,
    IndexType,
    IntAttr,
    IntegerAttr,
    IntegerType,
    Signedness,
)
from xdsl.ir import Attribute

from tpusim.ir.attrs import int_attr
from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.forms import Codec, Output, Tables, unchecked
from tpusim.ir.bytecode.missing import BitsFloatAttr
from tpusim.ir.bytecode.varints import WORD, signed, varint

INDEX_BITS = 64
WIDEST = (1 << 24) - 1
"""Bits of MLIR's widest integer."""


def width_of(kind: Attribute) -> int:
    """Bits of an integer or index type. Raises TypeError for another."""
    if type(kind) is IntegerType:
        return kind.width.data
    if isinstance(kind, IndexType):
        return INDEX_BITS
    raise TypeError(f"an integer type is required, got {kind}")


def is_unsigned(kind: Attribute) -> bool:
    """Whether an integer type is unsigned."""
    return isinstance(kind, IntegerType) and kind.signedness.data is Signedness.UNSIGNED


def read_bits(cursor: Cursor, width: int) -> int:
    """The bits of an integer of `width` bits, as an unsigned number."""
    if width <= 8:
        return cursor.byte() & ((1 << width) - 1)
    if width <= 64:
        return cursor.signed() & ((1 << width) - 1)
    words = cursor.count("words")
    if words > (width + 63) // 64:
        cursor.fail(f"at most {(width + 63) // 64} words are required for {width} bits, got {words:,}")
    parts = (cursor.signed() & (WORD - 1) for _ in range(words))
    found = int.from_bytes(b"".join(part.to_bytes(8, "little") for part in parts), "little")
    return found & ((1 << width) - 1) if 64 * words > width else found


def encoded_bits(bits: int, width: int) -> bytes:
    """An integer of `width` bits, given as an unsigned number."""
    if width <= 8:
        return bytes((bits,))
    if width <= 64:
        return signed(bits if width < 64 else to_signed(bits, width))
    words = max((bits.bit_length() + 63) // 64, 1)
    parts = (to_signed(bits >> (64 * word) & (WORD - 1), 64) for word in range(words))
    return varint(words) + b"".join(map(signed, parts))


def to_signed(bits: int, width: int) -> int:
    """The two's complement number of `width` bits."""
    return bits - (1 << width) if width and bits >> (width - 1) else bits


def _read_integer(cursor: Cursor, tables: Tables) -> Attribute:
    kind = tables.type(cursor)
    width = width_of(kind)
    bits = read_bits(cursor, width)
    return integer(kind, bits if is_unsigned(kind) else to_signed(bits, width))


def integer(kind: Attribute, value: int) -> Attribute:
    """The integer attribute of a type; i64 ones are shared."""
    if isinstance(kind, IntegerType) and kind.width.data == 64 and kind.signedness.data is Signedness.SIGNLESS:
        return int_attr(value)
    return unchecked(IntegerAttr, value=IntAttr(value), type=kind)


def _write_integer(value: Any, out: Output) -> None:
    width = width_of(value.type)
    out.type(value.type)
    out.raw(encoded_bits(value.value.data & ((1 << width) - 1), width))


INTEGER = Codec(_read_integer, _write_integer)


def float_from_bits(kind: Attribute, bits: int) -> Attribute:
    """The float attribute of these bits: of a Python float if that gives the same bits again.

    xDSL cannot print floats of 80 and 128 bits: they are kept as bits too.
    """
    if not isinstance(kind, Float80Type | Float128Type):
        size = cast("Any", kind).compile_time_size
        value = cast("Any", kind).unpack(bits.to_bytes(size, "little"), 1)[0]
        if bits_of_float(value, kind) == bits:
            return FloatAttr(value, cast("AnyFloat", kind))
    return BitsFloatAttr(IntAttr(bits), kind)


def bits_of_float(value: float, kind: Attribute) -> int:
    """The bits of a float of a type, rounded as the type rounds."""
    if isinstance(kind, Float80Type | Float128Type):
        return _to_wide(value, *_WIDE[type(kind)])
    return int.from_bytes(cast("Any", kind).pack([value]), "little")


_WIDE: dict[type, tuple[int, bool]] = {Float80Type: (63, True), Float128Type: (112, False)}
"""Bits of the fraction, and whether a bit for the integer part is stored; exponents have 15 bits."""
_BIAS, _EXPONENT, _FRACTION = 16383, 0x7FFF, 52


def _to_wide(value: float, fraction: int, stored_one: bool) -> int:
    """The bits of a Python float in a wider format; exact."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    sign, exponent, mantissa = bits >> 63, bits >> _FRACTION & 0x7FF, bits & ((1 << _FRACTION) - 1)
    one = 1
    if exponent == 0x7FF:
        exponent = _EXPONENT
    elif exponent:
        exponent += _BIAS - 1023
    elif mantissa:
        shift = _FRACTION + 1 - mantissa.bit_length()
        mantissa, exponent = (mantissa << shift) & ((1 << _FRACTION) - 1), _BIAS - 1022 - shift
    else:
        one = 0
    mantissa <<= fraction - _FRACTION
    head = exponent << 1 | one if stored_one else exponent
    return (sign << 15 + stored_one | head) << fraction | mantissa


def _read_float(cursor: Cursor, tables: Tables) -> Attribute:
    kind = tables.type(cursor)
    if not isinstance(kind, AnyFloat):
        cursor.fail(f"a float type is required, got {kind}")
    return float_from_bits(kind, read_bits(cursor, cast("Any", kind).bitwidth))


def _write_float(value: Any, out: Output) -> None:
    out.type(value.type)
    bits = value.bits.data if isinstance(value, BitsFloatAttr) else bits_of_float(value.value.data, value.type)
    out.raw(encoded_bits(bits, cast("Any", value.type).bitwidth))


FLOAT = Codec(_read_float, _write_float)
