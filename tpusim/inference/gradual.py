"""Sample after sample: op by op at first, as one compiled graph when that pays. The only place that chooses.

Op by op every op is an executable of its own, shared by all ops that are equal and kept on disk. A whole graph shares
nothing and costs as much CPU time to compile as thousands of ops to start, so few samples never earn it. Measured on
resnet50 in f32 with every tensor kept: 20 CPU seconds to compile, then 1.9 a sample against 0.7 op by op; in INT8 with
the results alone 15 to compile, then 0.6 against 0.6 (docs/performance.md).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tpusim.inference.executor import Graph, kept_names, run
from tpusim.ir.module import Model

FEW = 32
"""Samples that go op by op where only few tensors are kept."""
FEW_OF_ALL = 256
"""The same where all are kept: then no op can be merged with another, and a graph saves only the starts of ops."""


class Gradual:
    """A module as a function of one sample; the bits do not tell which way it went.

    Args as of `Graph`: model: any stage; keep: tensor names to return, or None for the network's results, or "all".
    """

    def __init__(self, model: Model, keep: Sequence[str] | str | None = None) -> None:
        self.model, self.keep = model, kept_names(model, keep)
        self._left = FEW_OF_ALL if keep == "all" else FEW
        self._graph: Graph | None = None

    @property
    def compiled(self) -> bool:
        """Whether there were enough samples."""
        return self._graph is not None

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one sample. Raises ConfigError for inputs that do not fit."""
        if self._left:
            self._left -= 1
            found = run(self.model, inputs)
            return {name: found[name] for name in self.keep}
        self._graph = self._graph or Graph(self.model, self.keep)
        return self._graph(inputs)
