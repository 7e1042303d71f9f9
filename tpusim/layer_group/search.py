"""Group search: opt 1, greedy from the end of each run of local ops, then cuts slid to where few bytes cross."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tpusim.chips import ChipSpec, load
from tpusim.errors import UnsupportedError
from tpusim.ir.attrs import text
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.ir.types import uniform_of
from tpusim.layer_group.graph import base_groups
from tpusim.layer_group.plan import GroupPlan, plan
from tpusim.layer_group.rewrite import write_group
from tpusim.ops.base import TpuOp

SLIDE = 8
"""How many ops a cut may move when it is slid."""

Decided: TypeAlias = GroupPlan | tuple[TpuOp, str]
"""A group, or an op that stays global with the reason."""


@dataclass(frozen=True)
class LayerGroupConfig:
    """Options of the layer-group stage.

    opt: "1" groups greedily from the tail; "off" gives every op its own group.
    """

    opt: Literal["1", "off"] = "1"


def _greedy(ops: list[TpuOp], chip: ChipSpec) -> list[Decided]:
    """From the end: the longest run that works, cut, repeat (layer_group.md 12); then slide the cuts."""
    found: list[Decided] = []
    end = len(ops)
    while end:
        for start in range(end):
            if _splits_cast(ops, start):
                continue
            result = plan(ops[start:end], chip)
            if isinstance(result, GroupPlan):
                found.append(result)
                end = start
                break
        else:
            found.append(_alone(ops[end - 1], chip))
            end -= 1
    return _slid(found[::-1], chip)


def _alone(op: TpuOp, chip: ChipSpec) -> Decided:
    result = plan([op], chip)
    return result if isinstance(result, GroupPlan) else (op, result)


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


def _slid(groups: list[Decided], chip: ChipSpec) -> list[Decided]:
    """Move each cut between two groups by up to SLIDE ops to where the two move the fewest bytes."""
    slid = list(groups)
    for i in range(len(slid) - 1):
        left, right = slid[i], slid[i + 1]
        if isinstance(left, GroupPlan) and isinstance(right, GroupPlan):
            slid[i], slid[i + 1] = _best_cut(left, right, chip)
    return slid


def _best_cut(left: GroupPlan, right: GroupPlan, chip: ChipSpec) -> tuple[GroupPlan, GroupPlan]:
    ops = [*left.graph.ops, *right.graph.ops]
    cut = len(left.graph.ops)
    best = left, right
    for other in range(max(cut - SLIDE, 1), min(cut + SLIDE + 1, len(ops))):
        if other == cut or _splits_cast(ops, other):
            continue
        first = plan(ops[:other], chip)
        second = plan(ops[other:], chip) if isinstance(first, GroupPlan) else first
        if isinstance(first, GroupPlan) and isinstance(second, GroupPlan) and _cost(first, second) < _cost(*best):
            best = first, second
    return best


def _cost(*plans: GroupPlan) -> int:
    return sum(p.transfer_bytes for p in plans)


def _single(ops: list[TpuOp], chip: ChipSpec) -> list[Decided]:
    """Every op alone."""
    return [_alone(op, chip) for op in ops]


STRATEGIES: dict[str, Callable[[list[TpuOp], ChipSpec], list[Decided]]] = {"1": _greedy, "off": _single}


def group_layers(model: Model, config: LayerGroupConfig) -> Model:
    """A copy of the module with its layer groups. Raises UnsupportedError for an unknown strategy."""
    model.require_state("TPU_REORDERED", stage="layer-group")
    if config.opt not in STRATEGIES:
        raise UnsupportedError(f"--layer-group {config.opt}: expected one of {', '.join(STRATEGIES)}")
    work = model.clone()
    chip = load(work.attribute("module.chip"))
    decided: list[Decided] = []
    for ops, why in list(base_groups(work, chip)):
        decided.extend([(ops[0], why)] if why is not None else STRATEGIES[config.opt](ops, chip))
    for item in reversed(decided):  # from the end, so that a group's inputs are still the values it was planned with
        if isinstance(item, GroupPlan):
            write_group(item)
        else:
            item[0].attributes["global_reason"] = text(item[1])
    work.set(state="TPU_DIVIDED")
    verify(work.module, "after layer-group")
    return work
