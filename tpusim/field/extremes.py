"""The largest and the smallest of several elements: functions of the set of them.

No order of random elements is the order of the numbers, and one that is extreme hides all others. So an extreme is an
uninterpreted function of its operands as a set: the sum of a hash of each. Results are recognised by their range, and
join as sets do, so that the extreme of extremes is that of all elements. One with a number is a function of both.

A result is a permutation of its sum, which arithmetic does not follow: 1 more than one extreme is not 1 more in the sum
of another one. So it does no harm that a sum of the field may lie in the range of results.
"""

import numpy as np

from tpusim.field.arithmetic import RANDOM, SETS, Elements, Field
from tpusim.field.windows import Sliding, padded, seen

_FIRST = {"max": RANDOM, "min": RANDOM + SETS}
"""The first of the elements that are sets; random elements are below."""
_HALF = SETS.bit_length() // 2
"""A number xor itself shifted down by so many bits is its inverse: half of its bits at least."""
_FACTORS = (0x1D8E4E27C47D1, 0x0A7C3F5B92E6D, 0x17B4D2A96C8F3)
"""Odd numbers below `SETS`."""


def extreme(field: Field, kind: str, *operands: Elements) -> Elements:
    """The extreme of elements at each place; an operand without axes, not the first, is a number."""
    found, *others = operands
    for x in others:
        if x.ndim == 0:
            found = field.apply((kind, "of a number"), found, x)
        else:
            found = np.where(found == x, found, _joined(kind, _hashes(field, kind, found) + _hashes(field, kind, x)))
    return found


def largest(field: Field, image: Elements, window: Sliding, size: tuple[int, ...]) -> Elements:
    """The largest element of every window (n, c, *size) of an image; padding is no element, a window of nothing -1."""
    hashes = padded(_hashes(field, "max", image), window, 0)
    found = _joined("max", _totals(hashes, window, size))
    counts = _totals(padded(np.ones((1, 1, *image.shape[2:]), np.int64), window, 0), window, size)
    if (counts > 1).all():
        return found
    alone = _totals(padded(image, window, 0), window, size)
    return np.where(counts > 1, found, np.where(counts == 1, alone, -1))


def _totals(image: np.ndarray, window: Sliding, size: tuple[int, ...]) -> np.ndarray:
    """The sums of what each window sees, modulo 2**64."""
    total = np.zeros((), np.int64)
    for at in window.positions():
        total = total + seen(image, window, at, size)
    return total


def _hashes(field: Field, kind: str, x: Elements) -> Elements:
    """What each element adds to the set of an extreme; a result of one adds what its operands did."""
    first = _FIRST[kind]
    found = field.apply((kind,), x) % SETS
    inner = (x >= first) & (x < first + SETS)
    return np.where(inner, _sum_of(x - first), found) if inner.any() else found


def _joined(kind: str, hashes: Elements) -> Elements:
    return _FIRST[kind] + _permuted(hashes % SETS)


def _permuted(sums: np.ndarray) -> np.ndarray:
    """Numbers below `SETS` in another order of them, far from linear."""
    for factor in _FACTORS:
        sums = (sums ^ sums >> _HALF) * factor % SETS
    return sums ^ sums >> _HALF


def _sum_of(permuted: np.ndarray) -> np.ndarray:
    """The inverse of `_permuted`."""
    for factor in reversed(_FACTORS):
        permuted = (permuted ^ permuted >> _HALF) * pow(factor, -1, SETS) % SETS
    return permuted ^ permuted >> _HALF
