"""The points of a network one after the other: compiled by the pipeline's stages, costed by its clock.

Points with the same lowered module are adjacent; it is lowered once for all of them.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from tpusim.calibration.table import CalibrationTable
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, ModeWarning, TableWarning, TpusimError, first_line, lacks_memory, option
from tpusim.inference import Gradual, dequantised
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.layer_group import lower_bounds, products, searched
from tpusim.lowering import LoweringConfig, config_for_chip
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import ImportCalibrationTable
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.running.artefacts import Artefacts, RunConfig, Silent, need
from tpusim.running.persistence import is_calibrated, load_module
from tpusim.running.pipeline import STAGES, checked
from tpusim.simulator import timeline
from tpusim.studies.explore.row import Row
from tpusim.studies.explore.space import Point, grouping, settings_text
from tpusim.studies.explore.through import Road, Through
from tpusim.verify.compare import Tolerance, compare

Tensors = dict[str, np.ndarray]
DEFECT = "defect of tpusim: "
"""The prefix of an error that is not the user's."""
SHORTAGE = "not enough memory on this computer: "
"""The prefix of an error that may be gone when the point is computed again."""
UNKEPT = (DEFECT, SHORTAGE)
"""The prefixes of errors that say nothing about the point; such a row is not kept."""
DESCRIBED = Tolerance(0.0, 0.0)
"""A tolerance that everything passes: an exploration needs similarities, not a verdict."""


@dataclass
class Material:
    """The common data of the points of a network and batch.

    samples: empty if nothing is verified. road: TPU-MLIR's tools, if the points go through them.
    """

    canonical: Model
    table: CalibrationTable | None
    samples: Sequence[Tensors]
    asymmetric: bool
    road: Road | None = None


@dataclass
class _Lowered:
    """A lowered network with weights in chip layout, and its figures by (strategy, cores)."""

    config: LoweringConfig
    tpu: Model
    reordered: Model
    told: list[Warning | str]
    """Warnings of the stages, which every point gets."""
    through: Through | None = None
    figures: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict[tuple[str, int], dict[str, Any]])
    similar: dict[str, float | None] | None = None


class Bench:
    """Computes points; keeps results that the next point may share."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._top: Tensors | None = None
        self._lowered: _Lowered | None = None

    def row(self, point: Point) -> Row:
        """The point's figures, or its error."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = guarded(point, lambda: self._figures(point))
        notes = [str(one.message) for one in caught if issubclass(one.category, ModeWarning | TableWarning)]
        return replace(found, note="; ".join(dict.fromkeys(notes)))

    def _figures(self, point: Point) -> dict[str, Any]:
        lowering = LoweringConfig(point.spec(), point.mode, self._material.asymmetric and point.mode == "int8")
        groups = grouping(point.strategy, point.cores)
        config = checked(RunConfig(Path(self._material.canonical.name), lowering=lowering, layer_group=groups))
        if self._lowered is None or self._lowered.config != config.lowering:
            self._lowered = None  # frees the memory before the next network is lowered
            self._lowered = self._lower(config)
        known, chip = self._lowered, point.spec()
        for message in known.told:
            warnings.warn(message, stacklevel=2)
        how = searched(point.strategy, chip), point.cores
        if how not in known.figures:
            known.figures[how] = self._costs(config, known, point)
        return {**known.figures[how], **self._similarities(known)}

    @staticmethod
    def _costs(config: RunConfig, lowered: "_Lowered", point: Point) -> dict[str, Any]:
        """The figures of the lowered network in groups."""
        chip = point.spec()
        a = Artefacts(config, Silent(), from_file=False)
        a.grouped = PassManager(LayerGroup.from_config(config.layer_group)).run(lowered.reordered)
        for name in ("assign", "codegen"):
            STAGES[name](a)
        program = need(a.program, "the program")
        found = timeline(program, chip)
        local = [group for group in program.groups if not group.reason]
        bounds, moved = lower_bounds(a.grouped), found.load_bytes + found.store_bytes
        return {
            "milliseconds": found.milliseconds * chip.calibration.factor,
            "cycles": found.cycles,
            "moved_bytes": moved,
            "weight_bytes": program.header.coeff_bytes,
            "neuron_bytes": program.header.neuron_bytes,
            "lmem_bytes": max((group.lmem_peak_bytes for group in local), default=0),
            "groups": len(local),
            "global_layers": len(program.groups) - len(local),
            "least_bytes": bounds.compulsory_bytes,
            "least_cycles": bounds.cycles,
            "energy_uj": _energy_uj(moved, sum(products(lowered.tpu)[0].values()), chip),
            **(lowered.through.figures(need(a.final, "the final module"), point) if lowered.through else {}),
        }

    def _lower(self, config: RunConfig) -> "_Lowered":
        a, material = Artefacts(config, Silent(), from_file=False), self._material
        a.calibrated = material.canonical
        if is_calibrated(config) and material.canonical.state == "TOP_F32":
            table = need(material.table, "the calibration table")
            ranges = PassManager(ImportCalibrationTable(asymmetric=config.lowering.asymmetric))
            a.calibrated = ranges.run(material.canonical, PassContext(table=table))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            STAGES["lower"](a)
        tpu, told = need(a.tpu, "the tpu module"), [one.message for one in caught]
        through = Through(material.road, a.calibrated, tpu, config.lowering) if material.road else None
        return _Lowered(config.lowering, tpu, PassManager(WeightReorder()).run(tpu), told, through=through)

    def _similarities(self, lowered: "_Lowered") -> Mapping[str, float | None]:
        """The least similarities of all results; {} if nothing is verified."""
        if not self._material.samples:
            return {}
        if lowered.similar is None:
            lowered.similar = self._measured(lowered.tpu, self._material.samples)
        return lowered.similar

    def _measured(self, tpu: Model, samples: Sequence[Tensors]) -> dict[str, float | None]:
        """The similarities of all samples together, with their results joined."""
        top = self._material.canonical
        names = [value_name(value) for value in top.results]
        if self._top is None:
            self._top = _joined([found for _, found in Gradual(top, names).each(samples)], names)
        stored = [value_name(value) for value in tpu.results]
        each = [dequantised(tpu, found) for _, found in Gradual(tpu, stored).each(samples)]
        results = dict(zip(names, _joined(each, stored).values(), strict=True))
        compared = compare(results, self._top, DESCRIBED)
        return {"cosine": _number(compared.min_cosine), "euclidean": _number(compared.min_euclidean)}


def _joined(each: Sequence[Tensors], names: Sequence[str]) -> Tensors:
    """Tensors of all samples, one after the other."""
    return {name: np.concatenate([np.atleast_1d(one[name]) for one in each]) for name in names}


def _energy_uj(moved_bytes: int, macs: int, chip: ChipSpec) -> float | None:
    """The energy of transfers and products in uJ; None if the chip's file does not give both energies."""
    if not chip.energy_pj_per_byte:
        return None
    return (moved_bytes * chip.energy_pj_per_byte + macs * chip.energy_pj_per_mac) / 1e6


def _number(similarity: float) -> float | None:
    """The similarity, or None for NaN (results that are not finite)."""
    return similarity if isfinite(similarity) else None


def lowered_as(point: Point) -> tuple[object, ...]:
    """A key that is equal for points with the same lowered module: a chip may replace a mode by another."""
    mode = point.mode
    with warnings.catch_warnings(), suppress(TpusimError):
        warnings.simplefilter("ignore")
        mode = config_for_chip(LoweringConfig(point.spec(), point.mode)).mode
    return point.chip, point.settings, mode


def blank(point: Point) -> Row:
    """A row that describes the point, without figures."""
    settings = settings_text(point.settings)
    return Row(str(point.model), point.chip.name, settings, point.mode, point.strategy, point.batch, point.cores)


def guarded(point: Point, figures: Callable[[], Mapping[str, Any]]) -> Row:
    """The point's row with the result of `figures`, or with the error that it raises."""
    row = blank(point)
    try:
        return replace(row, **figures())
    except Exception as error:  # noqa: BLE001  a chip that does not exist may cause any error; other points continue
        said = str(error) if isinstance(error, TpusimError) else f"{type(error).__name__}: {first_line(error)}"
        if lacks_memory(error):
            return replace(row, error=f"{SHORTAGE}{said}")
        return replace(row, error=said if isinstance(error, TpusimError) else f"{DEFECT}{said}")


def rows_of(
    module: str,
    table: CalibrationTable | None,
    samples: Sequence[Tensors],
    points: Sequence[Point],
    asymmetric: bool,
    road: Road | None = None,
) -> list[Row]:
    """A unit of work: the rows of points of one network and batch, whose canonical module is a file."""
    if not Path(module).is_file():
        raise ConfigError(
            f"explore: a worker cannot see {module}; give {option('share')} a folder that all workers have"
        )
    bench = Bench(Material(_loaded(module), table, samples, asymmetric, road))
    return [bench.row(point) for point in points]


@lru_cache(maxsize=1)
def _loaded(module: str) -> Model:
    """The module of a file; units of one network and batch come one after the other."""
    return load_module(Path(module))
