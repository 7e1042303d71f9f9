"""LSTM and GRU, step by step (numerics 11.7).

Products are summed in the order of U-34. The functions of the gates are computed in float64 and rounded once, as the
real interpreter computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tpusim_kernels.base import Array, f32, kernel, pin
from tpusim_kernels.lazy import jnp, lax
from tpusim_kernels.lut_bf16 import lut_slope
from tpusim_kernels.matmul import matmul_float
from tpusim_kernels.prim.bf16 import bf16_add, bf16_mul
from tpusim_kernels.prim.smallfloat import to_finite_bf16

States: TypeAlias = tuple[Array, ...]
"""The states after a step, (N, H) each; the first is the result of the step."""
Step: TypeAlias = Callable[[States, Array], States]

SIGMOID_LIMIT, TANH_LIMIT = 12.0, 15.0
"""The tables of the gates reach from minus this number to this number."""


def _sigmoid(x: Array) -> Array:
    """0.5*tanh(0.5*x) + 0.5 in float64, rounded to f32."""
    return pin((0.5 * jnp.tanh(0.5 * x.astype(jnp.float64)) + 0.5).astype(jnp.float32))


def _tanh(x: Array) -> Array:
    return pin(jnp.tanh(x.astype(jnp.float64)).astype(jnp.float32))


def _product(x: Array, w: Array, b: Array) -> Array:
    """Compute x @ w.T + b in f32."""
    return matmul_float(x, w, b, left_transpose=False, right_transpose=True, do_relu=False)


def _gates(x: Array, count: int) -> list[Array]:
    return jnp.split(x, count, axis=-1)


def _over_steps(step: Step, rows: Array, states: States, *, backwards: bool) -> tuple[Array, States]:
    """(result of every step, last states); rows (T, ...) are what the steps read, in the order of time."""

    def advance(states: States, row: Array) -> tuple[States, Array]:
        new = step(states, row)
        return new, new[0]

    last, found = lax.scan(advance, states, rows, reverse=backwards)
    return found, last


def _both_ways(ways: list[tuple[Array, States]]) -> tuple[Array, ...]:
    """The results (T, D, N, H), and each state (D, N, H), of all directions."""
    results, states = zip(*ways, strict=True)
    return jnp.stack(results, axis=1), *(jnp.stack(state) for state in zip(*states, strict=True))


def _by_table(table: Array, slope: Array, limit: float) -> Callable[[Array], Array]:
    return lambda x: lut_slope(x, table, slope, low=-limit, high=limit)


def _bias(b: Array | None, like: Array) -> Array:
    """The biases of input and state, (D, 2, G*H); zeros if they are absent."""
    ways, rows = like.shape[:2]
    return jnp.zeros((ways, 2, rows), jnp.float32) if b is None else f32(b).reshape(ways, 2, rows)


def _start(state: Array | None, shape: tuple[int, ...]) -> Array:
    return jnp.zeros(shape, jnp.float32) if state is None else f32(state)


@kernel()
def lstm_float(
    x: Array, w: Array, r: Array, b: Array | None, h: Array | None, c: Array | None
) -> tuple[Array, Array, Array]:
    """Compute an LSTM forwards, and with D = 2 also backwards. Returns Y (T, D, N, H), Y_h and Y_c (D, N, H) in f32.

    x (T, N, I), w (D, 4H, I), r (D, 4H, H), b (D, 8H) or None, h and c (D, N, H) or None, all f32 or narrower. Gates in
    the order i, o, f, c:
    i, o, f = sigmoid(x w^T + b_w + (h r^T + b_r)), g = tanh(likewise); c' = f*c + i*g; h' = o*tanh(c').
    Source: ONNX LSTM with default activations.
    """
    x, w, r = f32(x), f32(w), f32(r)
    ways, shape = w.shape[0], (w.shape[0], x.shape[1], r.shape[2])
    bias, first = _bias(b, w), (_start(h, shape), _start(c, shape))

    def way(d: int) -> tuple[Array, States]:
        def step(states: States, row: Array) -> States:
            h, c = states
            i, o, f, g = _gates(row + _product(h, r[d], bias[d, 1]), 4)
            c = pin(_sigmoid(f) * c) + pin(_sigmoid(i) * _tanh(g))
            return _sigmoid(o) * _tanh(c), c

        return _over_steps(step, _product(x, w[d], bias[d, 0]), (first[0][d], first[1][d]), backwards=d == 1)

    y, last, cell = _both_ways([way(d) for d in range(ways)])
    return y, last, cell


@kernel()
def lstm_tables(
    x: Array, r: Array, b: Array | None, h: Array | None, c: Array | None,
    sigmoid: Array, sigmoid_slope: Array, tanh: Array, tanh_slope: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """`lstm_float` in BF16 by tables, with the input's products given.

    x (T, N, D*4H) are the products of the input with its biases; r (D, 4H, H); b (D, 4H), the biases of the state, or
    None; tables of 256 entries. Every step is rounded: BF16(h r^T + b), the sum with x, the table, both products and
    the sum of the cell, and the result.
    """
    x, r = f32(x), f32(r)
    ways, size = r.shape[0], r.shape[2]
    shape = (ways, x.shape[1], size)
    bias = jnp.zeros((ways, 4 * size), jnp.float32) if b is None else f32(b).reshape(ways, 4 * size)
    first = (_start(h, shape), _start(c, shape))

    gate, bent = _by_table(sigmoid, sigmoid_slope, SIGMOID_LIMIT), _by_table(tanh, tanh_slope, TANH_LIMIT)

    def way(d: int) -> tuple[Array, States]:
        def step(states: States, row: Array) -> States:
            h, c = states
            i, o, f, g = _gates(bf16_add(row, to_finite_bf16(_product(h, r[d], bias[d]))), 4)
            c = bf16_add(bf16_mul(gate(f), c), bf16_mul(gate(i), bent(g)))
            return bf16_mul(gate(o), bent(c)), c

        rows = x[..., d * 4 * size : (d + 1) * 4 * size]
        return _over_steps(step, rows, (first[0][d], first[1][d]), backwards=d == 1)

    y, last, cell = _both_ways([way(d) for d in range(ways)])
    return y, last, cell


@kernel()
def gru_float(x: Array, w: Array, r: Array, b: Array | None, h: Array | None) -> tuple[Array, Array]:
    """Compute a GRU forwards, and with D = 2 also backwards. Returns Y (T, D, N, H) and Y_h (D, N, H) in f32.

    x (T, N, I), w (D, 3H, I), r (D, 3H, H), b (D, 6H) or None, h (D, N, H) or None. Gates in the order z, r, h:
    z, r = sigmoid(x w^T + b_w + (h r^T + b_r)); g = tanh(x w^T + b_w + r*(h r^T + b_r)); h' = (1 - z)*g + z*h.
    Source: ONNX GRU with linear_before_reset = 1 and default activations.
    """
    x, w, r = f32(x), f32(w), f32(r)
    ways, shape = w.shape[0], (w.shape[0], x.shape[1], r.shape[2])
    bias, first = _bias(b, w), _start(h, shape)

    def way(d: int) -> tuple[Array, States]:
        def step(states: States, row: Array) -> States:
            (h,) = states
            (xz, xr, xh), (hz, hr, hh) = _gates(row, 3), _gates(_product(h, r[d], bias[d, 1]), 3)
            z, reset = _sigmoid(xz + hz), _sigmoid(xr + hr)
            new = _tanh(xh + pin(reset * hh))
            return (pin((jnp.float32(1) - z) * new) + pin(z * h),)

        return _over_steps(step, _product(x, w[d], bias[d, 0]), (first[d],), backwards=d == 1)

    y, last = _both_ways([way(d) for d in range(ways)])
    return y, last


@kernel()
def gru_tables(
    x: Array, r: Array, b: Array | None, h: Array | None,
    sigmoid: Array, sigmoid_slope: Array, tanh: Array, tanh_slope: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """`gru_float` in BF16 by tables, with the input's products given; operands as of `lstm_tables`.

    Every step is rounded: BF16(h r^T + b), the sums with x, the tables, the products, and the result, which is
    z*h + g - z*g.
    """
    x, r = f32(x), f32(r)
    ways, size = r.shape[0], r.shape[2]
    bias = jnp.zeros((ways, 3 * size), jnp.float32) if b is None else f32(b).reshape(ways, 3 * size)
    first = _start(h, (ways, x.shape[1], size))
    gate, bent = _by_table(sigmoid, sigmoid_slope, SIGMOID_LIMIT), _by_table(tanh, tanh_slope, TANH_LIMIT)

    def way(d: int) -> tuple[Array, States]:
        def step(states: States, row: Array) -> States:
            (h,) = states
            (xz, xr, xh), (hz, hr, hh) = _gates(row, 3), _gates(to_finite_bf16(_product(h, r[d], bias[d])), 3)
            z, reset = gate(bf16_add(xz, hz)), gate(bf16_add(xr, hr))
            new = bent(bf16_add(bf16_mul(reset, hh), xh))
            return (bf16_add(bf16_add(bf16_mul(z, h), new), -bf16_mul(z, new)),)

        return _over_steps(step, x[..., d * 3 * size : (d + 1) * 3 * size], (first[d],), backwards=d == 1)

    y, last = _both_ways([way(d) for d in range(ways)])
    return y, last
