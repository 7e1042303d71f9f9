"""int32 accumulators that overflow on samples: lowering knows which could, running the samples shows which do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tpusim.inference.executor import Environment, Steps, check_inputs, last_uses
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.lowering.overflow import overflows, possible_overflows
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.interfaces import Accumulates


@dataclass(frozen=True)
class Overflowed:
    """An op whose sums leave int32. name: its name in the quantisation table. reach: the largest magnitude of a sum.

    samples: the number of samples on which it overflows; of: the number of all samples.
    """

    name: str
    reach: int
    samples: int
    of: int


def overflowed(top: Model, lowered: Model, samples: Iterable[Mapping[str, np.ndarray]]) -> list[Overflowed]:
    """Ops whose accumulators overflow on samples, in program order.

    top: the calibrated module; lowered: the tpu module before layer grouping and before weights are reordered.
    """
    names = {op_name(op) for op in top.ops if isinstance(op, TopOp)}
    possible = {one.op: one.name for one in possible_overflows(names, lowered)}
    if not possible:
        return []
    reach, broken, count = dict.fromkeys(possible, 0), dict.fromkeys(possible, 0), 0
    for sample in samples:
        count += 1
        for op, sums in _sums(lowered, set(possible), sample):
            low, high = int(sums.min()), int(sums.max())
            reach[op] = max(reach[op], -low, high)
            broken[op] += overflows((low, high))
    return [Overflowed(name, reach[op], broken[op], count) for op, name in possible.items() if broken[op]]


def _sums(lowered: Model, asked: set[TpuOp], sample: Mapping[str, np.ndarray]) -> Iterable[tuple[TpuOp, np.ndarray]]:
    """The accumulators of these ops on one sample; operands are the results of the lowered ops before them."""
    steps, values, last, left = Steps.of(lowered), Environment(), last_uses(lowered), len(asked)
    values.update(zip(lowered.body.args, check_inputs(lowered, sample), strict=True))
    for op in lowered.ops:
        if isinstance(op, TpuOp) and isinstance(op, Accumulates) and op in asked:
            yield op, op.sums([values[value] for value in op.operands])
            left -= 1
        if not left:
            return
        steps.step(op, values)
        for value in last.get(op, ()):
            values.pop(value, None)
