"""Residency: groups that are refused without a plan, because their uncut constants exceed local memory."""

from collections.abc import Sequence
from itertools import accumulate

from xdsl.ir import SSAValue

from tpusim.chips import ChipSpec
from tpusim.layer_group.candidates import takes
from tpusim.layer_group.local_memory import tensor_bytes
from tpusim.layer_group.planning.guess import op_bytes
from tpusim.layer_group.slicing import whole_slice, whole_slices
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.interfaces import splits_weight
from tpusim.schedule import Memo, Subgraph, subgraph


def kept_whole(graph: Subgraph, chip: ChipSpec) -> list[SSAValue]:
    """The constants of a group that no cut of their users can make smaller."""
    split: set[SSAValue] = set()
    for op in graph.ops:
        split.update(graph.memo.get(("split", op), lambda op=op: _split(op, chip)))
    return [w for w in graph.weights if w not in split]


def resident_bytes(graph: Subgraph, chip: ChipSpec) -> int:
    """Bytes per lane of these constants while the group is cut."""
    return sum(tensor_bytes(w, whole_slice(w, graph, chip), graph, chip) for w in kept_whole(graph, chip))


def _split(op: TpuOp, chip: ChipSpec) -> tuple[SSAValue, ...]:
    return tuple(v for i, v in enumerate(op.operands) if splits_weight(op, i, chip))


class Crowded:
    """Which intervals of a run are refused because of their constants, by sums over single ops.

    A constant with one user takes at least the bytes that it takes in a group of that user alone. If an op does not fit
    uncut, it fits uncut in no group, so that every guess of sections is a cut.
    """

    def __init__(self, ops: Sequence[TpuOp], chip: ChipSpec, memo: Memo) -> None:
        self._room = chip.lmem_bytes
        found = [_least(op, chip, memo) for op in ops]
        self._held = [0, *accumulate(bytes_held for bytes_held, _ in found)]
        self._cut = [0, *accumulate(must for _, must in found)]

    def refuses(self, start: int, end: int) -> bool:
        """Whether two ops or more cannot be one group; False: only a plan can decide."""
        too_many = self._held[end] - self._held[start] > self._room
        return end - start > 1 and too_many and self._cut[end] > self._cut[start]


def _least(op: TpuOp, chip: ChipSpec, memo: Memo) -> tuple[int, bool]:
    """(least bytes of the constants that only this op reads, whether it must be cut), over its possible group types."""
    kinds = [kind for kind in GroupType if takes(kind, op, chip, memo)]
    graphs = [subgraph((op,), chip, kind, memo) for kind in kinds]
    unshared = min((_unshared_bytes(graph, chip) for graph in graphs), default=0)
    needs = [op_bytes(op, graph, whole_slices(graph, chip), chip) for graph in graphs]
    return unshared, bool(needs) and min(needs) > chip.lmem_bytes


def _unshared_bytes(graph: Subgraph, chip: ChipSpec) -> int:
    unshared = [value for value in kept_whole(graph, chip) if value.has_one_use()]
    return sum(tensor_bytes(value, whole_slice(value, graph, chip), graph, chip) for value in unshared)
