"""Layers along an axis, repetitions and their transfers, compared with the real compiler's profiles, one op each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from benchmarks.conformance.ours import Compiled, Network
from benchmarks.constants.networks import CASES, Case
from benchmarks.constants.recorded import Transfer, recorded
from tpusim import chips
from tpusim.isa.cycles import command_ns

KINDS = {"extreme": "Arg", "running": "CumSum", "largest": "Reduce", "least": "Reduce", "product": "Reduce",
         "repeat": "Tile"}  # fmt: skip
COPY = 2
NEAR = 0.04
"""How far the cycles of a layer may be from the profile's: those of a command are rounded to whole ones."""


def _ours(case: Case) -> tuple[list[Transfer], float]:
    """Loads, stores and copies of the layer of a case, and its cycles of the TIU."""
    proto, chip = case.network(), chips.load(case.chip)
    shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    network = Network.of("one", proto, [{"x": np.zeros(shape, np.float32)}])
    program = Compiled.of(network, case.chip, case.mode).program()
    (group,) = [g.id for g in program.groups if g.ops[-1].startswith("y_") and not g.ops[-1].endswith("_f32")]
    moves, tiu = list[Transfer](), 0
    for command in (c for c in program.commands if c.group == group):
        cycles = round(command_ns(command, chip) * chip.tiu_mhz / 1000)
        if command.engine == "tiu":
            tiu += cycles
        else:
            load, store = command.traffic()
            moves.append(Transfer(COPY if load and store else int(store > 0), load or store, cycles))
    return moves, tiu


def _sums(transfers: Iterable[Transfer], times: int = 1) -> dict[int, tuple[int, int]]:
    """(bytes, cycles) by direction."""
    found = dict[int, tuple[int, int]]()
    for way, moved, cycles in ((t.direction, t.moved * times, t.cycles * times) for t in transfers):
        bytes_before, cycles_before = found.get(way, (0, 0))
        found[way] = bytes_before + moved, cycles_before + cycles
    return found


@pytest.mark.parametrize("case", [c for c in CASES if c.op in KINDS], ids=lambda case: case.key)
def test_a_layer_takes_the_transfers_and_cycles_of_the_profile(case: Case) -> None:
    """A running sum loads and stores each place of its axis alike, of which the first ones are recorded."""
    layer = recorded()[case][KINDS[case.op]][0]
    axis, *shape = case.sizes
    one_place = {t.direction: t for t in layer.transfers}.values()
    theirs = _sums(one_place, shape[axis]) if case.op == "running" else _sums(layer.transfers)
    moves, tiu = _ours(case)
    ours = _sums(moves)
    near = shape[axis] if case.op == "running" else 3
    for way, (moved, cycles) in theirs.items():
        assert ours[way] == (moved, pytest.approx(cycles, NEAR, abs=near))
    if case.op != "repeat":  # the indices of a gather are made in a few cycles
        assert tiu == pytest.approx(layer.tiu, NEAR, abs=2)
