"""topo-sort: what has a local form stands together, whatever the order of the network."""

from __future__ import annotations

from upstream.networks import build

from tpusim import chips
from tpusim.canonicalize import canonicalize
from tpusim.frontend import import_onnx
from tpusim.ir.text import verify
from tpusim.lowering import LoweringConfig, lower, reorder_weights
from tpusim.ops.base import TpuOp


def test_local_ops_come_in_turns_with_others() -> None:
    """The heads of `detector` end in Permutes: the second head's convolution stands in front of the first's Permute."""
    top, _ = canonicalize(import_onnx(build("detector"), name="detector"))
    tpu, chip = lower(top, LoweringConfig("bm1684x", "f16"))[0], chips.load("bm1684x")
    local = [
        [op.why_not_local(chip) is None for op in m.ops if isinstance(op, TpuOp)] for m in (tpu, reorder_weights(tpu))
    ]
    turns = [sum(a != b for a, b in zip(found, found[1:], strict=False)) for found in local]
    assert turns[1] < turns[0]
    verify(reorder_weights(tpu).module, "after weight-reorder")
