"""The oracle of convolutions by its definition: one Python sum per output."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from convolution import gathered, scattered

Array = np.ndarray
GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 4, 5, 6), (6, 2, 3, 2), {"strides": (1, 2), "pads": (1, 0, 2, 1), "dilations": (2, 1), "groups": 2}),
    ((1, 3, 4, 4), (2, 3, 1, 1), {"strides": (3, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "groups": 1}),
    ((1, 4, 3, 3), (4, 1, 2, 3), {"strides": (1, 1), "pads": (2, 2, 0, 3), "dilations": (1, 1), "groups": 4}),
    ((2, 2, 3, 4, 3), (4, 1, 2, 2, 1),
     {"strides": (1, 2, 1), "pads": (1, 0, 1, 0, 2, 1), "dilations": (1, 2, 1), "groups": 2}),
]  # fmt: skip
EVERY = pytest.mark.parametrize(("image", "filter", "geometry"), GEOMETRIES)


def numbers(image: tuple[int, ...], filter: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.integers(-128, 128, image).astype(np.int8), rng.integers(0, 256, filter).astype(np.uint8)


def inside(place: tuple[int, ...], size: tuple[int, ...]) -> bool:
    return all(0 <= p < n for p, n in zip(place, size, strict=True))


@EVERY
def test_gathered(image: tuple[int, ...], filter: tuple[int, ...], geometry: dict[str, Any]) -> None:
    x, w = numbers(image, filter)
    found, rank = gathered(x, w, -7, **geometry), len(filter) - 2
    strides, pads, dilations, groups = geometry.values()
    for i in range(rank):
        reach = (filter[2 + i] - 1) * dilations[i] + 1
        assert found.shape[2 + i] == (image[2 + i] + pads[i] + pads[rank + i] - reach) // strides[i] + 1
    for n, o, *at in np.ndindex(found.shape):
        first, total = o // (filter[0] // groups) * filter[1], 0
        for c, *tap in np.ndindex(filter[1:]):
            place = tuple(at[i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(rank))
            value = int(x[(n, first + c, *place)]) if inside(place, image[2:]) else -7
            total += value * int(w[(o, c, *tap)])
        assert found[(n, o, *at)] == total
    assert found.dtype == np.int64


@EVERY
def test_scattered(image: tuple[int, ...], filter: tuple[int, ...], geometry: dict[str, Any]) -> None:
    x, w = numbers(image, filter)
    rank, (strides, pads, dilations, groups) = len(filter) - 2, geometry.values()
    size = tuple((n - 1) * s + 2 for n, s in zip(image[2:], strides, strict=True))
    wanted = np.zeros((image[0], filter[0], *size), object)
    for n, o in product(range(image[0]), range(filter[0])):
        first = o // (filter[0] // groups) * filter[1]
        for c, *tap in np.ndindex(filter[1:]):
            for at in np.ndindex(image[2:]):
                place = tuple(at[i] * strides[i] + tap[i] * dilations[i] - pads[i] for i in range(rank))
                if inside(place, size):
                    wanted[(n, o, *place)] += int(x[(n, first + c, *at)]) * int(w[(o, c, *tap)])
    np.testing.assert_array_equal(scattered(x, w, size, **geometry), wanted)
    assert np.count_nonzero(wanted)


def test_floats_are_summed_in_f64() -> None:
    x, w = np.full((1, 3, 1, 1), 0.1, np.float32), np.ones((1, 3, 1, 1), np.float32)
    (found,) = gathered(x, w, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1)).ravel()
    assert found == float(np.float32(0.1)) * 3
