"""Normalisation over channels and batches in f32 (ONNX LRN, BatchNormalization)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tpusim_kernels.base import Array, along_axis, divide, f32, kernel


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
