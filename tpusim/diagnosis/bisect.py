"""The first op of a lowered network that is too far off by itself."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tpusim.diagnosis.losses import Tensors, isolated
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import calibrated_range, is_tensor, uniform_of
from tpusim.ops.base import TopOp
from tpusim.verify.compare import Comparison, TensorResult, Tolerance, compare


def compare_isolated(top: Model, tpu: Model, inputs: Tensors, tolerance: Tolerance) -> Comparison:
    """Every op on ideal operands (`losses`) against the float op on the same, in program order, by channel too."""
    computed, wanted = isolated(top, tpu, inputs)
    order = {name: wanted[name] for name in computed}
    return compare(computed, order, replace(tolerance, by_channel=True), label="isolated")


def scaled_by(top: Model, tpu: Model, name: str) -> str:
    """The op whose range a tensor is stored in: its own name, or that of a reader that joins it with others.

    A Concat gives its scale to operands that nobody else reads; top, tpu: as of `first_broken`.
    """
    ops = {op_name(op): op for op in top.ops if isinstance(op, TopOp) and op.results}
    stored = {v: uniform_of(v) for op in tpu.ops for v in op.results if is_tensor(v)}
    scales = {value_name(v): uniform.scale.data for v, uniform in stored.items() if uniform is not None}
    while readers := [op_name(use.operation) for use in ops[name].results[0].uses if isinstance(use.operation, TopOp)]:
        reader = readers[0]
        if len(readers) > 1 or scales.get(reader) != scales.get(name) or _range(ops[reader]) == _range(ops[name]):
            break
        name = reader
    return name


def _range(op: TopOp) -> tuple[float, float] | None:
    return calibrated_range(op.results[0]) if op.results else None


@dataclass(frozen=True)
class Broken:
    """An op that breaks a tolerance by itself. result: on the sample where it is furthest off, and that sample.

    broken, samples: on how many samples of how many.
    """

    result: TensorResult
    sample: Tensors
    broken: int
    samples: int

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.result.name


def first_broken(top: Model, tpu: Model, samples: Iterable[Tensors], tolerance: Tolerance) -> Broken | None:
    """The first tensor in program order whose op breaks the tolerance by itself on a sample; None if none does.

    top: a top module in any state; tpu: what it was lowered to, without layer groups. samples: by input name.
    """
    found, count = dict[str, list[tuple[TensorResult, Tensors]]](), 0
    for sample in samples:
        count += 1
        for failure in compare_isolated(top, tpu, sample, tolerance).failures:
            found.setdefault(failure.name, []).append((failure, sample))
    for name in (value_name(value) for op in tpu.ops for value in op.results):
        if name in found:
            result, sample = min(found[name], key=lambda pair: np.nan_to_num(pair[0].euclidean, nan=-np.inf))
            return Broken(result, sample, len(found[name]), count)
    return None
