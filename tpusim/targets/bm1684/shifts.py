"""The right shift and the 7-bit multiplier of this family; the shift is chosen first (numerics.md 5.4)."""

from tpusim_kernels.prim.multiplier import multiplier_of_shift, right_shift_fit


def shift_first(s_in: float, s_out: float, factor: float = 1.0) -> tuple[int, int]:
    """(m, r) of factor*s_in/s_out; above 127 r is 0 and m saturates (U-53)."""
    r = max(right_shift_fit(factor, s_in, s_out)[1], 0)
    return multiplier(r, s_in, s_out, factor), r


def multiplier(r: int, s_in: float, s_out: float, factor: float = 1.0) -> int:
    """M of factor*s_in/s_out for the right shift r."""
    return multiplier_of_shift(factor, r, s_in, s_out)
