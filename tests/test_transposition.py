"""Another order of axes by transpositions of matrices: which, what they move, and how long, as in the real profile."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from compiling import to_canonical, to_program, to_reordered
from msgspec.structs import replace
from upstream.networks import Builder

from tpusim import chips
from tpusim.frontend import import_onnx
from tpusim.isa.commands import Move
from tpusim.isa.cycles import dma_ns
from tpusim.isa.region import View
from tpusim.isa.transposition import Matrices, transpositions, turned_matrices
from tpusim.ops.framework.views import turned
from tpusim.simulator import Simulator

PATCHES = (1, 3, 14, 16, 14, 16)
"""An image of 224 x 224 in patches of 16."""
PROFILE = [
    ("bm1684x", "f16", PATCHES, (0, 2, 4, 1, 3, 5), 9, 97545),
    ("bm1684x", "f32", PATCHES, (0, 4, 2, 5, 3, 1), 12, 349045),
    ("bm1684x", "f16", PATCHES, (0, 1, 3, 5, 2, 4), 6, 218009),
    ("bm1684x", "f16", (2, 3, 4, 5, 6), (0, 3, 2, 1, 4), 9, 2645),
    ("bm1684x", "f16", (2, 3, 4, 5, 6), (4, 3, 2, 1, 0), 12, 17092),
    ("bm1684x", "f16", (2, 3, 4, 5, 6), (2, 0, 1, 4, 3), 9, 9809),
    ("bm1684x", "f32", (2, 3, 4, 5, 6), (0, 2, 4, 1, 3), 6, 10350),
    ("bm1684x", "f16", (6, 10, 12, 14), (1, 3, 0, 2), 6, 28893),
    ("bm1684x", "f32", (6, 10, 12, 14), (2, 0, 3, 1), 9, 21322),
    ("bm1684x", "f16", (6, 10, 12, 14), (3, 2, 1, 0), 9, 9173),
    ("bm1684x", "f16", (6, 10, 12, 14), (2, 1, 0, 3), 1, 7068),
    ("bm1684x", "f16", (6, 10, 12, 14), (2, 3, 0, 1), 3, 16432),
    ("bm1684x", "f16", (1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5), 1, 23089),
    ("bm1684x", "f32", (96, 10, 100), (0, 2, 1), 3, 257855),
    ("bm1684x", "f32", (100, 10, 100), (0, 2, 1), 3, 18426),
    ("bm1684x", "f32", (2, 20, 99), (0, 2, 1), 3, 6691),
    ("bm1688", "f16", PATCHES, (0, 2, 4, 1, 3, 5), 9, 94112),
    ("bm1688", "f32", PATCHES, (0, 4, 2, 5, 3, 1), 12, 242717),
    ("bm1688", "f16", PATCHES, (0, 1, 3, 5, 2, 4), 6, 108371),
    ("bm1688", "f16", (2, 3, 4, 5, 6), (0, 3, 2, 1, 4), 9, 2304),
    ("bm1688", "f16", (2, 3, 4, 5, 6), (4, 3, 2, 1, 0), 12, 3636),
    ("bm1688", "f16", (2, 3, 4, 5, 6), (2, 0, 1, 4, 3), 9, 2478),
    ("bm1688", "f32", (2, 3, 4, 5, 6), (0, 2, 4, 1, 3), 6, 1972),
    ("bm1688", "f16", (6, 10, 12, 14), (1, 3, 0, 2), 6, 13838),
    ("bm1688", "f32", (6, 10, 12, 14), (2, 0, 3, 1), 9, 28536),
    ("bm1688", "f16", (6, 10, 12, 14), (3, 2, 1, 0), 9, 21996),
    ("bm1688", "f16", (6, 10, 12, 14), (2, 3, 0, 1), 3, 6526),
    ("bm1688", "f16", (1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5), 1, 45448),
    ("bm1688", "f32", (96, 10, 100), (0, 2, 1), 3, 90700),
    ("bm1688", "f32", (100, 10, 100), (0, 2, 1), 3, 34460),
    ("bm1688", "f32", (2, 20, 99), (0, 2, 1), 3, 3628),
]
"""Chip, type, shape and order of a Permute; commands (three for a transposition) and cycles in the profile of
TPU-MLIR 1.30.2."""


@pytest.mark.every
@pytest.mark.parametrize(("chip", "dtype", "shape", "order", "commands", "cycles"), PROFILE, ids=str)
def test_permutes_of_the_profile(
    chip: str, dtype: str, shape: tuple[int, ...], order: tuple[int, ...], commands: int, cycles: int
) -> None:
    """As many transpositions, every byte that they move, and cycles within 2 %."""
    times, spec = max(1, commands // 3), chips.load(chip)
    source = View("gmem", 0, shape, dtype, "dense")  # type: ignore[arg-type]
    result = tuple(shape[axis] for axis in order)
    target = replace(source, address=1 << 24, shape=result)
    kind = "turns" if times > 1 else ""
    move = Move(id=1, dep=0, op="", input=turned(source, order), output=target, kind=kind)
    assert len(transpositions(shape, order)) == commands // 3
    assert turned_matrices(move.input) == transpositions(shape, order)
    assert move.traffic() == (times * source.nbytes,) * 2
    assert abs(dma_ns(move, spec) * spec.tiu_mhz / 1000 / cycles - 1) <= 0.02


def test_transpositions_give_the_order() -> None:
    """One after the other, on numbers; the first are those of an image in patches."""
    assert transpositions(PATCHES, (0, 2, 4, 1, 3, 5)) == (
        Matrices(1, 3, 50176), Matrices(14, 16, 672), Matrices(196, 16, 48)
    )  # fmt: skip
    rng = np.random.default_rng(0)
    several = 0
    for _ in range(300):
        shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(2, 7)))
        order = tuple(int(n) for n in rng.permutation(len(shape)))
        values = np.arange(prod(shape))
        found, wanted = values, values.reshape(shape).transpose(order)
        for matrices in transpositions(shape, order):
            found = found.reshape(matrices).swapaxes(1, 2)
        longer = [axis for axis in order if shape[axis] > 1]
        if transpositions(shape, order):
            assert np.array_equal(found.ravel(), wanted.ravel())
        else:  # in order, or rows stay
            assert not longer or longer[-1] == max(longer)
        several += len(transpositions(shape, order)) > 1
    assert several > 50


@pytest.mark.every
@pytest.mark.parametrize(("chip", "times"), [("bm1684x", 3), ("bm1688", 3), ("bm1684", 1), ("bm1690", 1)])
def test_patches_of_an_image(chip: str, times: int) -> None:
    """Loaded and stored by each transposition where the real compiler was seen to do so; the bits are the same."""
    b = Builder("patches")
    b.output(b.node("Transpose", b.input("x", 1, 3, 4, 2, 4, 2), perm=[0, 2, 4, 1, 3, 5]))
    top = to_canonical(import_onnx(b.model(), name="patches"))
    model = to_reordered(top, chip, "f32")
    program = to_program(model)
    (move,) = (c for c in program.commands if isinstance(c, Move))
    assert move.traffic() == (times * 768,) * 2
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 2, 4, 2)).astype(np.float32)
    (found,) = (array for name, array in Simulator(program).run({"x": x}, watch=True).tensors.items() if name != "x")
    assert np.array_equal(found, x.transpose(0, 2, 4, 1, 3, 5))
