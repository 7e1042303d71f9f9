"""One program on the machine in several orders of its commands, which must make no difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tpusim.isa.stream import Program
from tpusim.simulator import Simulator, SimulatorOptions

BOTH = (SimulatorOptions("early"), SimulatorOptions("late"))
"""A transfer arrives as soon as it may, or when something waits for it."""


def in_every_order(
    program: Program, feeds: Mapping[str, np.ndarray], orders: Sequence[SimulatorOptions] = BOTH
) -> dict[str, np.ndarray]:
    """Every tensor and slice that the machine shows, the same bits in every order; an order met twice is run once.

    The checks before a run are made once: legality, races and owners ask for no order, and without a race what is read
    uninitialised is so in every one.
    """
    first = Simulator(program, options=orders[0])
    found, met = first.run(feeds, watch=True).tensors, [first.order]
    for options in orders[1:]:
        other = Simulator(program, options=replace(options, sanitize=False))
        if other.order not in met:
            met.append(other.order)
            assert_same_bits(other.run(feeds, watch=True).tensors, found, options)
    return found


def assert_same_bits(
    found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], options: SimulatorOptions
) -> None:
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        same = array.dtype == wanted[name].dtype and array.tobytes() == wanted[name].tobytes()
        assert same, f"{name} is another with {options}"
