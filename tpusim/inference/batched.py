"""Any number of samples through a module in one compiled call, in NumPy or JAX arrays."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from tpusim_kernels.gradient import differentiable
from tpusim_kernels.lazy import jax
from tpusim_kernels.prim.forms import plain
from tpusim_kernels.store import Stored

from tpusim.errors import ConfigError
from tpusim.inference.executor import Graph, array_of, input_specs, inputs_of, quantisation, stored_input
from tpusim.inference.layout import with_few_transpositions
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.types import storage_dtype, tensor_of
from tpusim.numbers.border import is_integer
from tpusim.ops.framework.base import Array
from tpusim.ops.structure import TopInput

Inputs = Mapping[str, Array] | Array
"""Arrays by input name; for a network with one input also the array alone."""


class Arguments:
    """The inputs of a module for any number of samples: checked, in its types, in units of its batch."""

    def __init__(self, model: Model) -> None:
        self._specs = input_specs(model)
        self._inputs = inputs_of(model)

    def __call__(self, inputs: Inputs) -> list[Array]:
        """Arrays (batches, *shape) in argument order; the first axis of a given array counts samples.

        Raises ConfigError for inputs of other names, shapes or numbers of samples.
        """
        named = self._named(inputs)
        groups = self._groups(named)
        return [named[name].reshape(groups, *shape) for name, (shape, _) in self._specs.items()]

    def _named(self, inputs: Inputs) -> dict[str, Array]:
        """Arrays of the network's types by input name."""
        given = (
            cast("Mapping[str, Array]", inputs) if isinstance(inputs, Mapping) else dict.fromkeys(self._specs, inputs)
        )
        if given is not inputs and len(self._specs) != 1:
            raise ConfigError(f"inputs: a mapping by name is required, the network has {', '.join(self._specs)}")
        missing = [name for name in self._specs if name not in given]
        if missing:
            raise ConfigError(f"input '{missing[0]}' is missing; given are {', '.join(sorted(given)) or '(none)'}")
        return {op_name(op): _typed(op, given[op_name(op)]) for op in self._inputs}

    def _groups(self, named: Mapping[str, Array]) -> int:
        """The number of samples in units of the module's batch."""
        counts: dict[str, int] = {}
        for name, (shape, _) in self._specs.items():
            found = named[name].shape
            if not shape or len(found) != len(shape) or found[1:] != shape[1:] or not found[0] or found[0] % shape[0]:
                wanted = ("N", *shape[1:])
                what = (
                    "any N of samples" if shape[0] == 1 else f"N a multiple of the batch {shape[0]} it is compiled for"
                )
                raise ConfigError(
                    f"input '{name}': shape ({', '.join(map(str, wanted))}) is required, {what}; got {found}"
                )
            counts[name] = found[0] // shape[0]
        if len(set(counts.values())) > 1:
            raise ConfigError(f"inputs: one number of samples is required, got {counts} batches")
        return next(iter(counts.values()))


class Flat:
    """A module as a function of samples: `flat(x)` gives the network's results by name.

    Real results have the module's stored type; results that are integers or bools in the framework have those types.

    The first axis of every input and result counts samples. Any multiple of the module's batch size runs in one call,
    which is compiled once per number. Integer results equal those of one sample at a time, bit for bit. NumPy arrays
    give NumPy arrays, JAX arrays give JAX arrays (on their device). quick: as in `Graph`; only float networks are then
    faster and have other low bits.

    `jax.grad` and `jax.jvp` of float networks give the derivative of the plain expression of each op; results stay the
    same bits. Where a float becomes a quantised integer they raise ConfigError with the name of the op.
    """

    def __init__(self, model: Model, *, quick: bool = False) -> None:
        self._graph = Graph(model, quick=quick)
        self._arguments, self._types = Arguments(model), model.output_types
        self._scales = quantisation(model)
        samples = cast("Any", jax).vmap(self._graph.trace, in_axes=(None, 0))
        exact = Stored(with_few_transpositions(samples), self._identity, fixed=self._graph.weights)
        expression = Stored(samples, lambda: None)

        def plainly(weights: dict[str, Any], arguments: list[Array]) -> list[Array]:
            with jax.enable_x64(True), plain():
                return expression(weights, arguments)

        self._call = differentiable(exact, plainly)

    def _identity(self) -> str | None:
        graph = self._graph.identity()
        return graph and f"{graph} for each sample"

    def __call__(self, inputs: Inputs) -> dict[str, Array]:
        """Run the samples. Raises ConfigError for inputs of other names, shapes or numbers of samples."""
        arguments = self._arguments(inputs)
        on_device = any(isinstance(x, jax.Array) for x in arguments)
        with jax.enable_x64(True):
            results = self._call(self._graph.weights, arguments)
            found = results if on_device else [np.asarray(y) for y in results]
            return {
                name: _given(y.reshape(-1, *y.shape[2:]), dtype, self._scales.get(name))
                for name, dtype, y in zip(self._graph.keep, self._types, found, strict=True)
            }


def _typed(op: TopInput, array: Array) -> Array:
    """An input in the module's stored type; the values of an array on a device are not checked."""
    if isinstance(array, jax.Array):
        return array.astype(storage_dtype(tensor_of(op.input).element_type))
    return stored_input(op, array_of(op, array))


def _given(y: Array, dtype: np.dtype, scale: tuple[float, int] | None) -> Array:
    """A result in the framework's type; a quantised real number keeps its stored type."""
    if not is_integer(dtype):
        return y if scale is not None or dtype == np.float32 else y.astype(dtype)
    real = y if scale is None else scale[0] * (y.astype(np.int32) - scale[1])
    return (real if dtype.kind == "b" else real.round()).astype(dtype)
