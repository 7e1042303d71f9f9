"""The error of every op of a lowered module: accumulated from the network's inputs on, and alone.

Alone means on ideal operands: the tensors of the float network, rounded once to the type in which the op reads them.
The result is compared with that of the float op on the same rounded operands. So the error of a coarse scale counts for
the op whose result has that scale, not for the ops that read the result.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.inference import quantisation
from tpusim.inference.executor import real_of
from tpusim.inference.walk import Walk
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, is_tensor, storage_dtype, uniform_of
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.structure import TopInput
from tpusim.verify.channels import channels_of
from tpusim.verify.similarity import cosine_similarity, sqnr_db

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Loss:
    """One tensor of the lowered network compared with the float tensor of the same name.

    name: of tensor and op. op: class of the lowered op, as in "tpu.Conv2D". stored: dtype of the result. cosine, sqnr
    (dB): including the errors of earlier ops. alone, sqnr_alone: of the op alone. channels: along axis 1; dead: the
    channels that are zero here but not in the float network. ends: the share of values at an end of the integer range.
    scale: of one integer step; 0 for floats. infinite: the share of values that are not finite here but are in the
    float network. largest, wanted: the largest magnitude of the op alone, and of the float op on the same operands.
    """

    name: str
    op: str
    stored: str
    cosine: float
    sqnr: float
    alone: float
    sqnr_alone: float
    channels: int
    dead: int
    ends: float
    scale: float
    infinite: float = 0.0
    largest: float = 0.0
    wanted: float = 0.0


def losses(top: Model, tpu: Model, samples: Sequence[Tensors]) -> list[Loss]:
    """One Loss per tensor that both networks have, in program order, over all of these samples together.

    top: a top module in any state; tpu: the module lowered from it, without layer groups. samples: by input name.
    """
    results = {value_name(value): (op, value) for op, value in _results(tpu)}
    found = dict[str, Loss]()
    for rows in zip(*(_lost(top, tpu, sample) for sample in samples), strict=True):
        name = rows[0][0]
        found[name] = _loss(*results[name], _joined([arrays for _, arrays in rows]))
    return [found[name] for name in results if name in found]


Arrays = tuple[np.ndarray, ...]
"""Arrays of one tensor: as stored, dequantised, float; of its op alone dequantised, and of the float op."""


def _lost(top: Model, tpu: Model, inputs: Tensors) -> Iterator[tuple[str, Arrays]]:
    """The arrays of every tensor that both networks compute, in the order of the float one."""
    known, both = quantisation(tpu), _names_of_both(top, tpu)
    lowered, floats = Walk(tpu, inputs, both), Walk(top, inputs, both)

    def real(name: str, stored: np.ndarray) -> np.ndarray:
        return real_of(stored, *known[name]) if name in known else stored

    for name, computed, wanted in _alone(top, tpu, inputs, floats):
        stored, whole = lowered.take(name), floats.take(name)
        if whole.size == stored.size:
            yield name, (stored, real(name, stored), whole, real(name, computed), wanted)


def _joined(rows: Sequence[Arrays]) -> Arrays:
    """Arrays of several samples as those of one."""
    return rows[0] if len(rows) == 1 else tuple(
        np.concatenate([np.atleast_1d(array) for array in column]) for column in zip(*rows, strict=True)
    )  # fmt: skip


def isolated(
    top: Model, tpu: Model, inputs: Tensors, names: Collection[str] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(results of every op of the lowered network alone, results of its float op), in program order.

    Both are real values by tensor name, as `losses` compares them under `alone`. names: of these tensors, None: of all.
    """
    asked, known = _names_of_both(top, tpu) if names is None else set(names), quantisation(tpu)
    computed, wanted = dict[str, np.ndarray](), dict[str, np.ndarray]()
    floats = Walk(top, inputs, _names_of_both(top, tpu))
    for name, stored, float_one in _alone(top, tpu, inputs, floats):
        floats.take(name)
        if name in asked:
            computed[name] = real_of(stored, *known[name]) if name in known else stored
            wanted[name] = float_one
    order = [name for name in (value_name(value) for _, value in _results(tpu)) if name in wanted]
    return {name: computed[name] for name in order}, {name: wanted[name] for name in order}


def _results(tpu: Model) -> Iterator[tuple[TpuOp, SSAValue]]:
    for op in tpu.ops:
        if isinstance(op, TpuOp):
            yield from ((op, v) for v in op.results if is_tensor(v))


def _loss(op: TpuOp, value: SSAValue, arrays: Arrays) -> Loss:
    stored, real, wanted, *alone = arrays
    channels = channels_of(stored, real, wanted)
    uniform = uniform_of(value)
    return Loss(
        value_name(value), op.name, str(stored.dtype), *_similarity(real, wanted), *_similarity(*alone),
        channels.count, channels.dead,
        *((0.0, 0.0) if uniform is None else (channels.saturated, uniform.scale.data)),
        0.0 if uniform is not None else infinite_share(real, wanted), *map(_largest, alone),
    )  # fmt: skip


def infinite_share(real: np.ndarray, wanted: np.ndarray) -> float:
    """The share of values that are not finite but are finite in `wanted`."""
    lost = ~np.isfinite(real.astype(np.float32).ravel()) & np.isfinite(wanted.astype(np.float32).ravel())
    return float(np.count_nonzero(lost)) / max(lost.size, 1)


def _largest(values: np.ndarray) -> float:
    """The largest finite magnitude."""
    sizes = np.abs(values.astype(np.float32))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _similarity(found: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """(cosine, signal to noise ratio in dB); equal tensors have 1 and infinity."""
    found, wanted = (array.astype(np.float32).ravel() for array in (found, wanted))
    if np.array_equal(found, wanted):
        return 1.0, float("inf")
    with np.errstate(all="ignore"):
        return cosine_similarity(found, wanted), sqnr_db(wanted, found)


def _names_of_both(top: Model, tpu: Model) -> set[str]:
    """Of tensors that both networks compute."""
    return {value_name(v) for op in top.ops if isinstance(op, TopOp) for v in op.results} & {
        value_name(value) for _, value in _results(tpu)
    }


def _alone(top: Model, tpu: Model, inputs: Tensors, floats: Walk) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Every tensor of both networks: its op's result on ideal operands as stored, and the float op's result.

    In the order of the float network. floats: a walk over the float network, which provides the ideal operands.
    """
    rounded, both = dict[str, np.ndarray](), _names_of_both(top, tpu)
    inputs_too = both | {value_name(op.output) for op in tpu.ops if isinstance(op, TopInput)}

    def ideal(value: SSAValue, computed: np.ndarray) -> np.ndarray:
        found, name = _ideal(value, computed, floats.see(value_name(value))), value_name(value)
        if name in inputs_too:
            rounded[name] = found
        return found

    lowered, known = Walk(tpu, inputs, inputs_too, ideal), quantisation(tpu)

    def as_rounded(value: SSAValue, result: np.ndarray) -> np.ndarray:
        name = value_name(value)
        if lowered.see(name) is None or rounded[name].size != result.size:
            return result
        operand = rounded[name]
        real = real_of(operand, *known[name]) if name in known else operand
        return real.reshape(result.shape).astype(result.dtype)

    wanted = Walk(top, inputs, both, as_rounded)
    for op in top.ops:
        for name in (value_name(v) for v in op.results if isinstance(op, TopOp)):
            if name in both:
                result = wanted.take(name)
                yield name, lowered.take(name), result
                rounded.pop(name)


def _ideal(value: SSAValue, computed: np.ndarray, wanted: np.ndarray | None) -> np.ndarray:
    """The float tensor rounded to the value's type; for casts, which have no float tensor, the computed value."""
    if wanted is None or wanted.size != computed.size:
        return computed
    wanted, uniform = wanted.reshape(computed.shape), uniform_of(value)
    if uniform is None:
        with np.errstate(over="ignore"):  # a mask of -1e9 is an infinity in F16
            return wanted.astype(storage_dtype(element_of(value)))
    limits = np.iinfo(computed.dtype)
    steps = np.rint(wanted.astype(np.float64) / uniform.scale.data) + uniform.zero_point.value.data
    return np.clip(steps, limits.min, limits.max).astype(computed.dtype)


def results_of(model: Model) -> list[str]:
    """Names of the network's results, by the ops that make them."""
    return [op_name(v.owner) for v in model.results if isinstance(v.owner, Operation)]
