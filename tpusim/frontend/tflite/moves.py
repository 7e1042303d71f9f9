"""Ops that move elements: shapes, parts, joins, pads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tpusim.errors import UnsupportedError
from tpusim.frontend.tflite.activation import activate, activated
from tpusim.frontend.tflite.file import Operator
from tpusim.frontend.tflite.writer import NCHW_AXIS, TO_NCHW, Writer

REFLECT = 0
"""`MirrorPadMode.REFLECT` of the schema: the border itself is not repeated."""


def reshape(w: Writer, op: Operator) -> None:
    """Reshape, Squeeze, ExpandDims: determined by the result's shape."""
    _shaped(w, w.value(op.inputs[0], images=False), op.outputs[0])


def _shaped(w: Writer, x: str, number: int) -> None:
    """Write a result that is another view of tensor `x`."""
    y = w.target(number)
    w.node("Reshape", [x, w.array(f"{y}_shape", np.array(w.tensor(number).shape, np.int64))], y)
    w.done(number, images=False)


def transpose(w: Writer, op: Operator) -> None:
    """Transpose by a constant order of axes."""
    order = [int(n) for n in w.integers(op.inputs[1]).reshape(-1)]
    w.node("Transpose", [w.value(op.inputs[0], images=False)], w.target(op.outputs[0]), perm=order)
    w.done(op.outputs[0], images=False)


def pad(w: Writer, op: Operator) -> None:
    """Pad with zeros, or with a constant operand."""
    amounts, y = _by_axis(w.integers(op.inputs[1]).reshape(-1, 2)), w.target(op.outputs[0])
    pads = w.array(f"{y}_pads", amounts.T.reshape(-1))
    value = [w.value(op.inputs[2], images=False)] if op.kind == "PADV2" else []
    if value and w.tensor(op.inputs[2]).shape:
        value = [w.node("Reshape", [*value, w.array(f"{y}_scalar", np.zeros(0, np.int64))], f"{y}_value")]
    w.node("Pad", [w.value(op.inputs[0], images=True), pads, *value], y)
    w.done(op.outputs[0], images=True)


def mirror_pad(w: Writer, op: Operator) -> None:
    """Pad with the elements next to the border in reverse order, excluding or including the border itself."""
    amounts, y = _by_axis(w.integers(op.inputs[1]).reshape(-1, 2)), w.target(op.outputs[0])
    x, mode = w.value(op.inputs[0], images=True), op.option("Mode", REFLECT)
    if mode == REFLECT:
        w.node("Pad", [x, w.array(f"{y}_pads", amounts.T.reshape(-1))], y, mode="reflect")
    else:
        shape = _by_axis(np.array(w.tensor(op.inputs[0]).shape))
        padded = [axis for axis, pair in enumerate(amounts) if pair.any()]
        for axis in padded:
            before, after = (int(n) for n in amounts[axis])
            places = np.pad(np.arange(int(shape[axis])), (before, after), mode="symmetric")
            name = y if axis == padded[-1] else f"{y}_{axis}"
            x = w.node("Gather", [x, w.array(f"{name}_places", places)], name, axis=axis)
        if not padded:
            w.node("Identity", [x], y)
    w.done(op.outputs[0], images=True)


def _by_axis(values: np.ndarray) -> np.ndarray:
    """Values given for every axis, in the order of axes of the written image (NCHW)."""
    return values[list(TO_NCHW)] if len(values) == 4 else values


def _axis(axis: int, rank: int) -> int:
    """An axis of the file in that order."""
    axis %= rank
    return NCHW_AXIS[axis] if rank == 4 else axis


def concat(w: Writer, op: Operator) -> None:
    """Join tensors along an existing axis."""
    axis, target = _axis(op.option("Axis", 0), len(w.tensor(op.outputs[0]).shape)), activated(w, op)
    w.node("Concat", [w.value(number, images=True) for number in op.inputs], target, axis=axis)
    activate(w, op)


def pack(w: Writer, op: Operator) -> None:
    """Join tensors along a new axis."""
    shape, y = list(w.tensor(op.outputs[0]).shape), w.target(op.outputs[0])
    axis = op.option("Axis", 0) % len(shape)
    shape[axis] = 1
    each = w.array(f"{y}_each", np.array(shape, np.int64))
    parts = [
        w.node("Reshape", [w.value(n, images=False), each], f"{y}_part{i}") for i, n in enumerate(op.inputs)
    ]  # fmt: skip
    w.node("Concat", parts, y, axis=axis)
    w.done(op.outputs[0], images=False)


def unpack(w: Writer, op: Operator) -> None:
    """The parts along an axis, which is removed."""
    x, rank = op.inputs[0], len(w.tensor(op.inputs[0]).shape)
    parts = [f"{w.target(n)}_part" for n in op.outputs]
    w.node("Split", [w.value(x, images=False)], *parts, axis=op.option("Axis", 0) % rank)
    for number, part in zip(op.outputs, parts, strict=True):
        _shaped(w, part, number)


def split(w: Writer, op: Operator) -> None:
    """Equal parts, or parts of constant sizes, which may leave one size open."""
    places = (1, 0) if op.kind == "SPLIT" else (0, 2)
    x, axis = op.inputs[places[0]], int(w.integers(op.inputs[places[1]]).reshape(-1)[0])
    shape = w.tensor(x).shape
    sizes = [w.tensor(n).shape[axis % len(shape)] for n in op.outputs]
    named = w.array(f"{w.target(op.outputs[0])}_sizes", np.array(sizes, np.int64))
    made = [w.target(n) for n in op.outputs]
    w.node("Split", [w.value(x, images=True), named], *made, axis=_axis(axis, len(shape)))
    for number in op.outputs:
        w.done(number, images=True)


def slice_(w: Writer, op: Operator) -> None:
    """Constant numbers of elements from constant positions on; -1: all that remain."""
    begins, sizes = (w.integers(n).reshape(-1) for n in op.inputs[1:3])
    extents = w.tensor(op.inputs[0]).shape
    ends = [b + n if n >= 0 else extent for b, n, extent in zip(begins, sizes, extents, strict=True)]
    _cut(w, op, [slice(int(b), int(e), 1) for b, e in zip(begins, ends, strict=True)])


def strided_slice(w: Writer, op: Operator) -> None:
    """As NumPy's indexing by slices, single places, new axes and an ellipsis; masks say which is which."""
    begins, ends, steps = (w.integers(n).reshape(-1) for n in op.inputs[1:4])
    masks = {name: op.option(f"{name}Mask", 0) for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    if op.option("Offset", 0):
        ends = begins + ends
    index: list[slice | None] = []  # None: all axes that are not named
    for i, (begin, end, step) in enumerate(zip(begins.tolist(), ends.tolist(), steps.tolist(), strict=True)):
        is_ = {name: bool(mask >> i & 1) for name, mask in masks.items()}
        if is_["Ellipsis"]:
            index.append(None)
        elif is_["NewAxis"]:
            continue  # the result's shape already contains the new axis
        elif is_["ShrinkAxis"]:
            index.append(slice(begin, begin + 1 if begin != -1 else None, 1))
        else:
            index.append(slice(None if is_["Begin"] else begin, None if is_["End"] else end, step))
    rank = len(w.tensor(op.inputs[0]).shape)
    at = index.index(None) if None in index else len(index)
    rest = [slice(None)] * (rank - len(index) + (None in index))
    _cut(w, op, [s for s in (*index[:at], *rest, *index[at + 1 :]) if s is not None])


def _cut(w: Writer, op: Operator, index: Sequence[slice]) -> None:
    """Slices of all axes; the result may be another view of them."""
    shape, y, made = w.tensor(op.inputs[0]).shape, w.target(op.outputs[0]), w.tensor(op.outputs[0]).shape
    ranges = [range(*s.indices(n)) for s, n in zip(index, shape, strict=True)]
    if not all(map(len, ranges)):
        raise UnsupportedError(f"a part with elements is required, got {tuple(map(len, ranges))} of {shape}")
    viewed = tuple(map(len, ranges)) != made
    images = len(shape) == 4 and not viewed
    order = TO_NCHW if images else range(len(shape))
    parts = [ranges[axis] for axis in order]
    before = np.iinfo(np.int64).min  # an end before the first element, for negative steps
    numbers = {
        "starts": [r.start for r in parts],
        "ends": [r.stop if r.stop >= 0 else before for r in parts],
        "axes": list(range(len(parts))),
        "steps": [r.step for r in parts],
    }
    names = [w.array(f"{y}_{key}", np.array(value, np.int64)) for key, value in numbers.items()]
    cut = w.node("Slice", [w.value(op.inputs[0], images=images), *names], f"{y}_cut" if viewed else y)
    if viewed:
        _shaped(w, cut, op.outputs[0])
    else:
        w.done(op.outputs[0], images=images)


def gather(w: Writer, op: Operator) -> None:
    """Elements of an axis, or rows of a table, by their places."""
    if op.option("BatchDims", 0):
        raise UnsupportedError(f"batch_dims 0 is required, got {op.option('BatchDims', 0)}")
    x, places = op.inputs[:2] if op.kind != "EMBEDDING_LOOKUP" else op.inputs[1::-1]
    names = [w.value(n, images=False) for n in (x, places)]
    axis = op.option("Axis", 0) if op.kind == "GATHER" else 0
    w.node("Gather", names, w.target(op.outputs[0]), axis=axis)
    w.done(op.outputs[0], images=False)


def tile(w: Writer, op: Operator) -> None:
    """Repeat along every axis, a constant number of times."""
    times = w.array(f"{w.target(op.outputs[0])}_times", _by_axis(w.integers(op.inputs[1]).reshape(-1)))
    w.node("Tile", [w.value(op.inputs[0], images=True), times], w.target(op.outputs[0]))
    w.done(op.outputs[0], images=True)


def broadcast(w: Writer, op: Operator) -> None:
    """Broadcast to the result's extents."""
    shape = w.array(f"{w.target(op.outputs[0])}_shape", np.array(w.tensor(op.outputs[0]).shape, np.int64))
    w.node("Expand", [w.value(op.inputs[0], images=False), shape], w.target(op.outputs[0]))
    w.done(op.outputs[0], images=False)


def reverse(w: Writer, op: Operator) -> None:
    """The elements along axes from the last to the first."""
    rank = len(w.tensor(op.inputs[0]).shape)
    axes = {int(a) % rank for a in w.integers(op.inputs[1]).reshape(-1)}
    _cut(w, op, [slice(None, None, -1 if axis in axes else 1) for axis in range(rank)])


def extents(w: Writer, op: Operator) -> None:
    """The shape of a tensor, or how many axes it has: constants."""
    shape, kind = w.tensor(op.inputs[0]).shape, w.tensor(op.outputs[0]).dtype
    found = np.array(shape if op.kind == "SHAPE" else len(shape), kind)
    w.node("Identity", [w.array(f"{w.target(op.outputs[0])}_number", found)], w.target(op.outputs[0]))
    w.done(op.outputs[0], images=False)


def zeros(w: Writer, op: Operator) -> None:
    """As many zeros as the operand has elements."""
    tensor, y = w.tensor(op.outputs[0]), w.target(op.outputs[0])
    kind = np.float32 if len(tensor.scales) else tensor.dtype
    w.node("Identity", [w.array(f"{y}_number", np.zeros(tensor.shape, kind))], y)
    w.done(op.outputs[0], images=False)


def one_hot(w: Writer, op: Operator) -> None:
    """Rows that are `on` at one place, else `off`."""
    places, depth, on, off = op.inputs
    y, row = w.target(op.outputs[0]), w.array("one_hot_row", np.array([1]))
    ends = [w.node("Reshape", [w.value(n, images=False), row], f"{y}_{n}") for n in (off, on)]
    names = [
        w.node("Cast", [w.value(places, images=False)], f"{y}_places", to=TensorProto.INT64),
        w.array(f"{y}_depth", w.integers(depth).reshape(1)),
        w.node("Concat", ends, f"{y}_values", axis=0),
    ]
    w.node("OneHot", names, y, axis=op.option("Axis", -1))
    w.done(op.outputs[0], images=False)


def batch_blocks(w: Writer, op: Operator) -> None:
    """Blocks of pixels to or from the batch, with pads before or crops after; in this order of axes nothing mixes."""
    block, edges = w.integers(op.inputs[1]).reshape(-1), w.integers(op.inputs[2]).reshape(-1, 2)
    n, h, wide, c = _image_of_blocks(w, op, block)
    y, (a, b) = w.target(op.outputs[0]), (int(v) for v in block)
    x = w.value(op.inputs[0], images=False)

    def moved(x: str, shape: Sequence[Any], order: Sequence[int], then: Sequence[Any], last: str) -> str:
        x = w.node("Reshape", [x, w.array(f"{y}_parts", np.array(shape, np.int64))], f"{y}_taken_apart")
        x = w.node("Transpose", [x], f"{y}_exchanged", perm=list(order))
        return w.node("Reshape", [x, w.array(f"{y}_whole", np.array(then, np.int64))], last)

    if op.kind == "SPACE_TO_BATCH_ND":
        pads = np.array([0, *edges[:, 0], 0, 0, *edges[:, 1], 0], np.int64)
        h, wide = h + int(edges[0].sum()), wide + int(edges[1].sum())
        x = w.node("Pad", [x, w.array(f"{y}_pads", pads)], f"{y}_padded")
        shape = (n, h // a, a, wide // b, b, c)
        moved(x, shape, (2, 4, 0, 1, 3, 5), (a * b * n, h // a, wide // b, c), y)
    else:
        shape, n = (a, b, n // (a * b), h, wide, c), n // (a * b)
        x = moved(x, shape, (2, 3, 0, 4, 1, 5), (n, h * a, wide * b, c), f"{y}_whole_image")
        ends = np.array([h * a - edges[0, 1], wide * b - edges[1, 1]], np.int64)
        numbers = {"starts": edges[:, 0].copy(), "ends": ends, "axes": np.array([1, 2])}
        w.node("Slice", [x, *(w.array(f"{y}_{key}", value) for key, value in numbers.items())], y)
    w.done(op.outputs[0], images=False)


def _image_of_blocks(w: Writer, op: Operator, block: np.ndarray) -> tuple[int, int, int, int]:
    shape = w.tensor(op.inputs[0]).shape
    if len(shape) != 4 or len(block) != 2:
        raise UnsupportedError(f"an image of four axes and blocks of two are required, got {shape} and {list(block)}")
    return shape
