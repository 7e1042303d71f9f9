"""One set of float ops: lowered, run on all samples, and put on the clock in its layer groups."""

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from xdsl.ir import Operation

from tpusim import chips
from tpusim.chips import ChipSpec
from tpusim.errors import ConfigError, ModeWarning
from tpusim.host.files import replacing
from tpusim.inference import run
from tpusim.inference.reuse import Reuse
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.once import Memory, remembering
from tpusim.ir.types import element_of, is_tensor, storage_dtype, uniform_of
from tpusim.layer_group import CostModel, LayerGroupConfig, base_groups
from tpusim.lowering import LoweringConfig
from tpusim.lowering.chip_forms import rewrite_for_chip
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.structure import TopWeight
from tpusim.passes import PassContext, PassManager
from tpusim.passes.grouping import cycles as clock
from tpusim.passes.layer_group import LayerGroup
from tpusim.passes.lowering import WeightReorder
from tpusim.passes.pipelines import lowered
from tpusim.schedule import Costs
from tpusim.studies.diagnosis import Judge, Judged
from tpusim.studies.diagnosis.losses import infinite_share
from tpusim.studies.search.errors import Errors, neighbours
from tpusim.studies.search.goal import Cosine, Goal, cosine

Floats = frozenset[str]
"""The names of the ops that a trial computes in float."""
FLOATS = ("f16", "bf16", "f32")
"""Float modes, the cheaper first."""
MEASURED = 2
"""Errors are measured on the first so many samples."""
FEW = 4
"""The first so many samples select the sets that are run on all samples."""


@dataclass(frozen=True)
class Score:
    """The accuracy of a set: the cosine with the float network, and the goal's measure."""

    cosine: float
    value: float


def cheapest_float(chip: str | ChipSpec) -> str:
    """The first of FLOATS that a chip has."""
    return next(mode for mode in FLOATS if mode in chips.load(chip).modes)


class Trials:
    """Experiments with a calibrated module.

    config: of lowering; its quantisation table stays in force. samples: for cosine and goal. mode: of the ops that
    become float, "": the chip's cheapest. Raises ConfigError for a mode that is no float.
    """

    def __init__(
        self,
        calibrated: Model,
        config: LoweringConfig,
        samples: Sequence[Mapping[str, np.ndarray]],
        goal: Goal,
        *,
        mode: str = "",
        groups: LayerGroupConfig | None = None,
    ) -> None:
        if not config.calibrated:
            raise ConfigError(
                f"search-qtable: needs --mode int8, or a --qtable with INT8 ops; got --mode {config.mode}"
            )
        calibrated.require_state("TOP_CALIBRATED", stage="search-qtable")
        has = [m for m in FLOATS if m in chips.load(config.chip).modes]
        if mode and mode not in has:
            raise ConfigError(f"float mode '{mode}': one of {', '.join(has)} is required on this chip")
        if not samples:
            raise ConfigError("search-qtable: at least one sample is required, got none")
        self.modes_of_chip = has
        self.mode, self.goal, self.samples = mode or has[0], goal, [dict(sample) for sample in samples]
        self._calibrated, self._config, self._groups = calibrated, config, groups or LayerGroupConfig()
        self._model = calibrated.clone()  # with the ops of the chip, which the table names
        rewrite_for_chip(self._model, chips.load(config.chip), config.quirks_off)
        self.base = {} if config.qtable is None else read_qtable(config.qtable, config.format)
        self._reuse = Reuse(self.samples)
        self._memory: Memory = {}
        self._scores: dict[Floats, Score] = {}
        self._on_few: dict[tuple[Floats, int], float] = {}
        self._beyond = 1.0
        self._cycles: dict[Floats, int] = {}
        self._costs: Costs = {}
        self._estimates: dict[Floats, float] = {}
        self._leasts: dict[tuple[str, str], float] = {}
        self._last: tuple[Floats, Model] | None = None
        self._ready: tuple[Floats, Model] | None = None
        self.wanted = [self._float_results(sample) for sample in self.samples]
        self.candidates = self._candidates()

    @property
    def tried(self) -> tuple[int, int]:
        """The number of sets that were run, and that were put on the clock."""
        return len({floats for floats, _ in self._on_few}), len(self._cycles)

    def score(self, floats: Floats) -> Score:
        """The accuracy of the results with these ops in float."""
        if floats not in self._scores:
            named = self._results(floats, len(self.samples))
            self._scores[floats] = Score(cosine(named, self.wanted), self.goal.value(named, self.wanted))
            on_few = self._on_few[floats, FEW] = cosine(named[:FEW], self.wanted[:FEW])
            self._beyond = (1 - self._scores[floats].cosine) / (1 - on_few) if on_few < 1 else self._beyond
        return self._scores[floats]

    def cosine(self, floats: Floats, count: int = FEW) -> float:
        """The cosine with these ops in float, of the first samples."""
        if (floats, count) not in self._on_few:
            self._on_few[floats, count] = cosine(self._results(floats, count), self.wanted[:count])
        return self._on_few[floats, count]

    def reached(self, floats: Floats) -> bool:
        """Whether the network with these ops in float reaches the goal."""
        return self.score(floats).value >= self.goal.target

    def loss(self, floats: Floats) -> float:
        """1 - cosine on all samples if they were run, otherwise estimated from FEW samples as in `likely`."""
        if floats in self._scores:
            return 1 - self._scores[floats].cosine
        return (1 - self.cosine(floats)) * self._beyond

    @cached_property
    def errors(self) -> Errors:
        """The error vectors of every candidate's integers, on the first MEASURED samples."""
        with remembering(self._memory):
            return Errors.of(self._model, self._lowered(frozenset()), self.samples[:MEASURED], self.candidates)

    def judged(self, floats: Floats, held_out: Sequence[Mapping[str, np.ndarray]]) -> tuple[Judged, Judged]:
        """Errors of the network without changes and with these ops in float, on the samples and on held-out samples."""
        judge = Judge(self._model, [*self.samples, *held_out], choosing=len(self.samples), look=False)
        with remembering(self._memory):
            before, after = judge.judged([self._lowered(one) for one in (frozenset[str](), floats)])
        return before, after

    def overflow(self, floats: Floats) -> tuple[str, float, float] | None:
        """The first tensor of the first sample with infinities that f32 does not have; None if no tensor has.

        Its name, the share of its infinite values, and their largest magnitude in f32.
        """
        wanted = run(self._model, self.samples[0])
        for name, tensor in run(self._lowered(floats), self.samples[0]).items():
            if name in wanted and tensor.dtype.kind not in "iub" and wanted[name].size == tensor.size:
                share = infinite_share(tensor, wanted[name])
                if share:
                    return name, share, float(np.abs(wanted[name]).max())
        return None

    def wider(self, mode: str) -> "tuple[Trials, str]":
        """The same experiments in another float mode, and a table that puts the ops that are float anyway into it.

        Those ops are no candidates; the chip chose a mode for them that is as narrow as the mode that overflows.
        """
        names = {op_name(op) for op in self._lowered(frozenset()).ops if isinstance(op, TpuOp)}
        others = [op_name(op) for op in self._model.ops if isinstance(op, TopOp) and op_name(op) in names]
        floats = {name: mode for name in others if name not in self.candidates and name not in self.base}
        table = ",".join(f"{name}:{one.upper()}" for name, one in {**self.base, **floats}.items())
        config = replace(self._config, qtable=table) if floats else self._config
        return Trials(self._calibrated, config, self.samples, self.goal, mode=mode, groups=self._groups), table

    def elements_between(self) -> list[tuple[str, str, int]]:
        """(producer, consumer, elements) of every tensor between two ops."""
        return list(neighbours(self._model))

    def likely(self, floats: Floats) -> bool:
        """Whether a set probably reaches the goal: by FEW samples for a cosine, by all samples for other goals.

        The loss on FEW samples is scaled by its ratio to the loss on all samples in the last set that was run on all.
        """
        if floats in self._scores or not isinstance(self.goal, Cosine) or len(self.samples) <= FEW:
            return self.reached(floats)
        return self.loss(floats) <= 1 - self.goal.target

    def _results(self, floats: Floats, count: int) -> list[dict[str, np.ndarray]]:
        """The results of the first samples, under the names of the float results."""
        with remembering(self._memory):
            found = self._reuse.results(self._lowered(floats), count)
        return [dict(zip(w, f.values(), strict=True)) for f, w in zip(found, self.wanted, strict=False)]

    def cycles(self, floats: Floats) -> int:
        """The cycles of the whole program on the clock, in its new layer groups."""
        if floats not in self._cycles:
            groups = PassManager(LayerGroup.from_config(self._groups))
            self._cycles[floats] = clock(groups.run(self._reordered(floats), PassContext(costs=self._costs)))
        return self._cycles[floats]

    def estimates(self, floats: Floats) -> dict[str, float]:
        """A lower bound of each op's cycles, casts included, without grouping: to compute, or to load its constants."""
        kinds = dict(_kind(op) for op in self._lowered(floats).ops if isinstance(op, TpuOp))
        if not self._leasts.keys() >= kinds.items():
            costs = CostModel(chips.load(self._config.chip))
            for ops, why in base_groups(self._reordered(floats), costs.chip):
                for op in ops:
                    if _kind(op) not in self._leasts:
                        self._leasts[_kind(op)] = _least_ns(op, why, costs) * costs.chip.tiu_mhz / 1000
        return {name: self._leasts.get((name, types), 0.0) for name, types in kinds.items()}

    def estimate(self, floats: Floats) -> float:
        """The cycles of all ops as if no tensor ever left local memory."""
        if floats not in self._estimates:
            self._estimates[floats] = sum(self.estimates(floats).values())
        return self._estimates[floats]

    def milliseconds(self, floats: Floats) -> float:
        """The cycles as time, times the chip's factor, as in `report.json`."""
        chip = chips.load(self._config.chip)
        return self.cycles(floats) / chip.tiu_mhz / 1000 * chip.calibration.factor

    def front(self) -> list[Floats]:
        """The Pareto front of accuracy and cycles of the sets that were run on all samples and costed, by cycles."""
        best: list[Floats] = []
        both = self._cycles.keys() & self._scores.keys()
        for one in sorted(both, key=lambda floats: (self._cycles[floats], -self.score(floats).value, len(floats))):
            if not best or self.score(one).value > self.score(best[-1]).value:
                best.append(one)
        return best

    def neighbours(self, floats: Floats) -> list[str]:
        """The other candidates that read from or write to one of these, in program order."""
        found: set[Operation] = set()
        for op in self._model.ops:
            sources = [value.owner for value in op.operands if isinstance(value.owner, TopOp)]
            for source in sources:
                if op_name(op) in floats:
                    found.add(source)
                if op_name(source) in floats:
                    found.add(op)
        names = {op_name(op) for op in found if op.results}
        return [name for name in self.candidates if name in names - floats]

    def modes(self, floats: Floats) -> dict[str, str]:
        """The lines of the quantisation table: those in force, then these in program order."""
        return {**self.base, **{name: self.mode for name in self.candidates if name in floats}}

    def _float_results(self, sample: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = run(self._model, sample)
        return {value_name(value): found[value_name(value)] for value in self._model.results}

    def _candidates(self) -> tuple[str, ...]:
        """The ops with integer results that the quantisation table in force does not name."""
        lowered = self._lowered(frozenset())
        stored = [v for op in lowered.ops if isinstance(op, TpuOp) for v in op.results if is_tensor(v)]
        integers = {value_name(value) for value in stored if uniform_of(value) is not None}
        names = [op_name(op) for op in self._model.ops if isinstance(op, TopOp)]
        return tuple(name for name in names if name in integers and name not in self.base)

    def _lowered(self, floats: Floats) -> Model:
        """The module with these ops in float; the last one is kept, because a set that was run is costed next."""
        if self._last is None or self._last[0] != floats:
            self._last = floats, self._lower(floats)
        return self._last[1]

    def _reordered(self, floats: Floats) -> Model:
        """The module with these ops in float and its weights in chip layout."""
        if self._ready is None or self._ready[0] != floats:
            self._ready = floats, PassManager(WeightReorder()).run(self._lowered(floats))
        return self._ready[1]

    def _lower(self, floats: Floats) -> Model:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", ModeWarning)  # the mode of an op that is fused into another has no effect
            config = self._config
            if floats:
                config = replace(config, qtable=str(Path(folder) / "qtable"))
                modes = {**self.base, **dict.fromkeys(floats, self.mode)}
                write_qtable(Path(folder) / "qtable", modes)
            first = not self._scores  # only the first module is verified here; costed sets are verified when grouped
            with remembering(self._memory):
                return PassManager(lowered(config), verify=first).run(self._calibrated)


def _kind(op: TpuOp) -> tuple[str, str]:
    """A key of an op: its name and the types of its activations, which alone determine its time in one network."""
    values = (v for v in (*op.operands, *op.results) if is_tensor(v) and not isinstance(v.owner, TopWeight))
    return op_name(op), " ".join(str(storage_dtype(element_of(v))) for v in values)


def _least_ns(op: TpuOp, why_global: str | None, costs: CostModel) -> float:
    """A lower bound in ns: of a global layer its time, in a group the time to compute or to load constants."""
    if why_global is not None:
        return costs.global_ns(op)
    held = (value for value in op.operands if isinstance(value.owner, TopWeight))
    return max(costs.compute_ns(op), sum(costs.moved_ns(value, "load", op) for value in held))


def write_qtable(path: Path, modes: Mapping[str, str], notes: Sequence[str] = ()) -> None:
    """Write a quantisation table (U-66); notes: comment lines at the beginning."""
    comments = "".join(f"# {note}\n" for note in notes)
    lines = "".join(f"{name} {mode.upper()}\n" for name, mode in modes.items())
    with replacing(path) as target:
        target.write_text(f"{comments}# op_name   quantize_mode\n{lines}", encoding="utf-8")
