"""The machine finds nothing wrong with right streams: every check is on, in both timings and in random orders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
from compiling import to_groups, to_program
from rotation import one_in

from benchmarks.groups.measure import Network
from tpusim import chips, zoo
from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import Program
from tpusim.simulator import Simulator, SimulatorOptions

ORDERS = [
    SimulatorOptions(dma="early"),
    SimulatorOptions(dma="late"),
    *(SimulatorOptions(dma="random", seed=seed) for seed in range(20)),
]


@lru_cache(maxsize=2)
def network(name: str) -> Network:
    """Digits and one of the zoo: all of them at once would fill the memory."""
    return Network.prepare(name)


def inputs(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {entry.name: (entry.shape or entry.view.shape, entry.view.dtype) for entry in program.inputs}
    return {name: rng.normal(size=shape).astype(numpy_dtype(dtype)) for name, (shape, dtype) in shapes.items()}


def assert_silent(name: str, chip: str, cores: int, orders: Sequence[SimulatorOptions] = ORDERS) -> None:
    """No finding, and the same bits in every order."""
    grouped = to_groups(network(name).on(chip), cores=cores)
    program = to_program(grouped)
    feeds, first = inputs(program), None
    for options in orders:
        found = Simulator(program, options=options).run(feeds, watch=True).tensors
        first = first or found
        assert found.keys() == first.keys()
        assert all(found[key].tobytes() == first[key].tobytes() for key in first), options


CASES = [(chip, cores) for chip in chips.available() for cores in sorted({1, chips.load(chip).cores})]


@pytest.mark.parametrize(("chip", "cores"), one_in(2, CASES))
def test_nothing_is_found_in_digits(chip: str, cores: int) -> None:
    assert_silent("digits", chip, cores)


SMALL = ("squeezenet", "shufflenet")
IN_CI = 5
"""CI has one in so many of the chips for each of them; `make slow` has all."""


def small_networks() -> list[object]:
    return [
        pytest.param(
            chip,
            cores,
            name,
            id=f"{chip}-{cores}-{name}",
            marks=(pytest.mark.xdist_group(name), *([pytest.mark.rotated] if (number + shift) % IN_CI else [])),
        )
        for shift, name in enumerate(SMALL)
        for number, (chip, cores) in enumerate(CASES)
    ]


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize(("chip", "cores", "name"), small_networks())
def test_nothing_is_found_in_small_networks(name: str, chip: str, cores: int) -> None:
    assert_silent(name, chip, cores)


@pytest.mark.zoo
@pytest.mark.parametrize(("chip", "cores"), CASES)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in zoo.ZOO if name not in SMALL]
)
def test_nothing_is_found_in_the_zoo(name: str, chip: str, cores: int) -> None:
    assert_silent(name, chip, cores, ORDERS[:4])
