"""Programs with a consistent lie next to right ones: each is refused by structure, or is another expression.

`pairs.tar.xz` has them: right.tpusim, and wrong.tpusim with one thing changed, which the folder's name says. An
adversary made them against an earlier machine, which accepted all. There is no module: what a wrong program computes
over the field, and what it declares, is compared with the right one.
"""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tpusim.errors import TpusimError
from tpusim.field import Field
from tpusim.isa.stream import Program, load
from tpusim.proof.declared import unlike
from tpusim.proof.prove import field_machine
from tpusim.simulator import Simulator
from tpusim.simulator.run import execute

ARCHIVE = Path(__file__).parent / "pairs.tar.xz"
STRUCTURE = {
    "region_alias_coeff": "overlap",
    "region_alias_neurons": "overlap",
    "secs_axes": "says sections",
    "locations_gone": "in the table of slices are required",
    "work_dropped": "a work area of 256 bytes or more is required, got 0",
    "work_dropped_live": "a work area of 64 bytes or more is required, got 0",
}
"""Pairs that structure refuses, and what it says."""
EXPRESSION = (
    *("concat_parts_swapped", "constant_other_layer", "conv_window", "load_other_tensor", "pool_window"),
    "residual_window",
)
"""Pairs of which the wrong program computes another expression."""
DECLARED = {"kind_width": "kind 'tensor' is the module's, got 'heads'"}
"""Pairs that compute the same, and what a proof says of the wrong program's declarations."""


@cache
def pair(name: str) -> dict[str, Program]:
    with TemporaryDirectory() as folder, tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
        return {path.stem: load(path) for path in (Path(folder) / name).iterdir()}


def stored(program: Program) -> dict[str, bytes]:
    """Every tensor in global memory after the program has run over the field."""
    machine = Simulator(program)
    memory = field_machine(machine, Field(0))
    cores = memory.of_cores(machine.lane_bytes)
    for entry in program.inputs:
        memory.given(entry.view, entry.name)
    for index in machine.order:
        execute(program.commands[index], cores[program.commands[index].core])
    return {entry.name: memory.read(entry.view).tobytes() for entry in program.tensors}


def test_every_pair_is_here() -> None:
    with tarfile.open(ARCHIVE) as archive:
        assert {Path(name).parts[0] for name in archive.getnames()} == {*STRUCTURE, *EXPRESSION, *DECLARED}


@pytest.mark.parametrize("name", STRUCTURE)
def test_contradictions_are_refused(name: str) -> None:
    Simulator(pair(name.removesuffix("_live"))["right"])
    with pytest.raises(TpusimError, match=STRUCTURE[name]):
        Simulator(pair(name)["wrong"])


@pytest.mark.parametrize("name", EXPRESSION)
def test_other_expressions_are_exposed(name: str) -> None:
    assert stored(pair(name)["right"]) != stored(pair(name)["wrong"])


@pytest.mark.parametrize("name", DECLARED)
def test_other_declarations_are_named(name: str) -> None:
    right, wrong = pair(name)["right"], pair(name)["wrong"]
    assert stored(right) == stored(wrong)
    assert list(unlike(right, right)) == []
    assert any(DECLARED[name] in told for told in unlike(right, wrong))
