"""What calibration says of samples that give no table of use, and that it says nothing of healthy networks."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from compiling import to_calibrated, to_canonical
from onnx import TensorProto, helper, numpy_helper

from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable, Entry, read_table, write_table
from tpusim.cli import main
from tpusim.errors import TableWarning
from tpusim.frontend import import_onnx
from tpusim.images import Preprocess, with_preprocess
from tpusim.ir.module import Model

IMAGE = (1, 3, 4, 4)
CONFIG = CalibrationConfig(method="max")
Samples = list[dict[str, np.ndarray]]


def network(*nodes: tuple[str, str, str], inputs: str = "x", kinds: str = "f", **constants: Any) -> onnx.ModelProto:
    """Nodes (type, operands, result) over inputs of one shape; the last result is the network's."""
    types = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL}
    made = [helper.make_node(kind, operands.split(), [result], name=result) for kind, operands, result in nodes]
    pairs = zip(inputs.split(), kinds, strict=True)
    given = [helper.make_tensor_value_info(name, types[kind], IMAGE) for name, kind in pairs]
    result = helper.make_tensor_value_info(nodes[-1][2], TensorProto.FLOAT, IMAGE)
    weights = [numpy_helper.from_array(np.array(array, np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(made, "net", given, [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def canonical(model: onnx.ModelProto) -> Model:
    return to_canonical(import_onnx(model, name="net"))


def drawn(count: int, seed: int = 0, low: float = -1, high: float = 1, name: str = "x") -> Samples:
    rng = np.random.default_rng(seed)
    return [{name: rng.uniform(low, high, IMAGE).astype(np.float32)} for _ in range(count)]


def filled(value: float, name: str = "x") -> dict[str, np.ndarray]:
    return {name: np.full(IMAGE, value, np.float32)}


def notes(model: Model, samples: Samples) -> tuple[str, ...]:
    return calibrate(model, samples, CONFIG)[0].notes


SIMPLE = network(("Abs", "x", "y"))
ADDED = network(("Add", "x z", "y"), inputs="x z", kinds="ff")
EQUAL, STUCK = "all {} samples are equal", "value of an input is the same in all samples: "
DEAD = network(("Mul", "x w", "m"), ("Relu", "m", "r"), ("Mul", "r v", "y"), w=1.0, v=0.0)
TINY = network(("Mul", "x w", "m"), ("Add", "m x", "y"), w=1e-7)
DOUBTFUL: list[tuple[str, onnx.ModelProto, Samples, list[str]]] = [
    ("zeros", SIMPLE, [filled(0)] * 3, [EQUAL.format(3), f"{STUCK}x (0)", "results are 0 in all samples: y"]),
    ("one of zeros", SIMPLE, [filled(0)], [f"{STUCK}x (0)", "results are 0"]),
    ("constant", SIMPLE, [filled(2.5)] * 2, [EQUAL.format(2), f"{STUCK}x (2.5)"]),
    ("negative constant", SIMPLE, [filled(-1)], [f"{STUCK}x (-1); give real samples"]),
    ("equal", SIMPLE, drawn(1) * 4, [f"{EQUAL.format(4)}, so the table is that of one"]),
    ("both constant", ADDED, [{**filled(1), **filled(0, "z")}], ["x (1), z (0)"]),
    ("one stuck at 7", ADDED, [{**d, **filled(7, "z")} for d in drawn(2)], ["samples: z (7)"]),
    ("tiny", TINY, drawn(2), ["no value exceeds 1e-05, the least threshold: m_Mul;"]),
    ("tiny input", SIMPLE, drawn(2, high=1e-6, low=-1e-6), ["least threshold: x, y_Abs"]),
    ("dead result", DEAD, drawn(2), ["results are 0"]),
]  # fmt: skip


@pytest.mark.every
@pytest.mark.parametrize(("model", "samples", "words"), [d[1:] for d in DOUBTFUL], ids=[d[0] for d in DOUBTFUL])
def test_doubtful_samples(model: onnx.ModelProto, samples: Samples, words: list[str]) -> None:
    """One line for each kind, said when the table is applied."""
    top = canonical(model)
    table = calibrate(top, samples, CONFIG)[0]
    assert len(table.notes) == len(words), table.notes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        to_calibrated(top, table)
    assert all(issubclass(one.category, TableWarning) for one in caught)
    told = [str(one.message) for one in caught]
    assert len(told) == len(words) and all(text in line for text, line in zip(words, told, strict=True))


MASKED = network(("Mul", "x z", "y"), inputs="x z", kinds="ff")
HEALTHY: list[tuple[str, onnx.ModelProto, Samples]] = [
    ("different", SIMPLE, drawn(3)),
    ("one on purpose", SIMPLE, drawn(1)),
    ("dead relu inside", network(("Sub", "x w", "s"), ("Relu", "s", "r"), ("Add", "r x", "y"), w=9.0), drawn(3)),
    ("mask of ones", MASKED, [{**d, **filled(1, "z")} for d in drawn(2)]),
    ("mask of zeros", ADDED, [{**d, **filled(0, "z")} for d in drawn(2)]),
    ("positions", network(("Cast", "z", "c"), ("Add", "x c", "y"), inputs="x z", kinds="fi"),
     [{**d, "z": np.full(IMAGE, 5, np.int64)} for d in drawn(2)]),
    ("positive", SIMPLE, drawn(3, low=0, high=255)),
    ("a relu of everything negative in one sample", network(("Relu", "x", "y")), [*drawn(1), filled(-1)]),
]  # fmt: skip


@pytest.mark.every
@pytest.mark.parametrize(("model", "samples"), [h[1:] for h in HEALTHY], ids=[h[0] for h in HEALTHY])
def test_healthy_samples(model: onnx.ModelProto, samples: Samples) -> None:
    for node in model.graph.node:
        if node.op_type == "Cast":
            node.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    assert notes(canonical(model), samples) == ()


TO_ONE = Preprocess(scale=(1 / 255,) * 3)
IMAGENET = Preprocess(mean=(123.7, 116.3, 103.5), scale=(0.0171, 0.0175, 0.0174))


@pytest.mark.every
@pytest.mark.parametrize(
    ("preprocess", "high", "told"),
    [
        (TO_ONE, 255, True), (TO_ONE, 1, False), (TO_ONE, 0.2, False), (TO_ONE, 1 / 255, True), (IMAGENET, 255, True),
        (IMAGENET, 2.6, False), (IMAGENET, 1, False), (Preprocess(), 255, False), (Preprocess(), 1, True),
        (Preprocess(), 65025, True), (Preprocess(scale=(255.0,) * 3), 65025, False),
    ],
)  # fmt: skip
def test_ranges_and_preprocessing(preprocess: Preprocess, high: float, told: bool) -> None:
    """(x - mean) * scale of 0 to 255 is what images give; a factor of 255 is noticed, a dark image is not."""
    model = with_preprocess(canonical(SIMPLE), preprocess)
    found = notes(model, drawn(2, low=0, high=high))
    assert len(found) == told and all("other values than its preprocessing gives: x has " in note for note in found)


def test_many_names_are_elided() -> None:
    sums = [("Add", f"{before} m", f"s{i}") for i, before in enumerate(("m", "s0", "s1", "s2", "s3", "s4"))]
    model = network(("Mul", "x w", "m"), *sums, w=1e-7)
    (note,) = notes(canonical(model), drawn(2))
    assert ": m_Mul, s0_Add, s1_Add, s2_Add and 3 more; their integers are 0" in note


def test_notes_stay_with_a_table(tmp_path: Path) -> None:
    """In the file too, but for texts that a reader takes for the marker of a block."""
    told = ("all 2 samples are equal", "results are 0: #int4_th", "line\nbreak")
    table = CalibrationTable({"x": Entry(1.0, -1.0, 1.0)}, notes=told)
    write_table(tmp_path / "t", table, method="max", samples=2, bins=2048, tune=0)
    again = read_table(tmp_path / "t")
    assert again.entries == table.entries and again.notes == told[:1]


def test_a_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each kind on the terminal, the same in report.json, again from --resume."""
    onnx.save(SIMPLE, tmp_path / "m.onnx")
    (tmp_path / "data").mkdir()
    for number in range(2):
        np.savez(tmp_path / "data" / f"{number}.npz", x=filled(0)["x"])
    words = ["run", str(tmp_path / "m.onnx"), "--chip", "bm1684x", "--mode", "int8", "--data", str(tmp_path / "data")]
    for more in ([], ["--resume"]):
        with warnings.catch_warnings():
            warnings.simplefilter("always", TableWarning)
            main([*words, "--out", str(tmp_path / "out"), *more])
        told = [line for line in capsys.readouterr().err.splitlines() if "warning: calibration table: " in line]
        report = json.loads((tmp_path / "out" / "report.json").read_text())
        assert len(report["warnings"]) == 3 and report["warnings"][0].startswith("all 2 samples are equal")
        assert more or len(told) == 3
