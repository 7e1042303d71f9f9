"""Number formats as values: what a mode is, in one place.

A mode (`--mode`, `LoweringConfig.mode`, a line of a quantisation table, `tpusim.compile(mode=...)`) is the name of a
`NumberFormat`, or such a value itself. Everything that depends on the mode asks the value; a user's format is a
value of this class with the lowering methods of the ops that have one, handed over in place of a name:

    W4A8 = NumberFormat("w4a8", "w4", weight="i4", fallback=("integer",), unit="int8", methods={"top.MatMul": lower_w4})
    tpusim.compile(model, samples, mode=W4A8)

A package may give one a name (`tpusim.registry.FORMATS`). Source: docs/spec/numerics.md 2.1, 2.2, 7.1, 12 and 14.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from tpusim.errors import ConfigError, meant
from tpusim.registry import FORMATS

UnitName = Literal["int8", "f32", "f16", "bf16", "f8e5m2"]
"""The modes in which a chip computes, as a type."""
ModeName = Literal["int8", "f32", "f16", "bf16", "w4f16", "w4bf16", "w8f16", "w8bf16", "w4int8", "f8e5m2"]
"""The names of the formats that ship, as a type."""
Granularity = Literal["tensor", "channel", "group"]
LoweringMethod: TypeAlias = Callable[[Any, Any], Any]
"""(top op, LoweringContext) -> the value that stands for the result, or why the op declines, as text."""
NO_METHODS: Mapping[str, LoweringMethod] = MappingProxyType({})


@dataclass(frozen=True)
class NumberFormat:
    """How numbers are stored and computed.

    name: as `--mode` spells it. family: the lowering method of an op that it uses. activation, weight, accumulator:
    element types as MLIR spells them; a signed integer includes the unsigned integer for ranges without negative
    values. granularity: the parts of a weight that have separate scales, if the op's form has several; group_size:
    elements of a "group", 0: a whole row; symmetric: the zero point of every group is the middle of the codes.
    zero_points: whether integers have them. fallback: families that are tried in order for an op
    that has no method of `family`, or declines. unit: the chip's mode whose arithmetic it needs, by default `name`.
    methods: top op -> lowering method of `family`, in place of the op's method.
    """

    name: str
    family: str
    activation: str = "i8"
    weight: str = "i8"
    accumulator: str = "i32"
    granularity: Granularity = "tensor"
    group_size: int = 0
    symmetric: bool = False
    zero_points: bool = False
    fallback: tuple[str, ...] = ()
    unit: str = ""
    methods: Mapping[str, LoweringMethod] = field(default_factory=lambda: NO_METHODS, compare=False, repr=False)

    def __str__(self) -> str:
        """The format's name, as `--mode` takes it."""
        return self.name

    @property
    def families(self) -> tuple[str, ...]:
        """The families of lowering methods, in the order they are tried."""
        return (self.family, *self.fallback)

    @property
    def needs(self) -> str:
        """The mode a chip must have."""
        return self.unit or self.name

    @property
    def is_float(self) -> bool:
        """Whether activations are stored as floats."""
        return self.activation[:1] not in ("i", "u")

    @property
    def calibrated(self) -> bool:
        """Whether it needs calibrated ranges: integers do."""
        return not self.is_float

    @property
    def title(self) -> str:
        """The name, and whether integers have zero points."""
        return f"{self.name}-asym" if self.zero_points else self.name

    @property
    def spelling(self) -> str:
        """The name as quantisation tables write it, in capitals."""
        return self.name.upper()

    @property
    def weight_bits(self) -> int:
        """Bits of one stored weight; two weights of 4 bits share a byte."""
        return int(self.weight.lstrip("bfiu").partition("e")[0])

    @property
    def casts_as_chip(self) -> bool:
        """Whether casts from f32 round as the chip does: in formats of few bits (numerics DN-24)."""
        return self.family == "weight_only" or self.activation.startswith("f8")

    @property
    def integer_bits(self) -> int:
        """Bits of a weight in the integer lowering of an op: 8 if that is what the format falls back to."""
        return self.weight_bits if self.family == "integer" else 8


def _float_format(name: UnitName) -> NumberFormat:
    return NumberFormat(name, "float", name, name, "f32")


INT8 = NumberFormat("int8", "integer", granularity="channel", fallback=("float",))
"""8-bit integers without zero points; per channel where the op's form has a scale for each (convolutions)."""
INT8_ASYMMETRIC = replace(INT8, zero_points=True)
"""The same with zero points (`--asymmetric`)."""
W4INT8 = replace(INT8, name="w4int8", weight="i4", unit="int8")
"""INT8 with weights of 4 bits in convolutions, but not depthwise ones, and in matrix products (numerics 7.1, 14)."""
F32, F16, BF16 = _float_format("f32"), _float_format("f16"), _float_format("bf16")
F8E5M2 = _float_format("f8e5m2")
"""Floats of 8 bits with 2 bits of fraction in the ops that have them, F16 or F32 in all others (numerics 8.4)."""


def _few_bits(bits: int, of: UnitName) -> NumberFormat:
    """Weights of products in 4 or 8 bits with a scale and a zero point per group, all else in 16 bits (numerics 14)."""
    name = f"w{bits}{of}"
    return NumberFormat(name, "weight_only", of, f"u{bits}", "f32", "group", 64, fallback=("float",), unit=of)


W4F16, W4BF16, W8F16, W8BF16 = (_few_bits(bits, of) for bits in (4, 8) for of in ("f16", "bf16"))
LEAST_GROUP = 16
"""The fewest elements of a group of weights; a group is a multiple of it."""


def grouped(format: NumberFormat, group_size: int | None = None, *, symmetric: bool = False) -> NumberFormat:
    """The format with other groups of weights, if it has groups. Raises ConfigError for a wrong size, of any format."""
    has_groups = format.family == "weight_only"
    if group_size is None and not has_groups:
        return format
    size = format.group_size if group_size is None else group_size
    if size < 0 or size % LEAST_GROUP:
        raise ConfigError(
            f"groups of {size} weights ({format}): 0 for whole rows, or a multiple of {LEAST_GROUP} that divides the "
            "inner axis is required, as in 32, 64 or 128"
        )
    return replace(format, group_size=size, symmetric=symmetric or format.symmetric) if has_groups else format


_DYNAMIC = re.compile(r"(?:int|mxf|f)([48])(?:e4m3)?(b?f16)dyn")
_OTHERS = {
    "int4": "TPU-MLIR has it on bm1688 and cv186x, where its chip computes some products wrongly; nearest is w4int8",
    "f8e4m3": "TPU-MLIR has it on bm1690; nearest is f8e5m2",
    "qdq": "a network with QuantizeLinear and DequantizeLinear is read in int8",
}


def elsewhere(word: str) -> str:
    """What a mode of TPU-MLIR that is not offered is there, for the end of a message; "" for any other word.

    In dynamic modes the compiled file multiplies 16-bit activations with weights of few bits.
    """
    name = word.lower()
    if dynamic := _DYNAMIC.fullmatch(name):
        return (
            "; TPU-MLIR takes this mode, but its programs quantise no activations and read all codes as integers: what "
            f"they compute is w{dynamic[1]}{dynamic[2]}"
        )
    return f"; {_OTHERS[name]}" if name in _OTHERS else ""


def number_format(mode: str | NumberFormat, *, asymmetric: bool = False) -> NumberFormat:
    """The format of a mode, with zero points if asked for and stored as integers. Raises ConfigError for no mode.

    "w4bf16 32" is a format of weights in groups with the size of its groups, as quantisation tables list it.
    """
    if isinstance(mode, str) and " " in mode:
        name, _, size = mode.partition(" ")
        return grouped(number_format(name), int(size))
    if not isinstance(mode, NumberFormat) and mode.lower() not in FORMATS:
        raise ConfigError(
            f"mode '{mode}': one of {', '.join(FORMATS)}, or a tpusim.ir.formats.NumberFormat is required"
            f"{elsewhere(mode) or meant(mode, FORMATS)}"
        )
    found = mode if isinstance(mode, NumberFormat) else FORMATS.get(mode.lower())
    if not isinstance(found, NumberFormat):
        raise ConfigError(f"mode '{mode}': a tpusim.ir.formats.NumberFormat is required, got {type(found).__name__}")
    return replace(found, zero_points=True) if asymmetric and not found.is_float else found
