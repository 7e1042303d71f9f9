"""`tpusim fit`: what it says of global and local memory is what compiling makes; what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from end_to_end import DIGITS as FOLDER

import tpusim
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.cli import main

DIGITS = FOLDER / "digits.onnx"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    status = main(["fit", str(DIGITS), "--json", *words])
    return status, json.loads(capsys.readouterr().out)


def test_it_says_what_compiling_makes(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = told(capsys, "--chip", "bm1684x")
    samples = [dict(s) for s in load_samples("random:1", tpusim.inference.input_specs(tpusim.load(DIGITS)))]
    report = tpusim.compile(DIGITS, samples, calibration=CalibrationConfig("max", tune_samples=0)).report()
    assert status == 0 and found["fits"] is True and found["room"] == 8 << 30
    assert (found["weights"], found["neurons"]) == (report.memory.coeff_bytes, report.memory.neuron_bytes)
    local = [group for group in report.groups if not group.reason]
    assert found["peaks"] == [group.lmem_peak_bytes for group in local]
    assert {(one["op"], one["reason"]) for one in found["outside"]} == {
        (group.ops[0], group.reason) for group in report.groups if group.reason
    }
    assert sum(size for _, size in found["crowd"]) <= found["neurons"]


def test_what_does_not_fit_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text('extends = "cv183x"\nname = "small"\nlmem_bytes = 256\ngmem_bytes = 40000\n')
    status, found = told(capsys, "--chip", str(small))
    assert status == 1 and found["fits"] is False and found["needed"] > found["room"] == 40000
    causes = {one["op"]: one["cause"] for one in found["outside"]}
    assert "too large for it" in causes.values()
    large = [one["reason"] for one in found["outside"] if one["cause"] == "too large for it"]
    assert all("bytes per lane" in reason for reason in large)
    assert main(["fit", str(DIGITS), "--chip", str(small)]) == 1
    text = capsys.readouterr().out
    assert "DOES NOT FIT small in int8" in text and "too much by" in text


def test_memory_of_a_board(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "--chip", "cv183x")[1]["fits"] is None
    assert told(capsys, "--chip", "cv183x", "--memory", "1")[1]["fits"] is True
    assert main(["fit", str(DIGITS), "--memory", "-1"]) == 1 and "--memory" in capsys.readouterr().err
