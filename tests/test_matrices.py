"""Products of f32 in global layers compared with the real compiler's profile of the same products."""

from __future__ import annotations

import pytest

from tpusim import chips
from tpusim.isa.commands import MatMul, Move, tile_step
from tpusim.isa.cycles import command_ns
from tpusim.isa.region import View
from tpusim.kernel_library import tiles

PROFILE = {
    ("bm1684x", 12, 32, 10): (105, 141, 384, 69),
    ("bm1684x", 12, 32, 48): (105, 211, 768, 104),
    ("bm1684x", 12, 32, 256): (105, 753, 1152, 372),
    ("bm1684x", 50, 64, 64): (882, 1129, 3200, 1163),
    ("bm1684x", 100, 64, 256): (1765, 4519, 6400, 9309),
    ("bm1684x", 1, 64, 10): (17, 282, 64, 5),
    ("bm1684x", 6, 8, 194): (26, 142, 144, 141),
    ("bm1684x", 4, 16, 132): (17, 145, 256, 48),
    ("bm1688", 2, 32, 116): (338, 846, 512, 204),
    ("bm1688", 5, 16, 116): (350, 568, 480, 257),
    ("bm1688", 30, 32, 256): (1010, 1826, 3840, 1610),
    ("bm1688", 12, 32, 10): (434, 530, 384, 260),
    ("bm1688", 12, 32, 12): (578, 434, 768, 224),
    ("bm1688", 12, 32, 96): (578, 1058, 1152, 458),
    ("bm1688", 1, 32, 32): (314, 443, 192, 174),
    ("bm1688", 50, 64, 64): (2690, 1826, 6400, 1370),
    ("bm1688", 64, 64, 200): (3362, 5090, 8192, 4970),
    ("bm1688", 48, 32, 40): (866, 1250, 1536, 1610),
    ("bm1688", 128, 64, 100): (3362, 5090, 8192, 9770),
    ("bm1688", 200, 64, 48): (5090, 2594, 12800, 7370),
    ("bm1688", 256, 32, 256): (6434, 6434, 16384, 49322),
    ("bm1688", 256, 64, 256): (12578, 12578, 32768, 49322),
}
"""Cycles by chip, rows, inner axis and columns: the loads of both matrices, the product, the store."""


def dense(address: int, *shape: int) -> View:
    """A matrix in global memory."""
    return View("gmem", address, shape, "f32", "dense")


@pytest.mark.parametrize("case", PROFILE, ids=lambda case: "-".join(map(str, case)))
def test_a_product_takes_the_cycles_of_the_profile(case: tuple[str, int, int, int]) -> None:
    """One tile: its two loads, the product and the store, each within a hundredth or two cycles."""
    name, rows, inner, columns = case
    chip = chips.load(name)
    views = dense(0, rows, inner), dense(1 << 20, inner, columns), dense(1 << 22, rows, columns)
    (piece,) = tiles(MatMul(id=0, dep=0, op="p", left=views[0], right=views[1], output=views[2]), chip)
    moved = [(each.outside, each.inside, each) for each in piece.loads]
    moved += [(piece.store.inside, piece.store.outside, piece.store)]
    left, right, store = (
        Move(id=0, dep=0, op="p", input=source, output=target, kind=each.kind, width=each.width)
        for source, target, each in moved
    )
    product = MatMul(id=0, dep=0, op="p", step=tile_step(0), left=left.output, right=right.output, output=store.input)
    found = [command_ns(each, chip) * chip.tiu_mhz / 1000 for each in (left, right, product, store)]
    assert found == pytest.approx(PROFILE[case], rel=0.01, abs=2)


def test_matrices_of_a_batch_follow_one_another() -> None:
    """Of a batch of four no matrix is moved while another is computed."""
    views = dense(0, 4, 12, 8), dense(1 << 20, 4, 8, 12), dense(1 << 22, 4, 12, 12)
    pieces = tiles(MatMul(id=0, dep=0, op="p", left=views[0], right=views[1], output=views[2]), chips.load("bm1688"))
    assert len(pieces) == 4
    assert all(piece.first for piece in pieces)
