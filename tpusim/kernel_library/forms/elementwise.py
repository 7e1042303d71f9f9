"""Forms of element-wise commands: equal shares for all lanes, or merged axes that broadcast."""

from collections.abc import Iterator
from dataclasses import replace as altered
from math import ceil, isqrt, prod

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Arith,
    Command,
    Compare,
    Dequantize,
    Lut,
    Quantize,
    Rescale,
    Select,
    TransferKind,
)
from tpusim.isa.functions import (
    Active,
    AddInt,
    ConstInt,
    ExtremeShift,
    MulInt,
    Power,
    Remainder,
    SubInt,
    SumShift,
)
from tpusim.isa.layout import ceil_div, dense_strides
from tpusim.isa.region import View, itemsize
from tpusim.isa.transfers import CAST_BYTES, LEAST_WIDTH
from tpusim.kernel_library.forms.parts import AXES, Form, Part, Shape, constant, is_dense, seen
from tpusim.kernel_library.forms.table import form_of

_BLOCK = 32768
"""Tiles of a tensor that is divided over all lanes have a multiple of this many elements, of any type (F-03)."""
_TWO_AND_A_SUM = 2.8
"""`Form.share` of a cast by planes: two f32 images, two byte images and a third f32 image fill local memory (F-02)."""


@form_of(Compare, AddInt, SubInt, MulInt, ConstInt, SumShift, ExtremeShift, Power, Remainder)
def elementwise(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Equal shapes: all lanes get an equal share. Other shapes: the first axes are n, c and h, as in a group."""
    shapes = [view.shape for _, view in body.operands()]
    if is_dense(body) and all(prod(shape) == prod(shapes[-1]) for shape in shapes):
        matrix = isinstance(body, Arith) or (isinstance(body, Compare) and not isinstance(body.b, View))
        yield from _equal_shares(body, chip, "matrix" if matrix else "tensor")
    elif is_dense(body) and (axes := _images(shapes) or _joined(shapes)) is not None:
        yield _broadcast(body, axes)


@form_of(Rescale, Active)
def _active(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Divided over the lanes like a matrix, as a cast."""
    yield from _in_halves(body, chip, LEAST_WIDTH)


@form_of(Quantize, Dequantize)
def _cast(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Divided over the lanes like a matrix, if the chip has such casts or both types are floats; else by planes."""
    if chip.casts_fill_lanes or isinstance(body, Arith):
        least = max(1, CAST_BYTES // min(itemsize(view.dtype) for _, view in body.operands()))
        yield from _in_halves(body, chip, least)
    elif is_dense(body):
        views = [seen(view, _image(view.shape)) for _, view in body.operands()]
        yield Form(body, tuple(map(Part, views)), (0, 2, 1, 3), _TWO_AND_A_SUM)


@form_of(Arith)
def _arith(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """A copy has the forms of a cast, arithmetic with a constant those of a function; the rest is element-wise."""
    assert isinstance(body, Arith)
    unary = not isinstance(body.b, View)
    alone = unary and body.kind in ("copy", "truncate")
    if alone and not is_dense(body):
        yield from _repeated(body)
    elif alone and body.relu:
        yield from _by_vectors(body, chip)
    else:
        yield from (_cast if alone else _active if unary else elementwise)(body, chip)


def _repeated(body: Arith) -> Iterator[Form]:
    """A part of a tensor copied to another part, or repeated along axes of length 1."""
    views = [_four(view) for view in (body.a, body.output)]
    shapes = [view.shape for view in views if view is not None]
    if len(shapes) == len(views):
        whole = shapes[-1]
        follows = [tuple(axis if shape[axis] == whole[axis] else None for axis in range(AXES)) for shape in shapes]
        yield Form(body, tuple(map(Part, (v for v in views if v is not None), follows)), (0, 1, 2, 3))


def _four(view: View) -> View | None:
    """A tensor, or a part of one, with leading axes of length 1 up to four axes; None if it has more."""
    missing = AXES - len(view.shape)
    strides = view.strides or dense_strides(view.shape)
    return None if missing < 0 else seen(view, (1,) * missing + view.shape, (0,) * missing + strides)


def _image(shape: Shape) -> Shape:
    """(n, c, h, w): the axes in order; w is the product of all after h."""
    n, c, h, *rest = (*shape, 1, 1, 1)
    return n, c, h, prod(rest)


def _equal_shares(
    body: Command, chip: ChipSpec, kind: TransferKind = "tensor", share: float = 8, least: int = LEAST_WIDTH
) -> Iterator[Form]:
    """The form that gives every lane an equal run of elements."""
    if not is_dense(body):
        return
    views = [view for _, view in body.operands()]
    count, size = views[-1].elements, max(itemsize(v.dtype) for v in views)
    fewest = 1 if kind == "matrix" and count <= least * chip.lanes else least
    width = _width(count, size, max(least, ceil_div(count, chip.lanes)), fewest, chip)
    parts = (Part(seen(v, (1, v.elements // width, 1, width)), kind=kind) for v in views)
    yield Form(body, tuple(parts), (3, 1), share)


def _in_halves(body: Command, chip: ChipSpec, least: int) -> Iterator[Form]:
    """The same, moved like a matrix and cut into two tiles of whole blocks (`_BLOCK`), or as many more as needed.

    Two tiles let loads, computation and stores overlap. In the library an incomplete last block is a separate tile;
    here it is part of the last tile.
    """
    for form in _equal_shares(body, chip, "matrix", least=least):
        size = [itemsize(part.view.dtype) for part in form.parts]
        fitting = chip.lanes * chip.lmem_bytes // (_BLOCK * (2 * sum(size) + size[0]))
        blocks = form.result.view.elements / _BLOCK
        if blocks <= 1 or not fitting:
            yield form
            continue
        tile = ceil(blocks / max(2, ceil(blocks / fitting))) * _BLOCK
        columns = tile // form.result.view.shape[1]
        yield altered(form, share=1, columns=columns - columns % chip.eu_bytes or columns)


@form_of(Select)
def _slope(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """One slope for all: the tiles of a relu."""
    assert isinstance(body, Select)
    if not isinstance(body.slope, View):
        yield from _by_vectors(body, chip)


def _by_vectors(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """As many whole vectors as all lanes can share, then one vector in each of some lanes, then the last elements.

    Two tiles of operand and result fill local memory, but for the room of the last elements. In the library a tile has
    whole banks; here the last tile of a tensor has what is left.
    """
    views = [view for _, view in body.operands()]
    size, count = max(itemsize(view.dtype) for view in views), views[-1].elements
    vector = chip.eu_elements(size)
    shared = count // vector // chip.lanes * vector
    rows, rest = divmod(count - shared * chip.lanes, vector)
    most = chip.lmem_bytes // (2 * len(views)) // size - 2 * vector
    first = 0
    for lanes, width in ((chip.lanes, shared), (rows, vector), (1, rest)):
        if lanes * width and is_dense(body):
            moved = [replace(view, address=view.address + first * itemsize(view.dtype)) for view in views]
            parts = tuple(Part(seen(view, (1, lanes, 1, width))) for view in moved)
            yield Form(body, parts, (3, 1), share=1, columns=most)
            first += lanes * width


def _width(count: int, size: int, wanted: int, fewest: int, chip: ChipSpec) -> int:
    """The length of a run in one lane: the divisor of `count`, at least `fewest`, that takes the steps of `wanted`.

    wanted: the length if it need not divide `count`; if no divisor takes the same steps, the nearest.
    """
    vector = chip.eu_elements(size)
    able = (d for small in range(1, isqrt(count) + 1) if count % small == 0 for d in (small, count // small))

    def steps(width: int) -> int:
        return ceil_div(count // width, chip.lanes) * ceil_div(width, vector)

    nearest = [(abs(steps(d) - ceil_div(wanted, vector)), abs(d - wanted), d) for d in able if d >= min(count, fewest)]
    return min(nearest)[2]


def _images(shapes: list[Shape]) -> list[list[int]] | None:
    """The shapes of operands and result as (n, c, h, w); None if there are more axes and those of c do not merge."""
    rank = len(shapes[-1])
    wide = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    if rank <= AXES:
        return [[*shape, *(1,) * (AXES - rank)] for shape in wide]
    between = slice(1, rank - 2)
    if any(shape[between] != shapes[-1][between] and prod(shape[between]) > 1 for shape in wide):
        return None
    return [[shape[0], prod(shape[between]), *shape[-2:]] for shape in wide]


def _joined(shapes: list[Shape]) -> list[list[int]] | None:
    """The merged extents of shapes that broadcast to the last shape; None if more than four axes remain.

    Adjacent axes merge if each shape has either both in full or neither.
    """
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
    return found if len(found[-1]) <= AXES else None


def _broadcast(body: Command, axes: list[list[int]]) -> Form:
    places = {0: (), 1: (3,), 2: (1, 3), 3: (1, 2, 3)}.get(len(axes[-1]), (0, 1, 2, 3))
    views: list[View] = []
    for (_, view), sizes in zip(body.operands(), axes, strict=True):
        shape = [1] * AXES
        for place, size in zip(places, sizes, strict=True):
            shape[place] = size
        views.append(seen(view, tuple(shape)))
    whole = views[-1].shape
    parts = (Part(v, tuple(a if v.shape[a] == whole[a] else None for a in range(AXES))) for v in views)
    return Form(body, tuple(parts), (0, 2, 1, 3))


@form_of(Lut)
def _lut(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """The forms of a function, with the table in every lane."""
    assert isinstance(body, Lut)
    if not is_dense(body):
        return
    for form in _active(replace(body, table=body.input), chip):
        source, _, result = form.parts
        yield altered(form, body=body, parts=(source, constant(body.table), result))
