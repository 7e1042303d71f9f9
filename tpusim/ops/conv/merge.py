"""Coefficients of a convolution that stands for a 1x1 one, before (d, c), and the one behind it, filter (e, d, kh, kw).

Sums are in f32 in the order of the hidden channels (U-19): an integer can hang on the last bit.
"""

import numpy as np

LARGEST_GROWTH = 20
"""How many times the elements of both filters a merged filter may have, at most."""


def grows_too_much(filter: np.ndarray, before: np.ndarray) -> bool:
    """Whether the merged filter would be more than `LARGEST_GROWTH` times as large as both."""
    return filter.size // len(before) * before.shape[1] > LARGEST_GROWTH * (filter.size + before.size)


def merged_filter(filter: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(e, c, kh, kw): the sum over d, in order, of filter (e, d, kh, kw) times before (d, c)."""
    total = np.zeros((len(filter), before.shape[1], *filter.shape[2:]), np.float32)
    for d, row in enumerate(before):
        total += filter[:, d, None] * row[:, None, None]
    return total


def merged_bias(filter: np.ndarray, bias: np.ndarray | None, before: np.ndarray | None) -> np.ndarray | None:
    """The bias behind, and what the bias before becomes: the sum over d, kh and kw, in order, of its products."""
    if before is None:
        return None
    total = np.zeros(len(filter), np.float32)
    for d, number in enumerate(before):
        for tap in filter[:, d].reshape(len(filter), -1).T:
            total += number * tap
    return total if bias is None else bias + total
