"""Bias correction: the mean error of a Conv's integers is added to its bias, by channel, where that helps.

As `run_calibration.py --bc` (U-69, numerics.md 15.6). The network is run in integers and in the chip's cheapest float
on the first samples. In program order, a Conv whose result is not similar enough to the float result gets the mean
difference of each channel added to its bias. The correction is kept unless the network's results, or the Conv's result,
are then less similar than the best so far. The similarity is (1 + cosine) / 2.

Every Conv is tried on the network without corrections (U-69), and the best of the Convs' results is a single
figure for all Convs, so that a Conv after a better one is seldom corrected. With `in_turn` a Conv is tried together
with the earlier corrections, and its result is compared with its result before the correction.

Afterwards the caller must calibrate the corrected network again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from tpusim.calibration.table import CalibrationTable
from tpusim.errors import CalibrationError, ConfigError
from tpusim.inference.reuse import Reuse
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.lowering import LoweringConfig
from tpusim.ops.conv.top import TopConv
from tpusim.ops.framework.base import ShapedOp, is_none
from tpusim.ops.framework.families import constant_of
from tpusim.ops.structure import make_weight
from tpusim.passes import PassContext, PassManager
from tpusim.passes.pipelines import converted, integers
from tpusim.studies.search.goal import mean_cosine
from tpusim.studies.search.trials import cheapest_float

Tensors = Mapping[str, np.ndarray]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class CorrectionConfig:
    """Options of bias correction.

    expected: correction stops when the network's results have this similarity. layer: a Conv whose result has this
    similarity is not corrected. samples: the first so many samples are measured. in_turn: a Conv is measured and tried
    together with the earlier corrections.
    """

    expected: float = 0.99
    layer: float = 0.99
    samples: int = 30
    in_turn: bool = False


@dataclass(frozen=True)
class Correction:
    """One tried Conv: its similarity before and after, that of the network's results, and whether it was kept."""

    name: str
    before: float
    after: float
    results: float
    kept: bool


@dataclass(frozen=True)
class Corrected:
    """The module with the kept corrections, the similarity of the results before, and all tried corrections."""

    model: Model
    before: float
    tried: tuple[Correction, ...]


def correct_biases(
    model: Model,
    table: CalibrationTable,
    samples: Iterable[Tensors],
    config: LoweringConfig,
    asked: CorrectionConfig | None = None,
    *,
    progress: Progress | None = None,
) -> Corrected:
    """Correct the biases of a canonical module for one chip; `model` is not changed.

    table: its thresholds. config: of lowering, with the quantisation table. Raises ConfigError for a mode without
    integers and for a network without a Conv with bias, CalibrationError without samples.
    """
    asked = asked or CorrectionConfig()
    if not config.format.calibrated:
        raise ConfigError(f"correct-bias: a mode of integers is required, got {config.format.name}")
    convs = [op for op in model.ops if isinstance(op, TopConv) and not is_none(op.bias)]
    if not convs:
        raise ConfigError("correct-bias: a Conv with a bias is required, the network has none")
    measured = [dict(sample) for sample in islice(samples, asked.samples)]
    if not measured:
        raise CalibrationError("correct-bias: at least one sample is required, got none")
    return _Corrector(model, table, measured, config).corrected(convs, asked, progress or _silent)


def with_bias(model: Model, name: str, bias: np.ndarray) -> Model:
    """A copy of the module with this bias, f32 (oc,), at the Conv of this name."""
    work = model.clone()
    op = next(one for one in work.ops if isinstance(one, TopConv) and op_name(one) == name)
    weight = make_weight(work.weights, f"{name}_corrected_bias", bias)
    op.parent_block().insert_op_before(weight, op)  # type: ignore[union-attr]
    op.operands[2] = weight.output
    verify(work.module, "after correct-bias")
    return work


def _silent(text: str) -> None:
    del text


class _Corrector:
    """A network in integers and in float on the same samples."""

    def __init__(
        self, model: Model, table: CalibrationTable, samples: list[dict[str, np.ndarray]], config: LoweringConfig
    ) -> None:
        self._model, self._table, self._count = model, table, len(samples)
        self._reuse = Reuse(samples)
        floats = replace(config, mode=cheapest_float(config.chip), asymmetric=False, qtable=None)
        self._float = PassManager(converted(floats)).run(model)
        self._steps = integers(config)

    def _lowered(self, model: Model) -> Model:
        uncorrected = model is self._model  # the others differ only in biases
        return PassManager(self._steps, verify=uncorrected).run(model, PassContext(table=self._table))

    def corrected(self, convs: list[TopConv], asked: CorrectionConfig, progress: Progress) -> Corrected:
        """Try the Convs in program order until the results have the expected similarity."""
        integers, found = self._lowered(self._model), self._model
        before = best = self._results(integers)
        tried, closest = list[Correction](), 0.0
        for number, op in enumerate(convs, 1):
            if best > asked.expected:
                break
            progress(f"Conv {number} of {len(convs)}")
            bias = constant_of(op.bias, self._model.weights)
            if bias is None or not all(op_name(op) in _named(model) for model in (integers, self._float)):
                continue
            similar, difference = self._lost(integers, op_name(op))
            if similar >= asked.layer:
                continue
            new = (bias + difference).astype(np.float32)
            trial = self._lowered(with_bias(found if asked.in_turn else self._model, op_name(op), new))
            after, results = self._similar(trial, op_name(op)), self._results(trial)
            kept = results >= best and after >= (similar if asked.in_turn else closest)
            tried.append(Correction(op_name(op), similar, after, results, kept))
            if kept:
                found = with_bias(found, op_name(op), new)
                integers = trial if asked.in_turn else integers
            best, closest = max(best, results), max(closest, after)
        return Corrected(found, before, tuple(tried))

    def _results(self, model: Model) -> float:
        """Similarity of the network's results with the float results."""
        found, wanted = self._reuse.results(model), self._reuse.results(self._float)
        named = [dict(zip(w, f.values(), strict=True)) for f, w in zip(found, wanted, strict=True)]
        return (1 + mean_cosine(named, wanted)) / 2

    def _pairs(self, model: Model, name: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The tensor in both networks, sample by sample."""
        for number in range(self._count):
            found, wanted = (self._reuse.tensors(one, number, (name,))[name] for one in (model, self._float))
            yield found, wanted.astype(np.float32)

    def _similar(self, model: Model, name: str) -> float:
        pairs = list(self._pairs(model, name))
        return (1 + mean_cosine([{name: found} for found, _ in pairs], [{name: wanted} for _, wanted in pairs])) / 2

    def _lost(self, integers: Model, name: str) -> tuple[float, np.ndarray]:
        """The similarity of a Conv's result, and the mean of float - integer by channel; f32 sums (U-69)."""
        sums: list[np.ndarray] = [np.zeros((), np.float32), np.zeros((), np.float32)]
        for pair in self._pairs(integers, name):
            for which, tensor in enumerate(pair):
                axes = tuple(axis for axis in range(tensor.ndim) if axis != 1)
                sums[which] = sums[which] + tensor.mean(axis=axes)
        return self._similar(integers, name), (sums[1] - sums[0]) / np.float32(self._count)


def _named(model: Model) -> set[str]:
    """The names of all tensors that the module computes."""
    return {value_name(value) for op in model.ops if isinstance(op, ShapedOp) for value in op.results}
