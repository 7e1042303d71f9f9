"""A model as the points of a space need it: canonical in some batch, its calibration table, a sample.

It is calibrated once, in its own batch; tensors have the same names in any other.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from tpusim.calibration.own import with_own
from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import calibrate, require_names, save_table
from tpusim.calibration.table import CalibrationTable, read_table
from tpusim.canonicalize import canonicalize
from tpusim.errors import UnsupportedError
from tpusim.explore.cache import Cache
from tpusim.explore.space import VERIFIED, Space
from tpusim.frontend import import_onnx, keeping_batch
from tpusim.images import images_of
from tpusim.inference import input_specs
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.workers import Workers

Tensors = dict[str, np.ndarray]


@dataclass
class Network:
    """One model of a space. table_key: under which its thresholds are kept."""

    path: Path
    space: Space
    cache: Cache
    table_key: str
    workers: Workers | None = None
    _grown: tuple[int, Model] | None = None

    @cached_property
    def own(self) -> Model:
        """The canonical module in the batch of the model's file."""
        return canonicalize(import_onnx(self.path))[0]

    def canonical(self, batch: int) -> Model:
        """Canonical in a batch, 0: its own. Raises UnsupportedError where the network does not go with it."""
        if batch in (0, batch_of(self.own)):
            return self.own
        if self._grown is None or self._grown[0] != batch:
            self._grown = None  # two at a time would be twice the memory
            found, _ = canonicalize(in_batch(self.path, self.own, batch))
            _require_grown(self.own, found, batch)
            self._grown = batch, found
        return self._grown[1]

    @cached_property
    def table(self) -> CalibrationTable:
        """Thresholds: measured once, read from the cache from then on."""
        return with_own(self.own, self._measured)[0]

    def _measured(self) -> tuple[CalibrationTable, int]:
        path = self.cache.table(self.table_key)
        if path.is_file():
            return read_table(path), 0
        require_names(self.own)
        config = self.space.calibration
        samples = Samples(
            self.space.data, input_specs(self.own), config.max_samples, shuffled=True, images=images_of(self.own)
        )
        found, count = calibrate(self.own, samples, config, workers=self.workers)
        save_table(path, found, config, count, module=self.path.name)
        return found, count

    def samples(self, batch: int) -> list[Tensors]:
        """The first VERIFIED samples in arrays of the batch, at least one, from the beginning again to fill it."""
        specs = input_specs(self.own)
        times = max(batch // batch_of(self.own), 1)
        drawn = Samples(
            self.space.data, specs, self.space.calibration.max_samples, shuffled=True, images=images_of(self.own)
        )
        some = list(islice(drawn, max(VERIFIED, times)))
        again = cycle(some)
        groups = [list(islice(again, times)) for _ in range(max(len(some) // times, 1))]
        return [{name: np.concatenate([one[name] for one in group]) for name in specs} if times > 1 else dict(group[0])
                for group in groups]  # fmt: skip


def batch_of(model: Model) -> int:
    """The leading extent of its inputs, 1 where none has a shape."""
    return next((shape[0] for shape, _ in input_specs(model).values() if shape), 1)


def in_batch(path: Path, own: Model, batch: int) -> Model:
    """The model imported with inputs of another batch; a Reshape to its own batch keeps the one that comes."""
    shapes = {name: (batch, *shape[1:]) for name, (shape, _) in input_specs(own).items() if shape}
    return import_onnx(keeping_batch(path, batch_of(own)), name=own.name, input_shapes=shapes)


def _require_grown(own: Model, found: Model, batch: int) -> None:
    """Raise UnsupportedError unless every result has the batch in front in place of the own one."""
    for before, after in zip(own.results, found.results, strict=True):
        first = batch_of(own)
        wanted = (shape_of(before)[0] * batch // first, *shape_of(before)[1:])
        if tuple(shape_of(after)) != wanted:
            raise UnsupportedError(
                f"batch {batch}: a result of shape {wanted} is required, got {tuple(shape_of(after))}; the network "
                f"mixes its batch of {first} with other axes, export it with that batch"
            )
