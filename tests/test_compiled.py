"""`tpusim.compile`: one object from the ONNX file to the verdict, with the bits of the pipeline."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.errors import CalibrationError, ConfigError
from tpusim.isa.stream import load
from tpusim.lowering import LoweringConfig
from tpusim.running.pipeline import RunConfig

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "examples/digits"
IMAGES = np.load(DIGITS / "calibration.npz")["image"]
SAMPLES = [{"image": image[None]} for image in IMAGES[:4]]
MAX = CalibrationConfig("max")


@cache
def digits() -> tpusim.compiled.Compiled:
    return tpusim.compile(DIGITS / "digits.onnx", SAMPLES, chip="bm1684x", mode="int8", calibration=MAX)


def test_every_artefact_is_at_hand() -> None:
    net = digits()
    assert (net.top.state, net.tpu.state, net.grouped.state) == ("TOP_F32", "TPU_LOWERED", "TPU_DIVIDED")
    assert net.table is not None and net.fidelity.count("exact") and net.program.header.chip == "bm1684x"
    assert "digits" in repr(net) and len(repr(net)) < 200 and net._repr_html_().startswith("<table>")  # noqa: SLF001


def test_flat_machine_and_verification_agree() -> None:
    net = digits()
    (name,), flat = net.flat(IMAGES[:3]).keys(), net.flat(IMAGES[:3])
    for i in range(3):
        found = net.machine().run({"image": IMAGES[i : i + 1]}).tensors[name]
        np.testing.assert_array_equal(found, flat[name][i : i + 1])
    verdict = net.verify(SAMPLES[0])
    assert verdict.passed and verdict.bit_exact
    assert list(verdict.comparisons) == ["top_vs_onnx", "tpu_vs_top", "local_vs_tpu"]
    assert repr(verdict).startswith("<Verification PASSED") and verdict._repr_html_().count("<tr>") == 4  # noqa: SLF001
    report = net.report()
    assert report.passed and report.totals.cycles == net.machine().timeline.cycles > 0


def test_the_program_is_that_of_a_run(tmp_path: Path) -> None:
    """The same stages: the commands of `tpusim run` with the same samples."""
    np.savez(tmp_path / "samples.npz", image=IMAGES[:4])
    config = RunConfig(
        DIGITS / "digits.onnx", LoweringConfig(), MAX, data=str(tmp_path / "samples.npz"), out=tmp_path / "out",
        to="codegen",
    )  # fmt: skip
    tpusim.run(config)
    written, own = load(tmp_path / "out/7_model.tpusim"), digits().program
    assert written.commands == own.commands
    np.testing.assert_array_equal(written.coefficients, own.coefficients)


def test_a_module_without_its_onnx_file_is_compared_on_two_levels() -> None:
    net = tpusim.compile(tpusim.load(DIGITS / "digits.onnx"), mode="f32")
    assert net.table is None
    assert list(net.verify(SAMPLES[0]).comparisons) == ["tpu_vs_top", "local_vs_tpu"]


def test_a_table_instead_of_samples() -> None:
    net = tpusim.compile(DIGITS / "digits.onnx", table=digits().table)
    assert net.program.commands == digits().program.commands


def test_what_is_missing_is_named() -> None:
    with pytest.raises(CalibrationError, match="at least one sample is required, got none; inputs are image"):
        tpusim.compile(DIGITS / "digits.onnx")
    with pytest.raises(ConfigError, match="unknown chip 'bm16'"):
        tpusim.compile(DIGITS / "digits.onnx", SAMPLES, chip="bm16")


def test_the_readme_shows_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's Python lines run as they stand: fewer than 12, and no private import."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## From Python")[1].split("\n## ")[0]
    code = text.split("```python\n")[1].split("```")[0]
    assert 0 < len([line for line in code.splitlines() if line.strip()]) < 12 and "._" not in code
    monkeypatch.chdir(ROOT)
    exec(code, {})  # noqa: S102
    assert "<Verification PASSED" in capsys.readouterr().out
