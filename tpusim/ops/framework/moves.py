"""Ops that only move elements, as affine maps: what a load or store of a layer group can do in their place."""

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
"""Of a load (from system to local memory) or a store; its map is from elements in local memory to those outside."""
Shape = tuple[int, ...]


def permutation_map(order: Shape, way: Way) -> AffineMap:
    """The map of a Permute whose result's axis i is the operand's order[i]; l2s: from operand to result, s2l: back."""
    found = order if way == "l2s" else tuple(order.index(axis) for axis in range(len(order)))
    return AffineMap(len(order), 0, tuple(AffineExpr.dimension(axis) for axis in found))


def offset_map(first: Shape) -> AffineMap:
    """The map of a Pad of so much before every axis."""
    axes = ((AffineExpr.dimension(axis), before) for axis, before in enumerate(first))
    return AffineMap(len(first), 0, tuple(index + before if before else index for index, before in axes))


def view_map(source: Shape, target: Shape) -> AffineMap:
    """From indices of `source` to those of the same elements in `target`, which has as many."""
    results = list[AffineExpr]()
    for before, after in _alike(source, target):
        sizes, wanted = ([shape[axis] for axis in axes] for shape, axes in ((source, before), (target, after)))
        steps = dense_strides(tuple(sizes))
        index = AffineExpr.constant(0)
        for axis, step in zip(before, steps, strict=True):
            index = index + AffineExpr.dimension(axis) * step
        for number, step in enumerate(dense_strides(tuple(wanted))):
            part = index if step == 1 else index // step
            results.append(part if number == 0 else part % wanted[number])
    return AffineMap(len(source), 0, tuple(results))


def _alike(source: Shape, target: Shape) -> list[tuple[range, range]]:
    """Neighbouring axes of both shapes with as many elements, as few at a time as can be."""
    found, i, j = list[tuple[range, range]](), 0, 0
    while i < len(source) or j < len(target):
        first, other = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while prod(source[first:i]) != prod(target[other:j]):
            if prod(source[first:i]) < prod(target[other:j]):
                i += 1
            else:
                j += 1
        found.append((range(first, i), range(other, j)))
    return found


@lru_cache(maxsize=256)
def strides_of(
    mapping: AffineMap, inside: Shape, outside: Shape, lengths: Shape | Extents, pads: Shape = ()
) -> Shape | None:
    """Distances outside, in elements, of neighbours along the axes of a tensor in local memory.

    inside, outside: its shapes; lengths: the axes of `inside` as a group sees them; pads: how much padding is outside
    before every axis, then after. None where the map has no such distances, or does not give every element outside
    that is no padding one inside: then no single transfer does it.
    """
    parts = _indices(mapping, inside, outside, pads)
    if parts is None:
        return None
    within, found = (
        _linear(_summed(zip(parts, dense_strides(shape), strict=True), inside), lengths)
        for shape in (unpadded(outside, pads), outside)
    )
    return found if within is not None and _dense(within, lengths) else None


def places_of(mapping: AffineMap, inside: Shape, outside: Shape) -> np.ndarray | None:
    """Which element outside, counted in order, every one of a tensor in local memory is, [*inside].

    None where the map does not give every element outside one inside.
    """
    parts = _indices(mapping, inside, outside)
    if parts is None or prod(inside) != prod(outside):
        return None
    found = _summed(zip(parts, dense_strides(outside), strict=True), inside)
    return found if np.array_equal(np.sort(found, axis=None), np.arange(found.size)) else None


class Scattered(NamedTuple):
    """Where a tensor outside has the channels of one in local memory, which do not follow at equal distances there."""

    strides: Extents
    """Distances along (n, c, d, h, w), in elements; those along c are not equal, 0 stands for them."""
    channels: Shape
    """Distances of every channel from the first element."""

    def pieces(self, part: TensorSlice, lanes: int) -> Iterator[tuple[TensorSlice, Extents, int]]:
        """What single commands move of a slice, the distances there, and those of channel 0 by them; in elements.

        A piece is of one n and as many channels as lie forward at equal distances; where the channels of the slice
        fill all lanes, of those that lie in one row of lanes.
        """
        n, _, d, h, w = self.strides
        for image in range(part.n[0], sum(part.n)):
            for first, size in self._runs(part.c, lanes):
                step = self.channels[first + 1] - self.channels[first] if size > 1 else 0
                piece = replace(part, n=(image, 1), c=(first, size))
                yield piece, (n, step, d, h, w), self.channels[first] - first * step

    def _runs(self, window: Window, lanes: int) -> Iterator[Window]:
        """Windows of channels at equal distances, the longest first from the front."""
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
    """How a tensor lies outside whose channels alone are in another order; None where that is not so.

    inside, outside: its shapes; lengths: the axes of `inside` as a group sees them.
    """
    found = places_of(mapping, inside, outside)
    if found is None:
        return None
    channels = tuple(map(int, found.reshape(lengths)[0, :, 0, 0, 0]))
    rest = _linear(found.reshape(lengths) - np.reshape(channels, (1, -1, 1, 1, 1)), lengths)
    rows = rest is not None and (lengths[4] == 1 or rest[4] == 1)
    return Scattered(cast("Extents", rest), channels) if rows else None


def _indices(mapping: AffineMap, inside: Shape, outside: Shape, pads: Shape = ()) -> list[np.ndarray] | None:
    """Indices outside, behind padding, of every element of `inside`; None of a map between other ranks."""
    grid = np.meshgrid(*(np.arange(size) for size in inside), indexing="ij", sparse=True)
    index: tuple[int, ...] = tuple(grid)  # type: ignore[assignment]  # expressions take arrays as they take numbers
    if mapping.num_dims != len(inside) or len(mapping.results) != len(outside):
        return None
    first = pads[: len(outside)] or (0,) * len(outside)
    return [np.asarray(part.eval(index, ())) - at for part, at in zip(mapping.results, first, strict=True)]


def unpadded(shape: Shape, pads: Shape) -> Shape:
    """What padding, so much before every axis and then after, leaves of a shape; no pads: all."""
    return tuple(size - sum(both) for size, both in zip(shape, pairs_of(pads), strict=True)) if pads else shape


def pairs_of(pads: Shape) -> list[tuple[int, int]]:
    """(before, after) of every axis."""
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


def origin_of(shape: Shape, pads: Shape) -> int:
    """How many elements lie in front of the first that is no padding."""
    return sum(before * step for before, step in zip(pads, dense_strides(shape), strict=False))


def _linear(place: np.ndarray, lengths: Shape | Extents) -> Shape | None:
    """The distances along the axes of an array of places, if these are sums of them."""
    place = place.reshape(lengths)
    strides = tuple(int(place[_unit(axis, len(lengths))]) if size > 1 else 0 for axis, size in enumerate(lengths))
    axes = np.meshgrid(*(np.arange(size) for size in lengths), indexing="ij", sparse=True)
    return strides if np.array_equal(place, _summed(zip(axes, strides, strict=True), lengths)) else None


def _summed(terms: Iterable[tuple[np.ndarray, int]], shape: Shape) -> np.ndarray:
    """The sum of indices, each times its distance."""
    return sum((index * step for index, step in terms), start=np.zeros(shape, np.int64))


def _unit(axis: int, rank: int) -> Shape:
    return tuple(int(other == axis) for other in range(rank))


def _dense(strides: Shape, lengths: Shape) -> bool:
    """Whether these strides reach every element once."""
    pairs = sorted((step, size) for step, size in zip(strides, lengths, strict=True) if size > 1)
    ends = [(1, 1), *pairs]
    return all(step * size == after for (step, size), (after, _) in pairwise(ends))
