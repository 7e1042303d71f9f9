"""Statistics of weights: those that training leaves, and degenerate ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Draw = Callable[[np.random.Generator, Shape, float], Array]
"""(generator, shape, deviation of an ordinary tensor of this place) -> f32 values; axis 0 is the output channel."""


def _rows(shape: Shape) -> Shape:
    return (shape[0] if shape else 1,) + (1,) * (len(shape) - 1)


def normal(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """Normal values, as at the start of training."""
    return rng.normal(0.0, std, shape)


def trained(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """Heavy tails, and channels of unequal magnitude, as training leaves them."""
    return rng.laplace(0.0, std / 2**0.5, shape) * np.exp(rng.normal(0.0, 0.7, _rows(shape)))


def dead_channels(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """Trained values with one channel in three zero."""
    return trained(rng, shape, std) * (rng.random(_rows(shape)) > 1 / 3)


def equal_channels(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """The same values in every channel."""
    return np.broadcast_to(rng.normal(0.0, std, (1, *shape[1:])), shape)


def zeros(_rng: np.random.Generator, shape: Shape, _std: float) -> Array:
    """All 0."""
    return np.zeros(shape)


def ones(_rng: np.random.Generator, shape: Shape, _std: float) -> Array:
    """All 1."""
    return np.ones(shape)


def tiny(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """A millionth of the ordinary size."""
    return rng.normal(0.0, std * 1e-6, shape)


def huge(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """A thousand times the ordinary size."""
    return rng.normal(0.0, std * 1e3, shape)


TRAINED: tuple[Draw, ...] = (normal, trained, dead_channels)
DEGENERATE: tuple[Draw, ...] = (zeros, ones, equal_channels, tiny, huge)
DEGENERATE_SHARE = 0.1
"""Share of the constants of a random network that are degenerate."""


def draw(rng: np.random.Generator, shape: Shape, std: float) -> Array:
    """Values of statistics drawn at random."""
    family = DEGENERATE if rng.random() < DEGENERATE_SHARE else TRAINED
    return family[int(rng.integers(len(family)))](rng, shape, std).astype(np.float32)
