"""Exact packing of local memory: against all placements of small groups, and the allocation of random ones."""

from __future__ import annotations

import re
import shutil
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from end_to_end import digits_run
from networks import CHIPS, cached_lowered, randomly_grouped

from tpusim import chips
from tpusim.cli import main
from tpusim.isa.layout import align
from tpusim.layer_group import GroupView, views
from tpusim.layer_group.files import Area, Packing, least_bytes, packed
from tpusim.ops.framework.base import GroupType

ROWS = 5


def group(seed: int) -> GroupView:
    """Six areas with random sizes and lifetimes, some around the end of the loop, stacked on top of each other."""
    rng, word, areas, end = np.random.default_rng(seed), chips.load("cv183x").eu_bytes, list[Area](), 0
    for i in range(6):
        first, count = rng.integers(ROWS), 1 + rng.integers(3)
        rows = frozenset(int(first + k) % ROWS for k in range(count))
        areas.append(Area(f"a{i}", "result", end, int(rng.integers(1, 100)), held=False, rows=rows, marks={}))
        end = align(areas[-1].end, word)
    return GroupView(0, (), GroupType.NORMAL, {"n": 1}, ((),) * ROWS, tuple(areas), chips.load("cv183x"))


def first_fit(areas: tuple[Area, ...], word: int) -> int:
    """The peak with every area in turn at the lowest address that is free; in some order it is the least possible."""
    placed = list[tuple[int, Area]]()
    for area in areas:
        beside = [(at, other) for at, other in placed if at >= 0 and not area.rows.isdisjoint(other.rows)]
        free = [0, *(align(at + other.size, word) for at, other in beside)]
        placed.append((min(f for f in free if all(f >= at + o.size or f + area.size <= at for at, o in beside)), area))
    return max(at + area.size for at, area in placed)


@pytest.mark.parametrize("seed", range(6))
def test_least_of_all_placements(seed: int) -> None:
    pytest.importorskip("ortools")
    view = group(seed)
    least = min(first_fit(order, view.chip.eu_bytes) for order in permutations(view.areas))
    assert packed(view) == Packing(view.peak, least, least)
    assert least_bytes(view) <= least < view.peak


@pytest.mark.parametrize("chip", CHIPS)
def test_allocation_is_near_the_least(chip: str) -> None:
    """For random groups; some are the least possible, some need more to keep engines in different banks."""
    pytest.importorskip("ortools")
    exact = 0
    for seed in range(4):
        model, _ = randomly_grouped(cached_lowered(seed, chip)[0], np.random.default_rng(seed))
        for view in views(model):
            if isinstance(view, GroupView):
                found = packed(view)
                assert least_bytes(view) <= found.least <= found.found <= found.peak == view.peak
                exact += found.exact
    assert exact


def test_the_command(
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ortools")
    final = digits_run(tmp_path_factory, "bm1684x", "int8") / "6_final.mlir"
    assert main(["group", str(final), "--exact-packing"]) == 1
    assert "--exact-packing: needs --show" in capsys.readouterr().err
    assert main(["group", str(final), "--show", "--exact-packing"]) == 0
    assert re.search(r"^  group 0: [\d,]+ taken, [\d,]+ are enough and needed", capsys.readouterr().out, re.M)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ortools.sat.python", None)
        patch.setattr("tpusim.layer_group.files.packing.least_bytes", lambda view: 0)
        assert main(["group", str(final), "--show", "--exact-packing"]) == 1
    assert "pip install 'tpusim[exact]'" in capsys.readouterr().err
    moved = tmp_path / "moved.mlir"
    moved.write_text(re.sub(r"out_addr = \d+", "out_addr = 0", final.read_text()))
    shutil.copy(final.with_name("chip_weights.npz"), tmp_path)
    assert main(["group", str(moved), "--show", "--exact-packing"]) == 0
    assert "group 0: areas share bytes that must not" in capsys.readouterr().out
