"""The mode attributes of the tpu dialect, in the text form of U-96: `#tpu<rq_mode MultiplierShift>` (TpuOps.td)."""

from xdsl.dialects.utils import EnumAttribute
from xdsl.ir import SpacedOpaqueSyntaxAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.utils.str_enum import StrEnum


class RequantMode(StrEnum):
    """How integers are scaled (numerics.md 6)."""

    MULTIPLIER_SHIFT = "MultiplierShift"
    ONLY_SHIFT = "OnlyShift"
    QDM = "QDM"


class RoundMode(StrEnum):
    """How a number becomes an integer (numerics.md 4.1)."""

    HALF_AWAY_FROM_ZERO = "HalfAwayFromZero"
    HALF_UP = "HalfUp"


class PoolMode(StrEnum):
    """What a pool computes (numerics.md 9.6)."""

    AVG = "Avg"
    MAX = "Max"


class LutMode(StrEnum):
    """How a BF16 table is read (numerics.md 10)."""

    SLOPE = "Slope"
    MANTISSA = "Mantissa"
    LOG = "Log"


class ResizeMode(StrEnum):
    """How a resize computes an element from its neighbours."""

    NEAREST = "nearest"
    LINEAR = "linear"


class ResizeCoordinates(StrEnum):
    """Which place of the input an element of a resize is at (numerics.md 11.4)."""

    ALIGN_CORNERS = "align_corners"
    HALF_PIXEL = "half_pixel"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"
    ASYMMETRIC = "asymmetric"


class ActiveMode(StrEnum):
    """The function that a `tpu.Active` computes; TPU-MLIR does not have the last five."""

    TANH = "TANH"
    SIGMOID = "SIGMOID"
    RELU = "RELU"
    EXP = "EXP"
    ELU = "ELU"
    SQRT = "SQRT"
    SQUARE = "SQUARE"
    RSQRT = "RSQRT"
    ABSVAL = "ABSVAL"
    LN = "LN"
    ROUND = "ROUND"
    CEIL = "CEIL"
    FLOOR = "FLOOR"
    SIN = "SIN"
    COS = "COS"
    IS_FINITE = "IS_FINITE"
    MISH = "MISH"
    SWISH = "SWISH"
    HSWISH = "HSWISH"
    SILU = "SILU"
    ARCSIN = "ARCSIN"
    ARCCOS = "ARCCOS"
    ARCSINH = "ARCSINH"
    ARCCOSH = "ARCCOSH"
    ARCTANH = "ARCTANH"
    SINH = "SINH"
    COSH = "COSH"
    TAN = "TAN"
    SIGN = "SIGN"
    GELU = "GELU"
    ERF = "ERF"
    HSIGMOID = "HSIGMOID"
    LOG_SIGMOID = "LOG_SIGMOID"
    SOFT_PLUS = "SOFT_PLUS"
    SOFT_SIGN = "SOFT_SIGN"
    LOG2 = "LOG2"
    TGELU = "TGELU"
    QGELU = "QGELU"
    POW = "POW"
    RECIPROCAL = "RECIPROCAL"
    ARCTAN = "ARCTAN"
    TRUNC = "TRUNC"
    ROUND_EVEN = "ROUND_EVEN"


class PaddingMode(StrEnum):
    """Which values a pad adds."""

    CONSTANT = "constant"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"
    EDGE = "edge"


@irdl_attr_definition
class RequantModeAttr(EnumAttribute[RequantMode], SpacedOpaqueSyntaxAttribute):
    """A requant mode, written `#tpu<rq_mode MultiplierShift>`."""

    name = "tpu.rq_mode"


@irdl_attr_definition
class RoundModeAttr(EnumAttribute[RoundMode], SpacedOpaqueSyntaxAttribute):
    """A rounding mode, written `#tpu<round_mode HalfUp>`."""

    name = "tpu.round_mode"


@irdl_attr_definition
class PoolModeAttr(EnumAttribute[PoolMode], SpacedOpaqueSyntaxAttribute):
    """A pooling mode, written `#tpu<pool_mode Max>`."""

    name = "tpu.pool_mode"


@irdl_attr_definition
class LutModeAttr(EnumAttribute[LutMode], SpacedOpaqueSyntaxAttribute):
    """A mode of lookup tables, written `#tpu<lut_mode Slope>`."""

    name = "tpu.lut_mode"


@irdl_attr_definition
class ResizeModeAttr(EnumAttribute[ResizeMode], SpacedOpaqueSyntaxAttribute):
    """A mode of resizing, written `#tpu<mode linear>`."""

    name = "tpu.mode"


@irdl_attr_definition
class ResizeCoordinatesAttr(EnumAttribute[ResizeCoordinates], SpacedOpaqueSyntaxAttribute):
    """Coordinates of a resize, written `#tpu<coord_mode half_pixel>`."""

    name = "tpu.coord_mode"


@irdl_attr_definition
class ActiveModeAttr(EnumAttribute[ActiveMode], SpacedOpaqueSyntaxAttribute):
    """A function, written `#tpu<active_mode EXP>`."""

    name = "tpu.active_mode"


@irdl_attr_definition
class PaddingModeAttr(EnumAttribute[PaddingMode], SpacedOpaqueSyntaxAttribute):
    """A mode of padding, written `#tpu<Pad_Mode constant>`."""

    name = "tpu.Pad_Mode"


MODE_ATTRIBUTES = (
    RequantModeAttr,
    RoundModeAttr,
    PoolModeAttr,
    LutModeAttr,
    ResizeModeAttr,
    ResizeCoordinatesAttr,
    ActiveModeAttr,
    PaddingModeAttr,
)
"""All of them, for the dialect."""


def requant_mode(mode: str) -> RequantModeAttr:
    """The value of the attribute `quant_mode`."""
    return RequantModeAttr(RequantMode(mode))


def round_mode(mode: str) -> RoundModeAttr:
    """The value of the attributes `round_mode` and `first_round_mode`."""
    return RoundModeAttr(RoundMode(mode))


def pool_mode(mode: str) -> PoolModeAttr:
    """The value of the attribute `pool_mode`."""
    return PoolModeAttr(PoolMode(mode))


def lut_mode(mode: str) -> LutModeAttr:
    """The value of the attribute `lut_mode`."""
    return LutModeAttr(LutMode(mode))
