"""Derivatives: of float networks those of the plain expression, of integers an error that names the op.

The expected values are difference quotients of the exact network. Its f32 results are off by about 1e-7 of their size,
so that a quotient over 2e-4 is off by 1e-3 of it, by 5e-3 after long sums; where a result has a kink in between, it is
another number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from end_to_end import conv_and_gemm, node, save_network
from op_cases import BY_ID, CASES, OpCase
from rotation import marks
from rows import canonical, lowered
from tpusim_kernels.arith import add_float, relu_float
from tpusim_kernels.conv_float import conv2d_float
from tpusim_kernels.lut_bf16 import lut_mantissa
from tpusim_kernels.matmul import matmul_float
from tpusim_kernels.norm import layernorm_float
from tpusim_kernels.pool import maxpool2d
from tpusim_kernels.prim.smallfloat import to_bf16, to_f8e4m3, to_f16
from tpusim_kernels.softmax import softmax_float

import tpusim
from tpusim.errors import ConfigError
from tpusim.inference import Flat

STEP = 1e-4
WAYS = np.float32([STEP, -STEP])
USUAL = {"conv-relu", "matmul-3d", "softmax-last", "layernorm", "maxpool-3x3-s2", "mul", "argmax"}


def normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def rows() -> list[object]:
    return [pytest.param(case, id=case.id, marks=marks(case.id in USUAL)) for case in CASES]


@pytest.mark.every
@pytest.mark.parametrize("case", rows())
def test_derivatives_of_every_op_are_difference_quotients(case: OpCase) -> None:
    """The usual rows compiled, the others op by op, which compiles every op by itself."""
    flat, inputs = Flat(canonical(case.id)), case.feeds()
    reach = {name: np.float32(max(1.0, np.abs(x).max())) for name, x in inputs.items()}
    moves = {name: reach[name] * normal(x.shape, i) for i, (name, x) in enumerate(inputs.items())}

    def first(given: dict[str, jax.Array]) -> jax.Array:
        return next(iter(flat(given).values()))

    plain = np.asarray(first(inputs))
    if not np.issubdtype(plain.dtype, np.floating):
        moved = jax.jvp(first, (inputs,), (moves,))[1]
        assert moved.dtype == jax.dtypes.float0  # a comparison, an index: no derivative to get wrong
        return
    weights = normal(plain.shape, 9)

    def derivatives(x: dict[str, jax.Array]) -> Any:
        return jax.jvp(first, (x,), (moves,)), jax.grad(lambda x: (first(x) * weights).sum())(x)

    (result, moved), back = (jax.jit(derivatives) if case.id in USUAL else derivatives)(inputs)
    np.testing.assert_array_equal(result, plain)
    ends = [np.asarray(first({k: x + way * moves[k] for k, x in inputs.items()}), np.float64) for way in WAYS]
    quotient = np.subtract(*ends) / (2 * STEP)
    rounded = 1e-6 * np.abs(plain).max() / (2 * STEP)
    near = np.abs(moved - quotient) <= 2e-2 * np.abs(quotient) + 2e-3 * np.abs(quotient).max() + rounded + 1e-6
    assert near.mean() > 0.95
    expected = float(np.vdot(moved, weights))
    assert sum(float(np.vdot(back[k], moves[k])) for k in moves) == pytest.approx(
        expected, rel=1e-3, abs=1e-3 * float(max(reach.values()))
    )


def test_rows_of_a_computed_index_compile_with_their_derivatives(tmp_path: Path) -> None:
    """The row of `t` at the largest x, by x: the derivative is the row, in one program with the derivative forwards."""
    rows, x = normal((5, 4), 7), normal((2, 5), 8)
    nodes = [
        node("ArgMax", "x", "at", axis=1, keepdims=0),
        node("Gather", "rows at", "row", axis=0),
        node("ReduceMax", "x", "top", axes=[1], keepdims=1),
        node("Mul", "row top", "y"),
    ]
    flat = Flat(tpusim.load(save_network(tmp_path / "rows.onnx", nodes, {"x": x.shape}, ["y"], {"rows": rows})))

    def y(x: jax.Array) -> jax.Array:
        return flat({"x": x})["y_Mul"]

    def derivatives(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(y, (x,), (jnp.ones_like(x),))[1], jax.grad(lambda x: y(x).sum())(x)

    forwards, back = jax.jit(derivatives)(x)
    at = x.argmax(1)
    np.testing.assert_array_equal(forwards, rows[at])
    np.testing.assert_allclose(back, np.eye(5)[at] * rows[at].sum(1, keepdims=True), rtol=1e-6)  # f32 sums of 4 terms


def test_the_usual_rows_exist() -> None:
    assert BY_ID.keys() >= USUAL


X = normal((2, 4, 6, 6), 1)
KERNELS: dict[str, tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array], np.ndarray]] = {
    "relu": (relu_float, jax.nn.relu, X),
    "add": (lambda x: add_float([x, x * x], do_relu=False), lambda x: x + x * x, X),
    "matmul": (
        lambda x: matmul_float(x, normal((6, 5), 2), None, left_transpose=False, right_transpose=False, do_relu=False),
        lambda x: x @ normal((6, 5), 2),
        X,
    ),
    "conv": (
        lambda x: conv2d_float(
            x, normal((3, 4, 3, 3), 3), None, strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=1,
            do_relu=False,
        ),
        lambda x: jax.lax.conv(x, normal((3, 4, 3, 3), 3), (1, 1), "SAME"),
        X,
    ),
    "softmax": (lambda x: softmax_float(x, axis=1), lambda x: jax.nn.softmax(x, axis=1), X),
    "layernorm": (
        lambda x: layernorm_float(x, None, None, axis=3, epsilon=1e-5),
        lambda x: (x - x.mean(3, keepdims=True)) / jnp.sqrt(x.var(3, keepdims=True) + 1e-5),
        X,
    ),
    "maxpool": (
        lambda x: maxpool2d(x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0)),
        lambda x: x.reshape(2, 4, 3, 2, 3, 2).max((3, 5)),
        X,
    ),
    "f16": (to_f16, lambda x: x, X),
    "bf16": (to_bf16, lambda x: x, X),
    "f8": (lambda x: to_f8e4m3(x, step=0.5), lambda x: x / 0.5, X),
}  # fmt: skip


WEIGHTS = normal((1000,), 5)


def weighted(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jnp.vdot(y := function(x).reshape(-1), WEIGHTS[: y.size])


@pytest.mark.every
@pytest.mark.parametrize("name", KERNELS)
def test_a_lone_kernel_differentiates_as_the_plain_expression(name: str) -> None:
    """f32 sums in another order: 1e-5."""
    kernel, expression, x = KERNELS[name]
    found, expected = (jax.jit(jax.grad(weighted(function)))(x) for function in (kernel, expression))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_lone_kernel_differentiates_untraced_and_forwards() -> None:
    move = normal(X.shape, 6)
    np.testing.assert_array_equal(jax.grad(lambda x: relu_float(x).sum())(X), X > 0)
    np.testing.assert_array_equal(jax.jvp(relu_float, (X,), (move,))[1], np.where(X > 0, move, 0))


def mean_square(flat: Flat, images: jax.Array) -> jax.Array:
    return (next(iter(flat(images).values())).astype(jnp.float32) ** 2).mean()


IMAGES = normal((2, 3, 16, 16), 4)


@cache
def network(mode: str) -> tpusim.Compiled:
    with TemporaryDirectory() as folder:
        path = conv_and_gemm(Path(folder) / "network.onnx")
        return tpusim.compile(path, chip="bm1684x", mode=mode)


@cache
def gradient_of_floats() -> jax.Array:
    """Of the float network, which is the same in every mode."""
    return jax.grad(lambda x: mean_square(network("f32").fast_f32, x))(jnp.asarray(IMAGES))


@pytest.mark.every
@pytest.mark.parametrize(("mode", "bound"), [("f32", 1e-5), pytest.param("f16", 0.05, marks=pytest.mark.slow)])
def test_networks_in_float_modes(mode: str, bound: float) -> None:
    """Against the float network: gradients in F16 are rounded to 11 bits at every op."""
    net = network(mode)
    images, expected = jnp.asarray(IMAGES), gradient_of_floats()
    value, found = jax.value_and_grad(lambda x: mean_square(net.flat, x))(images)
    assert np.linalg.norm(found - expected) <= bound * np.linalg.norm(expected)
    assert value == mean_square(net.flat, images)  # results stay the same bits


def test_integers_have_no_derivative_and_say_so() -> None:
    flat = Flat(lowered("conv-relu", "bm1684x", "int8")[0])
    images = jnp.asarray(BY_ID["conv-relu"].feeds()["x"])
    with pytest.raises(ConfigError, match=r"tpu.Cast '.*': has no derivative, its result is quantised to integers"):
        jax.grad(lambda x: mean_square(flat, x))(images)
    constant = jax.grad(lambda x: x.sum() + mean_square(flat, jax.lax.stop_gradient(x)))(images)
    assert (constant == 1).all()


def test_a_table_by_exponent_has_no_derivative_and_says_so() -> None:
    table = np.ones(256, np.float32)
    with pytest.raises(TypeError, match="lut_mantissa: has no derivative"):
        jax.grad(lambda x: lut_mantissa(x, table, table, log=False).sum())(jnp.ones(3, jnp.float32))


@pytest.mark.parametrize(
    ("mode", "chip"), [("f32", "bm1684x"), ("f16", "bm1688"), ("bf16", "bm1684x"), ("bf16", "cv183x")]
)
def test_transforms_of_jax_compose(mode: str, chip: str) -> None:
    """Gradients of single samples (vmap), compiled (jit), and of gradients (jvp) equal those taken one by one."""
    flat = Flat(lowered("matmul-3d", chip, mode)[0])
    (name, given), *others = BY_ID["matmul-3d"].feeds().items()
    x, fixed = jnp.asarray(given), {key: jnp.asarray(value) for key, value in others}

    def gradient(x: jax.Array) -> jax.Array:
        return jax.grad(lambda x: (next(iter(flat({**fixed, name: x}).values())).astype(jnp.float32) ** 2).sum())(x)

    several = jnp.stack([x, 0.5 * x, -x])
    one_by_one = jnp.stack([gradient(each) for each in several])
    assert jnp.abs(one_by_one).max() > 0
    tolerance = 1e-2 * float(jnp.abs(one_by_one).max())  # of F16 and BF16: sums in another order
    np.testing.assert_allclose(jax.vmap(gradient)(several), one_by_one, rtol=1e-2, atol=tolerance)
    np.testing.assert_allclose(jax.jit(gradient)(x), one_by_one[0], rtol=1e-2, atol=tolerance)
    moved = jax.jvp(gradient, (x,), (x,))[1]  # the function is quadratic: its gradient is linear in x
    np.testing.assert_allclose(moved, one_by_one[0], rtol=0.1, atol=0.1 * float(jnp.abs(one_by_one).max()))
