"""examples/plugin: its wheel, installed next to tpusim, used in a new process; and what is said without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tpusim.cli import main

pytestmark = pytest.mark.every
ROOT = Path(__file__).resolve().parent.parent
LAYERS = "x = input 1x4x8x8\na = relu x\ny = squared_relu a\n"
CHECKS = """
import contextlib, io, json, sys
from pathlib import Path
import numpy as np
from tpusim.cli import main
from tpusim.verify.npz import load_tensors

found = {}

def said(*words):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        assert main(list(words)) == 0, words
    return out.getvalue()

def relation(folder):
    x, y = load_tensors(f"{folder}/inputs.npz")["x"], load_tensors(f"{folder}/local_outputs.npz")["y"]
    return bool(np.array_equal(np.asarray(y), np.square(np.maximum(x, np.float32(0)))) and y.size == 256)

def loaded():
    return sorted(name for name in sys.modules if name.startswith("tpusim_demo."))

found["help"] = said("--help")
said("canonicalize", "plain.onnx", "--out", "plain.mlir")
found["after ops of top alone"] = loaded()
said("run", "net.layers", "--chip", "bm1688", "--mode", "f32", "--out", "reference", "--quiet")
found["machine is NumPy"] = relation("reference")
found["lowered"] = Path("reference/4_tpu.mlir").read_text()
found["without target and pattern"] = loaded()
said("run", "net.layers", "--chip", "demo1688", "--mode", "f32", "--layer-group", "halves", "--out", "demo", "--quiet")
found["machine of the target is NumPy"] = relation("demo")
found["lowered for the target"] = Path("demo/4_tpu.mlir").read_text()
said("run", "net.layers", "--chip", "bm1688", "--mode", "int8", "--data", "random:2", "--out", "integers", "--quiet")
found["compared"] = json.loads(Path("integers/report.json").read_text())["compare"]
found["counted"] = json.loads(said("count-ops", "reference/1_top.mlir", "--json"))["ops"]
said("canonicalize", "squares.onnx", "--also", "squared_relu", "--out", "squares.mlir")
found["fused"] = Path("squares.mlir").read_text()
found["split"] = said("opt", "squares.mlir", "-p", "split-squared-relu")
found["kept"] = said("opt", "squares.mlir", "-p", "split-squared-relu{keep=y_Mul}")
print(json.dumps(found))
"""


def square(path: Path, nodes: list[tuple[str, str, str]]) -> None:
    import onnx
    from onnx import TensorProto, helper

    made = [helper.make_node(kind, operands.split(), [name]) for kind, operands, name in nodes]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 4, 8, 8)) for name in ("x", "y"))
    graph = helper.make_graph(made, "squares", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `site`, into which the wheel is installed, and networks."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "plugin", folder / "source")
    python = [sys.executable, "-m"]
    for words in (
        [*python, "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        [*python, "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check",
         "--target", str(folder / "site"), str(folder / "tpusim_demo-0.1.0-py2.py3-none-any.whl")],
    ):  # fmt: skip
        done = subprocess.run(words, cwd=folder / "source", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    (folder / "net.layers").write_text(LAYERS)
    square(folder / "squares.onnx", [("Sigmoid", "x", "s"), ("Relu", "s", "r"), ("Mul", "r r", "y")])
    square(folder / "plain.onnx", [("Sigmoid", "x", "y")])
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, object]:
    """What a process says that has the package on its path."""
    path = os.pathsep.join([str(folder / "site"), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHECKS], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_imported_when_it_is_used(found: dict[str, object]) -> None:
    assert "count-ops" in str(found["help"]) and "of the package tpusim-demo 0.1.0" in str(found["help"])
    assert found["after ops of top alone"] == []
    assert found["without target and pattern"] == ["tpusim_demo.front_end", "tpusim_demo.top", "tpusim_demo.tpu"]


def test_its_op_goes_through_all_stages_to_the_machine(found: dict[str, object]) -> None:
    """Through the front end of the package; exact in f32, and with a cast on either side in INT8."""
    assert '"demo_tpu.SquaredRelu"' in str(found["lowered"]) and found["machine is NumPy"] is True
    compared = found["compared"]
    assert isinstance(compared, dict) and all(one["passed"] for one in compared.values())
    assert {"tpu_vs_top", "local_vs_tpu"} <= set(compared)
    assert found["counted"] == {"top.Input": 1, "top.Relu": 1, "demo.SquaredRelu": 1, "func.return": 1}


def test_its_target_answers_for_the_op_on_its_chip(found: dict[str, object]) -> None:
    """The model is attached by the op's name, before its dialect is loaded; the strategy divides the rest."""
    lowered = str(found["lowered for the target"])
    assert "demo_tpu" not in lowered and '"tpu.Mul"' in lowered and 'module.chip = "demo1688"' in lowered
    assert found["machine of the target is NumPy"] is True


def test_its_pattern_and_its_pass_undo_each_other(found: dict[str, object]) -> None:
    assert '"demo.SquaredRelu"' in str(found["fused"]) and '"top.Mul"' not in str(found["fused"])
    assert '"top.Mul"' in str(found["split"]) and "demo." not in str(found["split"])
    assert '"demo.SquaredRelu"' in str(found["kept"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "reference/1_top.mlir"], "the dialect 'demo' is required, the registered ones are builtin, func"),
        (["group", "reference/4_tpu.mlir"], "the dialect 'demo_tpu' is required"),
        (["run", "plain.onnx", "--chip", "demo1688"], "unknown chip 'demo1688'"),
        (["group", "demo/4_tpu.mlir"], "one of bm1684x, bm1690, bm1684, cv18xx is required, got 'demo'; install"),
        (["canonicalize", "squares.onnx", "--also", "squared_relu"], "no optional pattern is called 'squared_relu'"),
        (["opt", "squares.mlir", "-p", "split-squared-relu"], "no pass is called 'split-squared-relu'"),
        (["count-ops", "reference/1_top.mlir"], "no command 'count-ops'"),
    ],
)  # fmt: skip
def test_without_it_the_missing_thing_is_named(
    found: dict[str, object], folder: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert found
    monkeypatch.chdir(folder)
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr().err
    assert status in (1, 2) and says in said and "Traceback" not in said, said


def test_the_page_names_every_file_and_entry() -> None:
    text = (ROOT / "examples" / "plugin" / "README.md").read_text()
    names = {path.name for path in (ROOT / "examples" / "plugin" / "tpusim_demo").iterdir() if path.is_file()}
    assert all(f"`{name}`" in text for name in names - {"__init__.py"})
