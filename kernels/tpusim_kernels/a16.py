"""Products of 16-bit activations with weights of 8 or 4 bits, dequantised by groups (numerics 14)."""

from __future__ import annotations

from tpusim_kernels.base import Array, along_axis, f32, kernel
from tpusim_kernels.lazy import jnp
from tpusim_kernels.matmul import matmul_float
from tpusim_kernels.prim.bydepth import narrowing, product_by_depth


@kernel(static=("bits",), inline=True)
def dequantised(codes: Array, scales: Array, zero_points: Array, *, bits: int) -> Array:
    """(N, K) weights (q - z) * s in f32, not rounded; exact.

    codes as stored: (N, K) int8 or uint8, of 4 bits (N, K/2) uint8 with the low half first. scales (N, groups), of 16
    bits; zero_points (N, groups).
    """
    q = codes
    if bits == 4:
        q = jnp.stack([codes & 15, codes >> 4], axis=-1).reshape(codes.shape[0], -1)
    group = q.shape[1] // scales.shape[1]
    of_group = (jnp.repeat(f32(p), group, axis=1) for p in (zero_points, scales))
    zeros, factors = of_group
    return (f32(q) - zeros) * factors


@kernel(static=("bits", "narrow", "depth"))
def a16_matmul(
    x: Array, codes: Array, scales: Array, zero_points: Array, bias: Array | None, *, bits: int, narrow: str, depth: int
) -> Array:
    """Compute R(R(x @ R(w)^T) + R(bias)) as the chip does; R rounds to `narrow`, float16 or bfloat16.

    x (..., K), w (N, K) as in `dequantised`, bias (N,) or None; the sums over K are those of `product_by_depth`.
    Returns (..., N) in f32.
    """
    rounded = narrowing(narrow)
    w = rounded(dequantised(codes, scales, zero_points, bits=bits))
    rows = f32(x).reshape(-1, x.shape[-1])
    y = rounded(product_by_depth(rows, w.T, depth)).reshape(*x.shape[:-1], w.shape[0])
    return y if bias is None else rounded(y + along_axis(rounded(f32(bias).reshape(-1)), y.ndim, y.ndim - 1))


@kernel(static=("bits", "narrow"))
def a16_matmul_interpreter(
    x: Array, codes: Array, scales: Array, zero_points: Array, bias: Array | None, *, bits: int, narrow: str
) -> Array:
    """The same in the arithmetic of TPU-MLIR's interpreter: weights of 4 bits are not rounded, the result once."""
    rounded = narrowing(narrow)
    w = dequantised(codes, scales, zero_points, bits=bits)
    w = rounded(w) if bits == 8 else w
    row = None if bias is None else rounded(f32(bias).reshape(-1))
    y = matmul_float(f32(x), w, row, left_transpose=False, right_transpose=True, do_relu=False)
    return rounded(y)
