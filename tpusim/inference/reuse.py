"""Runs many nearly equal modules: an op with the same operands and constants is run only once.

Samples with small tensors go in batches: an op is then one call for the whole batch, mapped over the samples. The
compiled function depends on shapes alone, so that a module with other scales needs no new compilation. Integers have
the bits of one sample alone.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from tpusim_kernels.lazy import jax
from xdsl.ir import Operation, SSAValue

from tpusim.errors import ImportModelError
from tpusim.inference.executor import Environment, Steps, bytes_of, check_inputs, dequantised, kept_names, last_uses
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.described import described
from tpusim.ir.module import Model
from tpusim.ir.once import once
from tpusim.ops.framework.base import Array, ShapedOp
from tpusim.ops.structure import TopWeight

Tensors = Mapping[str, np.ndarray]
LIMIT = 160 << 20
"""At most so many bytes of results are kept, or twice those of the largest module; the oldest are dropped first."""
MODELS = 16
"""Modules whose signatures are remembered."""
FEW = 8
"""For up to so many samples, compiling a batch costs more than the batch saves."""
BATCH, BATCH_BYTES = 32, 32 << 20
"""The most samples of a batch, and bytes of all their tensors."""


@dataclass(frozen=True)
class Part:
    """Samples that are run together: their indices, and their arrays; several are stacked."""

    places: tuple[int, ...]
    samples: tuple[Tensors, ...]

    @property
    def stacked(self) -> bool:
        """Whether the first axis of the arrays counts samples."""
        return len(self.samples) > 1


def fits_alone(model: Model) -> bool:
    """Whether the tensors of one sample are so large that samples are run one by one."""
    return bytes_of(model, kept_names(model, "all")) * 2 > BATCH_BYTES


def parts_of(samples: Iterable[Tensors], model: Model) -> Iterator[Part]:
    """Samples in parts that are run together: one by one if they are few or large. model: any model for them."""
    left, places = iter(samples), count()
    fits = BATCH_BYTES // max(bytes_of(model, kept_names(model, "all")), 1)
    first = list(islice(left, FEW + 1))
    if len(first) <= FEW or fits_alone(model):
        yield from (Part((at,), (one,)) for at, one in zip(places, _chained(first, left), strict=False))
        return
    rest, size, at = _chained(first, left), min(fits, BATCH), 0
    while batch := tuple(islice(rest, size)):
        yield Part(tuple(range(at, at + len(batch))), batch)
        at += len(batch)


def _chained(first: Iterable[Tensors], rest: Iterable[Tensors]) -> Iterator[Tensors]:
    yield from first
    yield from rest


class Reuse:
    """Runs lowered modules without layer groups on parts of the same samples, op by op.

    samples: run by `results` and `tensors`, one by one.
    """

    def __init__(self, samples: Sequence[Tensors] = ()) -> None:
        self._parts = [Part((at,), (sample,)) for at, sample in enumerate(samples)]
        self._kept: OrderedDict[tuple[tuple[int, ...], bytes], list[Array]] = OrderedDict()
        self._bytes, self._limit = 0, LIMIT
        self._signed: OrderedDict[Operation, dict[Operation, bytes]] = OrderedDict()

    def results(self, model: Model, number: int | None = None) -> list[dict[str, np.ndarray]]:
        """The network's results of every sample as real values, by the names of the returned values.

        number: only the first so many samples.
        """
        return [found for part in self._parts[:number] for found in self.of_part(model, part)]

    def of_part(self, model: Model, part: Part, names: Collection[str] | None = None) -> list[dict[str, np.ndarray]]:
        """Tensors of every sample of a part as real values, by name; names: None: the network's results."""
        wanted = (
            {value_name(value): value for value in model.results}
            if names is None
            else {value_name(v): v for op in model.ops if isinstance(op, ShapedOp) for v in op.results
                  if value_name(v) in names}
        )  # fmt: skip
        values, many = self._run(model, part, set(wanted.values()))
        stored = {name: np.asarray(values[value]) for name, value in wanted.items()}
        real = dequantised(model, stored)
        each = {name for name, value in wanted.items() if value in many and part.stacked}
        return [
            {name: array[i] if name in each else array for name, array in real.items()}
            for i in range(len(part.samples))
        ]  # fmt: skip

    def tensors(self, model: Model, number: int, names: Collection[str]) -> dict[str, np.ndarray]:
        """Tensors of one sample, given by its index, as real values."""
        return self.of_part(model, self._parts[number], names)[0]

    def _run(self, model: Model, part: Part, wanted: set[SSAValue]) -> tuple[Environment, set[SSAValue]]:
        """The wanted values, and the set of values that differ between samples."""
        known, steps, values = self._signatures(model), Steps.of(model), Environment()
        values.update(zip(model.body.args, _arguments(model, part), strict=True))
        many, last = set[SSAValue](model.body.args), last_uses(model, wanted)
        for op in model.ops:
            mapped = isinstance(op, ShapedOp) and any(value in many for value in op.operands)
            if mapped:
                many.update(op.results)
            key = (part.places, known[op]) if op in known else None
            if key is not None and key in self._kept:
                self._kept.move_to_end(key)
                values.update(zip(op.results, self._kept[key], strict=True))
            elif mapped and part.stacked:
                assert isinstance(op, ShapedOp)
                values.update(zip(op.results, _mapped(steps, op, values, many), strict=True))
            else:
                steps.step(op, values)
            if key is not None and key not in self._kept:
                self._keep(key, [values[v] for v in op.results])
            for value in last.get(op, ()):
                values.pop(value, None)
        return values, many

    def _signatures(self, model: Model) -> dict[Operation, bytes]:
        """The signatures of a module; the last few are cached, because parts come one by one."""
        if model.module not in self._signed:
            self._signed[model.module] = _signatures(model)
            self._limit = max(self._limit, 2 * bytes_of(model, kept_names(model, "all")))
            if len(self._signed) > MODELS:
                self._signed.popitem(last=False)
        return self._signed[model.module]

    def _keep(self, key: tuple[tuple[int, ...], bytes], arrays: list[Array]) -> None:
        self._kept[key] = arrays
        self._bytes += sum(array.nbytes for array in arrays)
        while self._bytes > self._limit and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= sum(array.nbytes for array in gone)


def _arguments(model: Model, part: Part) -> list[np.ndarray]:
    rows = [check_inputs(model, sample) for sample in part.samples]
    return [np.stack(column) for column in zip(*rows, strict=True)] if part.stacked else rows[0]


def _mapped(steps: Steps, op: ShapedOp, values: Environment, many: set[SSAValue]) -> Sequence[Array]:
    """An op on stacked operands; an op that needs its operands as concrete data runs sample by sample."""
    operands = [values[value] for value in op.operands]
    axes = [0 if value in many else None for value in op.operands]
    stacked = [array for array, axis in zip(operands, axes, strict=True) if axis == 0]

    def one(*own: Any) -> tuple[Array, ...]:
        left = iter(own)
        return steps.results(
            op, [array if axis is None else next(left) for array, axis in zip(operands, axes, strict=True)]
        )

    try:
        with jax.enable_x64(True):
            return jax.vmap(one)(*stacked)
    except ImportModelError as error:
        if not isinstance(error.__cause__, jax.errors.JAXTypeError):
            raise
    each = [one(*rows) for rows in zip(*stacked, strict=True)]
    return [np.stack([np.asarray(array) for array in column]) for column in zip(*each, strict=True)]


def _signatures(model: Model) -> dict[Operation, bytes]:
    """For every op that computes a hash of everything that determines its results, except the network's inputs."""
    of_value: dict[SSAValue, bytes] = {arg: f"input {i}".encode() for i, arg in enumerate(model.body.args)}
    found: dict[Operation, bytes] = {}
    for op in model.ops:
        digest = hashlib.blake2b(digest_size=16)
        for part in _description(op, model):
            digest.update(part)
        for value in op.operands:
            digest.update(of_value[value])
        for i, result in enumerate(op.results):
            of_value[result] = digest.digest() + bytes([i])
        if isinstance(op, ShapedOp):
            found[op] = digest.digest()
    return found


def _description(op: Operation, model: Model) -> Iterator[bytes]:
    """An op without its operands: kind, attributes, types, and the values of a constant."""
    yield repr(described(op)).encode()
    if isinstance(op, TopWeight):
        array = model.weights[op_name(op)]
        yield repr((array.shape, str(array.dtype))).encode()
        yield _digest(array)


@once
def _digest(array: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
