"""`--keep`: which tensors go to disk, that verdicts do not depend on it, and what is said of those that did not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from end_to_end import DIGITS, SAMPLES, assert_equal, digits_run, report_of, tensors

from tpusim.calibration.stage import CalibrationConfig
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.module import load_model
from tpusim.ops import context
from tpusim.page import Diagnosis
from tpusim.running.persistence import TENSOR_FILES, page_of
from tpusim.running.pipeline import STAGES, RunConfig, run
from tpusim.verify.about import read_about
from tpusim.verify.kept import Keep


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A copy of a whole run that kept everything."""
    return Path(shutil.copytree(digits_run(tmp_path_factory, "bm1684x", "int8"), tmp_path / "run"))


def kept(folder: Path, *asked: str, start: str | None = "infer") -> None:
    """Run again in the folder from a stage, with --keep."""
    settings = RunConfig(
        model=DIGITS / "digits.onnx",
        calibration=CalibrationConfig(max_samples=SAMPLES),
        data=str(DIGITS / "calibration.npz"),
        out=folder,
        start=start,
        resume=start is None,
        keep=Keep(asked),
    )
    report = run(settings).report
    assert report is not None and report.passed


def verdicts(folder: Path) -> object:
    return report_of(folder)["compare"]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        (("outputs",), {"logits"}),
        (("block_a_*",), {"block_a_Relu"}),
        (("outputs", "block_?_Relu"), {"logits", "block_a_Relu", "block_b_Relu"}),
        (("none",), set[str]()),
    ],
    ids=" ".join,
)
def test_files_have_what_is_kept_and_the_verdicts_stay(folder: Path, asked: tuple[str, ...], names: set[str]):
    before = {name: tensors(folder / name) for name in TENSOR_FILES}
    said = verdicts(folder)
    kept(folder, *asked)
    assert verdicts(folder) == said
    for name in TENSOR_FILES:
        assert (folder / name).exists() == bool(names)
        if names:
            found = tensors(folder / name)
            assert {n.removesuffix("_f32").removesuffix("_Gemm") for n in found} >= names
            assert len(found) < len(before[name]) and read_about(folder / name).kept == str(Keep(asked))
            assert_equal(found, {n: before[name][n] for n in found})


def test_a_resumed_run_computes_tensors_that_were_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = {name: tensors(folder / name) for name in TENSOR_FILES}
    kept(folder, "none")
    ran: list[str] = []
    for name, stage in STAGES.items():
        monkeypatch.setitem(STAGES, name, lambda a, name=name, stage=stage: (ran.append(name), stage(a))[1])
    kept(folder, "outputs", start=None)
    kept(folder, "all", start=None)
    assert ran == ["infer", "simulate", "verify"] * 2
    for name in TENSOR_FILES:
        assert_equal(tensors(folder / name), before[name])


def test_what_reads_a_file_that_was_not_kept_says_so(folder: Path, capsys: pytest.CaptureFixture[str]):
    kept(folder, "none")
    capsys.readouterr()
    inputs = ("--input", str(folder / "inputs.npz"))
    for words in (
        ("compare", str(folder / "tpu_outputs.npz"), str(folder / "top_outputs.npz")),
        ("simulate", str(folder / "7_model.tpusim"), *inputs, "--check", str(folder / "tpu_outputs.npz")),
        ("debug", str(folder / "7_model.tpusim"), *inputs, "--check", str(folder / "tpu_outputs.npz")),
    ):
        assert main(words) != 0
        said = " ".join(capsys.readouterr().err.split())
        assert "tpu_outputs.npz: the run in this folder wrote no such tensors" in said
        assert "--keep none; run it again with --resume --keep all" in said


def test_the_page_of_a_run_does_not_need_its_tensors(folder: Path):
    calibrated, nothing = load_model(folder / "3_calibrated.mlir", context()), Diagnosis(1, (), {})
    whole = page_of(folder, calibrated, nothing)
    for asked in ("outputs", "none"):
        kept(folder, asked)
        page = page_of(folder, calibrated, nothing)
        assert page.count("<svg") == whole.count("<svg") > 10


def test_a_comparison_of_what_was_kept_says_so(folder: Path, capsys: pytest.CaptureFixture[str]):
    kept(folder, "outputs")
    capsys.readouterr()
    assert main(["compare", str(folder / "tpu_outputs.npz"), str(folder / "top_outputs.npz")]) == 0
    said = capsys.readouterr().out
    assert "tpu_outputs.npz holds only the tensors of --keep outputs" in said and "1 compared" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keep", "all", "outputs"), "--keep all outputs, with other words"),
        (("--keep", "no_such*"), "--keep no_such*: the name of a tensor of the network or a pattern"),
        (("--keep", "none", "--to", "lower"), "--keep none: needs --to infer or a later stage"),
        (("--keep", "outputs", "--from", "simulate"), "--from simulate: reads the tensors of the stages before"),
    ],
)
def test_a_run_refuses_what_cannot_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
):
    digits = ("run", str(DIGITS / "digits.onnx"), "--mode", "f32", "--out", str(tmp_path / "out"))
    assert main([*digits, *words]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_infer_and_simulate_keep_what_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]):
    inputs, out = ("--input", str(folder / "inputs.npz")), folder / "some.npz"
    for model in (folder / "4_tpu.mlir", DIGITS / "digits.onnx"):
        words = ["infer", str(model), *inputs, "--out", str(out)]
        assert main([*words, "--keep", "block_a_Relu", "outputs"]) == 0
        assert {"block_a_Relu"} < set(tensors(out)) and len(tensors(out)) == 2
        assert "block_a_Relu" in read_about(out).kept
        assert main([*words, "--keep", "all"]) == 0
        everything = tensors(out)
        assert main([*words, "--all-tensors"]) == 0
        assert_equal(tensors(out), everything)
        assert len(everything) > 5
        capsys.readouterr()
        assert main([*words, "--keep", "none"]) != 0 and "--keep none: all that" in capsys.readouterr().err
        assert main([*words, "--keep", "x", "--all-tensors"]) != 0
    words = ["simulate", str(folder / "7_model.tpusim"), *inputs, "--out", str(out)]
    assert main([*words, "--keep", "outputs"]) == 0
    results = {"logits_Gemm_f32"}
    assert_equal(tensors(out), {n: v for n, v in tensors(folder / "local_outputs.npz").items() if n in results})
    out.unlink()
    assert main([*words, "--keep", "none"]) == 0
    assert not out.exists() and "wrote no tensors (--keep none)" in capsys.readouterr().out
    assert main([*words, "--keep", "nothing"]) != 0


def test_keep_takes_names_before_patterns():
    """A name with brackets is a pattern of others too."""
    found = {name: np.zeros(1) for name in ("a[1]", "a1", "b")}
    assert set(Keep(("a[1]",)).of(found, ())) == {"a[1]", "a1"} and set(Keep().of(found, ())) == set(found)
    assert set(Keep(("outputs",)).of(found, ["b", "c"])) == {"b"}
    with pytest.raises(ConfigError, match="without a word"):
        Keep(())


def test_the_manifest_says_what_was_kept(folder: Path):
    kept(folder, "outputs")
    assert json.loads((folder / "manifest.json").read_text())["config"]["keep"] == {"asked": ["outputs"]}
