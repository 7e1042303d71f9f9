"""Every command that takes a network takes every form: ONNX, TFLite, a module, a run's folder, with a free batch."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders.tflite_network import network as tflite_network
from end_to_end import conv_and_gemm, tensors

import tpusim
from tpusim.calibration.table import read_table
from tpusim.cli import main
from tpusim.inference import input_specs
from tpusim.ir.module import load_model
from tpusim.isa.stream import load
from tpusim.ops import context
from tpusim.registry import CLI
from tpusim.running.asked import run_config
from tpusim.running.network import open_network
from tpusim.verify.npz import save_tensors

NO_NETWORK = {"asm", "compare", "npz", "explore-diff", "zoo", "chips", "inspect", "plugins", "verify", "prove"}
"""Commands that take texts, tensors, reports, several networks or a folder of TPU-MLIR, or nothing."""
QUICK = ("--data", "random:2", "--tune-num", "0")
MEASURED = (*QUICK, "--method", "max")
STAGE = {
    "run": "2_canonical.mlir", "import": "1_top.mlir", "canonicalize": "1_top.mlir", "calibrate": "2_canonical.mlir",
    "search-threshold": "2_canonical.mlir", "correct-bias": "2_canonical.mlir", "group": "4_tpu.mlir",
    "assign": "5_grouped.mlir", "codegen": "6_final.mlir", "simulate": "6_final.mlir", "debug": "5_grouped.mlir",
    "dis": "6_final.mlir", "explore-group": "4_tpu.mlir", "explore-roofline": "4_tpu.mlir", "support": "4_tpu.mlir",
    "infer": "4_tpu.mlir", "fit": "5_grouped.mlir",
}  # fmt: skip
"""Which module a command is given; the others 3_calibrated.mlir."""
OPTIONS: dict[str, tuple[str, ...]] = {
    "run": MEASURED, "calibrate": MEASURED, "lower": MEASURED, "group": MEASURED, "assign": MEASURED,
    "codegen": MEASURED, "simulate": MEASURED, "debug": MEASURED, "dis": MEASURED, "export": MEASURED,
    "bench": MEASURED,
    "why": (*MEASURED, "--top", "1", "--cycles", "0", "--expected-cos", "0.5"), "bisect": MEASURED,
    "search-qtable": (*MEASURED, "--samples", "1", "--clocked", "1"), "search-threshold": QUICK,
    "correct-bias": MEASURED, "explore": MEASURED,
}  # fmt: skip
"""What keeps commands quick that calibrate; those that are given ranges are told nothing of it."""
OUT = {"check": None, "fit": None, "support": None, "why": None, "bench": None, "debug": None}
"""Commands without --out; the others write where the test looks."""


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of each form; `run` is the folder of a run on another chip than the usual one."""
    folder = tmp_path_factory.mktemp("forms")
    found = {
        "onnx": conv_and_gemm(folder / "net.onnx", 1),
        "free": conv_and_gemm(folder / "free.onnx", "N"),
        "tflite": folder / "lite.tflite",
        "run": folder / "run",
    }
    found["tflite"].write_bytes(tflite_network())
    words = ["run", str(found["onnx"]), *MEASURED, "--chip", "bm1688", "--out", str(found["run"])]
    assert main(words) == 0
    for name, model in (("net", "onnx"), ("lite", "tflite")):
        specs = input_specs(tpusim.load(found[model]))
        save_tensors(folder / f"{name}.npz", {n: np.ones(shape, dtype) for n, (shape, dtype) in specs.items()})
    return found


def words_of(command: str, form: str, forms: dict[str, Path], out: Path) -> list[str]:
    """The command line for a form."""
    path = forms["run"] / STAGE.get(command, "3_calibrated.mlir") if form == "stage" else forms[form]
    has_ranges = form in ("stage", "run") and command not in ("calibrate", "search-threshold", "correct-bias", "run")
    words = [command, *(["--module"] if command == "support" else []), str(path)]
    words += [] if has_ranges else OPTIONS.get(command, ())
    if has_ranges and command in ("why", "search-qtable"):
        words += [w for w in OPTIONS[command][len(MEASURED) :]]
    if command == "bench":
        words += ["--rounds", "1"]
    if command in ("infer", "simulate"):
        words += ["--input", str(forms["onnx"].with_name("lite.npz" if form == "tflite" else "net.npz"))]
    if form == "tflite" and command not in ("import", "canonicalize", "infer", "support"):
        words += ["--asymmetric"]  # its integers have zero points
    if form == "free":
        words += ["--input-shapes", "x=1x3x16x16"]
    if command in ("calibrate", "search-threshold", "correct-bias"):
        words += ["--out-table", str(out.with_name("table"))]
    return words if command in OUT else [*words, "--out", str(out)]


def cases() -> Iterator[Any]:
    """(command, form); every command takes one form, each form about one command in four; the others are slow.

    A free batch is one of ONNX too, so that the fixed one is slow.
    """
    for number, command in enumerate(command for command in CLI.shipped() if command not in NO_NETWORK):
        for place, form in enumerate(("onnx", "tflite", "stage", "run", "free")):
            slow = form != "stage" if command == "bench" else place != 1 + number % 4
            yield pytest.param(command, form, marks=[pytest.mark.slow] if slow else [], id=f"{command}-{form}")


@pytest.mark.every
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("command", "form"), list(cases()))
def test_every_command_takes_every_form(
    command: str, form: str, forms: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("quit\n"))
    run = tmp_path / "run"
    shutil.copytree(forms["run"], run)  # some write next to what they are given
    status = main(words_of(command, form, {**forms, "run": run}, tmp_path / "out"))
    said = capsys.readouterr()
    assert "tpusim: " not in said.err.replace("tpusim: warning: ", ""), said.err
    assert status == (1 if "bisect FAILED" in said.out else 0), said.out + said.err


# --- what the forms give


@pytest.mark.every
@pytest.mark.parametrize(
    "file", ["1_top", "2_canonical", "3_calibrated", "4_tpu", "5_grouped", "6_final", "7_model", ""]
)
def test_every_stage_leads_to_the_same_program(file: str, forms: dict[str, Path], tmp_path: Path) -> None:
    """From each file of a run, and from its folder, the rest is what the run made."""
    run, text, wanted = forms["run"], tmp_path / "program.txt", tmp_path / "wanted.txt"
    path = run / (file + (".tpusim" if file == "7_model" else ".mlir")) if file else run
    chip = ["--chip", "bm1688"] if file[:1] in ("1", "2", "3") else []
    table = ["--table", str(run / "cali_table")] if file[:1] in ("1", "2") else []
    assert main(["dis", str(path), *chip, *table, "--out", str(text)]) == 0
    assert main(["dis", str(run / "7_model.tpusim"), "--out", str(wanted)]) == 0
    assert text.read_text() == wanted.read_text()


def test_a_folder_has_the_options_of_its_run(forms: dict[str, Path], tmp_path: Path) -> None:
    """Also an option that is given with its usual value takes the place of the run's."""
    assert open_network(forms["run"]).lowering.chip == open_network(forms["run"]).chip
    for words, chip, mode in (
        (["--chip", "bm1684x"], "bm1684x", "int8"),
        ([], "bm1688", "int8"),
        (["--mode", "f16"], "bm1688", "f16"),
    ):
        assert main(["codegen", str(forms["run"]), *words, "--out", str(tmp_path / "x.tpusim")]) == 0
        header = load(tmp_path / "x.tpusim").header
        assert (header.chip, header.mode) == (chip, mode)
    again = tmp_path / "again"
    assert main(["run", str(forms["run"]), "--out", str(again)]) == 0
    first, second = (run_config(folder) for folder in (forms["run"], again))
    assert first is not None and second is not None and first.calibration == second.calibration
    assert first.calibration.method == "max" and first.data == second.data == "random:2"
    assert (forms["run"] / "4_tpu.mlir").read_text() == (again / "4_tpu.mlir").read_text()


def test_asymmetric_integers_of_a_folder_take_its_table(forms: dict[str, Path], tmp_path: Path) -> None:
    """Zero points change the calibrated module; nothing is measured again."""
    out = tmp_path / "4_tpu.mlir"
    assert main(["lower", str(forms["run"]), "--asymmetric", "--out", str(out)]) == 0
    assert load_model(out, context()).number("module.asymmetric")
    wanted = read_table(forms["run"] / "cali_table").entries
    assert open_network(forms["run"]).table.entries == wanted  # type: ignore[union-attr]


def test_infer_of_a_folder_is_of_its_lowered_module(forms: dict[str, Path], tmp_path: Path) -> None:
    given = ["--input", str(forms["run"] / "inputs.npz"), "--all-tensors", "--out", str(tmp_path / "x.npz")]
    assert main(["infer", str(forms["run"]), *given]) == 0
    found, wanted = tensors(tmp_path / "x.npz"), tensors(forms["run"] / "tpu_outputs.npz")
    assert found.keys() == wanted.keys() and all(np.array_equal(found[n], wanted[n]) for n in wanted)


@pytest.mark.every
@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["why", "6_final.mlir"], "6_final.mlir has its addresses already"),
        (["why", "4_tpu.mlir"], "1_top.mlir to 3_calibrated.mlir, or the folder of a `tpusim run`"),
        (["bisect", "5_grouped.mlir"], "give the ONNX or TFLite model"),
        (["search-threshold", "3_calibrated.mlir"], "1_top.mlir to 2_canonical.mlir"),
        (["lower", "4_tpu.mlir"], "1_top.mlir to 3_calibrated.mlir"),
        (["explore-group", "5_grouped.mlir"], "1_top.mlir to 4_tpu.mlir"),
        (["import", "2_canonical.mlir"], "1_top.mlir"),
        (["group", "4_tpu.mlir", "--chip", "bm1684x"], "--chip: 4_tpu.mlir is lowered already"),
        (["lower", "3_calibrated.mlir", "--table", "cali_table"], "3_calibrated.mlir has its thresholds already"),
        (["assign", "5_grouped.mlir", "--layer-group", "1"], "--layer-group: 5_grouped.mlir is grouped already"),
        (["codegen", "6_final.mlir", "--input-shapes", "x=1x3x16x16"], "6_final.mlir has its addresses already"),
        (["simulate", "7_model.tpusim", "--mode", "f16", "--input", "inputs.npz"], "--mode: 7_model.tpusim is"),
        (["why", "cali_table"], "cali_table"),
        (["why", "nothing"], "nothing"),
        (["check", "inputs.npz"], "is an npz of arrays; give it as samples"),
        (["run", "4_tpu.mlir"], "'net' is in state TPU_LOWERED"),
        (["why", "empty"], "no manifest.json of a run"),
    ],
)  # fmt: skip
def test_what_a_form_cannot_give_is_said(
    words: list[str], error: str, forms: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shutil.copytree(forms["run"], tmp_path / "run")
    (tmp_path / "run" / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert main(words) == 1
    assert error in capsys.readouterr().err.replace("\n", " ")


def test_explore_takes_shapes_for_the_models_that_have_the_input(
    forms: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(forms["free"]), str(forms["tflite"])]
    words = ["--modes", "f32", "--input-shapes", "x=1x3x16x16", "--out", str(tmp_path / "out")]
    assert main(["explore", str(forms["free"]), *words]) == 0
    assert (
        main(["explore", both[0], "--modes", "f32", "--input-shapes", "z=1x3x16x16", "--out", str(tmp_path / "o")]) == 1
    )
    assert "--input-shapes: no model has an input z, their inputs are x" in capsys.readouterr().err


def test_a_run_of_a_module_is_compared_on_two_levels(forms: dict[str, Path], tmp_path: Path) -> None:
    """It has no framework's results; top and tpu are those of its run."""
    words = [
        "run",
        str(forms["run"] / "2_canonical.mlir"),
        *MEASURED,
        "--chip",
        "bm1688",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(words) == 0
    assert not (tmp_path / "out/onnx_outputs.npz").exists()
    assert main([*words, "--resume"]) == 0
    for name in ("top_outputs.npz", "tpu_outputs.npz"):
        found, wanted = tensors(tmp_path / "out" / name), tensors(forms["run"] / name)
        assert found.keys() == wanted.keys() and all(np.array_equal(found[n], wanted[n]) for n in wanted)
