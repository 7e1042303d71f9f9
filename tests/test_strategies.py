"""Strategies of installed packages: named in --help, used by their names, refused by name if they are wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiling import to_groups, to_program
from networks import cached_lowered

import tpusim
from tpusim.errors import ConfigError, TpusimError, UnsupportedError
from tpusim.frontend import import_onnx
from tpusim.layer_group import LayerGroupConfig
from tpusim.passes import PassManager
from tpusim.registry import STRATEGIES
from tpusim.registry import installed as read_again
from tpusim.running.agreement import compare_local
from tpusim.running.artefacts import RunConfig
from tpusim.running.pipeline import run
from tpusim.simulator import Simulator
from tpusim.studies.explore import Space

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "plugin"
WRONG = """
from tpusim.layer_group import alone
def short(ops, chip, cores=1, memo=None):
    return [alone(op, chip, memo) for op in ops[1:]]
def late(ops, chip, cores=1, memo=None):
    raise KeyError("no idea")
def odd(ops, chip, cores=1, memo=None):
    return ops
number = 3
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example and wrong ones, as pip leaves them: modules and a folder of metadata on the path."""
    (tmp_path / "tpusim_halves.py").write_text((EXAMPLE / "tpusim_demo" / "strategy.py").read_text())
    (tmp_path / "wrong_strategies.py").write_text(WRONG)
    info = tmp_path / "tpusim_halves-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tpusim-halves\nVersion: 0.1.0\n")
    wrong = "".join(f"{name} = wrong_strategies:{name}\n" for name in ("short", "late", "odd", "number", "missing"))
    (info / "entry_points.txt").write_text(f"[tpusim.strategies]\nhalves = tpusim_halves:halves\n{wrong}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(STRATEGIES, "entries", dict(STRATEGIES.entries))
    read_again.cache_clear()
    yield tmp_path
    read_again.cache_clear()


def test_the_example_is_as_short_as_it_says_and_names_itself() -> None:
    assert len((EXAMPLE / "tpusim_demo" / "strategy.py").read_text().splitlines()) < 40
    assert 'tpusim.strategies"]\nhalves = "tpusim_demo.strategy:halves"' in (EXAMPLE / "pyproject.toml").read_text()


def test_help_names_it(installed: Path) -> None:
    path = os.pathsep.join([str(installed), *(p for p in sys.path if p)])
    for command in ("group", "explore"):
        done = subprocess.run(
            [sys.executable, "-c", "import sys; from tpusim.cli import main; sys.exit(main())", command, "--help"],
            capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path, "COLUMNS": "300"}, check=True,
        )  # fmt: skip
        assert "halves" in done.stdout


@pytest.mark.parametrize("chip", ["bm1684x", "bm1688"])
def test_it_runs_and_its_bits_are_right(installed: Path, chip: str) -> None:
    model, flat = cached_lowered(1, chip)
    program = to_program(model, "halves")
    sample = {"t0": flat["t0"]}
    found = Simulator(program).run(sample, watch=True)
    assert compare_local(model, sample, found.tensors, flat).bit_exact
    assert Space([EXAMPLE / "pyproject.toml"], strategies=["halves"]).points()[0].strategy == "halves"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("short", "all of the run are required"),
        ("late", "raised KeyError: 'no idea'"),
        ("odd", "a GroupSchedule or a pair of op and reason is required"),
        ("number", "a callable of ops, chip, cores and memo is required, got int"),
        ("missing", "wrong_strategies:missing of tpusim-halves 0.1.0 could not be imported"),
    ],
)
def test_a_wrong_one_is_refused_by_name(installed: Path, name: str, why: str) -> None:
    model, _ = cached_lowered(1, "bm1684x")
    with pytest.raises(ConfigError, match=f"strategy '{name}'") as error:
        to_groups(model, name)
    assert why in str(error.value)


def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="layer_group='halves': expected one of 1, 2, off"):
        to_groups(cached_lowered(1, "bm1684x")[0], "halves")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("number", "a callable of ops, chip, cores and memo is required, got int"),
        ("missing", "wrong_strategies:missing of tpusim-halves 0.1.0 could not be imported"),
        ("nobody", "layer_group='nobody': expected one of 1, 2, off"),
    ],
)
def test_one_that_cannot_be_used_is_refused_before_any_work(
    installed: Path, name: str, why: str, tmp_path: Path
) -> None:
    """In a pipeline, in a run, and in Python; nothing is imported, calibrated or written before."""
    digits = EXAMPLE.parent / "digits" / "digits.onnx"
    with pytest.raises(TpusimError, match=re.escape(why)):
        PassManager(f"calibrate,layer-group{{opt={name}}}").run(import_onnx(digits))
    config = RunConfig(digits, out=tmp_path / "out", layer_group=LayerGroupConfig(name))
    with pytest.raises(TpusimError, match=re.escape(why)):
        run(config)
    assert not (tmp_path / "out").exists()
    with pytest.raises(TpusimError, match=re.escape(why)):
        tpusim.compile(digits, layer_group=name)
