"""Tuning: every threshold is moved towards the absolute maximum where an op that reads it then loses less.

Source: numerics.md 15.3 (upstream `simple_tunner.py`; default `--tune_num 5`). Ops are visited in program order. For
each operand that no op before has tuned (the first operand, if all are), STEPS + 1 thresholds from the measured one to
the absolute maximum are tried: the op runs on its float operands, all of them rounded to INT8 by that one threshold,
and the mean distance of its result over the samples decides; the first of the best wins. A tensor that is tuned twice
keeps the larger threshold. Weights stay float: 1.30.2 asks for rounded ones but computes without them. Upstream's
arithmetic is kept: f32 arrays, f64 steps.

Sums in upstream's order take most of the time, and few thresholds need them: all are tried with the sums of XLA's
library, which differ by rounding only, and those that are as good as the best but for that are tried again in order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from tpusim_kernels.prim.forms import estimates
from xdsl.ir import Operation, SSAValue

from tpusim.inference import Gradual
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ops.base import TopOp
from tpusim.ops.structure import TopInput, TopWeight

STEPS = 21
LEAST_GAIN = 0.01
"""A threshold that is nearer to the absolute maximum is left alone."""
ROUNDING = 1e-5
"""More than the order of its sums changes a result, in norms of the result: about 3e-6 of 4,608 terms in f32."""
Tensors = Mapping[str, np.ndarray]


Search = tuple[str, str]
"""(op, tensor among its operands): the tensor's threshold is looked for that serves the op best."""


def searches(model: Model) -> list[Search]:
    """All that tuning looks for, in its order; none depends on what another finds."""
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
    """The thresholds by tensor name, the largest found of each."""
    thresholds = dict(measured)
    for (_, name), best in found:
        thresholds[name] = max(thresholds[name], best)
    return thresholds


def tuned_thresholds(
    graph: Gradual, samples: Sequence[Tensors], measured: Mapping[str, float], absmax: Mapping[str, float]
) -> dict[str, float]:
    """The thresholds by tensor name after tuning.

    graph: of a module in state TOP_F32, every tensor; samples: network inputs; measured: thresholds as printed in a
    table; absmax: the largest absolute values, f32.
    """
    tuner = Tuner(graph, samples)
    wanted = searches(graph.model)
    return widest(measured, ((s, tuner.best(s[0], measured[s[1]], absmax[s[1]])) for s in wanted))


class Tuner:
    """The float tensors of the samples, and the weights. graph, samples: as of `tuned_thresholds`."""

    def __init__(self, graph: Gradual, samples: Sequence[Tensors]) -> None:
        model = graph.model
        self._ops = {op_name(op): op for op in model.ops if isinstance(op, TopOp)}
        self._floats = [graph(sample) for sample in samples]
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
        with estimates():
            near = [self._distance(op, candidate) for candidate in candidates]
        if np.isfinite(near).all():
            most = min(near) + 2 * ROUNDING * self._unit(op)
            candidates = [c for c, distance in zip(candidates, near, strict=True) if distance <= most]
        if len(candidates) == 1:
            return candidates[0]
        distances = [self._distance(op, candidate) for candidate in candidates]
        best = 0
        for i, distance in enumerate(distances):
            best = i if distance < distances[best] else best
        return candidates[best]

    def _distance(self, op: TopOp, threshold: float) -> float:
        """The mean over the samples of the difference's 2-norm by the 1-norm of the float result."""
        return self._mean(op, lambda floats, wanted: wanted - np.asarray(self._run(op, floats, threshold)))

    def _unit(self, op: TopOp) -> float:
        """The distance of a result of zeros."""
        return self._mean(op, lambda _, wanted: wanted)

    def _mean(self, op: TopOp, difference: Callable[[Tensors, np.ndarray], np.ndarray]) -> float:
        total = 0.0
        for floats in self._floats:
            wanted = floats[op_name(op)]
            with np.errstate(divide="ignore", invalid="ignore"):
                total += np.linalg.norm(difference(floats, wanted).ravel()) / np.linalg.norm(wanted.ravel(), ord=1)
        return float(total / len(self._floats))

    def _run(self, op: TopOp, floats: Tensors, threshold: float) -> Any:
        operands = [self._operand(value, floats, threshold) for value in op.operands]
        with jax.enable_x64(True):
            return op.inference(operands)[0]

    def _operand(self, value: SSAValue, floats: Tensors, threshold: float) -> Any:
        owner = value.owner
        if isinstance(owner, TopOp):
            return _rounded(floats[op_name(owner)], threshold)
        return self._weights.get(value)


def _rounded(values: np.ndarray, threshold: float) -> np.ndarray:
    """Values as INT8 gives them back at a threshold: half to even, -128 to 127; integers and masks stay."""
    if values.dtype != np.float32:
        return values
    scale = np.float32(127.0 / threshold)
    return np.clip(np.round(values * scale), np.float32(-128), np.float32(127)) / scale


def _name(value: SSAValue) -> str:
    owner = value.owner
    assert isinstance(owner, Operation)
    return op_name(owner)
