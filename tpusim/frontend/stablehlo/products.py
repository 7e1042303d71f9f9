"""Products of matrices, convolutions, windows and reductions."""

# the bindings have no complete type stubs:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from jax.extend.mlir.dialects import stablehlo

from tpusim.errors import UnsupportedError
from tpusim.frontend.stablehlo.ordering import extreme_place
from tpusim.frontend.stablehlo.reading import Op, instructions, type_of
from tpusim.frontend.stablehlo.values import Computed, Constant, Value
from tpusim.frontend.stablehlo.writer import Sums, Writer, order_of

REDUCTIONS: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "stablehlo.add": ("ReduceSum", np.sum), "stablehlo.maximum": ("ReduceMax", np.max),
    "stablehlo.minimum": ("ReduceMin", np.min), "stablehlo.multiply": ("ReduceProd", np.prod),
    "stablehlo.or": ("ReduceMax", np.any), "stablehlo.and": ("ReduceMin", np.all),
}  # fmt: skip
"""What the body of a reduction computes -> the node, and the function of arrays."""
COMBINED: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "stablehlo.add": ("Add", np.add), "stablehlo.multiply": ("Mul", np.multiply),
    "stablehlo.maximum": ("Max", np.maximum), "stablehlo.minimum": ("Min", np.minimum),
    "stablehlo.or": ("Or", np.logical_or), "stablehlo.and": ("And", np.logical_and),
}  # fmt: skip
"""The same for two values."""
EXTREMES = ("stablehlo.maximum", "stablehlo.minimum")
POOLED = ("stablehlo.add", *EXTREMES)


# ------------------------------------------------------------------------------------------------------------- products


def dot_general(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A product over axes of both operands, with axes that both have."""
    numbers = stablehlo.DotDimensionNumbers(op.attribute("dot_dimension_numbers"))
    batch = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    inner = [list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)]
    return _product(w, op, operands, batch, inner)


def dot(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A product of vectors or matrices, in the form of earlier releases: the last axis by the first."""
    return _product(w, op, operands, [[], []], [[len(operands[0].shape) - 1], [0]])


def _product(
    w: Writer, op: Op, operands: Sequence[Value], batch: list[list[int]], inner: list[list[int]]
) -> list[Value]:
    """The product over `inner` of both operands, for every index of the axes `batch`."""
    left, right = operands
    shape, dtype = type_of(op.results[0])
    free = [
        [axis for axis in range(len(value.shape)) if axis not in (*batch[i], *inner[i])]
        for i, value in enumerate(operands)
    ]
    if all(isinstance(v, Constant) for v in operands):
        return [_constant_product(left, right, batch, inner, free, shape, dtype)]
    return [_matrix_product(w, operands, batch, inner, free, shape, dtype)]


def _constant_product(left: Value, right: Value, batch: Any, inner: Any, free: Any, shape: Any, dtype: Any) -> Constant:
    assert isinstance(left, Constant) and isinstance(right, Constant)
    a, b = list(range(len(left.shape))), [len(left.shape) + i for i in range(len(right.shape))]
    for i, j in zip((*batch[0], *inner[0]), (*batch[1], *inner[1]), strict=True):
        b[j] = a[i]
    out = [*(a[i] for i in batch[0]), *(a[i] for i in free[0]), *(b[i] for i in free[1])]
    return Constant(np.einsum(left.array, a, right.array, b, out).astype(dtype).reshape(shape))


def _matrix_product(
    w: Writer, operands: Sequence[Value], batch: Any, inner: Any, free: Any, shape: tuple[int, ...], dtype: np.dtype
) -> Computed:
    """MatMul of (batch, rows, K) and (batch, K, columns), several axes of a kind as one.

    The operands change places where fewer of them are transposed then; the result is a view either way.
    """
    layouts = [[(*batch[i], *free[i], *inner[i]), (*batch[1 - i], *inner[1 - i], *free[1 - i])] for i in (0, 1)]
    pairs = [(operands[i], operands[1 - i]) for i in (0, 1)]
    costs = [
        (isinstance(pair[0], Constant), sum(_moves(value, axes) for value, axes in zip(pair, layout, strict=True)))
        for pair, layout in zip(pairs, layouts, strict=True)
    ]
    first = int(costs[1] < costs[0])
    (left, right), (rows, columns) = pairs[first], (free[first], free[1 - first])
    if batch[0] and all(isinstance(v, Computed) and v.spare and not v.repeats for v in operands):
        # jax.numpy leaves an axis of extent 1 out of the product: it stays where it is
        whole = [_with_spare(v) for v in operands if isinstance(v, Computed)]
        batches, inside, outside = ([[a + 1 for a in axes] for axes in part] for part in (batch, inner, free))
        batches = [[0, *axes] for axes in batches]
        made = _matrix_product(w, whole, batches, inside, outside, (1, *shape), dtype)
        return replace(made, order=made.order[1:], shape=shape)
    heads, k = [left.shape[a] for a in batch[first]], prod(left.shape[a] for a in inner[first])
    out, over = [left.shape[a] for a in rows] or [1], [right.shape[a] for a in columns] or [1]
    wide = not heads and len(inner[0]) == 1  # (..., K) x (K, N), as MatMul takes it
    made = (*heads, *(out if wide else [prod(out)]), prod(over))
    a = _arranged(w, left, layouts[first][0], (*made[:-1], k))
    b = _arranged(w, right, layouts[first][1], (*heads, k, prod(over)))
    name, stored = w.node("MatMul", [a, b]), (*heads, *out, *over)
    w.shapes[name] = made
    places = iter(range(len(stored))), iter(range(len(heads) + len(out), len(stored)))
    order = [[next(places[0]) for _ in axes] for axes in (batch[first], rows)] + [[next(places[1]) for _ in columns]]
    order = [*order[0], *order[2], *order[1]] if first else [*order[0], *order[1], *order[2]]
    return Computed(w.reshaped(name, stored), stored, dtype, tuple(order), shape)


def _with_spare(value: Computed) -> Computed:
    """The value with one axis of extent 1 of its tensor as its first axis."""
    return replace(value, order=(value.spare[0], *value.order), shape=(1, *value.shape))


def _moves(value: Value, axes: Sequence[int]) -> int:
    """Whether a transpose brings the axes into an order."""
    if isinstance(value, Constant):
        return 0
    places = [value.order[a] for a in axes if value.shape[a] > 1]
    return int(places != sorted(places))


def _arranged(w: Writer, value: Value, axes: Sequence[int], shape: tuple[int, ...]) -> str:
    """A tensor with the value's axes in an order, then reshaped."""
    if isinstance(value, Constant):
        return w.constant(value.array.transpose(axes).reshape(shape), value.of)
    name, sizes = w.in_axes(value, axes), tuple(value.shape[a] for a in axes)
    return name if sizes == shape else w.reshaped(name, shape)


# --------------------------------------------------------------------------------------------------------- convolutions


def convolution(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """Conv, or ConvTranspose where the image has zeros between its elements."""
    x, filter = operands
    n = stablehlo.ConvDimensionNumbers(op.attribute("dimension_numbers"))
    shape, dtype = type_of(op.results[0])
    image = [n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions]
    kernel = [n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, *n.kernel_spatial_dimensions]
    result = [n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions]
    spatial = len(image) - 2
    strides = op.integers("window_strides") or (1,) * spatial
    pads = np.array(op.integers("padding") or (0, 0) * spatial).reshape(spatial, 2)
    holes, between = op.integers("rhs_dilation") or (1,) * spatial, op.integers("lhs_dilation") or (1,) * spatial
    groups = op.number("feature_group_count", 1)
    if op.number("batch_group_count", 1) != 1:
        raise UnsupportedError("batch_group_count = 1 is required, as of the gradient of a grouped convolution")
    backwards = np.array(op.integers("window_reversal") or (0,) * spatial, bool)
    taps = _filter(w, filter, kernel, backwards)
    source = w.in_axes(x, image)
    sizes = [filter.shape[axis] for axis in kernel]
    if max(between) > 1:
        name = _transposed(w, source, filter, kernel, backwards, (sizes, strides, pads, holes, between, groups))
    else:
        if pads.min() < 0:
            raise UnsupportedError(f"padding of 0 or more is required, got {pads.tolist()}")
        name = w.node(
            "Conv", [source, taps], kernel_shape=sizes[2:], strides=list(strides), dilations=list(holes), group=groups,
            pads=[int(p) for p in (*pads[:, 0], *pads[:, 1])],
        )  # fmt: skip
    return [w.from_axes(name, result, shape, dtype)]


def _filter(w: Writer, filter: Value, axes: Sequence[int], backwards: np.ndarray) -> str:
    """The filter as (oc, ic/groups, ...)."""
    if isinstance(filter, Constant):
        array = filter.array.transpose(axes)
        return w.constant(np.flip(array, tuple(2 + i for i, b in enumerate(backwards) if b)), filter.of)
    if backwards.any():
        raise UnsupportedError("a constant filter is required where a window is reversed, it is computed")
    return w.in_axes(filter, axes)


def _transposed(
    w: Writer, source: str, filter: Value, axes: Sequence[int], backwards: np.ndarray, window: tuple[Any, ...]
) -> str:
    sizes, strides, pads, holes, between, groups = window
    if not isinstance(filter, Constant) or max(strides) > 1:
        raise UnsupportedError("a constant filter and strides of 1 are required with lhs_dilation")
    array = np.flip(filter.array.transpose(axes), tuple(2 + i for i, b in enumerate(backwards) if not b))
    oc, ic, *window_shape = array.shape
    split = array.reshape(groups, oc // groups, ic, *window_shape).swapaxes(1, 2)
    reach = [(size - 1) * hole for size, hole in zip(sizes[2:], holes, strict=True)]
    low, high = ([r - int(p) for r, p in zip(reach, pads[:, side], strict=True)] for side in (0, 1))
    more = [max(0, -h) for h in high]
    if min(low) < 0:
        raise UnsupportedError(f"padding of at most {reach} before is required with lhs_dilation, got {pads.tolist()}")
    return w.node(
        "ConvTranspose", [source, w.constant(split.reshape(groups * ic, oc // groups, *window_shape), filter.of)],
        kernel_shape=sizes[2:], strides=list(between), dilations=list(holes), group=groups, output_padding=more,
        pads=[*low, *(max(0, h) for h in high)],
    )  # fmt: skip


def batch_norm(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """BatchNormalization with known mean and variance."""
    x, *parameters = operands
    (shape, dtype), axis = type_of(op.results[0]), op.number("feature_index")
    others = [a for a in range(len(shape)) if a != axis]
    axes = [others[0], axis, *others[1:]] if others else [axis]
    epsilon = float(op.attribute("epsilon").value)
    name = w.node("BatchNormalization", [w.in_axes(x, axes), *map(w.plain, parameters)], epsilon=epsilon)
    return [w.from_axes(name, axes, shape, dtype)]


# ------------------------------------------------------------------------------------------------- windows, reductions


def body_of(op: Op) -> str:
    """The one instruction of a reduction's body."""
    inside = [one.kind for one in instructions(op.block())]
    if len(inside) != 2 or inside[0] not in REDUCTIONS:  # noqa: PLR2004  the instruction and the return
        raise UnsupportedError(f"a body of one of {', '.join(REDUCTIONS)} is required, got {', '.join(inside[:-1])}")
    return inside[0]


def _neutral(body: str, dtype: np.dtype) -> Constant:
    """The value with which a reduction begins that changes nothing."""
    if body in EXTREMES:
        limits = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return Constant(np.asarray(limits[EXTREMES.index(body)], dtype))
    return Constant(np.asarray(body in ("stablehlo.multiply", "stablehlo.and"), dtype))


def _begins_neutral(first: Value, body: str) -> bool:
    return isinstance(first, Constant) and bool(first.array == _neutral(body, first.dtype).array)


def _combined(w: Writer, body: str, result: Value, first: Value) -> list[Value]:
    """A reduction and the value with which it begins."""
    kind, function = COMBINED[body]
    if isinstance(result, Constant) and isinstance(first, Constant):
        return [Constant(np.asarray(function(result.array, first.array), result.dtype))]
    return [w.together(kind, [result, w.broadcast(first, result.shape)], result.shape, result.dtype)]


def reduce(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """A reduction of one operand along axes; of two operands the place of the largest or smallest."""
    if len(operands) > 2:  # noqa: PLR2004  an operand and its first value
        return extreme_place(w, op, operands)
    x, first = operands
    body = body_of(op)
    if not _begins_neutral(first, body):
        return _combined(w, body, reduce(w, op, [x, _neutral(body, x.dtype)])[0], first)
    axes, (kind, function) = op.integers("dimensions"), REDUCTIONS[body]
    shape, dtype = type_of(op.results[0])
    if isinstance(x, Constant):
        return [Constant(np.asarray(function(x.array, axis=axes)).astype(dtype).reshape(shape))]
    if all(x.shape[a] == 1 for a in axes):
        order = tuple(place for axis, place in enumerate(x.order) if axis not in axes)
        return [replace(x, order=order, shape=shape)]
    repeated = any(x.inner[a] != x.shape[a] for a in axes)
    if repeated:
        layout = order_of([x], len(x.shape))
        x = w.from_axes(w.stored(x, layout, whole=True), np.argsort(layout).tolist(), x.shape, x.dtype)
    name = w.cast(x.name, np.dtype(np.float32)) if x.dtype == np.bool_ else x.name
    name = w.node(kind, [name, w.indices(sorted(x.order[a] for a in axes))], keepdims=1)
    if x.dtype == np.bool_:
        name = w.cast(name, x.dtype)
    gone = [x.order[a] for a in axes]
    stored = tuple(1 if place in gone else size for place, size in enumerate(x.stored))
    return [Computed(name, stored, dtype, tuple(place for place in x.order if place not in gone), shape)]


def reduce_window(w: Writer, op: Op, operands: Sequence[Value]) -> list[Value]:
    """MaxPool, or the sum of AveragePool; along one whole axis a running sum."""
    x, first = operands
    shape, dtype = type_of(op.results[0])
    window, body = op.integers("window_dimensions"), body_of(op)
    if not _begins_neutral(first, body):
        if body not in EXTREMES:
            raise UnsupportedError("a first value that changes nothing is required, as 0 of a sum")
        windows = reduce_window(w, op, [x, _neutral(body, x.dtype)])
        return _combined(w, body, windows[0], first)  # padding has the first value, too
    rank = len(window)
    strides = op.integers("window_strides") or (1,) * rank
    pads = np.array(op.integers("padding") or (0, 0) * rank).reshape(rank, 2)
    holes = (*op.integers("window_dilations"), *op.integers("base_dilations"))
    if any(hole != 1 for hole in holes):
        raise UnsupportedError("windows without dilation are required")
    if isinstance(x, Constant):
        return [Constant(_windows(x.array, body, (window, strides, pads)).astype(dtype))]
    long = [axis for axis in range(rank) if window[axis] > 1 or pads[axis].any() or strides[axis] > 1]
    if body == "stablehlo.add" and _is_running(x.shape, window, strides, pads, long):
        return [_running_sum(w, x, long[0], backwards=bool(pads[long[0], 1]), shape=shape)]
    others = [axis for axis in range(rank) if axis not in long]
    while len(long) < 2 and len(others) > 2:  # noqa: PLR2004  an image has two axes, and two more
        long = sorted((*long, others.pop(1)))
    if not 1 <= len(long) <= 3 or body not in POOLED:  # noqa: PLR2004  the axes of an image, and its depth
        raise UnsupportedError("windows over one to three axes are required, of sum, maximum or minimum")
    axes = [*others, *long]

    def pooled(kind: str, source: str, **more: Any) -> Computed:
        return _from_image(w, w.node(kind, [source], **options, **more), axes, len(long), shape, dtype)

    options: dict[str, Any] = {
        "kernel_shape": [window[a] for a in long], "strides": [strides[a] for a in long],
        "pads": [int(p) for p in (*pads[long, 0], *pads[long, 1])],
    }  # fmt: skip
    if body == "stablehlo.minimum":
        lowest = _as_image(w, w.together("Neg", [x], x.shape, dtype), axes, len(long))
        return [w.together("Neg", [pooled("MaxPool", lowest)], shape, dtype)]
    source = _as_image(w, x, axes, len(long))
    if body == "stablehlo.maximum":
        return [pooled("MaxPool", source)]
    average = pooled("AveragePool", source, count_include_pad=1)
    count = prod(window)
    total = w.together("Mul", [average, Constant(np.broadcast_to(np.asarray(count, dtype), shape))], shape, dtype)
    counts = _windows(
        np.ones([1 if axis in others else x.shape[axis] for axis in range(rank)]), body, (window, strides, pads)
    )
    w.window_sums[total.name] = Sums(average, source, options, axes, counts.transpose(axes))
    return [total]


def divided(w: Writer, operands: Sequence[Value]) -> Value | None:
    """The average of a window whose sum is divided by the number of its elements; None for another quotient."""
    total, count = operands
    if not isinstance(total, Computed) or total.name not in w.window_sums or not isinstance(count, Constant):
        return None
    sums = w.window_sums[total.name]
    average = sums.average
    if not (count.array == prod(sums.options["kernel_shape"])).all():
        counts = np.broadcast_to(sums.counts, total.stored).transpose(*total.order, *total.spare)
        if not np.array_equal(count.array, np.broadcast_to(counts.reshape(total.inner), total.shape)):
            return None
        name = w.node("AveragePool", [sums.source], **sums.options, count_include_pad=0)
        average = _from_image(w, name, sums.axes, len(sums.options["strides"]), average.shape, average.dtype)
    return replace(total, name=average.name)  # the sum may be a view by now, as of another order


def _as_image(w: Writer, x: Computed, axes: Sequence[int], long: int) -> str:
    """A tensor of a value with its axes in an order, of which all but the last `long` are samples and channels."""
    return _reshaped_image(w, w.in_axes(x, axes), [x.shape[a] for a in axes], long)


def _from_image(
    w: Writer, name: str, axes: Sequence[int], long: int, shape: tuple[int, ...], dtype: np.dtype
) -> Computed:
    """The value of a tensor in the form of `_as_image`."""
    sizes = [shape[a] for a in axes]
    return w.from_axes(name if len(sizes) == 2 + long else w.reshaped(name, sizes), axes, shape, dtype)


def _reshaped_image(w: Writer, name: str, sizes: Sequence[int], long: int) -> str:
    *samples, channels = [1, 1, *sizes[: len(sizes) - long]]
    return name if len(sizes) == 2 + long else w.reshaped(name, (prod(samples), channels, *sizes[len(sizes) - long :]))


def _windows(array: np.ndarray, body: str, window: tuple[Any, ...]) -> np.ndarray:
    """A reduction over windows of a constant."""
    sizes, strides, pads = window
    fill = {"stablehlo.add": 0, "stablehlo.maximum": -np.inf, "stablehlo.minimum": np.inf, "stablehlo.multiply": 1}[
        body
    ]
    padded = np.pad(array, pads, constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(padded, sizes)[tuple(slice(None, None, s) for s in strides)]
    return REDUCTIONS[body][1](views, axis=tuple(range(array.ndim, 2 * array.ndim)))


def _is_running(shape: Any, window: Any, strides: Any, pads: np.ndarray, long: list[int]) -> bool:
    if len(long) != 1 or strides[long[0]] != 1 or window[long[0]] != shape[long[0]]:
        return False
    return sorted(pads[long[0]].tolist()) == [0, window[long[0]] - 1]


def _running_sum(w: Writer, x: Computed, axis: int, *, backwards: bool, shape: tuple[int, ...]) -> Computed:
    where = w.constant(np.asarray(axis, np.int64))
    return Computed.plain(w.node("CumSum", [w.plain(x), where], reverse=int(backwards)), shape, x.dtype)


FORMS: dict[str, Callable[[Writer, Op, Sequence[Value]], list[Value]]] = {
    "stablehlo.dot_general": dot_general, "stablehlo.dot": dot, "stablehlo.convolution": convolution,
    "stablehlo.reduce": reduce, "stablehlo.reduce_window": reduce_window, "stablehlo.batch_norm_inference": batch_norm,
}  # fmt: skip
"""Instruction -> the function that writes it."""
