"""Float modules written as ONNX: ONNX Runtime computes what it computes of the original network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import exported
import exported_vision
import numpy as np
import onnx
import pytest
from compiling import to_canonical
from end_to_end import DIGITS, digits_run
from onnx import helper, numpy_helper
from op_cases import BY_ID, CASES
from op_row import OpCase
from rotation import marks, turn
from rows import canonical, lowered
from xdsl.dialects.builtin import StringAttr

import tpusim
from tpusim.cli import main
from tpusim.errors import ImportModelError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.frontend.onnx.session import Session
from tpusim.ir.module import Model
from tpusim.ops.framework.base import TopOp
from tpusim.ops.structure import TopInput, TopNone, TopWeight
from tpusim.registry import DIALECTS, ONNX_FORMS
from tpusim.studies.export import export_onnx, export_qdq
from tpusim.studies.export.onnx import FORMS

FIXED_ROWS = {"nms"}
"""The network's result has as many rows as there are boxes, the module's a fixed number."""
IN_PARTS = {"rmsnorm", "rmsnorm-op", "groupnorm", "argmax-where", "nms"}
"""Written as several nodes, which are imported as several ops."""
Arrays = Mapping[str, np.ndarray]


def computed(proto: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """The results by name; inputs in the types that the model declares."""
    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in proto.graph.input}
    given = {name: np.asarray(feeds[name]).astype(dtype) for name, dtype in types.items() if name in feeds}
    return Session(proto.SerializeToString(), threads=1).run([o.name for o in proto.graph.output], given)


def kinds(model: Model) -> Counter[str]:
    return Counter(op.name for op in model.ops if not isinstance(op, TopWeight | TopNone))


def require_equal(got: Arrays, wanted: Arrays) -> None:
    """Names, types and shapes; floats within 1e-5 of the largest, the rounding of sums in another order."""
    assert list(got) == list(wanted)
    for name, y in wanted.items():
        assert (got[name].dtype, got[name].shape) == (y.dtype, y.shape)
        real = np.abs(y[np.isfinite(y)].astype(np.float64)).max(initial=1)
        np.testing.assert_allclose(got[name].astype(np.float64), y.astype(np.float64), rtol=1e-5, atol=1e-5 * real)


def rows() -> list[Any]:
    return [pytest.param(c, id=c.id, marks=marks(turn(c, 0, 4) or c.id in IN_PARTS)) for c in CASES]


@pytest.mark.parametrize("case", rows())
def test_a_row_goes_to_onnx_and_back(case: OpCase) -> None:
    model = canonical(case.id)
    written = export_onnx(model).proto
    onnx.checker.check_model(written)
    if case.id not in FIXED_ROWS:
        require_equal(computed(written, case.feeds()), computed(case.model(), case.feeds()))
    if case.id not in IN_PARTS:
        assert kinds(to_canonical(import_onnx(written))) == kinds(model)


def test_rows_that_stay_unused_of_boxes_are_filled_with_minus_one() -> None:
    case = BY_ID["nms"]
    (y,) = computed(export_onnx(canonical("nms")).proto, case.feeds()).values()
    (rows,) = computed(case.model(), case.feeds()).values()
    np.testing.assert_array_equal(y[: len(rows)], rows)
    assert (y[len(rows) :] == -1).all()


NETWORKS = {
    "bert": exported.bert()[0],
    "llama": exported.llama()[0],
    "tagger": exported.tagger()[0],
    "crnn": exported_vision.crnn()[0],
    "shuffle": exported_vision.shuffle()[0],
    "yolo_v8": exported_vision.yolo_v8()[0],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_an_exporter_goes_to_onnx_and_back(name: str) -> None:
    """With no more nodes, but for Splits, of which every part is a Slice."""
    proto = NETWORKS[name]
    model = to_canonical(import_onnx(proto))
    written = export_onnx(model).proto
    rng = np.random.default_rng(3)
    feeds = {
        i.name: rng.integers(0, 2, [d.dim_value for d in i.type.tensor_type.shape.dim])
        if helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type).kind in "ib"
        else rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim])
        for i in written.graph.input
    }
    require_equal(computed(written, feeds), computed(proto, feeds))
    more = sum(len(node.output) - 1 for node in proto.graph.node if node.op_type == "Split")
    assert len(written.graph.node) <= len(proto.graph.node) + more + 1


def test_every_op_that_a_front_end_builds_has_a_form() -> None:
    DIALECTS.get("top")
    skipped = {TopInput, TopWeight, TopNone}
    classes = {c for c in subclasses(TopOp) if "name" in vars(c) and c.__module__.startswith("tpusim.")} - skipped
    assert len(classes) > 80
    assert not [cls.name for cls in classes if not any(base in FORMS for base in cls.__mro__)]


def subclasses(cls: type) -> set[type]:
    return set(cls.__subclasses__()).union(*map(subclasses, cls.__subclasses__()))


def test_qdq_of_a_module_is_that_of_the_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Other nodes, the same integers: ONNX Runtime gets the same numbers."""
    folder, (name, test) = digits_run(tmp_path_factory, "bm1684x", "int8"), images("test")
    canonical, lowered = (tpusim.load(folder / f"{stage}.mlir") for stage in ("2_canonical", "4_tpu"))
    of_model, of_module = export_qdq(DIGITS / "digits.onnx", lowered), export_qdq(canonical, lowered)
    assert of_module.differences == of_model.differences
    for x in test[:32, None]:
        require_identical(computed(of_module.model, {name: x}), computed(of_model.model, {name: x}))
    sizes = [sum(numpy_helper.to_array(t).nbytes for t in m.model.graph.initializer) for m in (of_module, of_model)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def images(file: str) -> tuple[str, np.ndarray]:
    """The input's name, and the images of the digits example."""
    with np.load(DIGITS / f"{file}.npz") as stored:
        (name,) = stored.files
        return name, stored[name]


def require_identical(got: Arrays, wanted: Arrays) -> None:
    assert list(got) == list(wanted)
    for name, y in wanted.items():
        np.testing.assert_array_equal(got[name], y)


def test_a_name_that_quantised_weights_would_have_is_taken(tmp_path: Path) -> None:
    """An initializer called like the tensor that QDQ makes of another weight."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"]),
        helper.make_node("Add", ["conv", "conv_Conv_weight"], ["y"]),
    ]
    constants = {
        "w": np.random.default_rng(0).standard_normal((8, 3, 1, 1)),
        "conv_Conv_weight": np.random.default_rng(1).standard_normal((1, 8, 4, 4)),
    }
    io = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (1, 3, 4, 4)), ("y", (1, 8, 4, 4)))]
    stored = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in constants.items()]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", io[:1], io[1:], stored), opset_imports=[helper.make_opsetid("", 17)]
    )
    x = np.random.default_rng(2).standard_normal((1, 3, 4, 4)).astype(np.float32)
    onnx.save(proto, tmp_path / "net.onnx")
    compiled = tpusim.compile(tmp_path / "net.onnx", [{"x": x}])
    (y,), (wanted,) = (computed(p, {"x": x}).values() for p in (export_qdq(proto, compiled.tpu).model, proto))
    np.testing.assert_allclose(y, wanted, atol=np.abs(wanted).max() / 30)  # a few steps of a byte


def test_nodes_that_tpu_mlir_computes_otherwise_are_named(tmp_path: Path) -> None:
    """A nearest Resize by no whole factor stays in a file that has the model's nodes, and copies other elements."""
    size = numpy_helper.from_array(np.array([1, 4, 7, 3]), "size")
    proto = model_of([helper.make_node("Resize", ["c", "", "", "size"], ["y"])], {"x": 1}, {"y": 1})
    proto.graph.initializer.append(size)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    x = np.random.default_rng(2).standard_normal((1, 3, 4, 4)).astype(np.float32)
    onnx.save(proto, tmp_path / "net.onnx")
    followed, plain = (
        tpusim.compile(tmp_path / "net.onnx", [{"x": x}], quirks_off=off) for off in ((), ["resize_modes"])
    )
    said = [line for line in export_qdq(proto, followed.tpu).differences if "resize_modes" in line]
    assert len(said) == 1 and said[0].endswith(": y_Resize")
    of_module = export_qdq(followed.top, followed.tpu)
    assert not any("resize_modes" in line for line in of_module.differences)
    (y,), (wanted,) = computed(of_module.model, {"x": x}).values(), followed.flat({"x": x}).values()
    np.testing.assert_allclose(y, wanted, atol=np.abs(wanted).max() / 30)  # a few steps of a byte
    assert not any("resize_modes" in line for line in export_qdq(proto, plain.tpu).differences)


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, int], results: dict[str, int]) -> onnx.ModelProto:
    """A model of the nodes with a filter w (4, 3, 1, 1); inputs (1, 3, 4, 4) and results (1, 4, 4, 4) by type."""
    f16 = onnx.TensorProto.FLOAT16 in inputs.values()
    w = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float16 if f16 else np.float32)
    stored = [numpy_helper.from_array(a, n) for n, a in (("w", w), ("k", np.array(0.5, np.float32)))]
    given, made = (
        [helper.make_tensor_value_info(n, t, (1, c, 4, 4)) for n, t in some.items()]
        for some, c in ((inputs, 3), (results, 4))
    )
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["c"]), *nodes], "g", given, made, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


GREATER, CAST = helper.make_node("Greater", ["c", "k"], ["g"]), helper.make_node("Cast", ["g"], ["y"], to=1)
OTHER_TYPES = {
    "bool": model_of([GREATER], {"x": 1}, {"g": onnx.TensorProto.BOOL}),
    "bool-inside": model_of([GREATER, helper.make_node("Where", ["g", "c", "k"], ["y"])], {"x": 1}, {"y": 1}),
    "bool-cast": model_of([GREATER, CAST], {"x": 1}, {"y": 1, "g": onnx.TensorProto.BOOL}),
    "int32": model_of([helper.make_node("Cast", ["c"], ["y"], to=6)], {"x": 1}, {"y": 6}),
    "f16": model_of([helper.make_node("Relu", ["c"], ["y"])], {"x": 10}, {"y": 10}),
    "f16-result": model_of([helper.make_node("Cast", ["c"], ["y"], to=10)], {"x": 1}, {"y": 10}),
}


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_only_f32_tensors_are_quantised(name: str) -> None:
    """QuantizeLinear takes no bools and no f16: of such tensors the QDQ model has none, and ONNX Runtime takes it."""
    proto, x = OTHER_TYPES[name], normal((1, 3, 4, 4))
    net = tpusim.compile(proto, [{"x": x}])
    wanted = computed(proto, {"x": x}).values()
    for source in (net.top, proto):
        if source is proto and name == "f16":
            with pytest.raises(UnsupportedError, match="stores no f32 tensor of the ONNX model"):
                export_qdq(source, net.tpu)
            continue
        written = export_qdq(source, net.tpu).model
        assert any(node.op_type == "QuantizeLinear" for node in written.graph.node)
        for got, y in zip(computed(written, {"x": x}).values(), wanted, strict=True):
            assert got.dtype == y.dtype
            if y.dtype.kind == "f" and name != "bool-cast":
                np.testing.assert_allclose(got, y, atol=np.abs(y).max() / 30)  # a few steps of a byte


def test_names_that_qdq_would_give_are_taken() -> None:
    """Tensors and constants that are called as the parts of a QuantizeLinear of another tensor."""
    names = ["x", "x_quantized", "x_dequantized", "x_quantized_scale", "x_dequantized_real"]
    kinds = ["Conv", "Relu", "Conv", "Relu"]
    filters = [["x_scale"], [], ["x_zero_point"], []]
    nodes = [
        helper.make_node(kind, [x, *constants], [y])
        for kind, x, y, constants in zip(kinds, names, names[1:], filters, strict=False)
    ]
    constants = {"x_scale": normal((4, 3, 1, 1)), "x_zero_point": normal((4, 4, 1, 1))}
    x, *results = (helper.make_tensor_value_info(n, 1, (1, 3 if n == "x" else 4, 4, 4)) for n in ("x", *names[2::2]))
    stored = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], results, stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": normal((1, 3, 4, 4))}
    net = tpusim.compile(proto, [feeds])
    for source in (net.top, proto):
        written = export_qdq(source, net.tpu).model
        onnx.checker.check_model(written, full_check=True)
        for got, y in zip(computed(written, feeds).values(), computed(proto, feeds).values(), strict=True):
            np.testing.assert_allclose(got, y, atol=np.abs(y).max() / 20)  # a few steps of a byte


def normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_the_command_writes_any_float_stage(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (name, test) = digits_run(tmp_path_factory, "bm1684x", "int8"), images("test")
    feeds = {name: test[:1]}
    wanted = computed(onnx.load(DIGITS / "digits.onnx"), feeds)
    for stage in ("1_top", "2_canonical", "3_calibrated"):
        path = tmp_path / f"{stage}.onnx"
        assert main(["export", str(folder / f"{stage}.mlir"), "--to", "onnx", "--out", str(path)]) == 0
        assert "nodes: " in capsys.readouterr().out
        require_equal(computed(onnx.load(path), feeds), wanted)
    assert main(["export", str(folder / "4_tpu.mlir"), "--to", "onnx", "--out", str(tmp_path / "no.onnx")]) == 1
    assert "TOP_F32" in capsys.readouterr().err and not (tmp_path / "no.onnx").exists()


def test_the_command_writes_qdq_without_the_model(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a calibrated module, which is lowered; a lowered module alone has no float network."""
    folder = digits_run(tmp_path_factory, "bm1684x", "int8")
    path = tmp_path / "q.onnx"
    assert main(["export", str(folder / "3_calibrated.mlir"), "--out", str(path)]) == 0
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load(path).graph.node)
    capsys.readouterr()
    assert main(["export", str(folder / "4_tpu.mlir"), "--out", str(tmp_path / "no.onnx")]) == 1
    assert "give the ONNX" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.INT64])
def test_an_input_that_is_a_result_keeps_its_name(kind: int) -> None:
    """Once by its name, and by those of two nodes that change nothing."""
    nodes = [helper.make_node("Identity", ["x"], [y]) for y in "bc"]
    nodes += [helper.make_node("Cast", ["x"], ["f"], to=1), helper.make_node("Relu", ["f"], ["a"])]
    x, b, c = (helper.make_tensor_value_info(n, kind, (1, 4)) for n in "xbc")
    a = helper.make_tensor_value_info("a", 1, (1, 4))
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [b, x, a, c]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    feeds = {"x": np.array([[1, -2, 3, 0]])}
    require_equal(computed(export_onnx(import_onnx(proto)).proto, feeds), computed(proto, feeds))


def test_an_op_without_a_node_is_named() -> None:
    model = canonical("cumsum").clone()
    op = next(op for op in model.ops if op.name == "top.CumSum")
    op.attributes["tpusim.mode"] = StringAttr("prod")
    with pytest.raises(UnsupportedError, match="running product, which no ONNX node computes"):
        export_onnx(model)


def test_a_lowered_module_is_no_float_module() -> None:
    with pytest.raises(ImportModelError, match="TOP_F32"):
        export_onnx(lowered("conv-relu", "bm1684x", "int8")[0])


def test_a_package_writes_its_op() -> None:
    def form(op: Any, nodes: Any) -> Any:
        return nodes.add("Neg", [nodes.tensor(op.input)])

    ONNX_FORMS.add("top.Sigmoid", form)
    try:
        written = export_onnx(canonical("sigmoid")).proto
    finally:
        ONNX_FORMS.remove("top.Sigmoid")
    assert [node.op_type for node in written.graph.node] == ["Neg"]
