"""Code of host functions, and an input for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import export

from tpusim.inference.stablehlo import without_tracebacks

SHAPE = (1, 3, 4, 5)
FEEDS = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}


def code_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> bytes:
    """A function of arrays of f32 as `jax.export` serialises it."""
    types = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    with without_tracebacks():
        return bytes(export.export(jax.jit(function), platforms=("cpu",))(*types).serialize())
