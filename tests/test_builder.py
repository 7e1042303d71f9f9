"""A network that was never ONNX: built by `make` of the ops, compiled, run, and compared with plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def, result_def

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.errors import ConfigError, ImportModelError
from tpusim.inference import Flat, Graph
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import shape_of
from tpusim.ops.conv import TopConv
from tpusim.ops.framework.base import TopOp
from tpusim.ops.framework.builder import ModuleBuilder
from tpusim.ops.matmul import TopMatMul, make_gemm
from tpusim.ops.mul import TopMul
from tpusim.ops.pool import TopMaxPool
from tpusim.ops.relu import TopRelu
from tpusim.ops.slice import TopSlice
from tpusim.ops.view import TopReshape

ROOT = Path(__file__).resolve().parent.parent
RNG = np.random.default_rng(9)
FILTER = (RNG.standard_normal((6, 3, 3, 3)) * 0.3).astype(np.float32)
BIAS, TERM = (RNG.standard_normal(n).astype(np.float32) for n in (6, 8))
MATRIX = (RNG.standard_normal((8, 54)) * 0.2).astype(np.float32)
SAMPLES = [{"x": RNG.standard_normal((1, 3, 6, 6), np.float32)} for _ in range(3)]


def small() -> Model:
    """Convolution, relu, pool, product of BLAS with its matrix transposed, and a split that is returned."""
    b = ModuleBuilder()
    x = b.input("x", (1, 3, 6, 6))
    y = TopConv.make(b, x, b.weight("w", FILTER), b.weight("b", BIAS), pads=(1, 1, 1, 1), name="conv")
    y = TopRelu.make(b, y, name="relu")
    y = TopMaxPool.make(b, y, kernel_shape=(2, 2), strides=(2, 2), name="pool")
    y = TopReshape.two_axes(b, y, name="flat")
    y = make_gemm(b, y, b.weight("matrix", MATRIX), b.weight("term", TERM), right_transpose=True, alpha=0.5, name="fc")
    return b.finish(TopSlice.split(b, y, axis=1, sizes=(3, 5), names=("low", "high")), name="small")


def in_numpy(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same, element by element."""
    padded = np.pad(inputs["x"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))  # type: ignore[call-overload]
    conv = np.einsum("nchwij,ocij->nohw", windows, FILTER) + BIAS[:, None, None]
    relu = np.maximum(conv, 0)
    pool = relu.reshape(1, 6, 3, 2, 3, 2).max(axis=(3, 5))
    fc = 0.5 * pool.reshape(1, -1) @ MATRIX.T + TERM
    return {"relu": relu, "pool": pool, "fc": fc, "low": fc[:, :3], "high": fc[:, 3:]}


@cache
def compiled() -> tpusim.compiled.Compiled:
    return tpusim.compile(small(), SAMPLES, chip="bm1684x", calibration=CalibrationConfig("max"), reference=in_numpy)


def test_a_network_that_was_never_onnx_is_compiled_and_run() -> None:
    net, x = compiled(), SAMPLES[0]
    found = net.verify(x)
    assert found.passed and found.bit_exact
    against = found.comparisons["top_vs_function"]
    assert {t.name for t in against.tensors} == {"relu", "pool", "fc", "low", "high"}
    assert against.min_cosine > 0.999999
    assert [value_name(v) for v in net.top.results] == ["low", "high"]
    assert [y.shape for y in net.flat(x).values()] == [(1, 3), (1, 5)]


def test_weights_that_nothing_reads_are_left_out() -> None:
    """The matrix is stored once, as (K, N) and times alpha."""
    model = small()
    assert set(model.weights) == {"w", "b", "matrix_transposed", "term"}
    np.testing.assert_array_equal(model.weights["matrix_transposed"], MATRIX.T * np.float32(0.5))
    assert sum(op.name == "top.Weight" for op in model.ops) == 4


def test_a_weight_of_lower_rank_is_aligned() -> None:
    b = ModuleBuilder()
    y = TopMul.make(b, [b.input("x", (1, 3, 4, 4)), b.weight("k", TERM[:4])], name="y")
    model = b.finish([y], name="m")
    assert {n: w.shape for n, w in model.weights.items()} == {"k_1": (1, 1, 1, 4)}


def test_a_reference_gives_arrays_by_name() -> None:
    net = tpusim.compile(small(), mode="f32", reference=lambda inputs: list(inputs))  # type: ignore[arg-type,return-value]
    with pytest.raises(ConfigError, match="a dict of NumPy arrays by tensor name is required, got list"):
        net.verify(SAMPLES[0])


@irdl_op_definition
class TopEnds(TopOp):
    """The first and the last column: an op of two results, of which tpusim has none yet."""

    name = "top.Ends"
    input = operand_def(TensorType)
    first = result_def(TensorType)
    last = result_def(TensorType)

    def infer(self) -> tuple[tuple[int, ...], ...]:
        return ((shape_of(self.input)[0],),) * 2

    def inference(self, operands: Sequence[Any]) -> tuple[Any, ...]:
        return operands[0][:, 0], operands[0][:, -1]


def test_every_result_of_an_op_has_a_name() -> None:
    b = ModuleBuilder()
    first = b.build(TopEnds, [b.input("x", (2, 3))], {}, ("first", "last"))
    model = b.finish(first.owner.results[::-1], name="m")  # type: ignore[union-attr]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for found in (tpusim.infer(model, {"x": x}), Graph(model)({"x": x}), Flat(model)(x)):
        assert (found["first"].tolist(), found["last"].tolist()) == ([0, 3], [2, 5])
    with pytest.raises(ImportModelError, match="top.Ends 'first': 2 names are required, one per result, got 1"):
        ModuleBuilder().build(TopEnds, [b.input("z", (2, 3))], {}, "first")


Making = Callable[[ModuleBuilder], object]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda b: TopConv.make(b, b.input("x", (1, 3)), b.weight("w", FILTER), name="c"),
            r"top.Conv 'c': a 1-D, 2-D or 3-D convolution is required, got a filter of shape \(6, 3, 3, 3\)",
        ),
        (
            lambda b: TopConv.make(b, b.input("x", (1, 3, 6, 6)), b.weight("w", FILTER), strides=(2,), name="c"),
            r"top.Conv 'c': 2 strides and dilations and 4 pads are required, got \[2\]",
        ),
        (
            lambda b: TopConv.make(b, b.input("x", (1, 4, 6, 6)), b.weight("w", FILTER), name="c"),
            "top.Conv 'c': input of 4 channels does not fit",
        ),
        (
            lambda b: TopMatMul.make(b, b.input("x", (3,)), b.weight("w", MATRIX), name="m"),
            "top.MatMul 'm': operands of rank 2 or more are required",
        ),
        (
            lambda b: TopReshape.make(b, b.input("x", (2, 3)), shape=(4, -1), name="r"),
            r"top.Reshape 'r': 6 elements of \(2, 3\) do not fill target",
        ),
        (
            lambda b: make_gemm(b, b.input("x", (2, 3)), b.input("y", (3, 2)), alpha=2.0, name="g"),
            "top.MatMul 'g': alpha and beta of 1 are required for computed operands, got 2.0 for 'y'",
        ),
        (
            lambda b: b.finish([b.weight("w", FILTER)], name="m"),
            "module 'm': results must be values that its ops compute",
        ),
        (
            lambda b: TopSlice.split(b, b.input("x", (1, 4)), axis=1, sizes=(3, 3), names=("low", "high")),
            r"top.Slice 'low': 2 sizes above 0 that add up to 4 are required, got \[3, 3\]",
        ),
    ],
)  # fmt: skip
def test_an_op_that_cannot_be_made_is_named(make: Making, why: str) -> None:
    with pytest.raises(ImportModelError, match=why):
        make(ModuleBuilder())


def test_inputs_are_named_and_typed() -> None:
    b = ModuleBuilder()
    y = TopReshape.two_axes(b, b.input("image", (1, 3, 2, 2), np.uint8), name="y")
    model = b.finish([y], name="m")
    (op,) = [op for op in model.ops if op.name == "top.Input"]
    assert op_name(op) == "image" and shape_of(op.results[0]) == (1, 3, 2, 2)
    assert tpusim.infer(model, {"image": np.full((1, 3, 2, 2), 200, np.uint8)})["y"].tolist() == [[200.0] * 12]
    with pytest.raises(ConfigError, match="input 'image': uint8 values that float32 .* got int64 with other values"):
        tpusim.infer(model, {"image": np.full((1, 3, 2, 2), 300)})


def test_the_readme_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The README's lines run as they stand."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Networks that are not ONNX")[1].split("\n## ")[0]
    exec(text.split("```python\n")[1].split("```")[0], {})  # noqa: S102
    assert "<Verification PASSED\n  top_vs_function: 1 tensors" in capsys.readouterr().out
