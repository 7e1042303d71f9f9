"""Ops that only move elements, as affine maps, so that a load or store of a layer group can do their work."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple, cast

import numpy as np
from xdsl.ir.affine import AffineExpr, AffineMap

from tpusim.isa.layout import dense_strides
from tpusim.ops.framework.logical import Extents, TensorSlice, Window

Way = Literal["s2l", "l2s"]
"""s2l: a load, from system to local memory. l2s: a store. Maps lead from local memory to the tensor outside."""
Shape = tuple[int, ...]


def permutation_map(order: Shape, way: Way) -> AffineMap:
    """The map of a Permute whose result's axis i is the operand's order[i]; l2s: operand to result, s2l: inverse."""
    axes = order if way == "l2s" else tuple(order.index(axis) for axis in range(len(order)))
    return AffineMap(len(order), 0, tuple(AffineExpr.dimension(axis) for axis in axes))


def offset_map(first: Shape) -> AffineMap:
    """The map of a Pad with `first` elements before the axes."""
    axes = ((AffineExpr.dimension(axis), before) for axis, before in enumerate(first))
    return AffineMap(len(first), 0, tuple(index + before if before else index for index, before in axes))


def view_map(source: Shape, target: Shape) -> AffineMap:
    """The map from indices of `source` to indices of the same elements in `target`."""
    results = list[AffineExpr]()
    for before, after in _matching_axes(source, target):
        sizes, wanted = ([shape[axis] for axis in axes] for shape, axes in ((source, before), (target, after)))
        steps = dense_strides(tuple(sizes))
        index = AffineExpr.constant(0)
        for axis, step in zip(before, steps, strict=True):
            index = index + AffineExpr.dimension(axis) * step
        for number, step in enumerate(dense_strides(tuple(wanted))):
            part = index if step == 1 else index // step
            results.append(part if number == 0 else part % wanted[number])
    return AffineMap(len(source), 0, tuple(results))


def _matching_axes(source: Shape, target: Shape) -> list[tuple[range, range]]:
    """Runs of neighbouring axes of both shapes with equal numbers of elements; each run is as short as possible."""
    runs, i, j = list[tuple[range, range]](), 0, 0
    while i < len(source) or j < len(target):
        first, other = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while prod(source[first:i]) != prod(target[other:j]):
            if prod(source[first:i]) < prod(target[other:j]):
                i += 1
            else:
                j += 1
        runs.append((range(first, i), range(other, j)))
    return runs


@lru_cache(maxsize=256)
def strides_of(
    mapping: AffineMap, inside: Shape, outside: Shape, lengths: Shape | Extents, pads: Shape = ()
) -> Shape | None:
    """The strides in the tensor outside for steps along each axis of a tensor in local memory, in elements.

    inside, outside: the tensor's shapes. lengths: the axes of `inside` as a group sees them. pads: padding outside,
    before every axis, then after. None if the map has no constant strides, or does not reach every element outside
    the padding; then no single transfer does the move.
    """
    parts = _indices(mapping, inside, outside, pads)
    if parts is None:
        return None
    within, strides = (
        _linear(_summed(zip(parts, dense_strides(shape), strict=True), inside), lengths)
        for shape in (unpadded(outside, pads), outside)
    )
    return strides if within is not None and _dense(within, lengths) else None


def places_of(mapping: AffineMap, inside: Shape, outside: Shape) -> np.ndarray | None:
    """For each element of a tensor in local memory its position in the tensor outside, as an array of shape `inside`.

    None if the map does not reach every element outside.
    """
    parts = _indices(mapping, inside, outside)
    if parts is None or prod(inside) != prod(outside):
        return None
    places = _summed(zip(parts, dense_strides(outside), strict=True), inside)
    return places if np.array_equal(np.sort(places, axis=None), np.arange(places.size)) else None


class Scattered(NamedTuple):
    """How the tensor outside is stored if its channels, in the order of local memory, are at unequal distances."""

    strides: Extents
    """Distances along (n, c, d, h, w), in elements; 0 for c, whose distances are unequal."""
    channels: Shape
    """The distance of each channel from the first element."""

    def pieces(self, part: TensorSlice, lanes: int) -> Iterator[tuple[TensorSlice, Extents, int]]:
        """The parts of a slice that single commands move: (part, distances outside, position of channel 0).

        A part has one n and as many channels as are at equal positive distances. If the channels of the slice fill all
        lanes, a part stays in one row of lanes. The position of channel 0 is extrapolated by the part's distances.
        """
        n, _, d, h, w = self.strides
        for image in range(part.n[0], sum(part.n)):
            for first, size in self._runs(part.c, lanes):
                step = self.channels[first + 1] - self.channels[first] if size > 1 else 0
                piece = replace(part, n=(image, 1), c=(first, size))
                yield piece, (n, step, d, h, w), self.channels[first] - first * step

    def _runs(self, window: Window, lanes: int) -> Iterator[Window]:
        """Windows of channels at equal distances, each as long as possible, from the first channel on."""
        start, end = window[0], sum(window)
        row = lanes if window[1] % lanes == 0 else window[1]
        while start < end:
            last = min(end, start + row - (start - window[0]) % row)
            steps = [b - a for a, b in pairwise(self.channels[start:last])]
            equal = next((i for i, step in enumerate(steps) if step != steps[0] or step < 0), len(steps))
            yield start, equal + 1
            start += equal + 1


@lru_cache(maxsize=256)
def scattered_of(mapping: AffineMap, inside: Shape, outside: Shape, lengths: Extents) -> Scattered | None:
    """How the tensor outside is stored if only its channels are at unequal distances; None otherwise.

    inside, outside: the tensor's shapes. lengths: the axes of `inside` as a group sees them.
    """
    places = places_of(mapping, inside, outside)
    if places is None:
        return None
    channels = tuple(map(int, places.reshape(lengths)[0, :, 0, 0, 0]))
    rest = _linear(places.reshape(lengths) - np.reshape(channels, (1, -1, 1, 1, 1)), lengths)
    rows = rest is not None and (lengths[4] == 1 or rest[4] == 1)
    return Scattered(cast("Extents", rest), channels) if rows else None


def _indices(mapping: AffineMap, inside: Shape, outside: Shape, pads: Shape = ()) -> list[np.ndarray] | None:
    """For each element of `inside` its index in the tensor outside, counted after the padding; None for other ranks."""
    grid = np.meshgrid(*(np.arange(size) for size in inside), indexing="ij", sparse=True)
    index: tuple[int, ...] = tuple(grid)  # type: ignore[assignment]  # expressions take arrays like numbers
    if mapping.num_dims != len(inside) or len(mapping.results) != len(outside):
        return None
    first = pads[: len(outside)] or (0,) * len(outside)
    return [np.asarray(part.eval(index, ())) - at for part, at in zip(mapping.results, first, strict=True)]


def unpadded(shape: Shape, pads: Shape) -> Shape:
    """A padded shape without its padding. pads: before every axis, then after; or none."""
    return tuple(size - sum(both) for size, both in zip(shape, pairs_of(pads), strict=True)) if pads else shape


def pairs_of(pads: Shape) -> list[tuple[int, int]]:
    """(before, after) of each axis."""
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


def origin_of(shape: Shape, pads: Shape) -> int:
    """The number of padding elements before the first other element."""
    return sum(before * step for before, step in zip(pads, dense_strides(shape), strict=False))


def _linear(place: np.ndarray, lengths: Shape | Extents) -> Shape | None:
    """The constant strides of an array of positions along its axes; None if they are not constant."""
    place = place.reshape(lengths)
    strides = tuple(int(place[_unit(axis, len(lengths))]) if size > 1 else 0 for axis, size in enumerate(lengths))
    axes = np.meshgrid(*(np.arange(size) for size in lengths), indexing="ij", sparse=True)
    return strides if np.array_equal(place, _summed(zip(axes, strides, strict=True), lengths)) else None


def _summed(terms: Iterable[tuple[np.ndarray, int]], shape: Shape) -> np.ndarray:
    """The sum of indices times distances."""
    return sum((index * step for index, step in terms), start=np.zeros(shape, np.int64))


def _unit(axis: int, rank: int) -> Shape:
    return tuple(int(other == axis) for other in range(rank))


def _dense(strides: Shape, lengths: Shape) -> bool:
    """Whether these strides reach every element once."""
    pairs = sorted((step, size) for step, size in zip(strides, lengths, strict=True) if size > 1)
    ends = [(1, 1), *pairs]
    return all(step * size == after for (step, size), (after, _) in pairwise(ends))
