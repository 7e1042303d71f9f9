"""Forms of functions along an axis: the axis becomes h or w, and axes before or after it are divided over the lanes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
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
    TopK,
)
from tpusim.isa.layout import ceil_div
from tpusim.isa.region import View, itemsize
from tpusim.kernel_library.forms.parts import Form, Part, Shape, constant, divisor, is_dense, seen
from tpusim.kernel_library.forms.table import form_of

_EXTREMES, _SEARCHING = 4, 32
"""A search for extremes: adjacent elements after the axis in one lane, and the number of lanes (F-08)."""
_NEIGHBOURS, _REDUCED = 16, 128
"""The fewest adjacent elements in one lane: of a softmax by table (F-06), and of other functions (F-07)."""
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
    """Arg: four adjacent elements in each of 32 lanes; the remaining elements have a lane each (U-89)."""
    assert isinstance(body, Fn) and isinstance(body.function, Arg)
    view, along = body.inputs[0], _Along.of(body.inputs[0].shape, (body.function.axis,))
    if along is None or not is_dense(body):
        return
    if along.outer >= chip.lanes or along.inner % _EXTREMES or along.inner == 1:
        yield from _axis_form(body, (body.function.axis,), _renamed(body), chip)
        return
    function = msgspec.structs.replace(body.function, axis=2)
    lanes = along.inner // _EXTREMES // _SEARCHING * _SEARCHING
    for first, count, width in ((0, lanes, _EXTREMES), (lanes * _EXTREMES, along.inner - lanes * _EXTREMES, 1)):
        if count:
            sides = ((view, along.length), (body.output, 1))
            parts = tuple(_after(v, along, n, (first, count, width)) for v, n in sides)
            yield Form(msgspec.structs.replace(body, function=function), parts, (0, 1), most=_SEARCHING)


def _after(view: View, along: _Along, length: int, piece: tuple[int, int, int]) -> Part:
    """Some of the elements after an axis: `count` lanes of `width` adjacent elements, from element `first` on."""
    first, count, width = piece
    strides = (length * along.inner, width, along.inner, 1)
    moved = replace(view, address=view.address + first * itemsize(view.dtype))
    whole = (along.outer, along.inner // width, length, width)
    return Part(
        seen(moved, (along.outer, count, length, width), strides),
        (0, 1, None, 3),
        frame=((0, first // width, 0, 0), whole),
    )


@form_of(Softmax, SoftmaxInt, SoftmaxTables, TopK, Cumulate, Gather)
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


@form_of(Reduce, ReduceInt)
def _reduced(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The forms of a function with a field `axes`."""
    assert isinstance(body, Fn)
    function = cast("Reduce | ReduceInt", body.function)
    shape = body.inputs[0].shape
    axes = tuple(sorted(function.axes))
    renamed = 3 if prod(shape[axes[-1] + 1 :]) == 1 else 2
    yield from _axis_form(body, axes, msgspec.structs.replace(function, axes=(renamed,)), chip)
