"""Instructions that order elements: sort, top_k, and the reductions that give the place of the largest or smallest.

A comparator and a reduction's body are instructions of the file, recognised by their results for a few numbers.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tpusim.errors import UnsupportedError
from tpusim.frontend.stablehlo.reading import Op, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Writer


def _run(w: Writer, op: Op, numbers: Sequence[float], types: Sequence[np.dtype]) -> list[float]:
    """The results of the instruction's block for these numbers."""
    given = [Constant(np.asarray(number, dtype)) for number, dtype in zip(numbers, types, strict=True)]
    return [float(v.array.item()) for v in w.run(op.block(), given) if isinstance(v, Constant)]


def is_along(value: Value, axis: int) -> bool:
    """Whether the elements of a value are their places along an axis."""
    aligned = [size if place == axis else 1 for place, size in enumerate(value.shape)]
    along = np.arange(value.shape[axis]).reshape(aligned)
    return isinstance(value, Constant) and np.array_equal(value.array, np.broadcast_to(along, value.shape))


def extreme_place(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """ArgMax or ArgMin with the value: a reduction of values and their places, of equal values the first."""
    if len(operands) != 4 or len(op.integers("dimensions")) != 1:  # noqa: PLR2004  two operands, two first values
        raise UnsupportedError("a reduction of several operands is only read as argmax or argmin along one axis")
    x, places, (axis,) = operands[0], operands[1], op.integers("dimensions")
    types = (x.dtype, places.dtype) * 2
    # value and place of the left and the right operand
    probes = [_run(w, op, numbers, types) for numbers in ((0, 3, 1, 5), (1, 3, 0, 5), (0, 3, 0, 5))]
    largest = probes == [[1, 5], [1, 3], [0, 3]]
    if not is_along(places, axis) or not (largest or probes == [[0, 3], [0, 5], [0, 3]]):
        raise UnsupportedError("a reduction of several operands is only read as argmax or argmin along one axis")
    shape, dtype = type_of(op.results[1])
    if isinstance(x, Constant):
        found = (np.argmax if largest else np.argmin)(x.array, axis)
        values = np.take_along_axis(x.array, np.expand_dims(found, axis), axis).squeeze(axis)
        return [Constant(values), Constant(found.astype(dtype))]
    source = w.cast(w.plain(x), np.dtype(np.float32)) if x.dtype == np.bool_ else w.plain(x)
    name = w.node("ArgMax" if largest else "ArgMin", [source], axis=axis, keepdims=0)
    extreme = w.node("ReduceMax" if largest else "ReduceMin", [source, w.indices([axis])], keepdims=0)
    if x.dtype == np.bool_:
        extreme = w.cast(extreme, x.dtype)
    return [Computed.plain(extreme, shape, x.dtype), Computed.plain(w.cast(name, dtype), shape, dtype)]


def sort(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Ascending or descending by the first operand: TopK of all elements; the others are gathered by its places."""
    x, axis = operands[0], op.number("dimension")
    types = [v.dtype for v in operands for _ in range(2)]
    more = [1, 1] * (len(operands) - 1)
    up, down = (_run(w, op, [*pair, *more], types) == [1] for pair in ((1, 2), (2, 1)))
    by_others = any(_run(w, op, [1, 1, *more[:i], *pair, *more[i + 2 :]], types) == [1]
                    for i in range(0, len(more), 2) for pair in ((1, 2), (2, 1)))  # fmt: skip
    if up == down or by_others:
        raise UnsupportedError("a comparison that orders by the first operand, up or down, is required")
    if isinstance(x, Constant):
        places = np.argsort(-x.array.astype(np.float64) if down else x.array, axis, kind="stable")
        if all(isinstance(v, Constant) for v in operands):
            return [Constant(np.take_along_axis(v.array, places, axis)) for v in operands if isinstance(v, Constant)]
    if x.dtype.kind not in "fi":
        raise UnsupportedError(f"floats or signed integers are required, got {x.dtype}")
    size = x.shape[axis]
    values, name = w.several("TopK", [w.plain(x), w.indices([size])], 2, axis=axis, largest=int(down), sorted=1)
    results: list[Value] = [Computed.plain(values, x.shape, x.dtype)]
    for other in operands[1:]:
        taken = w.cast(name, other.dtype) if is_along(other, axis) else w.node(
            "GatherElements", [w.plain(other), name], axis=axis
        )  # fmt: skip
        results.append(Computed.plain(taken, x.shape, other.dtype))
    return results


def top_k(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """The largest of the last axis, and their places."""
    (x,), k = operands, op.number("k")
    (shape, _), (_, dtype) = map(type_of, op.results)
    values, places = w.several("TopK", [w.plain(x), w.indices([k])], 2, axis=-1, largest=1, sorted=1)
    return [Computed.plain(values, shape, x.dtype), Computed.plain(w.cast(places, dtype), shape, dtype)]


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    "stablehlo.sort": sort, "chlo.top_k": top_k,
}  # fmt: skip
"""Instruction -> the function that writes it."""
