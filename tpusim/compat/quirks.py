"""The rules that `quirks_off` may switch off: they reach compiled constants (docs/spec/numerics.md 17.2, DN-02)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Self

from tpusim.compat.rule import Rule
from tpusim.errors import ConfigError


class Quirk(StrEnum):
    """A rule by the name that options and decisions have for it: number, name, where, what TPU-MLIR does, plain rule.

    `rule` is its row of the table. The source of all is numerics.md 17.2.
    """

    rule: Rule

    def __new__(cls, number: str, name: str, where: str, does: str, plain: str) -> Self:
        """The text of a member is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.rule = Rule(number, name, where, does, plain, "numerics.md 17.2", f"--quirks-off {name}")
        return member

    UINT8_FILTER_ZP_ZERO = (
        "U-01", "uint8_filter_zp_zero", "lowering of Conv",
        "the zero-point term of the bias is lost with an unsigned filter",
        "the term is subtracted",
    )  # fmt: skip
    MATMUL_TRANSPOSED_ZP_INDEX = (
        "U-02", "matmul_transposed_zp_index", "lowering of MatMul",
        "the zero-point term sums a transposed weight as if it were K x N",
        "it sums the weight's columns",
    )  # fmt: skip
    DECONV_SCALE_RECOMPUTED = (
        "U-03", "deconv_scale_recomputed", "lowering of Deconv",
        "the requant scale ignores given weight scales",
        "the given scales are used (no form of tpusim does yet, so that the switch changes nothing)",
    )  # fmt: skip
    AVGPOOL_FULL_KERNEL = (
        "U-04", "avgpool_full_kernel", "lowering of AvgPool",
        "integer averages that leave padding out are over the kernel, or count it",
        "the average is over what is not padding, in float",
    )  # fmt: skip
    RESIZE_STEPS_OF_SIZES = (
        "U-05", "resize_steps_of_sizes", "lowering of Interp",
        "linear Resize steps by input over output size",
        "it steps by the scales that the model gives",
    )  # fmt: skip
    MULSHIFT_WITHOUT_RELU = (
        "U-06", "mulshift_without_relu", "lowering of MulConst",
        "the relu after an integer product with a number is lost",
        "a MulConst keeps the relu",
    )  # fmt: skip
    EXTREME_WITHOUT_ZERO_POINT = (
        "U-07", "extreme_without_zero_point", "lowering of MaxConst and MinConst",
        "the zero point is left out of the number",
        "it is added",
    )  # fmt: skip
    ASYMMETRIC_MAX_ON_BM1684 = (
        "U-08", "asymmetric_max_on_bm1684", "calibrated types of Max and Min",
        "BM1684's have a zero point, which only casts read",
        "they have none",
    )  # fmt: skip
    ATTENTION_MASK_BYTES = (
        "U-09", "attention_mask_bytes", "lowering of Attention",
        "every element whose byte in the mask is not 0 is left out, whatever the mask's zero point",
        "every element whose byte is not the zero point is left out",
    )  # fmt: skip
    ASYMMETRIC_BOOLS = (
        "U-10", "asymmetric_bools", "lowering of casts",
        "with zero points a bool counts as 1/255 of its range where an op takes it",
        "it counts as 1",
    )  # fmt: skip
    WHERE_CONST_NO_ROUND_MODE = (
        "U-11", "where_const_no_round_mode", "lowering of Where",
        "constants are rounded half away from zero",
        "they are rounded half up, as requants are",
    )  # fmt: skip
    WHERE_RAW_BYTES = (
        "U-12", "where_raw_bytes", "lowering of Where",
        "the bytes of branches are selected though their scale is not the result's",
        "the op runs in float",
    )  # fmt: skip
    FRAMES_WITHOUT_ZERO_POINT = (
        "U-13", "frames_without_zero_point", "fused preprocessing",
        "the tables leave the zero point out",
        "it is added",
    )  # fmt: skip
    INSTANCE_NORM_ON_HOST = (
        "U-14", "instance_norm_on_host", "lowering of InstanceNorm on CV18xx",
        "the host divides mean and variance by the first weight, and leaves out the others",
        "every channel is multiplied by its weight",
    )  # fmt: skip
    ROUND_HALF_AWAY = (
        "U-15", "round_half_away", "lowering of Round",
        "halves go away from zero",
        "they go to the even integer, as ONNX says",
    )  # fmt: skip
    MOVED_RAW_BYTES = (
        "U-104", "moved_raw_bytes", "lowering of ops that move or choose elements",
        "bytes keep their values though their scale is not the result's",
        "they are requantised",
    )  # fmt: skip

    MASKS_IN_INTEGERS = (
        "U-100", "masks_in_integers", "lowering of ops that read masks",
        "an integer next to a mask of 6e4 or more has the mask's scale, in which the data is 0",
        "ops that make or read a mask run in float",
    )  # fmt: skip

    IMPORTER_DEFAULTS = (
        "U-102", "importer_defaults", "canonicalize",
        "Elu and LeakyRelu without alpha have 0, HardSigmoid has 1/6",
        "they have ONNX's defaults: 1, 0.01 and 0.2",
    )  # fmt: skip

    ROOT_IN_RANGE_OF_ROOT = (
        "U-108", "reciprocal_root_in_range_of_root", "lowering of Div",
        "a / sqrt(b) is the product with 1/sqrt(b), whose range in integers is that of sqrt(b)",
        "it is a quotient in float",
    )  # fmt: skip

    RESIZE_MODES = (
        "U-109", "resize_modes", "canonicalize",
        "Resize of mode cubic is linear, linear coordinates of asymmetric are half_pixel, nearest has two roundings",
        "each mode and coordinates are ONNX's, by products with constant matrices, Gathers and Upsamples",
    )  # fmt: skip

    AFFINE_OF_ONE_ELEMENT = (
        "U-120", "affine_of_one_element", "canonicalize",
        "a scale or bias of LayerNorm, PixelNorm and GroupNorm that has one element is left out, whatever its value",
        "it is left out only if it is 1 or 0",
    )  # fmt: skip

    F8_PRODUCT_WITHOUT_RELU = (
        "U-118", "f8_product_without_relu", "lowering of MatMul",
        "the relu after a matrix product in F8 is lost",
        "the product keeps the relu",
    )  # fmt: skip

    @property
    def decision(self) -> str:
        """The name under which an op that follows it is marked."""
        return f"DN-02 {self}"

    @property
    def effect(self) -> str:
        """What the quirk does, and what happens without it, in a line."""
        return f"{self.rule.does}; off: {self.rule.plain}"


def checked(names: Sequence[str]) -> frozenset[Quirk]:
    """The quirks of these names. Raises ConfigError, which lists all quirks, for a name that is none."""
    unknown = sorted(set(names) - set(Quirk))
    if unknown:
        rows = (f"  {quirk.rule.number} {quirk}: {quirk.rule.does}" for quirk in Quirk)
        raise ConfigError(f"quirks_off: {', '.join(unknown)} is no quirk; expected some of", *rows)
    return frozenset(map(Quirk, names))
