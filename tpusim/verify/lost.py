"""Parts and channels of results that are lost entirely: constant on every sample although they vary in float.

Source: interface.md DI-12.

Example: boxes in pixels and scores from 0 to 1 in one tensor have a cosine of 0.9999 even if all scores are 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tpusim.numbers.closeness import MASK
from tpusim.verify.channels import LEAST_VALUES, MOST_SLICES
from tpusim.verify.similarity import Tensor

SHARE: Final = 1 / 16
"""A channel below this share of the largest value of its part is small, and may round to zero."""
MOST_SAID: Final = 4
"""At most so many lines are printed about one result."""


class Parts(NamedTuple):
    """The parts that a Concat joins into a result. numbers: the part of each element, [*result]; names: of parts."""

    numbers: np.ndarray
    names: Sequence[str]


class _Dead(NamedTuple):
    """A dead slice: its only value, and its largest magnitude in float."""

    value: float
    size: float


class _Extent:
    """The least and the greatest value of each slice over samples, on both sides."""

    def __init__(self) -> None:
        self._ends: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, found: Tensor, wanted: Tensor) -> None:
        """Add a sample; rows are the slices, NaN and infinities are ignored."""
        now = [(_reduced(rows, np.fmin, np.inf), _reduced(rows, np.fmax, -np.inf)) for rows in (found, wanted)]
        self._ends = [
            (np.minimum(a[0], b[0]), np.maximum(a[1], b[1])) for a, b in zip(self._ends or now, now, strict=True)
        ]

    def sizes(self) -> np.ndarray:
        """The largest float magnitude of each slice."""
        low, high = self._ends[1]
        return np.maximum(np.abs(low), np.abs(high))

    def constant(self, share: np.ndarray) -> Iterator[tuple[int, _Dead]]:
        """(slice, its value) of slices with a single value, where float differs from it and varies, both by `share`."""
        (low, high), (least, most) = self._ends
        away = np.maximum(np.abs(least - low), np.abs(most - low))
        varies = (most > least) & np.where(low == 0, True, most - least >= share)
        for i in np.flatnonzero((low == high) & (away >= share) & varies):
            yield int(i), _Dead(float(low[i]), float(self.sizes()[i]))


def _reduced(rows: Tensor, end: Any, usual: float) -> np.ndarray:
    finite = np.where(np.isfinite(rows), rows, np.nan)
    found = end.reduce(finite, axis=1)
    return np.where(np.isnan(found), usual, found)


class Watch:
    """One result over samples. parts: the parts that are joined in it; None: it is a single part."""

    def __init__(self, name: str, parts: Parts | None) -> None:
        self._name, self._parts = name, parts
        self._by_part, self._by_axis = _Extent(), dict[int, _Extent]()
        self._samples = self._not_finite = 0

    def add(self, found: Tensor, wanted: Tensor) -> None:
        """Add a sample: both sides as real values in the float result's shape."""
        found, wanted = (array.astype(np.float64) for array in (found, wanted))
        self._samples += 1
        self._not_finite += int(np.count_nonzero(~np.isfinite(found) & (np.abs(wanted) < MASK)))
        self._parts = self._parts or Parts(np.zeros(wanted.shape, np.int32), (self._name,))
        if not wanted.size:
            return
        self._by_part.add(self._rows(found), self._rows(wanted))
        for axis in range(1, wanted.ndim):
            count = wanted.shape[axis]
            if 2 <= count <= MOST_SLICES and wanted.size >= LEAST_VALUES * count:
                self._by_axis.setdefault(axis, _Extent()).add(*(_slices(array, axis) for array in (found, wanted)))

    def _rows(self, array: Tensor) -> Tensor:
        """One row for each part, of the size of the result: elements of other parts are NaN, which is ignored."""
        numbers, names = self._need()
        if len(names) == 1:
            return array.reshape(1, -1)
        return np.stack([np.where(numbers == i, array, np.nan).ravel() for i in range(len(names))])

    def _need(self) -> Parts:
        assert self._parts is not None, "a sample was added"
        return self._parts

    def lost(self) -> Iterator[str]:
        """One line for each lost part and each lost channel of the other parts."""
        if self._not_finite:
            yield f"{self._not_finite:,} values of {self._name} are infinite or no numbers, and are numbers in float"
        if not self._samples or not self._need().numbers.size:
            return
        dead = self._dead_parts()
        lines = [*self._lost_parts(dead), *self._lost_channels(dead)]
        yield from lines[:MOST_SAID]
        if len(lines) > MOST_SAID:
            yield f"and {len(lines) - MOST_SAID} more parts and channels of {self._name}"

    def _dead_parts(self) -> dict[int, _Dead]:
        counts = np.bincount(self._need().numbers.ravel())
        found = self._by_part.constant(SHARE * self._by_part.sizes())
        return {i: dead for i, dead in found if counts[i] * self._samples >= LEAST_VALUES}

    def _lost_parts(self, dead: Mapping[int, _Dead]) -> Iterator[str]:
        """Dead parts; parts that fill whole channels with one value are reported as channels."""
        numbers, names = self._need()
        gone = _member(numbers, dead)
        if gone.all():
            yield self._line(numbers.size, self._name, _largest(dead.values()))
            return
        axis = next((a for a in range(1, numbers.ndim) if _is_slices(gone, a)), None)
        if axis is None or len({found.value for found in dead.values()}) > 1:
            for i, found in dead.items():
                yield self._line(int((numbers == i).sum()), f"the part {names[i]} of {self._name}", found)
            return
        rows = _slices(numbers, axis)
        for run in _runs(np.flatnonzero(_slices(gone, axis)[:, 0])):
            inside = [int(i) for i in np.unique(rows[run])]
            made = ", ".join(dict.fromkeys(names[i] for i in inside))
            place = f"{_channels(axis, run)} of {self._name} ({made})"
            yield self._line(rows[run].size, place, _largest(dead[i] for i in inside))

    def _lost_channels(self, dead: Mapping[int, _Dead]) -> Iterator[str]:
        numbers, sizes = self._need().numbers, self._by_part.sizes()
        for axis, extent in self._by_axis.items():
            rows = _slices(numbers, axis)
            taken = np.asarray(_member(rows, dead).any(axis=1))
            for index, found in extent.constant(SHARE * np.max(sizes[rows], axis=1)):
                if not taken[index]:
                    yield self._line(rows[index].size, f"{_channels(axis, [index])} of {self._name}", found)

    def _line(self, count: int, place: str, dead: _Dead) -> str:
        everywhere = f" in all {self._samples} samples" if self._samples > 1 else ""
        return f"all {count:,} values of {place} are {dead.value:g}{everywhere}; in float they reach {dead.size:.4g}"


def _member(numbers: np.ndarray, dead: Iterable[int]) -> NDArray[np.bool_]:
    return np.asarray(np.isin(numbers, list(dead)), np.bool_).reshape(numbers.shape)


def _slices(array: Tensor, axis: int) -> Tensor:
    """[slices along the axis, values of each]."""
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def _is_slices(gone: Tensor, axis: int) -> bool:
    """Whether what is gone is whole slices along an axis."""
    rows = _slices(gone, axis)
    return bool(gone.any() and np.array_equal(rows.any(axis=1), rows.all(axis=1)))


def _largest(dead: Iterable[_Dead]) -> _Dead:
    return max(dead, key=lambda found: found.size)


def _runs(indices: np.ndarray) -> list[list[int]]:
    """Indices that follow each other."""
    return [list(map(int, run)) for run in np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)]


def _channels(axis: int, run: Sequence[int]) -> str:
    """Indices along an axis in words; those along axis 1 are channels."""
    what = ("channel", "channels") if axis == 1 else ("index", "indices")
    numbers = f"{what[0]} {run[0]}" if len(run) == 1 else f"{what[1]} {run[0]} to {run[-1]}"
    return numbers if axis == 1 else f"{numbers} along axis {axis}"
