"""Forms of commands over images, cut into planes, rows or channels."""

from collections.abc import Iterator
from math import prod

import msgspec
from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Command,
    Conv,
    Depthwise,
    Fn,
    Pool,
    Where,
)
from tpusim.isa.functions import (
    Interp,
    Lrn,
    LrnTables,
    Pad,
    Upsample,
)
from tpusim.isa.region import itemsize
from tpusim.kernel_library.forms.elementwise import elementwise
from tpusim.kernel_library.forms.parts import AXES, Form, Part, constant, is_dense, seen
from tpusim.kernel_library.forms.table import form_of

_FLOATS = ("f16", "bf16", "f32")
_REPEATED = 4
"""`Form.share` of repeated elements: two tiles fill half of local memory (F-04)."""
_PLANES = 3
"""`Form.share` of float planes (F-05)."""
_F32_CHANNELS = 2.85
"""`Form.share` of f32 convolutions (F-01): 9 of 20 compared convolutions are cut as in TPU-MLIR.

Decision: in the others the library also cuts the image, or makes tiles of fewer channels; tpusim does not.
"""


@form_of(Interp)
def _planes(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Whole planes of the result, and the operand's planes or their leading parts."""
    assert isinstance(body, Fn)
    parts = tuple(Part(view, (0, 1, None, None)) for _, view in body.operands())
    if all(len(part.view.shape) == AXES for part in parts):
        yield Form(body, parts, (0, 1))


@form_of(Depthwise)
def _by_channel(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Whole planes of a depthwise convolution; a channel has the same coefficients in every batch item."""
    assert isinstance(body, Depthwise)
    images = {"input", "output"}
    parts = [
        Part(view, (0 if name in images else None, 1, None, None), compact=name not in images)
        for name, view in body.operands()
    ]
    if is_dense(body):
        yield Form(body, tuple(parts), (0, 1))


@form_of(Conv, words=True)
def _convolved(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A convolution of floats or packed bytes: a tile computes one channel per lane from a whole image, loaded once.

    In f32 a tile has as many channels as fill a third of local memory (`_F32_CHANNELS`). Every tile loads its image
    again, and transfers do not overlap computation.
    """
    assert isinstance(body, Conv)
    whole = body.groups == 1 and not (body.merged or body.accumulate or any(body.inserts))
    known = body.input.dtype in _FLOATS or body.input.interleave > 1
    if not (whole and known and is_dense(body)) or len(body.output.shape) != AXES:
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


@form_of(Upsample)
def _upsampled(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Rows of the operand may be cut; each has its rows of the result."""
    assert isinstance(body, Fn)
    source = body.inputs[0]
    if not is_dense(body) or len(source.shape) != AXES:
        return
    n, c, h, _ = source.shape
    parts = (Part(seen(v, (n, c, h, v.elements // (n * c * h))), (0, 1, 2, None)) for v in (source, body.output))
    yield Form(body, tuple(parts), (0, 1, 2), _REPEATED)


@form_of(Where, words=True)
def _chosen(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The forms of an element-wise command; packed bytes have one only if all shapes are equal."""
    views = [view for _, view in body.operands()]
    if not any(view.interleave > 1 for view in views):
        yield from elementwise(body, chip)
    elif all((len(v.shape), v.shape, v.interleave) == (AXES, views[-1].shape, views[-1].interleave) for v in views):
        yield Form(body, tuple(Part(view, words=True) for view in views), (0, 1, 2))


@form_of(Pool)
def _pooled(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A pool whose window is the whole plane.

    The byte planes of one batch item are divided evenly over the lanes if possible; otherwise a tile has at most two
    byte planes per lane. Means of integers with zero points are cut only if they do not fit local memory.
    """
    assert isinstance(body, Pool)
    n, c, *plane = body.input.shape
    floats = itemsize(body.input.dtype) > 1
    known = chip.lone_pools_are_global == "all" or (floats and chip.lone_pools_are_global == "floats")
    if not known or not is_dense(body) or tuple(plane) != body.kernel or any(body.pads):
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


@form_of(Lrn, LrnTables)
def _across(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Whole columns of channels, and constants in every lane."""
    assert isinstance(body, Fn)
    source, *tables = body.inputs
    source, result = (Part(view, (0, None, 2, 3)) for view in (source, body.output))
    if is_dense(body):
        yield Form(body, (source, *map(constant, tables), result), (0, 2, 3))


@form_of(Pad, words=True)
def _padded(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Only axes without pads may be cut."""
    assert isinstance(body, Fn) and isinstance(body.function, Pad)
    before, after = body.function.before, body.function.after
    missing = AXES - len(before)
    if missing < 0 or not is_dense(body):
        return
    zeros = (0,) * missing
    function = msgspec.structs.replace(body.function, before=(*before, *zeros), after=(*after, *zeros))
    free = tuple(a if not function.before[a] and not function.after[a] else None for a in range(AXES))
    parts = tuple(Part(seen(view, (*view.shape, *(1,) * missing)), free, words=True) for _, view in body.operands())
    cuts = tuple(axis for axis in (0, 1, 2, 3) if free[axis] is not None)
    yield Form(msgspec.structs.replace(body, function=function), parts, cuts)
