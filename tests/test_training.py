"""Training through a chip's arithmetic: forward the chip's numbers, backward straight through the rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tpusim
from tpusim.errors import CalibrationError, ConfigError
from tpusim.studies.export import export_onnx
from tpusim.studies.training import Differentiable

SHAPE = (1, 3, 8, 8)
FILTER = "w"


def normal(shape: tuple[int, ...], seed: int, size: float = 1.0) -> np.ndarray:
    return (size * np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(np.float32)


@cache
def network() -> onnx.ModelProto:
    """A convolution with relu, a pool and a product."""
    constants = {"w": normal((8, 3, 3, 3), 1, 0.3), "b": normal((8,), 2, 0.2), "k": normal((128, 5), 3, 0.2)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["t"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["t"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "k"], ["y"]),
    ]
    io = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", SHAPE), ("y", (1, 5)))]
    stored = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "small", io[:1], io[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def compiled(chip: str, mode: str) -> tpusim.Compiled:
    samples = [{"x": normal(SHAPE, seed)} for seed in range(4)] if mode == "int8" else None
    return tpusim.compile(network(), samples, chip=chip, mode=mode)


IMAGES = normal((4, *SHAPE[1:]), 9)
CELLS = [("bm1684x", "int8"), ("bm1684", "int8"), ("cv183x", "int8"), ("bm1688", "f16")]


def scaled(weights: dict[str, Any], seed: int) -> dict[str, Any]:
    """Other weights, near the given ones."""
    return {name: np.asarray(a * (1 + 0.1 * normal(a.shape, seed)), np.float32) for name, a in weights.items()}


def loss_of(net: Differentiable) -> Callable[[Any], jax.Array]:
    return lambda weights: jnp.square(net(weights, IMAGES)["y_MatMul"]).sum()


@pytest.mark.parametrize(("chip", "mode"), CELLS)
def test_the_results_are_those_of_the_chip_whatever_the_weights(chip: str, mode: str) -> None:
    net = compiled(chip, mode)
    for weights in (net.differentiable.weights, scaled(net.differentiable.weights, 5)):
        (got,) = net.differentiable(weights, IMAGES).values()
        tuned = net.with_weights(weights)
        (wanted,) = tuned.flat(IMAGES).values()
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(np.asarray(got), wanted.astype(np.float32))
    sample = {"x": IMAGES[:1]}
    flat, machine = tuned.tensors(sample), tuned.machine().run(sample).tensors
    for name in machine:
        np.testing.assert_array_equal(machine[name], flat[name])


def test_a_tuned_network_is_compiled_in_the_same_way() -> None:
    samples = [{"x": normal(SHAPE, seed)} for seed in range(2)]
    net = tpusim.compile(network(), samples, layer_group="off", addr_mode="io_alone")
    tuned = net.with_weights(net.differentiable.weights)
    assert [c.label for c in tuned.program.commands] == [c.label for c in net.program.commands]
    assert tuned.program.header == net.program.header
    assert tuned.program.tensors == net.program.tensors


def test_in_floats_the_derivatives_are_those_of_the_network() -> None:
    """Difference quotients of the float network; f32 sums are off by 1e-7 of their size, the quotients by 1e-3."""
    net = compiled("bm1684x", "f32").differentiable
    weights = net.weights
    slope = jax.grad(loss_of(net))(weights)
    for name, a in weights.items():
        step = 1e-2 * normal(a.shape, 7)
        values = [float(loss_of(net)({**weights, name: a + sign * step})) for sign in (1, -1)]
        wanted = (values[0] - values[1]) / 2
        assert float((slope[name] * step).sum()) == pytest.approx(wanted, rel=0.02, abs=1e-3 * abs(values[0]))


@pytest.mark.parametrize(("chip", "mode"), CELLS)
def test_the_derivatives_lead_down(chip: str, mode: str) -> None:
    """Towards the results of other weights, in the chip's numbers."""
    net = compiled(chip, mode).differentiable
    goal = net(scaled(net.weights, 8), IMAGES)["y_MatMul"]

    def loss(weights: Any) -> jax.Array:
        return jnp.square(net(weights, IMAGES)["y_MatMul"] - goal).mean()

    weights: Any = net.weights
    first = float(loss(weights))
    for _ in range(6):
        slope = jax.grad(loss)(weights)
        norm = sum(float(jnp.square(s).sum()) for s in slope.values())
        weights = {name: a - 0.3 * float(loss(weights)) / norm * slope[name] for name, a in weights.items()}
    assert float(loss(weights)) < 0.6 * first


def test_a_value_outside_its_type_has_no_derivative() -> None:
    """All filters so large that every output of the convolution saturates at the threshold that was measured."""
    net = compiled("bm1684x", "int8").differentiable
    name = next(n for n, a in net.weights.items() if a.ndim == 4)
    huge = {name: np.full_like(net.weights[name], 1e3)}
    x = np.abs(IMAGES) + 1
    slope = jax.grad(lambda w: net(w, x)["y_MatMul"].sum())(huge)[name]
    assert not np.asarray(slope).any()
    there = jax.grad(lambda w: net(w, x)["y_MatMul"].sum())({name: net.weights[name]})[name]
    assert np.asarray(there).any()


def test_inputs_have_derivatives_too() -> None:
    net = compiled("bm1684x", "int8").differentiable
    slope = jax.grad(lambda x: jnp.square(net({}, x)["y_MatMul"]).sum())(jnp.asarray(IMAGES))
    assert slope.shape == IMAGES.shape and np.asarray(slope).any()


def test_what_is_differentiated_is_shown() -> None:
    net = compiled("bm1684x", "int8").differentiable
    forward, backward = net.text(IMAGES), net.text(IMAGES, gradient=True)
    assert "stablehlo.convolution" in forward and "y_MatMul" in forward
    assert backward.count("stablehlo.convolution") > forward.count("stablehlo.convolution")


def test_tuned_weights_go_back_to_onnx() -> None:
    net = compiled("bm1684x", "int8").differentiable
    weights = scaled(net.weights, 4)
    again = tpusim.compile(export_onnx(net.module(weights)).proto, chip="bm1684x", mode="f32")
    (got,) = again.flat(IMAGES).values()
    (wanted,) = compiled("bm1684x", "f32").differentiable(weights, IMAGES).values()
    np.testing.assert_array_equal(got, np.asarray(wanted))


@pytest.mark.parametrize("name", [FILTER, "k"])
def test_weights_that_no_multiplier_reaches_are_said(name: str) -> None:
    """Finite weights, so large that the quotient of the scales is beyond 2^63 (numerics.md 5.1)."""
    net = compiled("bm1684x", "int8").differentiable
    with pytest.raises(CalibrationError, match=r"^top\.(Conv|MatMul) '.*': scale .* has no 32-bit multiplier"):
        net.tpu({name: np.full_like(net.weights[name], 1e30)})


def test_results_are_in_the_order_of_the_network() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("Neg", ["z"], ["a"])]
    x, z, a = (helper.make_tensor_value_info(n, 1, SHAPE) for n in "xza")
    graph = helper.make_graph(nodes, "two", [x], [z, a])
    net = tpusim.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), mode="f32"
    )
    first, second = net.differentiable({}, IMAGES).values()
    np.testing.assert_array_equal(first, np.maximum(IMAGES, 0))
    np.testing.assert_array_equal(second, -first)


def bad(filter: object) -> Callable[[Differentiable], object]:
    return lambda net: net({FILTER: filter}, IMAGES)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda net: net({"nobody": np.zeros(3)}, IMAGES), "weights: one of .* is required, got 'nobody'"),
        (lambda net: net(dict.fromkeys(net.weights, np.zeros(2)), IMAGES), r"shape \(.*\) is required, got \(2,\)"),
        (lambda net: net(None, IMAGES), "weights: a mapping of arrays by name is required, got NoneType"),
        (lambda net: net.module(list(net.weights.values())), "a mapping of arrays by name is required, got list"),
        (bad(None), f"weight '{FILTER}': an array of numbers is required, got NoneType"),
        (bad([[1.0], [2.0, 3.0]]), "an array of numbers is required, got list"),
        (bad("abc"), "an array of numbers is required, got str"),
        (lambda net: net.module({FILTER: net.weights[FILTER] * 1j}), "real numbers are required, got complex64"),
        (lambda net: net.module({FILTER: net.weights[FILTER] > 0}), "real numbers are required, got bool"),
        (lambda net: jax.jit(net.module)(net.weights), "outside jax.jit"),
        (lambda net: net({n: a * np.nan for n, a in net.weights.items()}, IMAGES), "finite numbers are required"),
        (lambda net: jax.jit(lambda w: net(w, IMAGES))(net.weights), "outside jax.jit"),
        (lambda net: net({}, IMAGES[:, :2]), r"input 'x': shape \(N, 3, 8, 8\) is required"),
    ],
)
def test_what_does_not_fit_is_said(call: Callable[[Differentiable], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call(compiled("bm1684x", "int8").differentiable)
