"""The time of a cyclic shift in global memory: rows are moved one by one (hardware.md 5.2)."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import to_canonical, to_program, to_tpu
from op_row import network, node
from plain_names import import_onnx

from tpusim import chips
from tpusim.isa.commands.move import Move


@pytest.mark.parametrize(
    ("shape", "axis", "offset", "cycles"),
    [
        ((1, 64, 6), 1, 5, (785, 9267)),
        ((2, 3, 64), 2, 10, (9424, 50891)),
        ((1, 2, 3, 4, 64), 3, 1, (942, 2827)),
        ((1, 10, 512), 1, 3, (1884, 1099)),
    ],
)
def test_cycles_of_both_copies(shape: tuple[int, ...], axis: int, offset: int, cycles: tuple[int, int]) -> None:
    """Expected: the profile of TPU-MLIR 1.30.2 for f16 on bm1684x, of the same shift between two Abs."""
    nodes = [
        node("Abs", "x", "a"), node("Slice", "a k far at", "b"), node("Slice", "a zero k at", "c"),
        node("Concat", "b c", "r", axis=axis), node("Abs", "r"),
    ]  # fmt: skip
    constants = {"k": np.array([offset]), "far": np.array([2**31]), "zero": np.array([0]), "at": np.array([axis])}
    top = to_canonical(import_onnx(network(nodes, constants)({"x": shape})))
    chip = chips.load("bm1684x")
    program = to_program(to_tpu(top, "bm1684x", "f16"))
    copies = [c for c in program.commands if isinstance(c, Move) and c.kind == "rows"]
    found = [c.dma_ns(chip) * chip.dma_mhz / 1000 for c in copies]
    assert found == pytest.approx(cycles, rel=1e-3, abs=2)  # the real time of a row is a whole number of cycles
