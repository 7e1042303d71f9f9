"""Functions of several elements, in the words that commands and ops share: relations, selections, places.

Each is an uninterpreted function; only its parameters and the numbers of places have a meaning. Operands are elements.
"""

from collections.abc import Sequence

import numpy as np

from tpusim.field.arithmetic import Elements, Field, summed, times

_SYMMETRIC = ("Equal", "NotEqual", "And", "Or", "Xor")


def related(field: Field, kind: str, a: Elements, b: Elements) -> Elements:
    """A relation; greater is less with the operands exchanged."""
    if kind in _SYMMETRIC:
        a, b = np.minimum(a, b), np.maximum(a, b)
    elif kind.startswith("Greater"):
        kind, a, b = kind.replace("Greater", "Less"), b, a
    return field.apply(("relation", kind), a, b)


def chosen(field: Field, condition: Elements, true: Elements, false: Elements) -> Elements:
    """A selection by the condition, unless both branches are equal."""
    return np.where(true == false, true, field.apply(("where",), condition, true, false))


def gathered(field: Field, data: Elements, indices: Elements, axis: int) -> Elements:
    """Every element is a function of its line of the data along the axis, and of its index."""
    lines = field.row(data, (axis,)).squeeze(axis)
    before, after = lines.shape[:axis], lines.shape[axis:]
    at = indices.reshape((1,) * len(before) + indices.shape + (1,) * len(after))
    return field.apply(("gather",), lines.reshape(before + (1,) * indices.ndim + after), at)


def picked(field: Field, name: tuple[object, ...], indices: Elements, data: Elements) -> Elements:
    """A function of all data and their shape, an index and its place."""
    places = np.arange(indices.size).reshape(indices.shape)
    return field.apply((*name, data.shape, indices.shape), field.row(data).reshape(()), indices, places)


def of_whole(field: Field, name: tuple[object, ...], operands: Sequence[Elements], shape: tuple[int, ...]) -> Elements:
    """A function of all operands as a whole, of the shapes and of the place."""
    rows = [field.row(x).reshape(()) for x in operands]
    return field.apply(
        (*name, shape, *(x.shape for x in operands)), np.arange(int(np.prod(shape))).reshape(shape), *rows
    )


def of_samples(
    field: Field, name: tuple[object, ...], operands: Sequence[Elements], shape: tuple[int, ...]
) -> Elements:
    """A function of all elements of a sample (axis 0), of its shape and of the place in it."""
    rows = [field.row(x, range(1, x.ndim)).reshape(-1, *(1,) * (len(shape) - 1)) for x in operands]
    key = (*name, shape[1:], *(x.shape[1:] for x in operands))
    return field.apply(key, np.arange(int(np.prod(shape[1:]))).reshape(1, *shape[1:]), *rows)


def channels_around(field: Field, x: Elements, size: int) -> Elements:
    """For every element the hash of the channels (axis 1) in its window, zeros outside."""
    around = (size - 1) // 2
    wide = np.pad(x, ((0, 0), (around, around), *((0, 0),) * (x.ndim - 2)))
    seen = np.stack([wide[:, i : i + x.shape[1]] for i in range(2 * around + 1)], -1)
    return field.row(seen, (-1,))[..., 0]


def weighed(field: Field, name: tuple[object, ...], x: Elements, axes: Sequence[tuple[np.ndarray, ...]]) -> Elements:
    """A function of the weighed sum of the neighbours of every place of an image (n, c, h, w).

    axes: for h and for w the first neighbour of every place, the second, and their weights.
    """
    for axis, (first, second, *weights) in enumerate(axes, 2):
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        left, right = (field.constants(weight).reshape(shape) for weight in weights)
        x = summed((times(x.take(first, axis), left), times(x.take(second, axis), right)))
    return field.apply(name, x)
