"""Types, constants and tensors of small networks as TPU-MLIR 1.30.2 has them: recorded numbers, no tolerance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from builders.calibrated import Range, ranged
from compiling import to_canonical, to_tpu
from op_row import network, node
from plain_names import import_onnx
from xdsl.ir import Operation

from tpusim.calibration.table import CalibrationTable, Entry
from tpusim.inference import Flat, run
from tpusim.ir.attrs import ints, op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of, uniform_of
from tpusim.ops.framework.base import TopOp, TpuOp

Array = np.ndarray
Shapes = dict[str, tuple[int, ...]]
Nodes = list[onnx.NodeProto]
IMAGE = {"x": (1, 4, 3, 3)}


def network_of(nodes: Nodes, constants: dict[str, Array] | None = None, inputs: Shapes | None = None) -> Model:
    """The canonical top module."""
    return to_canonical(import_onnx(network(nodes, constants or {})(inputs or IMAGE)))


def tpu_of(top: Model, ranges: dict[str, Range], chip: str = "bm1684x", **options: Any) -> Model:
    """The tpu module in INT8."""
    return to_tpu(ranged(top, ranges), chip, "int8", **options)


def lowered(op: str, constants: dict[str, Array], ranges: dict[str, Range], chip: str = "bm1684x") -> list[TpuOp]:
    """The tpu ops of a network of one node "y" on "x" and the constants, in INT8."""
    top = network_of([node(op, " ".join(["x", *constants]))], constants)
    return [op for op in tpu_of(top, ranges, chip).ops if isinstance(op, TpuOp)]


def named(ops: Iterable[Operation], kind: str) -> Operation:
    return next(op for op in ops if op.name == kind)


# ------------------------------------------------------------------------------------------------------------ constants


def test_the_scale_of_a_filter_is_a_quotient_in_f32() -> None:
    """Six of these sixteen multipliers are others where max|W_c|/127 is divided in f64."""
    filter = np.random.default_rng(8).standard_normal((16, 4, 1, 1)).astype(np.float32)
    conv = named(lowered("Conv", {"w": filter}, {"x": (-1.7, 1.7), "y": (-0.6, 0.6)}), "tpu.Conv2D")
    assert ints(conv.attributes["multiplier"]) == (
        5204993, 13849397, 8337841, 9015901, 4311927, 9818191, 5743129, 6711459,
        1161269, 461341, 2261755, 5923141, 13581629, 6358287, 7599977, 13107367,
    )  # fmt: skip
    assert ints(conv.attributes["rshift"]) == (27, 28, 28, 28, 27, 28, 30, 27, 25, 23, 26, 28, 29, 27, 27, 29)


# ---------------------------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(("chip", "longest"), [("bm1684x", 8192), ("bm1690", 8192), ("bm1688", 4096)])
def test_a_long_axis_of_softmax_runs_in_f32(chip: str, longest: int) -> None:
    for length, kind in ((longest, "f16"), (longest + 1, "f32")):
        top = network_of([node("Softmax", "x", axis=2)], inputs={"x": (1, 1, length)})
        tpu = to_tpu(top, chip, "f16")
        assert str(element_of(named(tpu.ops, "tpu.Softmax").results[0])) == kind


def test_log_softmax_has_the_range_of_softmax() -> None:
    """Whatever the table says; what reads it follows: its negative has -1..0."""
    top = network_of([node("LogSoftmax", "x", "l", axis=1), node("Neg", "l")])
    from_table = {"x": Entry(1.0, -1.0, 1.0), "l": Entry(3.0, -3.0, 0.0), "y": Entry(3.0, 0.0, 3.0)}
    tpu = to_tpu(top, "bm1684x", ranges=CalibrationTable(from_table))
    assert scale_of(tpu, "y") == 1 / 127


def scale_of(tpu: Model, name: str) -> float:
    """The scale of a tensor."""
    value = next(op.results[0] for op in tpu.ops if isinstance(op, TpuOp) and op_name(op) == name)
    uniform = uniform_of(value)
    assert uniform is not None
    return uniform.scale.data


# -------------------------------------------------------------------------------------------------- constant operands


def stored(tpu: Model, op: Operation, operand: int) -> list[int]:
    return np.asarray(tpu.weights[value_name(op.operands[operand])]).reshape(-1).tolist()


def with_constant(op: str, chip: str) -> tuple[Model, Operation]:
    """An op of x and a constant whose largest magnitude is twice others'."""
    constant = np.float32([0.65, 1.3, -0.65, 0.3]).reshape(1, 4, 1, 1) + np.zeros((1, 4, 3, 3), np.float32)
    top = network_of([node(op, "x c")], {"c": constant})
    tpu = tpu_of(top, {"x": (-1.7123457, 1.7123457), "y": (-2.6123457, 2.6123457)}, chip)
    return tpu, named(tpu.ops, f"tpu.{op}")


@pytest.mark.parametrize(("op", "chip", "half"), [
    ("Mul", "bm1684x", 63), ("Mul", "bm1684", 63), ("Add", "bm1684x", 64), ("Add", "bm1684", 64), ("Sub", "bm1684", 63),
])  # fmt: skip
def test_constants_of_half_the_largest(op: str, chip: str, half: int) -> None:
    """The scale is a quotient in f32 for Mul and Sub, in f64 for Add."""
    tpu, lowered_op = with_constant(op, chip)
    assert stored(tpu, lowered_op, 1)[::9] == [half, 127, -half, 29]


def test_a_ratio_above_127_saturates_the_multiplier_of_bm1684() -> None:
    top = network_of([node("Add", "x z")], inputs={"x": (1, 4, 3, 3), "z": (1, 4, 3, 3)})
    ranges = {"x": (-1.7123457, 1.7123457), "z": (-1.1, 1.1), "y": (-0.0112345, 0.0112345)}
    add = named(tpu_of(top, ranges, "bm1684").ops, "tpu.Add")
    assert (ints(add.attributes["multipliers"]), ints(add.attributes["rshifts"])) == ((127, 98), (0, 0))


# ------------------------------------------------------------------------------------------ types and ranges


@pytest.mark.parametrize(("shape", "kind"), [((8, 64), "!quant"), ((8, 1, 64), "!quant"), ((1, 8, 64), "f32")])
def test_bm1684_multiplies_integers_in_two_axes(shape: tuple[int, ...], kind: str) -> None:
    weight = np.random.default_rng(4).standard_normal((64, 32)).astype(np.float32)
    top = network_of([node("MatMul", "x w")], {"w": weight}, {"x": shape})
    product = named(tpu_of(top, {"x": (-1.1, 1.1), "y": (-3.3, 3.3)}, "bm1684").ops, "tpu.MatMul")
    assert str(element_of(product.results[0])).startswith(kind)


def test_a_negative_slope_on_cv18xx_negates_the_multiplier() -> None:
    top = network_of([node("LeakyRelu", "x", alpha=-0.3)])
    op = named(tpu_of(top, {"x": (-1.1, 1.1234567), "y": (-0.3, 0.9)}, "cv183x").ops, "tpu.LeakyRelu")
    pairs = ("multiplier", "rshift", "multiplier_neg", "rshift_neg")
    assert [op.attributes[k].value.data for k in pairs] == [1, 0, -76, 8]  # type: ignore[attr-defined]


def test_branches_take_a_range_that_a_constant_widened() -> None:
    """The branch in +-1.5 is stored in steps of 100/127, as coarse as that is."""
    nodes = [node("Add", "x x", "h"), node("Greater", "x t", "c"), node("Where", "c k h")]
    top = network_of(nodes, {"t": np.float32(0.2), "k": np.float32(100)})
    ranges = {"x": (-1.0, 1.0), "h": (-1.5, 1.5), "c": (0.0, 1.0), "y": (-1.5, 1.6)}
    tpu = tpu_of(top, ranges)
    assert scale_of(tpu, "h") == scale_of(tpu, "y") == 100 / 127


def test_a_linear_pointwise_convolution_merges_into_the_next() -> None:
    rng = np.random.default_rng(5)
    shapes = {"v": (24, 4, 1, 1), "c": (24,), "w": (8, 24, 2, 2), "b": (8,)}
    constants = {k: rng.standard_normal(shape).astype(np.float32) for k, shape in shapes.items()}
    nodes = [node("Conv", "x v c", "h"), node("Conv", "h w b")]
    reference, merged = import_onnx(network(nodes, constants)(IMAGE)), network_of(nodes, constants)
    assert [op.name for op in merged.ops if isinstance(op, TopOp) and op.operands] == ["top.Input", "top.Conv"]
    x = {"x": rng.standard_normal(IMAGE["x"]).astype(np.float32)}
    np.testing.assert_allclose(run(merged, x)["y"], run(reference, x)["y"], rtol=1e-5, atol=1e-5)
    total = np.float32(0)
    for d in range(24):  # in order, in f32
        total += constants["w"][3, d, 1, 0] * constants["v"][d, 2, 0, 0]
    assert merged.weights["y_merged_filter"][3, 2, 1, 0] == total


def test_the_input_of_cv18xx_is_quantised_by_a_reciprocal_in_f32() -> None:
    """f32(1)/f32(s), as upstream's CPU op has it; f32(1/s) gives -124, -122, -121 and -119."""
    filter = np.ones((4, 4, 1, 1), np.float32)
    top = network_of([node("Conv", "x w")], {"w": filter})
    tpu = tpu_of(top, {"x": (-1.0920263, 1.0920263), "y": (-0.6, 0.6)}, "cv183x")
    values = np.float32([-1.0705296993255615, -1.0533324480056763, -1.0447337627410889, -1.0275365114212036])
    tensors = run(tpu, {"x": np.repeat(values, 9).reshape(1, 4, 3, 3)})
    found = tensors[op_name(named(tpu.ops, "tpu.Cast"))]
    assert np.asarray(found).reshape(-1)[::9].tolist() == [-125, -123, -122, -120]


def test_the_sign_of_a_pool_is_narrowed_to_f32() -> None:
    """From -0.1 in f64 the scale is 0.005325586588235."""
    top = network_of([node("AveragePool", "x", kernel_shape=[2, 2], strides=[2, 2])], inputs={"x": (1, 4, 4, 4)})
    tpu = tpu_of(top, {"x": (-1.0, 1.0), "y": (0.0, 1.2345678)}, asymmetric=True)
    assert scale_of(tpu, "y") == (1.2345678 - float(np.float32(-1.2345678 * 0.1))) / 255


def test_max_compares_bytes_of_several_scales_as_they_are() -> None:
    """On BM chips; the closed simulators agree."""
    shapes = {"x": (1, 4, 3, 3), "z": (1, 4, 3, 3)}
    top = network_of([node("Max", "x z", "m"), node("Mul", "x z", "w"), node("Add", "m w")], inputs=shapes)
    ranges = {"x": (-1.0, 1.0), "z": (-2.0, 2.1234567), "m": (-2.0, 2.1), "w": (-2.0, 2.1), "y": (-4.0, 4.0)}
    tpu = tpu_of(top, ranges)
    x = {"x": np.full(shapes["x"], 0.5, np.float32), "z": np.full(shapes["z"], 0.75, np.float32)}
    found = run(tpu, x)
    assert np.asarray(found["m"]).max() == 64  # 0.5 in steps of 1/127, above 45 steps of 2.12/127


def test_sum_is_a_chain_of_two_operand_additions() -> None:
    shapes = dict.fromkeys("xzv", (1, 4, 3, 3))
    top = network_of([node("Sum", "x z v")], inputs=shapes)
    assert [op_name(op) for op in top.ops if op.name == "top.Add"] == ["y_1_Sum", "y"]


# -------------------------------------------------------------------------------------------------------------- floats


NORMALISED = {
    "10e691a915a7eae3": [node("LayerNormalization", "x wide wide_b", epsilon=1e-5)],
    "064267d79bc657bc": [node("RMSNormalization", "x wide", epsilon=1e-5)],
    "35373d7db69f07b3": [node("InstanceNormalization", "x w b", epsilon=1e-5)],
    "927446f62203c121": [node("BatchNormalization", "x w b mean var", epsilon=1e-5)],
    "6da279c4d0771834": [
        node("Reshape", "x halves", "half"),
        node("InstanceNormalization", "half one zero", "normal", epsilon=1e-5),
        node("Reshape", "normal whole", "image"),
        node("Mul", "image by_channel", "scaled"),
        node("Add", "scaled more"),
    ],
}
"""Networks by the head of the SHA-256 of what model_runner gives, RMSNorm for a module written by hand."""


@pytest.mark.parametrize("bits", NORMALISED)
def test_normalisations_in_f32_are_its_bits(bits: str) -> None:
    """Sums in index order, products rounded before they are added; Reshape and InstanceNorm are a GroupNorm."""
    rng = np.random.default_rng(12)
    x = (2 * rng.standard_normal((2, 4, 5, 7)) + 0.3).astype(np.float32)
    sizes = {"w": 4, "b": 4, "wide": 7, "wide_b": 7, "mean": 4}
    known = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    known |= {"var": rng.uniform(0.5, 2, 4).astype(np.float32), "one": np.ones(2, np.float32)}
    known |= {"zero": np.zeros(2, np.float32), "halves": np.int64([0, 2, -1]), "whole": np.int64(x.shape)}
    known |= {"by_channel": known["w"].reshape(4, 1, 1), "more": known["b"].reshape(4, 1, 1)}
    read = {name for each in NORMALISED[bits] for name in each.input}
    top = network_of(NORMALISED[bits], {name: known[name] for name in known if name in read}, {"x": x.shape})
    assert_bits(top, x, bits)


def assert_bits(module: Model, x: np.ndarray, bits: str) -> None:
    """The result "y" of x by the head of its SHA-256, op by op and as a whole graph."""
    found = np.asarray(run(module, {"x": x})["y"])
    assert hashlib.sha256(found.tobytes()).hexdigest().startswith(bits)
    (whole,) = Flat(module)({"x": x}).values()
    assert np.asarray(whole).tobytes() == found.tobytes()


ADDED_UP: list[tuple[onnx.NodeProto, tuple[int, ...], str, str]] = [
    (node("Softmax", "x", axis=1), (3, 41), "c6b3de7d9aad4352", "be1ee9236470d5e7"),
    (node("Softmax", "x", axis=1), (2, 10, 3, 5), "90f3b2af4b68f11b", "90f3b2af4b68f11b"),
    (node("LogSoftmax", "x", axis=1), (2, 10, 3, 5), "ef26cd4968812bb9", "913860fb838526c6"),
    (node("LRN", "x", size=5, alpha=0.02, beta=0.75, bias=1.0), (1, 16, 5, 7), "ef9e7a4909c688fa", "ef9e7a4909c688fa"),
    (node("LRN", "x", size=4, alpha=0.3, beta=0.5, bias=2.0), (2, 7, 5, 7), "2481b5de43afefdd", "2481b5de43afefdd"),
    (node("InstanceNormalization", "x w4 b4", epsilon=1e-5), (2, 4, 5, 7), "bbac432303aee69c", "2c16f99c164736d4"),
    (node("ReduceL2", "x", axes=[1], keepdims=1), (2, 29, 5, 3), "f7ec0f1192cd7ac7", "f7ec0f1192cd7ac7"),
    (node("ReduceMean", "x", axes=[1], keepdims=1), (2, 29, 5, 3), "e856ba47a114214e", "7ff0ef62352af72a"),
    (
        node("ConvTranspose", "x w20_6_3_3 b6", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        (1, 20, 4, 5), "cfcb5d72139712f4", "cfcb5d72139712f4",
    ),
    (
        node("ConvTranspose", "x w20_3_3_3 b12", strides=[2, 2], pads=[1, 1, 1, 1], group=4),
        (1, 20, 4, 5), "a1cf3785b5ead0af", "a1cf3785b5ead0af",
    ),
    (
        node("ConvTranspose", "x w20_6_3_3 b6", strides=[2, 2], pads=[1, 1, 1, 1], dilations=[2, 2]),
        (1, 20, 4, 5), "50d6194957207b20", "50d6194957207b20",
    ),
    (
        node("ConvTranspose", "x w32_16_2_3 b32", strides=[2, 2], group=2),
        (1, 32, 3, 4), "4f58b5e16ee3e197", "4f58b5e16ee3e197",
    ),
    (node("ConvTranspose", "x w300_5_1_1 b5"), (1, 300, 3, 3), "818046afe72e392e", "818046afe72e392e"),
    (node("Conv", "x w6_41_3_3 b6"), (2, 41, 3, 3), "79221901f058923e", "79221901f058923e"),
]  # fmt: skip
"""A node, the shape of x, and the heads of the SHA-256 of its top op and of its tpu op on BM1684X, both in F32."""


@pytest.mark.parametrize(("op", "shape", "top_bits", "tpu_bits"), ADDED_UP)
def test_sums_in_f32_are_its_bits(op: onnx.NodeProto, shape: tuple[int, ...], top_bits: str, tpu_bits: str) -> None:
    """Recorded on a processor with AVX-512. A weight is named after its shape."""

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng(len(shape) * 1000 + sum(shape)).standard_normal(shape).astype(np.float32)

    constants = {name: values(tuple(map(int, name[1:].split("_")))) for name in op.input[1:]}
    top = network_of([op], constants, {"x": shape})
    x = 3 * values(shape)
    assert_bits(top, x, top_bits)
    assert_bits(to_tpu(top, "bm1684x", "f32"), x, tpu_bits)
