"""Each canonicalisation: how often it fires, that values stay, that names stay those of the original network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from compiling import to_canonical, to_tpu
from onnx import TensorProto, helper, numpy_helper
from plain_names import import_onnx
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, Operation

from tpusim import chips
from tpusim.canonicalize import canonicalize
from tpusim.errors import ImportModelError
from tpusim.inference import run
from tpusim.ir.attrs import flag, framework_name, int_attr, op_name, text
from tpusim.ir.module import Model, ModelContext
from tpusim.ir.text import print_module
from tpusim.lowering.chip_forms import rewrite_for_chip
from tpusim.ops import context
from tpusim.ops.framework.families import relu_limit_of, relu_of
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.passes.canonicalize import Canonicalize

RNG = np.random.default_rng(11)
C = 4
BN = "BatchNormalization"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


WEIGHTS = {
    "w": floats(C, C, 3, 3), "b": floats(C), "g": floats(C), "be": floats(C), "m": floats(C),
    "v": np.abs(floats(C)) + np.float32(0.1), "c": floats(C, 1, 1), "c4": floats(1, C, 1, 1), "c2": floats(C, 1),
    "c3": floats(C, 1, 1, 1), "s": floats(1, 1, 1), "s1": floats(1, 1), "cw": floats(C, 8), "mm": floats(C, 6),
    "m3": floats(2, C, 6), "mb": floats(6), "mb1": floats(1, 1, 6), "three": floats(3), "plane": floats(3, 6),
    "column": floats(1, 3, 1), "wide": floats(2, 1, 1, 6), "g6": floats(6), "v6": np.abs(floats(6)) + np.float32(0.1),
    "six": np.array(6, np.float32), "zero": np.array(0, np.float32),
    "first": np.array([0]), "last": np.array([9]),
}  # fmt: skip


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op, names, output.split(), name=output, **attributes)


def conv(inputs: str, output: str) -> onnx.NodeProto:
    return node("Conv", inputs, output, pads=[1, 1, 1, 1])


def imported(*nodes: onnx.NodeProto, x: tuple[int, ...] = (2, C, 6, 8), outputs: str = "y") -> Model:
    read = {name for n in nodes for name in n.input}
    graph = helper.make_graph(
        list(nodes), "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs.split()],
        [numpy_helper.from_array(a, n) for n, a in WEIGHTS.items() if n in read],
    )  # fmt: skip
    return import_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def compute(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    shape = model.body.args[0].type.get_shape()  # type: ignore[attr-defined]
    return run(model, {"x": np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)})


def ops(model: Model) -> list[Operation]:
    return [op for op in model.ops if not isinstance(op, TopWeight | TopNone | TopInput | ReturnOp)]


def simplified(model: Model, firings: Mapping[str, int], kinds: str) -> Model:
    """Canonicalise and hold: these firings, these ops, old names, old values, nothing left to do, input untouched."""
    before = print_module(model.module)
    result, fired = canonicalize(model)
    assert fired == firings
    assert " ".join(op.name.removeprefix("top.") for op in ops(result)) == kinds
    assert print_module(model.module) == before
    expected, got = compute(model), compute(result)
    for name in got.keys() & expected.keys():
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-5 * scale, err_msg=name)
    assert [op_name(v.owner) for v in result.results] == [op_name(v.owner) for v in model.results]  # type: ignore[arg-type]
    assert {op_name(op) for op in result.ops if isinstance(op, TopWeight)} == set(result.weights)
    assert canonicalize(result)[1] == {}
    return result


def renamed(model: Model, original: Model) -> set[str]:
    """Names of ops that the original network does not have."""
    return {op_name(op) for op in ops(model)} - {op_name(op) for op in ops(original)}


# ------------------------------------------------------------------------------------------------- batch norm and scale


@pytest.mark.parametrize("shape", [(3, C), (2, C, 5), (2, C, 5, 6)])
def test_batch_norm_becomes_scale(shape: tuple[int, ...]) -> None:
    model = imported(node(BN, "x g be m v", "y", epsilon=1e-3), x=shape)
    simplified(model, {"TopBatchNormToScale": 1}, "Scale")


@pytest.mark.parametrize("inputs", ["x w", "x w b"])
def test_batch_norm_goes_into_the_convolution(inputs: str) -> None:
    model = imported(conv(inputs, "a"), node(BN, "a g be m v", "y"))
    result = simplified(model, {"FoldBatchNormIntoConv": 1}, "Conv")
    assert list(result.weights) == ["y_filter", "y_bias"]
    assert not any(isinstance(op, TopNone) for op in result.ops)


def test_folding_is_in_f32_step_by_step() -> None:
    """As the ONNX simplifier in front of TPU-MLIR 1.30.2 does: ResNet-50's weights are equal to the last bit."""
    model = imported(conv("x w b", "a"), node(BN, "a g be m v", "y"))
    result = to_canonical(model)
    factor = WEIGHTS["g"] / np.sqrt(WEIGHTS["v"] + np.float32(1e-5))
    np.testing.assert_array_equal(result.weights["y_filter"], WEIGHTS["w"] * factor.reshape(-1, 1, 1, 1))
    np.testing.assert_array_equal(result.weights["y_bias"], (WEIGHTS["b"] - WEIGHTS["m"]) * factor + WEIGHTS["be"])


@pytest.mark.parametrize(
    ("inputs", "added", "kinds"),
    [("x w", "a c4", "Conv"), ("x w", "a c", "Conv"), ("x w", "c4 a", "Conv Scale"), ("x w b", "a c4", "Conv Scale")],
)
def test_an_added_constant_is_the_bias_of_a_convolution_without_one(inputs: str, added: str, kinds: str) -> None:
    """TPU-MLIR's simplifier does so with the constant on the right; otherwise the Add is a Scale (asked of it)."""
    model = imported(conv(inputs, "a"), node("Add", added, "y"))
    result = simplified(model, {"FoldAddIntoConv" if kinds == "Conv" else "AddToScale": 1}, kinds)
    assert kinds != "Conv" or np.array_equal(result.weights["y_bias"], WEIGHTS[added.split()[1]].ravel())


def test_caffe_batch_norm_with_its_scale_layer() -> None:
    """BatchNormalization, Mul and Add of [C, 1, 1], Relu: densenet121 and inception_v2."""
    model = imported(
        conv("x w", "a"), node(BN, "a g be m v", "n"), node("Mul", "n c", "p"), node("Add", "p c", "q"),
        node("Relu", "q", "y"),
    )  # fmt: skip
    fired = {
        "FoldBatchNormIntoConv": 1,
        "MulToScale": 1,
        "AddToScale": 1,
        "TopMultiScaleMergeToOne": 1,
        "TopFuseRelu": 1,
    }
    result = simplified(model, fired, "Conv Scale")
    assert relu_of(ops(result)[1])


def test_a_batch_norm_of_a_shared_tensor_stays_a_scale() -> None:
    """The dense block: the tensor before the norm is used elsewhere."""
    model = imported(
        node(BN, "x g be m v", "n"), node("Mul", "n c", "p"), node("Add", "p c", "q"), node("Relu", "q", "r"),
        conv("r w", "k"), node("Concat", "x k", "y", axis=1),
    )  # fmt: skip
    fired = {"TopBatchNormToScale": 1, "MulToScale": 1, "AddToScale": 1, "TopMultiScaleMergeToOne": 2, "TopFuseRelu": 1}
    result = simplified(model, fired, "Scale Conv Concat")
    assert op_name(ops(result)[0]) == "r"


@pytest.mark.parametrize("operands", ["x c", "c x", "x c4", "c4 x"])
@pytest.mark.parametrize("op", ["Mul", "Add"])
def test_per_channel_constants(op: str, operands: str) -> None:
    simplified(imported(node(op, operands, "y")), {f"{op}ToScale": 1}, "Scale")


@pytest.mark.parametrize("op", ["Mul", "Add"])
@pytest.mark.parametrize(
    ("operands", "shape"),
    [("x mb", (2, C, 6, 6)), ("x x", (2, C, 6, 8)), ("x c4", (2, 1, 6, 8)), ("x b", (1, C)), ("x b", (1, 6, C)),
     ("x c", (2, 1, C, 5)), ("x c4", (1, C, 1, 1))],
)  # fmt: skip
def test_other_constants_stay(op: str, operands: str, shape: tuple[int, ...]) -> None:
    simplified(imported(node(op, operands, "y"), x=shape), {}, op)


@pytest.mark.parametrize(("shape", "offset"), [((2, C), "b"), ((2, C, 6), "c2"), ((1, C, 2, 3, 4), "c3")])
def test_an_offset_per_channel_is_a_scale_in_every_rank(shape: tuple[int, ...], offset: str) -> None:
    simplified(imported(node("Add", f"{offset} x", "y"), x=shape), {"AddToScale": 1}, "Scale")
    simplified(imported(node("Mul", f"{offset} x", "y"), x=shape), {}, "Mul")


def test_a_number_over_a_tensor_is_a_reciprocal() -> None:
    model = imported(node("Exp", "x", "e"), node("Div", "s e", "r"), node("Relu", "r", "y"))
    simplified(model, {"DivToReciprocal": 1}, "Exp Reciprocal Relu")
    simplified(imported(node("Exp", "x", "e"), node("Div", "c e", "y")), {}, "Exp Div")
    simplified(imported(node("Div", "s x", "y"), x=(1, 1)), {}, "Div")


@pytest.mark.parametrize("op", ["Mul", "Add", "Max", "Min"])
@pytest.mark.parametrize("operands", ["x s", "s x"])
def test_scalar_constants(op: str, operands: str) -> None:
    simplified(imported(node(op, operands, "y")), {f"{op}To{op}Const": 1}, f"{op}Const")


def test_a_scale_after_relu_stays() -> None:
    model = imported(conv("x w", "a"), node("Relu", "a", "r"), node("Mul", "r c", "y"))
    simplified(model, {"TopFuseRelu": 1, "MulToScale": 1}, "Conv Scale")


def test_a_scale_after_a_scale_with_relu_stays() -> None:
    model = imported(node("Mul", "x c", "a"), node("Relu", "a", "r"), node("Mul", "r c", "y"))
    simplified(model, {"TopFuseRelu": 1, "MulToScale": 2}, "Scale Scale")


def test_a_convolution_with_two_users_keeps_its_weights() -> None:
    model = imported(conv("x w", "a"), node(BN, "a g be m v", "n"), node("Add", "a n", "y"))
    result = simplified(model, {"TopBatchNormToScale": 1}, "Conv Scale Add")
    np.testing.assert_array_equal(result.weights["w"], WEIGHTS["w"])


def test_a_convolution_that_is_an_output_keeps_its_name() -> None:
    model = imported(conv("x w", "a"), node("Relu", "a", "y"), outputs="a y")
    simplified(model, {}, "Conv Relu")
    model = imported(conv("x w", "a"), node("Mul", "a c", "y"), outputs="y a")
    simplified(model, {"MulToScale": 1}, "Conv Scale")


def test_a_filter_shared_by_two_convolutions_is_folded_for_one_only() -> None:
    model = imported(conv("x w b", "a"), node(BN, "a g be m v", "p"), conv("p w b", "y"))
    result = simplified(model, {"FoldBatchNormIntoConv": 1}, "Conv Conv")
    assert set(result.weights) == {"p_filter", "p_bias", "w", "b"}


def test_a_scale_goes_into_the_convolution_by_chip() -> None:
    """After calibration, as TPU-MLIR's processor-top-optimize: not on BM1684."""
    model = simplified(imported(conv("x w b", "a"), node("Mul", "a c", "y")), {"MulToScale": 1}, "Conv Scale")
    kinds = {"bm1684x": ["top.Conv"], "cv183x": ["top.Conv"], "bm1684": ["top.Conv", "top.Scale"]}
    for chip, expected in kinds.items():
        work = model.clone()
        rewrite_for_chip(work, chips.load(chip))
        assert [op.name for op in ops(work)] == expected and op_name(ops(work)[-1]) == "y"
    scale = WEIGHTS["c"].reshape(-1, 1, 1, 1)
    work = model.clone()
    rewrite_for_chip(work, chips.load("bm1684x"))
    np.testing.assert_array_equal(work.weights["y_filter"], WEIGHTS["w"] * scale)


@pytest.mark.parametrize("transposed", [0, 1])
def test_batch_norm_goes_into_the_matrix_product(transposed: int) -> None:
    right = WEIGHTS["mm"]
    WEIGHTS["right"] = right.T.copy() if transposed else right
    model = imported(
        node("Gemm", "x right mb", "a", transB=transposed), node(BN, "a g6 mb mb v6", "n"), node("Relu", "n", "y"),
        x=(3, C),
    )  # fmt: skip
    fired = {"TopBatchNormToScale": 1, "TopScaleMergeToMatMul": 1, "TopFuseRelu": 1}
    simplified(model, fired, "MatMul")


# ------------------------------------------------------------------------------------------------------- matrix product


@pytest.mark.parametrize(("row", "shape"), [("mb", (2, 3, C)), ("mb1", (2, 3, C)), ("mb", (2, C))])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_row_after_a_matrix_product_is_its_bias(row: str, shape: tuple[int, ...], swapped: bool) -> None:
    """PyTorch's linear layer on a sequence; the Relu after the sum is fused into the product."""
    operands = f"{row} a" if swapped else f"a {row}"
    model = imported(node("MatMul", "x mm", "a"), node("Add", operands, "d"), node("Relu", "d", "y"), x=shape)
    fired = canonicalize(model)[1]
    result = simplified(model, fired, "MatMul")
    assert fired["MatMulWithBias"] == 1
    assert relu_of(ops(result)[0])
    assert any(np.array_equal(w, WEIGHTS[row].reshape(-1)) for w in result.weights.values())


def test_the_product_of_two_computed_matrices_takes_a_row() -> None:
    nodes = [node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "x t", "a"), node("Add", "a three", "y")]
    simplified(imported(*nodes, x=(3, C)), {"MatMulWithBias": 1}, "Permute MatMul")
    nodes[0] = node("Transpose", "x", "t", perm=[0, 2, 1])
    simplified(imported(*nodes, x=(2, 3, C)), {}, "Permute MatMul Add")


@pytest.mark.parametrize(
    ("addend", "kinds", "fired"),
    [("plane", "MatMul Add", {}), ("s1", "MatMul AddConst", {"AddToAddConst": 1}),
     ("column", "MatMul Scale", {"AddToScale": 1}), ("wide", "MatMul Add", {})],
)  # fmt: skip
def test_what_is_no_row_is_added_after_the_product(addend: str, kinds: str, fired: dict[str, int]) -> None:
    simplified(imported(node("MatMul", "x mm", "a"), node("Add", f"a {addend}", "y"), x=(1, 3, C)), fired, kinds)


def test_a_product_with_relu_another_user_or_many_matrices_takes_no_row() -> None:
    nodes = [node("MatMul", "x mm", "a"), node("Relu", "a", "r"), node("Add", "r mb", "y")]
    simplified(imported(*nodes, x=(1, 3, C)), {"TopFuseRelu": 1}, "MatMul Add")
    nodes = [node("MatMul", "x mm", "a"), node("Add", "a mb", "d"), node("Mul", "a d", "y")]
    simplified(imported(*nodes, x=(1, 3, C)), {}, "MatMul Add Mul")
    nodes = [node("MatMul", "x m3", "a"), node("Add", "a mb", "y")]
    simplified(imported(*nodes, x=(2, 3, C)), {}, "MatMul Add")


# ----------------------------------------------------------------------------------------------------------------- relu


@pytest.mark.parametrize(
    "producer",
    [conv("x w b", "a"), node("Add", "x x", "a"), node("Mul", "x x", "a"), node(BN, "x g be m v", "a"),
     node("MatMul", "x cw", "a"), node("MaxPool", "x", "a", kernel_shape=[2, 2])],
    ids=lambda n: n.op_type,
)  # fmt: skip
def test_relu_goes_into_its_producer(producer: onnx.NodeProto) -> None:
    shape = (2, C) if producer.op_type == "MatMul" else (2, C, 6, 8)
    result, fired = canonicalize(model := imported(producer, node("Relu", "a", "y"), x=shape))
    assert fired["TopFuseRelu"] == 1
    assert len(ops(result)) == 1
    assert relu_of(ops(result)[0])
    np.testing.assert_allclose(compute(result)["y"], compute(model)["y"], rtol=1e-5, atol=1e-5)


def test_relu6_keeps_its_limit() -> None:
    nodes = [conv("x w", "a"), node("Add", "a a", "d"), node("Clip", "d zero six", "y")]
    result = simplified(imported(*nodes), {"TopFuseRelu": 1}, "Conv Add")
    assert relu_limit_of(ops(result)[1]) == 6.0
    assert compute(result)["y"].max() == 6.0


def test_relu_stays_after_what_has_none() -> None:
    model = imported(node("Transpose", "x", "a", perm=[0, 1, 3, 2]), node("Relu", "a", "y"))
    simplified(model, {}, "Permute Relu")
    simplified(imported(node("Relu", "x", "y")), {}, "Relu")


def test_names_of_moved_relus_are_new() -> None:
    model = imported(
        conv("x w", "a"), conv("a w", "a_move_ahead_relu"), conv("x w b", "d"), conv("x w", "e"),
        node("Concat", "d e", "k", axis=1), node("Relu", "k", "r"),
        node("Add", "a_move_ahead_relu a_move_ahead_relu", "d_move_ahead_relu"),
        node("Concat", "r d_move_ahead_relu", "y", axis=1),
    )  # fmt: skip
    result = to_canonical(model)
    names = [op_name(op) for op in ops(result)]
    assert len(set(names)) == len(names)
    assert renamed(result, model) == {"d_move_ahead_relu_1", "e_move_ahead_relu"}


def test_a_relu_is_repeated_before_a_concat_some_of_whose_operands_cannot_have_one() -> None:
    """The Concat's tensor is none of the framework's then."""
    result, fired = canonicalize(imported(conv("x w", "a"), node("Concat", "a x", "k", axis=1), node("Relu", "k", "y")))
    assert fired == {"TopFuseRelu": 1, "TopMoveReluAheadConcatPattern": 1}
    assert [op.name for op in ops(result)] == ["top.Conv", "top.Concat", "top.Relu"]
    assert relu_of(ops(result)[0])
    plain = imported(conv("x w", "a"), node("Concat", "a x", "k", axis=1), node("Relu", "k", "y"))
    np.testing.assert_allclose(compute(result)["y"], compute(plain)["y"], rtol=1e-5, atol=1e-5)


# ----------------------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(("op", "kind"), [("ReduceMean", "AvgPool"), ("ReduceMax", "MaxPool")])
def test_a_reduction_of_an_image_is_a_pool(op: str, kind: str, keepdims: int) -> None:
    model = imported(node(op, "x", "a", axes=[-1, -2], keepdims=keepdims), node("Relu", "a", "y"))
    simplified(model, {"ReduceToRPoolPattern": 1, "TopFuseRelu": 1}, kind)


def test_other_reductions_stay() -> None:
    for axes, shape in (([3], (2, C, 6, 8)), ([1, 2, 3], (2, C, 6, 8)), ([2, 3], (2, 2, C, 6, 8)), ([1, 2], (2, C, 6))):
        simplified(imported(node("ReduceMean", "x", "y", axes=axes), x=shape), {}, "Reduce")
    simplified(imported(node("ReduceMin", "x", "y", axes=[2, 3])), {}, "Reduce")


def test_a_mean_is_the_global_pool_beside_it() -> None:
    nodes = [node("ReduceMean", "x", "a", axes=[2, 3]), node("GlobalAveragePool", "x", "d"), node("Mul", "a d", "y")]
    simplified(imported(*nodes), {"ReduceToRPoolPattern": 1, "CommonSubexpression": 1}, "AvgPool Mul")


# ------------------------------------------------------------------------------------------------ common subexpressions

ONCE = {"CommonSubexpression": 1}
HALF = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_equal_nodes_are_one_before_anything_is_fused() -> None:
    """The Add has two users then, so its Relu stays (the real front end, too)."""
    nodes = [node("Add", "x c", "a"), node("Relu", "a", "r"), node("Identity", "x", "i"), node("Add", "i e", "d")]
    WEIGHTS["e"] = WEIGHTS["c"].copy()
    model = imported(*nodes, node("Exp", "d", "k"), node("Mul", "r k", "y"))
    simplified(model, {"AddToScale": 1}, "Scale Relu Exp Mul")
    assert canonicalize(imported(*nodes, node("Mul", "r d", "y"), outputs="y d"))[1]["AddToScale"] == 2


@pytest.mark.parametrize(("stated", "kinds"), [
    ({}, "AvgPool Mul"),
    ({"is_adaptive": flag(False), "pad_value": int_attr(0), "round_mode": text("HalfAwayFromZero")}, "AvgPool Mul"),
    ({"count_include_pad": flag(True)}, "AvgPool AvgPool Mul"),
])  # fmt: skip
def test_stated_defaults_make_no_difference(stated: Mapping[str, Attribute], kinds: str) -> None:
    """As in a stage file that TPU-MLIR's tools printed."""
    nodes = [node("GlobalAveragePool", "x", "a"), node("ReduceMean", "x", "d", axes=[2, 3]), node("Mul", "a d", "y")]
    model = imported(*nodes)
    pool = next(op for op in model.ops if op.name == "top.AvgPool")
    for name, value in stated.items():
        pool.attributes[name] = value
    fired = ONCE if kinds == "AvgPool Mul" else {}
    simplified(model, {"ReduceToRPoolPattern": 1, **fired}, kinds)


def test_unequal_nodes_stay() -> None:
    nodes = [node("Sub", "x t", "a"), node("Sub", "t x", "d"), node("Add", "a d", "y")]
    simplified(imported(node("Exp", "x", "t"), *nodes), {}, "Exp Sub Sub Add")
    nodes = [node("LeakyRelu", "x", "a", alpha=0.1), node("LeakyRelu", "x", "d", alpha=0.2), node("Add", "a d", "y")]
    simplified(imported(*nodes), {}, "LeakyRelu LeakyRelu Add")
    nodes = [conv("x w b", "a"), conv("x w b", "d"), node("Mul", "a d", "y")]
    simplified(imported(*nodes), {}, "Conv Conv Mul")


def test_equal_ops_are_one_after_the_patterns() -> None:
    """Nodes with attributes, and nodes after merged nodes; the first keeps its name."""
    pools = [node("MaxPool", "x", "a", **HALF), node("Relu", "a", "p"), node("MaxPool", "x", "d", **HALF)]
    model = imported(*pools, node("Relu", "d", "q"), node("Exp", "q", "r"), node("Mul", "p r", "y"))
    result = simplified(model, {"TopFuseRelu": 2, **ONCE}, "MaxPool Exp Mul")
    assert op_name(ops(result)[0]) == "p"
    simplified(imported(*pools, node("Mul", "p d", "y")), {"TopFuseRelu": 1}, "MaxPool MaxPool Mul")


@pytest.mark.parametrize(("outputs", "kinds", "names"), [
    ("y a", "LeakyRelu Mul", "y d"), ("y d", "LeakyRelu Mul", "y d"), ("y a d", "LeakyRelu Reshape Mul", "y d a"),
])  # fmt: skip
def test_of_equal_ops_a_returned_one_has_the_later_name(outputs: str, kinds: str, names: str) -> None:
    """As model_transform.py has it; the framework's tensors stay, and a view gives the second of two results."""
    nodes = [node("LeakyRelu", "x", name, alpha=0.1) for name in "ad"]
    model = imported(*nodes, node("Mul", "a d", "y"), outputs=outputs)
    result, fired = canonicalize(model)
    assert fired == ONCE and kinds == " ".join(op.name.removeprefix("top.") for op in ops(result))
    made = [v.owner for v in result.results]
    assert [op_name(op) for op in made] == names.split()  # type: ignore[arg-type]
    assert [framework_name(op) for op in made] == outputs.split()  # type: ignore[arg-type]


@pytest.mark.parametrize(("nothing", "fired"), [
    (node("Sub", "q zero", "a"), {"SubToSubConst": 1, "RemoveAddConst": 1}),
    (node("AveragePool", "q", "a", kernel_shape=[1, 1]), {}),
    (node("Slice", "q first last", "a"), {"NoUseSlicePattern": 1}),
])  # fmt: skip
def test_a_result_that_changes_nothing_is_a_second_name(nothing: onnx.NodeProto, fired: dict[str, int]) -> None:
    """A view of the first result gives the second one; lowered, it follows the cast of the first."""
    top = simplified(imported(node("Exp", "x", "q"), nothing, outputs="q a"), fired, "Exp Reshape")
    assert [op.name for op in to_tpu(top, "bm1684x", "f16").ops][-3:] == ["tpu.Cast", "tpu.Reshape", "func.return"]


# ------------------------------------------------------------------------------------------------------ driver and pass


def test_what_nothing_uses_is_removed() -> None:
    model = imported(conv("x w b", "a"), node("Relu", "a", "y"), conv("x w", "d"), outputs="y d")
    terminator = model.terminator
    terminator.operands = [terminator.operands[0]]
    model.function.update_function_type()
    result = to_canonical(model)
    assert [op_name(op) for op in result.ops if not isinstance(op, ReturnOp)] == ["x", "w", "b", "y"]
    assert list(result.weights) == ["w", "b"]


def test_only_a_float_module_is_taken() -> None:
    model = imported(node("Relu", "x", "y"))
    model.set(state="TPU_LOWERED")
    with pytest.raises(ImportModelError, match="canonicalize: a module in state TOP_F32 is required"):
        canonicalize(model)


def test_the_pass_does_the_same() -> None:
    model = imported(conv("x w", "a"), node(BN, "a g be m v", "n"), node("Relu", "n", "y"))
    ctx = ModelContext(weights=model.weights.copy())
    by_pass = model.clone()
    Canonicalize().apply(ctx, by_pass.module)
    result = to_canonical(model)
    assert print_module(by_pass.module) == print_module(result.module)
    assert {k: v.tolist() for k, v in ctx.weights.items()} == {k: v.tolist() for k, v in result.weights.items()}


def test_the_pass_without_weights_changes_only_the_graph() -> None:
    model = imported(conv("x w", "a"), node("Relu", "a", "r"), node("Mul", "r c", "y"))
    Canonicalize().apply(context(), model.module)
    assert [op.name for op in ops(model)] == ["top.Conv", "top.Mul"]


def test_the_result_is_verified() -> None:
    model = imported(conv("x w", "a"), node("Relu", "a", "y"))
    ops(model)[0].attributes["strides"] = flag(True)
    with pytest.raises(ImportModelError, match="after canonicalize"):
        canonicalize(model)
