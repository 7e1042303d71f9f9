"""Commands over whole tensors of any rank as commands over four axes, which local memory has (hardware.md 2.1).

A form is the same computation: an operand is another view of the same bytes, and what the command says of axes is said
of the four. There is none for elements of 4 bits, axes that no four stand for, and windows outside a command's ranges;
of packed batches (4N) products and pads have one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dataclasses import replace as altered
from math import ceil, isqrt, prod
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Arith,
    Command,
    Compare,
    Conv,
    Depthwise,
    Dequantize,
    Fn,
    Lut,
    MatMul,
    Pool,
    Quantize,
    Rescale,
    TransferKind,
    Where,
)
from tpusim.isa.functions import (
    Active,
    AddInt,
    AnyFunction,
    Arg,
    ConstInt,
    Cumulate,
    ExtremeShift,
    Gather,
    Interp,
    LayerNorm,
    Lrn,
    LrnTables,
    MulInt,
    Pad,
    Power,
    Reduce,
    ReduceInt,
    Remainder,
    RMSNorm,
    Softmax,
    SoftmaxInt,
    SoftmaxTables,
    SubInt,
    SumShift,
    TopK,
    Upsample,
)
from tpusim.isa.layout import align, ceil_div, dense_strides
from tpusim.isa.matrices import lane_columns, runs_on_vectors
from tpusim.isa.ranges import window_ranges
from tpusim.isa.region import View, is_packed, itemsize
from tpusim.isa.transfers import CAST_BYTES, LEAST_WIDTH

Shape = tuple[int, ...]
_AXES, _MATRIX = 4, 2
_FLOATS = ("f16", "bf16", "f32")
_EXTREMES, _SEARCHING = 4, 32
"""Neighbours after the axis that one lane has in a search for extremes, and how many lanes search (F-08)."""
_NEIGHBOURS, _REDUCED = 16, 128
"""Neighbours that one lane has of a softmax of integers (F-06), and of anything but a softmax (F-07)."""
_SOFTMAXES = (Softmax, SoftmaxInt, SoftmaxTables)
_BLOCK = 32768
"""Elements of what goes to all lanes in which tiles are counted, whatever their type (F-03)."""
_REPEATED = 4
"""Share of repeated elements: two tiles and their results fill half of local memory (F-04)."""
_PLANES = 3
"""Share of planes of floats (F-05)."""
_F32_CHANNELS = 2.85
"""Share of filters, image and result of f32 convolutions (F-01): so 9 of 20 that were compared are cut as there.

Decision: of the others the library cuts the image too, or fewer channels.
"""
_TWO_AND_A_SUM = 2.8
"""Share of a cast by planes: two of its f32 images, two of bytes and a third f32 image fill local memory (F-02)."""


@dataclass(frozen=True)
class Part:
    """An operand over four axes of global memory.

    follows: for each of its axes the axis of the result that it is cut with, None: every tile needs all of it.
    compact: how it lies in local memory, where constants are not aligned. kind: how it is loaded or stored.
    frame: where the view is a part of a tensor: its first element, and the tensor's extents over the same axes.
    words: items of a batch that share a word (4N) share it in local memory, too; else the transfer takes them apart.
    width: of a row of a matrix, as `Move` has it.
    """

    view: View
    follows: tuple[int | None, ...] = (0, 1, 2, 3)
    compact: bool = False
    kind: TransferKind = "tensor"
    frame: tuple[Shape, Shape] | None = None
    words: bool = False
    width: int = 0


@dataclass(frozen=True)
class Form:
    """A command, its operands and its result (last) over four axes, and the axes of the result that may be cut.

    cuts: the first is cut first. share: which part of local memory one tile should fill at most, so that transfers
    and computing overlap. most: lanes of a tile at most, 0 for all. columns: of the last axis at most, 0 for all.
    one_by_one: a tile has one of axis 0, and none is moved while another is computed. again: a tile loads all that it
    needs, be it there or not.
    """

    body: Command
    parts: tuple[Part, ...]
    cuts: tuple[int, ...]
    share: float = 8
    most: int = 0
    columns: int = 0
    one_by_one: bool = False
    again: bool = False

    @property
    def result(self) -> Part:
        """The part that the command writes."""
        return self.parts[-1]

    @property
    def words(self) -> int:
        """Items of a batch that share a word in local memory."""
        return self.result.view.interleave if self.result.words else 1


def forms(body: Command, chip: ChipSpec) -> tuple[Form, ...]:
    """The command as one over four axes, or as several, one after the other; none if it has no such form."""
    make = _FUNCTIONS.get(type(body.function)) if isinstance(body, Fn) else _COMMANDS.get(type(body))
    views = [view for _, view in body.operands()]
    if make is None or any(v.laned or is_packed(v.dtype) or 0 in v.shape for v in views) or window_ranges(body, chip):
        return ()
    if make not in _OF_WORDS and any(v.interleave > 1 for v in views):
        return ()
    return tuple(make(body, chip))


def with_views(body: Command, views: list[View]) -> Command:
    """The command with other operands, in the order of `operands`."""
    left = iter(views)

    def replaced(value: Any) -> Any:
        if isinstance(value, View):
            return next(left)
        if isinstance(value, tuple):
            return tuple(replaced(item) for item in cast("tuple[Any, ...]", value))
        return value

    names = (*body.inputs_, *body.outputs_)
    return replace(body, **{name: replaced(getattr(body, name)) for name in names})


# ------------------------------------------------------------------------------------------------------ views and axes


def seen(view: View, shape: Shape, strides: Shape | None = None) -> View:
    """A dense tensor over other axes."""
    if strides is None or strides == dense_strides(shape):
        return replace(view, shape=shape, layout="dense", strides=None, batch_axis=0)
    return replace(view, shape=shape, layout="strided", strides=strides, batch_axis=0)


def _constant(view: View) -> Part:
    """A constant that every lane reads."""
    return Part(seen(view, (1, 1, 1, view.elements)), (None,) * _AXES, compact=True, kind="broadcast")


def _dense(body: Command) -> bool:
    return all(view.layout == "dense" for _, view in body.operands())


def _divisor(number: int, least: int) -> int:
    """The smallest divisor that is not below `least`."""
    return next(d for d in range(least, number + 1) if number % d == 0)


# --------------------------------------------------------------------------------------------------- element by element


def _elementwise(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """All lanes get an equal share where shapes are alike, else axes that are alike in every operand are one."""
    shapes = [view.shape for _, view in body.operands()]
    if _dense(body) and all(shape == shapes[-1] for shape in shapes):
        yield from _spread(body, chip, "matrix" if isinstance(body, Arith) else "tensor")
    elif _dense(body) and (axes := _joined(shapes)) is not None:
        yield _broadcast(body, axes)


def _active(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Spread over the lanes as a matrix, as a cast is."""
    yield from _in_halves(body, chip, LEAST_WIDTH)


def _cast(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A cast is spread over the lanes where the chip's are; one of two floats everywhere."""
    if chip.casts_fill_lanes or isinstance(body, Arith):
        least = max(1, CAST_BYTES // min(itemsize(view.dtype) for _, view in body.operands()))
        yield from _in_halves(body, chip, least)
    elif _dense(body):
        views = [seen(view, _image(view.shape)) for _, view in body.operands()]
        yield Form(body, tuple(map(Part, views)), (0, 2, 1, 3), _TWO_AND_A_SUM)


def _arith(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A copy is a cast; with a constant it is as a function of one tensor."""
    assert isinstance(body, Arith)
    unary = not isinstance(body.b, View)
    alone = unary and body.kind in ("copy", "truncate")
    if alone and not _dense(body):
        yield from _repeated(body)
    else:
        yield from (_cast if alone else _active if unary else _elementwise)(body, chip)


def _repeated(body: Arith) -> Iterator[Form]:
    """A part of a tensor copied to another part, or repeated along axes where it has one element."""
    views = [_four(view) for view in (body.a, body.output)]
    shapes = [view.shape for view in views if view is not None]
    if len(shapes) == len(views):
        whole = shapes[-1]
        follows = [tuple(axis if shape[axis] == whole[axis] else None for axis in range(_AXES)) for shape in shapes]
        yield Form(body, tuple(map(Part, (v for v in views if v is not None), follows)), (0, 1, 2, 3))


def _four(view: View) -> View | None:
    """A tensor, or a part of one, of up to four axes."""
    missing = _AXES - len(view.shape)
    strides = view.strides or dense_strides(view.shape)
    return None if missing < 0 else seen(view, (1,) * missing + view.shape, (0,) * missing + strides)


def _image(shape: Shape) -> Shape:
    """(n, c, h, w): axes from the left, w the product of all behind h."""
    n, c, h, *rest = (*shape, 1, 1, 1)
    return n, c, h, prod(rest)


def _spread(
    body: Command, chip: ChipSpec, kind: TransferKind = "tensor", share: float = 8, least: int = LEAST_WIDTH
) -> Iterator[Form]:
    """Equal runs of elements to all lanes."""
    if not _dense(body):
        return
    views = [view for _, view in body.operands()]
    width = _width(views[-1].elements, max(itemsize(v.dtype) for v in views), least, chip)
    parts = (Part(seen(v, (1, v.elements // width, 1, width)), kind=kind) for v in views)
    yield Form(body, tuple(parts), (3, 1), share)


def _in_halves(body: Command, chip: ChipSpec, least: int) -> Iterator[Form]:
    """Equal runs of elements to all lanes, as a matrix: in two tiles, or as few as fit, of whole blocks.

    So loads, steps and stores overlap. What is left of the last block is a tile of its own there, and here part of the
    last one.
    """
    for form in _spread(body, chip, "matrix", least=least):
        size = [itemsize(part.view.dtype) for part in form.parts]
        fitting = chip.lanes * chip.lmem_bytes // (_BLOCK * (2 * sum(size) + size[0]))
        blocks = form.result.view.elements / _BLOCK
        if blocks <= 1 or not fitting:
            yield form
            continue
        tile = ceil(blocks / max(2, ceil(blocks / fitting))) * _BLOCK
        columns = tile // form.result.view.shape[1]
        yield altered(form, share=1, columns=columns - columns % chip.eu_bytes or columns)


def _width(count: int, size: int, least: int, chip: ChipSpec) -> int:
    """How many neighbours a lane gets at once: a divisor of their number that takes the fewest steps."""
    wanted, vector = max(least, ceil_div(count, chip.lanes)), chip.eu_elements(size)
    able = (d for small in range(1, isqrt(count) + 1) if count % small == 0 for d in (small, count // small))
    widths = [d for d in able if d >= min(count, least)]
    return min(widths, key=lambda d: (ceil_div(count // d, chip.lanes) * align(d, vector), abs(d - wanted)))


def _joined(shapes: list[Shape]) -> list[list[int]] | None:
    """Shapes that broadcast to the last, over at most four axes: neighbours that all have, or lack, are one."""
    result, rank = shapes[-1], len(shapes[-1])
    wide = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    found: list[list[int]] = [[] for _ in shapes]
    before: tuple[bool, ...] = ()
    for axis, size in enumerate(result):
        full = tuple(shape[axis] == size for shape in wide)
        if size == 1:
            continue
        if full == before:
            for sizes, shape in zip(found, wide, strict=True):
                sizes[-1] *= shape[axis]
        else:
            for sizes, shape in zip(found, wide, strict=True):
                sizes.append(shape[axis])
        before = full
    return found if len(found[-1]) <= _AXES else None


def _broadcast(body: Command, axes: list[list[int]]) -> Form:
    places = {0: (), 1: (3,), 2: (1, 3), 3: (1, 2, 3)}.get(len(axes[-1]), (0, 1, 2, 3))
    views: list[View] = []
    for (_, view), sizes in zip(body.operands(), axes, strict=True):
        shape = [1] * _AXES
        for place, size in zip(places, sizes, strict=True):
            shape[place] = size
        views.append(seen(view, tuple(shape)))
    whole = views[-1].shape
    parts = (Part(v, tuple(a if v.shape[a] == whole[a] else None for a in range(_AXES))) for v in views)
    return Form(body, tuple(parts), (0, 2, 1, 3))


def _lut(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The table is in every lane."""
    assert isinstance(body, Lut)
    if not _dense(body):
        return
    for form in _active(msgspec.structs.replace(body, table=body.input), chip):
        source, _, result = form.parts
        yield altered(form, body=body, parts=(source, _constant(body.table), result))


# -------------------------------------------------------------------------------------------------------- along an axis


@dataclass(frozen=True)
class _Along:
    """The three lengths around an axis: before it, of it, behind it."""

    outer: int
    length: int
    inner: int

    @staticmethod
    def of(shape: Shape, axes: Shape) -> "_Along | None":
        """Of neighbouring axes; None for others."""
        if not axes or list(axes) != list(range(axes[0], axes[-1] + 1)):
            return None
        first, behind = axes[0], axes[-1] + 1
        return _Along(prod(shape[:first]), prod(shape[first:behind]), prod(shape[behind:]))


def _split(along: _Along, chip: ChipSpec, together: int) -> tuple[int, int]:
    """(lanes, neighbours) of what is behind the axis, where too little is before it to fill the lanes."""
    if along.outer >= chip.lanes:
        return 1, along.inner
    width = _divisor(along.inner, min(together, along.inner))
    return along.inner // width, width


def _rows(along: _Along, together: int) -> tuple[int, int]:
    """(lanes, rows of each) of what is before the last axis; Decision: as many rows as make `together` elements."""
    rows = _divisor(along.outer, min(along.outer, ceil_div(together, along.length)))
    return along.outer // rows, rows


def _together(function: AnyFunction, along: _Along, size: int, chip: ChipSpec) -> int:
    """How many neighbours one lane has at least (U-89).

    A softmax of floats has a vector and fills the lanes, or has a row in each.
    """
    if isinstance(function, Softmax):
        return 1 if along.inner == 1 else max(chip.eu_elements(size), ceil_div(along.outer * along.inner, chip.lanes))
    return _NEIGHBOURS if isinstance(function, _SOFTMAXES) else _REDUCED


def _on_axis(view: View, along: _Along, length: int, split: tuple[int, int]) -> View:
    """A tensor with the axis at h (or at w, where nothing is behind it), and lanes of what is before or behind it."""
    high, low = split
    if along.inner == 1:
        return seen(view, (1, high, low, length))
    if high == 1:
        return seen(view, (1, along.outer, length, low))
    return seen(view, (along.outer, high, length, low), (length * high * low, low, high * low, 1))


def _axis_form(body: Fn, axes: Shape, renamed: AnyFunction, chip: ChipSpec, constants: int = 0) -> Iterator[Form]:
    """A function along an axis of its first operand; the last operands are constants of every lane."""
    view, along = body.inputs[0], _Along.of(body.inputs[0].shape, axes)
    if along is None or not _dense(body):
        return
    together = _together(renamed, along, itemsize(view.dtype), chip)
    split = _rows(along, together) if along.inner == 1 else _split(along, chip, together)
    length = body.output.elements // (along.outer * along.inner)
    follows = (0, 1, 2, None) if along.inner == 1 else (0, 1, None, 3)
    alone = isinstance(renamed, _SOFTMAXES) and along.inner > 1 and split[0] > 1
    source, result = (
        Part(_on_axis(v, along, n, split), follows, kind="lanes" if alone else "tensor")
        for v, n in ((view, along.length), (body.output, length))
    )
    tables = tuple(map(_constant, body.inputs[1:]))
    if len(tables) == constants:
        cuts = (1, 2) if along.inner == 1 else (0, 1, 3)
        yield Form(msgspec.structs.replace(body, function=renamed), (source, *tables, result), cuts)


def _renamed(body: Fn) -> AnyFunction:
    """The function along the axis of the form: the last where nothing is behind it."""
    function = cast("Any", body.function)
    own = 3 if prod(body.inputs[0].shape[function.axis + 1 :]) == 1 else 2
    return msgspec.structs.replace(function, axis=own)


def _extremes(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Arg: four neighbours to each of 32 lanes, and what is left one by one (U-89)."""
    assert isinstance(body, Fn) and isinstance(body.function, Arg)
    view, along = body.inputs[0], _Along.of(body.inputs[0].shape, (body.function.axis,))
    if along is None or not _dense(body):
        return
    if along.outer >= chip.lanes or along.inner % _EXTREMES or along.inner == 1:
        yield from _axis_form(body, (body.function.axis,), _renamed(body), chip)
        return
    function = msgspec.structs.replace(body.function, axis=2)
    lanes = along.inner // _EXTREMES // _SEARCHING * _SEARCHING
    for first, count, width in ((0, lanes, _EXTREMES), (lanes * _EXTREMES, along.inner - lanes * _EXTREMES, 1)):
        if count:
            sides = ((view, along.length), (body.output, 1))
            parts = tuple(_behind(v, along, n, (first, count, width)) for v, n in sides)
            yield Form(msgspec.structs.replace(body, function=function), parts, (0, 1), most=_SEARCHING)


def _behind(view: View, along: _Along, length: int, piece: tuple[int, int, int]) -> Part:
    """Some of what is behind an axis: `count` lanes with `width` neighbours from `first` on."""
    first, count, width = piece
    strides = (length * along.inner, width, along.inner, 1)
    moved = replace(view, address=view.address + first * itemsize(view.dtype))
    whole = (along.outer, along.inner // width, length, width)
    return Part(
        seen(moved, (along.outer, count, length, width), strides),
        (0, 1, None, 3),
        frame=((0, first // width, 0, 0), whole),
    )


def _along(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A function with `axis`."""
    assert isinstance(body, Fn)
    yield from _axis_form(body, (cast("Any", body.function).axis,), _renamed(body), chip, len(body.inputs) - 1)


def _normalised(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A function over all axes from `axis` on, with weights of their extents."""
    assert isinstance(body, Fn)
    function = cast("LayerNorm | RMSNorm", body.function)
    axes = tuple(range(function.axis, len(body.inputs[0].shape)))
    yield from _axis_form(body, axes, msgspec.structs.replace(function, axis=3), chip, len(body.inputs) - 1)


def _reduced(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A function with `axes`."""
    assert isinstance(body, Fn)
    function = cast("Reduce | ReduceInt", body.function)
    shape = body.inputs[0].shape
    axes = tuple(sorted(function.axes))
    own = 3 if prod(shape[axes[-1] + 1 :]) == 1 else 2
    yield from _axis_form(body, axes, msgspec.structs.replace(function, axes=(own,)), chip)


# ------------------------------------------------------------------------------------------------------------- images


def _planes(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Whole planes of an image, or parts of an operand's that begin where it does."""
    assert isinstance(body, Fn)
    parts = tuple(Part(view, (0, 1, None, None)) for _, view in body.operands())
    if all(len(part.view.shape) == _AXES for part in parts):
        yield Form(body, parts, (0, 1))


def _by_channel(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A depthwise convolution of whole planes; what a channel has is the same in every batch."""
    assert isinstance(body, Depthwise)
    images = {"input", "output"}
    parts = [
        Part(view, (0 if name in images else None, 1, None, None), compact=name not in images)
        for name, view in body.operands()
    ]
    if _dense(body):
        yield Form(body, tuple(parts), (0, 1))


def _convolved(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A convolution of floats or of packed bytes: a tile has a channel for each lane, and the whole image, loaded once.

    Of f32 it has as many as fill a third of local memory, and the image is loaded for every tile, none beside another.
    """
    assert isinstance(body, Conv)
    whole = body.groups == 1 and not (body.merged or body.accumulate or any(body.inserts))
    known = body.input.dtype in _FLOATS or body.input.interleave > 1
    if not (whole and known and _dense(body)) or len(body.output.shape) != _AXES:
        return
    images = {"input": (0, None, None, None), "output": (0, 1, None, None)}
    parts = [
        Part(view, images.get(name, (None, 1, None, None)), compact=name not in images, words=view.interleave > 1)
        for name, view in body.operands()
    ]
    if body.input.dtype == "f32":
        yield Form(body, tuple(parts), (0, 1), share=_F32_CHANNELS, one_by_one=True, again=True)
    else:
        yield Form(body, tuple(parts), (0,), share=1, most=chip.lanes)


def _upsampled(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Rows of the operand may be cut, each with the rows of the result that it makes."""
    assert isinstance(body, Fn)
    source = body.inputs[0]
    if not _dense(body) or len(source.shape) != _AXES:
        return
    n, c, h, _ = source.shape
    parts = (Part(seen(v, (n, c, h, v.elements // (n * c * h))), (0, 1, 2, None)) for v in (source, body.output))
    yield Form(body, tuple(parts), (0, 1, 2), _REPEATED)


def _chosen(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """As any elementwise command; tensors of packed bytes where all are of one shape."""
    views = [view for _, view in body.operands()]
    if not any(view.interleave > 1 for view in views):
        yield from _elementwise(body, chip)
    elif all((len(v.shape), v.shape, v.interleave) == (_AXES, views[-1].shape, views[-1].interleave) for v in views):
        yield Form(body, tuple(Part(view, words=True) for view in views), (0, 1, 2))


def _pooled(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """One window of all of every plane; as many neighbouring planes of bytes to a lane, where that comes out even.

    Others of bytes come two to a lane at most, and means of integers with zero points all at once.
    """
    assert isinstance(body, Pool)
    n, c, *plane = body.input.shape
    floats = itemsize(body.input.dtype) > 1
    known = chip.lone_pools_are_global == "all" or (floats and chip.lone_pools_are_global == "floats")
    if not known or not _dense(body) or tuple(plane) != body.kernel or any(body.pads):
        return
    size, each = prod(plane), c // chip.lanes
    offset = not floats and body.scale > 0
    if floats or offset or n > 1 or c % chip.lanes:
        parts = (Part(view, (0, 1, None, None)) for view in (body.input, replace(body.output, shape=(n, c, 1, 1))))
        share, most = (_PLANES, 0) if floats else (1, 0) if offset else (8, 2 * chip.lanes)
        yield Form(body, tuple(parts), (0, 1), share, most)
        return
    source = seen(body.input, (each, chip.lanes, *plane), (size, each * size, plane[1], 1))
    result = seen(body.output, (each, chip.lanes, 1, 1), (1, each, 1, 1))
    yield Form(body, (Part(source, (0, 1, None, None), compact=True), Part(result, compact=True)), (0,))


def _across(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Every place with all its channels, and constants of every lane."""
    assert isinstance(body, Fn)
    source, *tables = body.inputs
    source, result = (Part(view, (0, None, 2, 3)) for view in (source, body.output))
    if _dense(body):
        yield Form(body, (source, *map(_constant, tables), result), (0, 2, 3))


def _padded(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Axes without pads may be cut."""
    assert isinstance(body, Fn) and isinstance(body.function, Pad)
    before, after = body.function.before, body.function.after
    missing = _AXES - len(before)
    if missing < 0 or not _dense(body):
        return
    zeros = (0,) * missing
    function = msgspec.structs.replace(body.function, before=(*before, *zeros), after=(*after, *zeros))
    free = tuple(a if not function.before[a] and not function.after[a] else None for a in range(_AXES))
    parts = tuple(Part(seen(view, (*view.shape, *(1,) * missing)), free, words=True) for _, view in body.operands())
    cuts = tuple(axis for axis in (0, 1, 2, 3) if free[axis] is not None)
    yield Form(msgspec.structs.replace(body, function=function), parts, cuts)


# ----------------------------------------------------------------------------------------------------- matrix products


def _product(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Rows and columns of the result may be cut, and matrices of a batch; the inner axis is whole."""
    assert isinstance(body, MatMul)
    views = [_matrix(view) for view in (body.left, body.right, body.output)]
    if None in views:
        return
    left, right, output = cast("list[View]", views)
    batch = output.shape[0]
    if not {left.shape[0], right.shape[0]} <= {1, batch}:
        return  # some axes of a batch are repeated, and others are not
    rows, columns = (
        ((None, 1) if body.left_transpose else (1, None)),
        ((3, None) if body.right_transpose else (None, 3)),
    )
    several = len(body.requants) > 1 or (body.bias is not None and body.bias.elements != output.shape[3])
    if several and batch > 1:
        return
    known = {"left": _matrix_part(left, rows, batch), "right": _matrix_part(right, columns, batch)}
    known |= {name: _columns(view) for name in ("bias", "multipliers") if (view := getattr(body, name)) is not None}
    known["output"] = Part(output, (0, 1, None, 3))
    cuts = (0, 1, 3) if left.nbytes > right.nbytes else (0, 3, 1)
    vectors = runs_on_vectors(body)
    if vectors:
        widths = lane_columns(output.shape[1], output.shape[3], chip)
        known = {
            name: altered(part, kind="matrix", width=widths.left if name == "left" else widths.right)
            for name, part in known.items()
        }
    parts = tuple(known[name] for name, _ in body.operands())
    yield Form(body, parts, cuts, one_by_one=vectors and batch > 1)


def _columns(view: View) -> Part:
    """A number for every column of the result."""
    return Part(seen(view, (1, 1, 1, view.elements)), (None, None, None, 3), compact=True, kind="broadcast")


def _matrix_part(view: View, follows: tuple[int | None, int | None], batch: int) -> Part:
    return Part(view, (0 if view.shape[0] == batch and batch > 1 else None, follows[0], None, follows[1]))


def _matrix(view: View) -> View | None:
    """(batch, rows, 1, columns) of a matrix, or of several whose batches lie evenly; rows may share words."""
    if view.interleave > 1:
        rows, columns = view.shape if len(view.shape) == _MATRIX else (0, 0)
        return replace(view, shape=(1, rows, 1, columns), batch_axis=1) if rows and view.layout == "dense" else None
    strides = view.strides if view.layout == "strided" and view.strides else dense_strides(view.shape)
    *batches, rows, columns = zip(view.shape, strides, strict=True)
    size, step = 1, 0
    for length, stride in reversed(batches):
        if length == 1:
            continue
        if size > 1 and stride != size * step:
            return None
        size, step = size * length, step if size > 1 else stride
    return seen(view, (size, rows[0], 1, columns[0]), (step or rows[0] * rows[1], rows[1], columns[1], columns[1]))


Make = Callable[[Any, ChipSpec], Iterator[Form]]

_COMMANDS: dict[type[Command], Make] = {
    Quantize: _cast,
    Dequantize: _cast,
    Arith: _arith,
    Rescale: _active,
    Compare: _elementwise,
    Where: _chosen,
    Lut: _lut,
    MatMul: _product,
    Conv: _convolved,
    Depthwise: _by_channel,
    Pool: _pooled,
}
_FUNCTIONS: dict[type[Any], Make] = {
    **dict.fromkeys((AddInt, SubInt, MulInt, ConstInt, SumShift, ExtremeShift, Power, Remainder), _elementwise),
    **dict.fromkeys((Softmax, SoftmaxInt, SoftmaxTables, TopK, Cumulate, Gather), _along),
    **dict.fromkeys((LayerNorm, RMSNorm), _normalised),
    **dict.fromkeys((Reduce, ReduceInt), _reduced),
    **dict.fromkeys((Lrn, LrnTables), _across),
    Active: _active,
    Arg: _extremes,
    Interp: _planes,
    Pad: _padded,
    Upsample: _upsampled,
}
_OF_WORDS = (_product, _padded, _convolved, _chosen)
"""What has a form where items of a batch share words."""
