"""The int32 accumulator of integer products (numerics.md 9.1, 9.2): bounds of its sums, and the exact sums.

It never wraps in this simulator (DN-03): the machine refuses a command whose sum leaves int32, because chips disagree
about the result. The coefficients alone tell whether a sum can leave int32.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

INT32 = np.iinfo(np.int32)


def limits_of_sums(
    filter: np.ndarray, axes: tuple[int, ...], bias: np.ndarray | None, stored: np.dtype
) -> tuple[int, int]:
    """Bounds of the sums of products along `axes` plus the bias, for any other operand of type `stored`.

    filter: integers. bias: broadcasts to the sums of the filter; None: no bias. stored: int8 or uint8. A rough bound is
    returned if it is within int32, because it costs nothing; else the exact bounds.
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
    """Sums of products in int64; `products` computes them from a filter in int32.

    The upper and the lower four bits of the filter are multiplied separately, so that neither sum leaves int32 below
    half a million products.
    """
    halves = (np.floor_divide(filter, 16).astype(filter.dtype), np.mod(filter, 16).astype(filter.dtype))
    upper, lower = (np.asarray(products(half)).astype(np.int64) for half in halves)
    return upper * 16 + lower
