"""The form in which integer products are computed, chosen here alone, by the backend of JAX.

Every form gives the same int32 sums; they differ in what a backend has a fast path for.

* library: int8 dots and int8 convolutions as XLA hands them to its library on a CPU.
* int8: int8 dots; convolutions are dots of patches, since XLA has no int8 convolution to int32 on a GPU. On a GPU this
  form is refused unless XLA_FLAGS contains `--xla_gpu_enable_triton_gemm=false`: if the autotuner picks XLA's Triton
  kernels, an int8 dot gives twice the sum (jaxlib 0.11.2, H200: 60 of 217 random dots; 318 of 349 without autotuning;
  none of 594 with that flag; none of 334 in the form bfloat16).
* bfloat16, float32: operands of that type, which holds every int8, and sums in f32 over at most `CHUNK` terms, so that
  no partial sum is beyond 2^24, in whatever order it is added up; the chunks are added in int32. Convolutions are dots
  of patches; in the form bfloat16 most of them are int8 convolutions with f32 results instead (`prim.images`).

This module also chooses the order in which f32 products are added (that of U-34, `prim.inorder`, or that of XLA's
library), and whether float kernels are traced as plain expressions, which can be differentiated.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from tpusim_kernels.lazy import jax

FORMS = ("library", "int8", "bfloat16", "float32")
BY_BACKEND = {"cpu": "library", "gpu": "bfloat16"}
"""The form of each backend; other backends use "float32", which all support."""
CHUNK = 1024
"""128 * 128 * 1024 = 2^24: f32 represents every integer up to that exactly."""
VARIABLE = "TPUSIM_PRODUCTS"
WITHOUT_TRITON = "--xla_gpu_enable_triton_gemm=false"
BYTE_PRODUCTS = {"avx_vnni", "avx512_vnni", "amx_int8", "asimddp", "i8mm"}
"""Feature flags of processors that add products of bytes in one instruction."""
_asked: list[str] = []
_estimates = ContextVar("estimates", default=False)
_plain = ContextVar("plain", default=False)


def form() -> str:
    """The form in use: of `using`, else of the environment variable TPUSIM_PRODUCTS, else the backend's.

    Raises ValueError for a name that is no form, and for a form whose sums are wrong on this backend (`is_exact`).
    """
    named = _asked[-1] if _asked else os.environ.get(VARIABLE)
    if named is None:
        return BY_BACKEND.get(jax.default_backend(), "float32")
    if named not in FORMS:
        raise ValueError(f"{VARIABLE}: one of {', '.join(FORMS)} is required, got '{named}'")
    if not is_exact(named):
        raise ValueError(
            f"{VARIABLE}={named}: XLA's Triton kernels double sums of int8 products on a GPU; set it to bfloat16, or "
            f"set XLA_FLAGS={WITHOUT_TRITON} before JAX is imported"
        )
    return named


def is_exact(name: str) -> bool:
    """Whether a form computes right sums here: int8 dots on a GPU do so only without XLA's Triton kernels."""
    int8_on_gpu = name in ("library", "int8") and jax.default_backend() == "gpu"
    return not int8_on_gpu or WITHOUT_TRITON in os.environ.get("XLA_FLAGS", "").split()


@contextmanager
def using(name: str) -> Generator[None]:
    """Compute products in this form inside the context (of the whole process)."""
    _asked.append(name)
    try:
        yield
    finally:
        _asked.pop()


def processor() -> list[str]:
    """The lines with feature flags in the system's description of its processors; empty without such a description."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return []


@functools.cache
def has_byte_products() -> bool:
    """Whether int8 products are several times as fast as f32 ones: on accelerators, and processors that say so.

    On an AVX2 processor without such instructions, three int8 products took twice the time of one f32 product.
    """
    words = {word for line in processor() for word in line.split()}
    return jax.default_backend() != "cpu" or bool(words & BYTE_PRODUCTS)


def estimating() -> bool:
    """Whether f32 products currently use XLA's library (`estimates`)."""
    return _estimates.get()


@contextmanager
def estimates() -> Generator[None]:
    """Compute f32 products by XLA's library inside the context (of this thread).

    The library adds in an undocumented order: several times as fast, with other low bits. This is for searches that
    compute their final choice again in order.
    """
    before = _estimates.set(True)
    try:
        yield
    finally:
        _estimates.reset(before)


def is_plain() -> bool:
    """Whether kernels are currently traced as plain expressions (`plain`)."""
    return _plain.get()


@contextmanager
def plain() -> Generator[None]:
    """Trace kernels as the expressions that are differentiated, inside the context (of this thread).

    Nothing is fenced, f32 products are the library's (`estimates`), and rounding to a smaller float has the derivative
    1. The bits differ from those that a kernel computes.
    """
    before = _plain.set(True)
    try:
        with estimates():
            yield
    finally:
        _plain.reset(before)


def choice() -> tuple[str, bool, bool]:
    """All choices of this module. A traced or stored kernel is valid for one combination of them only."""
    return form(), estimating(), is_plain()
