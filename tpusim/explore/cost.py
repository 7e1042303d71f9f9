"""One point after the other of a network: compiled by the pipeline's stages, costed by its clock.

Points that share their lowered module come one after the other; it is lowered once for all of them.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from tpusim.artefacts import Artefacts, RunConfig, Silent, need
from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import ConfigError, ModeWarning, TableWarning, TpusimError, first_line
from tpusim.explore.row import Row
from tpusim.explore.space import Point, settings_text
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.persistence import is_calibrated, load_module
from tpusim.pipeline import STAGES, checked
from tpusim.simulator import timeline
from tpusim.verify.compare import Tolerance, compare

Tensors = dict[str, np.ndarray]
DEFECT = "defect of tpusim: "
"""How the error of a row begins that is none of the user's; such a row is not kept."""
DESCRIBED = Tolerance(0.0, 0.0)
"""Tolerances that nothing fails: an exploration wants similarities, not a verdict."""


@dataclass
class Material:
    """What the points of a network and batch have in common. sample: None if nothing is verified."""

    canonical: Model
    table: CalibrationTable | None
    sample: Tensors | None
    asymmetric: bool


class Bench:
    """Computes points; keeps what the next one may share."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._top: Tensors | None = None
        self._lowered: tuple[object, Artefacts] | None = None
        self._similar: dict[str, float | None] | None = None

    def row(self, point: Point) -> Row:
        """The point's figures, or its error."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = guarded(point, lambda: self._figures(point))
        notes = [str(one.message) for one in caught if issubclass(one.category, ModeWarning | TableWarning)]
        return replace(found, note="; ".join(dict.fromkeys(notes)))

    def _figures(self, point: Point) -> dict[str, Any]:
        a = self._grouped(point)
        program, chip = need(a.program, "the program"), point.spec()
        found = timeline(program, chip)
        local = [group for group in program.groups if not group.reason]
        figures = {
            "milliseconds": found.milliseconds * chip.calibration.factor,
            "cycles": found.cycles,
            "moved_bytes": found.load_bytes + found.store_bytes,
            "weight_bytes": program.header.coeff_bytes,
            "neuron_bytes": program.header.neuron_bytes,
            "lmem_bytes": max((group.lmem_peak_bytes for group in local), default=0),
            "groups": len(local),
            "global_layers": len(program.groups) - len(local),
        }
        return {**figures, **self._similarities(need(a.tpu, "the tpu module"))}

    def _grouped(self, point: Point) -> Artefacts:
        """Lowered, or as the point before, and from there to commands."""
        lowering = LoweringConfig(point.spec(), point.mode, self._material.asymmetric and point.mode == "int8")
        groups = LayerGroupConfig(point.strategy, cores=point.cores)
        config = checked(RunConfig(Path(self._material.canonical.name), lowering=lowering, layer_group=groups))
        if self._lowered is None or self._lowered[0] != config.lowering:
            self._lowered = None  # two at a time would be twice the memory
            self._lowered, self._similar = (config.lowering, self._lower(config)), None
        a = Artefacts(config, Silent(), from_file=False)
        a.tpu = self._lowered[1].tpu
        for name in ("group", "assign", "codegen"):
            STAGES[name](a)
        return a

    def _lower(self, config: RunConfig) -> Artefacts:
        a, material = Artefacts(config, Silent(), from_file=False), self._material
        a.calibrated = material.canonical
        if is_calibrated(config):
            table = need(material.table, "the calibration table")
            a.calibrated = apply_table(material.canonical, table, asymmetric=config.lowering.asymmetric)
        STAGES["lower"](a)
        return a

    def _similarities(self, tpu: Model) -> Mapping[str, float | None]:
        """The least of all results; {} if nothing is to be verified."""
        if self._material.sample is None:
            return {}
        if self._similar is None:
            self._similar = self._measured(tpu, self._material.sample)
        return self._similar

    def _measured(self, tpu: Model, sample: Tensors) -> dict[str, float | None]:
        top = self._material.canonical
        names = [value_name(value) for value in top.results]
        if self._top is None:
            found = run(top, sample)
            self._top = {name: found[name] for name in names}
        real = dequantised(tpu, run(tpu, sample))
        results = {name: real[value_name(value)] for name, value in zip(names, tpu.results, strict=True)}
        compared = compare(results, self._top, DESCRIBED)
        return {"cosine": _number(compared.min_cosine), "euclidean": _number(compared.min_euclidean)}


def _number(similarity: float) -> float | None:
    """None for what is not a number, as of results that are not."""
    return similarity if isfinite(similarity) else None


def blank(point: Point) -> Row:
    """What the point is, without any figure."""
    settings = settings_text(point.settings)
    return Row(str(point.model), point.chip.name, settings, point.mode, point.strategy, point.batch, point.cores)


def guarded(point: Point, figures: Callable[[], Mapping[str, Any]]) -> Row:
    """The point's row: what `figures` gives, or the error that it raises."""
    row = blank(point)
    try:
        return replace(row, **figures())
    except TpusimError as error:
        return replace(row, error=str(error))
    except Exception as error:  # noqa: BLE001  a chip that does not exist may meet any; the other points go on
        return replace(row, error=f"{DEFECT}{type(error).__name__}: {first_line(error)}")


def rows_of(
    module: str, table: CalibrationTable | None, sample: Tensors | None, points: Sequence[Point], asymmetric: bool
) -> list[Row]:
    """A unit of work: the rows of points of one network and batch, whose canonical module is a file."""
    if not Path(module).is_file():
        raise ConfigError(f"explore: a worker cannot see {module}; give --share a folder that all workers have")
    bench = Bench(Material(load_module(Path(module)), table, sample, asymmetric))
    return [bench.row(point) for point in points]
