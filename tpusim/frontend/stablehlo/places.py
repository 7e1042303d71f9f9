"""Instructions that choose elements by indices."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence

import numpy as np
from jax.extend.mlir.dialects import stablehlo

from tpusim.errors import UnsupportedError
from tpusim.frontend.stablehlo.moves import cut
from tpusim.frontend.stablehlo.reading import Op, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Writer


def dynamic_slice(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A part at a place: a Slice where the place is known, a Gather along one axis where it is computed."""
    x, *starts = operands
    sizes = op.integers("slice_sizes")
    for axis, start in enumerate(starts):
        most = x.shape[axis] - sizes[axis]
        if isinstance(start, Constant) or most == 0:
            begin = min(max(int(start.array.item()), 0), most) if isinstance(start, Constant) else 0
            begins, ends = [0] * len(x.shape), list(x.shape)
            begins[axis], ends[axis] = begin, begin + sizes[axis]
            x = cut(w, x, begins, ends, [1] * len(begins))
    for axis, start in enumerate(starts):
        if x.shape[axis] != sizes[axis]:
            x = _taken(w, x, axis, _inside(w, start, x.shape[axis] - sizes[axis]), sizes[axis])
    return [x]


def _inside(w: Writer, start: Value, most: int) -> str:
    """An index without axes, int64, within 0 and the last place."""
    name = w.node("Cast", [w.plain(start)], to=7)
    return w.node("Clip", [name, *(w.constant(np.asarray(n, np.int64)) for n in (0, most))])


def _taken(w: Writer, x: Value, axis: int, start: str, size: int) -> Computed:
    """So many elements along an axis from a computed place."""
    places = w.node("Add", [w.node("Reshape", [start, w.indices([1])]), w.indices(range(size))])
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return Computed.plain(w.node("Gather", [w.plain(x), places], axis=axis), shape, x.dtype)


def dynamic_update_slice(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A tensor with another in a part of it; a computed place along one axis chooses row by row."""
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
    start = w.node("Cast", [_inside(w, starts[axis], length - size)], to=1)
    aligned = [length if a == axis else 1 for a in range(len(x.shape))]
    places = np.arange(length, dtype=np.float32).reshape(aligned)
    after = w.node("Sub", [w.constant(places), start])
    within = w.node("And", [
        w.node("GreaterOrEqual", [after, w.constant(np.float32(0))]), w.node("Less", [after, w.constant(np.float32(size))]),
    ])  # fmt: skip
    if size == 1:
        rows = w.plain(update)
    else:
        chosen = w.node("Clip", [after, w.constant(np.float32(0)), w.constant(np.float32(size - 1))])
        line = w.node("Cast", [w.node("Reshape", [chosen, w.indices([length])])], to=7)
        rows = w.node("Gather", [w.plain(update), line], axis=axis)
    return [Computed.plain(w.node("Where", [within, rows, w.plain(x)]), x.shape, x.dtype)]


def _constant_update(values: Sequence[Constant]) -> Constant:
    x, update, *starts = (v.array for v in values)
    result = np.array(x)
    begins = [min(max(int(s.item()), 0), size - part) for s, size, part in zip(starts, x.shape, update.shape, strict=True)]
    result[tuple(slice(b, b + n) for b, n in zip(begins, update.shape, strict=True))] = update
    return Constant(result)


def _known_update(w: Writer, x: Value, update: Value, starts: Sequence[int]) -> Value:
    """What is before, the update and what is after, joined axis by axis from the last."""
    value = update
    rank = len(x.shape)
    begins = [min(max(int(s), 0), x.shape[a] - update.shape[a]) for a, s in enumerate(starts)]
    for axis in range(rank):
        begin, end, size = begins[axis], begins[axis] + update.shape[axis], x.shape[axis]
        if (begin, end) == (0, size):
            continue
        low = [0 if a <= axis else begins[a] for a in range(rank)]
        high = [x.shape[a] if a <= axis else begins[a] + update.shape[a] for a in range(rank)]
        parts: list[str] = []
        for first, last in ((0, begin), (end, size)):
            if first < last:
                low[axis], high[axis] = first, last
                parts.append(w.plain(cut(w, x, low, high, [1] * rank)))
            else:
                parts.append("")
        joined = [p for p in (parts[0], w.plain(value), parts[1]) if p]
        shape = tuple(x.shape[a] if a <= axis else update.shape[a] for a in range(rank))
        value = Computed.plain(w.node("Concat", joined, axis=axis), shape, x.dtype)
    return value


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
    if len(mapped) > 1 and isinstance(indices, Constant):
        return _gathered_by_places(w, x, indices, n, sizes, shape)
    if len(mapped) != 1 or sizes[mapped[0]] != 1 or collapsed != mapped or any(
        sizes[a] != x.shape[a] for a in range(len(x.shape)) if a not in mapped
    ):
        raise UnsupportedError(f"indices along one axis are required, got slices {list(sizes)} of {list(x.shape)} along {long}")
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
    name = w.node("Cast", [w.reshaped(given or name, shape)], to=7)
    return name if given else w.node("Clip", [name, *(w.constant(np.asarray(e, np.int64)) for e in (0, size - 1))])


def _order(n: "stablehlo.GatherDimensionNumbers", axis: int, taken: int, rank: int) -> list[int]:
    """Axis of the result -> axis of what Gather makes: (before, indices, after)."""
    offsets = list(n.offset_dims)
    lines = [i if i < axis else i + taken for i in range(rank - taken)]
    order, batch = [-1] * rank, iter(range(axis, axis + taken))
    for place, line in zip(offsets, lines, strict=True):
        order[place] = line
    return [next(batch) if place < 0 else place for place in order]


def _gathered_by_places(w: Writer, x: Value, indices: Constant, n: object, sizes: Sequence[int], shape: tuple[int, ...]) -> list[Value]:
    """One part at a known place."""
    places = indices.array.reshape(-1)
    mapped = list(n.start_index_map)  # type: ignore[attr-defined]
    if places.size != len(mapped):
        raise UnsupportedError("indices along one axis, or of one place, are required")
    begins = [0] * len(x.shape)
    for axis, place in zip(mapped, places, strict=True):
        begins[axis] = min(max(int(place), 0), x.shape[axis] - sizes[axis])
    part = cut(w, x, begins, [b + s for b, s in zip(begins, sizes, strict=True)], [1] * len(begins))
    if isinstance(part, Constant):
        return [Constant(part.array.reshape(shape))]
    return [Computed.plain(w.node("Reshape", [w.plain(part), w.indices(shape)]), shape, x.dtype)]


def _gathered_in_batches(w: Writer, x: Value, indices: Value, n: object, sizes: Sequence[int], shape: tuple[int, ...]) -> Value:
    """One element of each line: take_along_axis."""
    (axis,) = list(n.start_index_map)  # type: ignore[attr-defined]
    if prod_of(sizes) != 1 or len(indices.shape) != len(x.shape) + 1:
        raise UnsupportedError("take_along_axis is the only gather with batches that is supported")
    if isinstance(indices, Constant):
        places = w.constant(indices.array.reshape(indices.shape[:-1]).astype(np.int64))
    else:
        places = w.node("Cast", [w.node("Reshape", [w.plain(indices), w.indices(indices.shape[:-1])])], to=7)
    return Computed.plain(w.node("GatherElements", [w.plain(x), places], axis=axis), shape, x.dtype)


def prod_of(sizes: Sequence[int]) -> int:
    """The product."""
    return int(np.prod(sizes))


def top_k(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """The largest of the last axis, and their places."""
    (x,), k = operands, op.number("k")
    shape, _ = type_of(op.results[0])
    values, places = w.several("TopK", [w.plain(x), w.indices([k])], 2, axis=-1, largest=1, sorted=1)
    return [Computed.plain(values, shape, x.dtype), Computed.plain(w.node("Cast", [places], to=6), shape, np.dtype(np.int32))]


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    "stablehlo.dynamic_slice": dynamic_slice, "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather, "chlo.top_k": top_k,
}  # fmt: skip
"""Instruction -> the function that writes it."""
