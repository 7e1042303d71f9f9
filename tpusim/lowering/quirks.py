"""Upstream's quirks that tpusim reproduces, by name, and may be told not to (docs/spec/numerics.md 17.2, DN-02)."""

from collections.abc import Sequence

from tpusim.errors import ConfigError

QUIRKS: dict[str, str] = {
    "uint8_filter_zp_zero": "the zero-point term of the bias is lost with an unsigned filter; off: it is subtracted",
    "matmul_transposed_zp_index": "the zero-point term sums a transposed weight as if it were K x N; off: its columns",
    "deconv_scale_recomputed": "the requant scale of Deconv ignores given weight scales; off: it uses them",
    "avgpool_full_kernel": "integer averages that leave padding out are over the kernel, or count it; off: in float",
    "resize_steps_of_sizes": "linear Resize steps by input over output size; off: by the scales that the model gives",
    "mulshift_without_relu": "the relu behind a product with a number is lost; off: a MulConst has it",
    "extreme_without_zero_point": "max and min with a number leave the zero point out of it; off: it is added",
    "asymmetric_max_on_bm1684": "Max and Min of BM1684 have a zero point, which only casts read; off: none",
    "attention_mask_bytes": "attention leaves out what has another byte in the mask than 0, whatever its zero point; "
    "off: than the zero point",
    "asymmetric_bools": "with zero points a bool counts as 1/255 of its range where an op takes it; off: as 1",
    "where_const_no_round_mode": "constants of Where are rounded half away from zero; off: half up, as requants",
    "where_raw_bytes": "Where selects the bytes of branches whose scale is not the result's; off: it runs in float",
    "frames_without_zero_point": "tables of fused preprocessing leave the zero point out of it; off: it is added",
    "instance_norm_on_host": "the host divides mean and variance by the first weight, and leaves out the others; off: "
    "every channel is multiplied by its own",
    "round_half_away": "halves of Round go away from zero; off: to the even integer, as ONNX says",
}
"""What each does, and what happens with it switched off."""


def checked(names: Sequence[str]) -> frozenset[str]:
    """The names. Raises ConfigError for one that is no quirk."""
    unknown = sorted(set(names) - set(QUIRKS))
    if unknown:
        raise ConfigError(f"quirks_off: {', '.join(unknown)} is no quirk; expected some of {', '.join(QUIRKS)}")
    return frozenset(names)
