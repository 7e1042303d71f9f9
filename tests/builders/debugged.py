"""A program in the debugger, and a flat tensor that is not the machine's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from compiling import to_program
from networks import cached_lowered, cached_network, randomly_grouped

from tpusim.isa.stream import Program
from tpusim.simulator.debugger import Debugger

Tensors = dict[str, np.ndarray]


@cache
def network(seed: int, chip: str) -> tuple[Program, Tensors, Tensors]:
    """(program in random groups, flat tensors, network inputs)."""
    model, flat = cached_lowered(seed, chip)
    grouped, _ = randomly_grouped(model, np.random.default_rng(seed + 7))
    return to_program(grouped), flat, cached_network(seed).feeds()


def debugger(seed: int = 3, chip: str = "bm1684x", **options: Any) -> Debugger:
    program, _, feeds = network(seed, chip)
    return Debugger(program, feeds, **options)


def changed(flat: Tensors, name: str) -> Tensors:
    wrong = flat[name].copy()
    wrong[(-1,) * wrong.ndim] ^= 1
    return {**flat, name: wrong}
