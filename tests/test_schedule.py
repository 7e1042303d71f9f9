"""The schedule of a layer group: one loop for all who go through it, and a text form that reads as it was written."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from networks import cached_lowered, randomly_grouped

from tpusim.errors import ImportModelError
from tpusim.ir.attrs import LayerGroupAttr, LayerGroupInfo, op_name
from tpusim.ops.framework.logical import AXES
from tpusim.ops.structure import TpuGroup, TpuStore, TpuYield, group_info
from tpusim.schedule import (
    GroupSchedule,
    Scheduled,
    Sections,
    Step,
    ValueSlices,
    from_attrs,
    stage_of,
    tensor_of,
    to_attrs,
    turns,
)

CHIPS = ("bm1684x", "bm1684")


def written(chip: str, seed: int = 0) -> Iterator[tuple[TpuGroup, GroupSchedule]]:
    """Groups of a random division, and the schedules they were written from."""
    _, plans = randomly_grouped(cached_lowered(0, chip)[0], np.random.default_rng(seed))
    assert plans
    for plan in plans:
        group = plan.graph.ops[0].parent_op()
        assert isinstance(group, TpuGroup)
        yield group, plan


def by_definition(group: GroupSchedule, part: range) -> list[tuple[int, int, Scheduled, int]]:
    """Section 15 word by word: a ring of steps, stages that are active, what oversteps its table runs once."""
    found: list[tuple[int, int, Scheduled, int]] = []
    ring: list[int] = []
    for iteration in range(len(part) + 2):
        drained = max(iteration - len(part) + 1, 0)
        ring = [part[min(iteration, len(part) - 1)], *ring][:3]
        for number, row in enumerate(group.rows):
            for item in (*row.layers, *row.transfers):
                stage = stage_of(item)
                if not drained <= stage <= iteration:
                    continue
                step = group.sections.loop[ring[stage]]
                lists = [group.slices[tensor_of(item)].along(axis) for axis in AXES]
                beyond = any(i >= len(windows) for i, windows in zip(step, lists, strict=True))
                if not beyond or iteration == stage:
                    found.append((iteration, number, item, ring[stage]))
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_the_loop_is_that_of_the_specification(chip: str) -> None:
    """For all steps and for those of one of several cores, which load what stays again."""
    several = 0
    for (_, schedule), cores in product(written(chip), (1, 2, 3)):
        for part in filter(None, schedule.shares(cores)):
            got = [(t.iteration, t.row, t.item, t.step) for t in turns(schedule, part)]
            assert got == by_definition(schedule, part)
            assert [t[:4] for t in turns(schedule, part, [1])] == [t for t in got if t[0] == 1]
            several += part.start > 0
    assert several


def test_steps_in_the_order_of_the_loop() -> None:
    """C is the fastest, then w, h, d, n."""
    loop = Sections(2, 2, 1, 2, 1).loop
    assert loop[:5] == (Step(), Step(c=1), Step(h=1), Step(c=1, h=1), Step(n=1)) and len(loop) == 8
    assert [s.text() for s in loop[:3]] == ["n0h0", "n0h0c1", "n0h1"]


@pytest.mark.parametrize("chip", CHIPS)
def test_what_is_written_reads_back(chip: str) -> None:
    """The attributes of a group give the schedule that they were made of; of it, the same attributes."""
    for group, plan in written(chip, seed=3):
        read = from_attrs(group)
        assert read.sections == plan.sections and read.graph.kind == plan.graph.kind
        assert [len(row.items) for row in read.rows] == [len(row.items) for row in plan.rows]
        assert read.allocation.peak_bytes == plan.allocation.peak_bytes
        again = to_attrs(read)
        assert again.group == {key: group.attributes[key] for key in again.group}
        inside = [op for op in group.body.block.ops if not isinstance(op, TpuYield)]
        infos = [group_info(op) for op in inside]  # type: ignore[arg-type]
        assert sorted(again.items.values(), key=by_id) == sorted(filter(None, infos), key=by_id)
        assert len(again.items) == len(inside)


def by_id(info: LayerGroupInfo) -> int:
    return info.id


def test_a_store_is_where_its_tensor_is() -> None:
    group, _ = next(pair for pair in written("bm1684x"))
    store = next(op for op in group.body.block.ops if isinstance(op, TpuStore))
    info = group_info(store)
    assert info is not None
    store.attributes["ginfo"] = LayerGroupAttr(replace(info, out_addr=info.out_addr + 128))
    with pytest.raises(ImportModelError, match=rf"'{op_name(store)}': out_addr must be that of .* change both"):
        from_attrs(group)


def test_windows_without_what_an_earlier_one_has() -> None:
    one = ((0, 1),)
    cut = ValueSlices(one, one, one, ((0, 5), (3, 5), (6, 4)), one)
    assert cut.unshared.h == ((0, 5), (5, 3), (8, 2)) and cut.unshared.w == one
    assert cut.at(Step(h=2)).h == (6, 4) and cut.oversteps(Step(h=3)) and not cut.oversteps(Step(h=2))
