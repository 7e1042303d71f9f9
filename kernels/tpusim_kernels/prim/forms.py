"""In which form integer products are computed: the one place that chooses, by the backend of JAX.

Every form gives the same int32 sums; they differ in what a backend has a fast path for.

* library: int8 dots and int8 convolutions as XLA hands them to its library on a CPU.
* int8: int8 dots; convolutions are dots of patches, since XLA has no int8 convolution to int32 on a GPU.
* bfloat16, float32: operands of that type, which holds every int8, and sums in f32 over at most `CHUNK` terms, so that
  no partial sum is beyond 2^24, in whatever order it is added up; the chunks are added in int32.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import jax

FORMS = ("library", "int8", "bfloat16", "float32")
BY_BACKEND = {"cpu": "library", "gpu": "int8"}
"""Of other backends it is "float32", which every one has."""
CHUNK = 1024
"""128 * 128 * 1024 = 2^24: up to there f32 holds every integer."""
VARIABLE = "TPUSIM_PRODUCTS"
_asked: list[str] = []


def form() -> str:
    """The form in use: of `using`, else of the environment variable TPUSIM_PRODUCTS, else the backend's."""
    named = _asked[-1] if _asked else os.environ.get(VARIABLE)
    if named is None:
        return BY_BACKEND.get(jax.default_backend(), "float32")
    if named not in FORMS:
        raise ValueError(f"{VARIABLE}: one of {', '.join(FORMS)} is required, got '{named}'")
    return named


@contextmanager
def using(name: str) -> Generator[None]:
    """Compute products in this form inside the context (of the whole process)."""
    _asked.append(name)
    try:
        yield
    finally:
        _asked.pop()
