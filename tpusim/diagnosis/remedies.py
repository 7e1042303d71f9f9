"""What the network's results gain by single changes: an op in float, a range that fits. One lowering and run each."""

import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from xdsl.ir import SSAValue

from tpusim import chips
from tpusim.diagnosis.losses import Tensors, least_similarity, results_of
from tpusim.errors import ConfigError, ModeWarning
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import op_name
from tpusim.ir.files import replacing
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.types import CalibratedType, calibrated_range, is_tensor, retyped, set_type
from tpusim.lowering import LoweringConfig, lower
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.base import TopOp

FLOATS = ("f16", "bf16", "f32")
"""The cheaper first."""
FITS = 1.25
"""A range that is so many times larger or smaller than the values is worth another."""


@dataclass(frozen=True)
class Change:
    """Of one op: the float mode it is given, or the threshold of its result."""

    name: str
    mode: str = ""
    threshold: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.mode.upper()}" if self.mode else f"{self.name} with threshold {self.threshold:.7f}"
        )


@dataclass(frozen=True)
class Remedy:
    """Changes, and the least similarity of the network's results with them."""

    changes: tuple[Change, ...]
    cosine: float

    @property
    def modes(self) -> dict[str, str]:
        """The lines of a quantisation table."""
        return {c.name: c.mode for c in self.changes if c.mode}

    @property
    def thresholds(self) -> dict[str, float]:
        """What changes in a calibration table."""
        return {c.name: c.threshold for c in self.changes if not c.mode}


class Remedies:
    """Experiments with a calibrated module on one sample.

    floats: tensors of the float network by name; ops: by name; limits: the largest magnitude of each range, by name.
    config: how it is lowered; its quantisation table stays in force. mode: of the ops that become float, one of the
    chip's; the cheapest by default. Raises ConfigError for a module that has no thresholds or a mode that is no float.
    """

    def __init__(self, calibrated: Model, config: LoweringConfig, inputs: Tensors, mode: str = "") -> None:
        calibrated.require_state("TOP_CALIBRATED", stage="why")
        has = [m for m in FLOATS if m in chips.load(config.chip).modes]
        if mode and mode not in has:
            raise ConfigError(f"float mode '{mode}': one of {', '.join(has)} is required on this chip")
        self._model, self._config, self._inputs = calibrated, config, inputs
        self.mode = mode or has[0]
        self.floats = run(calibrated, inputs)
        self.ops = {op_name(op): op for op in calibrated.ops if isinstance(op, TopOp)}
        found = {name: max(map(abs, limits)) for name, (_, limits) in _ranges(calibrated).items()}
        self.limits = {name: limit for name, limit in found.items() if name in self.floats and limit > 0}
        self._names = [name for name in results_of(calibrated) if name in self.floats]
        self._base = {} if config.qtable is None else read_qtable(config.qtable, config.format)
        self._known: dict[frozenset[Change], float] = {}

    def cosine(self, changes: Sequence[Change] = ()) -> float:
        """The least similarity of the network's results with these changes (`least_similarity`)."""
        key = frozenset(changes)
        if key not in self._known:
            lowered = self.lowered(changes)
            found = dequantised(lowered, run(lowered, self._inputs))
            self._known[key] = least_similarity(found, self.floats, self._names)
        return self._known[key]

    def lowered(self, changes: Sequence[Change] = ()) -> Model:
        """The tpu module with these changes."""
        remedy = Remedy(tuple(changes), 0.0)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            config = self._config
            if remedy.modes:
                config = replace(config, qtable=str(Path(folder) / "qtable"))
                self.write_qtable(Path(folder) / "qtable", remedy)
                warnings.simplefilter("ignore", ModeWarning)  # of an op that is part of another on this chip
            return lower(_with_thresholds(self._model, remedy.thresholds), config)[0]

    def single(self, names: Iterable[str]) -> list[Remedy]:
        """Each of these ops in float alone, and each of their ranges that does not fit made to fit; the best first."""
        changes = [c for name in names for c in (Change(name, self.mode), *self._fitted(name))]
        return sorted((Remedy((c,), self.cosine((c,))) for c in changes), key=lambda remedy: -remedy.cosine)

    def fewest(self, ranked: Sequence[Remedy], wanted: float) -> Remedy:
        """Changes in the order of their gain until the results have the wanted cosine; all of them if they never do.

        One that takes something away is left out.
        """
        changes, best = tuple[Change, ...](), self.cosine()
        for remedy in ranked:
            if best >= wanted:
                break
            more = tuple(dict.fromkeys((*changes, *remedy.changes)))
            found = self.cosine(more)
            if found > best:
                changes, best = more, found
        return Remedy(changes, best)

    def write_qtable(self, path: Path, remedy: Remedy) -> None:
        """A quantisation table with the remedy's ops behind those that were in force already."""
        lines = "".join(f"{name} {mode.upper()}\n" for name, mode in {**self._base, **remedy.modes}.items())
        with replacing(path) as target:
            target.write_text(f"# op_name quantize_mode\n{lines}", encoding="utf-8")

    def reach(self, name: str) -> float:
        """The largest magnitude of a tensor in the float network."""
        return float(np.abs(self.floats[name]).max())

    def _fitted(self, name: str) -> list[Change]:
        """The largest value of the sample as the threshold, where the range is another."""
        now = next(max(map(abs, limits)) for n, (_, limits) in _ranges(self._model).items() if n == name)
        seen = self.reach(name)
        return [Change(name, threshold=seen)] if seen and not 1 / FITS < seen / now < FITS else []


def _ranges(model: Model) -> dict[str, tuple[SSAValue, tuple[float, float]]]:
    """Op name -> its result and (low, high)."""
    results = {op_name(op): op.results[0] for op in model.ops if op.results and is_tensor(op.results[0])}
    found = {name: (value, calibrated_range(value)) for name, value in results.items()}
    return {name: (value, limits) for name, (value, limits) in found.items() if limits is not None}


def _with_thresholds(model: Model, thresholds: Mapping[str, float]) -> Model:
    """The same module if there are none, else a copy with these; ranges without negative values stay so."""
    if not thresholds:
        return model
    work = model.clone()
    ranges = _ranges(work)
    for name, threshold in thresholds.items():
        value, (low, _) = ranges[name]
        set_type(value, retyped(value, CalibratedType.of(-threshold if low < 0 else 0.0, threshold)))
    update_function_type(work)
    return work
