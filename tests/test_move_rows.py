"""The GDMA gather of rows: the bytes of NumPy along each axis, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from compiling import to_canonical, to_program, to_tpu
from op_row import network, node

from tpusim import chips
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.isa.commands import MoveRows
from tpusim.isa.cycles import dma_ns
from tpusim.simulator import Simulator

SHAPE = (2, 16, 40, 12)
INDICES = ([1, 1, 0], [4, 0, 2, -7, 1], [3, 1, 8, 30, 7, 2, 9], [5, 2, 11, 0])
CYCLES = {"bm1684x": ((12, 1440), (22, 300), (30, 168), (17, 320)),
          "bm1688": ((299, 7201), (305, 1730), (311, 1096), (302, 1826))}  # fmt: skip
"""By axis: the load of the indices and the gather of f32 rows in the profile that TPU-MLIR 1.30.2 writes."""


@pytest.mark.every
@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("chip", CYCLES)
def test_rows_along_each_axis(chip: str, axis: int) -> None:
    indices, x = np.array(INDICES[axis]), np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
    build = network([node("Relu", "x", "a"), node("Gather", "a i", axis=axis)], {"i": indices})
    model = to_canonical(import_onnx(build({"x": SHAPE}), name="rows"))
    tpu = to_tpu(model, chip, "f32")
    program = to_program(tpu)
    (command,) = (c for c in program.commands if isinstance(c, MoveRows))
    machine = Simulator(program).run({"x": x}).tensors
    wanted = np.take(np.maximum(x, 0), indices, axis=axis)
    name = command.tensor
    np.testing.assert_array_equal(machine[name], wanted)
    np.testing.assert_array_equal(np.asarray(run(tpu, {"x": x})[name]), wanted)
    assert command.traffic() == (wanted.nbytes + 4 * len(indices), wanted.nbytes)
    spec = chips.load(chip)
    cycles = dma_ns(command, spec) * spec.tiu_mhz / 1000
    assert cycles == pytest.approx(sum(CYCLES[chip][axis]), rel=0.03)
