"""Builtin attributes and quant types of MLIR that xDSL and `tpusim.ir.types` have no class for.

They print as MLIR prints them and travel through bytecode unchanged. None is used by the stages.
"""

from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    FloatData,
    IntAttr,
    IntegerType,
    NoneAttr,
    StringAttr,
)
from xdsl.ir import Attribute, BuiltinAttribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.printer import Printer

from tpusim.ir.types import float_text

SUB_CHANNEL = "quant.uniform with a scale for each block"


def kind_of(value: Attribute) -> str:
    """The name of an attribute or type in `Release.lacks`: as in MLIR, or SUB_CHANNEL, which shares it with others."""
    return SUB_CHANNEL if isinstance(value, SubChannelType) else value.name


def _print_typed(printer: Printer, kind: Attribute) -> None:
    printer.print_string(" : ")
    printer.print_attribute(kind)


@irdl_attr_definition
class TypedStringAttr(ParametrizedAttribute, BuiltinAttribute):
    """A string that has a type: `"text" : i32`."""

    name = "builtin.typed_string"
    text: StringAttr
    type: Attribute

    def print_builtin(self, printer: Printer) -> None:
        """Print as MLIR does."""
        printer.print_attribute(self.text)
        _print_typed(printer, self.type)


@irdl_attr_definition
class BitsFloatAttr(ParametrizedAttribute, BuiltinAttribute):
    """A float that no Python float equals: of 80 or 128 bits, or a NaN with a payload. bits: as an integer."""

    name = "builtin.bits_float"
    bits: IntAttr
    type: Attribute

    def print_builtin(self, printer: Printer) -> None:
        """Print the bits in hexadecimal, as MLIR does."""
        printer.print_string(f"0x{self.bits.data:X}")
        _print_typed(printer, self.type)


@irdl_attr_definition
class DistinctAttr(ParametrizedAttribute, BuiltinAttribute):
    """An attribute that equals no other: `distinct[number]<attribute>`."""

    name = "builtin.distinct"
    number: IntAttr
    referenced: Attribute

    def print_builtin(self, printer: Printer) -> None:
        """Print as MLIR does."""
        printer.print_string(f"distinct[{self.number.data}]<")
        printer.print_attribute(self.referenced)
        printer.print_string(">")


@irdl_attr_definition
class FileRangeLoc(ParametrizedAttribute, BuiltinAttribute):
    """A place in a file with an end: `"file":1:2 to 3:4`. places: line, column, end line if it differs, end column."""

    name = "builtin.file_range_loc"
    filename: StringAttr
    places: ArrayAttr[IntAttr]

    def print_builtin(self, printer: Printer) -> None:
        """Print as MLIR does."""
        line, column, *lines, end = (place.data for place in self.places)
        with printer.in_location():
            printer.print_attribute(self.filename)
            printer.print_string(f":{line}:{column} to {lines[0] if lines else ''}:{end}")


@irdl_attr_definition
class DenseStringsAttr(ParametrizedAttribute, BuiltinAttribute):
    """A tensor or vector of strings, one of them if all are equal: `dense<["a", "b"]> : tensor<2x!foo.text>`."""

    name = "builtin.dense_strings"
    type: Attribute
    texts: ArrayAttr[StringAttr]

    def print_builtin(self, printer: Printer) -> None:
        """Print as MLIR does."""
        shape = cast("tuple[int, ...]", self.type.get_shape())  # type: ignore[attr-defined]
        texts = list(self.texts.data)
        printer.print_string("dense<")
        if len(texts) == 1:
            printer.print_attribute(texts[0])
        elif texts:
            _print_nested(printer, texts, shape)
        printer.print_string(">")
        _print_typed(printer, self.type)


def _print_nested(printer: Printer, values: list[StringAttr], shape: tuple[int, ...]) -> None:
    step = max(len(values) // shape[0], 1)
    with printer.in_square_brackets():
        if len(shape) > 1:
            parts = [values[i : i + step] for i in range(0, len(values), step)]
            printer.print_list(parts, lambda part: _print_nested(printer, part, shape[1:]))
        else:
            printer.print_list(values, printer.print_attribute)


@irdl_attr_definition
class RawDenseAttr(ParametrizedAttribute, BuiltinAttribute):
    """A tensor of an element type that xDSL cannot unpack (i128, f80 ...), as MLIR stores it; one element if all are
    equal.
    """

    name = "builtin.raw_dense"
    type: Attribute
    data: BytesAttr

    def print_builtin(self, printer: Printer) -> None:
        """Print the bytes in hexadecimal, as MLIR prints long tensors."""
        printer.print_string(f'dense<"0x{self.data.data.hex().upper()}">')
        _print_typed(printer, self.type)


@irdl_attr_definition
class SparseAttr(ParametrizedAttribute, BuiltinAttribute):
    """A tensor given by some of its elements: `sparse<[[0, 1]], 5> : tensor<2x3xi32>`."""

    name = "builtin.sparse"
    type: Attribute
    indices: Attribute
    values: Attribute

    def print_builtin(self, printer: Printer) -> None:
        """Print as MLIR does."""
        parts = (_literal(self.indices), _literal(self.values))
        printer.print_string(f"sparse<{', '.join(filter(None, parts))}>")
        _print_typed(printer, self.type)


def _literal(tensor: Attribute) -> str:
    """What stands in the brackets of a dense attribute."""
    text = str(tensor)
    return text[text.index("<") + 1 : text.rindex("> :")]


class _Ranged(ParametrizedAttribute, TypeAttribute):
    """What the quant types below share: a storage type with a range of values."""

    def print_storage(self, printer: Printer, storage: IntegerType, low: int, high: int, signed: bool) -> None:
        """Print `i8`, or `i8<-127:127>` for a narrower range."""
        bits = storage.width.data
        widest = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        limits = "" if (low, high) == widest else f"<{low}:{high}>"
        printer.print_string(f"<{'i' if signed else 'u'}{bits}{limits}")


@irdl_attr_definition
class AnyQuantType(_Ranged):
    """`!quant.any<i8<-16:15>:f32>`: a stored integer whose scale is not known. flags: 1 if it is signed."""

    name = "quant.any"
    flags: IntAttr
    storage: IntegerType
    expressed: Attribute
    minimum: IntAttr
    maximum: IntAttr

    def print_parameters(self, printer: Printer) -> None:
        """Print as MLIR does."""
        self.print_storage(printer, self.storage, self.minimum.data, self.maximum.data, bool(self.flags.data & 1))
        if not isinstance(self.expressed, NoneAttr):
            printer.print_string(":")
            printer.print_attribute(self.expressed)
        printer.print_string(">")


@irdl_attr_definition
class RangedUniformType(_Ranged):
    """`!quant.uniform` whose stored values have a narrower range than their bits: `<i8<-127:127>:f32, 0.5>`.

    axis: -1 if one scale is for the whole tensor.
    """

    name = "quant.uniform"
    flags: IntAttr
    storage: IntegerType
    expressed: Attribute
    minimum: IntAttr
    maximum: IntAttr
    axis: IntAttr
    scales: ArrayAttr[FloatData]
    zero_points: ArrayAttr[IntAttr]

    def print_parameters(self, printer: Printer) -> None:
        """Print as MLIR does."""
        self.print_storage(printer, self.storage, self.minimum.data, self.maximum.data, bool(self.flags.data & 1))
        printer.print_string(":")
        printer.print_attribute(self.expressed)
        pairs = zip(self.scales.data, self.zero_points.data, strict=True)
        listed = ",".join(_scale_text(scale.data, zero.data) for scale, zero in pairs)
        axis = self.axis.data
        printer.print_string(f", {listed}>" if axis < 0 else f":{axis}, {{{listed}}}>")


def _scale_text(scale: float, zero: int) -> str:
    return f"{float_text(scale)}{f':{zero}' if zero else ''}"


@irdl_attr_definition
class SubChannelType(_Ranged):
    """`!quant.uniform` with a scale for each block of some axes: `<i8:f32:{0:1,1:2}, {{2.0:120, 3.0}}>`."""

    name = "quant.uniform"
    flags: IntAttr
    storage: IntegerType
    expressed: Attribute
    minimum: IntAttr
    maximum: IntAttr
    axes: ArrayAttr[IntAttr]
    block_sizes: ArrayAttr[IntAttr]
    scales: DenseIntOrFPElementsAttr
    zero_points: DenseIntOrFPElementsAttr

    def print_parameters(self, printer: Printer) -> None:
        """Print as MLIR does."""
        self.print_storage(printer, self.storage, self.minimum.data, self.maximum.data, bool(self.flags.data & 1))
        printer.print_string(":")
        printer.print_attribute(self.expressed)
        blocks = zip(self.axes.data, self.block_sizes.data, strict=True)
        printer.print_string(f":{{{','.join(f'{axis.data}:{size.data}' for axis, size in blocks)}}}, ")
        shape = self.scales.get_shape()
        count = 1
        for extent in shape:
            count *= extent
        scales, zeros = list(self.scales.get_values()), list(self.zero_points.get_values())
        scales, zeros = scales * (count // len(scales)), zeros * (count // len(zeros))
        pairs = zip(cast("list[float]", scales), cast("list[int]", zeros), strict=True)
        printer.print_string(f"{_braced([_scale_text(*pair) for pair in pairs], shape)}>")


def _braced(items: list[str], shape: tuple[int, ...]) -> str:
    if len(shape) < 2:
        return f"{{{', '.join(items)}}}"
    step = len(items) // shape[0]
    return f"{{{', '.join(_braced(items[i : i + step], shape[1:]) for i in range(0, len(items), step))}}}"
