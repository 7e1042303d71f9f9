"""The number of each layer group and global layer: the same in the program, the report, the page and every option."""

from collections.abc import Iterator

from tpusim.ir.module import Model
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.structure import TpuGroup


def numbered(model: Model) -> Iterator[tuple[TpuGroup | TpuOp, int | None]]:
    """(group or global layer, its number) in program order, from 0 on.

    A view outside every group moves nothing in global memory and has no command, so it has no number: None.
    """
    number = 0
    for op in model.ops:
        if isinstance(op, TpuOp) and is_in_place(op):
            yield op, None
        elif isinstance(op, TpuGroup | TpuOp):
            yield op, number
            number += 1
