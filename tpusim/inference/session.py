"""A session in flat inference: nets as compiled functions, and persistent tensors as JAX arrays that are carried on."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from tpusim_kernels.lazy import jax, lax

from tpusim.errors import ConfigError
from tpusim.inference.batched import Flat
from tpusim.inference.executor import input_specs, kept_names
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.numbers.persistent import Signature, part_of, require_persistent, stored_numbers


class FlatSession:
    """The nets of a program as functions, with persistent tensors; used like `tpusim.simulator.Session`.

    models: lowered modules by net. persistent: name -> net -> the input that it is.
    """

    def __init__(self, models: Mapping[str, Model], persistent: Mapping[str, Mapping[str, str]]) -> None:
        self._models = dict(models)
        self._persistent = {name: dict(tensors) for name, tensors in persistent.items()}
        self._nets: dict[str, Flat] = {}
        self._state: dict[str, jax.Array] = {}
        self.clear()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the nets."""
        return tuple(self._models)

    def signature(self, net: str) -> Signature:
        """Types and shapes of the inputs and results of a net."""
        model = self._model(net)
        inputs = {name: (dtype.name, shape) for name, (shape, dtype) in input_specs(model).items()}
        results = zip(kept_names(model, None), model.results, strict=True)
        return inputs, {name: ("", shape_of(value)) for name, value in results}

    def run(self, net: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results of a net by name; inputs that are persistent may be left out.

        A persistent input that is given is written, from its beginning.
        """
        model = self._model(net)
        specs = input_specs(model)
        kept = {tensors[net]: name for name, tensors in self._persistent.items() if net in tensors}
        for tensor, name in kept.items():
            if tensor in inputs:
                self.write(name, inputs[tensor])
        carried = {
            tensor: self._state[name][tuple(slice(size) for size in specs[tensor][0])] for tensor, name in kept.items()
        }
        if net not in self._nets:
            self._nets[net] = Flat(model)
        found = self._nets[net]({**inputs, **carried})
        return {name: np.asarray(value) for name, value in found.items()}

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a persistent tensor: that of its longest input."""
        require_persistent(name, self._persistent)
        shapes = [input_specs(self._model(net))[tensor][0] for net, tensor in self._persistent[name].items()]
        return max(shapes, key=np.prod)

    def read(self, name: str) -> np.ndarray:
        """The values of a persistent tensor."""
        require_persistent(name, self._persistent)
        return np.asarray(self._state[name])

    def write(self, name: str, values: np.ndarray, at: int = 0, axis: int = 1) -> None:
        """Store values from position `at` of the axis on. Raises SimulationError if they do not fit."""
        shape, state = self.shape(name), self._state[name]
        given = stored_numbers(f"persistent tensor '{name}'", values, np.dtype(state.dtype))
        start = [place.start or 0 for place in part_of(name, shape, given.shape, at, axis)]
        self._state[name] = lax.dynamic_update_slice(state, given, start)

    def clear(self) -> None:
        """Zero in all persistent tensors."""
        for name, tensors in self._persistent.items():
            net, tensor = next(iter(tensors.items()))
            dtype = input_specs(self._model(net))[tensor][1]
            self._state[name] = cast("Any", jax).device_put(np.zeros(self.shape(name), dtype))

    def _model(self, net: str) -> Model:
        if net not in self._models:
            raise ConfigError(f"net '{net}': one of the nets {', '.join(self._models)} is required")
        return self._models[net]
