"""The int32 accumulator of integer products (numerics.md 9.1, 9.2): what it can reach, and what it does reach.

It never wraps in this simulator (DN-03): the machine refuses a command whose sum leaves int32, and chips disagree about
what becomes of it. Whether that can happen is known from the coefficients alone.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

INT32 = np.iinfo(np.int32)


def limits_of_sums(
    filter: np.ndarray, axes: tuple[int, ...], bias: np.ndarray | None, stored: np.dtype
) -> tuple[int, int]:
    """The smallest and the largest sum of any operand of a type: products summed along `axes`, and the bias.

    filter: integers; bias: broadcasts to the sums of the filter, or None. stored: int8 or uint8, of the other operand.
    Where a rough bound is within int32 it is returned instead, for it costs nothing.
    """
    low, high = (int(end) for end in (np.iinfo(stored).min, np.iinfo(stored).max))
    term = max(-low, high) * max(-int(np.iinfo(filter.dtype).min), int(np.iinfo(filter.dtype).max))
    rough = prod(filter.shape[axis] for axis in axes) * term
    rough += 0 if bias is None or not bias.size else int(np.abs(bias.astype(np.int64)).max())
    if rough <= INT32.max or not filter.size:
        return -rough, rough
    wide, add = filter.astype(np.int64), 0 if bias is None else bias.astype(np.int64)
    positive, negative = np.maximum(wide, 0).sum(axis=axes), np.minimum(wide, 0).sum(axis=axes)
    return int((positive * low + negative * high + add).min()), int((positive * high + negative * low + add).max())


def exact_sums(products: Callable[[Any], Any], filter: np.ndarray) -> np.ndarray:
    """Sums of products in int64, of a kernel that adds up in int32 and takes the filter.

    The upper and the lower four bits of the filter are multiplied apart, so that neither sum leaves int32 below half
    a million products.
    """
    halves = (np.floor_divide(filter, 16).astype(filter.dtype), np.mod(filter, 16).astype(filter.dtype))
    upper, lower = (np.asarray(products(half)).astype(np.int64) for half in halves)
    return upper * 16 + lower
