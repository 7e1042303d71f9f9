"""Constant fill (GDMA): its command, legality and time."""

from typing import Literal

import numpy as np

from tpusim.chips import ChipSpec
from tpusim.isa import transfers
from tpusim.isa.commands.base import Command
from tpusim.isa.finding import Finding
from tpusim.isa.region import FLOATS, View, is_packed, numpy_dtype

FillKind = Literal["", "elements", "matrix"]


def fill_values(command: "Fill", chip: ChipSpec) -> Finding | None:
    """A fill of an integer tensor has an integral value inside the type's range."""
    if command.output.dtype in FLOATS:
        return None
    info = np.iinfo(numpy_dtype(command.output.dtype))
    if command.value == int(command.value) and info.min <= command.value <= info.max:
        return None
    return Finding(f"an integer within {info.min}..{info.max}", str(command.value), "correct the value or the type")


class Fill(Command, frozen=True, tag="fill"):
    """Constant fill (GDMA constant mode)."""

    engine = "gdma"
    memory = None
    rules = (fill_values,)

    output: View
    value: float
    kind: FillKind = ""
    """How the library writes it: as a tensor, element by element, or as a matrix over all lanes."""

    @property
    def stage(self) -> str:
        """Its stage is a fill of memory."""
        return "fill"

    def traffic(self) -> tuple[int, int]:
        """What it writes to global memory."""
        return 0, self.output.nbytes if self.output.memory == "gmem" else 0

    def dma_ns(self, chip: ChipSpec) -> float:
        """The time of a copy from local memory; of a load on chips where short runs cost as much as long ones."""
        view = self.output
        if self.kind and chip.dma_run_bytes:
            runs = view.elements if self.kind == "elements" else min(view.elements, chip.lanes)
            moved = max(view.nbytes, runs * chip.dma_run_bytes)
            return chip.latency_ns("s2l") + moved / (chip.matrix_gbs or chip.kernel_gbs or chip.bandwidth.s2l)
        system, plain = view.memory == "gmem", view.interleave == 1 and not is_packed(view.dtype)
        if plain and system and chip.dma_run_bytes:
            runs = view.nbytes // transfers.common_run(view, view, chip)
            return transfers.transfer_ns("s2l", max(view.nbytes, runs * chip.dma_run_bytes), chip)
        moved = transfers.burst_bytes(view, chip) if system else view.nbytes
        return transfers.transfer_ns("l2s" if system else "l2l", moved, chip)
