"""The types of the builtin dialect by code."""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AffineMapAttr,
    ArrayAttr,
    BFloat16Type,
    BoolAttr,
    ComplexType,
    Float4E2M1FNType,
    Float6E2M3FNType,
    Float6E3M2FNType,
    Float8E3M4Type,
    Float8E4M3B11FNUZType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E4M3Type,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    Float80Type,
    Float128Type,
    FloatTF32Type,
    FunctionType,
    IndexType,
    IntegerType,
    MemRefType,
    NoneAttr,
    NoneType,
    Signedness,
    StridedLayoutAttr,
    TensorType,
    TupleType,
    UnrankedMemRefType,
    UnrankedTensorType,
    VectorType,
)
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineMap

from tpusim.ir.bytecode.cursor import Cursor
from tpusim.ir.bytecode.forms import (
    ATTRIBUTE,
    BOOL,
    SIGNED,
    TYPE,
    VARINT,
    Codec,
    Form,
    Output,
    Tables,
    attribute_of,
    constant,
    many,
)
from tpusim.ir.bytecode.numbers import WIDEST

DYNAMIC = -(1 << 63)
"""`?` as an extent, stride or offset."""
SIGNS = (Signedness.SIGNLESS, Signedness.SIGNED, Signedness.UNSIGNED)


def _read_integer(cursor: Cursor, _: Tables) -> Attribute:
    head = cursor.varint()
    width, sign = head >> 2, head & 3
    if sign >= len(SIGNS) or width > WIDEST:
        cursor.fail(f"an integer type of at most {WIDEST:,} bits and sign 0 to 2 is required, got {width:,} and {sign}")
    return IntegerType(width, SIGNS[sign])


def _integer_head(value: IntegerType) -> int:
    return value.width.data << 2 | SIGNS.index(value.signedness.data)


INTEGER = Codec(_read_integer, lambda value, out: VARINT.write(_integer_head(value), out))


def _read_extent(cursor: Cursor, _: Tables) -> int:
    value = cursor.signed()
    if value < 0 and value != DYNAMIC:
        cursor.fail(f"an extent of 0 or more is required, got {value:,}")
    return DYNAMIC_INDEX if value == DYNAMIC else value


EXTENT = Codec(_read_extent, lambda value, out: SIGNED.write(DYNAMIC if value == DYNAMIC_INDEX else value, out))
SHAPE = many(EXTENT)
LAYOUT = attribute_of(AffineMapAttr, StridedLayoutAttr)


def _shape(value: Any) -> tuple[int, ...]:
    return value.get_shape()


def _bare(value: Any) -> bool:
    """Whether a tensor has no encoding."""
    return isinstance(value.encoding, NoneAttr)


def _spaceless(value: Any) -> bool:
    """Whether a memref says no memory space."""
    return isinstance(value.memory_space, NoneAttr)


def _layout_of(value: MemRefType[Attribute]) -> Attribute:
    return (
        AffineMapAttr(AffineMap.identity(value.get_num_dims())) if isinstance(value.layout, NoneAttr) else value.layout
    )


def _memref(shape: list[int], element: Attribute, layout: Any, space: Attribute | None = None) -> Attribute:
    if isinstance(layout, AffineMapAttr) and layout.data == AffineMap.identity(len(shape)):
        layout = NoneAttr()
    return MemRefType(element, shape, layout, space or NoneAttr())


def _scalable(value: VectorType[Attribute]) -> tuple[bool, ...]:
    return tuple(bool(dim.value.data) for dim in value.scalable_dims.data)


def _read_scalable(cursor: Cursor, tables: Tables) -> tuple[list[bool], list[int]]:
    """The flags and extents of a vector. LLVM 16 writes how many of the last dimensions are scalable, no flags."""
    count = cursor.count("dimensions")
    if count and cursor.position < cursor.end and cursor.data[cursor.position] > 1:
        shape = SHAPE.read(cursor, tables)
        return [index >= len(shape) - count for index in range(len(shape))], shape
    return [cursor.boolean() for _ in range(count)], SHAPE.read(cursor, tables)


def _write_scalable(value: tuple[Sequence[bool], Sequence[int]], out: Output) -> None:
    many(BOOL).write(value[0], out)
    SHAPE.write(value[1], out)


SCALABLE = Codec(_read_scalable, _write_scalable)


def _vector(flags: list[bool], shape: list[int], element: Attribute) -> Attribute:
    if len(flags) != len(shape):
        raise ValueError(f"a flag for each of {len(shape)} dimensions, got {len(flags)}")
    return VectorType(element, shape, ArrayAttr(map(BoolAttr.from_bool, flags)))


TYPES = (
    Form(0, IntegerType, (INTEGER,), lambda t: (t,), lambda t: t),
    constant(1, IndexType()),
    Form(2, FunctionType, (many(TYPE), many(TYPE)), lambda t: (t.inputs.data, t.outputs.data), FunctionType.from_lists),
    constant(3, BFloat16Type()),
    constant(4, Float16Type()),
    constant(5, Float32Type()),
    constant(6, Float64Type()),
    constant(7, Float80Type()),
    constant(8, Float128Type()),
    Form(9, ComplexType, (TYPE,), lambda t: (t.element_type,), ComplexType),
    Form(10, MemRefType, (SHAPE, TYPE, LAYOUT), lambda t: (_shape(t), t.element_type, _layout_of(t)), _memref,
         _spaceless),
    Form(11, MemRefType, (ATTRIBUTE, SHAPE, TYPE, LAYOUT),
         lambda t: (t.memory_space, _shape(t), t.element_type, _layout_of(t)),
         lambda space, shape, element, layout: _memref(shape, element, layout, space)),
    constant(12, NoneType()),
    Form(13, TensorType, (SHAPE, TYPE), lambda t: (_shape(t), t.element_type),
         lambda shape, element: TensorType(element, shape), _bare),
    Form(14, TensorType, (ATTRIBUTE, SHAPE, TYPE), lambda t: (t.encoding, _shape(t), t.element_type),
         lambda encoding, shape, element: TensorType(element, shape, encoding)),
    Form(15, TupleType, (many(TYPE),), lambda t: (t.types.data,), lambda types: TupleType(types)),
    Form(16, UnrankedMemRefType, (TYPE,), lambda t: (t.element_type,), UnrankedMemRefType.from_type, _spaceless),
    Form(17, UnrankedMemRefType, (ATTRIBUTE, TYPE), lambda t: (t.memory_space, t.element_type),
         lambda space, element: UnrankedMemRefType(element, space)),
    Form(18, UnrankedTensorType, (TYPE,), lambda t: (t.element_type,), UnrankedTensorType),
    Form(19, VectorType, (SHAPE, TYPE), lambda t: (_shape(t), t.element_type),
         lambda shape, element: VectorType(element, shape), lambda t: not any(_scalable(t))),
    Form(20, VectorType, (SCALABLE, TYPE), lambda t: ((_scalable(t), _shape(t)), t.element_type),
         lambda parts, element: _vector(parts[0], parts[1], element)),
    constant(21, FloatTF32Type()),
    constant(22, Float8E5M2Type()),
    constant(23, Float8E4M3Type()),
    constant(24, Float8E4M3FNType()),
    constant(25, Float8E5M2FNUZType()),
    constant(26, Float8E4M3FNUZType()),
    constant(27, Float8E4M3B11FNUZType()),
    constant(28, Float8E3M4Type()),
    constant(29, Float4E2M1FNType()),
    constant(30, Float6E2M3FNType()),
    constant(31, Float6E3M2FNType()),
    constant(32, Float8E8M0FNUType()),
)  # fmt: skip
"""Codes 0 to 20 are read by every MLIR, 21 to 32 from LLVM 24."""
