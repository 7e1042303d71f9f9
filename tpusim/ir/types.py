"""Element types of quantised tensors and tensors with a global-memory address.

`!quant.calibrated<f32<min:max>>` carries a calibrated range, `!quant.uniform<i8:f32, scale:zero>` a stored integer type
(docs/spec/numerics.md 2), `!quant.uniform<i4:f32:0, {scale:zero,...}>` one with a scale for each index of an axis;
`tensor<1x32x100x100xf32, 4295618560 : i64>` carries the address in the encoding.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias, TypeVar, cast

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    FloatData,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    Signedness,
    SignednessAttr,
    TensorType,
    bf16,
    f8E5M2,
    f16,
    f32,
    i32,
)
from xdsl.ir import Attribute, Dialect, OpResult, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from tpusim.ir.attrs import int_attr, ints_attr
from tpusim.ir.packing import PACKED_BITS, packed_shape
from tpusim.ir.quantisation import QuantParams

AnyTensor: TypeAlias = TensorType[Attribute]
Part = TypeVar("Part", bound=Attribute)


def float_text(value: float) -> str:
    """The shortest text that reads back as the same double and is an MLIR float literal (always with a dot)."""
    text = repr(float(value))
    mantissa, e, exponent = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{e}{exponent}"


def _parse_float(parser: AttrParser) -> float:
    return float(parser.parse_number(allow_boolean=False))


@irdl_attr_definition
class CalibratedType(ParametrizedAttribute, TypeAttribute):
    """`!quant.calibrated<f32<min:max>>`: a float tensor whose values were seen in [min, max]."""

    name = "quant.calibrated"

    expressed: Attribute
    minimum: FloatData
    maximum: FloatData

    @classmethod
    def of(cls, minimum: float, maximum: float) -> "CalibratedType":
        """An f32 tensor's element type with its calibrated range."""
        return cls(f32, FloatData(minimum), FloatData(maximum))

    @property
    def range(self) -> tuple[float, float]:
        """The calibrated (min, max), in real units."""
        return self.minimum.data, self.maximum.data

    def verify(self) -> None:
        """The range is finite and not inverted."""
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise VerifyException(f"quant.calibrated requires finite min <= max, got <{low}:{high}>")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read the range of a calibrated type, `<f32<min:max>>`."""
        with parser.in_angle_brackets():
            expressed = parser.parse_type()
            with parser.in_angle_brackets():
                low = _parse_float(parser)
                parser.parse_punctuation(":")
                high = _parse_float(parser)
        return expressed, FloatData(low), FloatData(high)

    def print_parameters(self, printer: Printer) -> None:
        """Print the parameters in the form that is parsed."""
        printer.print_string("<")
        printer.print_attribute(self.expressed)
        printer.print_string(f"<{float_text(self.minimum.data)}:{float_text(self.maximum.data)}>>")


@irdl_attr_definition
class UniformType(ParametrizedAttribute, TypeAttribute):
    """`!quant.uniform<i8:f32, s:z>`: stored integer q stands for s * (q - z); `u8` storage is unsigned.

    Per axis, `!quant.uniform<i8:f32:0, {s0:z0,s1:z1}>`: index i of axis 0 has the scale s_i and the zero point z_i.
    """

    name = "quant.uniform"

    storage: IntegerType
    expressed: Attribute
    scales: ArrayAttr[FloatData]
    zero_points: ArrayAttr[IntegerAttr]
    axis: IntegerAttr | NoneAttr

    @classmethod
    def of(cls, scale: float, zero_point: int = 0, *, signed: bool = True, bits: int = 8) -> "UniformType":
        """A uniform type over f32 with `bits` of storage, one scale for the whole tensor."""
        return cls.of_params(QuantParams.of(scale, zero_point, signed=signed, bits=bits))

    @classmethod
    def of_params(cls, params: QuantParams) -> "UniformType":
        """The type of a tensor with these parameters. Raises ValueError for groups, which the type cannot express."""
        if params.group_size:
            raise ValueError(f"quant.uniform has scales per tensor or axis, got groups of {params.group_size}")
        signedness = Signedness.SIGNED if params.signed else Signedness.UNSIGNED
        return cls(
            IntegerType(params.bits, signedness), f32, ArrayAttr(FloatData(s) for s in params.scales),
            ints_attr(params.zero_points),
            NoneAttr() if params.axis is None else int_attr(params.axis),
        )  # fmt: skip

    @property
    def signed(self) -> bool:
        """Whether the stored integers are signed."""
        return self.storage.signedness.data is not Signedness.UNSIGNED

    @property
    def params(self) -> QuantParams:
        """Scales, zero points, axis and storage as plain values."""
        axis = None if isinstance(self.axis, NoneAttr) else self.axis.value.data
        zeros = tuple(z.value.data for z in self.zero_points)
        return QuantParams(tuple(s.data for s in self.scales), zeros, self.signed, self.storage.width.data, axis)

    @property
    def scale(self) -> FloatData:
        """The scale of the whole tensor. Raises ValueError for a type with an axis."""
        return self._one(self.scales)

    @property
    def zero_point(self) -> IntegerAttr:
        """The zero point of the whole tensor. Raises ValueError for a type with an axis."""
        return self._one(self.zero_points)

    def _one(self, values: ArrayAttr[Part]) -> Part:
        if not isinstance(self.axis, NoneAttr):
            raise ValueError(f"a type with one scale is required, got {self}")
        return values.data[0]

    def verify(self) -> None:
        """Scales are finite and positive, zero points representable, and there are as many of both."""
        params = self.params
        low, high = params.limits
        if not params.scales or len(params.scales) != len(params.zero_points):
            raise VerifyException("quant.uniform requires a scale and a zero point for each index of its axis")
        if params.axis is None and len(params.scales) > 1:
            raise VerifyException(f"quant.uniform requires an axis for {len(params.scales)} scales")
        if params.axis is not None and params.axis < 0:
            raise VerifyException(f"quant.uniform requires an axis of 0 or more, got {params.axis}")
        for scale in params.scales:
            if not (math.isfinite(scale) and scale > 0):
                raise VerifyException(f"quant.uniform requires a positive finite scale, got {scale}")
        for zero in params.zero_points:
            if not low <= zero <= high:
                raise VerifyException(f"quant.uniform requires a zero point in [{low}, {high}], got {zero}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """Read `<i8:f32, scale[:zero]>`, or with an axis `<i8:f32:axis, {scale[:zero],...}>`."""
        axis: Attribute = NoneAttr()
        with parser.in_angle_brackets():
            start = parser.pos
            word = parser.expect(parser.parse_optional_identifier, "a storage type is expected")
            if word[:1] not in "iu" or word[1:] not in ("4", "8", "16", "32"):
                parser.raise_error("quant.uniform requires a storage type such as i8 or u8", start)
            parser.parse_punctuation(":")
            expressed = parser.parse_type()
            if parser.parse_optional_punctuation(":"):
                axis = int_attr(parser.parse_integer(allow_boolean=False, allow_negative=False))
            parser.parse_punctuation(",")
            if isinstance(axis, NoneAttr):
                pairs = [_parse_scale(parser)]
            else:
                pairs = parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: _parse_scale(parser))
        signedness = Signedness.UNSIGNED if word[0] == "u" else Signedness.SIGNED
        scales, zeros = ArrayAttr(FloatData(s) for s, _ in pairs), ints_attr(z for _, z in pairs)
        return IntegerType(int(word[1:]), signedness), expressed, scales, zeros, axis

    def print_parameters(self, printer: Printer) -> None:
        """As parsed; a zero point of 0 is left out, as MLIR does."""
        params = self.params
        pairs = zip(params.scales, params.zero_points, strict=True)
        listed = ",".join(f"{float_text(s)}{f':{z}' if z else ''}" for s, z in pairs)
        printer.print_string(f"<{'i' if params.signed else 'u'}{params.bits}:")
        printer.print_attribute(self.expressed)
        printer.print_string(f", {listed}>" if params.axis is None else f":{params.axis}, {{{listed}}}>")


def _parse_scale(parser: AttrParser) -> tuple[float, int]:
    """Read a scale and its zero point, `scale[:zero]`."""
    scale = _parse_float(parser)
    return scale, parser.parse_integer() if parser.parse_optional_punctuation(":") else 0


Quant = Dialect("quant", [], [CalibratedType, UniformType])

FLOAT_TYPES: Mapping[str, Attribute] = MappingProxyType({"f32": f32, "f16": f16, "bf16": bf16, "f8e5m2": f8E5M2})
"""The element types of floats, by the names that modes and commands give them."""
_FLOATS: dict[type, type] = {
    Float32Type: np.float32, Float16Type: np.float16, BFloat16Type: ml_dtypes.bfloat16,
    Float8E5M2Type: ml_dtypes.float8_e5m2,
}  # fmt: skip


def tensor(shape: Sequence[int], element: Attribute = f32, address: int | None = None) -> AnyTensor:
    """`tensor<shape x element [, address : i64]>`."""
    encoding = NoneAttr() if address is None else int_attr(address)
    return TensorType(element, shape, encoding)


def tensor_of(value: SSAValue) -> AnyTensor:
    """The tensor type of a value. Raises TypeError for another type (a defect, not a user error)."""
    found: Attribute = value.type
    if not isinstance(found, TensorType):
        raise TypeError(f"a tensor is required, got {found}")
    return cast("AnyTensor", found)


def is_tensor(value: SSAValue) -> bool:
    """Whether the value is a tensor (and not `none`)."""
    return isinstance(value.type, TensorType)


def shape_of(value: SSAValue) -> tuple[int, ...]:
    """The static shape of a value."""
    return tensor_of(value).get_shape()


def element_of(value: SSAValue) -> Attribute:
    """The element type of a value."""
    return tensor_of(value).element_type


def address_of(value: SSAValue) -> int | None:
    """The global-memory address in the type's encoding, None if it has none."""
    encoding = tensor_of(value).encoding
    return encoding.value.data if isinstance(encoding, IntegerAttr) else None


def calibrated_range(value: SSAValue) -> tuple[float, float] | None:
    """(min, max) of a calibrated value, else None."""
    element = element_of(value)
    return element.range if isinstance(element, CalibratedType) else None


def uniform_of(value: SSAValue) -> UniformType | None:
    """The uniform type of a quantised value, else None."""
    element = element_of(value)
    return element if isinstance(element, UniformType) else None


def element_from_dtype(dtype: np.dtype | type) -> Attribute:
    """The MLIR element type of a NumPy dtype (weights)."""
    dtype = np.dtype(dtype)
    for element in FLOAT_TYPES.values():
        if dtype == _FLOATS[type(element)]:
            return element
    if dtype == np.int32:
        return i32
    if dtype.kind in "iu":
        signedness = Signedness.UNSIGNED if dtype.kind == "u" else Signedness.SIGNLESS
        return IntegerType(dtype.itemsize * 8, signedness)
    raise TypeError(f"no element type for NumPy dtype {dtype}")


def storage_dtype(element: Attribute) -> np.dtype:
    """The NumPy dtype that holds an element type (a calibrated type as its expressed float, 4 bits as 8).

    Raises TypeError for a type without one.
    """
    if isinstance(element, CalibratedType):
        return storage_dtype(element.expressed)
    bits = storage_bits(element)
    if isinstance(element, UniformType):
        element = element.storage
    if isinstance(element, IntegerType):
        integer = cast("IntegerType[int, Signedness]", element)
        return np.dtype(f"{'u' if integer.signedness.data is Signedness.UNSIGNED else 'i'}{max(bits // 8, 1)}")
    return np.dtype(_FLOATS[type(element)])


def storage_bits(element: Attribute) -> int:
    """Bits of one stored element: 4, 8, 16, 32 or 64. Raises TypeError for a type that has no storage."""
    if isinstance(element, CalibratedType):
        return storage_bits(element.expressed)
    if (bits := _integer_bits(element)) in (PACKED_BITS, 8, 16, 32, 64):
        return bits
    if type(element) in _FLOATS:
        return np.dtype(_FLOATS[type(element)]).itemsize * 8
    raise TypeError(f"no storage for element type {element}")


def is_f8(element: Attribute) -> bool:
    """Whether an element type is a float of 8 bits."""
    return type(element) in _FLOATS and storage_bits(element) == 8  # noqa: PLR2004


def storage_element(element: Attribute) -> Attribute:
    """The element type of the stored numbers, without scale or range."""
    if isinstance(element, CalibratedType):
        return element.expressed
    if not isinstance(element, UniformType):
        return element
    signed = element.storage.signedness.data is not Signedness.UNSIGNED
    return IntegerType(storage_bits(element), Signedness.SIGNED if signed else Signedness.UNSIGNED)


def is_packed(element: Attribute) -> bool:
    """Whether two elements share a byte wherever bytes count."""
    return _integer_bits(element) == PACKED_BITS


def _integer_bits(element: Attribute) -> int:
    """Bits of an integer or quantised type, 0 for any other."""
    stored: Attribute = element.storage if isinstance(element, UniformType) else element
    return cast("IntegerType[int, Signedness]", stored).width.data if isinstance(stored, IntegerType) else 0


def stored_bytes(value: SSAValue) -> int:
    """Bytes of a tensor's elements: two elements of 4 bits per byte, rows from whole bytes on."""
    element, shape = element_of(value), shape_of(value)
    return math.prod(packed_shape(shape)) if is_packed(element) else math.prod(shape) * storage_bits(element) // 8


def element_type(name: str) -> Attribute:
    """The element type of a spelling: f32, f16, bf16, f8e5m2, i4, u4, i8, u8 ... Raises TypeError."""
    if name in FLOAT_TYPES:
        return FLOAT_TYPES[name]
    if name[:1] in ("i", "u") and name[1:].isdecimal():
        element = IntegerType(int(name[1:]), Signedness.UNSIGNED if name[0] == "u" else Signedness.SIGNLESS)
        storage_bits(element)
        return element
    raise TypeError(f"no element type is called '{name}'")


def set_type(value: SSAValue, new: Attribute) -> SSAValue:
    """Give a value a new type; returns the value that replaces it (all uses are moved)."""
    if value.type == new:
        return value
    hint = value.name_hint
    replaced = Rewriter.replace_value_with_new_type(value, new)
    replaced.name_hint = hint
    return replaced


def retyped(value: SSAValue, element: Attribute) -> AnyTensor:
    """The value's tensor type with another element type."""
    old = tensor_of(value)
    return TensorType(element, old.get_shape(), old.encoding)


def result_of(value: SSAValue) -> OpResult:
    """The value as an op result. Raises TypeError for a block argument."""
    if not isinstance(value, OpResult):
        raise TypeError("an op result is required, got a block argument")
    return value


__all__ = [
    "AnyTensor", "CalibratedType", "Quant", "SignednessAttr", "UniformType", "address_of", "calibrated_range",
    "element_from_dtype", "element_of", "element_type", "float_text", "is_packed", "is_tensor", "result_of", "retyped",
    "set_type", "shape_of", "storage_bits", "storage_dtype", "stored_bytes", "tensor", "tensor_of", "uniform_of",
]  # fmt: skip
