"""Rewrites of a network with measured factors: SmoothQuant and softmax correction (numerics.md 15.6).

Both keep the float results up to rounding, and make the tensors fit 8 bits better. They run after canonicalisation, on
request, and before calibration, which measures the rewritten network. Samples are read one at a time; only a maximum
per channel and a loss per factor are kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from tpusim.errors import CalibrationError, ConfigError, option
from tpusim.inference import run
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model
from tpusim.ir.text import verify
from tpusim.ops.patterns.smoothing import Smoothing, attentions, divide_softmax, smoothings, split_norms

Array = np.ndarray
Samples = Iterable[Mapping[str, Array]]

ALPHAS = [float(alpha) for alpha in np.arange(0, 1.05, 0.05)]
"""SmoothQuant's exponent: the share of the differences between channels that moves to the matrices."""
STEPS = 20
"""Limits from the largest channel's range down to a twentieth of it; larger channels are divided down to a limit."""


def smoothquant(model: Model, samples: Samples) -> tuple[Model, list[str]]:
    """A module whose channels are divided by the best factors for quantisation, and the names of divided tensors.

    Each tensor gets the factors with the least mean square error of the products that read it, with both operands
    quantised to 8 bits; the first of equal ones. samples are read twice. As `run_calibration.py --sq`.
    """
    work = model.clone()
    split_norms(work)
    found = smoothings(work)
    if not found:
        return model, []
    largest = _largest(work, found, samples)
    candidates = [_factors(one.matrices(work), largest[op_name(one.op)]) for one in found]
    losses = [np.zeros(len(factors)) for factors in candidates]
    for sample in samples:
        tensors = run(work, sample)
        for one, factors, loss in zip(found, candidates, losses, strict=True):
            name = op_name(one.op)
            loss += _losses(tensors[name], one.matrices(work), factors, largest[name])
    for one, factors, loss in zip(found, candidates, losses, strict=True):
        one.apply(work, factors[int(np.argmin(loss))])
    verify(work.module, "after smoothquant")
    return work, [op_name(one.op) for one in found]


def _largest(model: Model, found: Sequence[Smoothing], samples: Samples) -> dict[str, Array]:
    """The largest magnitude in each channel, by tensor."""
    largest: dict[str, Array] = {}
    for sample in samples:
        tensors = run(model, sample)
        for one in found:
            name, channels = op_name(one.op), tensors[op_name(one.op)].shape[-1]
            seen = np.abs(tensors[name].reshape(-1, channels)).max(axis=0)
            largest[name] = np.maximum(seen, largest[name]) if name in largest else seen
    if not largest:
        raise CalibrationError("smoothquant: at least one sample is required, got none")
    return largest


def _factors(matrices: Sequence[Array], largest: Array) -> list[Array]:
    """The candidate factors, float32: by exponents, then by limits."""
    rows = np.max([np.abs(matrix).max(axis=1) for matrix in matrices], axis=0)
    top = largest.max()
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [largest**alpha / rows ** (1 - alpha) for alpha in ALPHAS]
        limits = (top * np.float32(1 + step) / np.float32(STEPS) for step in range(STEPS))
        found += [np.maximum(np.float32(1), largest / limit) for limit in limits]
    return [np.where(np.isfinite(factor), factor, np.float32(1)) for factor in found]


def _losses(x: Array, matrices: Sequence[Array], factors: Sequence[Array], largest: Array) -> Array:
    """The mean square errors of the products for each of the factors, added up."""
    exact = [x @ matrix for matrix in matrices]
    found = np.zeros(len(factors))
    for number, factor in enumerate(factors):
        if not factor.all():  # of a channel that is always zero
            found[number] = np.inf
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            near = _quantised(x / factor, (largest / factor).max())
            for matrix, wanted in zip(matrices, exact, strict=True):
                scaled = matrix * factor.reshape(-1, 1)
                found[number] += np.mean(
                    (near @ _quantised(scaled, np.abs(scaled).max(axis=1, keepdims=True)) - wanted) ** 2
                )
    return np.where(np.isnan(found), np.inf, found)  # beyond f32


def _quantised(values: Array, limit: Array) -> Array:
    """Values quantised to 127 steps of a limit and dequantised; zeros where the limit is zero."""
    step = limit / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.clip(np.round(values / step), -127, 127)
    return np.where(np.isfinite(whole), whole, 0) * step


def correct_softmax(model: Model, samples: Samples) -> tuple[Model, list[str]]:
    """A module whose softmaxes in attentions are scaled to reach 1 on average, and the names of these softmaxes.

    Each softmax is divided by the mean of its largest values, by head, and the product after it is multiplied. The
    quotient is quantised with threshold 1. As `run_calibration.py --smc`.
    """
    work = model.clone()
    found = list(attentions(work))
    if not found:
        return model, []
    count, sums = 0, {op_name(softmax): np.float32(0) for softmax, _ in found}
    samples = list(samples) if not hasattr(samples, "__len__") else samples
    number = np.float32(len(samples))  # type: ignore[arg-type]
    for sample in samples:
        tensors = run(work, sample)
        for name in sums:
            sums[name] = sums[name] + tensors[name].max(axis=-1, keepdims=True) / number
        count += 1
    if not count:
        raise CalibrationError("softmax_correction: at least one sample is required, got none")
    for softmax, product in found:
        values = np.asarray(sums[op_name(softmax)])
        head = values.ndim - 3
        axes = tuple(axis for axis in range(values.ndim) if axis != head)
        divide_softmax(work, softmax, product, values.mean(axis=axes, keepdims=True))
    verify(work.module, "after softmax_correction")
    return work, list(sums)


REWRITES: dict[str, Callable[[Model, Samples], tuple[Model, list[str]]]] = {
    "smoothquant": smoothquant,
    "softmax_correction": correct_softmax,
}
"""The rewrites by their names in --also, in the order of execution."""


BIASES = "bias_correction"


def patterns_of(also: Sequence[str]) -> tuple[str, ...]:
    """The names that are patterns of the canonicalisation. Raises ConfigError for patterns that depend on a chip."""
    if BIASES in also:
        raise ConfigError(
            f"{option('also', BIASES)}: it depends on the chip and on a calibration; run `tpusim correct-bias` on "
            "2_canonical.mlir, and then `tpusim run --from lower`"
        )
    return tuple(name for name in also if name not in REWRITES)


def measured_rewrites(also: Sequence[str]) -> tuple[str, ...]:
    """The names that are rewrites by samples."""
    return tuple(name for name in also if name in REWRITES)


def rewritten(model: Model, also: Sequence[str], samples: Samples) -> tuple[Model, dict[str, int]]:
    """The rewritten module, and the changed tensors by rewrite. Raises ConfigError if a rewrite changes none."""
    counts: dict[str, int] = {}
    for name, rewrite in REWRITES.items():
        if name in also:
            model, tensors = rewrite(model, samples)
            if not tensors:
                raise ConfigError(f"{option('also', name)}: the network has no tensor that it applies to; leave it out")
            counts[name] = len(tensors)
    return model, counts
