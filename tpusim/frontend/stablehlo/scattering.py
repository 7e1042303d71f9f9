"""Scatter: updates at indices, as JAX writes `x.at[i].set(v)`."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from jax.extend.mlir.dialects import stablehlo

from tpusim.errors import UnsupportedError
from tpusim.frontend.stablehlo.reading import Op, instructions
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Writer

INT = np.dtype(np.int64)
BODIES = {
    "": "",
    "stablehlo.add": "Add",
    "stablehlo.multiply": "Mul",
    "stablehlo.maximum": "Max",
    "stablehlo.minimum": "Min",
}
"""How an update changes an element: it replaces it, or a function combines both."""


def scatter(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Updates at known places, or at one computed place of one axis."""
    inside = [one.kind for one in instructions(op.block())][:-1]
    if len(operands) != 3 or len(inside) > 1 or "".join(inside) not in BODIES:  # noqa: PLR2004  tensor, indices, updates
        raise UnsupportedError(f"one tensor and set, add, multiply, min or max are required, got {', '.join(inside)}")
    x, indices, updates = operands
    n: Any = stablehlo.ScatterDimensionNumbers(op.attribute("scatter_dimension_numbers"))
    kind = BODIES["".join(inside)]
    if isinstance(indices, Constant):
        return [_at_known(w, x, updates, _targets(x.shape, indices.array, updates.shape, n), kind)]
    return [_at_computed(w, x, indices, updates, n, kind)]


def _targets(shape: tuple[int, ...], indices: np.ndarray, updates: tuple[int, ...], n: Any) -> np.ndarray:
    """For each update its place in the flat tensor, -1 outside: of the shape of the updates."""
    window_axes, inserted = list(n.update_window_dims), list(n.inserted_window_dims)
    batches, of_indices = list(n.input_batching_dims), list(n.scatter_indices_batching_dims)
    vector, mapped = n.index_vector_dim, list(n.scattered_dims_to_operand_dims)
    grid = np.indices(updates)
    scatter_axes = [a for a in range(len(updates)) if a not in window_axes]
    indices = np.moveaxis(indices, vector, -1) if vector < indices.ndim else indices[..., None]
    starts = indices[tuple(grid[a] for a in scatter_axes)]
    places = [np.zeros(updates, np.int64) for _ in shape]
    for number, axis in enumerate(mapped):
        places[axis] = places[axis] + starts[..., number]
    for axis, of in zip(batches, of_indices, strict=True):
        places[axis] = places[axis] + grid[scatter_axes[of - (of > vector)]]
    windows = [a for a in range(len(shape)) if a not in inserted and a not in batches]
    for axis, window in zip(windows, window_axes, strict=True):
        places[axis] = places[axis] + grid[window]
    outside = np.zeros(updates, bool)
    for place, size in zip(places, shape, strict=True):
        outside |= (place < 0) | (place >= size)
    if window_axes:  # a window that is partly outside is left out
        outside = np.broadcast_to(outside.any(tuple(window_axes), keepdims=True), updates)
    flat = sum(place * prod(shape[axis + 1 :]) for axis, place in enumerate(places))
    return np.where(outside, -1, flat)


def _at_known(w: Writer, x: Value, updates: Value, targets: np.ndarray, kind: str) -> Value:
    """The tensor with the updates at their places, by a mask and a Gather of known places."""
    taken = targets.reshape(-1)
    inside = np.flatnonzero(taken >= 0)
    if kind and np.unique(taken[inside]).size != inside.size:
        raise UnsupportedError("different places are required, several updates of one element are")
    of = np.full(prod(x.shape), -1)
    of[taken[inside]] = inside
    of = of.reshape(x.shape)
    changed = Constant(of >= 0)
    if isinstance(updates, Constant):
        new: Value = Constant(updates.array.reshape(-1)[np.maximum(of, 0)])
    else:
        flat = w.reshaped(w.plain(updates), [prod(updates.shape)])
        new = Computed.plain(
            w.node("Gather", [flat, w.constant(np.maximum(of, 0).astype(INT))], axis=0), x.shape, x.dtype
        )
    if kind:
        new = w.together(kind, [x, new], x.shape, x.dtype)
    return w.together("Where", [changed, new, x], x.shape, x.dtype)


def _at_computed(w: Writer, x: Value, indices: Value, updates: Value, n: Any, kind: str) -> Value:
    """One line at a computed place of one axis; nothing where the place is outside."""
    mapped, inserted = list(n.scattered_dims_to_operand_dims), list(n.inserted_window_dims)
    whole = [size for axis, size in enumerate(x.shape) if axis not in inserted]
    if (
        prod(indices.shape) != 1
        or len(mapped) != 1
        or inserted != mapped
        or list(n.input_batching_dims)
        or [updates.shape[a] for a in n.update_window_dims] != whole
    ):
        raise UnsupportedError("places that are known, or one line at a computed place, are required")
    (axis,) = mapped
    aligned = [size if a == axis else 1 for a, size in enumerate(x.shape)]
    line = w.constant(np.arange(x.shape[axis], dtype=np.float32).reshape(aligned))
    place = w.cast(w.reshaped(w.plain(indices), [1] * len(x.shape)), np.dtype(np.float32))
    lines = w.reshaped(w.plain(updates), [1 if a == axis else size for a, size in enumerate(x.shape)])
    new = w.node(kind, [w.plain(x), lines]) if kind else lines
    return Computed.plain(w.node("Where", [w.node("Equal", [line, place]), new, w.plain(x)]), x.shape, x.dtype)


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {"stablehlo.scatter": scatter}
"""Instruction -> the function that writes it."""
