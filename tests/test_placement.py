"""Transfers move the windows that they say, ops work on the windows that their results need: structure, no values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from compiling import to_program, to_reordered
from msgspec import structs
from mutation.mutant import Mutant, loads, stores
from mutation.mutators_claim import no_window, other_window, wrong_window_said
from mutation.mutators_place import halo_off_by_one, load_offset
from right_programs import drawn
from rows import lowered
from slicings import Forced

from tpusim.errors import SimulationError, TpusimError
from tpusim.isa.commands import GlobalKernel, Move, Source
from tpusim.isa.region import itemsize
from tpusim.isa.stream import Program
from tpusim.ops.framework.base import GroupType
from tpusim.registry import STRATEGIES
from tpusim.schedule import Sections
from tpusim.simulator import Simulator
from tpusim.simulator.placement import check_windows

SLICED = (14, 27, 31)
"""Images cut along h and w on two cores and on one, and volumes on eight."""


@cache
def program(seed: int) -> Program:
    return drawn(seed).program


def with_move(right: Program, index: int, **fields: Any) -> Program:
    new = structs.replace(right.commands[index], **fields)
    return structs.replace(right, commands=(*right.commands[:index], new, *right.commands[index + 1 :]))


@pytest.mark.parametrize("mutator", [load_offset, other_window, halo_off_by_one])
def test_another_window_is_refused_whatever_the_values(mutator: Callable[..., Mutant | None]) -> None:
    found = [mutator(program(seed), np.random.default_rng(number)) for seed in SLICED for number in range(4)]
    mutants = [mutant for mutant in found if mutant is not None]
    assert len(mutants) >= 9
    for mutant in mutants:
        with pytest.raises(TpusimError):
            Simulator(mutant.program)
            pytest.fail(mutant.note)


def test_windows_are_found_wrong_by_this_check_alone() -> None:
    """Not only because a neighbour's bytes are hit."""
    chip = program(14).header.chip_spec
    for mutator in (other_window, halo_off_by_one, no_window):
        mutants = [mutator(program(14), np.random.default_rng(number)) for number in range(8)]
        wrong = [mutant.program for mutant in mutants if mutant is not None]
        assert len(wrong) >= 4
        refused = 0
        for each in wrong:
            try:
                check_windows(each, chip)
            except SimulationError:
                refused += 1
        assert refused >= len(wrong) - 2  # a row before the slice is no window of it: ownership says whose it is


def move(right: Program, step: str, *, load: bool) -> tuple[int, Any]:
    return next((i, c) for i, c in (loads if load else stores)(right) if c.step == step and c.start)


def test_messages_of_transfers() -> None:
    right = program(14)
    chip = right.header.chip_spec
    index, load = move(right, "n0h1", load=True)
    assert load.start == (0, 0, 0, 4, 0) and load.whole == (4, 3, 1, 12, 10)
    for fields, message in (
        ({"start": (0, 0, 0, 5, 0)}, r"the window at \(0, 0, 0, 5, 0\) of \(4, 3, 1, 12, 10\) of 't0', 0x.* strides"),
        ({"whole": (4, 3, 1, 10, 12)}, r"of \(4, 3, 1, 10, 12\) of 't0', .* is required"),
        ({"whole": (4, 3, 1, 12, 11)}, r"the tensor is f32 \(4, 3, 12, 10\)"),
        ({"start": None, "whole": None}, "the window that it moves is required, got none"),
        ({"whole": None}, "both start and whole, or none, is required"),
        ({"sources": (Source("nothing"),)}, "a tensor of the table on one side"),
    ):
        with pytest.raises(SimulationError, match=message):
            check_windows(with_move(right, index, **fields), chip)
    index, store = move(right, "n0h1w1", load=False)
    near = structs.replace(store.input, address=store.input.address + itemsize(store.input.dtype))
    with pytest.raises(SimulationError, match="a window of '.*@g0n0h1w1' is required"):
        check_windows(with_move(right, index, input=near), chip)


def test_a_wrong_window_that_says_so_does_not_fit_its_results() -> None:
    """Address and words of a load agree: it moves rows that the convolution of its step does not need."""
    right = program(14)
    index, load = move(right, "n0h1", load=True)
    row = load.whole[4] * itemsize(load.input.dtype)
    source = structs.replace(load.input, address=load.input.address + row)
    moved = with_move(right, index, input=source, start=(0, 0, 0, 5, 0))
    with pytest.raises(
        SimulationError, match="from h = .* on, like its result,|that begins 1 before its result along h"
    ):
        check_windows(moved, right.header.chip_spec)


def test_padding_stands_for_nothing_that_is_there() -> None:
    found = [halo_off_by_one(program(14), np.random.default_rng(number)) for number in range(12)]
    messages: list[str] = []
    for mutant in found:
        try:
            check_windows(mutant.program if mutant else program(14), program(14).header.chip_spec)
        except SimulationError as error:
            messages.append(str(error))
    assert any("padding only beyond the border of the tensor is required" in text for text in messages)


def test_wrong_words_about_windows_never_change_what_is_computed() -> None:
    """What is said wrongly and no command contradicts is at most counted; most is refused."""
    mutants = [wrong_window_said(program(14), np.random.default_rng(number)) for number in range(12)]
    refused = 0
    for mutant in mutants:
        assert mutant is not None
        try:
            Simulator(mutant.program)
        except TpusimError:
            refused += 1
    assert refused >= 10


def test_silence_of_all_transfers_is_counted() -> None:
    right = program(14)
    commands = tuple(
        structs.replace(c, start=None, whole=None) if isinstance(c, Move) else c for c in right.commands
    )  # fmt: skip
    silent = Simulator(structs.replace(right, commands=commands)).unconfirmed
    said = sum(isinstance(c, Move) and c.start is not None for c in right.commands)
    assert silent["transfers that do not say which window they move"] == said
    assert "transfers that do not say which window they move" not in Simulator(right).unconfirmed


def test_a_kernel_may_read_parts_of_one_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution that finds no slices keeps its merged coefficients; they are loaded with the gaps in their rows."""
    monkeypatch.setitem(STRATEGIES.entries, "forced", Forced(Sections(w=2), GroupType.NORMAL))
    model = to_reordered(lowered("conv-padding-alone", "bm1684x", "int8")[0])
    right = to_program(model, "forced")
    kernel = next(c for c in right.commands if isinstance(c, GlobalKernel))
    assert len(set(kernel.sources[1:])) == 1 and len(kernel.sources) > 2
    assert "commands that store no tensor of the table" not in Simulator(right).unconfirmed
