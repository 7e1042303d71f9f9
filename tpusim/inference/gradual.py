"""Runs sample after sample: op by op at first, in batches when that pays. Only this module decides which.

Op by op, every op is a separate executable, shared by all equal ops and kept on disk. A batch saves the start of calls,
which is most of the time of an op on a small tensor. Batches of a float network also go op by op (`Stacked`): nearly
all of its work is sums in a stated order, which XLA cannot merge, and compiling the whole of digits takes 95 MiB,
compiling its ops 20. A lowered network is compiled as a whole, which merges requants into products. Measurements are in
docs/performance.md and docs/performance_history.md.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np
from tpusim_kernels.lazy import jax

from tpusim.host.threads import abreast
from tpusim.inference.executor import Graph, bytes_of, chip_of, kept_names, run
from tpusim.inference.sharded import Batches
from tpusim.inference.stacked import Stacked
from tpusim.ir.module import Model

FEW = 32
"""The first so many samples of a lowered network go op by op."""
FEW_FLOAT = 1024
"""The same for a float network: compiling its ops again costs as much as starting them about 1,500 times."""
LARGE = 4 << 20
"""If all tensors have more bytes, starting ops costs nothing compared with computing them, and no batch pays."""
BATCH, BATCH_BYTES = 32, 8 << 20
"""The most samples of a batch for one device, and the most bytes of their kept tensors."""
Tensors = dict[str, np.ndarray]
S = TypeVar("S", bound=Mapping[str, np.ndarray])


class Gradual:
    """A module as a function of samples; the bits do not depend on the way that was chosen.

    Args as of `Graph`: model: any stage; keep: tensor names to return, or None for the network's results, or "all".
    devices: they share the samples of a batch; None: all of this process; several devices always take batches.
    """

    def __init__(
        self, model: Model, keep: Sequence[str] | str | None = None, devices: Sequence[Any] | None = None
    ) -> None:
        self.model, self.keep = model, kept_names(model, keep)
        self._devices = list[Any](devices or cast("Any", jax).local_devices())
        self._stacks = chip_of(model) is None and len(self._devices) == 1
        self._bytes = bytes_of(model, kept_names(model, "all") if self._stacks else self.keep)
        self._left = FEW_FLOAT if self._stacks else FEW
        self._never = self._bytes > LARGE and (self._stacks or keep == "all")
        self._graph: Graph | None = None
        self._batches: Batches | Stacked | None = None

    @property
    def compiled(self) -> bool:
        """Whether a batch or a whole graph was compiled, which happens only when there are enough samples."""
        return self._graph is not None or self._batches is not None

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        """Run one sample. Raises ConfigError for inputs that do not fit."""
        return self._op_by_op(inputs) if self._left or self._never or self._stacks else self._whole()(inputs)

    def each(self, samples: Iterable[S]) -> Iterator[tuple[S, Tensors]]:
        """Run samples in order and yield every sample with its tensors; at most one batch is in memory at a time.

        Networks with large tensors leave processors idle between ops, so two samples are run at a time. Raises
        ConfigError for inputs that do not fit.
        """
        left = iter(samples)
        if len(self._devices) == 1:
            through = abreast if self._bytes > LARGE else map
            yield from through(lambda sample: (sample, self._found(sample)), self._alone(left))
        size = self._batch()
        while batch := list(islice(left, size)):
            if len(self._devices) == 1 and len(batch) < size:  # only whole batches are computed as batches
                yield from ((sample, self._op_by_op(sample)) for sample in batch)
                return
            yield from zip(batch, self._batched()(batch), strict=True)

    def _alone(self, samples: Iterator[S]) -> Iterator[S]:
        """The samples that go op by op."""
        while self._left or self._never:
            sample = next(samples, None)
            if sample is None:
                return
            self._left = max(self._left - 1, 0)
            yield sample

    def _op_by_op(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        self._left = max(self._left - 1, 0)
        return self._found(inputs)

    def _found(self, inputs: Mapping[str, np.ndarray]) -> Tensors:
        found = run(self.model, inputs)
        return {name: found[name] for name in self.keep}

    def _batch(self) -> int:
        fits = BATCH_BYTES // max(self._bytes, 1)
        return max(min(fits, BATCH), 1) * len(self._devices)

    def _whole(self) -> Graph:
        self._graph = self._graph or Graph(self.model, self.keep)
        return self._graph

    def _batched(self) -> Batches | Stacked:
        if self._batches is None:
            self._batches = (
                Stacked(self.model, self.keep) if self._stacks else Batches(self._whole(), self._devices, self._batch())
            )
        return self._batches
