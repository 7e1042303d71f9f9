"""Elements chosen by position: gathering and scattering along an axis, the largest of a row, sums up to each place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tpusim_kernels.base import Array, kernel
from tpusim_kernels.lazy import jnp, lax

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _places(indices: Array, extent: int) -> Array:
    """Indices as int32; negative ones count from the end."""
    whole = indices.astype(jnp.int32)
    return jnp.where(whole < 0, whole + extent, whole)


@kernel(static=("axis",))
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """Give the slices of `x` at `indices` along `axis`: int32 or whole f32, negative ones count from the end."""
    return jnp.take(x, _places(indices, x.shape[axis]), axis=axis, mode="clip")


@kernel(static=("axis",))
def gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    """Give y[..., i, ...] = x[..., indices[..., i, ...], ...] along `axis`; indices as for `gather`, of x's rank.

    Along other axes the indices may be shorter than x.
    """
    part = tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(indices.shape))
    return jnp.take_along_axis(x[part], _places(indices, x.shape[axis]), axis=axis, mode="clip")


@kernel(static=("axis", "reduction"))
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
    """Give x with updates at indices along `axis`; they replace the elements or are combined with them (REDUCTIONS).

    indices, updates: of one shape and x's rank; sums are added in an unspecified order.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"a reduction of {', '.join(REDUCTIONS)} is required, got {reduction!r}")
    at: list[Any] = list(jnp.indices(indices.shape, sparse=True))
    at[axis] = _places(indices, x.shape[axis])
    chosen = x.at[tuple(at)]
    combine: dict[str, Callable[..., Array]] = {
        "none": chosen.set, "add": chosen.add, "mul": chosen.multiply, "max": chosen.max, "min": chosen.min
    }  # fmt: skip
    return combine[reduction](updates, mode="drop")


@kernel(static=("axis", "k", "largest"))
def top_k(x: Array, *, axis: int, k: int, largest: bool) -> Array:
    """Give the indices (int32) of the k largest or smallest elements along `axis`, in order; equal ones by index."""
    order = jnp.argsort(x, axis=axis, stable=True, descending=largest)
    return lax.slice_in_dim(order, 0, k, axis=axis).astype(jnp.int32)


@kernel(static=("axis", "exclusive", "reverse", "mode"))
def cumulate(x: Array, *, axis: int, exclusive: bool, reverse: bool, mode: str) -> Array:
    """Give sums (products, by mode) of all elements up to each place along `axis`; in double, rounded once.

    exclusive: without the element itself. reverse: from the end.
    """
    if mode not in ("sum", "prod"):
        raise ValueError(f"mode sum or prod is required, got {mode!r}")
    wide = x.astype(jnp.float64)
    wide = jnp.flip(wide, axis) if reverse else wide
    if exclusive:
        first = jnp.full_like(lax.slice_in_dim(wide, 0, 1, axis=axis), 0.0 if mode == "sum" else 1.0)
        wide = jnp.concatenate([first, lax.slice_in_dim(wide, 0, x.shape[axis] - 1, axis=axis)], axis)
    y = (jnp.cumsum if mode == "sum" else jnp.cumprod)(wide, axis=axis)
    return (jnp.flip(y, axis) if reverse else y).astype(jnp.float32)


__all__ = ["REDUCTIONS", "cumulate", "gather", "gather_elements", "scatter_elements", "top_k"]
