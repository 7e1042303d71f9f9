"""topo-sort: what has a local form stands together, whatever the order of the network."""

from __future__ import annotations

import pytest
from compiling import to_canonical, to_reordered, to_tpu
from upstream.networks import build

from benchmarks.conformance.clock import CHIPS, recorded_profiles, recorded_row
from benchmarks.conformance.replay import Replay
from tpusim import chips
from tpusim.frontend import import_onnx
from tpusim.ir.text import verify
from tpusim.ops.framework.base import TpuOp


def test_local_ops_come_in_turns_with_others() -> None:
    """The heads of `detector` end in Permutes: the second head's convolution stands in front of the first's Permute."""
    top = to_canonical(import_onnx(build("detector"), name="detector"))
    tpu, chip = to_tpu(top, "bm1684x", "f16"), chips.load("bm1684x")
    local = [
        [op.why_not_local(chip) is None for op in m.ops if isinstance(op, TpuOp)] for m in (tpu, to_reordered(tpu))
    ]
    turns = [sum(a != b for a, b in zip(found, found[1:], strict=False)) for found in local]
    assert turns[1] < turns[0]
    verify(to_reordered(tpu).module, "after weight-reorder")


@pytest.mark.parametrize("chip", CHIPS)
def test_casts_of_one_tensor_stand_as_upstream_inserts_them(chip: str) -> None:
    """Each directly after it, so the last comes first: every group and global layer of `resize` is as upstream's."""
    row = recorded_row(Replay("resize"), chip, recorded_profiles()[f"resize/{chip}/int8"])
    assert row is not None and row.same_groups == row.there.groups + row.there.global_layers


def test_a_rescale_for_a_concat_waits_for_the_other_branch() -> None:
    """Before the sort it is directly after its operand; the sort takes the last user first: the pool."""
    ops = [op.name for op in to_reordered(Replay("unet").lowered("bm1688/int8-asym")).ops if isinstance(op, TpuOp)]
    wanted = ["Cast", "Conv2D", "Pool2D", "Conv2D", "Deconv", "RequantIntAxis", "RequantInt", "RequantInt", "Concat"]
    assert ops[: len(wanted)] == [f"tpu.{name}" for name in wanted]
