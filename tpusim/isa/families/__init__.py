"""Hardware families whose clock has formulas instead of the times that commands state, by cycle model."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tpusim.chips import ChipSpec
from tpusim.isa.commands.base import Command
from tpusim.isa.families import cv18xx


class Formulas(NamedTuple):
    """How a family counts: TIU cycles and nanoseconds of GDMA of a command, and multiply-accumulates per cycle."""

    cycles: Callable[[Command, ChipSpec], int]
    dma_ns: Callable[[Command, ChipSpec], float]
    peak_macs: Callable[[int, ChipSpec], int]


FORMULAS: Mapping[str, Formulas] = {"cv18xx": Formulas(cv18xx.tiu_cycles, cv18xx.dma_ns, cv18xx.peak_macs)}
"""`Hardware.cycle_model` -> its formulas."""
