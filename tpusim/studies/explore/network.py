"""A model for the points of a space: canonical in some batch, its calibration table, a sample.

It is calibrated once, with the batch of its file; tensors have the same names in any other batch.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from tpusim.calibration.quantised import completed_table
from tpusim.calibration.stage import calibrate, require_names, save_table
from tpusim.calibration.table import CalibrationTable, read_table
from tpusim.errors import ConfigError, UnsupportedError, option
from tpusim.frontend import WHOLE, Cut, front_end, import_onnx, keeping_batch, read_model
from tpusim.frontend.onnx import read_onnx
from tpusim.host.workers import Workers
from tpusim.inference import input_specs
from tpusim.ir.content import is_module
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.passes import PassManager
from tpusim.passes.canonicalize import Canonicalize
from tpusim.running import network as given
from tpusim.running.artefacts import RunConfig
from tpusim.studies.explore.cache import Cache
from tpusim.studies.explore.space import VERIFIED, Space

Tensors = dict[str, np.ndarray]


@dataclass
class Network:
    """One model of a space. table_key: the key of its thresholds in the cache."""

    path: Path
    space: Space
    cache: Cache
    table_key: str
    workers: Workers | None = None
    _grown: tuple[int, Model] | None = None

    @cached_property
    def given(self) -> given.Network:
        """The given model with the space's options."""
        return given.open_network(self.path, lambda base: _with_own_shapes(self.space.over(base)))

    @cached_property
    def own(self) -> Model:
        """The canonical module in the batch of the model's file; a calibrated module keeps its ranges."""
        return self.given.floats

    def canonical(self, batch: int) -> Model:
        """The canonical module in a batch, 0: that of the file. Raises UnsupportedError if that is impossible."""
        if batch in (0, batch_of(self.own)):
            return self.own
        path = self.given.model_path
        if path is None:
            raise UnsupportedError(
                f"batch {batch}: {self.path} has its batch of {batch_of(self.own)} in its shapes; give the ONNX model"
            )
        if self._grown is None or self._grown[0] != batch:
            self._grown = None  # frees the memory before the next batch is imported
            found = PassManager(Canonicalize()).run(in_batch(path, self.own, batch, self.given.config.cut))
            _require_grown(self.own, found, batch)
            self._grown = batch, found
        return self._grown[1]

    @cached_property
    def table(self) -> CalibrationTable | None:
        """Thresholds: given, of a run, or measured once and then read from the cache; None: the types have them."""
        if not self.given.measures or self.given.config.table is not None:
            return self.given.table
        return completed_table(self.own, self._measured)[0]

    def _measured(self) -> tuple[CalibrationTable, int]:
        path = self.cache.table(self.table_key)
        if path.is_file():
            return read_table(path), 0
        require_names(self.own)
        config = self.given.config.calibration
        found, count = calibrate(self.own, self.given.calibrating(), config, workers=self.workers)
        save_table(path, found, config, count, module=self.path.name)
        return found, count

    def samples(self, batch: int) -> list[Tensors]:
        """The first VERIFIED samples in arrays of the batch, at least one array; samples are repeated to fill it."""
        specs = input_specs(self.own)
        times = max(batch // batch_of(self.own), 1)
        some = list(islice(self.given.calibrating(), max(VERIFIED, times)))
        again = cycle(some)
        groups = [list(islice(again, times)) for _ in range(max(len(some) // times, 1))]
        return [{name: np.concatenate([one[name] for one in group]) for name in specs} if times > 1 else dict(group[0])
                for group in groups]  # fmt: skip


def _with_own_shapes(config: RunConfig) -> RunConfig:
    """The configuration without shapes of inputs that the model lacks: those belong to other models."""
    if not config.input_shapes or not config.model.is_file() or is_module(config.model):
        return config
    names = _inputs(config.model)
    return replace(config, input_shapes={n: shape for n, shape in config.input_shapes.items() if n in names})


def require_inputs(space: Space) -> None:
    """Raise ConfigError for a shape of an input that no model has."""
    models = [Path(model) for model in space.models]
    files = [path for path in models if path.is_file() and not is_module(path)]
    known = {name for path in files if space.input_shapes for name in _inputs(path)}
    if unknown := [name for name in space.input_shapes if name not in known]:
        had = ", ".join(sorted(known)) or "none"
        raise ConfigError(
            f"{option('input_shapes')}: no model has an input {', '.join(unknown)}, their inputs are {had}"
        )


def _inputs(path: Path) -> set[str]:
    if front_end(path).through_onnx:
        return {value.name for value in read_onnx(path).graph.input}
    return set(input_specs(read_model(path)))


def batch_of(model: Model) -> int:
    """The leading extent of the model's inputs; 1 if none has a shape."""
    return next((shape[0] for shape, _ in input_specs(model).values() if shape), 1)


def in_batch(path: Path, own: Model, batch: int, cut: Cut = WHOLE) -> Model:
    """The model imported with inputs of another batch; a Reshape to the file's batch is adapted."""
    shapes = {name: (batch, *shape[1:]) for name, (shape, _) in input_specs(own).items() if shape}
    if not front_end(path).through_onnx:
        return read_model(path, input_shapes=shapes, cut=cut)
    return import_onnx(keeping_batch(path, batch_of(own)), name=own.name, input_shapes=shapes, cut=cut)


def _require_grown(own: Model, found: Model, batch: int) -> None:
    """Raise UnsupportedError unless every result has the new batch as its first extent in place of the file's."""
    for before, after in zip(own.results, found.results, strict=True):
        first = batch_of(own)
        wanted = (shape_of(before)[0] * batch // first, *shape_of(before)[1:])
        if tuple(shape_of(after)) != wanted:
            raise UnsupportedError(
                f"batch {batch}: a result of shape {wanted} is required, got {tuple(shape_of(after))}; the network "
                f"mixes its batch of {first} with other axes, export it with that batch"
            )
