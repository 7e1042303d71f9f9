"""A kernel gives the same bits alone, inside a larger jit, and for any batch."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tpusim_kernels import activation, arith, cast, conv, matmul, pool, softmax
from tpusim_kernels.base import kernel, pin, pin_shared

RNG = np.random.default_rng(0)
N = 4
X = RNG.standard_normal((N, 8, 12, 12)).astype(np.float32) * 3
W1, W2 = (RNG.integers(-128, 128, s).astype(np.int8) for s in ((16, 8, 3, 3), (16, 1, 3, 3)))
W3 = RNG.integers(-128, 128, (16, 10)).astype(np.int8)
B1 = RNG.integers(-(2**14), 2**14, 16).astype(np.int32)
M1, R1 = RNG.integers(2**29, 2**30, 16), RNG.integers(38, 40, 16)
CHANNEL = RNG.uniform(0.5, 1.5, 16).astype(np.float32)
TABLE = np.exp(-0.03 * np.arange(256)).astype(np.float32)
ATTRS = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
WINDOW = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}


def network(x: jax.Array) -> list[jax.Array]:
    """An INT8 network with float islands between its integer ops, as a float fallback has them."""
    q = cast.quantize(x, np.float32(1 / 0.07), 0, out_dtype="int8")
    a = conv.conv2d_int(q, W1, B1, M1, R1, 0, 0, groups=1, do_relu=True, out_dtype="uint8", **ATTRS)
    b = conv.conv2d_int(a, W2, None, M1, R1 - 3, 0, 0, groups=16, do_relu=False, out_dtype="int8", **ATTRS)
    c = arith.add_int((a, b), (77, 101), (8, 7), (0, 0), 0, do_relu=False, out_dtype="int8")
    d = pool.avgpool2d_int(c, 57, 9, **WINDOW, count_include_pad=False, do_relu=False, out_dtype="int8")
    f = cast.dequantize(d, 0.113, 0)
    f = arith.scale_float(f, CHANNEL, -CHANNEL, do_relu=False)
    g = arith.mulconst_float(arith.mulconst_float(f, 0.1), 0.3)
    h = arith.add_float((arith.mul_float((f, g), do_relu=False), g), do_relu=False)
    i = arith.addconst_float(activation.activation_float(h, mode="SILU"), 0.37)
    j = cast.quantize(i, np.float32(1 / 0.0131), 3, out_dtype="int8")
    k = softmax.softmax_int(j, TABLE, 1 / 255, 0, axis=1, out_dtype="uint8")
    v = pool.avgpool2d_asym(j, 0.123, -1.5, 3, -4, **WINDOW, count_include_pad=True, do_relu=False, out_dtype="int8")
    m = pool.maxpool2d(k, **WINDOW)
    y = matmul.matmul_int(
        jnp.reshape(m[:, :, 0, 0], (-1, 16)), W3, None, 1, 8, 0,
        left_transpose=False, right_transpose=False, do_relu=False, out_dtype="int8",
    )  # fmt: skip
    return [q, a, b, c, d, f, g, h, i, j, k, v, m, y]


@pytest.fixture(scope="module")
def one_by_one() -> list[np.ndarray]:
    return [np.asarray(t) for t in network(jnp.asarray(X))]


def same_bits(got: list[jax.Array], want: list[np.ndarray]) -> None:
    for index, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype, index
        np.testing.assert_array_equal(np.asarray(a).view(np.uint8), b.view(np.uint8), err_msg=f"tensor {index}")


def test_the_network_is_not_trivial(one_by_one: list[np.ndarray]) -> None:
    for index, tensor in enumerate(one_by_one):
        assert len(np.unique(tensor)) > 20, index


@pytest.mark.parametrize(("last_only", "x64"), [(False, True), (True, True), (True, False)])
def test_whole_graph_equals_op_by_op(one_by_one: list[np.ndarray], last_only: bool, x64: bool) -> None:
    """With all intermediates as results, and with the last alone (which lets XLA fuse across every op).

    The outer trace may have 64-bit types on or off.
    """
    whole = jax.jit(lambda x: network(x)[-1:] if last_only else network(x))
    with jax.enable_x64(x64):
        same_bits(whole(X), one_by_one[-1:] if last_only else one_by_one)


def test_any_batch(one_by_one: list[np.ndarray]) -> None:
    for n in range(2):
        same_bits(network(jnp.asarray(X[n : n + 1])), [t[n : n + 1] for t in one_by_one])


A, B, C = (RNG.standard_normal(4096).astype(np.float32) for _ in range(3))
Q = RNG.integers(-128, 128, 4096).astype(np.int8)
FLOAT_CHAINS: dict[str, Callable] = {
    "mul then add": lambda a: arith.add_float((arith.mul_float((a, B), do_relu=False), C), do_relu=False),
    "two constant factors": lambda a: arith.mulconst_float(arith.mulconst_float(a, 0.1), 0.3),
    "constant divisor": lambda a: arith.div_float((a, np.full(4096, 3, np.float32)), do_relu=False),
    "broadcast divisor": lambda a: arith.div_float((a, B[:1]), do_relu=False),
    "dequantize then add": lambda a: arith.add_float((cast.dequantize(Q, 0.0131, 3), a), do_relu=False),
    "cast there and back": lambda a: cast.dequantize(
        cast.quantize(a, np.float32(1 / 0.07), 0, out_dtype="int8"), 0.07, 0
    ),
}


@pytest.mark.parametrize("name", FLOAT_CHAINS)
def test_neighbours_do_not_change_float_bits(name: str) -> None:
    chain = FLOAT_CHAINS[name]
    with jax.enable_x64(True):
        whole = jax.jit(chain)(A)
    same_bits([whole], [np.asarray(chain(A))])


def test_the_fence_is_needed_and_is_an_identity() -> None:
    """XLA really merges a product with the following sum; `pin` stops it and changes no value."""
    unfenced = np.asarray(jax.jit(lambda a, b, c: a * b + c)(A, B, C))
    with jax.enable_x64(True):
        fenced = np.asarray(jax.jit(lambda a, b, c: pin(a * b) + c)(A, B, C))
        values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -1.2e-38, 1.0], np.float32)
        pinned = np.asarray(jax.jit(pin)(values))
    np.testing.assert_array_equal(fenced, A * B + C)
    assert (unfenced != fenced).any()
    np.testing.assert_array_equal(pinned.view(np.uint32), values.view(np.uint32))


def test_what_several_read_is_computed_once_and_is_an_identity() -> None:
    """In a chain of residual sums every sum is added up once; with `pin` alone each reader adds all up again."""

    def sums(fence: Callable[[jax.Array], jax.Array]) -> int:
        def chain(x: jax.Array, w: jax.Array) -> jax.Array:
            for _ in range(6):
                x = fence(jnp.maximum(x + x @ w, jnp.float32(0)))
            return x

        return (
            jax.jit(chain)
            .lower(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32))
            .compile()
            .as_text()
            .count(" add(")
        )

    assert sums(pin_shared) == 6 < sums(pin)
    bits = np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0xFFFFFFFE, 1, 0x80000001], np.uint32)
    found = jax.jit(pin_shared)(bits.view(np.float32))
    np.testing.assert_array_equal(np.asarray(found).view(np.uint32), bits)


def test_sums_of_windows_are_the_same_without_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x = X.copy()
    x[0] = -0.0

    def averages() -> np.ndarray:
        return np.asarray(
            jax.jit(lambda x: pool.avgpool2d_float(x, **WINDOW, count_include_pad=True, do_relu=False))(x)
        )

    unrolled = averages()
    monkeypatch.setattr(pool, "UNROLLED", 0)
    jax.clear_caches()
    same_bits([unrolled], [averages()])


def test_results_are_strongly_typed_and_values_do_not_recompile() -> None:
    traces = []

    @kernel(static=("k",))
    def double(x: jax.Array, z: int, *, k: int) -> jax.Array:
        traces.append(k)
        return x + jnp.asarray(k * z, jnp.int32)

    first = double(np.array([1], np.int32), np.int32(2), k=2)
    double(np.array([1], np.int32), np.int32(5), k=2)
    assert traces == [2]
    assert not first.weak_type
    assert not arith.mulconst_float(A, 0.1).weak_type
    assert double.__name__ == "double"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_chain_of_integer_sums_is_computed_once(dtype: str) -> None:
    """Compiled, a chain of twice as many residual sums is twice as long: no reader computes it anew."""
    rng = np.random.default_rng(3)
    weights = [rng.integers(-128, 128, (24, 24)).astype(np.int8) for _ in range(16)]

    def chain(x: jax.Array, weights: list[np.ndarray]) -> list[jax.Array]:
        found: list[jax.Array] = []
        for w in weights:
            y = matmul.matmul_int(
                cast.quantize(cast.dequantize(x, 0.1, 0), np.float32(9), 0, out_dtype="int8"), w, None, 5, 10, 0,
                left_transpose=False, right_transpose=False, do_relu=False, out_dtype=dtype,
            )  # fmt: skip
            x = arith.add_int((x, y), (75, 91), (7, 7), (0, 0), 0, do_relu=False, out_dtype=dtype)
            found.append(x)
        return found

    x = rng.integers(0, 128, (20, 24)).astype(dtype)
    half, whole = (
        len(str(jax.jit(lambda x, w=weights[:n]: chain(x, w)[-1]).lower(x).compile().as_text()).splitlines())
        for n in (8, 16)
    )
    assert half > 20 and whole < 2.3 * half
    q = x.astype(np.int64)
    for found, w in zip(jax.jit(lambda x: chain(x, weights))(x), weights, strict=True):
        real = np.asarray(cast.quantize(cast.dequantize(q.astype(dtype), 0.1, 0), np.float32(9), 0, out_dtype="int8"))
        limits = np.iinfo(dtype).min, np.iinfo(dtype).max
        y = np.clip((real.astype(np.int64) @ w * 5 + 512) >> 10, *limits)
        q = np.clip(((q * 75 + 64) >> 7) + ((y * 91 + 64) >> 7), *limits)
        np.testing.assert_array_equal(found, q)
