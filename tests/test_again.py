"""A report says what it is of, and `run --again` repeats its run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from verdict_networks import images, lone

from tpusim import chips
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.frontend import Cut
from tpusim.images import Preprocess
from tpusim.lowering import LoweringConfig
from tpusim.running.artefacts import RunConfig
from tpusim.running.asked import config_from, run_config, stated
from tpusim.verify.kept import Keep
from tpusim.verify.schema import read_report
from tpusim.version import __version__

pytestmark = pytest.mark.filterwarnings("default::tpusim.errors.ChangedWarning")
TABLE = "x 3 -3 3\ny_Conv 6 -6 6\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished run in a separate working directory, its files named as a user names them."""
    monkeypatch.chdir(tmp_path)
    lone(Path("lone.onnx"))
    np.savez("x.npz", x=images(3))
    Path("table").write_text(TABLE)
    words = ["lone.onnx", "--chip", "bm1688", "--data", "x.npz", "--table", "table", "--samples", "2", "--out", "first"]
    monkeypatch.setattr("sys.argv", ["/anywhere/tpusim", "run", *words])
    assert main(["run", *words]) == 0
    return tmp_path


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_report_says_what_it_is_of(folder: Path) -> None:
    run = read_report(folder / "first" / "report.json").run
    assert run is not None
    assert abs((datetime.now().astimezone() - datetime.fromisoformat(run.date)).total_seconds()) < 600
    assert run.command.startswith("tpusim run lone.onnx --chip bm1688") and run.folder == str(folder)
    assert run.tpusim == __version__ and run.measured == 0
    files = {"model": "lone.onnx", "data": "x.npz", "table": "table"}
    assert {name: file.path for name, file in run.files.items()} == files
    assert {name: file.sha256 for name, file in run.files.items()} == {n: sha(folder / p) for n, p in files.items()}
    manifest = json.loads((folder / "first" / "manifest.json").read_text())
    assert manifest["config"] == run.config and manifest["config"]["lowering"]["chip"] == "bm1688"
    assert manifest["config"]["calibration"]["max_samples"] == 2 and manifest["config"]["labels"] is None
    page = (folder / "first" / "report.html").read_text()
    for part in (run.date, run.command, run.files["model"].sha256, "--again"):
        assert part in page


@pytest.mark.parametrize("of", ["first/report.json", "first", "elsewhere/report.json"])
def test_a_run_is_repeated(folder: Path, of: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Also from another working directory, and by a report that was moved."""
    if of.startswith("elsewhere"):
        (folder / "elsewhere").mkdir()
        (folder / of).write_bytes((folder / "first/report.json").read_bytes())
        monkeypatch.chdir(folder / "elsewhere")
    assert main(["run", "--again", str(folder / of), "--out", str(folder / "second")]) == 0
    assert "warning" not in capsys.readouterr().err
    for name in ("cali_table", "7_model.tpusim", "4_tpu.mlir", "inputs.npz"):
        assert (folder / "second" / name).read_bytes() == (folder / "first" / name).read_bytes()
    first, second = (json.loads((folder / n / "report.json").read_text()) for n in ("first", "second"))
    assert first["compare"] == second["compare"] and first["run"]["files"].keys() == second["run"]["files"].keys()


@pytest.mark.every
@pytest.mark.parametrize(("name", "role"), [("lone.onnx", "model"), ("x.npz", "data"), ("table", "table")])
def test_what_has_changed_is_named(folder: Path, name: str, role: str, capsys: Any) -> None:
    if name == "x.npz":
        np.savez("x.npz", x=images(4))
    elif name == "table":
        (folder / name).write_text(TABLE.replace("6", "5"))
    else:
        (folder / name).write_bytes((folder / name).read_bytes() + b"\x72\x00")  # an empty doc string
    main(["run", "--again", "first", "--out", "second"])
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(said) == 1 and f"{role} {name} has changed since the run of first" in said[0]


def test_data_of_several_files_is_known_by_all_of_them(tmp_path: Path, capsys: Any) -> None:
    model, data = lone(tmp_path / "lone.onnx"), tmp_path / "images"
    data.mkdir()
    for i, image in enumerate(images(3)):
        np.save(data / f"{i}.npy", image[None])
    words = ["--chip", "bm1688", "--data", str(data), "--to", "verify", "--out", str(tmp_path / "first")]
    assert main(["run", str(model), *words]) == 0
    run = read_report(tmp_path / "first/report.json").run
    assert run is not None and run.measured == 3 and len(run.files["data"].sha256) == 64
    np.save(data / "1.npy", images(4)[3:])
    main(["run", "--again", str(tmp_path / "first"), "--out", str(tmp_path / "second")])
    assert f"data {data} has changed" in capsys.readouterr().err
    (data / "1.npy").unlink()
    main(["run", "--again", str(tmp_path / "first"), "--out", str(tmp_path / "second")])
    assert f"data {data} has changed" in capsys.readouterr().err


OWN_CHIP = replace(RunConfig(Path("m.onnx")), lowering=LoweringConfig(chip="bm1684x", mode="bf16", qtable="a:F16"))


@pytest.mark.every
@pytest.mark.parametrize(
    "config",
    [
        RunConfig(Path("a b.onnx")),
        OWN_CHIP,
        replace(OWN_CHIP, keep=Keep(("outputs", "a*")), labels=Path("l.npy"), test_data="t.npz", max_drop=0.5),
        replace(OWN_CHIP, input_shapes={"x": (1, 3, 8, 8)}, cut=Cut(("a",), ("b", "c")), also=("gelu_tanh",)),
        replace(OWN_CHIP, preprocess=Preprocess((1.5, 2, 3), resize_dims=(8, 9)), preprocess_list=(1, 3)),
        replace(OWN_CHIP, to="infer", start="lower", local_samples=3, compare_samples=5),
    ],
    ids=str,
)
def test_options_are_read_back_as_they_were_written(config: RunConfig) -> None:
    """As JSON, and from the representations that manifests of version 0.1 have."""
    written = json.loads(json.dumps(stated(config)))
    assert config_from(written, Path("here")) == config
    old = {name: str(value) for name, value in vars(config).items()}
    assert config_from(old, Path("here")) == config


def test_a_chip_of_ones_own_is_written_in_full() -> None:
    """Its figures, not its name, decide what a run makes."""
    spec = replace_figures(chips.load("bm1688"), tiu_mhz=10.0)
    config = replace(OWN_CHIP, lowering=LoweringConfig(chip=spec))
    written = json.loads(json.dumps(stated(config)))
    assert written["lowering"]["chip"]["tiu_mhz"] == 10.0
    assert config_from(written, Path("here")).lowering.chip == spec


def replace_figures(spec: chips.ChipSpec, **figures: float) -> chips.ChipSpec:
    import msgspec

    return msgspec.structs.replace(spec, **figures)


def test_a_run_of_version_0_1_is_repeated(folder: Path, capsys: Any) -> None:
    """Its report has no record; the manifest has the texts of Python."""
    config = run_config(folder / "first")
    assert config is not None
    spec = replace(config, lowering=replace(config.lowering, chip=chips.load("bm1688")))
    for name, key, value in (
        ("manifest", "config", {n: str(v) for n, v in vars(spec).items()}),
        ("report", "run", None),
    ):
        path = folder / "first" / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    assert main(["run", "--again", "first", "--out", "second"]) == 0
    assert "no hashes of files" in capsys.readouterr().err
    assert (folder / "second/7_model.tpusim").read_bytes() == (folder / "first/7_model.tpusim").read_bytes()


@pytest.mark.every
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--again", "first", "--chip", "bm1688"], "leave out --chip"),
        (["lone.onnx", "--again", "first"], "leave out the model"),
        (["--again", "first", "--compare-samples", "3", "--samples", "1"], "leave out --samples, --compare-samples"),
        (["--again", "missing"], "there is no such file"),
        (["--again", "."], "this says no options"),
        (["--again", "table"], "a report.json is required"),
    ],
)
def test_what_cannot_be_repeated(folder: Path, words: list[str], says: str, capsys: Any) -> None:
    del folder
    assert main(["run", *words]) == 1
    assert says in capsys.readouterr().err


def test_a_mode_that_is_not_there_is_named() -> None:
    written = stated(OWN_CHIP)
    written["lowering"]["mode"] = "mine"
    with pytest.raises(ConfigError, match="here: a mode of .* is required to run again, got 'mine'"):
        config_from(written, Path("here"))
