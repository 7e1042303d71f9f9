"""Forms of ops that move elements, stored in any type, or choose them by place."""

from math import prod
from typing import Any, cast

import numpy as np
from tpusim_kernels.resize import linear_source
from xdsl.dialects.builtin import i32

from tpusim.ir.attrs import ints
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.arg import Arg, TopArg, TpuArg
from tpusim.ops.concat import TopConcat, TpuConcat
from tpusim.ops.depth2space import Depth2Space
from tpusim.ops.framework.families import is_set
from tpusim.ops.pad import Pad
from tpusim.ops.permute import Permute
from tpusim.ops.resize.interp import Interpolation
from tpusim.ops.resize.upsample import Upsampling
from tpusim.ops.reverse import Reverse
from tpusim.ops.slice import Gather, Slice
from tpusim.ops.structure import TpuLoad, TpuStore
from tpusim.ops.swap_dim import SwapDimInner
from tpusim.ops.tile import Tile
from tpusim.ops.view import View
from tpusim.studies.export.tosa.forms import writes
from tpusim.studies.export.tosa.graph import Tensor, number
from tpusim.studies.export.tosa.walk import Writer


def taken(g: Writer, x: Tensor, places: np.ndarray, axis: int) -> Tensor:
    """Elements at constant places along an axis: a slice if they follow one another, else GATHER."""
    places = np.asarray(places, np.int64)
    first, count = int(places[0]), len(places)
    if (places == np.arange(first, first + count)).all():
        starts = [first if a == axis else 0 for a in range(x.rank)]
        return g.slice(x, starts, [count if a == axis else size for a, size in enumerate(x.shape)])
    return gathered(g, x, g.const(places.astype(np.int32)[None]), axis)


def gathered(g: Writer, x: Tensor, places: Tensor, axis: int) -> Tensor:
    """GATHER at places (1, n) along an axis, which gets n elements."""
    order = [axis, *(a for a in range(x.rank) if a != axis)]
    front = g.transpose(x, order)
    size, *rest = front.shape
    shape = 1, places.shape[1], prod(rest)
    found = g.add("gather", [g.reshape(front, (1, size, shape[2])), places], shape, x.element, x.offset)
    return g.transpose(g.reshape(found, (shape[1], *rest)), np.argsort(order).tolist())


@writes(View)
def view(op: View, g: Writer) -> Tensor:
    """One RESHAPE of the tensor."""
    return g.reshape(g.stored(op.operands[0]), shape_of(op.results[0]))


@writes(Permute)
def permute(op: Permute, g: Writer) -> Tensor:
    """One TRANSPOSE of the tensor."""
    return g.transpose(g.stored(op.input), ints(op.order))


@writes(TpuLoad, TpuStore)
def transfer(op: "TpuLoad | TpuStore", g: Writer) -> Tensor:
    """Nothing. Raises UnsupportedError for a transfer that reorders."""
    if op.moved is not None:
        raise g.refuse("a transfer that reorders its tensor has no counterpart; export the module before layer groups")
    return g.stored(op.input)


@writes(TopConcat, TpuConcat)
def concat(op: "TopConcat | TpuConcat", g: Writer) -> Tensor:
    """CONCAT; bytes of another scale are first requantised."""
    parts = [g.stored(v) for v in op.inputs]
    if isinstance(op, TpuConcat) and op.scaling is not None:
        parts = [
            g.narrowed(g.scaled(g.integers(v, 0), m, r), op.output, 0)
            for v, (m, r) in zip(op.inputs, op.scaling, strict=True)
        ]
    if uniform_of(op.results[0]) is None:
        parts = [g.real(p) for p in parts]
    return g.concat(parts, op.axis.value.data)


@writes(Tile)
def tile(op: Tile, g: Writer) -> Tensor:
    """One TILE of the tensor."""
    return g.tile(g.stored(op.input), ints(op.tile))


@writes(Slice)
def slice_(op: Slice, g: Writer) -> Tensor:
    """SLICE; a step is a row of a reshaped tensor, a negative one comes after REVERSE."""
    x = g.stored(op.operands[0])
    for axis, (start, step, end) in enumerate(zip(*op.cut, strict=True)):
        places = np.arange(x.shape[axis])[slice(start, None if end < 0 and step < 0 else end, step)]
        if (start, step, end) != (0, 1, x.shape[axis]):
            x = strided(g, x, axis, places)
    return x


def strided(g: Writer, x: Tensor, axis: int, places: np.ndarray) -> Tensor:
    """Elements at places of one step."""
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step < 0:
        return strided(g, reversed_(g, x, axis), axis, x.shape[axis] - 1 - places)
    starts, sizes = [0] * x.rank, list(x.shape)
    starts[axis], sizes[axis] = int(places[0]), int(places[-1] - places[0]) + 1
    x = g.slice(x, starts, sizes)
    if step == 1:
        return x
    more = len(places) * step - sizes[axis]
    x = g.pad(x, [(0, more if a == axis else 0) for a in range(x.rank)])
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    flat = prod(before), len(places), step, prod(after)
    x = g.slice(g.reshape(x, flat), (0, 0, 0, 0), (*flat[:2], 1, flat[3]))
    return g.reshape(x, (*before, len(places), *after))


def reversed_(g: Writer, x: Tensor, axis: int) -> Tensor:
    """One REVERSE of the tensor."""
    return g.add("reverse", [x], x.shape, x.element, x.offset, axis=number(axis))


@writes(Reverse)
def reverse(op: Reverse, g: Writer) -> Tensor:
    """One REVERSE of the tensor."""
    return reversed_(g, g.stored(op.input), op.axis.value.data)


@writes(SwapDimInner)
def swap_dim(op: SwapDimInner, g: Writer) -> Tensor:
    """Two parts in exchanged order."""
    x, (axis, offset) = g.stored(op.operands[0]), op.swap
    if g.dtype_of(op.operands[0]) != g.dtype_of(op.results[0]):
        raise g.refuse("operand and result of one type are required")
    size = x.shape[axis]
    return g.concat([taken(g, x, np.arange(a, b), axis) for a, b in ((offset, size), (0, offset))], axis)


@writes(Depth2Space)
def depth_to_space(op: Depth2Space, g: Writer) -> Tensor:
    """A transpose of six axes between two reshapes."""
    shape, order = op.split
    y = g.transpose(g.reshape(g.stored(op.operands[0]), shape), order)
    return g.reshape(y, shape_of(op.results[0]))


@writes(Upsampling)
def upsample(op: Upsampling, g: Writer) -> Tensor:
    """Every row and column repeated: a tile of new axes of one element."""
    x, (down, across) = g.stored(op.operands[0]), op.factors
    n, c, h, w = x.shape
    y = g.tile(g.reshape(x, (n * c, h, 1, w, 1)), (1, 1, down, 1, across))
    return g.reshape(y, (n, c, h * down, w * across))


@writes(Pad)
def pad(op: Pad, g: Writer) -> Tensor:
    """PAD with a number; edges and reflections are slices."""
    x, flat = g.stored(op.operands[0]), ints(op.paddings)
    sides = list(zip(flat[: x.rank], flat[x.rank :], strict=True))
    if op.mode.data == "constant":
        cut = [(max(a, 0), max(b, 0)) for a, b in sides]
        sizes = [size + min(a, 0) + min(b, 0) for (a, b), size in zip(sides, x.shape, strict=True)]
        x = g.slice(x, [max(-a, 0) for a, _ in sides], sizes)
        return g.pad(x, cut, op.val.value.data - x.offset)
    mode = {"edge": "edge", "reflect": "reflect"}.get(op.mode.data)
    if mode is None:
        raise g.refuse(f"a pad of mode constant, edge or reflect is required, got {op.mode.data}")
    for axis, (before, after) in enumerate(sides):
        places: np.ndarray = np.pad(np.arange(x.shape[axis]), (before, after), mode=cast("Any", mode))
        x = taken(g, x, places, axis) if before or after else x
    return x


@writes(Gather)
def gather(op: Gather, g: Writer) -> Tensor:
    """GATHER of rows by constant or computed indices."""
    x, axis = g.stored(op.operands[0]), op.axis.value.data
    constant, size = g.array(op.operands[1]), x.shape[axis]
    if constant is not None:
        flat = constant.reshape(-1).astype(np.int64)
        places = g.const(np.where(flat < 0, flat + size, flat).astype(np.int32)[None])
    else:
        places = g.reshape(g.cast(g.stored(op.operands[1]), i32), (1, -1))
        past = g.point("add", places, g.scalar(size, 2, "int32"))
        negative = g.point("greater", g.scalar(0, 2, "int32"), places, element=g.BOOL)
        places = g.point("select", negative, past, places)
    return g.reshape(gathered(g, x, places, axis), shape_of(op.results[0]))


@writes(Interpolation)
def interpolate(op: Interpolation, g: Writer) -> Tensor:
    """Copies of elements; or between neighbouring rows a + d * (b - a), then between columns."""
    if op.is_nearest:
        x = g.stored(op.input)
        for axis, places in zip((2, 3), op.sources(), strict=True):
            x = taken(g, x, places, axis)
        return x
    if is_set(getattr(op, "on_host", None)):
        raise g.refuse("the host interpolates with weights that it rounds itself; export the float module")
    x = g.float(op.input)
    size, scales, align = op.geometry
    for axis, out, scale in zip((2, 3), size, scales, strict=True):
        left, weight = linear_source(x.shape[axis], out, scale, align_corners=align)
        right = np.minimum(left + 1, x.shape[axis] - 1)
        low, high = taken(g, x, left, axis), taken(g, x, right, axis)
        shape = tuple(out if a == axis else 1 for a in range(4))
        weights = g.const(weight.astype(np.float32).reshape(shape))
        x = g.point("add", low, g.mul(weights, g.point("sub", high, low)))
    return x


@writes(TopArg, TpuArg)
def arg(op: Arg, g: Writer) -> Tensor:
    """ARGMAX of the tensor or of its negative; the last of equal ones is the first in reverse order."""
    x, axis = g.float(op.input), op.axis.value.data
    x = g.scale(x, -1.0) if op.mode.data == "ArgMin" else x
    last = is_set(op.select_last_index)
    x = reversed_(g, x, axis) if last else x
    shape = [size for a, size in enumerate(x.shape) if a != axis]
    y = g.add("argmax", [x], shape, i32, axis=number(axis))
    if last:
        y = g.point("sub", g.scalar(x.shape[axis] - 1, y.rank, "int32"), y)
    return g.reshape(y, shape_of(op.results[0]))
