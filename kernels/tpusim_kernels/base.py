"""The `kernel` decorator and the few array idioms that every kernel shares.

A kernel is a pure function of arrays. `kernel` compiles it with `jax.jit`, with 64-bit types enabled for the duration
of the call only, so that importing or calling this package never changes the configuration of the user's JAX.

Why float values are *fenced*: XLA may contract `a * b + c` into one fused multiply-add, fold `(x * c1) * c2` into
`x * (c1 * c2)`, or turn a division by a constant into a multiplication. All three change bits, and all three depend on
which operations are next to a kernel in the compiled program. A kernel must give the same bits alone and inside a
larger jit, so its float inputs pass an optimisation barrier (stops the folding) and its float outputs, inside an outer
trace, pass `pin` (stops the contraction, which happens after barriers are gone).

Derivatives are those of the same function traced as a plain expression (`prim.forms.plain`): fences work on the bits
of a float, where JAX sees the derivative zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np

from tpusim_kernels.batches import is_batched
from tpusim_kernels.gradient import differentiable
from tpusim_kernels.lazy import is_traced, jax, jnp, lax
from tpusim_kernels.prim.forms import is_plain, plain
from tpusim_kernels.store import Stored, text_with_imports

P = ParamSpec("P")
R = TypeVar("R")

Array: TypeAlias = "jax.Array"
ArrayLike: TypeAlias = "jax.typing.ArrayLike"


LAST_NAN = 0xFFFFFFFE
"""The largest bit pattern of f32 that `pin` can return."""


def pin(x: Array) -> Array:
    """Return float `x` (f32 or f64) unchanged, as a value that no later operation can be merged with.

    Formula: the bits of `x` as an unsigned integer, limited to the second largest integer. This changes one NaN pattern
    into another NaN and nothing else. XLA and LLVM cannot prove that it is the identity, so they keep it. A plain
    `lax.optimization_barrier` is removed before code generation and does not stop the contraction into a fused
    multiply-add. Other dtypes are returned as they are; so is everything in plain expressions (`prim.forms.plain`).
    """
    if is_plain():
        return x
    bits = {jnp.dtype(jnp.float32): jnp.uint32, jnp.dtype(jnp.float64): jnp.uint64}.get(x.dtype)
    if bits is None:
        return x
    limit = jnp.asarray(jnp.iinfo(bits).max - 1, bits)
    return lax.bitcast_convert_type(jnp.minimum(lax.bitcast_convert_type(x, bits), limit), x.dtype)


def pin_shared(x: Array) -> Array:
    """`pin` for a value that several operations read: XLA computes it only once.

    XLA duplicates an operation of one operand into each reader, together with the operations before it: the last reader
    of a chain of residual sums would compute all of them again. XLA does not duplicate a select. So the value becomes a
    select between two equal operands: for f32 the value and the NaN that it equals, for bytes the value and the least
    byte that it equals. Values of other dtypes are only pinned.
    """
    if x.dtype in (jnp.int8, jnp.uint8):
        least = jnp.asarray(jnp.iinfo(x.dtype).min, x.dtype)
        return jnp.where(x == least, least, x)
    x = pin(x)
    if x.dtype != jnp.float32 or is_plain():
        return x
    largest = lax.bitcast_convert_type(x, jnp.uint32) == jnp.uint32(LAST_NAN)
    return jnp.where(largest, lax.bitcast_convert_type(jnp.uint32(LAST_NAN), jnp.float32), x)


def _enter(x: Any) -> Any:
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating) and not is_plain():
        return lax.optimization_barrier(x)
    return x


def _strong(x: Any) -> Any:
    return lax.convert_element_type(x, x.dtype)


def _leave(x: Any) -> Any:
    return pin_shared(x) if is_traced(x) and not is_batched(x) else x


def _leave_inline(x: Any) -> Any:
    """As `_leave`, but bytes are not pinned: the caller's kernel goes on with them."""
    return x if is_traced(x) and x.dtype in (jnp.int8, jnp.uint8) else _leave(x)


def kernel(static: Sequence[str] = (), *, inline: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a jitted kernel: `static` names the compile-time attributes, every other argument is a dynamic array.

    64-bit types are on inside the call and only there, also inside an outer trace that has them off; results are never
    weakly typed; float inputs and outputs are fenced (module docstring). `inline` merges the kernel into the caller's
    trace (for the small primitives).
    """

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(fn)
        def body(*args: P.args, **kwargs: P.kwargs) -> R:
            args, kwargs = jax.tree.map(_enter, (args, kwargs))
            return jax.tree.map(_strong, fn(*args, **kwargs))

        def identity() -> str | None:
            ours = fn.__module__.startswith("tpusim_kernels.")  # what other packages depend on is not known
            return f"{fn.__module__}.{fn.__qualname__} {text_with_imports(fn.__module__)}" if ours else None

        compiled = Stored(body, identity, static, inline=inline)

        def exact(*args: P.args, **kwargs: P.kwargs) -> R:
            with jax.enable_x64(True):
                return jax.tree.map(_leave_inline if inline else _leave, compiled(*args, **kwargs))

        def expression(*args: P.args, **kwargs: P.kwargs) -> R:
            with jax.enable_x64(True), plain():
                return compiled(*args, **kwargs)

        differentiated = differentiable(exact, expression)

        @functools.wraps(fn)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return exact(*args, **kwargs) if is_plain() else differentiated(*args, **kwargs)

        return cast("Callable[P, R]", call)

    return decorate


def i64(x: ArrayLike) -> Array:
    """`x` (array or Python int) as a strongly typed int64 array."""
    return lax.convert_element_type(x, jnp.int64)


def f32(x: ArrayLike) -> Array:
    """`x` (array or Python number) as a strongly typed float32 array."""
    return lax.convert_element_type(x, jnp.float32)


def divide(a: Array, b: Array) -> Array:
    """Compute a / b with one rounding, `b` expanded to the shape of `a` (equal float dtypes).

    The expanded divisor is fenced: XLA replaces a division by a broadcast or constant value with a product by its
    reciprocal, which rounds twice.
    """
    return a / lax.optimization_barrier(jnp.broadcast_to(b, a.shape))


def along_axis(p: ArrayLike, ndim: int, axis: int) -> Array:
    """Give a scalar, (1,) or (C,) parameter rank `ndim` with its elements on `axis`, ready to combine with a tensor."""
    p = jnp.asarray(p)
    if p.size == 1:
        return p.reshape((1,) * ndim)
    if p.ndim != 1:
        raise ValueError(f"a per-channel parameter must have shape (C,), (1,) or (), got {p.shape}")
    shape = [1] * ndim
    shape[axis] = p.size
    return p.reshape(shape)


def broadcast_all(xs: Sequence[Array]) -> list[Array]:
    """NumPy broadcasting made explicit: every array expanded to the common shape (strict rank promotion stays on)."""
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    return [jnp.broadcast_to(x, shape) for x in xs]
