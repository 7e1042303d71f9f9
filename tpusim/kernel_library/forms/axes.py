"""Forms of functions along an axis: the axis becomes h or w, and axes before or after it are divided over the lanes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Command,
    Fn,
)
from tpusim.isa.functions import (
    AnyFunction,
    Arg,
    Cumulate,
    Gather,
    LayerNorm,
    Reduce,
    ReduceInt,
    RMSNorm,
    Softmax,
    SoftmaxInt,
    SoftmaxTables,
)
from tpusim.isa.layout import ceil_div, dense_strides
from tpusim.isa.region import View, itemsize
from tpusim.kernel_library.forms.parts import AXES, Form, Part, Shape, constant, divisor, is_dense, seen
from tpusim.kernel_library.forms.table import form_of

_NEIGHBOURS, _REDUCED = 16, 128
"""The fewest adjacent elements in one lane: of a softmax by table (F-06), and of other functions (F-07)."""
LAST = 3
"""The axis w."""
_WHOLE = 0.5
"""The share of a tile that may fill local memory, because the library has one place of it there at a time."""
_SOFTMAXES = (Softmax, SoftmaxInt, SoftmaxTables)


@dataclass(frozen=True)
class _Along:
    """The product of the extents before an axis, its length, and the product of the extents after it."""

    outer: int
    length: int
    inner: int

    @staticmethod
    def of(shape: Shape, axes: Shape) -> "_Along | None":
        """The lengths for adjacent axes, taken as one; None if they are not adjacent."""
        if not axes or list(axes) != list(range(axes[0], axes[-1] + 1)):
            return None
        first, end = axes[0], axes[-1] + 1
        return _Along(prod(shape[:first]), prod(shape[first:end]), prod(shape[end:]))


def _split(along: _Along, chip: ChipSpec, together: int) -> tuple[int, int]:
    """(lanes, adjacent elements per lane) of the axes after the axis; one lane if the axes before it fill the lanes."""
    if along.outer >= chip.lanes:
        return 1, along.inner
    width = divisor(along.inner, min(together, along.inner))
    return along.inner // width, width


def _rows(along: _Along, together: int) -> tuple[int, int]:
    """(lanes, rows per lane) of the axes before the last. Decision: a lane has at least `together` elements."""
    rows = divisor(along.outer, min(along.outer, ceil_div(together, along.length)))
    return along.outer // rows, rows


def _together(function: AnyFunction, along: _Along, size: int, chip: ChipSpec) -> int:
    """The fewest adjacent elements in one lane (U-89).

    A softmax of floats has one row per lane; if axes follow, every lane has an equal share of at least a vector.
    """
    if isinstance(function, Softmax):
        return 1 if along.inner == 1 else max(chip.eu_elements(size), ceil_div(along.outer * along.inner, chip.lanes))
    return _NEIGHBOURS if isinstance(function, _SOFTMAXES) else _REDUCED


def _on_axis(view: View, along: _Along, length: int, split: tuple[int, int]) -> View:
    """A tensor with the axis at h (at w if nothing follows it), and axes before or after it over the lanes."""
    high, low = split
    if along.inner == 1:
        return seen(view, (1, high, low, length))
    if high == 1:
        return seen(view, (1, along.outer, length, low))
    return seen(view, (along.outer, high, length, low), (length * high * low, low, high * low, 1))


def _axis_form(body: Fn, axes: Shape, renamed: AnyFunction, chip: ChipSpec, constants: int = 0) -> Iterator[Form]:
    """The form of a function along adjacent axes of its first operand.

    renamed: the function along the axis of the form. constants: the number of further operands, which every lane reads.
    """
    view, along = body.inputs[0], _Along.of(body.inputs[0].shape, axes)
    if along is None or not is_dense(body):
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
    tables = tuple(map(constant, body.inputs[1:]))
    if len(tables) == constants:
        cuts = (1, 2) if along.inner == 1 else (0, 1, 3)
        yield Form(msgspec.structs.replace(body, function=renamed), (source, *tables, result), cuts)


def _renamed(body: Fn) -> AnyFunction:
    """The function along the axis of the form: w if nothing follows the axis, else h."""
    function = cast("Any", body.function)
    renamed = 3 if prod(body.inputs[0].shape[function.axis + 1 :]) == 1 else 2
    return msgspec.structs.replace(function, axis=renamed)


@form_of(Arg)
def _extremes(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Arg: the axis at h. Without axes before it, equal shares of what follows in all lanes, then a lane for each rest.

    Rows of a lane are moved one by one, also the elements of a single row.
    """
    assert isinstance(body, Fn) and isinstance(body.function, Arg)
    along = _Along.of(body.inputs[0].shape, (body.function.axis,))
    if along is None or not is_dense(body):
        return
    function = msgspec.structs.replace(body.function, axis=2)
    sides = ((body.inputs[0], along.length), (body.output, 1))
    if along.outer > 1:
        parts = tuple(Part(seen(v, (1, along.outer, n, along.inner)), (0, 1, None, 3)) for v, n in sides)
        yield Form(msgspec.structs.replace(body, function=function), parts, (1, 3))
        return
    share = along.inner // chip.lanes
    for first, lanes, width in (
        (0, chip.lanes * (share > 0), share),
        (share * chip.lanes, along.inner % chip.lanes, 1),
    ):
        if lanes:
            parts = tuple(_after(v, along, n, (first, lanes, width)) for v, n in sides)
            yield Form(msgspec.structs.replace(body, function=function), parts, (0, 1, 3))


def _after(view: View, along: _Along, length: int, piece: tuple[int, int, int]) -> Part:
    """Some of the elements after the first axis: `lanes` lanes of `width` adjacent elements, from `first` on."""
    first, lanes, width = piece
    moved = replace(view, address=view.address + first * itemsize(view.dtype))
    return Part(
        seen(moved, (1, lanes, length, width), (length * along.inner, width, along.inner, 1)),
        (0, 1, None, 3),
        kind="rows",
        frame=((0, 0, 0, first), (1, 1, length, along.inner)),
    )


@form_of(Softmax, SoftmaxInt, SoftmaxTables, Gather)
def _along(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The forms of a function with a field `axis`."""
    assert isinstance(body, Fn)
    yield from _axis_form(body, (cast("Any", body.function).axis,), _renamed(body), chip, len(body.inputs) - 1)


@form_of(LayerNorm, RMSNorm)
def _normalised(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The forms of a function over all axes from `axis` on, with weights of their extents."""
    assert isinstance(body, Fn)
    function = cast("LayerNorm | RMSNorm", body.function)
    axes = tuple(range(function.axis, len(body.inputs[0].shape)))
    yield from _axis_form(body, axes, msgspec.structs.replace(function, axis=3), chip, len(body.inputs) - 1)


@form_of(Cumulate)
def _running(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A running sum: the axis at h, whose places are loaded, added and stored one by one.

    A sum along the first or second axis has the other one over the lanes; along w, h takes its place.
    """
    del chip
    assert isinstance(body, Fn) and isinstance(body.function, Cumulate)
    axis, shape = body.function.axis, body.inputs[0].shape
    if not is_dense(body) or axis >= AXES or (axis == AXES - 1 and len(shape) > AXES):
        return
    n, c, h = (*shape[:3], *(1,) * (3 - len(shape[:3])))
    w = prod(shape[3:])
    lanes_first = (1, n, c, h * w), dense_strides((1, n, c, h * w))
    places_first = (1, c, n, h * w), (n * c * h * w, h * w, c * h * w, 1)
    columns = (n, c, w, h), (c * h * w, h * w, 1, w)
    taken, strides = (places_first, lanes_first, ((n, c, h, w), dense_strides((n, c, h, w))), columns)[axis]
    parts = tuple(Part(seen(view, taken, strides), (0, 1, None, 3), kind="places") for _, view in body.operands())
    function = msgspec.structs.replace(body.function, axis=2)
    yield Form(msgspec.structs.replace(body, function=function), parts, (1, 0, 3), share=_WHOLE)


@form_of(ReduceInt)
def _reduced_integers(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The forms of a reduction of integers."""
    assert isinstance(body, Fn) and isinstance(body.function, ReduceInt)
    axes = tuple(sorted(body.function.axes))
    yield from _axis_form(body, axes, msgspec.structs.replace(body.function, axes=(_last(body, axes),)), chip)


@form_of(Reduce)
def _reduced(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A reduction: the axis at h, or rows at w that are divided into as many lanes as rows for each lane (U-89)."""
    del chip
    assert isinstance(body, Fn) and isinstance(body.function, Reduce)
    axes = tuple(sorted(body.function.axes))
    along = _Along.of(body.inputs[0].shape, axes)
    if along is None or not is_dense(body):
        return
    at, sides = _last(body, axes), ((body.inputs[0], along.length), (body.output, 1))
    if at == LAST:
        lanes = next(d for d in range(isqrt(along.outer), 0, -1) if along.outer % d == 0)
        parts = tuple(Part(seen(v, (1, lanes, along.outer // lanes, n)), (0, 1, 2, None)) for v, n in sides)
    else:
        parts = tuple(Part(seen(v, (1, along.outer, n, along.inner)), (0, 1, None, 3)) for v, n in sides)
    function = msgspec.structs.replace(body.function, axes=(at,))
    yield Form(msgspec.structs.replace(body, function=function), parts, (1, 5 - at), even=5 - at)


def _last(body: Fn, axes: Shape) -> int:
    """Where the form has the axes: at w if nothing follows them, else at h."""
    return LAST if prod(body.inputs[0].shape[axes[-1] + 1 :]) == 1 else LAST - 1
