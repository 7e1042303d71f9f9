"""Instructions that move elements, or choose them by place."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.frontend.stablehlo.reading import Op, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Writer, order_of, order_to_join


def broadcast_in_dim(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """New axes, and axes of extent 1 that are repeated: a view."""
    x, dims = operands[0], op.integers("broadcast_dimensions")
    shape, _ = type_of(op.results[0])
    if isinstance(x, Constant):
        aligned = np.ones(len(shape), int)
        aligned[list(dims)] = x.shape
        array = x.array.transpose(np.argsort(dims)) if dims else x.array
        return [Constant(np.broadcast_to(array.reshape(aligned), shape), x.of)]
    new = [axis for axis in range(len(shape)) if axis not in dims]
    spare, stored, name = list(x.spare), x.stored, x.name
    if len(spare) < len(new):
        more = len(new) - len(spare)
        spare += range(len(stored), len(stored) + more)
        stored = (*stored, *(1,) * more)
        name = w.reshaped(name, stored)
    order = [0] * len(shape)
    for axis, target in enumerate(dims):
        order[target] = x.order[axis]
    for axis in new:
        order[axis] = _taken(spare, last=axis > max(dims, default=-1))
    return [Computed(name, stored, x.dtype, tuple(order), shape)]


def transpose(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Axes in another order: a view."""
    (x,), order = operands, op.integers("permutation")
    return [Constant(x.array.transpose(order), x.of) if isinstance(x, Constant) else x.transposed(order)]


def reshape(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """The same elements with other extents; where only axes of extent 1 come and go, the order of axes stays."""
    x, (shape, _) = operands[0], type_of(op.results[0])
    if isinstance(x, Constant):
        return [Constant(x.array.reshape(shape), x.of)]
    if tuple(s for s in x.shape if s != 1) == tuple(s for s in shape if s != 1) and not x.repeats:
        return [_with_ones(w, x, shape)]
    return [Computed.plain(w.reshaped(w.plain(x), shape), shape, x.dtype)]


def _with_ones(w: Writer, x: Computed, shape: Sequence[int]) -> Computed:
    """Only axes of extent 1 come or go: a view, where the tensor has enough of them."""
    long = [place for axis, place in enumerate(x.order) if x.shape[axis] != 1]
    ones = [place for axis, place in enumerate(x.order) if x.shape[axis] == 1]
    spare, stored, name = list(x.spare), x.stored, x.name
    missing = sum(size == 1 for size in shape) - len(ones) - len(spare)
    if missing > 0:
        spare += range(len(stored), len(stored) + missing)
        stored = (*stored, *(1,) * missing)
        name = w.reshaped(name, stored)
    order: list[int] = []
    for size in shape:
        order.append((long if size != 1 else ones).pop(0) if size != 1 or ones else _taken(spare, last=not long))
    return Computed(name, stored, x.dtype, tuple(order), tuple(shape))


def _taken(spare: list[int], *, last: bool) -> int:
    """A spare axis for a new one: after all others the last, so that means of the last axis are put back there."""
    return spare.pop(-1 if last else 0)


def concatenate(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Operands one after the other along an axis."""
    axis, (shape, dtype) = op.number("dimension"), type_of(op.results[0])
    operands = [v for v in operands if v.shape[axis]]
    if all(isinstance(v, Constant) for v in operands):
        return [Constant(np.concatenate([v.array for v in operands if isinstance(v, Constant)], axis))]
    order = order_to_join(operands, len(shape))
    parts = [w.stored(v, order, whole=True) for v in operands]
    axes = [int(i) for i in np.argsort(order)]
    return [w.from_axes(w.node("Concat", parts, axis=order[axis]), axes, shape, dtype)]


def slice_(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A slice, with steps."""
    (x,) = operands
    return [cut(w, x, op.integers("start_indices"), op.integers("limit_indices"), op.integers("strides"))]


def cut(w: Writer, x: Value, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Value:
    """A part of a value; of repeated axes nothing is copied."""
    if isinstance(x, Constant):
        return Constant(x.array[tuple(slice(*part) for part in zip(starts, ends, steps, strict=True))])
    shape = tuple(-(-(e - s) // t) for s, e, t in zip(starts, ends, steps, strict=True))
    whole = enumerate(zip(starts, ends, steps, x.inner, x.shape, strict=True))
    cuts = [(s, e, x.order[i], t) for i, (s, e, t, inner, size) in whole if inner > 1 and (s, e, t) != (0, size, 1)]
    if not cuts:
        return replace(x, shape=shape)
    cuts.sort(key=lambda part: part[2])
    name = w.node("Slice", [x.name, *(w.indices(numbers) for numbers in zip(*cuts, strict=True))])
    stored = list(x.stored)
    for start, end, axis, step in cuts:
        stored[axis] = -(-(end - start) // step)
    return Computed(name, tuple(stored), x.dtype, x.order, shape)


def pad(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A number around and between the elements; negative padding cuts."""
    x, number = operands
    low, high = op.integers("edge_padding_low"), op.integers("edge_padding_high")
    inside = op.integers("interior_padding")
    if not isinstance(number, Constant):
        raise UnsupportedError("a constant number as padding is required, it is computed")
    value: Value = x
    for axis, count in enumerate(inside):
        if count:
            value = _dilated(w, value, axis, count, number)
    around = [max(0, p) for p in low], [max(0, p) for p in high]
    if any(around[0]) or any(around[1]):
        value = _padded(w, value, around, number)
    starts = [max(0, -p) for p in low]
    ends = [size - max(0, -p) for size, p in zip(value.shape, high, strict=True)]
    if starts != [0] * len(starts) or tuple(ends) != value.shape:
        value = cut(w, value, starts, ends, [1] * len(starts))
    return [value]


def _padded(w: Writer, x: Value, around: tuple[Sequence[int], Sequence[int]], number: Constant) -> Value:
    if isinstance(x, Constant):
        return Constant(np.pad(x.array, list(zip(*around, strict=True)), constant_values=number.array.item()))
    layout = order_of([x], len(x.shape))
    name, axes = w.stored(x, layout, whole=True), [int(i) for i in np.argsort(layout)]
    pads = [side[axis] for side in around for axis in axes]
    name = w.node("Pad", [name, w.indices(pads), w.constant(number.array.astype(x.dtype))])
    shape = tuple(size + a + b for size, a, b in zip(x.shape, *around, strict=True))
    return w.from_axes(name, axes, shape, x.dtype)


def _dilated(w: Writer, x: Value, axis: int, count: int, number: Constant) -> Value:
    """`count` numbers between neighbours of an axis: an axis of one element after it, padded, joined and cut."""
    shape = x.shape
    if isinstance(x, Constant):
        long = (*shape[:axis], (shape[axis] - 1) * (count + 1) + 1, *shape[axis + 1 :])
        array = np.full(long, number.array.item(), x.dtype)
        array[(slice(None),) * axis + (slice(None, None, count + 1),)] = x.array
        return Constant(array)
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    y = Computed.plain(w.reshaped(w.plain(x), apart), apart, x.dtype)
    after = [count if place == axis + 1 else 0 for place in range(len(apart))]
    y = _padded(w, y, ([0] * len(apart), after), number)
    joined = (*shape[:axis], shape[axis] * (count + 1), *shape[axis + 1 :])
    z = Computed.plain(w.reshaped(w.plain(y), joined), joined, x.dtype)
    ends = [size - count if place == axis else size for place, size in enumerate(joined)]
    return cut(w, z, [0] * len(ends), ends, [1] * len(ends))


def reverse(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Put the elements along axes in opposite order."""
    (x,), axes = operands, op.integers("dimensions")
    if isinstance(x, Constant):
        return [Constant(np.flip(x.array, axes))]
    name = x.name
    for axis in axes:
        if x.inner[axis] > 1:
            parts = [w.indices([n]) for n in (-1, -(1 << 62), x.order[axis], -1)]
            name = w.node("Slice", [name, *parts])
    return [replace(x, name=name)]


def iota(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """The places along an axis."""
    shape, dtype = type_of(op.results[0])
    axis = op.number("iota_dimension")
    aligned = [size if place == axis else 1 for place, size in enumerate(shape)]
    return [Constant(np.broadcast_to(np.arange(shape[axis]).astype(dtype).reshape(aligned), shape))]


def constant(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A constant of the text."""
    from tpusim.frontend.stablehlo.constants import array_of

    shape, dtype = type_of(op.results[0])
    return [Constant(np.broadcast_to(array_of(op.attribute("value"), dtype, w.resources), shape))]


def dimension_size(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """An extent, which is known."""
    return [Constant(np.asarray(operands[0].shape[op.number("dimension")], np.int32))]


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    "stablehlo.broadcast_in_dim": broadcast_in_dim, "stablehlo.transpose": transpose, "stablehlo.reshape": reshape,
    "stablehlo.concatenate": concatenate, "stablehlo.slice": slice_, "stablehlo.pad": pad, "stablehlo.reverse": reverse,
    "stablehlo.dynamic_broadcast_in_dim": broadcast_in_dim, "stablehlo.dynamic_reshape": reshape,
    "stablehlo.get_dimension_size": dimension_size, "stablehlo.iota": iota, "stablehlo.constant": constant,
    "arith.constant": constant,
}  # fmt: skip
"""Instruction -> the function that writes it."""
