"""Forms of matrix products."""

from collections.abc import Iterator
from dataclasses import replace as altered
from typing import cast

from msgspec.structs import replace

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Command,
    MatMul,
)
from tpusim.isa.layout import gmem_strides
from tpusim.isa.matrices import lane_columns
from tpusim.isa.region import View
from tpusim.kernel_library.forms.parts import Form, Part, seen
from tpusim.kernel_library.forms.table import form_of

_MATRIX = 2


@form_of(MatMul, words=True, halves=True)
def _product(body: Command, chip: ChipSpec) -> Iterator[Form]:
    """Rows and columns of the result and matrices of a batch may be cut; the inner axis is whole."""
    assert isinstance(body, MatMul)
    views = [_matrix(view) for view in (body.left, body.right, body.output)]
    if None in views:
        return
    left, right, output = cast("list[View]", views)
    batch = output.shape[0]
    if not {left.shape[0], right.shape[0]} <= {1, batch}:
        return  # only some axes of a batch are repeated
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
    vectors = body.on_vectors
    if vectors:
        widths = lane_columns(output.shape[1], output.shape[3], chip)
        known = {
            name: altered(part, kind="matrix", width=widths.left if name == "left" else widths.right)
            for name, part in known.items()
        }
    parts = tuple(known[name] for name, _ in body.operands())
    yield Form(body, parts, cuts, one_by_one=vectors and batch > 1)


def _columns(view: View) -> Part:
    """An operand with a number for every column of the result."""
    return Part(seen(view, (1, 1, 1, view.elements)), (None, None, None, 3), compact=True, kind="broadcast")


def _matrix_part(view: View, follows: tuple[int | None, int | None], batch: int) -> Part:
    return Part(view, (0 if view.shape[0] == batch and batch > 1 else None, follows[0], None, follows[1]))


def _matrix(view: View) -> View | None:
    """(batch, rows, 1, columns) of a matrix, or of several at equal distances; None if the distances differ."""
    if view.interleave > 1:
        rows, columns = view.shape if len(view.shape) == _MATRIX else (0, 0)
        return replace(view, shape=(1, rows, 1, columns), batch_axis=1) if rows and view.layout == "dense" else None
    strides = gmem_strides(view)
    *batches, rows, columns = zip(view.shape, strides, strict=True)
    size, step = 1, 0
    for length, stride in reversed(batches):
        if length == 1:
            continue
        if size > 1 and stride != size * step:
            return None
        size, step = size * length, step if size > 1 else stride
    return seen(view, (size, rows[0], 1, columns[0]), (step or rows[0] * rows[1], rows[1], columns[1], columns[1]))
