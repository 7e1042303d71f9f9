"""`Compiled`: a network compiled for a chip, and everything one does with it; what `tpusim.compile` gives.

It holds the same artefacts as a run of the pipeline, made by the same stages; only nothing is written to disk.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from tpusim.calibration.given import first_given, given_samples, one_sample
from tpusim.calibration.smooth import measured_rewrites
from tpusim.calibration.table import CalibrationTable, with_thresholds
from tpusim.errors import CalibrationError, ConfigError
from tpusim.fidelity import card_of
from tpusim.fidelity.card import Card
from tpusim.frontend import FunctionReference, Reference
from tpusim.frontend.reference import Function
from tpusim.images import images_of
from tpusim.inference import Flat, input_specs
from tpusim.inference import run as run_flat
from tpusim.ir.module import Model
from tpusim.isa.stream import Program
from tpusim.passes import PassManager
from tpusim.passes.pipelines import converted
from tpusim.running.artefacts import Artefacts
from tpusim.running.levels import sample_for_chip
from tpusim.running.network import DECIDED, ORDER, Configure, Network, network_from, path_of
from tpusim.running.pipeline import STAGES, make_report, write_run
from tpusim.simulator import SimulationResult, Simulator, SimulatorOptions
from tpusim.studies.diagnosis import first_broken
from tpusim.verify.compare import Comparison, Tolerance
from tpusim.verify.report import Report
from tpusim.verify.tolerances import tpu_vs_top

if TYPE_CHECKING:
    from tpusim.proof import Proof
    from tpusim.studies.diagnosis import Broken, Cause, Loss, Remedy
    from tpusim.studies.explore.whatif import WhatIf
    from tpusim.studies.training import Differentiable

Inputs: TypeAlias = Mapping[str, np.ndarray] | np.ndarray
Several: TypeAlias = Inputs | Iterable[Inputs]
Level: TypeAlias = Literal["top", "tpu", "local"]
JUDGING = 64
"""Samples of a calibration that `why` judges by, at most."""


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


@dataclass(frozen=True)
class Why:
    """Where integers lose: `losses` of every op in program order, `causes` with measured remedies, the best first.

    cosine: the similarity of the network's results as it is lowered, on samples held out if there are several. remedy:
    the fewest of the causes' changes that reach the similarity asked for, all of them if none does; `qtable` and
    `table` are `tpusim.compile`'s arguments of these names, with the remedy in them.
    """

    losses: "tuple[Loss, ...]"
    causes: "tuple[Cause, ...]"
    cosine: float
    remedy: "Remedy"
    qtable: dict[str, str] | None
    table: CalibrationTable | None

    def __repr__(self) -> str:
        """The results' similarity as it is and with the remedy, and the first causes."""
        named = ", ".join(f"{cause.kind} at {cause.tensor}" for cause in self.causes[:3])
        changed = f", {self.remedy.cosine:.6f} with the remedy" if self.remedy.changes else ""
        return f"<Why: cosine {self.cosine:.6f}{changed}; {named or 'no cause'}>"


class Compiled:
    """A network compiled for a chip.

    top: the canonical top module; tpu: lowered; grouped: with layer groups; table: the calibration table, None if none
    was needed; program: the commands; fidelity: how far to trust the numbers. `flat(x)` computes any number of samples,
    `machine().run(x)` executes the commands for one, `tensors(x, level)` gives what is inside, `verify(x)` compares all
    levels, `why(samples)` and `bisect(x)` say where integers lose, `explore_group()` cuts a layer group differently,
    `differentiable(weights, x)` trains through the chip's arithmetic, `with_weights(weights)` takes the result back,
    `report()` is what `tpusim run` writes, and `save(folder)` makes a run's folder of it.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def _artefacts(self) -> Artefacts:
        return self._network.artefacts

    @property
    def top(self) -> Model:
        """The canonical top module; with ranges in its types if the network was given so."""
        return self._network.floats

    @property
    def tpu(self) -> Model:
        """The lowered module, in the TPU dialect."""
        return self._network.tpu

    @property
    def grouped(self) -> Model:
        """The module with layer groups and addresses in local memory."""
        return self._network.grouped

    @property
    def table(self) -> CalibrationTable | None:
        """Thresholds by tensor name; None if nothing was calibrated."""
        return self._network.table

    @property
    def program(self) -> Program:
        """The program that was generated."""
        return self._network.program

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
        sums in the order of U-34 that everything else has. Results differ from those by rounding (about 1e-5 of their
        norm in deep networks), and between processors and numbers of samples.
        """
        return Flat(self.top, quick=True)

    @cached_property
    def differentiable(self) -> "Differentiable":
        """The lowered network as a function of its float weights and samples, with straight-through derivatives."""
        from tpusim.studies.training import Differentiable

        return Differentiable(self._network.calibrated, self._network.lowering)

    def with_weights(self, weights: Mapping[str, np.ndarray]) -> "Compiled":
        """The network with other f32 weights, compiled in the same way; ranges of tensors stay.

        weights: by name, some or all of `differentiable.weights`. Raises ConfigError for other names and shapes.
        """
        config, module = self._network.config, self.differentiable.module(weights)
        after = ORDER[ORDER.index("calibrated") + 1 :]
        names = ("simulator", *(name for level in after for name in DECIDED.get(level, ())))
        kept = {name: getattr(config, name) for name in names}
        return compile_network(module, None, None, lambda base: replace(base, **kept))

    def machine(self, options: SimulatorOptions | None = None) -> Simulator:
        """The local-memory machine with the program, checked and ready to run samples."""
        return Simulator(self.program, options=options)

    def prove(self) -> "Proof":
        """Prove that the program computes the final module for all inputs, as `tpusim simulate --prove` does.

        `passed` of the result, `wrong` and `why` say what differs; ops that were not judged are named.
        """
        from tpusim.proof import prove

        return prove(self._network.final, self.machine())

    def tensors(self, inputs: Inputs, level: Level = "tpu") -> dict[str, np.ndarray]:
        """Every tensor of one sample by name. level: top (floats), tpu (stored numbers), local (stored by the machine).

        inputs: arrays by input name, of the batch the module has; the array alone for a network with one input.
        """
        sample = self._sample(inputs)
        if level == "top":
            return run_flat(self.top, sample)
        if level not in ("tpu", "local"):
            raise ConfigError(f"level={level!r}: top, tpu or local is required")
        a = self._ready(sample)
        return run_flat(self.tpu, sample_for_chip(a, sample)) if level == "tpu" else self._run().tensors

    def verify(self, inputs: Several) -> Verification:
        """Compare all levels for one sample or several: arrays by input name, of the batch the module has.

        The machine runs the first one; flat levels are compared on all. Raises ConfigError for inputs that do not fit
        or no sample, SimulationError if the machine finds the commands wrong.
        """
        first, *others = self._samples(inputs)
        a = self._ready(first)
        a.others, a.config = others, replace(a.config, compare_samples=1 + len(others))
        a.tensors, a.comparisons, a.compared = {}, {}, None
        STAGES["infer"](a)
        a.tensors["local"] = self._run().tensors
        STAGES["verify"](a)
        return Verification(dict(a.comparisons))

    def bisect(self, inputs: Several | None = None, tolerance: str | None = None) -> "Broken | None":
        """The first tensor whose op breaks the tolerance by itself on a sample; None if none does.

        inputs: samples; default: the first that the network was calibrated with. tolerance: "COSINE,EUCLIDEAN", by
        default what a run compares with in this mode.
        """
        format = self._network.lowering.format
        usual = tpu_vs_top(format.needs)
        limits = usual if tolerance is None else Tolerance.parse(tolerance)
        network = self._network
        lowered = PassManager(converted(network.lowering)).run(network.calibrated)
        return first_broken(network.calibrated, lowered, self._samples(inputs), limits)

    def why(self, inputs: Several | None = None, top: int = 8, expected_cos: float = 0.99) -> "Why":
        """What every op in integers loses, and the causes, ranked by what their remedies give back; as `tpusim why`.

        inputs: samples, of which every second is held out; default: the first 64 that the network was calibrated with,
        if they are still available, else one of them. top: how many ops to suspect of each cause. expected_cos: the
        cosine that the results are to have with the remedy. Raises ImportModelError for a network in floats.
        """
        from tpusim.studies.diagnosis import Remedies, causes, losses

        network = self._network
        samples = self._network.calibrated_with(JUDGING) if inputs is None else self._samples(inputs)
        samples = samples or self._samples(None)
        remedies = Remedies(network.calibrated, network.lowering, samples)
        found = losses(network.calibrated, remedies.lowered(), remedies.judge.shown)
        likely, _ = causes(remedies, found, top)
        chosen = remedies.fewest([cause.remedy for cause in likely], expected_cos)
        table = network.table and with_thresholds(network.table, chosen.thresholds)
        modes = remedies.qtable(chosen.modes)
        return Why(tuple(found), tuple(likely), remedies.before.last.cosine, chosen, modes or None, table)

    def explore_group(self, group: int | None = None) -> "WhatIf":
        """One layer group cut differently, each way compiled and costed; default: the group that takes longest."""
        from tpusim.studies.explore.whatif import what_if

        return what_if(self.tpu, self._network.config.layer_group, group)

    def report(self) -> Report:
        """What `report.json` has: groups, bytes and cycles; the verdicts of the last `verify`."""
        a = self._ready({})
        a.machine = a.machine or self.machine(a.config.simulator)
        return make_report(a)

    def save(self, folder: str | Path) -> Path:
        """Write all artefacts into a folder as `tpusim run --to codegen` does; the folder.

        `tpusim.load_compiled` and all commands read it. Raises ConfigError if the folder has files that no run wrote.
        """
        a = self._ready(self._artefacts.sample or self._sample(None))
        return write_run(a, path_of("folder", folder))

    def _sample(self, inputs: Inputs | None) -> dict[str, np.ndarray]:
        """One sample as the network takes it. Raises CalibrationError for what does not fit."""
        specs = input_specs(self.top)
        if inputs is None:
            kept = self._artefacts.sample
            return kept or dict(next(iter(self._network.samples(limit=1))))
        return dict(one_sample(inputs, specs, images_of(self.top)))

    def _samples(self, inputs: Several | None) -> list[dict[str, np.ndarray]]:
        """One sample or more, as the network takes them. Raises CalibrationError for what does not fit."""
        if inputs is None:
            return [self._sample(None)]
        found = [dict(one) for one in given_samples(inputs, input_specs(self.top), images_of(self.top))]
        if not found:
            raise ConfigError("inputs: a sample or several are required, got none")
        return found

    def _ready(self, sample: dict[str, np.ndarray]) -> Artefacts:
        """The artefacts with all modules, and the sample that is to be run."""
        a = self._artefacts
        a.canonical, a.tpu, a.final = self.top, self.tpu, self._network.final
        a.sample = sample or a.sample
        return a

    def _run(self) -> SimulationResult:
        a = self._artefacts
        a.machine = self.machine(a.config.simulator)
        return a.machine.run(sample_for_chip(a, a.sample), watch=True)

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
    model: object, samples: object, table: object, configure: Configure,
    reference: Reference | Function | None = None, *, example: object = None,
) -> Compiled:  # fmt: skip
    """Stages `import` to `codegen` in memory; arguments as of `tpusim.compile`, most of them put in by `configure`."""
    network = network_from(model, configure, example=example, sample=lambda: first_given(samples))
    a = network.artefacts
    if reference is not None:
        a.reference = FunctionReference(reference) if callable(reference) else reference
    if isinstance(table, CalibrationTable):
        a.table = table
    elif samples is None and a.config.table is None and network.measures:
        samples = ()
    if samples is not None:
        floats = network.top if network.has("top") else network.floats
        a.given = given_samples(samples, input_specs(floats), images_of(floats), limit=a.config.calibration.max_samples)
        if measured_rewrites(a.config.also):
            a.given = list(a.given)
    try:
        network.program  # noqa: B018  makes all that comes before
    except CalibrationError as error:
        names = ", ".join(input_specs(network.top)) if network.has("top") else ""
        raise CalibrationError(f"{error}; inputs are {names}" if names else str(error)) from error
    return Compiled(network)
