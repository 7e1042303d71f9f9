"""Tables and npz files of the real TPU-MLIR 1.30.2 on our modules of the same ONNX file, unedited.

tests/upstream/names was recorded by, for digits with its 200 calibration samples as `data/000.npz` ... and for
squeezenet (`tpusim zoo squeezenet`) with three images of seed 7:

    model_transform.py --model_name m --model_def m.onnx --mlir m.mlir               -> networks.json (its tensor names)
    run_calibration.py m.mlir --dataset data -o m_cali_table                         -> digits_, squeezenet_cali_table
    run_calibration.py m.mlir --dataset data --cali_method mse -o m_mse_table         -> digits_, squeezenet_mse_table
    model_deploy.py --mlir m.mlir --quantize INT8 --calibration_table m_cali_table --processor bm1684x --debug ...
    model_runner.py --input data/000.npz --model m.mlir (m_bm1684x_int8_sym_tpu.mlir) --dump_all_tensors
                                                                     -> digits_top.npz (digits_bm1684x_int8.npz)

digits_qtable is in its format; `model_deploy.py` took it, and our table of digits, and ran the listed ops in float.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from end_to_end import DIGITS, tensors
from named_networks import IMAGE, NETWORKS, network
from upstream.networks import Builder

from tpusim import zoo
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig, calibrate, save_table
from tpusim.calibration.table import CalibrationTable, Entry, read_table
from tpusim.errors import CalibrationError
from tpusim.frontend import OnnxReference, as_called, import_onnx
from tpusim.inference import dequantised, input_specs, run
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.ir.types import calibrated_range, element_of, uniform_of
from tpusim.ops import context
from tpusim.ops.framework.base import TopOp, TpuOp
from tpusim.ops.structure import TopInput
from tpusim.verify.compare import Tolerance, compare

RECORDED = Path(__file__).resolve().parent / "upstream" / "names"
NAMES: dict[str, list[str]] = json.loads((RECORDED / "networks.json").read_text())
EVERY = Tolerance.parse("0.99,0.99")


def tops(model: Model) -> list[TopOp]:
    return [op for op in model.ops if isinstance(op, TopOp)]


@cache
def digits() -> Model:
    return to_canonical(import_onnx(DIGITS / "digits.onnx"))


@cache
def theirs() -> CalibrationTable:
    return read_table(RECORDED / "digits_cali_table")


def image() -> dict[str, np.ndarray]:
    """The sample of the recorded tensors."""
    return {"image": np.load(DIGITS / "calibration.npz")["image"][:1]}


# --- names


def test_every_network_is_recorded():
    assert set(NAMES) == set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_names_are_upstreams(name: str):
    """The tensors of the canonical module, in order."""
    model = to_canonical(import_onnx(network(name)))
    assert [op_name(op) for op in tops(model) if not isinstance(op, TopInput)] == NAMES[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_is_paired_with_onnx_runtime(name: str, tmp_path: Path):
    """The ONNX name goes with the op through fusions and text; a Conv that took in a batch norm equals the norm."""
    x = {"x": np.random.default_rng(1).uniform(-2, 2, IMAGE).astype(np.float32)}
    proto = network(name)
    save_model(to_canonical(import_onnx(proto)), tmp_path / "m.mlir")
    model = load_model(tmp_path / "m.mlir", context())
    reference = as_called(model, OnnxReference(proto, threads=1).run(x))
    found = run(model, x)
    paired = [n for n in found if n in reference]
    moved = [n for n in found if n.endswith("move_ahead_relu") or n == "a_Gather_slice"]
    assert set(paired) | set(moved) | {"x"} == set(found)
    for key in paired:
        np.testing.assert_allclose(found[key], reference[key], rtol=1e-5, atol=1e-5, err_msg=key)


def test_names_of_the_tpu_module():
    """Casts and requants are called as upstream calls them."""
    tpu = to_tpu(digits(), "bm1684x", ranges=theirs())
    made = {op_name(op) for op in tpu.ops if isinstance(op, TpuOp | TopInput)}
    assert made == set(np.load(RECORDED / "digits_bm1684x_int8.npz").files)


# --- their files on our module


def test_their_tensors_equal_ours():
    """The float interpreter's values, none off by a bit, and the integers that the tpu module's tensors stand for."""
    ours, its = run(digits(), image()), tensors(RECORDED / "digits_top.npz")
    top = compare(ours, its, EVERY, label="top")
    assert top.passed and not top.missing and len(top.tensors) == 14
    assert [name for name in its if not np.array_equal(ours[name], its[name])] == []
    tpu = to_tpu(digits(), "bm1684x", ranges=theirs())
    real = dequantised(tpu, run(tpu, image()))
    found = compare(real, tensors(RECORDED / "digits_bm1684x_int8.npz"), EVERY, label="tpu")
    assert found.passed and not found.missing and len(found.tensors) == 17
    steps = {op_name(op): u.scale.data for op in tpu.ops if op.results and (u := uniform_of(op.results[0]))}
    for name, wanted in tensors(RECORDED / "digits_bm1684x_int8.npz").items():
        if name in steps:
            assert np.array_equal(np.rint(real[name] / steps[name]), np.rint(wanted / steps[name])), name


def test_their_qtable_names_our_ops():
    calibrated = to_calibrated(digits(), theirs())
    tpu = to_tpu(calibrated, "bm1684x", "int8", qtable=str(RECORDED / "digits_qtable"))
    kinds = {op_name(op): str(element_of(op.results[0])) for op in tpu.ops if isinstance(op, TpuOp)}
    assert (kinds["mix_Relu"], kinds["logits_Gemm"]) == ("f16", "f32")
    assert {"both_Concatmix_Relu_f16", "mix_Reluquarter_AveragePool_ui8", "flat_Flattenlogits_Gemm_f32"} <= set(kinds)


# --- our tables


def lines(path: Path) -> list[str]:
    """A table from its sample number on; the sign of a zero, which no reader sees, is left out."""
    found = path.read_text().splitlines()
    return [s.replace("-0.0000000", "0.0000000") for s in found if "mlir" not in s and "time" not in s]


def calibrated_as_upstream(model: Model, data: Path, out: Path, method: str = "kl") -> list[str]:
    samples = load_samples(data, input_specs(model), shuffled=True)
    table, count = calibrate(model, samples, CalibrationConfig(method))
    save_table(out, table, CalibrationConfig(method), count, module="m.mlir")
    return lines(out)


@pytest.fixture(scope="module")
def digits_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    for number, sample in enumerate(np.load(DIGITS / "calibration.npz")["image"]):
        np.savez(data / f"{number:03}.npz", image=sample[None])
    return data


@pytest.mark.every(2)
@pytest.mark.parametrize("method", ["kl", "max", "percentile9999", "mse", "aciq_gauss", "aciq_laplace"])
def test_digits_are_calibrated_to_the_printed_digit(method: str, digits_data: Path, tmp_path: Path):
    """200 files in upstream's order, five of them for tuning; of KL's thresholds that moves one (3.3415196 untuned)."""
    found = calibrated_as_upstream(digits(), digits_data, tmp_path / "cali_table", method)
    assert found == lines(RECORDED / ("digits_cali_table" if method == "kl" else f"digits_{method}_table"))
    assert method != "kl" or "stem_Relu 3.4257102 0.0000000 4.2255211" in found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kl", "max", "percentile9999", "mse", "aciq_gauss", "aciq_laplace"])
def test_squeezenet_is_calibrated_to_the_printed_digit(method: str, tmp_path: Path):
    """All but the maximum of the Softmax, whose exponential is oneDNN's approximation; its range is (0, 1) anyway.

    Mean deviations (aciq_laplace) are sums over all values, which differ in the last bit: half a unit of f32.
    """
    model = to_canonical(import_onnx(zoo.build("squeezenet")))
    data = tmp_path / "data"
    data.mkdir()
    for number, sample in enumerate(zoo.images(3, seed=7)):
        np.savez(data / f"{number}.npz", data_0=sample[None])
    found = calibrated_as_upstream(model, data, tmp_path / "cali_table", method)
    wanted = lines(RECORDED / ("squeezenet_cali_table" if method == "kl" else f"squeezenet_{method}_table"))
    assert len(found) == len(wanted)
    for ours, its in zip(found, wanted, strict=True):
        if ours != its:
            assert method == "aciq_laplace" or "Softmax" in its
            assert [float(x) for x in ours.split()[1:]] == pytest.approx(
                [float(x) for x in its.split()[1:]], rel=1.2e-7
            )


def test_samples_of_a_folder_come_in_upstreams_order(tmp_path: Path):
    for number in range(9):
        np.savez(tmp_path / f"{number}.npz", x=np.full((1, 2), number, np.float32))
    spec = {"x": ((1, 2), np.dtype(np.float32))}
    wanted = list(range(9))
    random.Random(1684).shuffle(wanted)
    assert [int(s["x"][0, 0]) for s in load_samples(tmp_path, spec, shuffled=True)] == wanted
    assert [int(s["x"][0, 0]) for s in load_samples(tmp_path, spec)] == list(range(9))


# --- tables with other names


def renamed(name: Callable[[TopOp], str]) -> CalibrationTable:
    """Their table of digits under other names."""
    return CalibrationTable({name(op): theirs().entries[op_name(op)] for op in tops(digits())})


def ranges(model: Model) -> list[tuple[float, float] | None]:
    return [calibrated_range(op.results[0]) for op in tops(model)]


def test_a_table_of_onnx_names_is_understood():
    """As tpusim wrote them once; and where only the op type differs."""
    known = ranges(to_calibrated(digits(), theirs()))
    assert ranges(to_calibrated(digits(), renamed(framework_name))) == known
    typed = renamed(lambda op: op_name(op) if op_name(op) == "image" else f"{framework_name(op)}_Clip")
    assert ranges(to_calibrated(digits(), typed)) == known


def test_a_name_that_could_mean_two_types_means_none():
    entries = {**theirs().entries, "logits_Clip": Entry(1, -1, 1), "logits_Cast": Entry(1, -1, 1)}
    del entries["logits_Gemm"]
    with pytest.raises(CalibrationError, match="logits_Gemm"):
        to_calibrated(digits(), CalibrationTable(entries))


def test_an_op_that_only_moves_values_needs_no_entry():
    """Upstream's module may lack it: it has the range of what it moves, and a moved result stands for its source."""
    for gone in ("flat_Flatten", "global_GlobalAveragePool"):
        entries = {k: v for k, v in theirs().entries.items() if k != gone}
        assert ranges(to_calibrated(digits(), CalibrationTable(entries))) == ranges(to_calibrated(digits(), theirs()))


def test_a_table_need_not_list_the_places_of_a_topk():
    """Upstream's TopK has no line for its second result; a table without the first is refused as before."""
    b = Builder("top")
    b.output(b.nodes("TopK", b.input("x", 1, 8), b.constant(np.array([3])), outs=["values", "places"])[0])
    model = to_canonical(import_onnx(b.model()))
    entry = Entry(1.0, -1.0, 1.0)
    assert to_calibrated(model, CalibrationTable({"x": entry, "values_TopK": entry})).ops
    with pytest.raises(CalibrationError, match="1 are missing: values_TopK"):
        to_calibrated(model, CalibrationTable({"x": entry}))


@pytest.mark.parametrize(
    "equation, shapes, names",
    [
        ("btd,dhk->bthk", [(1, 5, 8), (8, 2, 4)], ["y_Einsum_r_matmul"]),
        ("bthd,bshd->bhts", [(1, 5, 2, 4), (1, 6, 2, 4)], ["y_Einsum_matmul"]),
        ("bhts,bshd->bthd", [(1, 2, 5, 6), (1, 6, 2, 4)], ["y_Einsum_matmul", "y_Einsum"]),
        ("abc,adc->abd", [(1, 5, 4), (1, 6, 4)], ["y_Einsum"]),
        ("abc,abc->ab", [(1, 5, 4), (1, 5, 4)], ["y_Einsum_r_Mul"]),
    ],
)
def test_the_product_of_an_einsum_is_called_as_there(
    equation: str, shapes: list[tuple[int, ...]], names: list[str]
) -> None:
    b = Builder("net")
    x, other = b.input("x", *shapes[0]), b.constant(np.ones(shapes[1], np.float32))
    other = other if equation.startswith("btd") else b.node("Relu", b.input("z", *shapes[1]))
    b.output(b.node("Sin", b.node("Einsum", x, other, out="y", equation=equation)))
    found = [op_name(op) for op in to_canonical(import_onnx(b.model())).ops]
    assert [name for name in found if name.startswith("y_Einsum")] == names
