"""Machine against flat inference: when their tensors agree.

Integers are equal or wrong; where a float op stands upstream, they equal what the flat kernel computes from the
machine's own inputs. Floats stay within a bound in units of the last place, of the flat kernel on the same inputs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from tpusim.inference import replay
from tpusim.ir.module import Model
from tpusim.verify.compare import Comparison, TensorResult, compare
from tpusim.verify.tolerances import local_vs_tpu

FLOAT_BOUND_ULPS = 256
"""Largest difference of a float tensor between machine and flat kernel on the same inputs, in units of the last place
of the tensor's largest magnitude. Both round f32 products and sums in their own order; the longest sums of the zoo have
25,088 terms, whose rounding errors add up to about sqrt(25,088) = 158 half units."""

FRACTION_BITS = {"float32": 23, "float16": 10, "bfloat16": 7}
NARROW_BOUND_ULPS = 1
"""The same for 16-bit floats: two f32 results that differ by less than half a unit round to neighbours at most."""

MASK = 1e30
"""Magnitudes from here on mask values (-1e30, f32's lowest), they do not come from sums."""


def compare_local(
    tpu: Model,
    sample: Mapping[str, np.ndarray],
    machine: Mapping[str, np.ndarray],
    flat: Mapping[str, np.ndarray],
    *,
    with_qtable: bool = False,
    excepts: Iterable[str] = (),
    upstream_sampling: bool = False,
) -> Comparison:
    """The machine's tensors against flat inference, by the rule of "bit-exact" (architecture section 5).

    tpu: the lowered module; sample: network inputs; machine, flat: tensors by name; excepts, upstream_sampling: as
    `compare` takes them.
    """
    own = replay(tpu, {**sample, **machine})
    reference = {name: own.get(name, flat[name]) for name in machine if name in flat}
    found = compare(
        machine,
        reference,
        local_vs_tpu(with_qtable=with_qtable),
        label="local_vs_tpu",
        excepts=excepts,
        upstream_sampling=upstream_sampling,
    )
    tensors = tuple(_bounded(t, machine[t.name], reference[t.name]) for t in found.tensors)
    return replace(found, tensors=tensors)


def _bounded(result: TensorResult, machine: np.ndarray, flat: np.ndarray) -> TensorResult:
    """Fail a float tensor that differs by more than FLOAT_BOUND_ULPS."""
    if machine.dtype.kind in "iu" or result.bit_exact:
        return result
    ulps = largest_ulps(machine.astype(np.float64), flat.astype(np.float32), FRACTION_BITS[machine.dtype.name])
    bound = FLOAT_BOUND_ULPS if machine.dtype == np.float32 else NARROW_BOUND_ULPS
    if ulps <= bound:
        return result
    return replace(result, passed=False, note=f"differs by {ulps:.0f} ulp, the bound is {bound}")


def largest_ulps(machine: np.ndarray, flat: np.ndarray, fraction_bits: int) -> float:
    """The largest difference in units of the last place of the tensor's largest magnitude.

    NaN equals NaN and an infinity itself; either is infinitely far from a number. What masks values (1e30 and more) is
    no magnitude of the others: it has its own unit.
    """
    size = np.abs(flat)
    largest = size.max(initial=np.float32(0.0), where=size < MASK)
    unit = float(np.spacing(largest)) * 2.0 ** (FRACTION_BITS["float32"] - fraction_bits)
    units = np.where(size < MASK, unit, size.astype(np.float64) * 2.0**-fraction_bits)
    with np.errstate(invalid="ignore"):
        ulps = np.abs(machine - flat) / units
    same = (machine == flat) | (np.isnan(machine) & np.isnan(flat))
    return float(np.where(same, 0.0, np.nan_to_num(ulps, nan=np.inf, posinf=np.inf)).max(initial=0.0))
