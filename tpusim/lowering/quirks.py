"""Upstream's quirks that tpusim reproduces, by name, and may be told not to (spec/numerics.md 17.2, DN-02)."""

from collections.abc import Sequence

from tpusim.errors import ConfigError

QUIRKS: dict[str, str] = {
    "uint8_filter_zp_zero": "the zero-point term of the bias is lost with an unsigned filter; off: it is subtracted",
    "matmul_transposed_zp_index": "the zero-point term sums a transposed weight as if it were K x N; off: its columns",
    "deconv_scale_recomputed": "the requant scale of Deconv ignores given weight scales; off: it uses them",
    "avgpool_full_kernel": "integer averages that leave padding out are scaled by kh*kw; off: they run in float",
    "resize_steps_of_sizes": "linear Resize steps by input over output size; off: by the scales that the model gives",
    "where_const_no_round_mode": "constants of Where are rounded half away from zero; off: half up, as requants",
    "round_half_away": "halves of Round go away from zero; off: to the even integer, as ONNX says",
}
"""What each does, and what happens with it switched off."""


def checked(names: Sequence[str]) -> frozenset[str]:
    """The names. Raises ConfigError for one that is no quirk."""
    unknown = sorted(set(names) - set(QUIRKS))
    if unknown:
        raise ConfigError(f"quirks_off: {', '.join(unknown)} is no quirk; expected some of {', '.join(QUIRKS)}")
    return frozenset(names)
