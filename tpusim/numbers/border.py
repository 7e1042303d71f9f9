"""The border of a network: users give and get the types of its framework, inside it is stored as the chip needs it."""

from typing import Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

EXACT_F32 = 2**24
"""Whole numbers up to this size are exact in f32."""


SMALL_INTEGERS = frozenset(np.dtype(t) for t in (ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4))
SMALL_FLOATS = frozenset(
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
        ml_dtypes.float4_e2m1fn,
    )
)  # fmt: skip
"""Floats of 8 and 4 bits: rounded at the border only."""


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Whether a type holds whole numbers only: integers and bools."""
    return dtype.kind in "iub" or dtype in SMALL_INTEGERS


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a type is a float, bfloat16 and smaller ones among them."""
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16 or dtype in SMALL_FLOATS


def whole_limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and the largest number of a type of whole numbers."""
    if dtype.kind == "b":
        return 0, 1
    limits = cast("Any", ml_dtypes.iinfo(dtype))
    return int(limits.min), int(limits.max)


def largest(dtype: np.dtype[Any]) -> float:
    """The largest finite number of a float type."""
    return float(cast("Any", ml_dtypes.finfo(dtype)).max)


def bits_of(dtype: np.dtype[Any]) -> int:
    """Bits of a type of integers."""
    return int(cast("Any", ml_dtypes.iinfo(dtype)).bits)


def converts(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a cast keeps the values: floats in range (they are rounded), integers exact, no fraction lost."""
    if array.dtype == dtype:
        return True
    if not (is_integer(array.dtype) or is_float(array.dtype)) or not (is_integer(dtype) or is_float(dtype)):
        return False
    if array.size == 0:
        return True
    if is_float(array.dtype) and is_float(dtype):
        real, limits = array.astype(np.float64), cast("Any", ml_dtypes.finfo(dtype))
        return bool(np.all(np.abs(real[np.isfinite(real)]) <= float(limits.max)))
    if array.dtype in SMALL_INTEGERS:
        array = array.astype(np.int8)
    low, high = float(array.min()), float(array.max())
    if not is_integer(dtype):
        return max(-low, high) <= EXACT_F32
    least, most = whole_limits(dtype)
    return least <= low and high <= most and (is_integer(array.dtype) or bool(np.all(array == np.floor(array))))


def stored(array: NDArray[Any], given: np.dtype[Any], storage: np.dtype[Any]) -> NDArray[Any]:
    """What the network holds of an input of type `given`. Raises ValueError for values that a type does not hold."""
    if not (converts(array, given) and converts(array, storage)):
        exact = f" that {storage} holds exactly (to {EXACT_F32:,})" if is_integer(given) else ""
        raise ValueError(f"{given} values{exact} are required, got {array.dtype} with other values")
    return array.astype(storage, copy=False)
