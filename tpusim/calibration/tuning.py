"""Tuning: a threshold moves towards the absolute maximum if an op that reads the tensor then has a smaller error.

Source: numerics.md 15.3 (upstream `simple_tunner.py`; default `--tune_num 5`). Ops are visited in program order. For
each operand that no op before has tuned (the first operand, if all are), STEPS + 1 thresholds from the measured one to
the absolute maximum are tried: the op runs on its float operands, all of them rounded to INT8 by that one threshold,
and the mean distance of its result over the samples decides; the first of the best wins. A tensor that is tuned twice
keeps the larger threshold. Weights stay float: the options request rounded weights, which are not used (U-65). Arrays
are f32, steps f64.

Sums in the order of U-34 take most of the time, and few thresholds need them. So all thresholds are first tried with
the sums of XLA's library, which differ by rounding only, and convolutions with filters rounded to INT8 where int8
products are fast. Thresholds that are as good as the best within that error are tried again with sums in order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tpusim_kernels.lazy import jax
from tpusim_kernels.prim.forms import estimates
from xdsl.ir import Operation, SSAValue

from tpusim.calibration.trial import Known, Trial, Way
from tpusim.host.threads import each
from tpusim.inference import Gradual
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput, TopWeight

STEPS = 21
LEAST_GAIN = 0.01
"""A threshold that is nearer than this to the absolute maximum is not tuned."""
ROUNDING = 1e-5
"""An upper bound of the change by another order of sums, relative to the norm: about 3e-6 for 4,608 f32 terms."""
DOUBT = 100
"""The most that a constant's error changes the ratio of two distances, in errors divided by the root of the number of
elements.

The ratios of the 22 distances of a convolution whose filter is rounded to int8 stayed within 75 (five networks).
"""
PART = 1 << 16
"""Values that are rounded and compared at a time: they stay in the processor's cache."""
Tensors = Mapping[str, np.ndarray]


Search = tuple[str, str]
"""(op, tensor among its operands): a search for the tensor's best threshold for the op."""


def searches(model: Model) -> list[Search]:
    """All searches of tuning, in order; they do not depend on each other's results."""
    found: list[Search] = []
    done: set[SSAValue] = set()
    for op in model.ops:
        if not isinstance(op, TopOp) or isinstance(op, TopInput):
            continue
        operands = list(dict.fromkeys(v for v in op.operands if isinstance(v.owner, TopOp)))
        for value in [v for v in operands if v not in done] or operands[:1]:
            found.append((op_name(op), _name(value)))
            done.add(value)
    return found


def widest(measured: Mapping[str, float], found: Iterable[tuple[Search, float]]) -> dict[str, float]:
    """The thresholds by tensor name: the largest result of each tensor's searches."""
    thresholds = dict(measured)
    for (_, name), best in found:
        thresholds[name] = max(thresholds[name], best)
    return thresholds


def tuned_thresholds(
    graph: Gradual,
    samples: Sequence[Tensors],
    measured: Mapping[str, float],
    absmax: Mapping[str, float],
    known: Sequence[Tensors] = (),
) -> dict[str, float]:
    """The thresholds by tensor name after tuning.

    graph: computes every tensor of a module in state TOP_F32; samples: network inputs; measured: thresholds as printed
    in a table; absmax: the largest absolute values, f32. known: all tensors of the last samples, if they are computed
    already.
    """
    tuner = Tuner(graph, samples, known)
    wanted = searches(graph.model)
    found = each(lambda search: tuner.best(search[0], measured[search[1]], absmax[search[1]]), wanted)
    return widest(measured, zip(wanted, found, strict=True))


class Tuner:
    """Searches thresholds on the float tensors of samples. Arguments as in `tuned_thresholds`."""

    def __init__(self, graph: Gradual, samples: Sequence[Tensors], known: Sequence[Tensors] = ()) -> None:
        model = graph.model
        self._ops = {op_name(op): op for op in model.ops if isinstance(op, TopOp)}
        self._floats = [*(graph(sample) for sample in samples[: len(samples) - len(known)]), *known]
        self._known: Known = {}
        self._weights: dict[SSAValue, np.ndarray] = {
            op.output: model.weights[op_name(op)] for op in model.ops if isinstance(op, TopWeight)
        }

    def best(self, name: str, threshold: float, absmax: float) -> float:
        """The threshold of an op's operands that changes its result least."""
        op = self._ops[name]
        step = (absmax - threshold) / STEPS
        if step <= 0 or absmax - threshold <= LEAST_GAIN:
            return threshold
        candidates = [threshold + step * i for i in range(STEPS + 1)]
        candidates = self._near(op, candidates)
        if len(candidates) == 1:
            return candidates[0]
        distances = [self._distance(op, candidate) for candidate in candidates]
        best = 0
        for i, distance in enumerate(distances):
            best = i if distance < distances[best] else best
        return candidates[best]

    def _near(self, op: TopOp, candidates: Sequence[float]) -> Sequence[float]:
        """The candidates that may be the best; all of them if a distance or its bound is NaN."""
        with estimates():
            way = Way(op, self._operands(op, self._floats[0]), self._known)
            totals, units, elements = np.zeros(len(candidates)), 0.0, 0
            for floats in self._floats:
                trial = Trial(way, self._operands(op, floats), floats[op_name(op)])
                totals += trial.distances(candidates)
                units += trial.unit
                elements += floats[op_name(op)].size
        most = totals.min() * (1 + DOUBT * way.error / elements**0.5) + 2 * ROUNDING * units
        if not np.isfinite([*totals, most]).all():
            return candidates
        return [c for c, distance in zip(candidates, totals, strict=True) if distance <= most]

    def _distance(self, op: TopOp, threshold: float) -> float:
        """The mean over the samples of the difference's 2-norm divided by the 1-norm of the float result.

        In f32 (U-65): an overflow gives an infinity or NaN, which never wins, so that the measured threshold
        stays.
        """
        total = 0.0
        for floats in self._floats:
            wanted = floats[op_name(op)]
            with np.errstate(all="ignore"):
                found = np.asarray(self._run(op, floats, threshold))
                total += np.linalg.norm((wanted - found).ravel()) / np.linalg.norm(wanted.ravel(), ord=1)
        return float(total / len(self._floats))

    def _run(self, op: TopOp, floats: Tensors, threshold: float) -> Any:
        operands = [v if weighs else rounded(v, threshold) for v, weighs in self._operands(op, floats)]
        with jax.enable_x64(True):
            return op.inference(operands)[0]

    def _operands(self, op: TopOp, floats: Tensors) -> list[tuple[Any, bool]]:
        """(array, whether it is constant or absent) of every operand."""
        owners = [(value, value.owner) for value in op.operands]
        return [
            (floats[op_name(o)], False) if isinstance(o, TopOp) else (self._weights.get(v), True) for v, o in owners
        ]


def rounded(values: np.ndarray, threshold: float) -> np.ndarray:
    """Values quantised to INT8 at a threshold and dequantised: half to even, -128 to 127; integers and masks stay."""
    if values.dtype != np.float32:
        return values
    scale, found = np.float32(127.0 / threshold), np.empty(values.shape, np.float32)
    source, target = values.reshape(-1), found.reshape(-1)
    for start in range(0, source.size, PART):
        part = target[start : start + PART]
        np.multiply(source[start : start + PART], scale, out=part)
        np.rint(part, out=part)
        np.clip(part, np.float32(-128), np.float32(127), out=part)
        np.divide(part, scale, out=part)
    return found


def _name(value: SSAValue) -> str:
    owner = value.owner
    assert isinstance(owner, Operation)
    return op_name(owner)
