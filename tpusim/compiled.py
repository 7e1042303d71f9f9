"""`Compiled`: a network compiled for a chip, and everything one does with it; what `tpusim.compile` gives.

It holds the same artefacts as a run of the pipeline, made by the same stages; only nothing is written to disk.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import cast

import numpy as np

from tpusim.artefacts import Artefacts, RunConfig, Silent, need
from tpusim.calibration.own import with_own
from tpusim.calibration.smooth import measured_rewrites
from tpusim.calibration.stage import apply_table, calibrate
from tpusim.calibration.table import CalibrationTable
from tpusim.errors import CalibrationError, ConfigError
from tpusim.fidelity import card_of
from tpusim.fidelity.card import Card
from tpusim.frontend import FunctionReference, Reference, import_onnx
from tpusim.frontend.reference import Function
from tpusim.inference import Flat, input_specs
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.levels import sample_for_chip
from tpusim.persistence import is_calibrated
from tpusim.pipeline import STAGES, check_foreseen, checked, make_report
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.verify.compare import Comparison
from tpusim.verify.report import Report

Sample = Mapping[str, np.ndarray]
BACK_END = ("lower", "group", "assign", "codegen")
"""The stages behind calibration, in processing order."""


@dataclass(frozen=True)
class Verification:
    """Comparisons by name: top_vs_onnx (or of another reference, if there is one), tpu_vs_top, local_vs_tpu."""

    comparisons: Mapping[str, Comparison]

    @property
    def passed(self) -> bool:
        """Whether all of them compared something and passed."""
        return all(c.passed for c in self.comparisons.values() if c.decides)

    @property
    def bit_exact(self) -> bool:
        """Whether the machine's integers are those of flat inference."""
        return self.comparisons["local_vs_tpu"].bit_exact

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        return [
            (name, str(c.compared), f"{c.min_cosine:.4f}", f"{c.min_euclidean:.4f}", c.verdict)
            for name, c in self.comparisons.items()
        ]

    def __repr__(self) -> str:
        """A line per comparison: tensors, the worst similarities, the verdict."""
        lines = [f"{n}: {count} tensors, cosine {c}, euclidean {e}, {v}" for n, count, c, e, v in self._rows()]
        return "\n".join([f"<Verification {'PASSED' if self.passed else 'FAILED'}", *(f"  {x}" for x in lines)]) + ">"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        head = ("comparison", "tensors", "cosine", "euclidean", "verdict")
        return _table(head, self._rows())


class Compiled:
    """A network compiled for a chip.

    top: the canonical top module; tpu: lowered; grouped: with layer groups; table: the calibration table, None if none
    was needed; program: the commands; fidelity: how far to trust the numbers. `flat(x)` computes any number of samples,
    `machine().run(x)` executes the commands for one, `verify(x)` compares all levels, `report()` is what `tpusim run`
    writes.
    """

    def __init__(self, artefacts: Artefacts) -> None:
        self._artefacts = artefacts

    @property
    def top(self) -> Model:
        """The canonical top module; an error before that stage has run."""
        return need(self._artefacts.canonical, "the canonical module")

    @property
    def tpu(self) -> Model:
        """The lowered module, in the TPU dialect."""
        return need(self._artefacts.tpu, "the tpu module")

    @property
    def grouped(self) -> Model:
        """The module with layer groups and addresses in local memory."""
        return need(self._artefacts.grouped, "the grouped module")

    @property
    def table(self) -> CalibrationTable | None:
        """Thresholds by tensor name; None if nothing was calibrated."""
        return self._artefacts.table

    @property
    def program(self) -> Program:
        """The generated program; an error before code generation has run."""
        return need(self._artefacts.program, "the program")

    @property
    def fidelity(self) -> Card:
        """How many ops are exact to the specification, and what the others are."""
        return card_of(self.tpu)

    @cached_property
    def flat(self) -> Flat:
        """The lowered network as a jitted function of any number of samples."""
        return Flat(self.tpu)

    @cached_property
    def fast_f32(self) -> Flat:
        """The float network likewise, its products added up in the order that is quickest.

        A reference where the last bits do not matter (the accuracy of the float network): several times as fast as the
        sums in TPU-MLIR's order that everything else has. Results differ from those by rounding (about 1e-5 of their
        norm in deep networks), and between processors and numbers of samples.
        """
        return Flat(self.top, quick=True)

    def machine(self, options: SimulatorOptions | None = None) -> Simulator:
        """The local-memory machine with the program, checked and ready to run samples."""
        return Simulator(self.program, options=options)

    def verify(self, inputs: Sample | Iterable[Sample]) -> Verification:
        """Compare all levels for one sample or several: arrays by input name, of the batch the module has.

        The machine runs the first one; flat levels are compared on all. Raises ConfigError for inputs that do not fit
        or no sample, SimulationError if the machine finds the commands wrong.
        """
        a = self._artefacts
        samples = [cast("Sample", inputs)] if isinstance(inputs, Mapping) else list(inputs)
        if not samples:
            raise ConfigError("verify: a sample or several are required, got none")
        a.sample = {name: np.asarray(value) for name, value in samples[0].items()}
        a.others, a.config = samples[1:], replace(a.config, compare_samples=len(samples))
        a.tensors, a.comparisons, a.compared = {}, {}, None
        STAGES["infer"](a)
        a.machine = self.machine(a.config.simulator)
        a.tensors["local"] = a.machine.run(sample_for_chip(a, a.sample), watch=True).tensors
        STAGES["verify"](a)
        return Verification(dict(a.comparisons))

    def report(self) -> Report:
        """What `report.json` has: groups, bytes and cycles; the verdicts of the last `verify`."""
        a = self._artefacts
        a.machine = a.machine or self.machine(a.config.simulator)
        return make_report(a)

    def _figures(self) -> list[tuple[str, str]]:
        header, card = self.program.header, self.fidelity
        return [
            ("model", header.model),
            ("chip", f"{header.chip}, {header.mode}"),
            ("ops", f"{len(card.ops)}: {card.count('exact')} exact, {card.count('float')} in float"),
            ("layer groups", f"{len(self.program.groups)}"),
            ("commands", f"{len(self.program.commands):,}"),
            ("weights", f"{header.coeff_bytes:,} bytes"),
        ]

    def __repr__(self) -> str:
        """Model, chip and sizes on one line."""
        return f"<Compiled {', '.join(f'{name} {value}' for name, value in self._figures())}>"

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        return _table(("", ""), self._figures())


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    def row(tag: str, cells: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{row('th', head)}{''.join(row('td', r) for r in rows)}</table>"


def compile_network(
    model: str | Path | Model, samples: Iterable[Mapping[str, np.ndarray]], table: CalibrationTable | None,
    config: RunConfig, reference: Reference | Function | None = None,
) -> Compiled:  # fmt: skip
    """Stages `import` to `codegen` in memory; config: what a run would be asked for, without its files."""
    config = checked(replace(config, model=Path(model) if not isinstance(model, Model) else Path(model.name)))
    a = Artefacts(config, Silent(), from_file=not isinstance(model, Model))
    a.reference = FunctionReference(reference) if callable(reference) else reference
    a.top = (
        import_onnx(model, input_shapes=config.input_shapes, cut=config.cut) if not isinstance(model, Model) else model
    )
    begin = time.perf_counter()
    if measured_rewrites(config.also):
        samples = a.given = list(samples)
    STAGES["canonicalize"](a)
    a.table = table
    check_foreseen(a)
    a.calibrated = a.canonical
    if is_calibrated(config):
        _calibrate(a, samples)
    a.stages.append(("calibrate", time.perf_counter() - begin))
    for name in BACK_END:
        begin = time.perf_counter()
        STAGES[name](a)
        a.stages.append((name, time.perf_counter() - begin))
    return Compiled(a)


def _calibrate(a: Artefacts, samples: Iterable[Mapping[str, np.ndarray]]) -> None:
    """Thresholds from the samples unless a table was given, and calibrated types."""
    top = need(a.canonical, "the canonical module")
    if a.table is None:
        try:
            a.table, a.measured = with_own(top, lambda: calibrate(top, samples, a.config.calibration))
        except CalibrationError as error:
            raise CalibrationError(f"{error}; inputs are {', '.join(input_specs(top))}") from error
    a.calibrated = apply_table(top, a.table, asymmetric=a.config.lowering.asymmetric)
