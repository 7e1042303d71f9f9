"""Networks that are quantised already keep their scales: QDQ of ONNX Runtime's quantizer, and by hand."""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import tpusim
from tpusim.calibration.table import read_table
from tpusim.cli import main
from tpusim.compiled import Compiled
from tpusim.errors import CalibrationError, ModeWarning, TableWarning
from tpusim.frontend import OnnxReference, import_onnx, inspect_onnx
from tpusim.ir.imported_scales import ImportedRange, imported_ranges, not_kept
from tpusim.ir.module import Model, save_model
from tpusim.ir.types import uniform_of
from tpusim.lowering import LoweringConfig
from tpusim.running.pipeline import RunConfig
from tpusim.studies.export import export_qdq
from tpusim.studies.prospect import prospect

SHAPE = (1, 3, 8, 8)
CONSTANTS = {
    "w": (np.random.default_rng(0).normal(size=(8, 3, 3, 3)) * 0.3).astype(np.float32),
    "b": np.random.default_rng(1).normal(size=8).astype(np.float32),
    "m": (np.random.default_rng(2).normal(size=(5, 128)) * 0.1).astype(np.float32),
    "c": np.random.default_rng(3).normal(size=5).astype(np.float32),
}


def model_of(nodes: Sequence[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def float_model() -> onnx.ModelProto:
    return model_of(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["conv"], ["relu"]),
            helper.make_node("MaxPool", ["relu"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Flatten", ["pool"], ["flat"]),
            helper.make_node("Gemm", ["flat", "m", "c"], ["y"], transB=1),
        ],
        **CONSTANTS,
    )


class Samples(quantization.CalibrationDataReader):
    """Eight images."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        self._left: Iterator[np.ndarray] = iter(rng.normal(size=(8, *SHAPE)).astype(np.float32))

    def get_next(self) -> dict[str, np.ndarray] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        x = next(self._left, None)
        return None if x is None else {"x": x}


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Symmetric by channel, symmetric by tensor, and with zero points, as `quantize_static` writes them."""
    folder = tmp_path_factory.mktemp("qdq")
    onnx.save(float_model(), folder / "float.onnx")
    found: dict[str, Path] = {}
    logging.disable(logging.WARNING)  # it recommends preparing the model first
    for name, channels, symmetric in (("channels", True, True), ("tensor", False, True), ("zeros", True, False)):
        found[name] = folder / f"{name}.onnx"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantization.quantize_static(
                folder / "float.onnx", found[name], Samples(), quant_format=quantization.QuantFormat.QDQ,
                per_channel=channels, activation_type=quantization.QuantType.QInt8,
                weight_type=quantization.QuantType.QInt8,
                extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
            )  # fmt: skip
    logging.disable(logging.NOTSET)
    return found


def images(count: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, *SHAPE)).astype(np.float32)


def integers(network: Compiled, path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of what the chip multiplies by and what the file has."""
    tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    stored = [a for a in network.tpu.weights.values() if a.dtype == np.int8]
    assert [a.ndim for a in stored] == [4, 2]
    return [(stored[0], tensors["w_quantized"]), (stored[1], tensors["m_quantized"].T)]


@pytest.mark.every
@pytest.mark.parametrize("name", ["channels", "tensor", "zeros"])
def test_network_of_onnx_runtime_keeps_scales_and_integers(quantised: dict[str, Path], name: str) -> None:
    """No sample is needed; results are ONNX Runtime's but for one step where the two requants round apart."""
    network = tpusim.compile(quantised[name], asymmetric=name == "zeros")
    for ours, theirs in integers(network, quantised[name]):
        np.testing.assert_array_equal(ours, theirs)
    session = OnnxReference(quantised[name], ["y"])
    ranges, samples = imported_ranges(network.top), images(8)
    expected = np.concatenate([next(iter(session.run({"x": x}).values())) for x in samples])
    steps = (next(iter(network.flat(samples[:, 0]).values())) - expected) / ranges["y"].scale
    assert np.abs(steps).max() < 1.001
    assert np.mean(np.abs(steps) < 1e-3) > 0.8
    assert network.fidelity.count("decision") == len([o for o in network.fidelity.ops if o.decisions == ("DN-17",)])
    assert network.verify({"x": samples[0]}).passed


def test_run_writes_the_table_that_the_real_tool_takes(quantised: dict[str, Path], tmp_path: Path) -> None:
    """From the table alone the filters are the same; a tensor after a relu is unsigned, as its file format says."""
    made = tpusim.run(RunConfig(quantised["tensor"], out=tmp_path, to="lower"))
    assert made.measured == 0 and made.table is not None
    table = read_table(tmp_path / "cali_table")
    assert table.entries == made.table.entries  # no digit is lost
    assert set(table.weight_scales) == {"relu_Relu_weight", "y_Gemm_weight"}
    assert [len(s) for s in table.weight_scales.values()] == [8, 5]
    again = tpusim.compile(quantised["tensor"], table=table)
    for ours, theirs in integers(again, quantised["tensor"]):
        np.testing.assert_array_equal(ours, theirs)
    wide = table.weight_scales | {"y_Gemm_weight": (1.0, 1.0)}
    with pytest.raises(CalibrationError, match=r"'y_Gemm_weight': 1 or 5 scales are required, got 2"):
        tpusim.compile(quantised["tensor"], table=type(table)(table.entries, weight_scales=wide))


def test_what_a_chip_cannot_keep_is_named(quantised: dict[str, Path]) -> None:
    """Zero points without --asymmetric, weights where the requant decides their scale."""
    with pytest.warns(ModeWarning, match=r"2 scales .* 'x' has a zero point, which asymmetric=True keeps"):
        tpusim.compile(quantised["zeros"])
    with pytest.warns(ModeWarning, match=r"scales .* are not kept: weights of 'relu_Relu', weights of 'y_Gemm'"):
        network = tpusim.compile(quantised["channels"], chip="bm1684")
    assert network.fidelity.by_decision()["DN-32"] == ["relu_Relu", "y_Gemm"]
    with pytest.warns(ModeWarning, match="weights of 'y_Gemm'"):
        seen = prospect(quantised["channels"], LoweringConfig("bm1684", "int8"))
    assert [op.op for op in seen.ops if "DN-32" in op.decisions] == ["relu_Relu", "y_Gemm"]
    assert not seen.assumed


def pair(x: str, y: str, scale: str, zero: str, second: str = "") -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [x, scale, zero], [f"{y}_q"]),
        helper.make_node("DequantizeLinear", [f"{y}_q", second or scale, zero], [y]),
    ]


ZERO = {"s": np.float32(0.5), "t": np.float32(0.25), "i": np.int8(0), "u": np.uint8(0), "z": np.uint8(128)}


def test_pairs_by_hand() -> None:
    """A Relu that only the integers do, unsigned with a zero point, two scales, halves that differ, weights in QAT."""
    relu = import_onnx(
        model_of([helper.make_node("Sub", ["x", "w"], ["a"]), *pair("a", "y", "s", "u")], w=np.float32(1), **ZERO)
    )
    assert [op.name for op in relu.ops if op.name == "top.Relu"] == ["top.Relu"]
    assert imported_ranges(relu)["y"] == ImportedRange(0.5, 0, 255)
    assert "top.Relu" not in str(
        import_onnx(model_of([helper.make_node("Sigmoid", ["x"], ["a"]), *pair("a", "y", "s", "u")], **ZERO)).module
    )
    assert imported_ranges(
        import_onnx(model_of([helper.make_node("Abs", ["x"], ["a"]), *pair("a", "y", "s", "z")], **ZERO))
    )["y"].symmetric
    twice = import_onnx(
        model_of([helper.make_node("Abs", ["x"], ["a"]), *pair("a", "b", "s", "i"), *pair("b", "y", "t", "i")], **ZERO)
    )
    assert not_kept(twice) == ("'a' is quantised twice: its first scale 0.5 is kept",)
    apart = import_onnx(model_of([helper.make_node("Abs", ["x"], ["a"]), *pair("a", "y", "s", "i", "t")], **ZERO))
    assert not_kept(apart) == ("the Q and DQ of 'a' are computed as they are written: the two halves differ",)
    assert not imported_ranges(apart) and any(op.name == "top.Round" for op in apart.ops)


def product(**constants: np.ndarray) -> onnx.ModelProto:
    nodes = [*pair("x", "p", "s", "i"), *pair("w", "wq", "ws", "wz"), helper.make_node("Conv", ["p", "wq"], ["y"])]
    return model_of(nodes, s=np.float32(0.5), i=np.int8(0), **constants)


@pytest.mark.every
@pytest.mark.parametrize(
    ("zero", "note"),
    [
        (np.uint8(7), "the weight of 'y_Conv' has zero points, which no chip supports: it is quantised again"),
        (np.int8(0), ""),
    ],
)
def test_weights_of_quantisation_aware_training(tmp_path: Path, zero: np.ndarray, note: str) -> None:
    """Q and DQ of a float weight are folded, and its scale kept."""
    w = np.random.default_rng(6).normal(size=(4, 3, 1, 1)).astype(np.float32)
    seen = inspect_onnx(product(w=w, ws=np.float32(0.05), wz=zero))
    assert seen.model is not None
    assert not_kept(seen.model) == ((note,) if note else ())
    if not note:
        onnx.save(product(w=w, ws=np.float32(0.05), wz=zero), tmp_path / "qat.onnx")
        with pytest.warns(TableWarning, match=r"1 tensors have no Q and DQ, they were measured: y_Conv"):
            network = tpusim.compile(tmp_path / "qat.onnx", [{"x": images(1)[0]}])
        stored = network.tpu.weights["wq_int8"]
        np.testing.assert_array_equal(stored, np.clip(np.round(w / np.float32(0.05)), -128, 127))


def transformer_like() -> onnx.ModelProto:
    """Conv and batch norm, a residual sum, a product of three axes with its bias as an Add, a table."""
    rng = np.random.default_rng(7)
    scale = rng.uniform(0.5, 2, size=(4, 8)).astype(np.float32)
    return model_of(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", ["conv", "g0", "g1", "g2", "g3"], ["norm"]),
            helper.make_node("Relu", ["norm"], ["relu"]),
            helper.make_node("Reshape", ["relu", "shape"], ["rows"]),
            helper.make_node("MatMul", ["rows", "k"], ["product"]),
            helper.make_node("Add", ["product", "kb"], ["sum"]),
            helper.make_node("Add", ["sum", "rows"], ["both"]),
            helper.make_node("Sigmoid", ["both"], ["y"]),
        ],
        w=CONSTANTS["w"], b=CONSTANTS["b"], shape=np.array([1, 8, 64]), kb=rng.normal(size=64).astype(np.float32),
        k=(rng.normal(size=(64, 64)) * 0.1).astype(np.float32), **{f"g{i}": row for i, row in enumerate(scale)},
    )  # fmt: skip


def large(network: Model) -> list[np.ndarray]:
    """The filters and matrices."""
    return [a for a in network.weights.values() if a.dtype == np.int8 and a.size > 200]


@pytest.mark.every
@pytest.mark.parametrize("asymmetric", [False, True])
def test_export_and_import_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], asymmetric: bool) -> None:
    """ONNX Runtime gets what the chip gets but for steps that are listed; imported, it is the same network again."""
    samples, path = images(8), tmp_path / "net.onnx"
    onnx.save(transformer_like(), path)
    first = tpusim.compile(path, [{"x": x} for x in samples], asymmetric=asymmetric)
    found = export_qdq(path, first.tpu)
    told = {p.key: p.value for p in found.model.metadata_props}
    assert (told["tpusim.chip"], json.loads(told["tpusim.differences"])) == ("bm1684x", list(found.differences))
    assert any(told.startswith("Add: in float between DQ and Q") for told in found.differences)
    save_model(first.tpu, tmp_path / "4_tpu.mlir")
    assert main(["export", str(path), str(tmp_path / "4_tpu.mlir"), "--out", str(tmp_path / "q.onnx")]) == 0
    assert f"{len(found.differences)} differences to bm1684x" in capsys.readouterr().out
    assert (tmp_path / "q.onnx").read_bytes() == found.model.SerializeToString()
    session = OnnxReference(tmp_path / "q.onnx", [found.model.graph.output[0].name])
    expected = np.concatenate([next(iter(session.run({"x": x}).values())) for x in samples])
    ours = next(iter(first.flat(samples[:, 0]).values()))
    step = imported_ranges(import_onnx(tmp_path / "q.onnx"))["both"].scale
    assert np.abs(ours - expected).max() < step / 4 + 1.5 / 255  # one step of the sum, where Sigmoid is steepest
    assert np.mean(np.abs(ours - expected) < 1e-6) > 0.8
    again = tpusim.compile(tmp_path / "q.onnx", asymmetric=asymmetric)
    for one, other in zip(large(first.tpu), large(again.tpu), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(large(first.tpu)) == 2
    types = [[u.params for v in net.tpu.ops if v.results and (u := uniform_of(v.results[0]))] for net in (first, again)]
    for one, other in zip(*types, strict=True):
        assert (one.zero_point, one.signed) == (other.zero_point, other.signed)
        np.testing.assert_allclose(one.scale, other.scale, rtol=1e-7)
