"""Alignment of two tensors and the measures of their similarity, as in `tensor_compare.py` (U-93).

Sums and products have upstream's dtypes, because a verdict near the tolerance depends on them: f32 for floats, the
wrapping integer type for integers. Only if they overflow in f32 (a mask of -3.4e38 squared), so that upstream's measure
is NaN or 0, f64 is used, which can represent the squares of all f32. The caller (`compare_tensors`) silences NumPy's
warnings.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tpusim.numbers.closeness import MASK

Tensor = NDArray[Any]

CLOSE_ORDERS = (5, 4, 3)
"""Decimal places tried for CLOSE, best first."""
INFINITY_STAND_IN = 10000.0
"""The value that replaces an infinity in the similarities."""
NARROW = {"bfloat16": 2.0**128 - 2.0**120, "uint16": 2.0**128 - 2.0**120, "float8_e5m2": 57344.0}
"""The largest finite number of types that NumPy lacks and that have infinities (uint16: the bits of bf16)."""


def align(target: Tensor, reference: Tensor, name: str = "") -> tuple[Tensor, Tensor, str] | None:
    """Copies of one shape and dtype, and a note if something had to be cropped; None if that is impossible."""
    if "NonMaxSuppression" in name and target.ndim and reference.ndim:
        rows = min(target.shape[0], reference.shape[0])
        target, reference = target[:rows], reference[:rows]
    note = ""
    if target.size == reference.size:
        reference = reference.reshape(target.shape)
    else:
        note = f"WARRING: not the same shape  {target.shape} v.s. {reference.shape}"
        cropped = _crop_to_smaller(target, reference)
        if cropped is None:
            return None
        target, reference = cropped
    dtype = _common_dtype(target.dtype, reference.dtype)
    return _as_values(target).astype(dtype), _as_values(reference).astype(dtype), note


def beyond_type(target: Tensor, reference: Tensor, dtype: np.dtype[Any]) -> NDArray[np.bool_] | None:
    """Where the target has an infinity or the end of its type for a number beyond the type's range; None: nowhere.

    A mask of -3.4e38 is -infinity in F16 and BF16, a mask of -1e9 is -infinity in F16; an infinity is as good a mask as
    such a number even if the type can represent it. dtype: the target's as stored, uint16 for the bits of bf16; target,
    reference: aligned. Elements that are infinite on both sides do not differ.
    """
    if dtype.kind != "f" and dtype.name not in NARROW:
        return None
    most = np.float32(_most(dtype))
    wanted, found = np.abs(reference), np.abs(target)
    past = ((wanted > most) & (found >= most)) | ((wanted >= MASK) & np.isinf(found))
    past &= (target != reference) & (np.sign(target) == np.sign(reference))
    return past if np.any(past) else None


def _most(dtype: np.dtype[Any]) -> float:
    return NARROW.get(dtype.name) or float(np.finfo(dtype).max)


def cosine_similarity(target: Tensor, reference: Tensor) -> float:
    """The cosine in f32, as 1 - (1 - c); 0 if either tensor is all zero."""
    if np.sum(np.abs(target)) == 0 or not np.any(reference):
        return 0.0
    found = _cosine(target.astype(np.float32), reference.astype(np.float32))
    return found if math.isfinite(found) else _cosine(target.astype(np.float64), reference.astype(np.float64))


def measured(target: Tensor, reference: Tensor) -> tuple[float, float, float]:
    """(cosine, euclidean similarity, norm of the reference) by three products in f32; NaN if a product overflows.

    A fast form for many tensors: within 1e-5 of `cosine_similarity` and `euclidean_similarity`.
    """
    t, r = (array.astype(np.float32, copy=False).ravel() for array in (target, reference))
    with np.errstate(all="ignore"):
        own, wanted, both = float(np.dot(t, t)), float(np.dot(r, r)), float(np.dot(t, r))
        apart = t - r
        distance, size = float(np.dot(apart, apart)), (own + wanted + 2 * both) / 4
    if not distance:
        return 1.0, 1.0, math.sqrt(wanted)
    cosine = both / math.sqrt(own * wanted) if own and wanted else 0.0
    return cosine, 1 - math.sqrt(distance) / (math.sqrt(max(size, 0.0)) + 1e-7), math.sqrt(wanted)


def _cosine(target: Tensor, reference: Tensor) -> float:
    distance = 1 - np.dot(target, reference) / (np.linalg.norm(target) * np.linalg.norm(reference))
    return float(1 - distance)


def euclidean_similarity(target: Tensor, reference: Tensor) -> float:
    """1 - |t - r| / (|(t + r) / 2| + 1e-7), squares and sums in the arrays' dtype."""
    distance, size = _distance_and_size(target, reference)
    if math.isinf(distance) or math.isinf(size):
        distance, size = _distance_and_size(target.astype(np.float64), reference.astype(np.float64))
    return 1 - distance / size


def _distance_and_size(target: Tensor, reference: Tensor) -> tuple[float, float]:
    return _root_of_squares(target - reference), _root_of_squares((target + reference) / 2) + 1e-7


def sqnr_db(target: Tensor, reference: Tensor) -> float:
    """Signal (the target!) to noise ratio of the parts without mean, in dB; infinite if either is constant."""
    signal_power, noise_power = _powers(target, reference)
    if not (np.isfinite(signal_power) and np.isfinite(noise_power)):
        signal_power, noise_power = _powers(target.astype(np.float64), reference.astype(np.float64))
    if signal_power == 0 or noise_power == 0:
        return math.inf
    return float(10 * np.log10(signal_power / noise_power))


def _powers(target: Tensor, reference: Tensor) -> tuple[Any, Any]:
    """The powers of signal and noise, both without their mean."""
    noise = target - reference
    signal_power = np.sum(np.square(target - np.sum(target) / target.size))
    return signal_power, np.sum(np.square(noise - np.sum(noise) / noise.size))


def within(target: Tensor, reference: Tensor, distance: float) -> bool:
    """Whether |t - r| <= distance everywhere; NaN and infinities equal themselves."""
    return bool(np.allclose(target, reference, rtol=0.0, atol=distance, equal_nan=True))


def close_order(target: Tensor, reference: Tensor) -> int | None:
    """The first k of 5, 4, 3 with |t - r| <= 1e-8 + 10^-k |r| everywhere (NaN equal to NaN), or None."""
    for order in CLOSE_ORDERS:
        if np.allclose(target, reference, rtol=10**-order, atol=1e-8, equal_nan=True):
            return order
    return None


def without_non_finite(values: Tensor) -> Tensor:
    """NaN as 0 and infinities as 10000 with their sign, as the similarities see them."""
    if values.dtype.kind != "f":
        return values
    return np.nan_to_num(values, nan=0.0, posinf=INFINITY_STAND_IN, neginf=-INFINITY_STAND_IN)


def is_bit_exact(target: Tensor, reference: Tensor) -> bool:
    """Whether dtype, shape and every bit agree (so a NaN equals itself, and -0.0 is not 0.0)."""
    if target.dtype != reference.dtype or target.shape != reference.shape:
        return False
    return np.array_equal(_bytes(target), _bytes(reference))


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a stored tensor holds integers or bools; uint16 does not, it holds bf16 bit patterns."""
    if dtype == np.uint16:
        return False
    return dtype.kind in "iub" or dtype.name in ("int4", "uint4")


def _root_of_squares(values: Tensor) -> float:
    total = float(np.sum(np.power(values, 2)))
    return math.sqrt(total) if total >= 0 else math.nan  # integer squares may have wrapped


def _crop_to_smaller(target: Tensor, reference: Tensor) -> tuple[Tensor, Tensor] | None:
    if target.ndim != reference.ndim:
        return None
    pairs = list(zip(target.shape, reference.shape, strict=True))
    if not (all(t >= r for t, r in pairs) or all(t <= r for t, r in pairs)):
        return None
    corner = tuple(slice(0, min(pair)) for pair in pairs)
    return target[corner], reference[corner]


def _common_dtype(target: np.dtype[Any], reference: np.dtype[Any]) -> np.dtype[Any]:
    for dtype in (np.int8, np.int32):
        if dtype in (target, reference):
            return np.dtype(dtype)
    return np.dtype(np.float32)


def _as_values(stored: Tensor) -> Tensor:
    if stored.dtype != np.uint16:
        return stored
    return (stored.astype(np.uint32) << 16).view(np.float32)


def _bytes(values: Tensor) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
