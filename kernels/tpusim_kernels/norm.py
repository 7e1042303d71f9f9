"""Normalisation over channels, batches, groups and trailing axes (numerics 11.2; ONNX)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tpusim_kernels.base import Array, along_axis, divide, f32, kernel
from tpusim_kernels.prim.smallfloat import to_bf16


@kernel(static=("size", "alpha", "beta", "bias"))
def lrn_float(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    """Compute y = x / (bias + alpha/size * sum x^2)^beta in f32 (ONNX LRN).

    x (n, c, ...); the sum runs over `size` channels around each.

    The window of channel c is c - floor((size-1)/2) .. c + ceil((size-1)/2), cut at the ends.
    """
    x = f32(x)
    before, channels = (size - 1) // 2, x.shape[1]
    pads = [(0, 0, 0)] * x.ndim
    pads[1] = (before, size - 1 - before, 0)
    squares = lax.pad(x * x, jnp.float32(0), pads)
    total = sum(
        (lax.slice_in_dim(squares, i, i + channels, axis=1) for i in range(1, size)),
        start=lax.slice_in_dim(squares, 0, channels, axis=1),
    )
    return x / jnp.power(jnp.float32(bias) + jnp.float32(alpha / size) * total, jnp.float32(beta))


@kernel(static=("epsilon",))
def batchnorm_float(x: Array, gamma: Array, beta: Array, mean: Array, var: Array, *, epsilon: float) -> Array:
    """Compute y = (x - mean[c])/sqrt(var[c] + epsilon)*gamma[c] + beta[c] in f32, channels on axis 1.

    x (n, c, ...); gamma, beta, mean, var (C,). Source: ONNX BatchNormalization.
    """
    x = f32(x)
    gamma, beta, mean, var = (along_axis(f32(p), x.ndim, 1) for p in (gamma, beta, mean, var))
    return divide(x - mean, jnp.sqrt(var + jnp.float32(epsilon))) * gamma + beta


def _normalised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """(x - mean)/sqrt(variance + epsilon) over `axes`, biased variance, f32 step by step."""
    mean = jnp.mean(x, axis=axes, keepdims=True)
    d = x - mean
    variance = jnp.mean(d * d, axis=axes, keepdims=True)
    return d * divide(jnp.ones_like(variance), jnp.sqrt(variance + jnp.float32(epsilon)))


@kernel(static=("axis", "epsilon"))
def layernorm_float(x: Array, weight: Array | None, bias: Array | None, *, axis: int, epsilon: float) -> Array:
    """Compute y = (x - mean)*rstd*w + b over the axes from `axis` on, in f32 (numerics 11.2, ONNX LayerNormalization).

    rstd = 1/sqrt(variance + epsilon), variance biased; weight, bias of a shape that broadcasts to x.shape[axis:], or
    None.
    """
    y = _normalised(f32(x), tuple(range(axis, x.ndim)), epsilon)
    y = y if weight is None else y * _leading(f32(weight), x.ndim)
    return y if bias is None else y + _leading(f32(bias), x.ndim)


def _leading(p: Array, ndim: int) -> Array:
    """A parameter of the trailing axes with leading axes of length 1."""
    return p.reshape((1,) * (ndim - p.ndim) + p.shape)


@kernel(static=("axis", "epsilon"))
def layernorm_bf16(x: Array, weight: Array | None, bias: Array | None, *, axis: int, epsilon: float) -> Array:
    """Compute the layer norm of BM chips in BF16: every step rounded to BF16, sums in double (numerics 11.2).

    avg = BF16(1/N); mean = BF16(sum x*avg); d = BF16(x - mean);
    v = BF16(BF16(sum BF16(BF16(d^2)*avg)) + BF16(epsilon)); rstd = BF16(1/BF16(sqrt v)); BF16(d*rstd), then the
    weight's product and the bias's sum, each BF16. Operands hold BF16 values as f32. Decision: the two sums are in
    double, so that their order cannot change the rounding.
    """
    x, axes = f32(x), tuple(range(axis, x.ndim))
    count = 1
    for size in x.shape[axis:]:
        count *= size
    average = to_bf16(jnp.float32(1.0 / count))

    def total(terms: Array) -> Array:
        return to_bf16(jnp.sum(terms.astype(jnp.float64), axis=axes, keepdims=True).astype(jnp.float32))

    mean = total(x.astype(jnp.float64) * average.astype(jnp.float64))
    d = to_bf16(x - mean)
    variance = to_bf16(total(to_bf16(to_bf16(d * d) * average)) + to_bf16(jnp.float32(epsilon)))
    rstd = to_bf16(divide(jnp.ones_like(variance), to_bf16(jnp.sqrt(variance))))
    y = to_bf16(d * rstd)
    y = y if weight is None else to_bf16(y * _leading(f32(weight), x.ndim))
    return y if bias is None else to_bf16(y + _leading(f32(bias), x.ndim))


@kernel(static=("groups", "epsilon"))
def groupnorm_float(x: Array, weight: Array, bias: Array, *, groups: int, epsilon: float) -> Array:
    """Compute y = (x - mean)*rstd*w[c] + b[c] with statistics per sample and group of channels, in f32.

    x (n, c, ...), channels on axis 1 in `groups` equal runs (c groups: InstanceNorm); weight, bias (C,).
    Source: numerics 11.2, ONNX GroupNormalization and InstanceNormalization.
    """
    x = f32(x)
    y = _normalised(x.reshape(x.shape[0], groups, -1), (2,), epsilon).reshape(x.shape)
    return y * along_axis(f32(weight), x.ndim, 1) + along_axis(f32(bias), x.ndim, 1)
