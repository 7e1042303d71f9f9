"""Run a program: `simulate` once, or prepare a `Simulator` and run many samples.

Checks that depend on no value are made when the simulator is made: legality, bounds, races, uninitialised reads, reads
of another tensor's bytes, deadlock. A run then only moves and computes bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, SimulationError, first_line
from tpusim.isa.check import check, check_form
from tpusim.isa.commands import Command
from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import Program, TensorEntry
from tpusim.numbers.border import converts
from tpusim.simulator import handlers
from tpusim.simulator.memory import Machine, Memory, Shadow, lane_reach, regions_of
from tpusim.simulator.metadata_checks import check_metadata, unconfirmed
from tpusim.simulator.ownership import Ownership, Restore, check_restores
from tpusim.simulator.races import check_races
from tpusim.simulator.sanitizer import check_bounds, check_cores, check_poison
from tpusim.simulator.schedule import TIMINGS, Queues, Timing, order
from tpusim.simulator.stored import StoredTensors
from tpusim.simulator.summary import Summary, summary
from tpusim.simulator.tables import check_regions, check_sizes, check_slices, check_tables
from tpusim.simulator.timing import Timeline, timeline
from tpusim.simulator.watched import WatchedTensors

BLAS: Any = ThreadpoolController()
"""NumPy's BLAS; looking it up takes longer than many runs, so it is done once."""


@dataclass(frozen=True)
class SimulatorOptions:
    """Switches of the machine that runs a program."""

    dma: Timing = "early"
    """DMA runs ahead as far as dependencies allow ("early"), or only when the TIU must wait for it ("late"); "random":
    any order of the queues that dependencies allow."""
    seed: int = 0
    """Seed of the random order."""
    sanitize: bool = True
    """Check legality, races and uninitialised reads; bounds and accumulator overflow are always checked."""
    blas_threads: int = 1
    """Threads of one matrix product; the products of slices are small, and idle BLAS threads spin (4 GMAC of
    ResNet-50 convolutions on two shared cores: 1 thread 0.35 s, 2 threads 1.8 to 5.5 s)."""

    def __post_init__(self) -> None:
        if self.dma not in TIMINGS:
            raise ConfigError(f"simulator option dma must be one of {', '.join(TIMINGS)}, got {self.dma!r}")
        if self.seed and self.dma != "random":
            raise ConfigError(f"simulator option seed {self.seed}: dma random is required, got {self.dma}")


@dataclass(frozen=True)
class SimulationResult:
    """The result of a run: every stored tensor, in its network shape, and the timeline of the engines."""

    tensors: dict[str, np.ndarray]
    timeline: Timeline

    def __repr__(self) -> str:
        """Show how many tensors there are, and the cycles."""
        return f"<SimulationResult: {len(self.tensors)} tensors; {self.timeline.brief()}>"


def execute(command: Command, memory: Machine) -> None:
    """Execute one command; a global kernel runs its body on GMEM. Raises SimulationError for an illegal command.

    Infinities and NaN are float results like any others.
    """
    try:
        with np.errstate(all="ignore"):
            handlers.execute(command, memory)
    except _MEANINGLESS as error:
        raise SimulationError(
            f"{command.label}: cannot be executed ({first_line(error)}); a legal command is required, run it with the "
            "sanitizer to see which rule it breaks"
        ) from error


_MEANINGLESS = (ValueError, TypeError, LookupError, ArithmeticError, AssertionError, MemoryError)
"""NumPy's errors for operands that do not fit each other, in commands whose legality was not checked."""


class Simulator:
    """A checked program on a machine, ready to run samples."""

    def __init__(self, program: Program, chip: ChipSpec | None = None, options: SimulatorOptions | None = None):
        self.program = program
        self.chip = chip or program.header.chip_spec
        self.options = options or SimulatorOptions()
        if program.coefficients.nbytes != program.header.coeff_bytes:
            raise SimulationError(
                f"the coefficient image has {program.coefficients.nbytes:,} bytes, the header promises "
                f"{program.header.coeff_bytes:,}; generate the program again"
            )
        check_cores(program.commands, self.chip)
        for command in program.commands:
            check_form(command, self.chip)
        regions = regions_of(program)
        everything = Memory(self.chip, regions)
        check_bounds(program.commands, everything)
        check_regions(regions)
        check_tables(program, everything)
        check_sizes(program, everything)
        lane_bytes = lane_reach(program, self.chip)
        self._memory = Machine(self.chip, regions, program.coefficients, lane_bytes[0])
        self._queues = queues = Queues(program.commands)
        self.order = order(queues, self.options.dma, self.options.seed)
        self._cores = self._memory.of_cores(lane_bytes)
        self._restores: dict[int, list[Restore]] = {}
        self._kept = frozenset[str]()
        if self.options.sanitize:
            for command in program.commands:
                check(command, self.chip)
            check_races(queues, self.order, self._memory)
            check_poison(program, self.order, Shadow(self.chip, regions, lane_bytes[0]).of_cores(lane_bytes))
            ownership = Ownership(program, self.chip, regions)
            ownership.check(self.order)
            self._restores = ownership.restores
            check_slices(program)
            check_metadata(program, self.chip)

    def over(self, memory: Machine) -> Self:
        """The same checked program on another memory, whose class says what commands mean (`simulator.field`)."""
        other = copy(self)
        other.options = replace(self.options, sanitize=False)
        other._restores = {}
        other._memory, other._cores = memory, memory.of_cores(self.lane_bytes)
        return other

    def sharing(self, memory: Machine, kept: Iterable[str]) -> Self:
        """The same checked program on global memory that other programs use too (`simulator.session`).

        kept: inputs that are in this memory already, so that a run may leave them out.
        """
        other = copy(self)
        other._kept = frozenset(kept)
        other._memory = memory.with_lanes(self._memory.lane_bytes)
        other._cores = other._memory.of_cores(self.lane_bytes)
        return other

    def reordered(self, dma: Timing, seed: int = 0) -> Self:
        """The same checked program on the same memory, in another order of its queues; a run begins with fresh bytes.

        The checks are valid for every order and are not repeated, so that running many orders is cheap.
        """
        other = copy(self)
        other.options = replace(self.options, dma=dma, seed=seed, sanitize=False)
        other.order = order(self._queues, dma, seed)
        other._restores = {}
        return other

    @cached_property
    def timeline(self) -> Timeline:
        """The clock of the program; it depends on no value. Raises SimulationError."""
        try:
            return timeline(self.program, self.chip)
        except _MEANINGLESS as error:
            raise SimulationError(
                f"the clock cannot count these commands ({first_line(error)}); legal ones are required, run them with "
                "the sanitizer to see which rule they break"
            ) from error

    @cached_property
    def unconfirmed(self) -> dict[str, int]:
        """Kind of table entry that no command confirms -> how often it occurs."""
        return unconfirmed(self.program)

    @cached_property
    def summary(self) -> Summary:
        """The clock's summary: how busy the engines are, and what they wait for."""
        return summary(self.program, self.timeline, self.chip)

    def run(
        self,
        inputs: Mapping[str, np.ndarray] | np.ndarray,
        *,
        watch: bool = False,
        after: Callable[[int, Machine], None] | None = None,
    ) -> SimulationResult:
        """Execute the program on one set of network inputs, by name, in the network shape and types that convert.

        A single array is the input of a network with one input.

        watch: also read every slice of the tensors that live in local memory only, as it is produced. after: called
        with the index of every command that has run, and the memory its core left (`checked.Checker.after`).
        """
        if not self.options.sanitize:
            for memory in self._cores.values():
                memory.reset()  # without the sanitizer, old bytes might be read
        self._feed(inputs)
        stored = StoredTensors(self.program)
        tensors = {entry.name: self._capture(entry) for entry in stored.ready()}
        watched = WatchedTensors(self.program) if watch else None
        for index, memory in self.steps():
            if after is not None:
                after(index, memory)
            if watched is not None:
                watched.after(index, memory)
            tensors.update((entry.name, self._capture(entry)) for entry in stored.finished(index))
        return SimulationResult(tensors if watched is None else {**watched.tensors(), **tensors}, self.timeline)

    def steps(self) -> Iterator[tuple[int, Machine]]:
        """Execute all commands on the present memories: the index of each that has run, and the memory of its core."""
        with BLAS.limit(limits=self.options.blas_threads, user_api="blas"):
            for index in self.order:
                memory = self._cores[self.program.commands[index].core]
                self._execute(index, memory)
                yield index, memory

    @property
    def memories(self) -> Mapping[int, Machine]:
        """Core -> the memory that its commands work on; they share global memory."""
        return self._cores

    @property
    def lane_bytes(self) -> dict[int, int]:
        """Core -> how many bytes of each of its lanes are allocated."""
        return {core: memory.lane_bytes for core, memory in self._cores.items()}

    def start(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Bring the memories into the state before the first command: zeros, coefficients and these inputs."""
        for memory in self._cores.values():
            memory.reset()
        self._feed(inputs)

    def execute(self, index: int) -> None:
        """Execute the command with this index on the present memories (for `debugger`; `run` is faster)."""
        with BLAS.limit(limits=self.options.blas_threads, user_api="blas"):
            self._execute(index, self._cores[self.program.commands[index].core])

    def _execute(self, index: int, memory: Machine) -> None:
        command = self.program.commands[index]
        before = [(restore, memory.read(restore.view)) for restore in self._restores.get(index, ())]
        execute(command, memory)
        if before:
            check_restores(command, before, memory)

    def _feed(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> None:
        wanted = {entry.name: entry for entry in self.program.inputs}
        inputs = self._named(inputs, wanted)
        if not set(wanted) - self._kept <= set(inputs) <= set(wanted):
            raise SimulationError(
                f"the program's inputs are {', '.join(sorted(wanted))}; got {', '.join(sorted(inputs)) or 'none'}"
            )
        for name in inputs:
            entry = wanted[name]
            array, view = np.asarray(inputs[name]), entry.view
            shape = entry.shape or view.shape
            dtype = numpy_dtype(view.dtype)
            if array.shape != shape or not converts(array, dtype):
                why = "; give one sample at a time"
                if array.shape == shape:
                    why = " with values outside that type; convert it first"
                raise SimulationError(
                    f"input '{name}': the program takes {view.dtype} of shape {shape}, "
                    f"got {array.dtype} of shape {array.shape}{why}"
                )
            self._memory.write(view, array.astype(dtype, copy=False).reshape(view.shape))

    @staticmethod
    def _named(inputs: Mapping[str, np.ndarray] | np.ndarray, wanted: Mapping[str, TensorEntry]) -> Mapping[str, Any]:
        """Arrays by input name; one array is that of the only input."""
        if isinstance(inputs, Mapping):
            return inputs
        if len(wanted) != 1 or not hasattr(inputs, "shape"):
            got = "one array" if hasattr(inputs, "shape") else type(inputs).__name__
            raise SimulationError(
                f"inputs: a dict of arrays is required, by input name ({', '.join(sorted(wanted))}); got {got}"
            )
        return dict.fromkeys(wanted, inputs)

    def _capture(self, entry: TensorEntry) -> np.ndarray:
        return self._memory.read(entry.view).reshape(entry.shape or entry.view.shape)


def simulate(
    program: Program, inputs: Mapping[str, np.ndarray] | np.ndarray, options: SimulatorOptions | None = None
) -> SimulationResult:
    """Check a program and run it once on the chip that it is for."""
    return Simulator(program, options=options).run(inputs)
