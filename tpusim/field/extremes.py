"""The largest and the smallest of several elements: functions of the set of them.

No order of random elements is the order of the numbers, and one that is extreme hides all others. So an extreme is an
uninterpreted function of its operands as a set: the sum of a hash of each. Results are recognised by their range, and
join as sets do, so that the extreme of extremes is that of all elements. One with a number is a function of both.
"""

import numpy as np

from tpusim.field.arithmetic import RANDOM, SETS, Elements, Field
from tpusim.field.windows import Sliding, padded, seen

_FIRST = {"max": RANDOM, "min": RANDOM + SETS}
"""The first of the elements that are sets; random elements are below."""


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
    return np.where(inner, x - first, found) if inner.any() else found


def _joined(kind: str, hashes: Elements) -> Elements:
    return _FIRST[kind] + hashes % SETS
