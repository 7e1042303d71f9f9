"""What a layer in global memory costs: never less for a longer axis, and no jump where its operands stop fitting."""

from __future__ import annotations

from itertools import pairwise

import pytest
from builders.groups import value, weight
from xdsl.dialects.builtin import f32

from tpusim import chips
from tpusim.ir.attrs import flag
from tpusim.ir.types import tensor
from tpusim.layer_group.cost import CostModel
from tpusim.ops.matmul import TpuMatMul
from tpusim.ops.structure import make_none


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688", "bm1690"])
def test_a_wider_matrix_never_costs_less(chip: str) -> None:
    """(64, 1024) x (1024, N) in f32: the columns fill the local memory left by the rows, then exceed it.

    But for 1 %: where a lane is given more columns of a row, they come in fewer runs.
    """
    cost = CostModel(chips.load(chip))

    def ns(columns: int) -> float:
        attributes = {"left_transpose": flag(False), "right_transpose": flag(False)}
        operands = [value((64, 1024)), weight((1024, columns)), make_none().output]
        return cost.global_ns(
            TpuMatMul.create(operands=operands, result_types=[tensor((64, columns), f32)], attributes=attributes)
        )

    widths = [*range(512, 8192, 173), 3000, 4080, 4096]
    found = [(n, ns(n)) for n in sorted(widths)]
    for (n, before), (wider, after) in pairwise(found):
        assert 0.99 * before <= after <= 3 * before * wider / n
