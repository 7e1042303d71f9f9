"""The types of the quant dialect by code. Storage is a signless integer; a flag says whether it is signed."""

# xDSL's generic classes are known in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from math import prod
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatData,
    IntAttr,
    IntegerAttr,
    IntegerType,
    NoneAttr,
    Signedness,
)  # fmt: skip
from xdsl.ir import Attribute

from tpusim.ir.bytecode.forms import DOUBLE, SIGNED, TYPE, VARINT, Form, attribute_of, many
from tpusim.ir.bytecode.missing import AnyQuantType, RangedUniformType, SubChannelType
from tpusim.ir.types import CalibratedType, UniformType

NUMBERS = attribute_of(DenseIntOrFPElementsAttr)
NO_AXIS = -1


def _any(flags: int, storage: IntegerType, expressed: Attribute, low: int, high: int) -> Attribute:
    return AnyQuantType(IntAttr(flags), storage, expressed, IntAttr(low), IntAttr(high))


def _range(value: Any) -> tuple[int, int]:
    return value.minimum.data, value.maximum.data


def _calibrated(expressed: Attribute, low: float, high: float) -> Attribute:
    return CalibratedType(expressed, FloatData(low), FloatData(high))


def _uniform(
    flags: int, storage: Attribute, expressed: Attribute, limits: tuple[int, int], axis: int, scales: list[float],
    zeros: list[int],
) -> Attribute:  # fmt: skip
    """The uniform type of our quant dialect, or the one with a narrower range."""
    if not isinstance(storage, IntegerType) or not 1 <= storage.width.data <= 32:
        raise TypeError(f"a storage type of 1 to 32 bits is required, got {storage}")
    bits, signed = storage.width.data, bool(flags & 1)
    factors = ArrayAttr(map(FloatData, scales))
    if limits != ((-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)):
        return RangedUniformType(
            IntAttr(flags), storage, expressed, IntAttr(limits[0]), IntAttr(limits[1]), IntAttr(axis), factors,
            ArrayAttr(map(IntAttr, zeros)),
        )  # fmt: skip
    stored = IntegerType(bits, Signedness.SIGNED if signed else Signedness.UNSIGNED)
    where = NoneAttr() if axis == NO_AXIS else IntegerAttr(axis, 64)
    return UniformType(stored, expressed, factors, ArrayAttr(IntegerAttr(zero, 64) for zero in zeros), where)


def _of_tensor(flags: int, storage: Attribute, expressed: Attribute, scale: float, zero: int, low: int, high: int):  # noqa: ANN202
    return _uniform(flags, storage, expressed, (low, high), NO_AXIS, [scale], [zero])


def _of_axis(flags: int, storage: Attribute, expressed: Attribute, axis: int, low: int, high: int,
             scales: list[float], zeros: list[int]) -> Attribute:  # fmt: skip
    return _uniform(flags, storage, expressed, (low, high), axis, scales, zeros)


def _head(value: Any) -> tuple[int, Attribute, Attribute]:
    if isinstance(value, UniformType):
        return int(value.signed), IntegerType(value.storage.width.data), value.expressed
    return value.flags.data, value.storage, value.expressed


def _limits(value: Any) -> tuple[int, int]:
    return value.params.limits if isinstance(value, UniformType) else _range(value)


def _scales(value: Any) -> tuple[list[float], list[int]]:
    if isinstance(value, UniformType):
        return list(value.params.scales), list(value.params.zero_points)
    return [scale.data for scale in value.scales], [zero.data for zero in value.zero_points]


def _axis(value: Any) -> int:
    if isinstance(value, UniformType):
        return NO_AXIS if value.params.axis is None else value.params.axis
    return value.axis.data


def _parts_of_tensor(value: Any) -> tuple[Any, ...]:
    (scale,), (zero,) = _scales(value)
    return *_head(value), scale, zero, *_limits(value)


def _parts_of_axis(value: Any) -> tuple[Any, ...]:
    return *_head(value), _axis(value), *_limits(value), *_scales(value)


def _without_axis(value: Any) -> bool:
    return _axis(value) == NO_AXIS


def _blocks(value: SubChannelType) -> tuple[Any, ...]:
    axes, sizes = ([part.data for part in parts] for parts in (value.axes, value.block_sizes))
    return *_head(value), *_range(value), axes, sizes, value.scales, value.zero_points


def _of_blocks(flags: int, storage: IntegerType, expressed: Attribute, low: int, high: int, axes: list[int],
               sizes: list[int], scales: Any, zeros: Any) -> Attribute:  # fmt: skip
    count = prod(scales.get_shape())
    if not count or len(scales) != count or len(zeros) != prod(zeros.get_shape()):
        raise ValueError(f"a scale and a zero point for each block are required, got {len(scales):,} of {count:,}")
    return SubChannelType(
        IntAttr(flags), storage, expressed, IntAttr(low), IntAttr(high), ArrayAttr(map(IntAttr, axes)),
        ArrayAttr(map(IntAttr, sizes)), scales, zeros,
    )  # fmt: skip


HEAD = (VARINT, TYPE, TYPE)
OF_TENSOR, OF_AXIS = (
    (*HEAD, DOUBLE, SIGNED, SIGNED, SIGNED),
    (*HEAD, VARINT, SIGNED, SIGNED, many(DOUBLE), many(SIGNED)),
)

TYPES = (
    Form(1, AnyQuantType, (VARINT, TYPE, SIGNED, SIGNED), lambda t: (t.flags.data, t.storage, *_range(t)),
         lambda flags, storage, low, high: _any(flags, storage, NoneAttr(), low, high),
         lambda t: isinstance(t.expressed, NoneAttr)),
    Form(2, AnyQuantType, (*HEAD, SIGNED, SIGNED), lambda t: (*_head(t), *_range(t)), _any),
    Form(3, CalibratedType, (TYPE, DOUBLE, DOUBLE), lambda t: (t.expressed, *t.range), _calibrated),
    Form(4, UniformType, OF_TENSOR, _parts_of_tensor, _of_tensor, _without_axis),
    Form(5, UniformType, OF_AXIS, _parts_of_axis, _of_axis),
    Form(4, RangedUniformType, OF_TENSOR, _parts_of_tensor, _of_tensor, _without_axis),
    Form(5, RangedUniformType, OF_AXIS, _parts_of_axis, _of_axis),
    Form(6, SubChannelType, (*HEAD, SIGNED, SIGNED, many(SIGNED), many(SIGNED), NUMBERS, NUMBERS), _blocks, _of_blocks),
)  # fmt: skip
