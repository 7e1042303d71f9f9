"""The number of each layer group and global layer: the same in the program, the report, the page and every option."""

from collections.abc import Iterator

from tpusim.ir.module import Model
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.framework.host_functions import layer_of
from tpusim.ops.interfaces import is_in_place
from tpusim.ops.structure import TpuGroup


def numbered(model: Model) -> Iterator[tuple[TpuGroup | TpuOp, int | None]]:
    """(group or global layer, its number) in program order, from 0 on.

    An op without a command has no number: None. That is a view outside every group, which moves nothing in global
    memory, and an op of a host function that is not its last.
    """
    number = 0
    for op in model.ops:
        if isinstance(op, TpuOp) and (is_in_place(op) or layer_of(op) is not op):
            yield op, None
        elif isinstance(op, TpuGroup | TpuOp):
            yield op, number
            number += 1
