"""`--layer-group best` on the clock: never dearer than strategy 2, and quicker where more sections are."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import to_canonical, to_groups, to_reordered
from onnx import TensorProto, helper, numpy_helper

from benchmarks.conformance.replay import Replay
from tpusim.errors import UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.ir.module import Model
from tpusim.layer_group import GroupView, LayerGroupConfig, group_layers, views
from tpusim.ops.framework.base import TpuOp
from tpusim.passes.grouping import cycles

BEST = LayerGroupConfig("best")


def two_convolutions() -> Model:
    """3 to 32 to 32 channels of 128 x 128 pixels in F16 on BM1684X: a group that upstream cuts as little as fits."""
    weights = [
        numpy_helper.from_array(np.ones((32, c, 3, 3), np.float32), f"w{i}") for i, c in enumerate((3, 32))
    ]  # fmt: skip
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4) for i in range(2)]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, 128, 128]) for name, c in (("x0", 3), ("x2", 32))
    )
    proto = helper.make_model(helper.make_graph(nodes, "two", [x], [y], weights))
    return to_reordered(to_canonical(import_onnx(proto, name="two")), "bm1684x", "f16")


def ops(grouped: Model) -> list[str]:
    """The ops inside groups and outside, in order."""
    return [op.name for op in grouped.module.walk() if isinstance(op, TpuOp)]


@pytest.mark.parametrize(
    "cell", ["residual/bm1688", "squeeze/bm1684x", "softmax/bm1684x", "matmul/bm1684x", "vit/bm1688"]
)
def test_best_is_never_dearer(cell: str) -> None:
    network, chip = cell.split("/")
    model = to_reordered(Replay(network).lowered(f"{chip}/int8"))
    assert cycles(to_groups(model, BEST)) <= cycles(to_groups(model))


def test_more_sections_are_quicker() -> None:
    model = two_convolutions()
    usual, best = to_groups(model), to_groups(model, BEST)
    assert cycles(best) < 0.9 * cycles(usual)
    (before,), (group,) = ([v for v in views(m) if isinstance(v, GroupView)] for m in (usual, best))
    assert group.sections["h"] > before.sections["h"] and not group.overlaps
    assert set(ops(best)) == set(ops(usual))


def test_the_stage_itself_does_not_know_the_clock() -> None:
    with pytest.raises(UnsupportedError, match="layer_group='best': expected one of 1, 2, off"):
        group_layers(two_convolutions(), BEST)
