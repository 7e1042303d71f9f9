"""A session: the nets of a program on one global memory that lives across runs.

Persistent tensors keep what a run or `write` stored. Neurons are the nets' common scratch memory. No write goes past a
persistent tensor. Unless its options switch the sanitizer off, the session also checks before each run that the net
reads no persistent byte that nothing has written, and that the weights have not changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from zlib import crc32

import numpy as np

from tpusim.errors import ConfigError, SimulationError
from tpusim.isa.nets import Nets, Persistent, shapes
from tpusim.isa.region import View
from tpusim.isa.stream import Program, TensorEntry
from tpusim.numbers.persistent import Signature, part_of, require_persistent, stored_numbers
from tpusim.simulator.memory import Machine, Region, regions_of
from tpusim.simulator.run import SimulationResult, Simulator, SimulatorOptions


@dataclass(frozen=True)
class SessionState:
    """The values of a session's persistent tensors, and a mark of its program."""

    program: int
    tensors: Mapping[str, np.ndarray]
    written: Mapping[str, np.ndarray]
    """A mark for each byte of a tensor that was written."""


class Session:
    """Runs the nets of a program one after another on one global memory.

    Persistent tensors begin without a value: `clear` makes them zero, `write` gives them one.
    """

    def __init__(self, nets: Nets | Program, options: SimulatorOptions | None = None) -> None:
        self.nets = linked = _nets_of(nets)
        self.options = options or SimulatorOptions()
        self._persistent = {one.name: one for one in linked.persistent}
        self._written = {name: np.zeros(one.size, np.bool_) for name, one in self._persistent.items()}
        self._machines: dict[str, Simulator] = {}
        self._weights = _checksum(linked)

    def __repr__(self) -> str:
        """The nets and persistent tensors."""
        return f"<Session of {', '.join(self.nets)}: {', '.join(self._persistent) or 'nothing'} persistent>"

    @cached_property
    def _memory(self) -> Machine:
        """Coefficients, persistent tensors, and whatever any net writes."""
        header = self.nets.first.header
        kept = tuple(Region(name, one.address, one.size, writable=False) for name, one in self._persistent.items())
        weights = Region("coefficients", header.coeff_address, header.coeff_bytes, writable=False)
        regions = (weights, *kept, *_scratch(self.nets, kept))
        return Machine(self.nets.first.header.chip_spec, regions, self.nets.coefficients, 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nets."""
        return tuple(self.nets)

    def signature(self, net: str) -> Signature:
        """Types and shapes of the inputs and results of a net."""
        program = self.nets.net(net)
        return shapes(program.inputs), shapes(program.outputs)

    def machine(self, net: str) -> Simulator:
        """The machine of a net; its program is checked when it is first asked for."""
        program = self.nets.net(net)
        if net not in self._machines:
            kept = self.nets.persistent_of(net)
            self._machines[net] = Simulator(program, options=self.options).sharing(self._memory, kept)
        return self._machines[net]

    def run(self, net: str, inputs: Mapping[str, np.ndarray], *, watch: bool = False) -> SimulationResult:
        """Execute a net; inputs that are persistent may be left out. Raises SimulationError.

        A persistent input that is given is written, from its beginning.
        """
        machine = self.machine(net)
        persistent = self.nets.persistent_of(net)
        for tensor, one in persistent.items():
            if tensor in inputs:
                self.write(one.name, inputs[tensor])
        if self.options.sanitize:
            self._require_written(net, persistent)
            self._require_weights()
        return machine.run({name: x for name, x in inputs.items() if name not in persistent}, watch=watch)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a persistent tensor: that of its longest input."""
        entry = self._entry(name)
        return entry.shape or entry.view.shape

    def read(self, name: str) -> np.ndarray:
        """The values of a persistent tensor."""
        return self._memory.read(self._view(name)).reshape(self.shape(name))

    def write(self, name: str, values: np.ndarray, at: int = 0, axis: int = 1) -> None:
        """Store values into a persistent tensor, from position `at` of the axis on.

        Raises SimulationError for values of another shape, or past the tensor's end.
        """
        shape, view = self.shape(name), self._view(name)
        content = self._memory.read(view).reshape(shape)
        given = stored_numbers(f"persistent tensor '{name}'", values, content.dtype)
        place = part_of(name, shape, given.shape, at, axis)
        content[place] = given
        self._memory.write(view, content.reshape(view.shape))
        marks = self._written[name][: content.nbytes].reshape(*shape, content.itemsize)
        marks[place] = True

    def clear(self) -> None:
        """Zero in all persistent tensors, as a runtime clears its caches before a new sequence."""
        for name, marks in self._written.items():
            self._memory.gmem[name][:] = 0
            marks[:] = True

    def state(self) -> SessionState:
        """A copy of the persistent tensors, for `restore`."""
        tensors = {name: self.read(name) for name in self._persistent}
        return SessionState(self._identity, tensors, {name: marks.copy() for name, marks in self._written.items()})

    def restore(self, state: SessionState) -> None:
        """Continue from a state. Raises ConfigError for one of another program."""
        if getattr(state, "program", None) != self._identity:
            raise ConfigError(
                f"state: one of a session of the same program is required ({', '.join(self.nets)}), got one of "
                "another program; begin with clear()"
            )
        for name, values in state.tensors.items():
            self.write(name, values)
            self._written[name][:] = state.written[name]

    @property
    def _identity(self) -> int:
        return crc32(repr((self._weights, self.names, self.nets.persistent)).encode())

    def _entry(self, name: str) -> TensorEntry:
        require_persistent(name, self._persistent)
        one = self._persistent[name]
        entries = (self.nets[net].tensor(tensor) for net, tensor in one.tensors.items())
        return max(entries, key=lambda entry: entry.view.elements)

    def _view(self, name: str) -> View:
        return self._entry(name).view

    def _require_written(self, net: str, persistent: Mapping[str, Persistent]) -> None:
        for tensor, one in persistent.items():
            size = self.nets[net].tensor(tensor).view.nbytes
            missing = int(np.count_nonzero(~self._written[one.name][:size]))
            if missing:
                raise SimulationError(
                    f"net '{net}' reads {missing:,} of the {size:,} bytes of persistent tensor '{one.name}' that "
                    "nothing has written; clear() the session, or write them first"
                )

    def _require_weights(self) -> None:
        if _checksum(self.nets) != self._weights:
            raise SimulationError(
                f"the weights of {', '.join(self.nets)} have changed since the session began; load the program again"
            )


def _nets_of(given: object) -> Nets:
    """Nets, those of compiled networks, or one program as a net. Raises ConfigError for anything else."""
    found = getattr(given, "program", given)
    if isinstance(found, Program):
        return Nets({found.header.model: found})
    if isinstance(found, Nets):
        return found
    raise ConfigError(f"nets: the nets of a program are required (tpusim.load_nets), got {type(given).__name__}")


def _checksum(nets: Nets) -> int:
    """Of the weights, quickly enough to compare before every run."""
    return crc32(cast("Any", nets.coefficients))


def _scratch(nets: Nets, kept: Iterable[Region]) -> list[Region]:
    """The writable regions of all nets but the persistent ones; those that touch are joined."""
    starts = {region.start for region in kept}
    found = sorted(
        {(r.start, r.stop) for net in nets.values() for r in regions_of(net) if r.writable and r.start not in starts}
    )
    joined: list[tuple[int, int]] = []
    for start, stop in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return [Region(f"memory {i}", start, stop - start, writable=True) for i, (start, stop) in enumerate(joined)]
