"""The importer: real nodes, whole networks, every error at the door, and ONNX Runtime as the reference."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from plain_names import import_onnx
from xdsl.dialects.func import ReturnOp

from tpusim.errors import ImportModelError, UnsupportedError
from tpusim.frontend import OnnxReference, onnx_outputs
from tpusim.inference import run
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.text import print_module
from tpusim.ir.types import shape_of
from tpusim.ops import context
from tpusim.ops.structure import TopInput, TopNone, TopWeight

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def network(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int | str, ...]] | list[onnx.ValueInfoProto],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    **more: object,
) -> onnx.ModelProto:
    """A model from nodes; graph outputs have no declared shape."""
    if isinstance(inputs, dict):
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "net", inputs, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    """A node named after its output; `inputs` are separated by spaces, "-" is an absent one."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op, names, output.split(), name=f"n_{output.split()[0]}", **attributes)


def kinds(model: Model) -> list[str]:
    return [op.name for op in model.ops if not isinstance(op, TopWeight | TopNone | TopInput | ReturnOp)]


def assert_like_onnx(proto: onnx.ModelProto, **inputs: np.ndarray) -> Model:
    """Import, run op by op, and compare every tensor that ONNX Runtime has under the same name."""
    model = import_onnx(proto)
    expected = onnx_outputs(proto, inputs)
    compared = parts = 0
    for name, value in run(model, inputs).items():
        if "_part" in name:  # what a node is taken apart to has names of our own
            parts += 1
        elif name not in inputs:
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
            compared += 1
    assert compared + parts == len(kinds(model))
    return model


# ------------------------------------------------------------------------------------------------------ what is built


def conv_relu() -> onnx.ModelProto:
    nodes = [node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    return network(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"w": floats(4, 3, 3, 3), "b": floats(4)})


def test_the_text_is_what_upstream_prints() -> None:
    model = import_onnx(conv_relu(), name="tiny")
    text = print_module(model.module)
    assert '%arg0: tensor<1x3x8x8xf32> loc("x")' in text
    assert '"top.Input"(%arg0) : (tensor<1x3x8x8xf32>) -> tensor<1x3x8x8xf32> loc("x")' in text
    assert '"top.Weight"() : () -> tensor<4x3x3x3xf32> loc("w")' in text
    assert 'loc("c")' in text
    assert model.name == "tiny"
    assert model.state == "TOP_F32"
    assert str(model.function.function_type) == "(tensor<1x3x8x8xf32>) -> tensor<1x4x8x8xf32>"


def test_a_module_survives_its_files(tmp_path: Path) -> None:
    model = import_onnx(conv_relu())
    save_model(model, tmp_path / "1_top.mlir")
    again = load_model(tmp_path / "1_top.mlir", context())
    assert print_module(again.module) == print_module(model.module)
    assert {k: v.tolist() for k, v in again.weights.items()} == {k: v.tolist() for k, v in model.weights.items()}


@pytest.mark.parametrize("name", ["a b", 'quo"te', "back\\slash", "ünï/cödé:0", "line\nbreak", "%0", "loc(", "#map"])
def test_tensor_names_may_be_anything(name: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", [name + "in", name + "w"], [name]),
        helper.make_node("Relu", [name], [name + "out"]),
    ]
    model = import_onnx(network(nodes, {name + "in": (1, 2, 3, 3)}, [name + "out"], {name + "w": floats(1, 2, 3, 3)}))
    save_model(model, tmp_path / "m.mlir")
    again = load_model(tmp_path / "m.mlir", context())
    assert [op_name(op) for op in again.ops][:-1] == [name + "in", name + "w", name, name + "out"]
    assert list(again.weights) == [name + "w"]


def test_weights_and_none_are_shared() -> None:
    nodes = [node("Conv", "x w", "a"), node("Conv", "a w", "b"), node("Identity", "w", "v"), node("Conv", "b v", "y")]
    model = import_onnx(network(nodes, {"x": (1, 2, 4, 4)}, ["y"], {"w": floats(2, 2, 1, 1)}))
    assert [op.name for op in model.ops].count("top.Weight") == 1
    assert [op.name for op in model.ops].count("top.None") == 1


def test_identity_and_dropout_vanish_and_outputs_keep_their_names() -> None:
    nodes = [
        node("Relu", "x", "r"), node("Identity", "r", "i"), node("Dropout", "i", "d mask", ratio=0.4),
        node("Cast", "d", "f", to=TensorProto.FLOAT), node("Mul", "f f", "m"), node("Identity", "m", "y"),
    ]  # fmt: skip
    proto = network(nodes, {"x": (2, 3)}, ["y"], opset=9)
    model = assert_like_onnx(proto, x=floats(2, 3))
    assert kinds(model) == ["top.Relu", "top.Mul"]
    assert [op_name(v.owner) for v in model.results] == ["y"]  # type: ignore[arg-type]


def test_outputs_of_one_value_keep_their_names() -> None:
    """Copies of a returned value and of an input become views."""
    nodes = [
        node("Relu", "x", "r"),
        *(node("Identity", a, b) for a, b in ("rs", "rt", "xy")),
        node("Identity", "y", "z"),
    ]
    model = assert_like_onnx(network(nodes, {"x": (2, 3)}, list("syrtz")), x=floats(2, 3))
    assert [op_name(v.owner) for v in model.results] == list("syrtz")  # type: ignore[arg-type]
    assert sorted(kinds(model)) == ["top.Relu", *["top.Reshape"] * 4]


def test_a_value_that_is_returned_twice_takes_the_first_name() -> None:
    nodes = [node("Relu", "x", "h"), node("Identity", "h", "y"), node("Identity", "h", "z")]
    model = assert_like_onnx(network(nodes, {"x": (2, 3)}, ["y", "z"]), x=floats(2, 3))
    assert [op_name(v.owner) for v in model.results] == ["y", "z"]  # type: ignore[arg-type]
    assert kinds(model) == ["top.Relu", "top.Reshape"]


def test_constant_subgraphs_are_evaluated() -> None:
    shape = np.array([1, 4, 1, 1])
    nodes = [
        node("ConstantOfShape", "shape", "w", value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25])),
        node("Constant", "", "k", value=numpy_helper.from_array(floats(4))),
        node("Unsqueeze", "k axes", "u"), node("Mul", "u w", "uw"), node("Add", "x uw", "s"), node("Relu", "s", "y"),
    ]  # fmt: skip
    weights = {"shape": shape, "axes": np.array([0, 2, 3])}
    proto = network(nodes, {"x": (2, 4, 3, 3)}, ["y"], weights)
    model = assert_like_onnx(proto, x=floats(2, 4, 3, 3))
    assert kinds(model) == ["top.Add", "top.Relu"]
    assert list(model.weights) == ["uw"]


def test_shape_arithmetic_is_evaluated() -> None:
    """The flatten that PyTorch writes: Reshape(x, Concat(Shape(x)[0], -1))."""
    nodes = [
        node("Relu", "x", "r"), node("Shape", "r", "s"), node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n zeros", "nn"), node("Concat", "nn rest", "t", axis=0), node("Reshape", "r t", "y"),
    ]  # fmt: skip
    weights = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1])}
    proto = network(nodes, {"x": (2, 3, 4, 5)}, ["y"], weights)
    model = assert_like_onnx(proto, x=floats(2, 3, 4, 5))
    assert shape_of(model.results[0]) == (2, 60)
    assert kinds(model) == ["top.Relu", "top.Reshape"]


def test_shape_honours_start_and_end() -> None:
    nodes = [node("Shape", "x", "s", start=-3, end=3), node("Concat", "s rest", "t", axis=0)]
    nodes += [node("Reshape", "x t", "y")]
    model = import_onnx(network(nodes, {"x": (2, 3, 4, 5)}, ["y"], {"rest": np.array([10])}))
    assert shape_of(model.results[0]) == (3, 4, 10)


def test_nodes_that_reach_no_output_are_ignored() -> None:
    nodes = [node("Relu", "x", "y"), node("NonZero", "x", "dead"), node("Cast", "i", "dead2", to=TensorProto.FLOAT)]
    integers = helper.make_tensor_value_info("i", TensorProto.INT64, ["N"])
    floating = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    model = import_onnx(network(nodes, [floating, integers], ["y"]))
    assert kinds(model) == ["top.Relu"]
    assert len(model.body.args) == 1


def test_local_functions_are_inlined() -> None:
    function = helper.make_function(
        "custom", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    nodes = [helper.make_node("Twice", ["x"], ["t"], domain="custom"), node("Relu", "t", "y")]
    proto = network(nodes, {"x": (2, 3)}, ["y"], functions=[function])
    proto.opset_import.append(helper.make_opsetid("custom", 1))
    assert kinds(import_onnx(proto)) == ["top.Add", "top.Relu"]


# --------------------------------------------------------------------------------------------------------- single ops

BATCH_NORM = {"g": floats(3), "b": floats(3, seed=1), "m": floats(3, seed=2), "v": np.array([0.1, 1, 3], np.float32)}


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5)])
def test_batch_normalization(opset: int, shape: tuple[int, ...]) -> None:
    proto = network(
        [node("BatchNormalization", "x g b m v", "y", epsilon=1e-3, momentum=0.8)], {"x": shape}, ["y"], BATCH_NORM,
        opset,
    )  # fmt: skip
    assert kinds(assert_like_onnx(proto, x=floats(*shape))) == ["top.BatchNorm"]


def test_batch_normalization_in_training_is_refused() -> None:
    nodes = [node("BatchNormalization", "x g b m v", "y mm vv", training_mode=1)]
    with pytest.raises(UnsupportedError, match="BatchNormalization 'n_y' .*training_mode must be 0"):
        import_onnx(network(nodes, {"x": (2, 3, 4, 4)}, ["y"], BATCH_NORM))


def test_computed_statistics_are_taken_apart() -> None:
    nodes = [node("BatchNormalization", "x g b m s", "y")]
    weights = {k: v for k, v in BATCH_NORM.items() if k != "v"}
    proto = network(nodes, {"x": (2, 3, 4, 4), "s": (3,)}, ["y"], weights)
    model = assert_like_onnx(proto, x=floats(2, 3, 4, 4), s=np.array([0.5, 1, 2], np.float32))
    assert kinds(model)[-3:] == ["top.Div", "top.Mul", "top.Add"]


@pytest.mark.parametrize(
    ("opset", "low", "high", "kind"),
    [(6, 0.0, 6.0, "top.Relu"), (6, -1.0, 1.0, "top.Clip"), (6, None, 0.5, "top.Clip"), (6, 0.0, None, "top.Relu"),
     (13, 0.0, 6.0, "top.Relu"), (11, -1.0, 1.0, "top.Clip"), (13, None, 0.5, "top.Clip"), (13, 0.2, None, "top.Clip"),
     (13, None, None, "top.Clip"), (13, 0.0, 0.0, "top.Clip"), (13, 0.0, -1.0, "top.Clip")],
)  # fmt: skip
def test_clip(opset: int, low: float | None, high: float | None, kind: str) -> None:
    bounds = {k: v for k, v in (("min", low), ("max", high)) if v is not None}
    if opset < 11:
        proto = network([node("Clip", "x", "y", **bounds)], {"x": (2, 40)}, ["y"], opset=opset)
    else:
        inputs = " ".join(["x", "min" if low is not None else "-", "max" if high is not None else "-"])
        weights = {k: np.array(v, np.float32) for k, v in bounds.items()}
        proto = network([node("Clip", inputs, "y")], {"x": (2, 40)}, ["y"], weights, opset)
    assert kinds(assert_like_onnx(proto, x=3 * floats(2, 40))) == [kind]


def test_a_computed_bound_is_a_maximum() -> None:
    proto = network([node("Clip", "x low", "y")], {"x": (2, 3), "low": ()}, ["y"])
    assert "top.Max" in kinds(assert_like_onnx(proto, x=floats(2, 3), low=np.array(0.1, np.float32)))


# ----------------------------------------------------------------------------------------------------- whole networks


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "shufflenet", "inception_v2"])
def test_networks_have_the_shapes_of_onnx(name: str) -> None:
    proto = onnx.load(LIGHT / f"light_{name}.onnx")
    start = time.process_time()
    model = import_onnx(proto)
    assert time.process_time() - start < 3.0
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    shapes = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    tensors = [op for op in model.ops if not isinstance(op, TopNone | TopWeight | ReturnOp)]
    assert len(tensors) > 30
    assert {op_name(op): shape_of(op.results[0]) for op in tensors} == {op_name(o): shapes[op_name(o)] for o in tensors}


# --------------------------------------------------------------------------------------------------------------- files


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    return path


def test_a_file_names_the_module(tmp_path: Path) -> None:
    path = written(tmp_path, conv_relu().SerializeToString())
    assert import_onnx(path).name == "net"
    assert import_onnx(str(path), name="other").name == "other"


def test_a_text_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, b"This is not a model.\n" * 20)
    with pytest.raises(ImportModelError, match="is text that begins 'This is not a model.'"):
        import_onnx(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    content = conv_relu().SerializeToString()
    for size in range(0, len(content), len(content) // 17):
        with pytest.raises(ImportModelError, match=r"net\.onnx'"):
            import_onnx(written(tmp_path, content[:size]))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=r"none\.onnx' cannot be read: .*No such file"):
        import_onnx(tmp_path / "none.onnx")
    with pytest.raises(ImportModelError, match="is a folder"):
        import_onnx(tmp_path)


def test_external_data(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    proto = conv_relu()
    x = floats(1, 3, 8, 8)
    expected = onnx_outputs(proto, {"x": x}, ["y"])["y"]
    onnx.save_model(proto, path, save_as_external_data=True, location="net.bin", size_threshold=0)
    np.testing.assert_allclose(run(import_onnx(path), {"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
    (tmp_path / "net.bin").unlink()
    with pytest.raises(ImportModelError, match=r"net\.onnx' cannot be read"):
        import_onnx(path)


def test_an_unknown_ir_version_is_refused() -> None:
    proto = conv_relu()
    proto.ir_version = 999
    with pytest.raises(ImportModelError, match="model 'net' is not valid ONNX: .*ir_version 999"):
        import_onnx(proto)


def test_an_attribute_unknown_to_onnx_is_refused() -> None:
    with pytest.raises(ImportModelError, match="model 'net' is not valid ONNX: .*shade.*Relu") as caught:
        import_onnx(network([node("Relu", "x", "y", shade=3)], {"x": (2, 3)}, ["y"]))
    assert len(str(caught.value).splitlines()) == 1


# ---------------------------------------------------------------------------------------------------- what is refused


def problems(proto: onnx.ModelProto) -> list[str]:
    """The lines of the collected error, without its first and last."""
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(proto)
    first, *lines, last = str(caught.value).splitlines()
    assert first.startswith(f"model 'net': {len(lines)} problem")
    assert "before the export" in last
    return [line.strip() for line in lines]


def test_all_unsupported_nodes_are_named_at_once() -> None:
    nodes = [
        node("DeformConv", "x w x", "e"), node("Relu", "e", "r"),
        helper.make_node("Magic", ["r"], ["m"], domain="com.acme"), node("Mul", "m r", "p"),
        node("Det", "p", "d"), node("Relu", "d", "y"),
    ]  # fmt: skip
    proto = network(nodes, {"x": (3, 3)}, ["y"], {"w": floats(3, 3)}, 19)
    proto.opset_import.append(helper.make_opsetid("com.acme", 2))
    assert problems(proto) == [
        "DeformConv 'n_e' (ai.onnx opset 19): tpusim has no such op: export the convolution with GridSample and "
        "MatMul, which tpusim has, or cut it out with outputs=...",
        "Magic 'm' (com.acme opset 2): tpusim has no such op",
        "Det 'n_d' (ai.onnx opset 19): tpusim has no such op",
    ]


def test_ops_that_onnx_does_not_know_are_collected_too() -> None:
    nodes = [node("Relux", "x", "a"), node("Det", "a", "b"), node("Reluy", "b", "y")]
    assert [line.split()[0] for line in problems(network(nodes, {"x": (3, 3)}, ["y"]))] == ["Relux", "Det", "Reluy"]


def test_nodes_after_an_unsupported_one_are_checked() -> None:
    """RoiAlign's shape is known to ONNX, so faults after it show in the same run."""
    nodes = [
        node("RoiAlign", "x rois batch", "e", output_height=4, output_width=4),
        node("BatchNormalization", "e g b m v", "n mm vv", training_mode=1), node("Relu", "n", "r"),
        node("Reshape", "r t", "y"),
    ]  # fmt: skip
    weights = {"t": np.array([5, -1]), "batch": np.array([0, 1])}
    proto = network(nodes, {"x": (2, 3, 4, 4), "rois": (2, 4)}, ["y"], BATCH_NORM | weights)
    assert [line.split()[0] for line in problems(proto)] == ["RoiAlign", "BatchNormalization", "Reshape"]


def test_equal_problems_are_one_line() -> None:
    nodes = [node("Det", "x", "a"), node("Det", "z", "b"), node("Add", "a b", "y")]
    with pytest.raises(UnsupportedError, match=r"2 problems at import:\n  Det 'n_a' and 1 more \(ai.onnx opset 17\): "):
        import_onnx(network(nodes, {"x": (3, 3), "z": (3, 3)}, ["y"]))


def test_an_attribute_that_is_not_read_is_an_error() -> None:
    found = problems(network([node("Relu", "x", "y", consumed_inputs=[0])], {"x": (2, 3)}, ["y"], opset=5))
    assert found == ["Relu 'n_y' (ai.onnx opset 5): attribute consumed_inputs = (0,) is not supported"]


def test_an_attribute_at_its_default_is_no_error() -> None:
    proto = network([node("MaxPool", "x", "y", kernel_shape=[2, 2], storage_order=0)], {"x": (1, 2, 4, 4)}, ["y"])
    assert kinds(import_onnx(proto)) == ["top.MaxPool"]


def test_a_computed_reshape_target_is_refused() -> None:
    nodes = [node("Reshape", "x t", "y")]
    target = helper.make_tensor_value_info("t", TensorProto.INT64, (2,))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))
    why = "constant extents of the target are required, 't' is computed"
    assert problems(network(nodes, [x, target], ["y"])) == [f"Reshape 'n_y' (ai.onnx opset 17): {why}"]
    nodes = [node("Cast", "s", "t", to=TensorProto.INT64), node("Reshape", "x t", "y")]
    found = problems(network(nodes, {"x": (2, 3), "s": (2,)}, ["y"]))
    assert found == [f"Reshape 'n_y' (ai.onnx opset 17): {why}"]


def test_places_of_the_largest_are_found_where_they_are_read() -> None:
    nodes = [node("MaxPool", "x", "p i", kernel_shape=[2, 2]), node("Cast", "i", "y", to=TensorProto.FLOAT)]
    x = floats(1, 2, 4, 4)
    assert "top.Arg" in kinds(assert_like_onnx(network(nodes, {"x": (1, 2, 4, 4)}, ["p", "y"]), x=x))
    assert kinds(import_onnx(network(nodes[:1], {"x": (1, 2, 4, 4)}, ["p"]))) == ["top.MaxPool"]


def test_a_dropout_in_training_is_refused() -> None:
    nodes = [node("Dropout", "x r t", "y")]
    weights = {"r": np.array(0.5, np.float32), "t": np.array(True)}
    assert "training_mode" in problems(network(nodes, {"x": (2, 3)}, ["y"], weights))[0]
    weights["t"] = np.array(False)
    model = import_onnx(network([*nodes, node("Relu", "y", "z")], {"x": (2, 3)}, ["z"], weights))
    assert kinds(model) == ["top.Relu"]


def test_shapes_that_do_not_fit_are_refused() -> None:
    proto = network([node("Add", "x z", "y")], {"x": (2, 3), "z": (2, 4)}, ["y"])
    assert problems(proto) == ["Add 'n_y' (ai.onnx opset 17): operand shapes (2, 3), (2, 4) do not broadcast"]


def test_random_nodes_are_not_constants() -> None:
    nodes = [node("RandomNormal", "", "r", shape=[2, 3]), node("Add", "x r", "y")]
    assert [line.split()[0] for line in problems(network(nodes, {"x": (2, 3)}, ["y"]))] == ["RandomNormal"]


def test_casts_of_constants_fold() -> None:
    nodes = [node("Cast", "k", "c", to=TensorProto.DOUBLE), node("Relu", "c", "r")]
    nodes += [node("Cast", "r", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")]
    model = import_onnx(network(nodes, {"x": (2, 3)}, ["y"], {"k": np.arange(3)}))
    assert kinds(model) == ["top.Add"]
    (add,) = (op for op in model.ops if op.name == "top.Add")
    assert model.weights[value_name(add.operands[1])].tolist() == [[0, 1, 2]]


def test_integers_are_no_operands() -> None:
    found = problems(network([node("Add", "x k", "y")], {"x": (2, 3)}, ["y"], {"k": np.arange(3)}))
    assert found == ["Add 'n_y' (ai.onnx opset 17): operands of one type are required, got float32 and int64"]


def test_a_constant_output_is_refused() -> None:
    proto = network([node("Relu", "x", "y"), node("Relu", "k", "z")], {"x": (2,)}, ["y", "z"], {"k": floats(2)})
    assert problems(proto) == ["graph output 'z' is constant; remove it from the outputs"]


# -------------------------------------------------------------------------------------------------------------- inputs


def open_shapes() -> onnx.ModelProto:
    nodes = [node("Concat", "a b", "c", axis=1), node("Relu", "c", "y")]
    return network(nodes, {"a": ("batch", 3, "h", 8), "b": ("batch", 1, "h", 8), "unused": ("k",)}, ["y"])


def test_dynamic_inputs_are_listed() -> None:
    with pytest.raises(ImportModelError) as caught:
        import_onnx(open_shapes())
    message = str(caught.value)
    assert "'a' has shape (batch, 3, h, 8), 'b' has shape (batch, 1, h, 8)" in message
    assert "input_shapes={'a': (1, 3, h, 8), 'b': (1, 1, h, 8)} with numbers for h" in message
    assert "unused" not in message


def test_input_shapes_make_them_static() -> None:
    shapes = {"a": (2, 3, 4, 8), "b": (2, 1, 4, 8)}
    model = import_onnx(open_shapes(), input_shapes=shapes)
    assert shape_of(model.results[0]) == (2, 4, 4, 8)
    inputs = {name: floats(*shape) for name, shape in shapes.items()}
    expected = onnx_outputs(open_shapes(), inputs, input_shapes=shapes)
    np.testing.assert_array_equal(run(model, inputs)["y"], expected["y"])


def test_input_shapes_override_a_static_shape() -> None:
    model = import_onnx(conv_relu(), input_shapes={"x": (4, 3, 16, 8)})
    assert shape_of(model.results[0]) == (4, 4, 16, 8)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [({"z": (1,)}, "no input 'z', its inputs are x"), ({"x": (1, 3, 8)}, r"'x' has rank 4 \(1, 3, 8, 8\), got"),
     ({"x": (0, 3, 8, 8)}, "dims of 1 or more"), ({"w": (4, 3, 3, 3)}, "no input 'w'")],
)  # fmt: skip
def test_wrong_input_shapes_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        import_onnx(conv_relu(), input_shapes=shapes)


def test_initializers_listed_as_inputs_are_weights() -> None:
    proto = conv_relu()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (4, 3, 3, 3)))
    assert len(import_onnx(proto).body.args) == 1


def test_the_given_model_is_not_changed() -> None:
    proto = open_shapes()
    before = proto.SerializeToString(deterministic=True)
    import_onnx(proto, input_shapes={"a": (2, 3, 4, 8), "b": (2, 1, 4, 8)})
    OnnxReference(proto, input_shapes={"a": (2, 3, 4, 8), "b": (2, 1, 4, 8)})
    assert proto.SerializeToString(deterministic=True) == before


# ----------------------------------------------------------------------------------------------------------- reference


def test_the_reference_returns_named_tensors() -> None:
    reference = OnnxReference(conv_relu(), ["c"])
    first, second = (reference.run({"x": floats(1, 3, 8, 8, seed=seed)}) for seed in range(2))
    assert list(first) == ["c"]
    assert first["c"].shape == (1, 4, 8, 8)
    assert not np.array_equal(first["c"], second["c"])


def test_the_reference_refuses_what_does_not_fit() -> None:
    with pytest.raises(ImportModelError, match="no tensor named 'nope'"):
        OnnxReference(conv_relu(), ["c", "nope"])
    reference = OnnxReference(conv_relu())
    with pytest.raises(ImportModelError, match="input 'x' is missing; given are z"):
        reference.run({"z": floats(1)})
    with pytest.raises(ImportModelError, match=r"input 'x' has shape \(1, 3, 8, 8\), got \(1, 3, 8\)"):
        reference.run({"x": floats(1, 3, 8)})


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_aligned_as_onnx_does_it(mode: str) -> None:
    """Regions that leave the image, that are narrower than a place, and of another image; negative values too."""
    boxes = np.array([[0, 0, 5, 5], [-3, -2, 3, 9], [2.3, 1.7, 2.6, 1.9], [5, 4, 9, 8]], np.float32)
    attributes = {"mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.75}
    nodes = [node("RoiAlign", "x rois batch", "y", **attributes)]
    weights = {"rois": boxes, "batch": np.array([0, 1, 0, 1])}
    proto, x = network(nodes, {"x": (2, 3, 6, 5)}, ["y"], weights), {"x": floats(2, 3, 6, 5)}
    top = import_onnx(proto)
    found = run(top, x)[value_name(top.results[0])]
    wanted = ReferenceEvaluator(proto).run(None, x)[0]
    assert np.allclose(found, wanted, rtol=0, atol=1e-6)  # the corners' weights are multiplied in another order


@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_constant_regions_have_samples_by_their_size(transform: str) -> None:
    """With sampling_ratio 0; regions of one place, of no place, outside the image. Computed regions are refused."""
    boxes = np.array([[0, 0, 5, 5], [-3, -2, 3, 9], [2.3, 1.7, 2.3, 1.7], [5, 4, 19, 18]], np.float32)
    attributes = {"output_height": 3, "output_width": 2, "coordinate_transformation_mode": transform}
    nodes, batch = [node("RoiAlign", "x rois batch", "y", **attributes)], np.array([0, 1, 0, 1])
    proto, x = network(nodes, {"x": (2, 3, 6, 5)}, ["y"], {"rois": boxes, "batch": batch}), {"x": floats(2, 3, 6, 5)}
    top = import_onnx(proto)
    found = run(top, x)[value_name(top.results[0])]
    wanted = OnnxReference(proto, ["y"]).run(x)["y"]
    assert np.allclose(found, wanted, rtol=0, atol=1e-6)  # sums over rows and columns in another order
    computed = network(nodes, {"x": (2, 3, 6, 5), "rois": (4, 4)}, ["y"], {"batch": batch})
    with pytest.raises(UnsupportedError, match="averages of constant regions.*export it with a fixed one"):
        import_onnx(computed)
