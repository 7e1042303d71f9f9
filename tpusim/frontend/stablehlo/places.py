"""Instructions that choose elements by indices."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from jax.extend.mlir.dialects import stablehlo

from tpusim.errors import UnsupportedError
from tpusim.frontend.stablehlo.moves import cut
from tpusim.frontend.stablehlo.reading import Op, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Writer, order_to_join

INT = np.dtype(np.int64)


def dynamic_slice(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A part at a place: a Slice where the place is known, a Gather along one axis where it is computed."""
    x, *starts = operands
    sizes = op.integers("slice_sizes")
    for axis, start in enumerate(starts):
        most = x.shape[axis] - sizes[axis]
        if isinstance(start, Constant) or most == 0:
            begin = min(max(int(start.array.item()), 0), most) if isinstance(start, Constant) else 0
            x = _part(w, x, axis, begin, begin + sizes[axis])
    for axis, start in enumerate(starts):
        if x.shape[axis] != sizes[axis]:
            x = _taken(w, x, axis, _inside(w, start, x.shape[axis] - sizes[axis]), sizes[axis])
    return [x]


def _inside(w: Writer, start: Value, most: int) -> str:
    """An index without axes, int64, within 0 and the last place."""
    name = w.cast(w.plain(start), INT)
    return w.node("Clip", [name, *(w.constant(np.asarray(n, np.int64)) for n in (0, most))])


def _taken(w: Writer, x: Value, axis: int, start: str, size: int) -> Computed:
    """`size` elements along an axis, from a computed place on."""
    places = w.node("Add", [w.reshaped(start, [1]), w.indices(range(size))])
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return Computed.plain(w.node("Gather", [w.plain(x), places], axis=axis), shape, x.dtype)


def dynamic_update_slice(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A tensor with a part replaced; if the place is computed, along one axis, a Where chooses row by row."""
    x, update, *starts = operands
    long = [a for a in range(len(x.shape)) if update.shape[a] != x.shape[a]]
    if all(isinstance(v, Constant) for v in operands):
        return [_constant_update([v for v in operands if isinstance(v, Constant)])]
    if all(isinstance(starts[a], Constant) for a in long):
        return [_known_update(w, x, update, [s.array.item() if isinstance(s, Constant) else 0 for s in starts])]
    if len(long) != 1:
        raise UnsupportedError("a place that is known, or computed along one axis, is required")
    (axis,) = long
    size, length = update.shape[axis], x.shape[axis]
    start = w.cast(_inside(w, starts[axis], length - size), np.dtype(np.float32))
    aligned = [length if a == axis else 1 for a in range(len(x.shape))]
    places = np.arange(length, dtype=np.float32).reshape(aligned)
    after = w.node("Sub", [w.constant(places), start])
    least, most = (w.constant(np.float32(number)) for number in (0, size - 1))
    within = w.node("And", [w.node("GreaterOrEqual", [after, least]), w.node("LessOrEqual", [after, most])])
    if size == 1:
        rows = w.plain(update)
    else:
        chosen = w.node("Clip", [after, least, most])
        line = w.cast(w.reshaped(chosen, [length]), INT)
        rows = w.node("Gather", [w.plain(update), line], axis=axis)
    return [Computed.plain(w.node("Where", [within, rows, w.plain(x)]), x.shape, x.dtype)]


def _constant_update(values: Sequence[Constant]) -> Constant:
    x, update, *starts = (v.array for v in values)
    result = np.array(x)
    begins = [
        min(max(int(s.item()), 0), size - part) for s, size, part in zip(starts, x.shape, update.shape, strict=True)
    ]
    result[tuple(slice(b, b + n) for b, n in zip(begins, update.shape, strict=True))] = update
    return Constant(result)


def _known_update(w: Writer, x: Value, update: Value, starts: Sequence[int]) -> Value:
    """The part before, the update and the part after, joined; a chain of updates has one Concat, at the last."""
    begins = [min(max(int(s), 0), x.shape[a] - update.shape[a]) for a, s in enumerate(starts)]
    axes = [a for a in range(len(x.shape)) if update.shape[a] != x.shape[a]]
    if not axes:
        return update
    axis, (begin, size) = axes[0], (begins[axes[0]], update.shape[axes[0]])
    if len(axes) > 1:
        inner = _part(w, x, axis, begin, begin + size)
        update = _known_update(w, inner, update, [0 if a == axis else b for a, b in enumerate(begins)])
    along, parts = w.pieces.get(x.name, (axis, [x])) if isinstance(x, Computed) else (axis, [x])
    parts = parts if along == axis else [x]
    parts = [*_between(w, parts, axis, 0, begin), update, *_between(w, parts, axis, begin + size, x.shape[axis])]
    order = order_to_join(parts, len(x.shape))
    name = w.node("Concat", [w.stored(p, order, whole=True) for p in parts], axis=order[axis])
    w.pieces[name] = axis, parts
    return w.from_axes(name, [int(i) for i in np.argsort(order)], x.shape, x.dtype)


def _between(w: Writer, parts: Sequence[Value], axis: int, begin: int, end: int) -> Iterator[Value]:
    """The elements between two places, from parts that follow each other along an axis."""
    place = 0
    for part in parts:
        first, last = max(begin - place, 0), min(end - place, part.shape[axis])
        if first < last:
            yield _part(w, part, axis, first, last)
        place += part.shape[axis]


def _part(w: Writer, x: Value, axis: int, begin: int, end: int) -> Value:
    """A part along one axis."""
    if (begin, end) == (0, x.shape[axis]):
        return x
    begins, ends = [0] * len(x.shape), list(x.shape)
    begins[axis], ends[axis] = begin, end
    return cut(w, x, begins, ends, [1] * len(begins))


def gather(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Whole lines of one axis by indices (`take`), or one part at an index of several axes that is known."""
    x, indices = operands
    n = stablehlo.GatherDimensionNumbers(op.attribute("dimension_numbers"))
    sizes, (shape, dtype) = op.integers("slice_sizes"), type_of(op.results[0])
    collapsed, mapped = list(n.collapsed_slice_dims), list(n.start_index_map)
    if list(n.operand_batching_dims):
        return [_gathered_in_batches(w, x, indices, n, sizes, shape)]
    vector = n.index_vector_dim
    long = [a for a in mapped if sizes[a] != x.shape[a]]
    if len(mapped) > 1 and isinstance(indices, Constant) and indices.array.size == len(mapped):
        return _gathered_by_places(w, x, indices, n, sizes, shape)
    if len(mapped) > 1 and sorted(collapsed) == sorted(mapped) and prod(sizes[a] for a in mapped) == 1:
        return [_gathered_points(w, x, indices, n, sizes, (shape, dtype))]
    if (
        len(mapped) != 1
        or sizes[mapped[0]] != 1
        or collapsed != mapped
        or any(sizes[a] != x.shape[a] for a in range(len(x.shape)) if a not in mapped)
    ):
        raise UnsupportedError(
            f"indices along one axis are required, got slices {list(sizes)} of {list(x.shape)} along {long}"
        )
    (axis,) = mapped
    taken = tuple(s for i, s in enumerate(indices.shape) if i != vector)
    if isinstance(indices, Constant):
        places = w.constant(np.clip(indices.array.reshape(taken), 0, x.shape[axis] - 1).astype(np.int64))
    else:
        places = _indices(w, indices, taken, x.shape[axis])
    if isinstance(x, Constant) and isinstance(indices, Constant):
        made = np.take(x.array, np.clip(indices.array.reshape(taken), 0, x.shape[axis] - 1).astype(np.int64), axis)
        order = _order(n, axis, len(taken), len(shape))
        return [Constant(made.transpose(order))]
    name = w.node("Gather", [w.plain(x), places], axis=axis)
    order = _order(n, axis, len(taken), len(shape))
    sizes_made = tuple([*x.shape[:axis], *taken, *x.shape[axis + 1 :]])
    return [Computed.plain(name, sizes_made, dtype).transposed(order)]


def _indices(w: Writer, indices: Computed, shape: tuple[int, ...], size: int) -> str:
    """Indices in int64; those that the network computes stay within the axis, inputs are left as they are."""
    name = w.plain(indices)
    given = w.input_of(name, size)
    name = w.cast(w.reshaped(given or name, shape), INT)
    return name if given else w.node("Clip", [name, *(w.constant(np.asarray(e, np.int64)) for e in (0, size - 1))])


def _order(n: "stablehlo.GatherDimensionNumbers", axis: int, taken: int, rank: int) -> list[int]:
    """Axis of the result -> axis of what Gather makes: (before, indices, after)."""
    offsets = list(n.offset_dims)
    lines = [i if i < axis else i + taken for i in range(rank - taken)]
    order, batch = [-1] * rank, iter(range(axis, axis + taken))
    for place, line in zip(offsets, lines, strict=True):
        order[place] = line
    return [next(batch) if place < 0 else place for place in order]


def _gathered_by_places(
    w: Writer, x: Value, indices: Constant, n: Any, sizes: Sequence[int], shape: tuple[int, ...]
) -> list[Value]:
    """One part at a known place."""
    places = indices.array.reshape(-1)
    mapped = list(n.start_index_map)
    if places.size != len(mapped):
        raise UnsupportedError("indices along one axis, or of one place, are required")
    begins = [0] * len(x.shape)
    for axis, place in zip(mapped, places, strict=True):
        begins[axis] = min(max(int(place), 0), x.shape[axis] - sizes[axis])
    part = cut(w, x, begins, [b + s for b, s in zip(begins, sizes, strict=True)], [1] * len(begins))
    if isinstance(part, Constant):
        return [Constant(part.array.reshape(shape))]
    return [Computed.plain(w.reshaped(w.plain(part), shape), shape, x.dtype)]


def _gathered_points(
    w: Writer, x: Value, indices: Value, n: Any, sizes: Sequence[int], result: tuple[tuple[int, ...], np.dtype]
) -> Value:
    """The elements at indices of several axes: these axes come first, merged into one, whose rows are gathered."""
    mapped, (shape, dtype) = list(n.start_index_map), result
    others = [a for a in range(len(x.shape)) if a not in mapped]
    if any(sizes[a] != x.shape[a] for a in others):
        raise UnsupportedError(f"whole axes are required where none is indexed, got {list(sizes)} of {list(x.shape)}")
    extents, vector = [x.shape[a] for a in mapped], n.index_vector_dim
    taken = tuple(s for i, s in enumerate(indices.shape) if i != vector)
    rows = (prod(extents), *(x.shape[a] for a in others))
    steps = [prod(extents[i + 1 :]) for i in range(len(extents))]
    if isinstance(indices, Constant):
        places = np.moveaxis(indices.array, vector, -1).astype(np.int64)
        flat = w.constant((np.clip(places, 0, np.asarray(extents) - 1) @ np.asarray(steps)).reshape(taken))
    else:
        flat = _flat_index(w, w.in_axes(indices, [*(i for i in range(len(indices.shape)) if i != vector), vector]),
                           extents, steps, taken)  # fmt: skip
    table = w.constant(x.array.transpose(*mapped, *others).reshape(rows)) if isinstance(x, Constant) else w.reshaped(
        w.in_axes(x, [*mapped, *others]), rows
    )  # fmt: skip
    made = Computed.plain(w.node("Gather", [table, flat], axis=0), (*taken, *rows[1:]), dtype)
    return replace(made.transposed(_order(n, 0, len(taken), len(shape))), shape=shape)


def _flat_index(w: Writer, name: str, extents: Sequence[int], steps: Sequence[int], taken: tuple[int, ...]) -> str:
    """Places in a row of several axes (..., axis), each within its axis."""
    name = w.node("Clip", [w.cast(name, INT), w.constant(np.asarray(0, INT))])
    name = w.node("Min", [name, w.constant(np.asarray(extents, INT) - 1)])
    name = w.node("Mul", [name, w.constant(np.asarray(steps, INT))])
    return w.node("ReduceSum", [name, w.indices([len(taken)])], keepdims=0)


def _gathered_in_batches(
    w: Writer, x: Value, indices: Value, n: Any, sizes: Sequence[int], shape: tuple[int, ...]
) -> Value:
    """One element of each line: take_along_axis."""
    (axis,) = list(n.start_index_map)
    if prod(sizes) != 1 or len(indices.shape) != len(x.shape) + 1:
        raise UnsupportedError("take_along_axis is the only gather with batches that is supported")
    if isinstance(indices, Constant):
        places = w.constant(indices.array.reshape(indices.shape[:-1]).astype(np.int64))
    else:
        places = w.cast(w.reshaped(w.plain(indices), indices.shape[:-1]), INT)
    return Computed.plain(w.node("GatherElements", [w.plain(x), places], axis=axis), shape, x.dtype)


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    "stablehlo.dynamic_slice": dynamic_slice, "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather,
}  # fmt: skip
"""Instruction -> the function that writes it."""
