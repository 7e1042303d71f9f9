"""Which cuts of an op are possible, and a grouping strategy that makes the one asked for."""

from __future__ import annotations

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ir.types import shape_of
from tpusim.layer_group.planning import Decided, plan
from tpusim.layer_group.slicing import possible_sections
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.framework.logical import AXES
from tpusim.ops.interfaces import GroupRules, Volumes, is_in_place
from tpusim.schedule import GroupSchedule, Memo, Sections, subgraph


def cuts(op: TpuOp, chip: ChipSpec) -> tuple[str, Sections, GroupType]:
    """(axes along which the op's result can be cut at all, largest section counts, group type with the most axes)."""
    if not is_local(op, chip) or not kinds_of(op, chip) or (is_in_place(op) and at_edge(op, chip)):
        return "", Sections(), GroupType.NORMAL
    found = [(possible_sections(subgraph([op], chip, kind), chip), kind) for kind in kinds_of(op, chip)]
    batches = {"n"} if shape_of(op.results[0])[0] > 1 and op.can_slice("n") else set()
    axes = "".join(a for a in AXES if a in batches or any(limit.count(a) > 1 for limit, _ in found))
    limit, kind = max(found, key=lambda f: sum(f[0].count(axis) > 1 for axis in AXES))
    return axes, limit, kind


def is_local(op: object, chip: ChipSpec) -> bool:
    return isinstance(op, TpuOp) and op.why_not_local(chip) is None


def at_edge(op: TpuOp, chip: ChipSpec) -> bool:
    """Whether no local op is before the op, or none after it: a view at the edge costs nothing in global memory."""
    return not is_local(op.operands[0].owner, chip) or not any(is_local(u.operation, chip) for u in op.results[0].uses)


def kinds_of(op: TpuOp, chip: ChipSpec) -> list[GroupType]:
    """Types of group the op may be in, alone or with others."""
    deep = isinstance(op, Volumes) and op.wants_3d()
    able = [k for k in GroupType if k is GroupType.NORMAL or rules(chip, GroupRules).GROUP_TYPES or deep]
    return [k for k in able if op.why_not_in(k, chip) is None]


FEW = 3
"""Section counts along c, d and w that are tried: one by one up to this, then the largest."""


def _counts(limit: Sections) -> dict[str, list[int]]:
    counts = {axis: list(range(2, limit.count(axis) + 1)) for axis in AXES}
    for axis in ("c", "d", "w"):
        counts[axis] = sorted({*counts[axis][: FEW - 1], *counts[axis][-1:]})
    return counts


def few_sections(limit: Sections) -> list[Sections]:
    """The first and the largest count along each axis alone, along n the largest, and pairs."""
    counts = {axis: sorted({*found[:1], *found[-1:]}) for axis, found in _counts(limit).items()}
    counts["n"] = counts["n"][-1:]
    found = [Sections(**{axis: count}) for axis in AXES for count in counts[axis]]
    if limit.n > 1 and limit.h > 1:
        found += [Sections(2, h=limit.h), Sections(limit.n, h=2)]
    others = {axis: min(limit.count(axis), 2) for axis in AXES}
    found += [Sections(**others)] * (sum(count > 1 for count in others.values()) > 1)
    return list(dict.fromkeys(found))


def sections_between(limit: Sections) -> list[Sections]:
    """Every other count along n and h alone, some along the other axes."""
    found = [Sections(**{axis: count}) for axis in AXES for count in _counts(limit)[axis]]
    few = few_sections(limit)
    return [sections for sections in found if sections not in few]


def every_sections(limit: Sections) -> list[Sections]:
    """All that are tried."""
    return few_sections(limit) + sections_between(limit)


class Forced:
    """A grouping strategy: the run as one group with these sections, else each op alone with as many as it allows."""

    def __init__(self, sections: Sections, kind: GroupType) -> None:
        self.sections, self.kind = sections, kind

    def __call__(self, ops: list[TpuOp], chip: ChipSpec, cores: int = 1, memo: Memo | None = None) -> list[Decided]:
        del cores, memo
        able = all(op.why_not_in(self.kind, chip) is None for op in ops)
        whole = plan(ops, chip, self.sections, self.kind) if able else "not all ops are of this group type"
        return [whole] if isinstance(whole, GroupSchedule) else [self._alone(op, chip) for op in ops]

    def _alone(self, op: TpuOp, chip: ChipSpec) -> Decided:
        kind = self.kind if op.why_not_in(self.kind, chip) is None else GroupType.NORMAL
        limit = possible_sections(subgraph([op], chip, kind), chip)
        counts = {axis: min(self.sections.count(axis), limit.count(axis)) for axis in AXES}
        found = plan([op], chip, Sections(**counts), kind)
        return found if isinstance(found, GroupSchedule) else (op, found)
