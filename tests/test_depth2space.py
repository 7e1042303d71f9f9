"""The time of Depth2Space in global memory, by direction and order of channels (hardware.md 5.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import to_canonical, to_program, to_tpu
from op_row import network, node
from plain_names import import_onnx

from tpusim import chips
from tpusim.isa.commands.move import Move

UNSHUFFLE = [node("Reshape", "x s", "a"), node("Transpose", "a", "b", perm=[0, 1, 3, 5, 2, 4]), node("Reshape", "b t")]


def d2s(mode: str, block: int) -> list[Any]:
    return [node("DepthToSpace", "x", blocksize=block, mode=mode)]


def s2d(block: int) -> list[Any]:
    return [node("SpaceToDepth", "x", blocksize=block)]


@pytest.mark.parametrize(
    ("nodes", "shape", "cycles", "kind"),
    [
        pytest.param(d2s("CRD", 2), (1, 32, 24, 24), 6036, "blocks", id="shuffle"),
        pytest.param(d2s("CRD", 3), (1, 27, 20, 30), 6699, "blocks", id="shuffle-3"),
        pytest.param(d2s("DCR", 2), (1, 32, 24, 24), 180948, "elements", id="depth-to-space"),
        pytest.param(UNSHUFFLE, (1, 8, 32, 48), 120632, "elements", id="unshuffle"),
        pytest.param(s2d(2), (1, 16, 24, 24), 33792, "planes", id="space-to-depth"),
        pytest.param(s2d(2), (1, 8, 64, 96), 20160, "planes", id="space-to-depth-wide"),
        pytest.param(s2d(4), (1, 3, 64, 96), 24720, "planes", id="space-to-depth-4"),
    ],
)
def test_cycles_of_the_copy(nodes: list[Any], shape: tuple[int, ...], cycles: int, kind: str) -> None:
    """Expected: the span of the transfers in the profile of TPU-MLIR 1.30.2 for f32 on bm1684x.

    Tolerance: the steps of the vector units between loads and stores are left out.
    """
    n, c, h, w = shape
    constants = {"s": np.array([n, c, h // 2, 2, w // 2, 2]), "t": np.array([n, c * 4, h // 2, w // 2])}
    top = to_canonical(import_onnx(network(nodes, constants if nodes is UNSHUFFLE else {})({"x": shape})))
    program, chip = to_program(to_tpu(top, "bm1684x", "f32")), chips.load("bm1684x")
    (copy,) = [c for c in program.commands if isinstance(c, Move) and c.kind]
    assert copy.kind == kind
    assert copy.dma_ns(chip) * chip.dma_mhz / 1000 == pytest.approx(cycles, rel=0.015)


def test_bytes_of_planes() -> None:
    """A load of a plane has the elements between those of a row: 64 planes of 12 rows of 23 elements."""
    top = to_canonical(import_onnx(network(s2d(2), {})({"x": (1, 16, 24, 24)})))
    (copy,) = [c for c in to_program(to_tpu(top, "bm1684x", "f32")).commands if isinstance(c, Move) and c.kind]
    assert copy.traffic() == (64 * 12 * 23 * 4, 16 * 24 * 24 * 4)
