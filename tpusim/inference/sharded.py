"""A graph on batches of samples, shared by several devices: each computes its part one sample after the other.

A product of several samples at once might be added in another order. So nothing is merged over samples, and the bits
are those of one sample alone. A batch saves the start of calls; several devices save time.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from tpusim_kernels.lazy import jax, lax
from tpusim_kernels.store import Stored

from tpusim.inference.executor import Graph, check_inputs
from tpusim.inference.layout import with_few_transpositions

AXIS = "samples"


class Batches:
    """A graph as a function of up to `size` samples, compiled once.

    devices: of one kind, each computes size / len(devices) samples; size: a multiple of their number.
    """

    def __init__(self, graph: Graph, devices: Sequence[Any], size: int) -> None:
        if size < 1 or size % len(devices):
            raise ValueError(f"a batch must be a multiple of the {len(devices)} devices, got {size} samples")
        self._graph, self._size = graph, size
        mesh = jax.sharding.Mesh(np.array(devices), (AXIS,))
        self._sharded = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(AXIS)) if len(devices) > 1 else None
        self._weights = graph.weights
        if len(devices) == 1:
            self._call = Stored(self._each, self._identity)
        else:
            everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
            self._weights = cast("Any", jax).device_put(graph.weights, everywhere)
            self._call = _shared(self._each, mesh)

    def _identity(self) -> str | None:
        graph = self._graph.identity()
        return graph and f"{graph} one of a batch after the other"

    def _each(self, weights: Any, arguments: Any) -> Any:
        body = with_few_transpositions(self._graph.trace)
        return cast("Any", lax).map(partial(body, weights), arguments)

    def __call__(self, samples: Sequence[Mapping[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """The kept tensors of every sample. Raises ConfigError for inputs that do not fit."""
        rows = [check_inputs(self._graph.model, sample) for sample in samples]
        filled = [*rows, *[rows[-1]] * (self._size - len(rows))]
        arguments: list[Any] = [np.stack(column) for column in zip(*filled, strict=True)]
        with jax.enable_x64(True):
            if self._sharded is not None:
                arguments = cast("Any", jax).device_put(arguments, self._sharded)
            found = [np.asarray(y) for y in self._call(self._weights, arguments)]
        return [dict(zip(self._graph.keep, (y[i] for y in found), strict=True)) for i in range(len(rows))]


def _shared(body: Any, mesh: "jax.sharding.Mesh") -> Any:
    """`body` of (weights, arguments), run on each device with its part of the arguments."""
    everywhere, split = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(AXIS)
    mapped = jax.shard_map(body, mesh=mesh, in_specs=(everywhere, split), out_specs=split, check_vma=False)
    return cast("Any", jax).jit(mapped)
