"""Networks that run on the machine in slices, and that they give the bits of the whole."""

from __future__ import annotations

from functools import cache

import numpy as np
from networks import (
    Network,
    random_tokens,
    reordered,
)

from tpusim.inference import run
from tpusim.ir.module import Model

NETWORKS = tuple((seed, 6 if batch == 1 else 4, batch) for seed, batch in ((0, 1), (1, 4), (2, 1), (4, 1), (3, 4)))
"""(seed, ops, batch) of the random networks that run on the machine."""


def equal(found: dict[str, np.ndarray], flat: dict[str, np.ndarray]) -> None:
    """Every tensor of the flat inference, bit for bit; network inputs are the only ones the machine may not show."""
    missing = {n for n in flat if n not in found}
    assert all(np.array_equal(found[n], flat[n]) for n in flat if n in found), [
        n for n in flat if n in found and not np.array_equal(found[n], flat[n])
    ]
    assert all(flat[n].dtype == np.float32 for n in missing) and len(missing) <= 1


SHAPES = ((3, 70, 12), (1, 200, 12), (2, 3, 70, 12), (2, 4, 32, 12))


@cache
def tokens(seed: int, shape: tuple[int, ...], chip: str) -> tuple[Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    net = random_tokens(seed, shape)
    model = reordered(net.top(), chip)
    return model, net.feeds(), run(model, net.feeds())


@cache
def deep(chip: str) -> tuple[Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """An element-wise network on five axes, with constants that are cut along d, or not."""
    net = Network(np.random.default_rng(6))
    x = net.input((2, 70, 5, 4, 6))
    y = net.add_constant(net.function(x, "Tanh"), (2, 70, 5, 1, 1))
    z = net.function(net.mul(y, x), "Sigmoid")
    net.add(net.add_constant(z, (1, 1, 1, 4, 6)), y)
    model = reordered(net.top(), chip)
    return model, net.feeds(), run(model, net.feeds())
