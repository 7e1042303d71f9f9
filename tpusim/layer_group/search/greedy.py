"""Group search opt 1: greedy from the end of each run of local ops, then cuts slid to where few bytes cross."""

from math import prod

from tpusim.chips import ChipSpec
from tpusim.ir.types import uniform_of
from tpusim.layer_group.planning import Crowded, Decided, plan
from tpusim.layer_group.slicing import slice_bytes
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import why_rather_global
from tpusim.schedule import GroupSchedule, Memo, Windows

SLIDE = 8
"""Most ops by which a cut may slide."""


def greedy(ops: list[TpuOp], chip: ChipSpec, memo: Memo | None = None) -> list[Decided]:
    """From the end: the longest run that works, cut, repeat (layer_group.md 12); then slide the cuts."""
    memo = memo or Memo()
    crowded = Crowded(ops, chip, memo)
    found: list[Decided] = []
    end = len(ops)
    while end:
        for start in range(end - 1):
            if _splits_cast(ops, start) or crowded.refuses(start, end):
                continue
            result = plan(ops[start:end], chip, memo=memo)
            if isinstance(result, GroupSchedule):
                found.append(result)
                end = start
                break
        else:
            found.append(alone(ops[end - 1], chip, memo))
            end -= 1
    return _slid(found[::-1], chip, memo)


def alone(op: TpuOp, chip: ChipSpec, memo: Memo | None = None) -> Decided:
    """One op as a group, or the reason why it is a global layer: it must be, or the chip's rules say so."""
    result = plan([op], chip, memo=memo)
    if not isinstance(result, GroupSchedule):
        return op, result
    why = why_rather_global(op, chip)
    return (op, why) if why is not None else result


def _splits_cast(ops: list[TpuOp], start: int) -> bool:
    """Whether a cut before `start` would send a tensor to global memory right after its type was converted.

    Decision: a conversion alone is not worth a round trip; it stays with its user.
    """
    if start == 0:
        return False
    before = ops[start - 1]
    if len(before.operands) != 1 or (uniform_of(before.operands[0]) is None) == (uniform_of(before.results[0]) is None):
        return False
    return any(u.operation is ops[start] for u in before.results[0].uses)


def _slid(groups: list[Decided], chip: ChipSpec, memo: Memo) -> list[Decided]:
    """Move each cut between two groups by up to SLIDE ops to the place where both groups move the fewest bytes."""
    slid = list(groups)
    for i in range(len(slid) - 1):
        left, right = slid[i], slid[i + 1]
        if isinstance(left, GroupSchedule) and isinstance(right, GroupSchedule):
            slid[i], slid[i + 1] = _best_cut(left, right, chip, memo)
    return slid


def _best_cut(
    left: GroupSchedule, right: GroupSchedule, chip: ChipSpec, memo: Memo
) -> tuple[GroupSchedule, GroupSchedule]:
    ops = [*left.graph.ops, *right.graph.ops]
    cut = len(left.graph.ops)
    best = left, right
    for other in range(max(cut - SLIDE, 1), min(cut + SLIDE + 1, len(ops))):
        if other == cut or _splits_cast(ops, other):
            continue
        first = plan(ops[:other], chip, memo=memo)
        second = plan(ops[other:], chip, memo=memo) if isinstance(first, GroupSchedule) else first
        if (
            isinstance(first, GroupSchedule)
            and isinstance(second, GroupSchedule)
            and _cost(first, second) < _cost(*best)
        ):
            best = first, second
    return best


def _cost(*plans: GroupSchedule) -> int:
    return sum(map(transfer_bytes, plans))


def transfer_bytes(plan: GroupSchedule) -> int:
    """Bytes a group moves from and to global memory, overlaps of slices counted as often as they move."""
    graph = plan.graph
    values = (*graph.inputs, *graph.weights, *graph.outputs)
    return sum(slice_bytes(v, prod(_moved(windows) for windows in plan.slices[v].axes)) for v in values)


def _moved(windows: Windows) -> int:
    return sum(size for _, size in windows)
