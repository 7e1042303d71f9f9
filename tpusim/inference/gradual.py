"""Sample after sample: op by op at first, in batches of one compiled graph when that pays. The only place that chooses.

Op by op every op is an executable of its own, shared by all ops that are equal and kept on disk. A whole graph shares
nothing and costs as much CPU time to compile as thousands of ops to start, so few samples never earn it. Measured on
resnet50 in f32 with every tensor kept: 20 CPU seconds to compile, then 1.9 a sample against 0.7 op by op; in INT8 with
the results alone 15 to compile, then 0.6 against 0.6 (docs/performance.md).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

import jax
import numpy as np

from tpusim.inference.executor import Graph, bytes_of, kept_names, run
from tpusim.inference.sharded import Batches
from tpusim.ir.module import Model

FEW = 32
"""Samples that go op by op where only few tensors are kept."""
FEW_OF_ALL = 256
"""The same where all are kept: then no op can be merged with another, and a graph saves only the starts of ops."""
LARGE = 4 << 20
"""Bytes of all tensors above which starting ops costs nothing beside computing them, so that no graph ever pays."""
BATCH, BATCH_BYTES = 64, 32 << 20
"""The most samples of a batch for one device, and bytes of what is kept of them."""
Tensors = dict[str, np.ndarray]
S = TypeVar("S", bound=Mapping[str, np.ndarray])


class Gradual:
    """A module as a function of samples; the bits do not tell which way one went.

    Args as of `Graph`: model: any stage; keep: tensor names to return, or None for the network's results, or "all".
    devices: who shares the samples of a batch, None: all of this process; several always take batches.
    """

    def __init__(
        self, model: Model, keep: Sequence[str] | str | None = None, devices: Sequence[Any] | None = None
    ) -> None:
        self.model, self.keep = model, kept_names(model, keep)
        self._devices = list[Any](devices or cast("Any", jax).local_devices())
        self._bytes = bytes_of(model, self.keep)
        self._left = FEW_OF_ALL if keep == "all" else FEW
        self._never = keep == "all" and self._bytes > LARGE
        self._graph: Graph | None = None
        self._batches: Batches | None = None

    @property
    def compiled(self) -> bool:
        """Whether the graph was compiled, which happens only when there are enough samples."""
        return self._graph is not None

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        """Run one sample. Raises ConfigError for inputs that do not fit."""
        return self._op_by_op(inputs) if self._left or self._never else self._whole()(inputs)

    def each(self, samples: Iterable[S]) -> Iterator[tuple[S, Tensors]]:
        """Run samples in their order: every sample and its tensors. No more than a batch of them is held at a time.

        Raises ConfigError for inputs that do not fit.
        """
        left = iter(samples)
        if len(self._devices) == 1:
            while self._left or self._never:
                sample = next(left, None)
                if sample is None:
                    return
                yield sample, self._op_by_op(sample)
        size = self._batch()
        while batch := list(islice(left, size)):
            if len(self._devices) == 1 and len(batch) < size:  # a batch is computed whole
                yield from ((sample, self._op_by_op(sample)) for sample in batch)
                return
            yield from zip(batch, self._batched()(batch), strict=True)

    def _op_by_op(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        self._left = max(self._left - 1, 0)
        found = run(self.model, inputs)
        return {name: found[name] for name in self.keep}

    def _batch(self) -> int:
        fits = BATCH_BYTES // max(self._bytes, 1)
        return max(min(fits, BATCH), 1) * len(self._devices)

    def _whole(self) -> Graph:
        self._graph = self._graph or Graph(self.model, self.keep)
        return self._graph

    def _batched(self) -> Batches:
        self._batches = self._batches or Batches(self._whole(), self._devices, self._batch())
        return self._batches
