"""Upstream's quirks that tpusim reproduces, by name, and may be told not to (docs/spec/numerics.md 17.2, DN-02)."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Self

from tpusim.errors import ConfigError


class Quirk(StrEnum):
    """A quirk by the name that options and decisions have for it; `effect`: what it does, and what happens without."""

    effect: str

    def __new__(cls, name: str, effect: str) -> Self:
        """The text of a member is its name."""
        member = str.__new__(cls, name)
        member._value_, member.effect = name, effect
        return member

    UINT8_FILTER_ZP_ZERO = (
        "uint8_filter_zp_zero",
        "the zero-point term of the bias is lost with an unsigned filter; off: it is subtracted",
    )
    MATMUL_TRANSPOSED_ZP_INDEX = (
        "matmul_transposed_zp_index",
        "the zero-point term sums a transposed weight as if it were K x N; off: its columns",
    )
    DECONV_SCALE_RECOMPUTED = (
        "deconv_scale_recomputed",
        "the requant scale of Deconv ignores given weight scales; off: it uses them",
    )
    AVGPOOL_FULL_KERNEL = (
        "avgpool_full_kernel",
        "integer averages that leave padding out are over the kernel, or count it; off: in float",
    )
    RESIZE_STEPS_OF_SIZES = (
        "resize_steps_of_sizes",
        "linear Resize steps by input over output size; off: by the scales that the model gives",
    )
    MULSHIFT_WITHOUT_RELU = (
        "mulshift_without_relu",
        "the relu behind a product with a number is lost; off: a MulConst has it",
    )
    EXTREME_WITHOUT_ZERO_POINT = (
        "extreme_without_zero_point",
        "max and min with a number leave the zero point out of it; off: it is added",
    )
    ASYMMETRIC_MAX_ON_BM1684 = (
        "asymmetric_max_on_bm1684",
        "Max and Min of BM1684 have a zero point, which only casts read; off: none",
    )
    ATTENTION_MASK_BYTES = (
        "attention_mask_bytes",
        "attention leaves out what has another byte in the mask than 0, whatever its zero point; "
        "off: than the zero point",
    )
    ASYMMETRIC_BOOLS = (
        "asymmetric_bools",
        "with zero points a bool counts as 1/255 of its range where an op takes it; off: as 1",
    )
    WHERE_CONST_NO_ROUND_MODE = (
        "where_const_no_round_mode",
        "constants of Where are rounded half away from zero; off: half up, as requants",
    )
    WHERE_RAW_BYTES = (
        "where_raw_bytes",
        "Where selects the bytes of branches whose scale is not the result's; off: it runs in float",
    )
    FRAMES_WITHOUT_ZERO_POINT = (
        "frames_without_zero_point",
        "tables of fused preprocessing leave the zero point out of it; off: it is added",
    )
    INSTANCE_NORM_ON_HOST = (
        "instance_norm_on_host",
        "the host divides mean and variance by the first weight, and leaves out the others; off: "
        "every channel is multiplied by its own",
    )
    ROUND_HALF_AWAY = "round_half_away", "halves of Round go away from zero; off: to the even integer, as ONNX says"

    @property
    def decision(self) -> str:
        """The name under which an op that follows it is marked."""
        return f"DN-02 {self}"


def checked(names: Sequence[str]) -> frozenset[Quirk]:
    """The quirks of these names. Raises ConfigError for a name that is none."""
    unknown = sorted(set(names) - set(Quirk))
    if unknown:
        raise ConfigError(f"quirks_off: {', '.join(unknown)} is no quirk; expected some of {', '.join(Quirk)}")
    return frozenset(map(Quirk, names))
