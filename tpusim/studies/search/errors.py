"""A linear model of errors: how the integers of each op change the network's results, as vectors that add up.

The error of an op is its integer result on ideal operands minus the float op's result. Added to the float network's
tensor and propagated in f32, it changes the results by a vector. As far as the network is linear in its errors, several
ops change the results by the sum of their vectors. So the cosine of any set of ops follows from the inner products of
these vectors, without a run. The caller must measure how accurate this is.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import numpy as np
from xdsl.ir import SSAValue

from tpusim.inference.executor import Environment, Steps, check_inputs
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import Array, ShapedOp
from tpusim.studies.diagnosis.losses import isolated

Tensors = Mapping[str, np.ndarray]
LONGEST = 4096
"""A longer error vector is folded into so many sums with random signs, which keeps inner products approximately."""


class Errors:
    """The error vectors of some ops.

    names: the ops, by their results. products: inner products of every two vectors, (samples, results, ops, ops), in
    units of the float network's result; the component along that result is removed, because it changes no cosine.
    """

    def __init__(self, names: Sequence[str], products: np.ndarray) -> None:
        self.names, self._products = list(names), products

    @classmethod
    def of(cls, top: Model, tpu: Model, samples: Sequence[Tensors], names: Sequence[str]) -> "Errors":
        """Measure on samples. top: the float network; tpu: the module lowered from it with these ops in integers."""
        return cls(names, np.stack([_products(top, tpu, sample, names) for sample in samples]))

    def loss(self, names: Collection[str]) -> float:
        """1 - cosine of the least similar result, averaged over the samples, with these ops in integers."""
        here = np.array([name in names for name in self.names])
        return self.loss_of(here)

    def loss_of(self, here: np.ndarray) -> float:
        """As `loss`; here: a flag for each op, whether it is in integers."""
        chosen = here.astype(np.float64)
        squares: np.ndarray = np.maximum(self._products @ chosen @ chosen, 0.0)
        losses: np.ndarray = 1 - 1 / np.sqrt(1 + squares)
        return float(losses.max(axis=-1).mean())


def _products(top: Model, tpu: Model, sample: Tensors, names: Sequence[str]) -> np.ndarray:
    """The inner products of one sample: (results, ops, ops)."""
    steps, floats = Steps.of(top), dict[SSAValue, Array]()
    floats.update(zip(top.body.args, check_inputs(top, sample), strict=True))
    steps.block(top.body, floats)
    computed, wanted = isolated(top, tpu, sample)
    places = {value_name(v): v for op in top.ops if isinstance(op, ShapedOp) for v in op.results}
    rows: list[list[np.ndarray]] = [[] for _ in top.results]
    for name in names:
        changed: Environment = {}
        if name in computed and name in places:
            here = np.asarray(floats[places[name]])
            error = (computed[name].astype(np.float64) - wanted[name].reshape(computed[name].shape)).reshape(here.shape)
            changed = _propagated(top, steps, floats, places[name], (here + error).astype(here.dtype))
        for row, value in zip(rows, top.results, strict=True):
            row.append(_vector(np.asarray(changed.get(value, floats[value])), np.asarray(floats[value])))
    return np.stack([np.stack(row) @ np.stack(row).T for row in rows])


def _propagated(top: Model, steps: Steps, floats: Environment, at: SSAValue, array: np.ndarray) -> Environment:
    """The tensors that change if value `at` becomes `array`, including `at`."""
    changed: Environment = {at: array}
    for op in top.ops:
        if at in op.results or not any(value in changed for value in op.operands):
            continue
        around = {value: changed.get(value, floats.get(value)) for value in op.operands}
        steps.step(op, around)
        changed.update((value, around[value]) for value in op.results)
    return changed


def _vector(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The change of a result relative to its norm, without the component along the result."""
    one, other = (array.astype(np.float64).ravel() for array in (found, wanted))
    length = float(np.linalg.norm(other)) or 1.0
    with np.errstate(all="ignore"):
        error = np.nan_to_num((one - other) / length)
    error -= other / length * float(error @ other) / length
    return error if len(error) <= LONGEST else _folded(error)


def _folded(error: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(len(error))
    places, signs = rng.integers(0, LONGEST, len(error)), rng.choice((-1.0, 1.0), len(error))
    return np.bincount(places, signs * error, LONGEST)


def neighbours(top: Model) -> Iterator[tuple[str, str, int]]:
    """(producer, consumer, elements) of every tensor between two ops that compute."""
    for op in top.ops:
        for value in op.operands if isinstance(op, ShapedOp) else ():
            if isinstance(value.owner, ShapedOp):
                yield value_name(value), value_name(op.results[0]), prod(shape_of(value))
