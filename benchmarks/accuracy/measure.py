"""Measures cells: import, calibration and the float tensors once per network, then lowering and flat inference each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from benchmarks.accuracy.results import Key, Local, Measured, Top1
from tpusim import chips, zoo
from tpusim.calibration.samples import load_samples
from tpusim.calibration.table import CalibrationTable
from tpusim.fidelity import card_of
from tpusim.fidelity.support import MODES
from tpusim.frontend import import_onnx
from tpusim.inference import Graph, dequantised, input_specs, run
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassContext, PassManager
from tpusim.passes.calibration import Calibrate, ImportCalibrationTable
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.lowering import ConvertTopToTpu
from tpusim.passes.pipelines import commands, grouped
from tpusim.running.pipeline import compare_local
from tpusim.simulator import Simulator
from tpusim.verify.compare import compare
from tpusim.verify.npz import load_tensors
from tpusim.verify.tolerances import tpu_vs_top
from tpusim.version import __version__

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
TRAINED = "digits"
NETWORKS: tuple[str, ...] = (TRAINED, *zoo.ZOO)
SAMPLES = "random:8"
"""Calibration images of the zoo: the default of `tpusim run`."""


def keys() -> Iterator[Key]:
    """Every cell that a chip has the mode for, network by network."""
    for network in NETWORKS:
        for chip in chips.available():
            spec = chips.load(chip)
            for mode in MODES:
                settings = config(chip, mode)
                if settings.mode in spec.modes and (spec.hardware.asymmetric or not settings.asymmetric):
                    yield Key(network, chip, mode)


def config(chip: str, mode: str) -> LoweringConfig:
    """The lowering options of a mode of the table."""
    number, _, asymmetric = mode.partition("-")
    return LoweringConfig(chip, number, asymmetric=bool(asymmetric))  # type: ignore[arg-type]


@dataclass
class Network:
    """The common data of the cells of one network."""

    name: str
    canonical: Model
    table: CalibrationTable
    sample: dict[str, np.ndarray]
    top: dict[str, np.ndarray]
    images: list[dict[str, np.ndarray]] = field(default_factory=list)
    labels: np.ndarray | None = None
    _calibrated: dict[bool, Model] = field(default_factory=dict)
    _float_top1: float | None = None

    @classmethod
    def prepare(cls, name: str) -> Network:
        """Build or read the network, calibrate it with KL, run it in float."""
        proto = onnx.load(DIGITS / "digits.onnx") if name == TRAINED else zoo.build(name)
        model = PassManager(Canonicalize()).run(import_onnx(proto, name=name))
        source = str(DIGITS / "calibration.npz") if name == TRAINED else SAMPLES
        samples = [dict(s) for s in load_samples(source, input_specs(model))]
        ctx = PassContext(samples=samples)
        PassManager(Calibrate()).run(model, ctx)
        assert ctx.table is not None
        found = cls(name, model, ctx.table, samples[0], run(model, samples[0]))
        if name == TRAINED:
            found.images = [dict(s) for s in load_samples(str(DIGITS / "test.npz"), input_specs(model))]
            found.labels = next(iter(load_tensors(DIGITS / "labels.npz").values()))
        return found

    def for_mode(self, settings: LoweringConfig) -> Model:
        """The calibrated module for lowering."""
        if not settings.format.calibrated:
            return self.canonical
        if settings.asymmetric not in self._calibrated:
            known = self._calibrated
            ranges = ImportCalibrationTable(asymmetric=settings.asymmetric)
            known[settings.asymmetric] = PassManager(ranges).run(self.canonical, PassContext(table=self.table))
        return self._calibrated[settings.asymmetric]

    def top1(self, tpu: Model) -> Top1 | None:
        """Top-1 of a lowered module and of the float module on labelled images; None without labels."""
        if self.labels is None:
            return None
        if self._float_top1 is None:
            self._float_top1 = self._right(self.canonical)
        return Top1(len(self.labels), self._float_top1, self._right(tpu))

    def _right(self, model: Model) -> float:
        graph = Graph(model)
        guesses = [next(iter(graph(image).values())).reshape(-1, self._classes).argmax(axis=1) for image in self.images]
        return float(np.mean(np.concatenate(guesses) == self.labels))

    @property
    def _classes(self) -> int:
        return int(np.prod(shape_of(self.canonical.results[0])[1:]))


def measure(network: Network, key: Key, *, local: bool, clock: Callable[[], float] = time.perf_counter) -> Measured:
    """One cell. Raises TpusimError where the compiler or the machine refuses."""
    begin, settings = clock(), config(key.chip, key.mode)
    tpu = PassManager(ConvertTopToTpu.from_config(settings)).run(network.for_mode(settings))
    flat = run(tpu, network.sample)
    found = compare(dequantised(tpu, flat), network.top, tpu_vs_top(settings.mode))
    card = card_of(tpu)
    return Measured(
        key=key,
        version=__version__,
        compared=found.compared,
        cosine=_number(found.min_cosine),
        euclidean=_number(found.min_euclidean),
        worst=found.worst or "",
        passed=found.passed,
        exact=card.count("exact"),
        decision=card.count("decision"),
        fallback=card.count("float"),
        top1=network.top1(tpu),
        local=_local(tpu, network.sample, flat) if local else None,
        seconds=round(clock() - begin, 2),
    )


def _local(tpu: Model, sample: dict[str, np.ndarray], flat: dict[str, np.ndarray]) -> Local:
    """Compiled as by default, executed on the machine, compared with the flat tensors."""
    program = PassManager((*grouped(), *commands())).program(tpu)
    machine = Simulator(program).run(sample, watch=True).tensors
    found = compare_local(tpu, sample, machine, flat)
    return Local(found.compared, found.passed, found.bit_exact)


def _number(value: float) -> float | None:
    return round(float(value), 6) if np.isfinite(value) else None
