"""Groups on several cores: sections whose steps the cores can share (layer_group.md 5, group_by_cores).

The cores take consecutive steps of a group's loop, ceil(steps, cores) each. A group that fits with one step would run
on one core only; but more steps mean halos, and resident tensors are loaded on every core that has a step.
"""

from collections.abc import Iterator
from dataclasses import replace

from tpusim.layer_group.cost import CostModel
from tpusim.layer_group.planning import placed, resectioned
from tpusim.layer_group.slicing import max_sections
from tpusim.ops.framework.base import Axis
from tpusim.schedule import GroupSchedule, Sections

RAISED: tuple[Axis, ...] = ("h", "n", "c", "d", "w")


def for_cores(plan: GroupSchedule, model: CostModel, *, unplaced: bool = False) -> GroupSchedule:
    """The plan, or a plan with more sections if that takes less time on the model's cores.

    Decision: the specification raises hsecs until the cores divide the steps; tpusim tries every axis in turn, and
    the estimated time decides, because a group of few steps and large coefficients may be quicker on fewer cores.
    unplaced: the result needs no addresses yet (`plan`).
    """
    if model.cores == 1:
        return plan
    best, least = plan, model.group_ns(plan)
    for sections in candidates(plan.sections, max_sections(plan.graph, model.chip), model.cores):
        other = resectioned(plan, sections, model.chip, unplaced=True)
        if isinstance(other, GroupSchedule) and (cost := model.group_ns(other)) < least:
            able = other if unplaced else placed(other, model.chip)
            best, least = (best, least) if able is None else (able, cost)
    return best


def candidates(now: Sections, limit: Sections, cores: int) -> Iterator[Sections]:
    """Sections with one count raised by less than `cores`: until the cores divide the steps, or up to the limit."""
    for axis in RAISED:
        count = now.count(axis)
        others = now.steps // count
        most = min(limit.count(axis), count + cores - 1)
        able = (c for c in range(count, most + 1) if others * c % cores == 0)
        raised = next(able, most)
        if raised > count:
            yield replace(now, **{axis: raised})
