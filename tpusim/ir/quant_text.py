"""Text of quant types that are kept and not computed with: `any`, narrower ranges, and scales for blocks of axes."""

import re
from collections.abc import Callable
from math import prod
from typing import Any, cast

from xdsl.dialects.builtin import (
    AnyFloat,
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    FloatData,
    IntAttr,
    IntegerType,
    NoneAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.parser import AttrParser

from tpusim.ir.bytecode.missing import AnyQuantType, RangedUniformType, SubChannelType

KEPT = re.compile(r"<\s*[iu]\d+\s*(?:<|:[^,:>]*:\s*\{)")
"""The begin of a `!quant.uniform` with a narrower range or with blocks."""


def parse_kept(parser: AttrParser, name: str) -> ParametrizedAttribute:
    """Read the parameters of `!quant.any`, or of a `!quant.uniform` that begins like KEPT."""
    with parser.in_angle_brackets():
        head = _storage(parser)
        if name == "quant.any":
            expressed = parser.parse_type() if parser.parse_optional_punctuation(":") else NoneAttr()
            return AnyQuantType(head[0], head[1], expressed, *head[2:])
        parser.parse_punctuation(":")
        expressed, axis, blocks = parser.parse_type(), -1, list[tuple[int, int]]()
        if parser.parse_optional_punctuation(":"):
            found = parser.parse_optional_integer(allow_boolean=False, allow_negative=False)
            axis = -1 if found is None else found
            if found is None:
                blocks = parser.parse_comma_separated_list(parser.Delimiter.BRACES, lambda: _block(parser))
        parser.parse_punctuation(",")
        if blocks:
            return _sub_channel(parser, head, expressed, blocks)
        pairs = [_pair(parser)] if axis < 0 else _braced(parser, lambda: _pair(parser))
    scales, zeros = ArrayAttr(FloatData(s) for s, _ in pairs), ArrayAttr(IntAttr(z) for _, z in pairs)
    return RangedUniformType(head[0], head[1], expressed, *head[2:], IntAttr(axis), scales, zeros)


def _storage(parser: AttrParser) -> tuple[IntAttr, IntegerType, IntAttr, IntAttr]:
    """Signedness, storage type and range: `i8`, or `i8<-127:127>`."""
    start, word = parser.pos, parser.expect(parser.parse_optional_identifier, "a storage type is expected")
    if not re.fullmatch(r"[iu]([1-9]|[12]\d|3[0-2])", word, re.ASCII):
        parser.raise_error("a storage type of 1 to 32 bits such as i8 or u8 is required", start)
    bits, signed = int(word[1:]), word[0] == "i"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if parser.parse_optional_punctuation("<"):
        low = parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation(":")
        high = parser.parse_integer(allow_boolean=False)
        parser.parse_punctuation(">")
    return IntAttr(int(signed)), IntegerType(bits), IntAttr(low), IntAttr(high)


def _block(parser: AttrParser) -> tuple[int, int]:
    axis = parser.parse_integer(allow_boolean=False, allow_negative=False)
    parser.parse_punctuation(":")
    return axis, parser.parse_integer(allow_boolean=False, allow_negative=False)


def _pair(parser: AttrParser) -> tuple[float, int]:
    """Read a scale, `scale` or `scale:zero`; without one the zero point is 0."""
    scale = float(parser.parse_number(allow_boolean=False))
    return scale, parser.parse_integer() if parser.parse_optional_punctuation(":") else 0


def _braced(parser: AttrParser, item: Callable[[], Any]) -> list[Any]:
    return parser.parse_comma_separated_list(parser.Delimiter.BRACES, item)


def _sub_channel(
    parser: AttrParser, head: tuple[IntAttr, IntegerType, IntAttr, IntAttr], expressed: Attribute,
    blocks: list[tuple[int, int]],
) -> SubChannelType:  # fmt: skip
    """The type with scales in nested braces, one level for each axis of the tensor."""
    pairs, shape, depths = list[tuple[float, int]](), list[int](), set[int]()

    def level(depth: int) -> None:
        if parser.parse_optional_punctuation("{") is None:
            depths.add(depth)
            pairs.append(_pair(parser))
            return
        level(depth + 1)
        count = 1
        while parser.parse_optional_punctuation(",") is not None:
            level(depth + 1)
            count += 1
        parser.parse_punctuation("}")
        shape.extend([count] * (depth + 1 - len(shape)))
        shape[depth] = count

    start = parser.pos
    level(0)
    if prod(shape) != len(pairs) or len(depths) > 1:
        parser.raise_error("equally many scales in all braces of a level are required", start)
    axes, sizes = (ArrayAttr(map(IntAttr, part)) for part in zip(*blocks, strict=True))
    real = cast("TensorType[AnyFloat]", TensorType(expressed, shape))
    scales: DenseIntOrFPElementsAttr = DenseIntOrFPElementsAttr.from_list(real, [s for s, _ in pairs])
    zeros = DenseIntOrFPElementsAttr.from_list(TensorType(head[1], shape), [z for _, z in pairs])
    return SubChannelType(head[0], head[1], expressed, *head[2:], axes, sizes, scales, zeros)
