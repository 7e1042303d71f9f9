"""Tensors of two axes, of which a slice in local memory has one element in each lane: groups are seldom worth it.

tests/upstream/data/two_axes.npz has what TPU-MLIR makes of Relu and LayerNorm of such tensors, and of some others.
"""

from __future__ import annotations

import pytest

from benchmarks.conformance import recorded
from benchmarks.conformance.ours import Compiled
from benchmarks.conformance.pairing import computing, pair
from benchmarks.conformance.replay import Replay
from benchmarks.conformance.timing import Group, matching_groups, our_groups, recorded_clock
from tpusim.ir.attrs import op_name
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.groupnorm import TpuGroupNorm

NETWORK = "two_axes"


def compared(cell: str) -> tuple[list[Group], list[Group], list[bool], Compiled]:
    """(our groups, those of TPU-MLIR, whether we have each of theirs, the network)."""
    replay = Replay(NETWORK)
    there: recorded.Cell = replay.data.content.cells[cell]
    compiled = Compiled(replay.lowered(cell), {}, cell.split("/")[0])
    pairs = pair(computing(compiled.ops()), computing(there.ops))
    ours, theirs = our_groups(compiled), recorded_clock(there)[0]
    return ours, theirs, matching_groups(ours, theirs, pairs), compiled


def test_a_group_norm_has_two_axes_on_bm1684() -> None:
    """LayerNorm of (8, 64) from axis 1 becomes a GroupNorm of one group, as in TPU-MLIR (the record has its values)."""
    replay = Replay(NETWORK)
    norms = [op for op in replay.lowered("bm1684/f32").module.walk() if isinstance(op, TpuGroupNorm)]
    there = [op for op in replay.data.content.cells["bm1684/f32"].ops if op.kind == "tpu.GroupNorm"]
    assert [op_name(op) for op in norms] == [op.name for op in there]
    assert sorted(len(shape_of(op.output)) for op in norms) == [2, 2, 3]


@pytest.mark.parametrize("cell", ["bm1684x/int8", "bm1684x/f16"])
def test_every_group_and_global_layer_is_the_real_one(cell: str) -> None:
    ours, theirs, equal, compiled = compared(cell)
    assert all(equal) and len(equal) > 10
    assert sum(not group.sections for group in theirs) > 8  # most are global layers
    told = {
        str(op.attributes.get("tpusim.global_reason", ""))
        for op in compiled.grouped().module.walk()
        if isinstance(op, TpuOp)
    }
    assert any("of two axes it is quicker as a global layer" in reason for reason in told)
    assert sum(bool(group.sections) for group in ours) == sum(bool(group.sections) for group in theirs)


def test_another_chip_keeps_most_of_them_in_a_group() -> None:
    """BM1688 has 32 lanes: there a LayerNorm of (1, 64) is in a group, one of (8, 64) is not."""
    _, theirs, equal, compiled = compared("bm1688/int8")
    assert [group.sections == () for group in theirs] == [False, True, True]
    assert equal[1:] == [True, True]  # the large group is two here
    norms = [op for op in compiled.grouped().module.walk() if getattr(op, "name", "") == "tpu.LayerNorm"]
    assert ["tpusim.global_reason" in op.attributes for op in norms].count(True) == 1
