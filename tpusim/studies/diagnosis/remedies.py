"""The gain of a network's results by changes (ops in float, ranges that fit), each lowered and run on samples."""

import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from xdsl.ir import SSAValue

from tpusim import chips
from tpusim.errors import ConfigError, ModeWarning
from tpusim.host.files import replacing
from tpusim.ir.attrs import op_name
from tpusim.ir.formats import number_format
from tpusim.ir.module import Model, update_function_type
from tpusim.ir.once import Memory, remembering
from tpusim.ir.types import CalibratedType, calibrated_range, is_tensor, retyped, set_type
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.framework.base import TopOp
from tpusim.passes import PassManager
from tpusim.passes.pipelines import converted
from tpusim.studies.diagnosis.judge import LEAST_GAIN, Judge, Judged, Measured
from tpusim.studies.diagnosis.losses import Loss, Tensors
from tpusim.studies.diagnosis.magnitudes import Magnitudes

FLOATS = ("f16", "bf16", "f32")
"""Float modes, the cheaper first."""
FITS = 1.25
"""A range that is so many times larger or smaller than the values does not fit."""
FEW = 1
"""On a large network, a change is first tried on so many samples."""
SERIOUS = 8
"""On a large network, so many changes, the best on the first samples, are judged on all samples."""
UNION = 8
"""On a large network, so many sets of ops are made float together first, to see whether any of them matters."""
TOGETHER = 16
"""So many networks are lowered and measured together: their common ops are run once for each sample."""


@dataclass(frozen=True)
class Change:
    """A change of one op: its float mode, or the threshold of its result."""

    name: str
    mode: str = ""
    threshold: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.name} in {self.mode.upper()}" if self.mode else f"{self.name} with threshold {self.threshold:.7f}"
        )


@dataclass(frozen=True)
class Remedy:
    """Changes, and the network's errors with them on the samples that chose and on the held-out samples.

    holds: whether the network is better with the changes on both.
    """

    changes: tuple[Change, ...]
    judged: Judged
    holds: bool

    @property
    def error(self) -> float:
        """The largest error on the samples that chose, slices included; remedies are ranked by it."""
        return self.judged.judged.largest

    @property
    def cosine(self) -> float:
        """The mean cosine of the results, on the held-out samples if there are any."""
        return self.judged.last.cosine

    @property
    def modes(self) -> dict[str, str]:
        """The lines of a quantisation table."""
        return modes_of(self.changes)

    @property
    def thresholds(self) -> dict[str, float]:
        """The changed thresholds of a calibration table."""
        return {c.name: c.threshold for c in self.changes if not c.mode}


def modes_of(changes: Sequence[Change]) -> dict[str, str]:
    """The lines of a quantisation table."""
    return {c.name: c.mode for c in changes if c.mode}


class Remedies:
    """Experiments with a calibrated module on samples.

    model: the given module; in a mode of floats without thresholds. judge: the float network and the samples. ops: by
    name. limits: the largest magnitude of each range, by name. config: of lowering; its quantisation table stays in
    force. mode: the mode of ops that become float, by default the chip's cheapest. few: a change is first tried on so
    many of the samples that choose. Raises ConfigError for a module without thresholds or a mode that is no float.
    """

    def __init__(
        self,
        calibrated: Model,
        config: LoweringConfig,
        samples: Iterable[Tensors],
        mode: str = "",
        progress: Callable[[str], None] | None = None,
    ) -> None:
        floats = () if config.calibrated else ("TOP_F32",)
        calibrated.require_state(*floats, "TOP_CALIBRATED", stage="why")
        has = [m for m in FLOATS if m in chips.load(config.chip).modes]
        if mode and mode not in has:
            raise ConfigError(f"float mode '{mode}': one of {', '.join(has)} is required on this chip")
        self.model, self._config, self._told = calibrated, config, progress or _silent
        self._base = {} if config.qtable is None else read_qtable(config.qtable, config.format)
        self._memory: Memory = {}
        self._few: dict[frozenset[Change], Measured] = {}
        self._known: dict[frozenset[Change], Judged] = {}
        self.mode = mode or has[0]
        self.ops = {op_name(op): op for op in calibrated.ops if isinstance(op, TopOp)}
        self.judge = Judge(calibrated, samples, progress)
        self.few = min(self.judge.halves[0], FEW) if self.judge.large else self.judge.halves[0]
        found = {name: max(map(abs, limits)) for name, (_, limits) in _ranges(calibrated).items()}
        self.limits = {name: limit for name, limit in found.items() if name in self.judge.seen and limit > 0}

    @property
    def before(self) -> Judged:
        """The errors of the lowered network without changes."""
        return self.judged([()])[0]

    @property
    def seen(self) -> Mapping[str, Magnitudes]:
        """The statistics of the float network's tensors on all samples."""
        return self.judge.seen

    def other_modes(self, stored: str) -> list[str]:
        """The modes of the chip except that of dtype `stored`, floats first: remedies for ops that are wrong in it."""
        has = chips.load(self._config.chip).modes
        own = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}.get(stored, "")
        return [mode for mode in (*FLOATS[1:], *FLOATS[:1], "int8") if mode in has and mode != own]

    def tried(self, changes: Sequence[tuple[Change, ...]]) -> list[Measured]:
        """The errors with each of these sets of changes, on the first `few` samples that choose."""
        asked = list(dict.fromkeys(one for one in changes if frozenset(one) not in self._few))
        for group in _groups(asked):
            self._told(f"{len(self._few)} changes tried")
            models = [self.lowered(one) for one in group]
            found = self.judge.of_half(models, held_out=False, most=self.few)
            self._few.update(zip(map(frozenset, group), found, strict=True))
        return [self._few[frozenset(one)] for one in changes]

    def judged(self, changes: Sequence[tuple[Change, ...]]) -> list[Judged]:
        """The errors with each of these sets of changes, on all samples of both halves."""
        asked = list(dict.fromkeys(one for one in changes if frozenset(one) not in self._known))
        for group in _groups(asked):
            self._told(f"{len(self._known)} remedies judged")
            found = self.judge.judged([self.lowered(one) for one in group])
            self._known.update(zip(map(frozenset, group), found, strict=True))
        return [self._known[frozenset(one)] for one in changes]

    def worth(self, changes: Sequence[tuple[Change, ...]]) -> list[Remedy]:
        """Remedies of the sets that are better on the samples that choose, the best first, judged on all samples."""
        if self.few < self.judge.halves[0]:
            changes = self._with_effect(changes)
        none, *found = self.tried([(), *changes])
        better = [(one.largest, place) for place, one in enumerate(found) if one.is_better_than(none)]
        serious = [changes[place] for _, place in sorted(better)]
        if self.few < self.judge.halves[0]:
            serious = list(dict.fromkeys(serious))[:SERIOUS]
        judged = self.judged(serious)
        remedies = [Remedy(c, j, j.holds_against(self.before)) for c, j in zip(serious, judged, strict=True)]
        return sorted(
            (one for one in remedies if one.judged.judged.is_better_than(self.before.judged)), key=lambda one: one.error
        )

    def _with_effect(self, changes: Sequence[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
        """The sets without those that do not matter: UNION sets at a time are put into float together.

        If such a union changes the error by less than half of LEAST_GAIN, all of its sets are dropped.
        """
        floats = list(dict.fromkeys(one for one in changes if all(change.mode == self.mode for change in one)))
        unions = {
            tuple(dict.fromkeys(change for one in group for change in one)): group for group in _groups(floats, UNION)
        }
        none, *found = (one.largest for one in self.tried([(), *unions]))
        pairs = zip(found, unions.values(), strict=True)
        idle = {one for error, group in pairs if abs(error - none) < none * LEAST_GAIN / 2 for one in group}
        return [one for one in changes if one not in idle]

    def lowered(self, changes: Sequence[Change] = ()) -> Model:
        """The tpu module with these changes. The module without changes is shared and must not be modified."""
        return self._lowered(changes) if changes else self._unchanged

    @cached_property
    def _unchanged(self) -> Model:
        return self._lowered(())

    def _lowered(self, changes: Sequence[Change]) -> Model:
        modes = modes_of(changes)
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            remembering(self._memory),
            np.errstate(all="ignore"),
        ):
            config = self._config
            if modes:
                config = replace(config, qtable=str(Path(folder) / "qtable"))
                self.write_qtable(Path(folder) / "qtable", modes)
            if changes:
                warnings.simplefilter("ignore", ModeWarning)  # for an op that is fused into another on this chip
            thresholds = {c.name: c.threshold for c in changes if not c.mode}
            lowering = PassManager(converted(config), verify=not changes)  # changed are only types
            return lowering.run(_with_thresholds(self.model, thresholds))

    def suspects(self, found: Sequence[Loss], top: int) -> list[Loss]:
        """The `top` losses that are largest alone, of ops with integers or weights of few bits; without any, of all."""
        inexact = [loss for loss in found if loss.scale or self._has_few_bits(loss.name)]
        return sorted(inexact or found, key=lambda loss: loss.sqnr_alone)[:top]

    def _has_few_bits(self, name: str) -> bool:
        format = number_format(self._base[name]) if name in self._base else self._config.format
        return name in self.ops and format.family == "weight_only"

    def single(self, names: Iterable[str]) -> list[tuple[Change, Measured]]:
        """Each of these ops alone in float, and each of their unfitting ranges alone made to fit; the best first.

        Measured as in `tried`.
        """
        changes = [c for name in names for c in (Change(name, self.mode), *self._fitted(name))]
        found = zip(changes, self.tried([(change,) for change in changes]), strict=True)
        return sorted(found, key=lambda pair: pair[1].largest)

    def fewest(self, ranked: Sequence[Remedy], wanted: float) -> Remedy:
        """Combine remedies in the given order until the results reach the wanted cosine; all if they never do.

        A remedy that, added to those before it, does not gain on both halves is left out.
        """
        best = Remedy((), self.before, holds=True)
        for remedy in ranked:
            if best.cosine >= wanted:
                break
            more = tuple(dict.fromkeys((*best.changes, *remedy.changes)))
            [found] = self.judged([more])
            if found.holds_against(best.judged) and found.holds_against(self.before):
                best = Remedy(more, found, holds=True)
        return best

    def qtable(self, modes: Mapping[str, str]) -> dict[str, str]:
        """The quantisation table in force, extended by these ops."""
        return {name: mode.upper() for name, mode in {**self._base, **modes}.items()}

    def write_qtable(self, path: Path, modes: Mapping[str, str]) -> None:
        """Write the quantisation table in force, extended by these ops."""
        lines = "".join(f"{name} {mode}\n" for name, mode in self.qtable(modes).items())
        with replacing(path) as target:
            target.write_text(f"# op_name quantize_mode\n{lines}", encoding="utf-8")

    def reach(self, name: str) -> float:
        """The largest magnitude of a tensor in the float network, on all samples."""
        return self.seen[name].reach if name in self.seen else 0.0

    def _fitted(self, name: str) -> list[Change]:
        """A change that makes the largest value of all samples the threshold, if there is a range and does not fit."""
        _, limits = _ranges(self.model).get(name, (None, (0.0, 0.0)))
        now, seen = max(map(abs, limits)), self.reach(name)
        return [Change(name, threshold=seen)] if seen and now and not 1 / FITS < seen / now < FITS else []


def _ranges(model: Model) -> dict[str, tuple[SSAValue, tuple[float, float]]]:
    """Op name -> its result and (low, high)."""
    results = {op_name(op): op.results[0] for op in model.ops if op.results and is_tensor(op.results[0])}
    found = {name: (value, calibrated_range(value)) for name, value in results.items()}
    return {name: (value, limits) for name, (value, limits) in found.items() if limits is not None}


def _with_thresholds(model: Model, thresholds: Mapping[str, float]) -> Model:
    """A copy of the module with these thresholds (the module itself without any); non-negative ranges stay so."""
    if not thresholds:
        return model
    work = model.clone()
    ranges = _ranges(work)
    for name, threshold in thresholds.items():
        value, (low, _) = ranges[name]
        set_type(value, retyped(value, CalibratedType.of(-threshold if low < 0 else 0.0, threshold)))
    update_function_type(work)
    return work


def _silent(text: str) -> None:
    del text


def _groups(changes: Sequence[tuple[Change, ...]], size: int = TOGETHER) -> Iterator[Sequence[tuple[Change, ...]]]:
    """The sets of changes in order, `size` at a time."""
    left = iter(changes)
    while group := list(islice(left, size)):
        yield group
