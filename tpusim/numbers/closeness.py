"""How far two floats of one tensor may be apart: one rule for `run`, `compare`, `simulate --check` and `debug --check`.

Integers are equal or wrong. Floats are measured in units of the last place of the tensor's largest magnitude: sums are
rounded in another order. Two results computed from the same operands are held closer than two that come through the
whole network, each from operands that were rounded apart already.
"""

from dataclasses import dataclass

import numpy as np

FRACTION_BITS = {"float32": 23, "float16": 10, "bfloat16": 7, "float8_e5m2": 2}
FLOAT_BOUND_ULPS = 256
"""Largest difference of an f32 tensor. Each side rounds f32 products and sums in another order; the longest sums of
the zoo have 25,088 terms, whose rounding errors add up to about sqrt(25,088) = 158 half units."""
NARROW_BOUND_ULPS = 1
"""The same for narrower floats: two f32 results that differ by less than half a unit round to neighbours at most."""
NARROW_DRIFT_ULPS = 4
"""For narrower floats, and f32 tensors of them, through a whole network. Random networks of 25 to 60 ops reach 1."""
MASK = 1e30
"""Magnitudes from here on mask values (-1e30, f32's lowest), they do not come from sums."""


@dataclass(frozen=True)
class Bound:
    """At most `ulps` units of the last place of a float with so many fraction bits."""

    fraction_bits: int
    ulps: float


def bound_of(dtype: np.dtype, *, narrowest: int | None = None) -> Bound:
    """The bound of a tensor of this type.

    narrowest: fewest fraction bits of the floats in the network, of results that come through all of it; None: both
    sides computed the tensor from the same operands.
    """
    bits = FRACTION_BITS[dtype.name]
    if narrowest is not None and narrowest < FRACTION_BITS["float32"]:
        return Bound(min(bits, narrowest), NARROW_DRIFT_ULPS)
    return Bound(bits, FLOAT_BOUND_ULPS if dtype == np.float32 else NARROW_BOUND_ULPS)


def ulps_apart(one: np.ndarray, other: np.ndarray, whole: np.ndarray, fraction_bits: int) -> np.ndarray:
    """The difference of every element in units of the last place of the largest magnitude of `whole`, as float64.

    NaN equals NaN and an infinity itself; either is infinitely far from a number. What masks values (1e30 and more) is
    no magnitude of the others: it has a separate unit.
    """
    size, wide = np.abs(other.astype(np.float32)), one.astype(np.float64)
    magnitudes = np.abs(whole.astype(np.float32))
    largest = magnitudes.max(initial=np.float32(0.0), where=magnitudes < MASK)
    unit = float(np.spacing(largest)) * 2.0 ** (FRACTION_BITS["float32"] - fraction_bits)
    units = np.where(size < MASK, unit, size.astype(np.float64) * 2.0**-fraction_bits)
    with np.errstate(invalid="ignore"):
        apart = np.abs(wide - other.astype(np.float64)) / units
        same = (wide == other) | (np.isnan(wide) & np.isnan(other))
    return np.where(same, 0.0, np.nan_to_num(apart, nan=np.inf, posinf=np.inf))
