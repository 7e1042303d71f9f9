"""The types that a group may have (layer_group.md 3)."""

from collections.abc import Sequence

from tpusim.chips import ChipSpec
from tpusim.interfaces import rules
from tpusim.ops.framework.base import GroupType, TpuOp
from tpusim.ops.interfaces import GroupRules, Volumes
from tpusim.schedule import Memo


def group_types(ops: Sequence[TpuOp], chip: ChipSpec, memo: Memo | None = None) -> tuple[GroupType, ...]:
    """The types that a group of these ops may have, the preferred type first (layer_group.md 3).

    3D if an op needs it; SMALL_C and MM only for two ops or more, on chips with these types; else NORMAL.
    """
    order: list[GroupType] = [GroupType.NORMAL]
    if any(isinstance(op, Volumes) and op.wants_3d() for op in ops):
        order = [GroupType.GROUP_3D, GroupType.NORMAL]
    elif rules(chip, GroupRules).GROUP_TYPES and len(ops) > 1:
        order = [GroupType.SMALL_C, GroupType.MM, GroupType.NORMAL]
    known = memo or Memo()
    return tuple(kind for kind in order if all(takes(kind, op, chip, known) for op in ops))


def takes(kind: GroupType, op: TpuOp, chip: ChipSpec, memo: Memo) -> bool:
    """Whether an op may be in a group of a type."""
    return memo.get(("in", op, kind), lambda: op.why_not_in(kind, chip) is None)
