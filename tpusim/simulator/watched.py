"""Tensors that exist in local memory only, assembled from their slices as commands produce them."""

from collections import defaultdict

import numpy as np

from tpusim.errors import SimulationError
from tpusim.isa.region import numpy_dtype
from tpusim.isa.stream import Location, Program
from tpusim.simulator.memory import Machine


class WatchedTensors:
    """Collects slices by the program's table of locations; slices that overlap must agree bit for bit."""

    def __init__(self, program: Program):
        self._after: dict[int, list[Location]] = defaultdict(list)
        for location in program.locations:
            self._after[location.command].append(location)
        self._values: dict[str, np.ndarray] = {}
        self._seen: dict[str, np.ndarray] = {}
        self._shapes = {location.tensor: location.shape for location in program.locations}

    def after(self, command: int, memory: Machine) -> None:
        """Read the slices that the command with this index has completed."""
        for location in self._after.get(command, ()):
            self._place(location, memory.read(location.view))

    def _place(self, location: Location, part: np.ndarray) -> None:
        name = location.tensor
        if name not in self._values:
            self._values[name] = np.zeros(location.whole, numpy_dtype(location.view.dtype))
            self._seen[name] = np.zeros(location.whole, np.bool_)
        part = part.reshape(location.depth, -1, *part.shape[1:]).transpose(1, 2, 0, 3, 4)
        window = tuple(slice(s, s + size) for s, size in zip(location.start, part.shape, strict=True))
        again = self._seen[name][window]
        if again.any() and not np.array_equal(
            self._values[name][window][again], part[again], equal_nan=part.dtype.kind == "f"
        ):
            raise SimulationError(
                f"tensor '{name}': the slice at {location.start} of shape {part.shape} differs from an overlapping "
                "slice computed before; the slices or halos of its group are wrong"
            )
        self._values[name][window] = part
        self._seen[name][window] = True

    def tensors(self) -> dict[str, np.ndarray]:
        """The tensors whose elements were all seen, in their network shapes."""
        return {
            name: value.reshape(self._shapes[name]) for name, value in self._values.items() if self._seen[name].all()
        }
