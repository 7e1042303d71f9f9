"""Coefficients of one convolution that replaces a 1x1 convolution `before` (d, c) and the next one, `filter`.

filter: (e, d, kh, kw). Sums are f32, in the order of the channels d between the two (U-19): the last bit can decide an
integer.
"""

import numpy as np

LARGEST_GROWTH = 20
"""The most elements of a merged filter, as a multiple of the elements of both filters."""


def grows_too_much(filter: np.ndarray, before: np.ndarray) -> bool:
    """Whether the merged filter would have more than `LARGEST_GROWTH` times the elements of both."""
    return filter.size // len(before) * before.shape[1] > LARGEST_GROWTH * (filter.size + before.size)


def merged_filter(filter: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(e, c, kh, kw): the sum over d, in order, of filter[:, d] times before[d]."""
    total = np.zeros((len(filter), before.shape[1], *filter.shape[2:]), np.float32)
    for d, row in enumerate(before):
        total += filter[:, d, None] * row[:, None, None]
    return total


def merged_bias(filter: np.ndarray, bias: np.ndarray | None, before: np.ndarray | None) -> np.ndarray | None:
    """The second bias plus the first bias times the filter, summed over d, kh and kw in order."""
    if before is None:
        return None
    total = np.zeros(len(filter), np.float32)
    for d, number in enumerate(before):
        for tap in filter[:, d].reshape(len(filter), -1).T:
            total += number * tap
    return total if bias is None else bias + total
