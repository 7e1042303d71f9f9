"""Matrix product, pools, Concat, views, Permute, Softmax, LRN, Mul and the requants, from ONNX to commands.

One row of CASES per op x case. Every row is compared with ONNX Runtime in float; its integer form on each chip against
`oracle`, NumPy int64 written from the specification; its commands, whole in global memory and stitched from slices in
local memory, against the flat inference.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from compiling import to_calibrated, to_tpu, to_tpu_with_fallbacks
from onnx import TensorProto, helper, numpy_helper
from plain_names import import_onnx
from rotation import marks
from xdsl.dialects.builtin import ModuleOp, NoneType, StringAttr, f16
from xdsl.ir import Operation, SSAValue

from tpusim import chips
from tpusim.errors import UnsupportedError
from tpusim.frontend import OnnxReference
from tpusim.inference import run
from tpusim.ir.attrs import flag, float_attr, int_attr, ints, ints_attr, op_name
from tpusim.ir.formats import INT8
from tpusim.ir.modes import pool_mode
from tpusim.ir.module import Model
from tpusim.ir.text import parse_module, print_module
from tpusim.ir.types import UniformType, element_of, f32, is_tensor, shape_of, storage_dtype, tensor, uniform_of
from tpusim.isa.check import body_rules_of, check
from tpusim.isa.commands import Move
from tpusim.isa.layout import activation_view, align, gmem_bytes, lmem_bytes
from tpusim.isa.region import View, dtype_of, itemsize
from tpusim.lowering import LoweringConfig
from tpusim.lowering.lower import Lowering
from tpusim.ops import context
from tpusim.ops.concat import TopConcat, TpuConcat
from tpusim.ops.framework.base import TensorSlice, TpuOp, logical_shape
from tpusim.ops.framework.families import part_of, shorter_axes
from tpusim.ops.interfaces import SharedWindows, is_in_place, needed_window
from tpusim.ops.lrn import TopLRN
from tpusim.ops.matmul import TopMatMul, TpuMatMul
from tpusim.ops.mul import TpuMul, partial_type
from tpusim.ops.permute import TopPermute
from tpusim.ops.pool import TopMaxPool, TpuPool2D
from tpusim.ops.rescale import TpuMulShift, TpuRequantInt
from tpusim.ops.slice import TpuSlice
from tpusim.ops.softmax import TopSoftmax, TpuSoftmax
from tpusim.ops.structure import TopInput, TopNone, TopWeight, make_none
from tpusim.ops.view import TopFlatten, TopReshape, TopSqueeze, TopUnsqueeze, TpuReshape
from tpusim.simulator.handlers import execute
from tpusim.simulator.memory import Machine, Region

CHIPS = ("bm1684x", "bm1684")
Array = np.ndarray


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def random(shape: Sequence[int], seed: int = 0, low: float = -1.0, high: float = 1.0) -> Array:
    return rng(seed).uniform(low, high, shape).astype(np.float32)


# ------------------------------------------------------------------------------------------------------------ the cases


@dataclass(frozen=True)
class Case:
    """One node (or a few) with its inputs; `why_float` names why the integer lowering falls back, per chip."""

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    inputs: dict[str, tuple[int, ...]]
    constants: dict[str, Array] = field(default_factory=dict)
    opset: int = 17
    low: float = -1.0
    why_float: dict[str, str] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        return onnx_model(self.nodes, self.inputs, self.constants, self.opset)

    def feeds(self, seed: int = 1) -> dict[str, Array]:
        return {name: random(shape, seed + i, self.low) for i, (name, shape) in enumerate(self.inputs.items())}


def onnx_model(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], constants: dict[str, Array], opset: int
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "case",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def one(op: str, *inputs: str, **attributes: Any) -> tuple[onnx.NodeProto, ...]:
    return (helper.make_node(op, list(inputs), ["y"], name="node", **attributes),)


def matmul_cases() -> list[Case]:
    w, b = random((48, 20), 3), random((20,), 4)
    only_x = {c: "one constant matrix" for c in ("bm1684",)}
    return [
        Case("matmul-2d", one("MatMul", "x", "w"), {"x": (5, 48)}, {"w": w}),
        Case("matmul-3d", one("MatMul", "x", "w"), {"x": (2, 5, 48)}, {"w": w}, low=0.0, why_float=only_x),
        Case("matmul-batched-weight", one("MatMul", "x", "w"), {"x": (3, 4, 6)}, {"w": random((3, 6, 5))},
             why_float=only_x),
        Case("matmul-activations", one("MatMul", "x", "z"), {"x": (2, 3, 4, 6), "z": (3, 6, 5)}, why_float=only_x),
        Case("matmul-lower-left", one("MatMul", "x", "z"), {"x": (4, 6), "z": (3, 6, 5)}, why_float=only_x),
        Case("matmul-constant-left", one("MatMul", "w", "x"), {"x": (20, 7)}, {"w": w},
             why_float={c: "left operand is constant" for c in CHIPS}),
        Case("gemm-bias", one("Gemm", "x", "w", "b"), {"x": (3, 48)}, {"w": w, "b": b}),
        Case("gemm-zoo", one("Gemm", "x", "w", "b", transB=1, alpha=0.5, beta=2.0), {"x": (1, 48)},
             {"w": np.ascontiguousarray(w.T), "b": b}),
        Case("gemm-row-bias", one("Gemm", "x", "w", "b", alpha=-1.5), {"x": (3, 48)}, {"w": w, "b": b.reshape(1, -1)}),
        Case("gemm-scalar-bias", one("Gemm", "x", "w", "b"), {"x": (3, 48)}, {"w": w, "b": b[:1]}),
        Case("gemm-matrix-bias", one("Gemm", "x", "w", "b", beta=0.5), {"x": (3, 48)},
             {"w": w, "b": random((3, 1), 7)}),
        Case("gemm-computed-bias", one("Gemm", "x", "w", "b"), {"x": (3, 48), "b": (20,)}, {"w": w}),
        Case("gemm-trans-a", one("Gemm", "x", "w", transA=1), {"x": (48, 3)}, {"w": w}, why_float=only_x),
        Case("gemm-trans-both", one("Gemm", "x", "z", transA=1, transB=1), {"x": (6, 3), "z": (5, 6)},
             why_float=only_x),
    ]  # fmt: skip


def pool_cases() -> list[Case]:
    x = {"x": (2, 5, 13, 11)}
    large = {"x": (1, 3, 16, 16)}
    return [
        Case("max", one("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]), x),
        Case("max-ceil", one("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), x),
        Case("max-same", one("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"), x),
        Case("max-lower", one("MaxPool", "x", kernel_shape=[4, 2], strides=[3, 1], auto_pad="SAME_LOWER"), x, low=0.0),
        Case("max-valid", one("MaxPool", "x", kernel_shape=[5, 5], auto_pad="VALID", storage_order=0), x),
        Case("max-global", one("GlobalMaxPool", "x"), large, why_float={"bm1684": "kernel of 256"}),
        Case("avg", one("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), x),
        Case("avg-counted", one("AveragePool", "x", kernel_shape=[3, 3], strides=[1, 2], pads=[1, 1, 1, 1],
                                count_include_pad=1), x),
        Case("avg-ceil", one("AveragePool", "x", kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1, pads=[1, 0, 1, 1]),
             x, low=0.0, opset=19),
        Case("avg-plain", one("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2]), x),
        Case("avg-global", one("GlobalAveragePool", "x"), {"x": (2, 70, 7, 7)}, low=0.0),
        Case("avg-global-large", one("GlobalAveragePool", "x"), large, why_float={"bm1684": "kernel of 256"}),
        Case("max-far", one("MaxPool", "x", kernel_shape=[2, 2], strides=[16, 16]), {"x": (1, 2, 33, 20)}),
    ]  # fmt: skip


def shared_concat(factor: float) -> tuple[tuple[onnx.NodeProto, ...], dict[str, Array]]:
    """Concat(x, factor*x): x has another user, so the ranges stay apart and one operand is requantised."""
    product = helper.make_node("Mul", ["x", "w"], ["m"], name="product")
    return (product, *one("Concat", "x", "m", axis=1)), {"w": np.array(factor, np.float32)}


def data_cases() -> list[Case]:
    two = {"x": (4, 5, 6, 7), "z": (4, 3, 6, 7)}
    constant = {c: "is constant" for c in CHIPS}
    wide = {"x": (2, 70, 5, 3), "z": (2, 30, 5, 3), "v": (2, 64, 5, 3)}
    return [
        Case("concat-c", one("Concat", "x", "z", axis=1), two),
        Case("concat-wide", one("Concat", "x", "z", "v", axis=-3), wide),
        Case("concat-h", one("Concat", "x", "z", axis=2), {"x": (1, 70, 6, 7), "z": (1, 70, 2, 7)}),
        Case("concat-w", one("Concat", "x", "z", axis=3), {"x": (1, 4, 6, 7), "z": (1, 4, 6, 2)}),
        Case("concat-shared", shared_concat(0.1)[0], {"x": (2, 5, 6)}, shared_concat(0.1)[1]),
        Case("concat-signs", shared_concat(-0.5)[0], {"x": (2, 5, 6)}, shared_concat(-0.5)[1], low=0.0),
        Case("concat-n", one("Concat", "x", "z", axis=0), {"x": (3, 4, 6), "z": (2, 4, 6)}),
        Case("concat-5d", one("Concat", "x", "z", axis=4), {"x": (1, 2, 3, 4, 5), "z": (1, 2, 3, 4, 1)}),
        Case("concat-constant", one("Concat", "x", "w", axis=1), {"x": (1, 4)}, {"w": random((1, 3))},
             why_float=constant),
        Case("reshape", one("Reshape", "x", "s"), {"x": (2, 3, 4, 5)}, {"s": np.array([0, -1, 5])}),
        Case("reshape-batch", one("Reshape", "x", "s"), {"x": (3, 4, 5)}, {"s": np.array([-1, 2])}),
        Case("flatten", one("Flatten", "x"), {"x": (2, 3, 4, 5)}),
        Case("flatten-axis", one("Flatten", "x", axis=-2), {"x": (2, 3, 4, 5)}),
        Case("squeeze", one("Squeeze", "x", "s"), {"x": (2, 3, 1, 1)}, {"s": np.array([-1, 2])}),
        Case("squeeze-all", one("Squeeze", "x"), {"x": (1, 3, 1, 4)}, opset=11),
        Case("unsqueeze", one("Unsqueeze", "x", "s"), {"x": (2, 3)}, {"s": np.array([-1, 0])}),
        Case("unsqueeze-old", one("Unsqueeze", "x", axes=[1, 2]), {"x": (2, 3)}, opset=11),
        Case("transpose", one("Transpose", "x", perm=[0, 2, 3, 1]), {"x": (2, 3, 4, 5)}),
        Case("transpose-batch", one("Transpose", "x", perm=[1, 0, 2]), {"x": (6, 3, 5)}),
        Case("transpose-default", one("Transpose", "x"), {"x": (2, 3, 4, 5, 2)}),
        Case("transpose-shuffle", one("Transpose", "x", perm=[0, 2, 1, 3, 4]), {"x": (1, 4, 5, 3, 3)}),
    ]  # fmt: skip


def other_cases() -> list[Case]:
    no_bm1684 = {"bm1684": "no integer form"}
    last = {**no_bm1684, "bm1684x": "along axis 1"}
    never = {c: "no integer form" for c in CHIPS}
    return [
        Case("softmax-channels", one("Softmax", "x", axis=1), {"x": (2, 37, 3, 2)}, why_float=no_bm1684),
        Case("softmax-2d", one("Softmax", "x"), {"x": (2, 100)}, low=0.0, why_float=no_bm1684),
        Case("softmax-last", one("Softmax", "x"), {"x": (2, 4, 9)}, why_float=last),
        Case("softmax-old", one("Softmax", "x"), {"x": (2, 10, 1, 1)}, opset=9, why_float=no_bm1684),
        Case("softmax-old-last", one("Softmax", "x"), {"x": (2, 1, 9)}, opset=9, why_float=last),
        Case("softmax-old-flat", one("Softmax", "x", axis=1), {"x": (2, 3, 4)}, opset=11, why_float=no_bm1684),
        Case("log-softmax", one("LogSoftmax", "x", axis=1), {"x": (2, 9)}, why_float=never),
        Case("lrn", one("LRN", "x", size=5, alpha=0.1, beta=0.6, bias=2.0), {"x": (2, 11, 3, 4)}, why_float=never),
        Case("lrn-defaults", one("LRN", "x", size=3), {"x": (1, 6, 2, 2)}, why_float=never),
        Case("mul", one("Mul", "x", "z"), {"x": (2, 5, 6, 7), "z": (2, 5, 6, 7)}),
        Case("mul-unsigned", one("Mul", "x", "z"), {"x": (5, 70, 6, 3), "z": (5, 70, 1, 1)}, low=0.0),
        Case("mul-channel", one("Mul", "x", "w"), {"x": (2, 5, 6, 7)}, {"w": random((5, 1, 1))}),
        Case("mul-scalar", one("Mul", "w", "x"), {"x": (2, 5, 6)}, {"w": np.array(0.3, np.float32)}),
    ]  # fmt: skip


CASES = [*matmul_cases(), *pool_cases(), *data_cases(), *other_cases()]
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
ON_CHIPS = pytest.mark.parametrize("chip", CHIPS)


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def _case(name: str) -> Case:
    return next(c for c in CASES if c.name == name)


@cache
def _imported(name: str) -> tuple[Model, Model]:
    case = _case(name)
    top = import_onnx(case.model(), name=name.replace("-", "_"))
    return top, to_calibrated(top, [case.feeds(s) for s in (1, 5)])


@cache
def _lowered(name: str, chip: str, mode: str) -> tuple[Model, tuple[str, ...]]:
    top, calibrated = _imported(name)
    source = calibrated if mode == "int8" else top
    model, fallbacks = to_tpu_with_fallbacks(source, chip, mode)
    return model, tuple(f.why for f in fallbacks)


def tpu_ops(model: Model) -> list[TpuOp]:
    return [op for op in model.ops if isinstance(op, TpuOp)]


# ------------------------------------------------------------------------------------------- top: import and float


@EVERY
def test_float_inference_is_onnx_runtime(case: Case) -> None:
    top, _ = _imported(case.name)
    feeds = case.feeds(9)
    found, expected = run(top, feeds)["y"], reference(case.model(), feeds)
    assert found.shape == expected.shape and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=marks(n % 4 == 0)) for n, c in enumerate(CASES)])
def test_text_round_trip(case: Case) -> None:
    top, calibrated = _imported(case.name)
    lowered = [_lowered(case.name, chip, mode)[0] for chip in CHIPS for mode in ("int8", "f32")]
    for model in (top, calibrated, *lowered):
        once = print_module(model.module)
        assert print_module(parse_module(once, context())) == once


ONCE_REFUSED: list[tuple[Sequence[onnx.NodeProto], dict[str, tuple[int, ...]], dict[str, Array]]] = [
    (one("MaxPool", "x", kernel_shape=[2, 2], dilations=[2, 2]), {"x": (1, 1, 9, 9)}, {}),
    (one("MaxPool", "x", kernel_shape=[2, 2], storage_order=1), {"x": (1, 1, 9, 9)}, {}),
    (one("AveragePool", "x", kernel_shape=[2, 2], ceil_mode=1, count_include_pad=1), {"x": (1, 1, 9, 9)}, {}),
    (one("MatMul", "x", "z"), {"x": (4,), "z": (4, 3)}, {}),
    (one("Gemm", "x", "z", alpha=2.0), {"x": (2, 4), "z": (4, 3)}, {}),
    (one("Gemm", "x", "w", "z", beta=2.0), {"x": (2, 4), "z": (2, 3)}, {"w": random((4, 3))}),
    ([helper.make_node("MaxPool", ["x"], ["p", "y"], kernel_shape=[2, 2])], {"x": (1, 1, 4, 4)}, {}),
]
"""Written with other nodes (frontend/onnx/decompositions.py)."""


@pytest.mark.parametrize(("nodes", "inputs", "constants"), ONCE_REFUSED)
def test_what_was_refused_once_is_onnx_runtime(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], constants: dict[str, Array]
) -> None:
    model = onnx_model(nodes, inputs, constants, 13)
    rng = np.random.default_rng(0)
    feeds = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in inputs.items()}
    expected = OnnxReference(model, threads=1).run(feeds)["y"]
    np.testing.assert_allclose(run(import_onnx(model), feeds)["y"], expected, rtol=1e-6, atol=1e-7)


COUNTED: list[tuple[tuple[int, ...], dict[str, Any], list[str]]] = [
    ((1, 1, 56, 40), {"kernel_shape": [56, 40], "strides": [56, 40]}, ["AvgPool"]),  # as EfficientNet is exported
    ((1, 1, 9, 9), {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "VALID"}, ["AvgPool"]),
    ((1, 1, 9, 9), {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, ["AvgPool"]),
    ((1, 1, 9, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, ["AvgPool"]),
    ((1, 1, 9, 9), {"kernel_shape": [2, 3], "strides": [3, 3]}, ["AvgPool"]),
    ((1, 1, 9, 9), {"kernel_shape": [3, 2], "strides": [3, 3], "pads": [0, 1, 2, 1]}, ["AvgPool"]),
    ((1, 1, 9, 9), {"kernel_shape": [4, 4], "strides": [3, 4], "pads": [1, 1, 1, 3]}, ["Pad", "AvgPool"]),
    ((1, 1, 9), {"kernel_shape": [4], "strides": [3], "pads": [1, 1]}, ["Pad", "Reshape", "AvgPool", "Reshape"]),
    ((1, 1, 5, 5, 5), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "pads": [1, 0, 0, 0, 1, 0]},
     ["Pad", "AvgPool"]),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "window", "ops"), COUNTED)
def test_average_that_counts_pads_with_rounded_up_extents(
    shape: tuple[int, ...], window: dict[str, Any], ops: list[str]
) -> None:
    """Pads count, elements past the pads do not; the results are ONNX Runtime's."""
    model = onnx_model(one("AveragePool", "x", ceil_mode=1, count_include_pad=1, **window), {"x": shape}, {}, 19)
    feeds = {"x": np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)}
    top = import_onnx(model)
    assert [op.name.removeprefix("top.") for op in top.ops][1:-1] == ops
    expected = OnnxReference(model, threads=1).run(feeds)["y"]
    # sums of up to 2,240 numbers in another order
    np.testing.assert_allclose(run(top, feeds)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "inputs", "constants", "words"),
    [
        (one("Reshape", "x", "s"), {"x": (2, 3)}, {"s": np.array([4, -1])}, "do not fill target"),
        (one("LRN", "x", size=3), {"x": (2, 3, 4)}, {}, r"input \(n, c, h, w\)"),
        (one("Mul", "x", "z"), {"x": (2, 3), "z": (2, 4)}, {}, "do not broadcast"),
    ],
    ids=lambda v: v[0].op_type if isinstance(v, tuple) else "",
)  # fmt: skip
def test_import_refuses(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], constants: dict[str, Array], words: str
) -> None:
    with pytest.raises(UnsupportedError, match=words):
        import_onnx(onnx_model(nodes, inputs, constants, 13))


def test_an_unused_index_output_of_maxpool_is_no_problem() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y", "indices"], name="node", kernel_shape=[2, 2])
    top = import_onnx(onnx_model([node], {"x": (1, 1, 4, 4)}, {}, 13))
    assert shape_of(top.results[0]) == (1, 1, 3, 3)


def test_flops() -> None:
    counts = {"gemm-bias": 3 * 20 * (2 * 48 + 1), "avg-plain": 2 * 5 * 6 * 5 * 4, "mul": 420, "lrn": 264 * 5}
    for name, expected in counts.items():
        last = list(_imported(name)[0].ops)[-2]
        assert last.flops() == expected  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------------- making ops by hand


def value(shape: Sequence[int], element: Any = f32) -> SSAValue:
    return TopWeight.create(result_types=[tensor(shape, element)]).output


def made(
    cls: type, operands: Sequence[SSAValue | None], shape: Sequence[int], element: Any = f32, /, **attributes: Any
) -> Any:
    """An op with given result type; a None operand is `none`."""
    values = [make_none().output if v is None else v for v in operands]
    return cls.create(operands=values, result_types=[tensor(shape, element)], attributes=attributes)


POOL = {"kernel_shape": ints_attr((3, 3)), "strides": ints_attr((1, 1)), "pads": ints_attr((0, 0, 0, 0))}
BAD = {
    "inner": (lambda: made(TopMatMul, [value((2, 3)), value((4, 5)), None], (2, 5)), "equal inner extents"),
    "batch": (lambda: made(TopMatMul, [value((2, 1, 3)), value((3, 3, 5)), None], (2, 1, 5)), "broadcast"),
    "bias": (lambda: made(TpuMatMul, [value((2, 3)), value((3, 5)), value((4,))], (2, 5)), "bias of 5 elements"),
    "result": (lambda: made(TopMatMul, [value((2, 3)), value((3, 5)), None], (2, 6)), r"must be \(\(2, 5\),\)"),
    "window": (lambda: made(TopMaxPool, [value((1, 1, 2, 2))], (1, 1, 1, 1), **POOL), "does not fit"),
    "pool rank": (lambda: made(TopMaxPool, [value((1, 2, 2))], (1, 1, 1, 1), **POOL), r"\(n, c, h, w\)"),
    "concat": (lambda: made(TopConcat, [value((2, 3)), value((3, 3))], (2, 6), axis=int_attr(1)), "outside axis 1"),
    "concat axis": (lambda: made(TopConcat, [value((2, 3))], (2, 6), axis=int_attr(2)), r"axis in \[0, 2\)"),
    "concat type": (
        lambda: made(TpuConcat, [value((2, 3), UniformType.of(0.5)), value((2, 3), UniformType.of(0.25))], (2, 6),
                     UniformType.of(0.5), axis=int_attr(1)), "element type"),
    "reshape": (lambda: made(TopReshape, [value((2, 3))], (4,), shape=ints_attr((4,))), "do not fit"),
    "flatten": (lambda: made(TopFlatten, [value((2, 3))], (6,), axis=int_attr(3)), r"axis in \[0, 2\]"),
    "squeeze": (lambda: made(TopSqueeze, [value((2, 1))], (2,), axes=ints_attr((0,))), "axes of extent 1"),
    "unsqueeze": (lambda: made(TopUnsqueeze, [value((2,))], (2, 1), axes=ints_attr((2,))), "different axes"),
    "permute": (lambda: made(TopPermute, [value((2, 3))], (2, 3), order=ints_attr((0, 0))), "permutation of 2"),
    "softmax": (lambda: made(TopSoftmax, [value((2, 3))], (2, 3), axis=int_attr(2)), r"axis in \[0, 2\)"),
    "table": (lambda: made(TpuSoftmax, [value((2, 3)), value((3,))], (2, 3), axis=int_attr(1)), "256 entries"),
    "lrn": (lambda: made(TopLRN, [value((2, 3))], (2, 3), size=int_attr(3), alpha=float_attr(1), beta=float_attr(1),
                         bias=float_attr(1)), r"\(n, c, h, w\)"),
    "mul": (lambda: made(TpuMul, [value((2, 3))], (2, 3)), "two or more"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_infer_refuses(name: str) -> None:
    build, words = BAD[name]
    with pytest.raises(Exception, match=words) as caught:
        build().verify_()
    assert type(caught.value).__name__ == "VerifyException"


# ------------------------------------------------------------------------------------------------------ integer oracles


def half_up(v: Array, r: int) -> Array:
    """Floor((v + 2^(r-1)) / 2^r) of Python-sized integers; a left shift for r < 0."""
    return v << -r if r <= 0 else (v + (1 << (r - 1))) >> r


def half_away(v: Array, r: int) -> Array:
    return np.sign(v) * half_up(np.abs(v), r)


def saturated(v: Array, op: TpuOp) -> Array:
    dtype = storage_dtype(element_of(op.results[0]))
    return np.clip(v, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def zero(v: SSAValue) -> int:
    uniform = uniform_of(v)
    return uniform.zero_point.value.data if uniform else 0


def matmul_oracle(op: Any, operands: Sequence[Array | None]) -> Array:
    x, w, b = operands
    assert x is not None and w is not None
    x = x.swapaxes(-1, -2) if op.left_transpose.value.data else x
    w = w.swapaxes(-1, -2) if op.right_transpose.value.data else w
    acc = np.matmul(x.astype(np.int64), w.astype(np.int64)) + (0 if b is None else b.astype(np.int64))
    acc = np.maximum(acc, 0) if op.do_relu.value.data else acc
    return saturated(half_up(acc * ints(op.multipliers)[0], ints(op.rshifts)[0]) + zero(op.output), op)


def windows(op: Any, x: Array) -> Any:
    """(output place, values inside the image) of every window, by plain loops."""
    (kh, kw), (sh, sw), (top, left, _, _) = ints(op.kernel_shape), ints(op.strides), ints(op.pads)
    _, _, oh, ow = shape_of(op.output)
    for i in range(oh):
        for j in range(ow):
            rows = slice(max(i * sh - top, 0), max(i * sh - top + kh, 0))
            columns = slice(max(j * sw - left, 0), max(j * sw - left + kw, 0))
            yield (i, j), x[:, :, rows, columns]


def pool_oracle(op: Any, operands: Sequence[Array]) -> Array:
    x = operands[0].astype(np.int64)
    y = np.zeros(shape_of(op.output), np.int64)
    size = prod(ints(op.kernel_shape))
    counted = op.count_include_pad is not None and bool(op.count_include_pad.value.data)
    for (i, j), inside in windows(op, x):
        if op.pool_mode.data == "Max":
            y[:, :, i, j] = inside.max(axis=(2, 3))
            continue
        count = size if counted else inside.shape[2] * inside.shape[3]
        total = inside.sum(axis=(2, 3)) * size
        y[:, :, i, j] = np.sign(total) * ((2 * np.abs(total) + count) // (2 * count))
    if op.pool_mode.data == "Avg":
        y = half_up(y * op.multiplier.value.data, op.rshift.value.data)
    return saturated(np.maximum(y, 0) if op.do_relu.value.data else y, op)


def mul_oracle(op: Any, operands: Sequence[Array]) -> Array:
    total: Array = np.array(1, np.int64)
    for array, v in zip(operands, op.inputs, strict=True):
        total = total * (array.astype(np.int64) - zero(v))
    total = np.maximum(total, 0) if op.do_relu.value.data else total
    return saturated(half_up(total * op.multiplier.value.data, op.rshift.value.data) + zero(op.output), op)


def rescale_oracle(rounding: Callable[[Array, int], Array]) -> Callable[[Any, Sequence[Array]], Array]:
    def compute(op: Any, operands: Sequence[Array]) -> Array:
        v = (operands[0].astype(np.int64) - zero(op.input)) * op.multiplier.value.data
        return saturated(rounding(v, op.rshift.value.data) + zero(op.output), op)

    return compute


def softmax_oracle(op: Any, operands: Sequence[Array]) -> Array:
    q, table = operands
    axis = op.axis.value.data
    q = np.moveaxis(q.astype(np.int64), axis, 0)
    terms = table[q.max(axis=0) - q]
    total = np.zeros(terms.shape[1:], np.float32)
    for row in terms:
        total = total + row
    uniform = uniform_of(op.output)
    assert uniform is not None
    p = (terms / (total.astype(np.float64) * uniform.scale.data)).astype(np.float32)
    return saturated(np.moveaxis(np.floor(p.astype(np.float64) + 0.5).astype(np.int64), 0, axis), op)


ORACLES: dict[str, Callable[[Any, Sequence[Any]], Array]] = {
    "tpu.MatMul": matmul_oracle,
    "tpu.Pool2D": pool_oracle,
    "tpu.Mul": mul_oracle,
    "tpu.MulShift": rescale_oracle(half_up),
    "tpu.RequantInt": rescale_oracle(half_away),
    "tpu.Softmax": softmax_oracle,
    "tpu.Concat": lambda op, x: np.concatenate(x, axis=op.axis.value.data),
    "tpu.Reshape": lambda op, x: x[0].reshape(ints(op.shape)),
    "tpu.Permute": lambda op, x: np.transpose(x[0], ints(op.order)),
}


def constant(v: SSAValue, model: Model | None) -> Array | None:
    return model.weights[op_name(v.owner)] if model is not None and isinstance(v.owner, TopWeight) else None


def any_operands(op: TpuOp, model: Model | None = None, seed: int = 3) -> list[Any]:
    """Values of the whole stored range for every operand (its constant where it has one, None for `none`)."""
    found: list[Any] = []
    for i, v in enumerate(op.operands):
        if isinstance(v.type, NoneType):
            found.append(None)
            continue
        dtype, fixed = storage_dtype(element_of(v)), constant(v, model)
        if fixed is not None:
            found.append(fixed)
        elif dtype.kind == "f":
            found.append(random(shape_of(v), seed + i).astype(dtype))
        else:
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            found.append(rng(seed + i).integers(low, high + 1, shape_of(v)).astype(dtype))
    return found


def integer_op(op: TpuOp) -> bool:
    return op.name in ORACLES and all(uniform_of(v) is not None for v in (op.operands[0], op.results[0]))


@pytest.mark.parametrize(
    ("case", "chip"),
    [
        pytest.param(case, chip, id=f"{case.name}-{chip}", marks=marks(chip == CHIPS[0] or number % 3 == 0))
        for number, case in enumerate(CASES)
        for chip in CHIPS
    ],
)
def test_integer_form_or_the_stated_reason(case: Case, chip: str) -> None:
    """And either approximates the float network."""
    assert_integer_form_or_the_stated_reason(case, chip)
    assert_integers_approximate_the_float_network(case, chip)


def assert_integer_form_or_the_stated_reason(case: Case, chip: str) -> None:
    model, fallbacks = _lowered(case.name, chip, "int8")
    last = tpu_ops(model)[-1]
    if chip in case.why_float:
        assert any(case.why_float[chip] in why for why in fallbacks)
        return
    assert not fallbacks
    if isinstance(last, TpuReshape):  # a view of a network input is of its floats
        assert element_of(last.output) == f32 and isinstance(last.input.owner, TopInput)
        return
    assert last.name == "tpu.Cast" and uniform_of(last.operands[0]) is not None
    for op in tpu_ops(model):
        if integer_op(op):
            operands = any_operands(op, model)
            found = op.compute(operands, chips.load(chip))[0]
            np.testing.assert_array_equal(np.asarray(found), ORACLES[op.name](op, operands))


def assert_integers_approximate_the_float_network(case: Case, chip: str) -> None:
    """INT8 stays within a few steps of the output's range; scales, biases and multipliers fit together."""
    feeds = case.feeds(1)
    expected = run(_imported(case.name)[0], feeds)["y"]
    model, _ = _lowered(case.name, chip, "int8")
    found = list(run(model, feeds).values())[-1]
    assert found.dtype == np.float32
    last = uniform_of(tpu_ops(model)[-1].operands[0])
    step = last.scale.data if last is not None else np.abs(expected).max() / 127
    assert np.abs(found - expected).max() <= 6 * step
    assert np.sqrt(np.mean((found - expected) ** 2)) <= 2 * step


def quantised(shape: Sequence[int], scale: float = 0.1, zero_point: int = 0, *, signed: bool = True) -> SSAValue:
    return value(shape, UniformType.of(scale, zero_point, signed=signed))


HAND_MADE: dict[str, Callable[[], TpuOp]] = {
    "mulshift": lambda: made(TpuMulShift, [quantised((2, 70, 9, 5))], (2, 70, 9, 5), UniformType.of(0.2),
                             multiplier=int_attr(85), rshift=int_attr(7)),
    "mulshift-zero": lambda: made(TpuMulShift, [quantised((4, 5, 9, 5), zero_point=-7)], (4, 5, 9, 5),
                                  UniformType.of(0.2, 100, signed=False), multiplier=int_attr(99), rshift=int_attr(5)),
    "requantint": lambda: made(TpuRequantInt, [quantised((2, 70, 9, 5), zero_point=3)], (2, 70, 9, 5),
                               UniformType.of(0.2, -5), multiplier=int_attr(64), rshift=int_attr(8)),
    "mul-three": lambda: made(TpuMul, [quantised((2, 5, 9, 4)), quantised((2, 5, 1, 1), signed=False),
                                       quantised((2, 5, 9, 4))], (2, 5, 9, 4), UniformType.of(0.1),
                              multiplier=int_attr(77), rshift=int_attr(20), do_relu=flag(True)),
    "mul-zero-points": lambda: made(TpuMul, [quantised((2, 70, 9, 4), zero_point=100, signed=False),
                                             quantised((2, 70, 9, 4), zero_point=-9)], (2, 70, 9, 4),
                                    UniformType.of(0.1, 4), multiplier=int_attr(77), rshift=int_attr(14),
                                    do_relu=flag(False)),
    "mul-relu": lambda: made(TpuMul, [quantised((4, 5, 9, 4)), quantised((4, 5, 9, 4))], (4, 5, 9, 4),
                             UniformType.of(0.1, signed=False), multiplier=int_attr(1), rshift=int_attr(-2),
                             do_relu=flag(True)),
    "matmul-relu": lambda: made(TpuMatMul, [quantised((3, 7)), value((7, 5), UniformType.of(1.0)), None], (3, 5),
                                UniformType.of(0.1, -20), left_transpose=flag(False), right_transpose=flag(False),
                                multipliers=ints_attr([40_000_000]), rshifts=ints_attr([32]), do_relu=flag(True)),
    "avg-relu": lambda: made(TpuPool2D, [quantised((2, 5, 9, 9))], (2, 5, 7, 7), UniformType.of(0.1, signed=False),
                             **POOL, pool_mode=pool_mode("Avg"), multiplier=int_attr(57), rshift=int_attr(9),
                             count_include_pad=flag(False), do_relu=flag(True)),
    "max-relu": lambda: made(TpuPool2D, [quantised((2, 5, 9, 9))], (2, 5, 7, 7), UniformType.of(0.1), **POOL,
                             pool_mode=pool_mode("Max"), do_relu=flag(True)),
}  # fmt: skip


@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_integer_ops(name: str) -> None:
    op = HAND_MADE[name]()
    op.verify_()
    operands = any_operands(op)
    np.testing.assert_array_equal(np.asarray(op.inference(operands)[0]), ORACLES[op.name](op, operands))


def test_matmul_constants_by_hand() -> None:
    """With x = 0.5*q, W = 4*W_q/127, y: s_w*s_in/s_out and round(b/(s_w*s_in)) as worked out on paper."""
    w = np.array([[4.0, -2.0], [1.0, 0.0]], np.float32)
    b = np.array([1.25, -0.25], np.float32)
    case = Case("paper", one("Gemm", "x", "w", "b"), {"x": (1, 2)}, {"w": w, "b": b})
    top = import_onnx(case.model())
    feed = {"x": np.array([[63.5, -63.5]], np.float32)}
    model = to_tpu(top, "bm1684x", ranges=[feed])
    op = next(o for o in tpu_ops(model) if isinstance(o, TpuMatMul))
    np.testing.assert_array_equal(constant(op.right, model), [[127, -64], [32, 0]])  # 63.5 -> 64, 31.75 -> 32
    np.testing.assert_array_equal(constant(op.bias, model), [79, -16])  # 1.25*63.5 = 79.375, -0.25*63.5 = -15.875
    assert ints(op.multipliers)[0] / 2.0 ** ints(op.rshifts)[0] == pytest.approx(
        4 / 127 * 0.5 / (191.75 / 127), rel=1e-6
    )


def test_average_with_another_output_range_on_a_chip_that_only_shifts() -> None:
    """Without range propagation the table of 1/k keeps the input's scale and a requant brings the output's."""
    top, calibrated = _imported("avg-global")
    formats = {op: INT8 for op in calibrated.ops}
    model = Lowering(calibrated, LoweringConfig(chip="bm1684"), chips.load("bm1684"), formats, {}).run()
    ops = [op for op in tpu_ops(model) if op.name != "tpu.Cast"]
    assert [op.name for op in ops] == ["tpu.Pool2D", "tpu.MulShift"] and op_name(ops[1]) == "y"
    pooled, final = (uniform_of(op.results[0]) for op in ops)
    assert pooled is not None and final is not None and pooled.scale.data > 1.2 * final.scale.data
    feeds = _case("avg-global").feeds(1)
    found, expected = list(run(model, feeds).values())[-1], run(top, feeds)["y"]
    assert np.abs(found - expected).max() <= pooled.scale.data


def test_partial_products_fit_their_type() -> None:
    assert partial_type([(-128, 127), (-128, 127)]) == "i16"
    assert partial_type([(0, 255), (-128, 127)]) == "i16"
    assert partial_type([(0, 255), (0, 255)]) == "u16"
    assert partial_type([(-128, 127)] * 3) == "i32"
    assert partial_type([(0, 255)] * 4) is None


# ----------------------------------------------------------------------------------------------------- on the machine

GMEM = Region("neurons", 0x2_0000_0000, 1 << 21, writable=True)


class Global:
    """An EmitContext whose operands are whole tensors in global memory; commands run at once."""

    local = False

    def __init__(self, op: TpuOp, operands: Sequence[Array | None], chip: chips.ChipSpec) -> None:
        self.chip, self.op = chip, op
        self.machine = shared_machine(chip.name)
        self.commands: list[Any] = []
        self._free = GMEM.start
        self._inputs = [None if a is None else self._place(a, v) for a, v in zip(operands, op.operands, strict=True)]
        self._output = self._view(shape_of(op.results[0]), storage_dtype(element_of(op.results[0])), packed=True)

    def _view(self, shape: tuple[int, ...], dtype: np.dtype, *, packed: bool) -> View:
        name = dtype_of(dtype)
        factor = self.chip.batch_factor(itemsize(name)) if packed else 1
        view = View("gmem", self._free, shape, name, "dense", interleave=factor)
        self._free = align(self._free + gmem_bytes(shape, name, self.chip), 4096)
        return view

    def _place(self, array: Array, v: SSAValue) -> View:
        view = self._view(array.shape, array.dtype, packed=not isinstance(v.owner, TopWeight))
        self.machine.write(view, np.ascontiguousarray(array))
        return view

    def input(self, index: int, *, h: Any = None, w: Any = None) -> View:
        view = self._inputs[index]
        assert view is not None
        return view

    def input_slice(self, index: int) -> TensorSlice:
        return TensorSlice.whole(shape_of(self.op.operands[index]))

    def output(self) -> View:
        return self._output

    def output_slice(self) -> TensorSlice:
        return TensorSlice.whole(shape_of(self.op.results[0]))

    def buffer(self) -> int:
        raise AssertionError("a global layer has no work buffer")

    def emit(self, cls: type, **fields: Any) -> None:
        command = cls(id=1, dep=0, op="op", **fields)
        self.commands.append(command)
        for rule in body_rules_of(cls):
            assert rule(command, self.chip) is None, rule.__doc__
        execute(command, self.machine)

    def move(self, source: View, target: View) -> None:
        command = Move(id=1, dep=0, op="op", input=source, output=target)
        self.commands.append(command)
        check(command, self.chip)
        execute(command, self.machine)

    def result(self) -> Array:
        return self.machine.read(self._output)


def close(found: Array, expected: Array) -> None:
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("case", "mode", "chip"),
    [
        pytest.param(case, mode, chip, id=f"{case.name}-{mode}-{chip}", marks=marks(number % 5 == 0))
        for number, (case, mode, chip) in enumerate(product(CASES, ("int8", "f32"), CHIPS))
    ],
)
def test_global_commands_equal_flat(case: Case, mode: str, chip: str) -> None:
    model, _ = _lowered(case.name, chip, mode)
    for op in tpu_ops(model):
        if is_in_place(op):
            continue
        operands = any_operands(op, model)
        ctx = Global(op, operands, chips.load(chip))
        op.emit(ctx)  # type: ignore[arg-type]
        assert ctx.commands
        close(ctx.result(), np.asarray(op.compute(operands, chips.load(chip))[0]))


@pytest.mark.parametrize(
    ("name", "chip"),
    # mul_int is a macro command; BM1684 multiplies matrices without a requant multiplier
    [(n, c) for n in HAND_MADE for c in CHIPS if not n.startswith("mul-") and (n, c) != ("matmul-relu", "bm1684")],
)
def test_hand_made_ops_in_global_memory(name: str, chip: str) -> None:
    op = HAND_MADE[name]()
    operands = any_operands(op)
    ctx = Global(op, operands, chips.load(chip))
    op.emit(ctx)  # type: ignore[arg-type]
    np.testing.assert_array_equal(ctx.result(), np.asarray(op.inference(operands)[0]))


POISON, GUARDED = 0x5A, 1 << 14
"""Local memory of every lane is filled with POISON up to byte GUARDED before a slice is computed."""


@cache
def shared_machine(chip: str) -> Machine:
    return Machine(chips.load(chip), (GMEM,), np.zeros(0, np.uint8))


class Local(Global):
    """An EmitContext of one slice: operand slices packed one after the other in local memory."""

    local = True

    def __init__(
        self, op: TpuOp, operands: Sequence[Array | None], chip: chips.ChipSpec, out: TensorSlice, margin: int
    ) -> None:
        self.chip, self.op, self._out = chip, op, out
        self.machine = shared_machine(chip.name)
        self.commands = []
        self._top = 0
        self._have = [self._needed(i, margin) for i in range(len(op.operands))]
        self._views: list[View] = []
        self._lanes = self.machine.lmem.reshape(chip.lanes, -1)[:, :GUARDED]
        self._lanes[:] = POISON
        for array, have, v in zip(operands, self._have, op.operands, strict=True):
            assert array is not None
            part = array.reshape(logical_shape(array.shape))[window(have)]
            view = self._lmem(part.shape, dtype_of(part.dtype), packed=not isinstance(v.owner, TopWeight))
            self.machine.write(view, np.ascontiguousarray(part))
            self._views.append(view)
        self._result = self._lmem(out.shape, dtype_of(storage_dtype(element_of(op.results[0]))), packed=True)
        self._buffer = self._top
        self._end = self._buffer + op.buffer_bytes(chip, out, self._have)

    def _lmem(self, shape: Any, dtype: Any, *, packed: bool) -> View:
        view = activation_view(self._top, shape, dtype, self.chip)
        if not packed:
            view = View("lmem", self._top, shape, dtype, "aligned")
        self._top = align(self._top + lmem_bytes(shape, dtype, self.chip, packed=packed), self.chip.eu_bytes)
        return view

    def _needed(self, index: int, margin: int) -> TensorSlice:
        shape = logical_shape(shape_of(self.op.operands[index]))
        found: list[tuple[int, int]] = []
        for axis, length in zip("nchw", shape, strict=True):
            need = needed_window(self.op, self.chip, axis, getattr(self._out, axis), index)  # type: ignore[arg-type]
            assert need is not None
            extra = margin if axis == "h" and length > 1 else 0
            start, stop = max(need[0] - extra, 0), min(need[0] + need[1] + extra, length)
            found.append((0, 1) if length == 1 else (start, stop - start))
        return TensorSlice(*found)

    def input_slice(self, index: int) -> TensorSlice:
        return self._have[index]

    def input(self, index: int, *, h: Any = None, w: Any = None) -> View:
        have, view = self._have[index], self._views[index]
        exact = self._needed(index, 0)
        for axis, window in ((2, h or exact.h), (3, w or exact.w)):
            held = (have.h, have.w)[axis - 2]
            assert held[0] <= window[0] and sum(window) <= sum(held)
            shape = (*view.shape[:axis], window[1], *view.shape[axis + 1 :])
            view = view if window == held else part_of(view, axis, window[0] - held[0], shape, self.chip)
        return view

    def output(self) -> View:
        return self._result

    def output_slice(self) -> TensorSlice:
        return self._out

    def buffer(self) -> int:
        return self._buffer

    def emit(self, cls: type, **fields: Any) -> None:
        command = cls(id=1, dep=0, op="op", **fields)
        self.commands.append(command)
        check(command, self.chip)
        execute(command, self.machine)

    def move(self, source: View, target: View) -> None:
        raise AssertionError("no GDMA inside a group")

    def result(self) -> Array:
        assert self._end < GUARDED and (self._lanes[:, self._end :] == POISON).all(), "wrote past the buffer"
        return self.machine.read(self._result)


def window(part: TensorSlice) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in (part.n, part.c, part.h, part.w))


def cuts(length: int, sections: int) -> list[tuple[int, int]]:
    edges = [length * i // sections for i in range(sections + 1)]
    return [(a, b - a) for a, b in zip(edges, edges[1:], strict=False) if b > a]


def local_ops() -> list[tuple[str, str, Callable[[], tuple[TpuOp, Model | None]]]]:
    found: list[tuple[str, str, Callable[[], tuple[TpuOp, Model | None]]]] = []
    names = ("max", "max-ceil", "max-same", "max-lower", "avg", "avg-counted", "avg-ceil", "avg-global", "concat-c",
             "concat-wide", "concat-h", "concat-w", "mul", "mul-unsigned", "mul-channel")  # fmt: skip

    def lowered(name: str, chip: str, mode: str) -> tuple[TpuOp, Model]:
        model, _ = _lowered(name, chip, mode)
        return next(op for op in reversed(tpu_ops(model)) if op.name != "tpu.Cast"), model

    for chip in CHIPS:
        for mode in ("int8", "f32"):
            for name in names:
                found.append((f"{name}-{mode}", chip, lambda n=name, c=chip, m=mode: lowered(n, c, m)))
        for name, build in HAND_MADE.items():
            if not name.startswith("matmul"):
                found.append((name, chip, lambda b=build: (b(), None)))
    return found


@pytest.mark.parametrize(("name", "chip", "build"), local_ops(), ids=lambda v: v if isinstance(v, str) else "")
def test_stitched_slices_equal_the_whole(name: str, chip: str, build: Callable[[], tuple[TpuOp, Model | None]]) -> None:
    """Cut rows and batches, compute each slice from local memory, also out of larger slices, and compare the whole."""
    op, model = build()
    spec = chips.load(chip)
    assert op.why_global(spec) is None
    operands = any_operands(op, model)
    expected = np.asarray(op.inference(operands)[0])
    n, c, h, w = logical_shape(expected.shape)
    step = spec.batch_factor(expected.dtype.itemsize)
    batches = [cuts(n, 1), [(i, min(step, n - i)) for i in range(0, n, step)]] if op.can_slice("n") else [cuts(n, 1)]
    counts = [1, 2, h] if op.can_slice("h") else [1]
    for sections in counts:
        for margin in (0, 1) if isinstance(op, SharedWindows) and op.accepts_margins() else (0,):
            found = np.zeros_like(expected.reshape(n, c, h, w))
            for part_n in batches[sections % len(batches)]:
                for part_h in cuts(h, sections):
                    out = TensorSlice(part_n, (0, c), part_h, (0, w))
                    ctx = Local(op, operands, spec, out, margin)
                    op.emit(ctx)  # type: ignore[arg-type]
                    found[window(out)] = ctx.result()
            close(found.reshape(expected.shape), expected)


def test_what_stays_global() -> None:
    spec = chips.load("bm1684x")
    expected = {
        "matmul-2d": "2-D matrix product", "matmul-3d": "batched matrix product", "max-far": "stride 16",
        "concat-n": "batch", "concat-5d": "rank above 4", "reshape": "free in global memory",
        "transpose": "between lanes", "softmax-channels": "along axis 1; local are axes", "lrn": "over channels",
    }  # fmt: skip
    for name, words in expected.items():
        op = next(o for o in reversed(tpu_ops(_lowered(name, "bm1684x", "int8")[0])) if o.name != "tpu.Cast")
        assert words in (op.why_global(spec) or "")


# --------------------------------------------------------------------------------------------------- views and helpers


@pytest.mark.parametrize(("chip", "free"), [("", False), ("bm1684", False), ("bm1684x", True), ("cv183x", True)])
def test_reshape_is_in_place_while_no_packed_batch_moves(chip: str, free: bool) -> None:
    """In a module of the chip, or in none; TPU-MLIR's profiles of BM1684X have no command for such a Reshape."""

    def reshape(before: tuple[int, ...], after: tuple[int, ...], element: Any) -> bool:
        op = made(TpuReshape, [value(before, element)], after, element, shape=ints_attr(after))
        module = ModuleOp([op], {"module.chip": StringAttr(chip)} if chip else {})
        assert op.get_toplevel_object() is module
        return op.in_place()

    assert reshape((2, 6), (2, 3, 2), UniformType.of(0.1))
    assert reshape((2, 6), (12,), UniformType.of(0.1)) == free
    assert reshape((2, 6), (12,), f32)


def test_long_axes_are_cut_for_commands() -> None:
    source = View("gmem", 0, (2, 3, 140_000), "i8", "dense", interleave=4)
    target = View("gmem", 0, (2, 3, 140_000), "i8", "strided", strides=(900_000, 300_000, 2), interleave=4)
    cut = shorter_axes(source, target)
    assert cut[0].shape == cut[1].shape == (2, 3, 4, 35_000)
    assert cut[0].strides == (420_000, 140_000, 35_000, 1) and cut[1].strides == (900_000, 300_000, 70_000, 2)
    assert shorter_axes(source, source)[0].batch_axis == 0
    turned = View("gmem", 0, (140_000, 2), "i8", "strided", strides=(1, 140_000), interleave=4, batch_axis=1)
    assert shorter_axes(turned, turned)[0].batch_axis == 2


def test_a_large_reshape_between_batches_is_one_copy() -> None:
    element = UniformType.of(0.1)
    op = made(TpuReshape, [value((2, 100_000), element)], (4, 50_000), element, shape=ints_attr((4, 50_000)))
    operands = any_operands(op)
    ctx = Global(op, operands, chips.load("bm1684x"))
    op.emit(ctx)  # type: ignore[arg-type]
    assert [type(c) for c in ctx.commands] == [Move]
    np.testing.assert_array_equal(ctx.result(), operands[0].reshape(4, 50_000))


def test_part_of_a_packed_batch_must_be_whole_words() -> None:
    view = View("gmem", 0, (8, 3), "i8", "dense", interleave=4)
    assert part_of(view, 0, 4, (4, 3), chips.load("bm1684")).address == 12
    with pytest.raises(ValueError, match="not a multiple of 4"):
        part_of(view, 0, 2, (4, 3), chips.load("bm1684"))


def test_every_op_of_a_lowered_module_is_known() -> None:
    names = {type(op).__name__ for case in CASES for op in _lowered(case.name, "bm1684x", "int8")[0].ops}
    assert "UnregisteredOp" not in names and TopNone.__name__ in names
    assert all(is_tensor(v) for case in CASES for v in _lowered(case.name, "bm1684x", "int8")[0].results)


def named(model: Model, name: str) -> Operation:
    return next(op for op in model.ops if op_name(op) == name)


def test_the_last_op_keeps_its_name() -> None:
    for case in CASES:
        for chip in CHIPS:
            named(_lowered(case.name, chip, "int8")[0], "y")


@pytest.mark.parametrize(
    ("chip", "first", "kept", "size"),
    [
        ("bm1684x", 64, 6, 0), ("bm1684x", 10, 70, 256), ("bm1684x", 70, 60, 384), ("bm1684x", 100, 10, 256),
        ("bm1684x", 130, 69, 512), ("bm1688", 64, 6, 0), ("bm1688", 3, 64, 288), ("bm1688", 70, 60, 480),
        ("bm1688", 130, 69, 672),
    ],
)  # fmt: skip
def test_work_area_of_a_slice_of_channels(chip: str, first: int, kept: int, size: int) -> None:
    """The sizes in TPU-MLIR's modules of Slices of (2, 200, 5, 9) in F16; the batch does not count."""
    cut = {"offset": (0, first, 0, 0), "steps": (1, 1, 1, 1), "ends": (2, first + kept, 5, 9)}
    shape = (2, kept, 5, 9)
    op = made(
        TpuSlice, [value((2, 200, 5, 9), f16), *[None] * 4], shape, f16, **{k: ints_attr(v) for k, v in cut.items()}
    )
    assert op.buffer_bytes(chips.load(chip), TensorSlice.whole(shape), [None]) == size
