"""What every op of a lowered module loses: accumulated from the network's inputs on, and alone.

Alone means on ideal operands: what the float network has there, rounded once to the type in which the op reads it. Its
result is held against that of the float op on the same rounded operands, so that what a coarse scale takes away is the
loss of the op that has it, not of those that read its result.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Operation, SSAValue

from tpusim.inference import dequantised, quantisation, run
from tpusim.inference.executor import Environment, Steps, check_inputs, last_uses, real_of
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, is_tensor, storage_dtype, uniform_of
from tpusim.ops.base import TopOp, TpuOp
from tpusim.ops.structure import TopInput
from tpusim.verify.channels import channels_of, slices_of
from tpusim.verify.similarity import cosine_similarity, sqnr_db

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Loss:
    """One tensor of the lowered network beside the float one of its name.

    name: of tensor and op. op: class of the lowered op, as in "tpu.Conv2D". stored: dtype of the result. cosine, sqnr
    (dB): with all errors that came before. alone, sqnr_alone: of the op by itself. channels: along axis 1; dead: those
    of them that are zero here and are not in the float network. ends: the share of values at the end of the integer
    range. scale: of one integer step; 0 for floats. infinite: the share of values that are infinite or no number here
    and are numbers in the float network. largest, wanted: the largest magnitude that the op gives by itself, and that
    the float op gives there.
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
    """One line per tensor that both networks have, in program order, over all of these samples together.

    top: a top module in any state; tpu: what it was lowered to, without layer groups. samples: by input name.
    """
    results = {value_name(value): (op, value) for op, value in _results(tpu)}
    if len(samples) == 1:  # one tensor after the other: those of a large network are not all kept
        found = {name: _loss(*results[name], arrays) for name, arrays in _lost(top, tpu, samples[0])}
    else:
        each = [dict(_lost(top, tpu, sample)) for sample in samples]
        found = {name: _loss(*results[name], _joined([one[name] for one in each])) for name in each[0]}
    return [found[name] for name in results if name in found]


Arrays = tuple[np.ndarray, ...]
"""Of one tensor: as stored, the values it stands for, the float ones; of its op alone, and the float ones of that."""


def _lost(top: Model, tpu: Model, inputs: Tensors) -> Iterator[tuple[str, Arrays]]:
    """The arrays of every tensor that both networks compute, in the order of the float one."""
    floats, found, known = run(top, inputs), run(tpu, inputs), quantisation(tpu)
    computed, operands = _alone(tpu, inputs, floats)
    names = {value_name(value) for _, value in _results(tpu)}

    def real(name: str, stored: Tensors) -> np.ndarray:
        return real_of(stored[name], *known[name]) if name in known else stored[name]

    for name, wanted in _wanted_alone(top, tpu, inputs, operands):
        if name in computed and name in names and floats[name].size == found[name].size:
            yield name, (found[name], real(name, found), floats[name], real(name, computed), wanted)


def _joined(rows: Sequence[Arrays]) -> Arrays:
    """Arrays of several samples as those of one."""
    return rows[0] if len(rows) == 1 else tuple(
        np.concatenate([np.atleast_1d(array) for array in column]) for column in zip(*rows, strict=True)
    )  # fmt: skip


def isolated(
    top: Model, tpu: Model, inputs: Tensors, names: Collection[str] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(what every op of the lowered network gives by itself, what its float op gives there), in program order.

    Both are real values by tensor name, as `losses` holds them against each other under `alone`. names: of which
    tensors, None: of all.
    """
    stored, operands = _alone(tpu, inputs, run(top, inputs))
    asked = stored.keys() if names is None else set(names)
    wanted = {n: array for n, array in _wanted_alone(top, tpu, inputs, operands) if n in asked}
    order = [name for name in (value_name(value) for _, value in _results(tpu)) if name in wanted]
    computed = dequantised(tpu, {name: stored[name] for name in order})
    return computed, {name: wanted[name] for name in order}


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
    """The share of values that are infinite or no number, and are numbers in `wanted`."""
    lost = ~np.isfinite(real.astype(np.float32).ravel()) & np.isfinite(wanted.astype(np.float32).ravel())
    return float(np.count_nonzero(lost)) / max(lost.size, 1)


def _largest(values: np.ndarray) -> float:
    """The largest magnitude of those that are numbers."""
    sizes = np.abs(values.astype(np.float32))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _similarity(found: np.ndarray, wanted: np.ndarray) -> tuple[float, float]:
    """(cosine, signal to noise ratio in dB); equal tensors have 1 and infinity."""
    found, wanted = (array.astype(np.float32).ravel() for array in (found, wanted))
    if np.array_equal(found, wanted):
        return 1.0, float("inf")
    with np.errstate(all="ignore"):
        return cosine_similarity(found, wanted), sqnr_db(wanted, found)


def _alone(tpu: Model, inputs: Tensors, floats: Tensors) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Every result, its op executed on ideal operands, and every tensor as an ideal operand, as they are stored."""
    steps, ideal = Steps.of(tpu), Environment()
    ideal.update(zip(tpu.body.args, check_inputs(tpu, inputs), strict=True))
    found, rounded = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for op in tpu.ops:
        steps.step(op, ideal)
        if isinstance(op, TpuOp | TopInput):
            results = {v: np.asarray(ideal[v]) for v in op.results if is_tensor(v)}
            ideal.update((v, _ideal(v, array, floats)) for v, array in results.items())
            found |= {value_name(v): array for v, array in results.items()}
            rounded |= {value_name(v): np.asarray(ideal[v]) for v in results}
    return found, rounded


def _wanted_alone(top: Model, tpu: Model, inputs: Tensors, operands: Tensors) -> Iterator[tuple[str, np.ndarray]]:
    """What every float op gives on those operands; a tensor that is not among them is as its op gave it."""
    known, left = quantisation(tpu), last_uses(top)
    steps, values = Steps.of(top), Environment()
    values.update(zip(top.body.args, check_inputs(top, inputs), strict=True))
    for op in top.ops:
        steps.step(op, values)
        for value in op.results if isinstance(op, TopOp) else ():
            name, result = value_name(value), np.asarray(values[value])
            operand = operands.get(name)
            if operand is not None and operand.size == result.size:
                real = real_of(operand, *known[name]) if name in known else operand
                values[value] = real.reshape(result.shape).astype(result.dtype)
            yield name, result
        for value in left.get(op, ()):
            values.pop(value, None)


def _ideal(value: SSAValue, computed: np.ndarray, floats: Tensors) -> np.ndarray:
    """The float tensor of that name as the value is stored; what was computed if there is none (casts)."""
    wanted = floats.get(value_name(value))
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


def least_similarity(found: Tensors, wanted: Tensors, names: Sequence[str]) -> float:
    """The smallest similarity of these tensors of two networks (`similarity`); 0 if one is no number."""
    return float(np.nan_to_num(np.min([similarity(found[name], wanted[name]) for name in names]), nan=0.0))


def similarity(found: np.ndarray, wanted: np.ndarray) -> float:
    """The cosine; less if the slices along an axis behind the first are less alike on average.

    A slice counts by the energy of its error as a share of its own: 1 - |found - wanted|^2 / |wanted|^2, at least 0. So
    scores from 0 to 1 count beside boxes from 0 to 640, whichever axis both lie along.
    """
    kept = (_mean_kept(*rows) for rows in slices_of(found, wanted))
    return min((_similarity(found, wanted)[0], *kept))


def _mean_kept(found: np.ndarray, wanted: np.ndarray) -> float:
    errors = np.sum((found - wanted) ** 2, axis=1) / np.sum(wanted * wanted, axis=1)
    kept: np.ndarray = 1.0 - np.minimum(errors, 1.0)
    return float(kept.mean())
