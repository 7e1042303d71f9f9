"""Element types of quantised tensors and tensors with a global-memory address.

`!quant.calibrated<f32<min:max>>` carries a calibrated range, `!quant.uniform<i8:f32, scale:zero>` a stored integer type
(spec/numerics.md 2); `tensor<1x32x100x100xf32, 4295618560 : i64>` carries the address in the encoding.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias, cast

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
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

AnyTensor: TypeAlias = TensorType[Attribute]


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
        """A calibrated f32 type."""
        return cls(f32, FloatData(minimum), FloatData(maximum))

    @property
    def range(self) -> tuple[float, float]:
        """(min, max)."""
        return self.minimum.data, self.maximum.data

    def verify(self) -> None:
        """The range is finite and not inverted."""
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise VerifyException(f"quant.calibrated requires finite min <= max, got <{low}:{high}>")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """`<f32<min:max>>`."""
        with parser.in_angle_brackets():
            expressed = parser.parse_type()
            with parser.in_angle_brackets():
                low = _parse_float(parser)
                parser.parse_punctuation(":")
                high = _parse_float(parser)
        return expressed, FloatData(low), FloatData(high)

    def print_parameters(self, printer: Printer) -> None:
        """As parsed."""
        printer.print_string("<")
        printer.print_attribute(self.expressed)
        printer.print_string(f"<{float_text(self.minimum.data)}:{float_text(self.maximum.data)}>>")


@irdl_attr_definition
class UniformType(ParametrizedAttribute, TypeAttribute):
    """`!quant.uniform<i8:f32, s:z>`: stored integer q stands for s * (q - z); `u8` storage is unsigned."""

    name = "quant.uniform"

    storage: IntegerType
    expressed: Attribute
    scale: FloatData
    zero_point: IntegerAttr

    @classmethod
    def of(cls, scale: float, zero_point: int = 0, *, signed: bool = True, bits: int = 8) -> "UniformType":
        """A uniform type over f32 with `bits` of storage."""
        signedness = Signedness.SIGNED if signed else Signedness.UNSIGNED
        return cls(IntegerType(bits, signedness), f32, FloatData(scale), IntegerAttr(zero_point, 64))

    @property
    def signed(self) -> bool:
        """Whether the storage is signed."""
        return self.storage.signedness.data is not Signedness.UNSIGNED

    def verify(self) -> None:
        """The scale is finite and positive, the zero point representable."""
        bits = self.storage.width.data
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if self.signed else (0, (1 << bits) - 1)
        if not (math.isfinite(self.scale.data) and self.scale.data > 0):
            raise VerifyException(f"quant.uniform requires a positive finite scale, got {self.scale.data}")
        if not low <= self.zero_point.value.data <= high:
            raise VerifyException(
                f"quant.uniform requires a zero point in [{low}, {high}], got {self.zero_point.value.data}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        """`<i8:f32, scale[:zero]>`."""
        with parser.in_angle_brackets():
            start = parser.pos
            word = parser.parse_identifier("storage type")
            if word[:1] not in "iu" or word[1:] not in ("4", "8", "16", "32"):
                parser.raise_error("quant.uniform requires a storage type such as i8 or u8", start)
            parser.parse_punctuation(":")
            expressed = parser.parse_type()
            parser.parse_punctuation(",")
            scale = _parse_float(parser)
            zero = parser.parse_integer() if parser.parse_optional_punctuation(":") else 0
        signedness = Signedness.UNSIGNED if word[0] == "u" else Signedness.SIGNED
        return IntegerType(int(word[1:]), signedness), expressed, FloatData(scale), IntegerAttr(zero, 64)

    def print_parameters(self, printer: Printer) -> None:
        """As parsed; a zero point of 0 is left out, as MLIR does."""
        printer.print_string(f"<{'i' if self.signed else 'u'}{self.storage.width.data}:")
        printer.print_attribute(self.expressed)
        zero = self.zero_point.value.data
        printer.print_string(f", {float_text(self.scale.data)}{f':{zero}' if zero else ''}>")


Quant = Dialect("quant", [], [CalibratedType, UniformType])

_FLOATS: dict[type, type] = {Float32Type: np.float32, Float16Type: np.float16, BFloat16Type: ml_dtypes.bfloat16}


def tensor(shape: Sequence[int], element: Attribute = f32, address: int | None = None) -> AnyTensor:
    """`tensor<shape x element [, address : i64]>`."""
    encoding = NoneAttr() if address is None else IntegerAttr(address, 64)
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
    floats = {np.dtype(np.float32): f32, np.dtype(np.float16): f16, np.dtype(ml_dtypes.bfloat16): bf16}
    if dtype in floats:
        return floats[dtype]
    if dtype == np.int32:
        return i32
    if dtype.kind in "iu":
        signedness = Signedness.UNSIGNED if dtype.kind == "u" else Signedness.SIGNLESS
        return IntegerType(dtype.itemsize * 8, signedness)
    raise TypeError(f"no element type for NumPy dtype {dtype}")


def storage_dtype(element: Attribute) -> np.dtype:
    """The NumPy dtype that stores an element type (a calibrated type is stored as its expressed float)."""
    if isinstance(element, CalibratedType):
        return storage_dtype(element.expressed)
    if isinstance(element, UniformType):
        element = element.storage
    if isinstance(element, IntegerType):
        integer = cast("IntegerType[int, Signedness]", element)
        sign = "u" if integer.signedness.data is Signedness.UNSIGNED else "i"
        return np.dtype(f"{sign}{integer.width.data // 8}")
    if type(element) in _FLOATS:
        return np.dtype(_FLOATS[type(element)])
    raise TypeError(f"no storage for element type {element}")


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
    "element_from_dtype", "element_of", "float_text", "is_tensor", "result_of", "retyped", "set_type", "shape_of",
    "storage_dtype", "tensor", "tensor_of", "uniform_of",
]  # fmt: skip
