"""Running many modules that are nearly the same: an op whose operands and constants are known is not run again."""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.inference import dequantised
from tpusim.inference.executor import Environment, Steps, check_inputs
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.described import described
from tpusim.ir.module import Model
from tpusim.ir.once import once
from tpusim.ops.base import ShapedOp
from tpusim.ops.structure import TopWeight

Tensors = Mapping[str, np.ndarray]
LIMIT = 512 << 20
"""Bytes of results that are kept; the oldest go first."""


class Reuse:
    """Runs lowered modules without layer groups on the same samples, op by op."""

    def __init__(self, samples: list[dict[str, np.ndarray]]) -> None:
        self._samples = samples
        self._kept: OrderedDict[tuple[int, bytes], list[np.ndarray]] = OrderedDict()
        self._bytes = 0

    def results(self, model: Model, count: int | None = None) -> list[dict[str, np.ndarray]]:
        """The network's results of every sample as real values, by the names of the values that are returned.

        count: of the first samples only.
        """
        known, names = _signatures(model), [value_name(value) for value in model.results]
        found: list[dict[str, np.ndarray]] = []
        for number, sample in enumerate(self._samples[:count]):
            values = self._run(model, known, number, sample)
            stored = {n: np.asarray(values[v]) for n, v in zip(names, model.results, strict=True)}
            found.append(dequantised(model, stored))
        return found

    def tensors(self, model: Model, number: int, names: Collection[str]) -> dict[str, np.ndarray]:
        """Tensors of one sample, by its place, as real values."""
        values = self._run(model, _signatures(model), number, self._samples[number])
        results = [v for op in model.ops if isinstance(op, ShapedOp) for v in op.results if value_name(v) in names]
        return dequantised(model, {value_name(v): np.asarray(values[v]) for v in results})

    def _run(self, model: Model, known: Mapping[Operation, bytes], number: int, sample: Tensors) -> Environment:
        steps, values = Steps.of(model), Environment()
        values.update(zip(model.body.args, check_inputs(model, sample), strict=True))
        for op in model.ops:
            key = (number, known[op]) if op in known else None
            if key is not None and key in self._kept:
                self._kept.move_to_end(key)
                values.update(zip(op.results, self._kept[key], strict=True))
                continue
            steps.step(op, values)
            if key is not None:
                self._keep(key, [np.asarray(values[v]) for v in op.results])
        return values

    def _keep(self, key: tuple[int, bytes], arrays: list[np.ndarray]) -> None:
        self._kept[key] = arrays
        self._bytes += sum(array.nbytes for array in arrays)
        while self._bytes > LIMIT and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= sum(array.nbytes for array in gone)


def _signatures(model: Model) -> dict[Operation, bytes]:
    """Of every op that computes: all that its results follow from, the network's inputs apart."""
    of_value: dict[SSAValue, bytes] = {arg: f"input {i}".encode() for i, arg in enumerate(model.body.args)}
    found: dict[Operation, bytes] = {}
    for op in model.ops:
        digest = hashlib.blake2b(digest_size=16)
        for part in _own(op, model):
            digest.update(part)
        for value in op.operands:
            digest.update(of_value[value])
        for i, result in enumerate(op.results):
            of_value[result] = digest.digest() + bytes([i])
        if isinstance(op, ShapedOp):
            found[op] = digest.digest()
    return found


def _own(op: Operation, model: Model) -> Iterator[bytes]:
    """What an op says itself: kind, attributes, types; of a constant its values."""
    yield repr(described(op)).encode()
    if isinstance(op, TopWeight):
        array = model.weights[op_name(op)]
        yield repr((array.shape, str(array.dtype))).encode()
        yield _digest(array)


@once
def _digest(array: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
