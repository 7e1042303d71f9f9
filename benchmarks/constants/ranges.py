"""The values of a constant that recorded numbers ask for, and those that most of them accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

Model = Callable[[float], float]


class Range(NamedTuple):
    """Values from `low` on, up to and without `high`."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Halfway."""
        return (self.low + self.high) / 2


class Agreed(NamedTuple):
    """The values that most points accept, in one or several ranges; points: how many accept them, of how many.

    Of a median no point needs to accept it: points is 0.
    """

    ranges: tuple[Range, ...]
    points: int
    of: int

    def distance(self, value: float) -> float:
        """How far a value is from the nearest of these; 0: it is one of them."""
        return min(max(low - value, value - high, 0.0) for low, high in self.ranges)


HALF = 0.5
"""Profiles count whole cycles: a model agrees with a number of them up to this."""
_STEPS = 22
"""Of a bisection: less than a millionth of the range is left."""


def solved(model: Model, wanted: float, search: Range, near: float) -> list[Range] | None:
    """Where a monotone model gives the wanted number, up to `near`; None if it is the same everywhere."""
    ends = model(search.low), model(search.high)
    if ends[0] == ends[1]:
        return None
    sign = 1 if ends[0] < ends[1] else -1
    low = _first(lambda value: sign * model(value) >= sign * wanted - near, search)
    high = _first(lambda value: sign * model(value) > sign * wanted + near, search)
    return [Range(low, high)] if low < high else []


def _first(reached: Callable[[float], bool], search: Range) -> float:
    """The least value that reaches it, by bisection; the end of the search if none does."""
    low, high = search
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def scanned(model: Model, wanted: float, values: Sequence[float]) -> list[Range]:
    """The runs of values at which a model, which may jump, gives exactly the wanted number."""
    found: list[Range] = []
    for value, after in zip(values, values[1:], strict=False):
        if model(value) != wanted:
            continue
        begun = found.pop().low if found and found[-1].high == value else value
        found.append(Range(begun, after))
    return found


def centre(points: Sequence[Sequence[Range]]) -> Agreed | None:
    """The median of what each asks for, of a model that is near and never exact; None without any."""
    middles = [ranges[0].middle for ranges in points if ranges]
    return Agreed((Range(median(middles), median(middles)),), 0, len(points)) if middles else None


def agreed(points: Sequence[Sequence[Range]]) -> Agreed | None:
    """The ranges in which the number of points that accept a value is largest; None without any."""
    ends = sorted({end for ranges in points for span in ranges for end in span})
    counted: list[tuple[int, Range]] = []
    for low, high in zip(ends, ends[1:], strict=False):
        count = sum(any(span.low <= low and high <= span.high for span in ranges) for ranges in points)
        if counted and counted[-1][0] == count:
            low = counted.pop()[1].low
        counted.append((count, Range(low, high)))
    most = max((count for count, _ in counted), default=0)
    return Agreed(tuple(span for count, span in counted if count == most), most, len(points)) if counted else None
