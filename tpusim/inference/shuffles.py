"""Channel shuffles of a whole graph, folded into the constants of the op before them.

Views and Permutes that together reorder the channels of a tensor (shufflenet's) make a compiled loop read byte by byte,
and XLA fuses the loop before them into it, which is slow. If the constants of the op before them can be reordered
instead, the shuffle needs no work at run time.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import ShapedOp
from tpusim.ops.interfaces import Rearranges


@dataclass(frozen=True)
class Shuffle:
    """`last` has the channels of `made` in another order: its channel i is channel order[i] of `made`."""

    made: SSAValue
    last: ShapedOp
    order: np.ndarray


def shuffles(ops: Iterable[Operation], kept: Collection[SSAValue]) -> Iterator[Shuffle]:
    """The shuffles between two ops that compute, without other readers; kept: values that must not be reordered."""
    for op in ops:
        if isinstance(op, ShapedOp) and not isinstance(op, Rearranges) and len(op.results) == 1:
            chain = list(_chain(op.results[0], kept))
            found = (_order(op.results[0], chain[:length]) for length in range(len(chain), 0, -1))
            longest = next(((chain[-1 - i], order) for i, order in enumerate(found) if order is not None), None)
            if longest is not None:
                yield Shuffle(op.results[0], *longest)


def _chain(value: SSAValue, kept: Collection[SSAValue]) -> Iterator[ShapedOp]:
    """The ops after a value that only rearrange it, each the only reader of the previous one."""
    while value not in kept and value.has_one_use():
        op = next(iter(value.uses)).operation
        if not isinstance(op, ShapedOp) or not isinstance(op, Rearranges):
            return
        yield op
        value = op.results[0]


def _order(value: SSAValue, chain: list[ShapedOp]) -> np.ndarray | None:
    """The order of channels after these ops; None if they do more than reorder channels, or nothing."""
    shape = shape_of(value)
    if len(shape) < 2 or shape_of(chain[-1].results[0]) != shape:  # noqa: PLR2004  no channels
        return None
    places = np.arange(np.prod(shape)).reshape(shape)
    moved = places
    for op in chain:
        moved = np.asarray(op.inference([moved])[0])
    order = moved[0].reshape(shape[1], -1)[:, 0] // int(np.prod(shape[2:]))
    same = np.array_equal(moved, places[:, order])
    return order if same and not np.array_equal(order, np.arange(shape[1])) else None
