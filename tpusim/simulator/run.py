"""Run a program: `simulate` once, or prepare a `Simulator` and run many samples.

Whatever depends on no value is checked when the simulator is made: legality, bounds, races, uninitialised reads,
deadlock. A run then only moves and computes bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, SimulationError
from tpusim.isa.check import check
from tpusim.isa.commands import AnyCommand, Fill, GlobalKernel, Move
from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import Program, TensorEntry
from tpusim.simulator import gdma, tiu
from tpusim.simulator.memory import Machine, Memory, Shadow, regions_of
from tpusim.simulator.sanitizer import check_bounds, check_poison, check_races
from tpusim.simulator.schedule import Queues, Timing, order
from tpusim.simulator.stored import StoredTensors
from tpusim.simulator.timing import Timeline, timeline
from tpusim.simulator.watched import WatchedTensors

_BLAS: Any = ThreadpoolController()
"""NumPy's BLAS, found once: looking for it takes longer than many a run."""


@dataclass(frozen=True)
class SimulatorOptions:
    """Switches of the machine."""

    dma: Timing = "early"
    """DMA runs ahead as far as dependencies allow ("early"), or only when the TIU must wait for it ("late")."""
    sanitize: bool = True
    """Check legality, races and uninitialised reads; bounds and accumulator overflow are always checked."""
    blas_threads: int = 1
    """Threads of one matrix product; the products of slices are small, and idle BLAS threads spin (4 GMAC of
    ResNet-50 convolutions on two shared cores: 1 thread 0.35 s, 2 threads 1.8 to 5.5 s)."""

    def __post_init__(self) -> None:
        if self.dma not in ("early", "late"):
            raise ConfigError(f"simulator option dma is early or late, got {self.dma!r}")


@dataclass(frozen=True)
class SimulationResult:
    """What a run gives: every tensor it stored, in its network shape, and the timeline of the two engines."""

    tensors: dict[str, np.ndarray]
    timeline: Timeline


def execute(command: AnyCommand, memory: Machine) -> None:
    """Execute one command; a global kernel runs its body on GMEM."""
    if isinstance(command, Move | Fill):
        gdma.execute(command, memory)
    else:
        tiu.execute(command.body if isinstance(command, GlobalKernel) else command, memory)


class Simulator:
    """A checked program on a machine, ready to run samples."""

    def __init__(self, program: Program, chip: ChipSpec | None = None, options: SimulatorOptions | None = None):
        self.program = program
        self.chip = chip or chips.load(program.header.chip)
        self.options = options or SimulatorOptions()
        if program.coefficients.nbytes != program.header.coeff_bytes:
            raise SimulationError(
                f"the coefficient image has {program.coefficients.nbytes:,} bytes, the header promises "
                f"{program.header.coeff_bytes:,}; generate the program again"
            )
        regions = regions_of(program)
        self._memory = Machine(self.chip, regions, program.coefficients)
        check_bounds(program.commands, self._memory)
        queues = Queues(program.commands)
        self.order = order(queues, self.options.dma)
        if self.options.sanitize:
            for command in program.commands:
                check(command, self.chip)
            check_races(queues, Memory(self.chip, regions))
            check_poison(program, self.order, Shadow(self.chip, regions))

    @cached_property
    def timeline(self) -> Timeline:
        """The clock of the program; it depends on no value."""
        return timeline(self.program, self.chip)

    def run(self, inputs: Mapping[str, np.ndarray], *, watch: bool = False) -> SimulationResult:
        """Execute the program on one set of network inputs, by name, in the stored dtype and the network shape.

        watch: also read every slice of the tensors that live in local memory only, as it is produced.
        """
        memory = self._memory
        if not self.options.sanitize:
            memory.reset()  # nothing proved that old bytes are never read
        self._feed(inputs)
        stored = StoredTensors(self.program)
        tensors = {entry.name: self._capture(entry) for entry in stored.ready()}
        watched = WatchedTensors(self.program) if watch else None
        with _BLAS.limit(limits=self.options.blas_threads, user_api="blas"):
            for index in self.order:
                execute(self.program.commands[index], memory)
                if watched is not None:
                    watched.after(index, memory)
                tensors.update((entry.name, self._capture(entry)) for entry in stored.finished(index))
        return SimulationResult(tensors if watched is None else {**watched.tensors(), **tensors}, self.timeline)

    def _feed(self, inputs: Mapping[str, np.ndarray]) -> None:
        wanted = {entry.name: entry for entry in self.program.inputs}
        if set(inputs) != set(wanted):
            raise SimulationError(
                f"the program's inputs are {', '.join(sorted(wanted))}; got {', '.join(sorted(inputs)) or 'none'}"
            )
        for name, entry in wanted.items():
            array, view = np.asarray(inputs[name]), entry.view
            shape = entry.shape or view.shape
            if array.shape != shape or array.dtype != numpy_dtype(view.dtype):
                raise SimulationError(
                    f"input '{name}': the program takes {view.dtype} of shape {shape}, "
                    f"got {array.dtype} of shape {array.shape}; convert it first"
                )
            self._memory.write(view, array.reshape(view.shape))

    def _capture(self, entry: TensorEntry) -> np.ndarray:
        return self._memory.read(entry.view).reshape(entry.shape or entry.view.shape)


def simulate(
    program: Program, inputs: Mapping[str, np.ndarray], options: SimulatorOptions | None = None
) -> SimulationResult:
    """Check a program and run it once on its own chip."""
    return Simulator(program, options=options).run(inputs)
