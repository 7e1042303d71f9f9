"""An op in no group with others: a global layer, if that is quicker, or if the op has no local form."""

from __future__ import annotations

import pytest
from compiling import to_canonical, to_groups, to_tpu
from upstream.networks import Builder

from tpusim.frontend.onnx import import_onnx
from tpusim.ops.framework.base import TpuOp


def reasons(b: Builder, chip: str) -> dict[str, str]:
    """The reason of each op of a network in F16 that is a global layer, by its kind; "" for the ops in groups."""
    module = to_groups(to_tpu(to_canonical(import_onnx(b.model())), chip, "f16")).module
    ops = [op for op in module.walk() if isinstance(op, TpuOp) and op.name in ("tpu.Relu", "tpu.LayerNorm")]
    return {op.name: str(op.attributes.get("global_reason", "")) for op in ops}


@pytest.mark.parametrize(
    ("shape", "name"),
    [((8, 64), "tpu.LayerNorm"), ((1, 64), "tpu.LayerNorm"), ((4, 6, 40), ""), ((2, 6, 5, 8), "")],
)
@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_a_layer_norm_of_two_axes_is_global(shape: tuple[int, ...], name: str, chip: str) -> None:
    """As in the real compiler's final modules for these shapes."""
    b = Builder("rows")
    b.output(b.norm(b.node("Relu", b.input("x", *shape)), shape[-1]))
    found = reasons(b, chip)
    assert ("two axes" in found["tpu.LayerNorm"]) == (name == "tpu.LayerNorm")
    assert (found["tpu.LayerNorm"] != "") == (name == "tpu.LayerNorm")


@pytest.mark.parametrize(
    ("shape", "alone"), [((8, 64), True), ((1, 64), True), ((64, 8), True), ((1, 64, 56, 56), False)]
)
def test_a_lone_op_of_two_axes_is_global_where_that_is_quicker(shape: tuple[int, ...], alone: bool) -> None:
    """Of two axes, a slice in local memory has one element in each lane, and its transfers are slow.

    The real compiler has each of these ops as a global layer; a group of one op has the cycles of its tiles.
    """
    b = Builder("lone")
    b.output(b.node("Relu", b.input("x", *shape)))
    found = reasons(b, "bm1684x")["tpu.Relu"]
    assert ("quicker" in found) == alone, found
