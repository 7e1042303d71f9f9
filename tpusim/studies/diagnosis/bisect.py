"""The first op of a lowered network whose error alone is too large."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import calibrated_range, is_tensor, uniform_of
from tpusim.ops.framework.base import TopOp
from tpusim.studies.diagnosis.losses import Tensors, isolated
from tpusim.verify.compare import Comparison, TensorResult, Tolerance, compare


def compare_isolated(top: Model, tpu: Model, inputs: Tensors, tolerance: Tolerance) -> Comparison:
    """Compare every op on ideal operands (`losses`) with the float op on the same operands, by channel too."""
    computed, wanted = isolated(top, tpu, inputs)
    order = {name: wanted[name] for name in computed}
    return compare(computed, order, replace(tolerance, by_channel=True), label="isolated")


def scaled_by(top: Model, tpu: Model, name: str) -> str:
    """The name of the op whose range scales a tensor: its name, or the name of a Concat that reads it.

    A Concat gives its scale to operands without other readers. top, tpu: as in `first_broken`.
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
    """An op that alone breaks a tolerance. result: the comparison on its worst sample, and that sample.

    broken: the number of samples on which it does; samples: the number of all samples.
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
    """The first tensor in program order whose op alone breaks the tolerance on a sample; None if none does.

    top: a top module in any state; tpu: the module lowered from it, without layer groups. samples: by input name.
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
