"""Normalisation over channels, batches, groups and trailing axes (numerics 11.2; ONNX)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tpusim_kernels.base import Array, along_axis, divide, f32, kernel, pin
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.lut_bf16 import lut_mantissa
from tpusim_kernels.prim.bf16 import bf16_add, bf16_mul, stored_bf16, sum_in_order
from tpusim_kernels.prim.inorder import added_up, float_sum, float_sum_of_squares, sum_in_lanes
from tpusim_kernels.prim.smallfloat import to_bf16, to_f16, to_finite_bf16


@kernel(static=("size", "alpha", "beta", "bias"))
def lrn_float(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    """Compute y = x / (bias + alpha/size * sum x^2)^beta in f32, the bits of oneDNN 3.1 (U-37).

    x (n, c, ...); the sum runs over the existing channels of c - floor((size-1)/2) .. c + floor((size-1)/2). For an
    even size that is one channel fewer than ONNX LRN says; the closed simulator agrees with the interpreter.

    With 8k >= 16 channels, size 5 and beta 0.75, oneDNN uses one sliding sum and another form of the power.
    """
    x = jnp.moveaxis(f32(x), 1, 0)
    around = (size - 1) // 2
    slides = size == 5 and beta == 0.75 and len(x) % 8 == 0 and len(x) >= 16
    if slides:
        base = jnp.float32(bias) + _sliding(x) * divide(jnp.float32(alpha), jnp.float32(size))
        y = divide(x, jnp.sqrt(jnp.sqrt(base * base * base)))
    else:
        squares = jnp.pad(pin(x * x), [(around, around)] + [(0, 0)] * (x.ndim - 1))
        total = sum((squares[i : i + len(x)] for i in range(1, 2 * around + 1)), start=squares[: len(x)])
        base = jnp.float32(bias) + divide(jnp.float32(alpha) * total, jnp.float32(size))
        y = x * _inverse_power(base, beta)
    return jnp.moveaxis(y, 0, 1)


def _sliding(x: Array) -> Array:
    """The sums of five squares around each element of axis 0; each step adds the new square, then subtracts the old."""
    padded = jnp.pad(x, [(3, 2)] + [(0, 0)] * (x.ndim - 1))

    def step(total: Array, i: Array) -> tuple[Array, Array]:
        first, last = padded[i], padded[i + 5]
        total = total - first * first + last * last
        return total, total

    begin = pin(x[0] * x[0]) + x[1] * x[1]
    return lax.scan(step, begin, jnp.arange(len(x)))[1]


def _inverse_power(base: Array, beta: float) -> Array:
    """base^-beta in f32; 3/4 by roots."""
    if beta == 0.75:
        return jnp.sqrt(1 / (jnp.sqrt(base) * base))
    return 1 / jnp.power(base.astype(jnp.float64), beta).astype(jnp.float32)


@kernel(static=("size", "alpha", "bias"))
def lrn_tables(x: Array, table: Array, mantissa: Array, *, size: int, alpha: float, bias: float) -> Array:
    """Compute an LRN, y = v^-beta * x, every step rounded to BF16 and the power by table.

    x f32 (n, c, ...) holding BF16 values; table and mantissa are those of the power -beta; size is odd.
    e = BF16(alpha/size) * x^2; t = e[c] + e[c+1] + e[c-1] + e[c+2] ... over the existing channels, in this order;
    v = t + BF16(bias). Products are bf16_mul, sums bf16_add (numerics 8.2), by U-39.
    """
    if size % 2 == 0:
        raise ValueError(f"an odd size is required, got {size}")
    x, around, channels = f32(x), size // 2, x.shape[1]
    a, k = (jnp.float32(float(stored_bf16(value))) for value in (alpha / size, bias))
    pads = [(0, 0, 0)] * x.ndim
    pads[1] = (around, around, 0)  # adding zero changes nothing
    e = lax.pad(bf16_mul(a, bf16_mul(x, x)), jnp.float32(0), pads)
    total = lax.slice_in_dim(e, around, around + channels, axis=1)
    for step in range(1, around + 1):
        for start in (around + step, around - step):
            total = bf16_add(total, lax.slice_in_dim(e, start, start + channels, axis=1))
    return bf16_mul(lut_mantissa(bf16_add(total, k), table, mantissa, log=False), x)


@kernel(static=("epsilon",))
def batchnorm_float(x: Array, gamma: Array, beta: Array, mean: Array, var: Array, *, epsilon: float) -> Array:
    """Compute y = (x - mean[c])/sqrt(var[c] + epsilon)*gamma[c] + beta[c] in f32, channels on axis 1.

    x (n, c, ...); gamma, beta, mean, var (C,). Source: ONNX BatchNormalization.
    """
    x = f32(x)
    gamma, beta, mean, var = (along_axis(f32(p), x.ndim, 1) for p in (gamma, beta, mean, var))
    return divide(x - mean, jnp.sqrt(var + jnp.float32(epsilon))) * gamma + beta


def _mean(rows: Array) -> Array:
    """The f32 mean over the last axis (..., 1): the sum in index order, divided."""
    return divide(float_sum(jnp.moveaxis(rows, -1, 0))[..., None], jnp.float32(rows.shape[-1]))


def _mean_of_shares(rows: Array) -> Array:
    """As `_mean`, but every term is multiplied by f32(1/n), and even and odd indices are summed separately."""
    share = np.float32(1) / np.float32(rows.shape[-1])
    return sum_in_lanes(pin(jnp.moveaxis(rows, -1, 0) * share), 2)[..., None]


def _normalised(rows: Array, epsilon: float, mean: Callable[[Array], Array] = _mean) -> Array:
    """(x - mean)/sqrt(variance + epsilon) over the last axis, biased variance, f32 step by step.

    Products are rounded before they are added (U-36, tests/test_as_upstream.py).
    """
    d = rows - mean(rows)
    variance = mean(pin(d * d))
    return pin(d * divide(jnp.ones_like(variance), jnp.sqrt(variance + jnp.float32(epsilon))))


def _by_channel(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """y*w[c] + b[c], channels on axis 1, the product rounded; weight, bias (C,) or None."""
    y = y if weight is None else pin(y * along_axis(f32(weight), y.ndim, 1))
    return y if bias is None else y + along_axis(f32(bias), y.ndim, 1)


@kernel(static=("axis", "epsilon"))
def layernorm_float(x: Array, weight: Array | None, bias: Array | None, *, axis: int, epsilon: float) -> Array:
    """Compute y = (x - mean)*rstd*w + b over the axes from `axis` on, in f32 (numerics 11.2, ONNX LayerNormalization).

    rstd = 1/sqrt(variance + epsilon), variance biased; weight, bias of a shape that broadcasts to x.shape[axis:], or
    None.
    """
    y = _normalised(f32(x).reshape(*x.shape[:axis], -1), epsilon).reshape(x.shape)
    y = y if weight is None else pin(y * _leading(f32(weight), x.ndim))
    return y if bias is None else y + _leading(f32(bias), x.ndim)


@kernel(static=("epsilon", "dtype"))
def rmsnorm_float(x: Array, weight: Array | None, *, epsilon: float, dtype: str = "float32") -> Array:
    """Compute y = x/sqrt(mean(x^2) + epsilon) * w over the last axis, in f32 (numerics 11.2, ONNX RMSNormalization).

    weight broadcasts to the last axis, or None. dtype: the type to which the chip rounds the quotient before the
    product.
    """
    x = f32(x)
    y = divide(x, jnp.sqrt(_mean(pin(x * x)) + jnp.float32(epsilon)))
    y = y.astype(dtype).astype(jnp.float32)
    return y if weight is None else y * _leading(f32(weight), x.ndim)


@kernel(static=("epsilon", "narrow"))
def rmsnorm_chip(x: Array, weight: Array | None, *, epsilon: float, narrow: str) -> Array:
    """Compute R(R(x * rstd) * R(w)) over the last axis as BM chips do; R rounds to float16 or bfloat16 (numerics 11.2).

    rstd = 1/sqrt(mean(x^2) + epsilon) in f32. The sum of squares is in f64, so that its order does not count.
    """
    rounded, x = to_f16 if narrow == "float16" else to_bf16, f32(x)
    squares = jnp.square(x.astype(jnp.float64))
    mean = jnp.mean(squares, axis=-1, keepdims=True).astype(jnp.float32)
    rstd = divide(jnp.ones_like(mean), jnp.sqrt(mean + jnp.float32(epsilon)))
    y = rounded(x * rstd)
    return y if weight is None else rounded(y * _leading(rounded(f32(weight)), x.ndim))


@kernel(static=("epsilon",))
def rmsnorm_bf16(x: Array, weight: Array | None, *, epsilon: float) -> Array:
    """Compute the RMSNorm of TPU-MLIR's interpreter in BF16: as `layernorm_bf16`, without the mean."""
    x, axes = f32(x), (x.ndim - 1,)
    average = to_bf16(jnp.float32(1.0 / x.shape[-1]))
    mean = to_bf16(_total_bf16(to_bf16(to_bf16(x * x) * average), axes) + to_bf16(jnp.float32(epsilon)))
    rstd = to_bf16(divide(jnp.ones_like(mean), to_bf16(jnp.sqrt(mean))))
    y = to_bf16(x * rstd)
    return y if weight is None else to_bf16(y * _leading(f32(weight), x.ndim))


def _leading(p: Array, ndim: int) -> Array:
    """A parameter of the trailing axes with leading axes of length 1."""
    return p.reshape((1,) * (ndim - p.ndim) + p.shape)


def _total_bf16(terms: Array, axes: tuple[int, ...]) -> Array:
    """The sum in double, rounded to BF16."""
    return to_bf16(jnp.sum(terms.astype(jnp.float64), axis=axes, keepdims=True).astype(jnp.float32))


def _deviations_bf16(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """(BF16(1/N), BF16(x - mean)) over `axes`, the mean BF16(sum x*BF16(1/N))."""
    average = to_bf16(jnp.float32(1.0 / math.prod(x.shape[axis] for axis in axes)))
    return average, to_bf16(x - _total_bf16(x.astype(jnp.float64) * average.astype(jnp.float64), axes))


@kernel(static=("axis", "epsilon"))
def layernorm_bf16(x: Array, weight: Array | None, bias: Array | None, *, axis: int, epsilon: float) -> Array:
    """Compute the layer norm of BM chips in BF16: every step rounded to BF16, sums in double (numerics 11.2).

    avg = BF16(1/N); mean = BF16(sum x*avg); d = BF16(x - mean);
    v = BF16(BF16(sum BF16(BF16(d^2)*avg)) + BF16(epsilon)); rstd = BF16(1/BF16(sqrt v)); BF16(d*rstd), then the
    weight's product and the bias's sum, each BF16. Operands hold BF16 values as f32. Decision: the two sums are in
    double, so that their order cannot change the rounding.
    """
    x, axes = f32(x), tuple(range(axis, x.ndim))
    average, d = _deviations_bf16(x, axes)
    variance = to_bf16(_total_bf16(to_bf16(to_bf16(d * d) * average), axes) + to_bf16(jnp.float32(epsilon)))
    rstd = to_bf16(divide(jnp.ones_like(variance), to_bf16(jnp.sqrt(variance))))
    y = to_bf16(d * rstd)
    y = y if weight is None else to_bf16(y * _leading(f32(weight), x.ndim))
    return y if bias is None else to_bf16(y + _leading(f32(bias), x.ndim))


@kernel(static=("axis", "epsilon"))
def layernorm_tables(
    x: Array, weight: Array | None, bias: Array | None, table: Array, mantissa: Array, *, axis: int, epsilon: float
) -> Array:
    """Compute a layer norm, every step rounded to BF16 and x^-0.5 by table (numerics 11.2).

    Operands hold BF16 values as f32; table and mantissa are those of the power -0.5. avg = BF16(1/N);
    mean = BF16(sum x*avg); d = BF16(x - mean); v = BF16(BF16(sum BF16(BF16(d^2)*avg)) + BF16(epsilon));
    rstd = v^-0.5 by table; BF16(d*rstd), then the weight's product and the bias's sum, each BF16. Both sums are f32 in
    index order. Decision: the single steps are bf16_add and bf16_mul, which differ from a plain rounding in subnormals
    only (they count as zero).
    """
    x = f32(x)
    rows = x.reshape(*x.shape[:axis], -1)
    average = jnp.float32(float(stored_bf16(1.0 / rows.shape[-1])))

    def total(terms: Array, factor: Array) -> Array:
        return to_finite_bf16(sum_in_order(jnp.moveaxis(terms, -1, 0), factor)[..., None])

    d = bf16_add(rows, -total(rows, average))
    squares = bf16_mul(bf16_mul(d, d), average)
    variance = bf16_add(total(squares, jnp.float32(1)), jnp.float32(float(stored_bf16(epsilon))))
    y = bf16_mul(d, lut_mantissa(variance, table, mantissa, log=False)).reshape(x.shape)
    y = y if weight is None else bf16_mul(y, _leading(f32(weight), x.ndim))
    return y if bias is None else bf16_add(y, _leading(f32(bias), x.ndim))


@kernel(static=("epsilon",))
def pixelnorm_float(x: Array, weight: Array | None, bias: Array | None, *, epsilon: float) -> Array:
    """Compute y = (x - mean)*rstd*w[c] + b[c] over axis 1, in f32 step by step (numerics 11.2).

    x (n, c, ...); weight, bias of C elements or None. rstd = 1/sqrt(variance + epsilon), variance biased.
    """
    rows = jnp.moveaxis(f32(x), 1, -1)
    return _by_channel(jnp.moveaxis(_normalised(rows, epsilon), -1, 1), *_flat(weight, bias))


@kernel(static=("epsilon",))
def pixelnorm_bf16(x: Array, weight: Array | None, bias: Array | None, *, epsilon: float) -> Array:
    """Compute the norm over axis 1 with the steps of `groupnorm_bf16`; weight, bias of C elements or None."""
    return _by_channel_bf16(_normalised_bf16(f32(x), 1, epsilon), *_flat(weight, bias))


@kernel(static=("epsilon", "scale"))
def pixelnorm_int8(x: Array, weight: Array | None, bias: Array | None, *, epsilon: float, scale: float) -> Array:
    """Compute the norm of bytes over axis 1, every step rounded to F16 (numerics 11.2).

    x int8 or uint8 (n, c, ...), its numbers x*scale; the zero point cancels. Sums of x and x^2 in int32;
    avg = F16(1/C); mean = F16(F16(sum x)*avg);
    v = F16(F16(F16(sum x^2)*avg) - F16(mean^2)), not below 0; v = F16(v*F16(s*s));
    rstd = F16(F16(1/sqrt(F16(v + epsilon)))*s); y = F16(F16(x - mean)*rstd), then the weight's product and the bias's
    sum. s, epsilon in F16. A sum of squares of 65520 or more is infinite, and the result then 0 before the bias.
    """
    average, eps, step = (to_f16(jnp.float32(number)) for number in (1.0 / x.shape[1], epsilon, scale))
    whole = x.astype(jnp.int32)
    totals = (jnp.sum(terms, axis=1, keepdims=True) for terms in (whole, whole * whole))
    mean, squares = (to_f16(pin(to_f16(total.astype(jnp.float32)) * average)) for total in totals)
    variance = jnp.maximum(to_f16(squares - to_f16(pin(mean * mean))), 0)
    shifted = to_f16(to_f16(pin(variance * to_f16(pin(step * step)))) + eps)
    rstd = to_f16(pin(to_f16(divide(jnp.ones_like(shifted), jnp.sqrt(shifted))) * step))
    y = to_f16(pin(to_f16(f32(x) - mean) * rstd))
    weight, bias = (v if v is None else along_axis(f32(v), x.ndim, 1) for v in _flat(weight, bias))
    y = y if weight is None else to_f16(pin(y * weight))
    return y if bias is None else to_f16(y + bias)


def _flat(*values: Array | None) -> list[Array | None]:
    """Weights without their axes of length 1."""
    return [v if v is None else v.reshape(-1) for v in values]


@kernel(static=("epsilon",))
def instancenorm_by_factor(x: Array, weight: Array, bias: Array | None, *, epsilon: float) -> Array:
    """Compute y = (x - mean*f)/sqrt(variance*f + epsilon) + b[c] in f32, f = f32(1)/weight, statistics per channel.

    x (n, c, ...), weight one number, bias (C,) or None; variance biased. A negative weight gives NaN. Source: an
    InstanceNorm on the host, which uses the first weight as the factor of a batch norm (U-14). Both sums are in index
    order, the sum of squares by fused multiply-adds; root, quotient and bias are in double and rounded once.
    """
    x = f32(x)
    rows = jnp.moveaxis(x.reshape(*x.shape[:2], -1), -1, 0)
    size, factor = jnp.float32(len(rows)), divide(jnp.float32(1), f32(weight))
    mean = divide(added_up(rows), size)[None]
    variance = divide(float_sum_of_squares(rows - mean), size)[None]
    base = pin(variance * factor) + jnp.float32(epsilon)
    y = divide((rows - pin(mean * factor)).astype(jnp.float64), jnp.sqrt(base.astype(jnp.float64)))
    y = jnp.moveaxis(y, 0, -1).reshape(x.shape)
    y = y if bias is None else y + along_axis(f32(bias), x.ndim, 1).astype(jnp.float64)
    return y.astype(jnp.float32)


@kernel(static=("epsilon",))
def instancenorm_float(x: Array, weight: Array | None, bias: Array | None, *, epsilon: float) -> Array:
    """Compute y = (x - mean)*rstd*w[c] + b[c] in f32, statistics per sample and channel (U-39).

    x (n, c, ...); weight, bias (C,) or None. As `groupnorm_float` but for the two means (`_mean_of_shares`).
    """
    x = f32(x)
    y = _normalised(x.reshape(*x.shape[:2], -1), epsilon, _mean_of_shares).reshape(x.shape)
    return _by_channel(y, weight, bias)


@kernel(static=("groups", "epsilon"))
def groupnorm_float(x: Array, weight: Array | None, bias: Array | None, *, groups: int, epsilon: float) -> Array:
    """Compute y = (x - mean)*rstd*w[c] + b[c] with statistics per sample and group of channels, in f32.

    x (n, c, ...), channels on axis 1 in `groups` equal runs (c groups: InstanceNorm); weight, bias (C,) or
    None. Source: numerics 11.2, ONNX GroupNormalization and InstanceNormalization.
    """
    x = f32(x)
    y = _normalised(x.reshape(x.shape[0], groups, -1), epsilon).reshape(x.shape)
    return _by_channel(y, weight, bias)


@kernel(static=("groups", "epsilon"))
def groupnorm_bf16(x: Array, weight: Array | None, bias: Array | None, *, groups: int, epsilon: float) -> Array:
    """Compute `groupnorm_float` in BF16, step by step (U-39), on BM chips.

    avg = BF16(1/N); mean = BF16(sum x*avg); d = BF16(x - mean); v = BF16(BF16(sum BF16(d^2)*avg) + BF16(epsilon));
    BF16(d/sqrt(v)), root and reciprocal in f32, then the weight's product and the bias's sum, each BF16. Operands hold
    BF16 values as f32. Decision: the two sums are in double, so that their order cannot change the rounding.
    """
    x = f32(x)
    y = _normalised_bf16(x.reshape(x.shape[0], groups, -1), 2, epsilon).reshape(x.shape)
    return _by_channel_bf16(y, weight, bias)


def _normalised_bf16(x: Array, axis: int, epsilon: float) -> Array:
    """BF16(d/sqrt(v)) over one axis, d and v in BF16, root and reciprocal in f32."""
    average, d = _deviations_bf16(x, (axis,))
    squares = to_bf16(d * d).astype(jnp.float64) * average.astype(jnp.float64)
    variance = to_bf16(_total_bf16(squares, (axis,)) + to_bf16(jnp.float32(epsilon)))
    return to_bf16(d * divide(jnp.ones_like(variance), jnp.sqrt(variance)))


def _by_channel_bf16(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """BF16(BF16(y*w[c]) + b[c]), channels on axis 1."""
    y = y if weight is None else to_bf16(y * along_axis(f32(weight), y.ndim, 1))
    return y if bias is None else to_bf16(y + along_axis(f32(bias), y.ndim, 1))
