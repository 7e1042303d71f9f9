"""JAX functions and StableHLO files as networks: values against JAX, ops against those of ONNX, errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import tpusim
from tpusim.canonicalize import canonicalize
from tpusim.errors import ConfigError, ImportModelError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.frontend.onnx.session import Session
from tpusim.frontend.stablehlo import onnx_of_function
from tpusim.inference.executor import results_of
from tpusim.ir.content import is_module, is_stablehlo
from tpusim.ir.module import Model

RNG = np.random.default_rng(43)


@pytest.fixture(autouse=True)
def usual_jax() -> Iterator[None]:
    """JAX as users have it: tests of kernels have stricter rules."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


def array(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


KERNEL, SEPARATE, BIAS, SCALE, DENSE = array(3, 3, 3, 8), array(3, 3, 1, 8), array(8), array(8), array(8, 8)
UP, TABLE, X, Y = array(3, 3, 8, 4), array(10, 8), array(4, 8), array(1, 8, 8, 3)
IMAGES: Any = ("NHWC", "HWIO", "NHWC")


def conv(x: Any, kernel: Any, stride: int = 1, groups: int = 1) -> Any:
    return lax.conv_general_dilated(x, kernel, (stride,) * 2, "SAME", None, None, IMAGES, groups)


def norm(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6) * SCALE + BIAS


def cnn(x: Any) -> Any:
    x = jax.nn.relu((conv(x, KERNEL, 2) - BIAS) * SCALE + BIAS)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") + 0.0
    x = conv(x, SEPARATE, groups=8)
    x = lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID") / 4
    return jax.nn.softmax(x.mean((1, 2)) @ DENSE + BIAS)


def attention(x: Any) -> Any:
    q, k, v = ((norm(x) @ (DENSE * factor) + BIAS).reshape(1, 4, 2, 4) for factor in (1, 2, 3))
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2.0)
    return x + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape) @ DENSE


def rnn(x: Any) -> Any:
    def step(h: Any, t: Any) -> Any:
        h = jnp.tanh(t @ DENSE + h @ DENSE)
        return h, h

    return lax.scan(step, jnp.ones(8), x)


def cached(x: Any, cache: Any, position: Any) -> Any:
    return lax.dynamic_update_slice(cache, x, (position, 0)), jnp.asarray(cache).at[position].set(x[0])


def ordered(x: Any) -> Any:
    return jnp.sort(x), jnp.argsort(-x, 0), lax.top_k(x, 2), jnp.argmax(jnp.round(x * 2), 1), jnp.argmin(x, 0)


def updated(x: Any) -> Any:
    return x.at[1].set(2.0), x.at[jnp.array([0, 3]), jnp.array([1, 9])].add(1.0), x.at[:, 2:4].multiply(x[:, :2])


def moved(x: Any) -> Any:
    grid = x[jnp.array([[0, 3], [1, 2]]), jnp.array([[1, 2], [7, 0]])]
    return grid, x[::2, ::-1], jnp.roll(x, 3, 1), jnp.pad(x, 1), jnp.tile(x, (1, 2)), jnp.stack([x, x], 1), jnp.triu(x)


def products(x: Any) -> Any:
    y = x.reshape(2, 2, 2, 4)
    return jnp.einsum("abcd,dcea->be", y, y.transpose(3, 2, 1, 0)), jnp.einsum("abcd,abed->cabe", y, y), DENSE @ x[0]


def dropped(x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(jax.random.PRNGKey(0), 0.5, x.shape), x, 0)


def resized(x: Any) -> Any:
    return jax.image.resize(x, (1, 16, 16, 3), "nearest"), jax.image.resize(x, (1, 4, 12, 3), "linear")


def widened(x: Any) -> Any:
    x = conv(x, KERNEL)
    return lax.conv_transpose(x, jnp.asarray(UP), (2, 2), "SAME"), lax.reduce_window(
        x, 0.0, lax.add, (1, 1, 1, 8), (1, 1, 1, 1), "VALID"
    )


def running(x: Any) -> Any:
    return (
        jnp.cumsum(x, 1),
        x**3,
        jnp.floor_divide(x, 0.25),
        x > 0,
        jnp.isfinite(x),
        jnp.clip(x, -0.1, 0.1),
        lax.round(x),
    )


def quotients(x: Any) -> Any:
    """Norms as they are written by hand and in equinox: over a root, times 1 / root, with a variance of at least 0."""
    centred, variance = x - x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (
        SCALE * centred / jnp.sqrt(variance + 1e-5), centred * (1 / jnp.sqrt(variance + 1e-5)),
        centred * lax.rsqrt(jnp.maximum(variance, 0) + 1e-5), x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6),
    )  # fmt: skip


def pooled(x: Any) -> Any:
    """RMS norm of the means of an image: the axes that the means leave stay where they are."""
    x = x.mean((1, 2))
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def windows(x: Any) -> Any:
    """Windows with more axes than samples and channels, and with fewer; averages of which the sum is a view."""
    window, strides, pads = (1, 1, 3, 3, 1), (1, 1, 2, 2, 1), ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0))
    total = lax.reduce_window(x[:, None], 0.0, lax.add, window, strides, pads)[:, 0].transpose(0, 3, 1, 2)
    counts = lax.reduce_window(jnp.ones((1, 1, 8, 8, 1)), 0.0, lax.add, window, strides, pads)[:, 0, ..., 0]
    lowest = lax.reduce_window(x[:, None], jnp.inf, lax.min, window, strides, pads)
    return (
        total / 9,
        total / counts[:, None],
        lowest,
        lax.reduce_window(x[0, 0], -jnp.inf, lax.max, (2, 2), (1, 1), "VALID"),
    )


def chosen(x: Any) -> Any:
    """Branches that are computed, an index out of range, the first of several conditions, bools in order."""
    one = lax.cond(x[0, 0] > 0, lambda: (x + 1, jnp.int32(3)), lambda: (x - 1, jnp.int32(4)))
    two = lax.switch(
        (x[0, 1] * 30).astype(jnp.int32), [jnp.sin, lambda x: lax.fori_loop(0, 2, lambda i, h: h * 2, x)], x
    )
    return one, two, jnp.select([x > 0.3, x < 0], [x * 2, x], 0.0), jnp.argmax(x > 0, 1), jnp.argmin(x > 0, 0)


def nothing(x: Any) -> Any:
    """Tensors without elements, as `jnp.pad` writes them for axes that are not padded, and halves."""
    half = (x.astype(jnp.float16) * 2).astype(jnp.float32)
    return jnp.pad(x, ((1, 2), (0, 0)), "edge"), x[:, :0].sum(1) + x[:, 0], jnp.round(half)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "cnn": (cnn, Y, "Permute Conv*2 Scale MaxPool AvgPool Squeeze MatMul Softmax"),
    "attention": (attention, X[None], "LayerNorm MatMul*6 Reshape*4 Permute*4 MulConst Softmax Add"),
    "rnn": (rnn, X, ""),
    "cached": (cached, (X[:1], X, np.int32(2)), ""),
    "embedding": (lambda i: jnp.take(TABLE, i, 0), np.array([3, 1], np.int32), "Gather"),
    "rms": (lambda x: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * SCALE, X, "RMSNorm"),
    "quotients": (quotients, X, "LayerNorm*3 RMSNorm"),
    "pooled": (pooled, Y, "Reduce RMSNorm Squeeze"),
    "windows": (windows, Y, ""),
    "chosen": (chosen, X, ""),
    "nothing": (nothing, X, ""),
    "gelu": (lambda x: jax.nn.gelu(x, approximate=False), X, "GELU"),
    "gelu by tanh": (lambda x: jax.nn.gelu(x * SCALE), X, "Mul GELU"),
    "silu": (jax.nn.silu, X, "SiLU"),
    "elu": (jax.nn.elu, X, "Elu"),
    "leaky relu": (jax.nn.leaky_relu, X, "LeakyRelu"),
    "softplus": (jax.nn.softplus, X, "Softplus"),
    "hard swish": (jax.nn.hard_swish, X, "HardSwish"),
    "log softmax": (jax.nn.log_softmax, X, "LogSoftmax"),
    "ordered": (ordered, X, ""),
    "updated": (updated, X, ""),
    "moved": (moved, X, ""),
    "products": (products, X, ""),
    "resized": (resized, Y, ""),
    "widened": (widened, Y, ""),
    "dropped": (dropped, X, "Where"),
    "running": (running, X, ""),
    "gradient": (jax.grad(lambda x: (jnp.tanh(x) ** 2).sum()), X, ""),
}


def ops_of(top: Model) -> Counter[str]:
    canonical, _ = canonicalize(top)
    found = (op.name.removeprefix("top.") for op in canonical.ops if op.name.startswith("top."))
    return Counter(name for name in found if name not in ("Input", "None", "Weight"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_values_of_jax_and_the_ops_of_onnx(name: str) -> None:
    function, example, ops = FUNCTIONS[name]
    proto, _ = onnx_of_function(function, example)
    leaves = [np.asarray(x) for x in jax.tree_util.tree_leaves(example)]
    feed = dict(zip([i.name for i in proto.graph.input], leaves, strict=True))
    got = Session(proto.SerializeToString(), threads=1).run([o.name for o in proto.graph.output], feed)
    wanted = function(*(example if isinstance(example, tuple) else (jnp.asarray(example),)))
    for mine, theirs in zip(got.values(), jax.tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(mine.astype(np.float64), np.asarray(theirs, np.float64), atol=1e-5, rtol=1e-5)
    counts = ops_of(import_onnx(proto))
    if ops:
        parts = (part.partition("*") for part in ops.split())
        assert counts == Counter({kind: int(number or 1) for kind, _, number in parts})


def test_inputs_results_and_weights_have_names() -> None:
    weights = {"layers": [{"kernel": DENSE}, {"bias": jnp.asarray(BIAS)}]}

    def net(batch: Any, factor: Any) -> Any:
        inner = weights["layers"]
        return {"y": jnp.asarray(batch["a"]) @ jnp.asarray(inner[0]["kernel"]) + inner[1]["bias"] * factor}

    proto, _ = onnx_of_function(net, ({"a": X}, np.float32(2)))
    assert [i.name for i in proto.graph.input] == ["batch.a", "factor"]
    assert [o.name for o in proto.graph.output] == ["y"]
    assert proto.graph.name == "net"
    assert "weights.layers.1.bias" in {i.name for i in proto.graph.initializer}


def test_a_function_is_compiled_with_an_example_from_the_samples_and_is_the_reference() -> None:
    compiled = tpusim.compile(lambda x: jax.nn.relu(x @ DENSE + BIAS), array(4, 8), mode="f32")
    report = compiled.verify(array(1, 8))
    assert "top_vs_function" in str(report) and "FAILED" not in str(report)


@pytest.mark.parametrize("form", ["text", "generic", "bytecode", "artefact"])
def test_stablehlo_files_are_networks_in_every_spelling(form: str, tmp_path: Path) -> None:
    exported = export.export(jax.jit(lambda x: jnp.tanh(x @ DENSE)))(X)
    module = exported.mlir_module() if form == "text" else ""
    lowered: Any = jax.jit(lambda x: jnp.tanh(x @ DENSE)).lower(X).compiler_ir("stablehlo")
    path = tmp_path / ("net.mlir" if form != "artefact" else "net.artefact")
    if form == "text":
        path.write_text(str(module))
    elif form == "generic":
        path.write_text(lowered.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
    elif form == "bytecode":
        with path.open("wb") as file:
            lowered.operation.write_bytecode(file)
    else:
        path.write_bytes(exported.mlir_module_serialized)
    assert is_stablehlo(path) and not is_module(path)
    model = tpusim.load(path)
    assert ops_of(model) == Counter(MatMul=1, Tanh=1)
    assert model.attribute("module.platform") == "STABLEHLO"


FRAMEWORKS = """
module @jit attributes {tf.versions = 1 : i32} {
  func.func @main(%arg0: tensor<1x2x4x4xf32>, %arg1: tensor<2xf32>) -> tensor<1x2xf32> {
    %0 = stablehlo.constant dense<2.0> : tensor<2xf32>
    %1 = "stablehlo.batch_norm_inference"(%arg0, %0, %0, %0, %0) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}>
      : (tensor<1x2x4x4xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32>
    %2 = stablehlo.constant dense<0.0> : tensor<f32>
    %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.add across dimensions = [2, 3]
      : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2xf32>
    %4 = chlo.broadcast_add %3, %2 : (tensor<1x2xf32>, tensor<f32>) -> tensor<1x2xf32>
    %5 = stablehlo.custom_call @Sharding(%4) : (tensor<1x2xf32>) -> tensor<1x2xf32>
    return %5 : tensor<1x2xf32>
  }
}
"""


def test_what_other_frameworks_write_is_read(tmp_path: Path) -> None:
    path = tmp_path / "framework.mlir"
    path.write_text(FRAMEWORKS)
    x = array(1, 2, 4, 4)
    found = tpusim.infer(tpusim.load(path), {"arg0": x, "arg1": array(2)})
    wanted = ((x - 2) / np.sqrt(2 + 1e-3) * 2 + 2).sum((2, 3))
    np.testing.assert_allclose(list(found.values())[-1].reshape(1, 2), wanted, rtol=1e-5)


EARLIER = """
func.func @main(%x: tensor<2x3xf32>, %v: tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<f32>) {
  %w = arith.constant dense<[[1., 2., 3., 4.], [5., 6., 7., 8.], [-1., 0., 1., 2.]]> : tensor<3x4xf32>
  %0 = stablehlo.dot %x, %w, precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %1 = stablehlo.dot %0, %v : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2xf32>
  %2 = stablehlo.dot %v, %v : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  return %0, %1, %2 : tensor<2x4xf32>, tensor<2xf32>, tensor<f32>
}
"""


def test_products_and_constants_of_earlier_exporters(tmp_path: Path) -> None:
    path = tmp_path / "earlier.mlir"
    path.write_text(EARLIER)
    model, x, v = tpusim.load(path), array(2, 3), array(4)
    product = x @ np.array([[1, 2, 3, 4], [5, 6, 7, 8], [-1, 0, 1, 2]], np.float32)
    for found, wanted in zip(results_of(model, {"arg0": x, "arg1": v}), (product, product @ v, v @ v), strict=True):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-5)


RESOURCES = """
module {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %w = stablehlo.constant dense_resource<torch_tensor_2_torch.float32> : tensor<2xf32>
    %h = stablehlo.constant dense_resource<half> : tensor<2xbf16>
    %i = stablehlo.constant dense_resource<places> : tensor<2xi64>
    %f = arith.constant dense<0.5> : tensor<1xf64>
    %0 = stablehlo.convert %f : (tensor<1xf64>) -> tensor<1xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<1xf32>) -> tensor<2xf32>
    %2 = stablehlo.convert %h : (tensor<2xbf16>) -> tensor<2xf32>
    %3 = stablehlo.convert %i : (tensor<2xi64>) -> tensor<2xf32>
    %4 = stablehlo.multiply %x, %w : tensor<2xf32>
    %5 = stablehlo.add %4, %1 : tensor<2xf32>
    %6 = stablehlo.multiply %5, %2 : tensor<2xf32>
    %7 = stablehlo.add %6, %3 : tensor<2xf32>
    return %7 : tensor<2xf32>
  }
}
{-#
  dialect_resources: {
    builtin: {
      torch_tensor_2_torch.float32: "0x040000000000003F0000A040",
      half: "0x04000000803F00C0",
      places: "0x0800000003000000000000000700000000000000"
    }
  }
#-}
"""


def test_constants_at_the_end_of_a_file_are_read_and_those_of_f64(tmp_path: Path) -> None:
    path = tmp_path / "torch.mlir"
    path.write_text(RESOURCES)
    x = array(2)
    (found,) = results_of(tpusim.load(path), {"arg0": x})
    np.testing.assert_allclose(found, (x * [0.5, 5] + 0.5) * [1, -2] + [3, 7], rtol=1e-5)
    path.write_text(RESOURCES.replace("0x04000000803F00C0", "0x04000000803F"))
    with pytest.raises(UnsupportedError, match=r"dense_resource<half> of bf16, which the file leaves out"):
        tpusim.load(path)


BRANCHES = """
func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %z = stablehlo.abs %x : tensor<2xf32>
  cf.br ^bb1(%z : tensor<2xf32>)
^bb1(%y: tensor<2xf32>):
  return %y : tensor<2xf32>
}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BRANCHES, "@main: a function of one block is required, got 2, as of cf.br"),
        (
            "func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {\n"
            "  %0:2 = call @f(%x) : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)\n"
            "  return %0#0, %0#1 : tensor<2xf32>, tensor<2xf32>\n}\n"
            + BRANCHES.replace("@main", "private @f").replace(
                "-> tensor<2xf32> {", "-> (tensor<2xf32>, tensor<2xf32>) {"
            ).replace("return %y : tensor<2xf32>", "return %y, %y : tensor<2xf32>, tensor<2xf32>"),
            "func.call: a function of one block is required, got 2",
        ),
        (
            "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
            "  %w = stablehlo.constant dense_resource<__elided__> : tensor<2xf32>\n"
            "  %0 = stablehlo.add %x, %w : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}",
            "elements in the file is required, got dense_resource<__elided__> of f32, which the file leaves out",
        ),
    ],
    ids=["branches", "branches-in-a-call", "elided"],
)  # fmt: skip
def test_files_that_are_no_network_of_one_block_with_weights(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    path.write_text(text)
    with pytest.raises(UnsupportedError, match=re.escape(words)):
        tpusim.load(path)


def begun(x: Any) -> Any:
    """Reductions that begin with a value that counts; padding of a window has it, too."""
    window = (1, 2, 2, 1), (1, 2, 2, 1), "SAME"
    return (
        lax.reduce(x, jnp.float32(5), lax.add, (1, 2)), lax.reduce(x, jnp.float32(-1), lax.max, (3,)),
        lax.reduce(x, x[0, 0, 0, 0], lax.mul, (1,)), lax.reduce(x > 0, True, lax.bitwise_or, (1,)),
        lax.reduce_window(x, jnp.float32(0), lax.max, *window), lax.reduce_window(x, jnp.float32(-2), lax.min, *window),
    )  # fmt: skip


def test_a_reduction_begins_with_its_first_value() -> None:
    x = array(1, 3, 4, 2) - 2
    call = onnx_of_function(begun, x)
    names = [o.name for o in call.proto.graph.output]
    found = Session(call.proto.SerializeToString(), threads=1).run(names, {"x": x})
    for name, wanted in call.function({"x": x}).items():
        np.testing.assert_allclose(found[name].astype(np.float32), wanted.astype(np.float32), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="a first value that changes nothing is required"):
        onnx_of_function(
            lambda x: lax.reduce_window(x, jnp.float32(1), lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"), x
        )


def test_arguments_of_one_name_are_numbered_without_clashes() -> None:
    call = onnx_of_function(lambda a: a["b"] + a["b.0"][0] + a["c"], {"b": X, "b.0": [X], "c": X})
    names = [i.name for i in call.proto.graph.input]
    assert len(set(names)) == len(names) == 3


def positive(x: Any) -> Any:
    return x if x.sum() > 0 else -x


def printed(x: Any) -> Any:
    jax.debug.print("{}", x)
    return x


def complex_and_factored(x: Any) -> Any:
    with jax.named_scope("spectrum"):
        y = jnp.abs(jnp.fft.fft(x))
    return y, jnp.linalg.svd(x)[1]


REFUSED: dict[str, tuple[Callable[..., Any], Any, type[Exception], str]] = {
    "no example": (positive, None, ConfigError, "function 'positive': an example of its inputs is required"),
    "depends on numbers": (positive, X, ImportModelError, r"'positive': what it computes must not depend on numbers"),
    "fails": (lambda x: x.nothing, X, ImportModelError, "cannot trace it for this example .AttributeError"),
    "no result": (lambda x: None, X, ImportModelError, "at least one array is required as result"),
    "text": (jnp.sin, "text", ConfigError, "an array is required as example of .*, got str"),
    "side effect": (printed, X, UnsupportedError, "callback"),
    "all at once": (complex_and_factored, X, UnsupportedError, r"complex(.|\n)*sgesdd"),
    "while": (
        lambda x: lax.while_loop(lambda h: h.sum() < 9, lambda h: h + 1, x),
        X,
        UnsupportedError,
        "number of steps",
    ),
    "scatter": (lambda x, i: x.at[i].add(1.0), (X, np.array([1, 1])), UnsupportedError, "places that are known"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_network_is_said(name: str) -> None:
    function, example, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        tpusim.load(function, example)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  %0 = stablehlo.add %arg0, %arg1 : tensor<2xf32>\n  return %0", "line 4: expected"),
        ("  %0 = stablehlo.rng_bit_generator %arg0, algorithm = DEFAULT", "net.mlir"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    path.write_text("module {\nfunc.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {\n" + text + "}}")
    with pytest.raises(ImportModelError, match=message):
        tpusim.load(path)


def test_dynamic_shapes_and_doubles_are_named(tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    for kind, message in (("tensor<?xf32>", "static shapes are required"), ("tensor<2xf64>", "f32, f16, bf16")):
        body = f"%0 = stablehlo.abs %a : {kind}\nreturn %0 : {kind}"
        path.write_text(f"module {{\nfunc.func @main(%a: {kind}) -> {kind} {{\n{body}\n}}}}")
        with pytest.raises(UnsupportedError, match=f"argument 0: .*{message}"):
            tpusim.load(path)
