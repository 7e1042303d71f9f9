"""`tpusim explore --through-upstream` with stand-ins for TPU-MLIR's tools: what they recorded, and how each may fail.

The recordings are of: tpusim explore digits.onnx --chips bm1684x,bm1688 --data random:2 --method max --tune-num 0
--through-upstream DIR; tests/upstream/through has the profile and the simulator's results of each bmodel.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from end_to_end import DIGITS as FOLDER
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from tpusim.calibration.stage import CalibrationConfig
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.studies.explore import Row, Space, explore, parse_bounds, read_rows, recommended
from tpusim.studies.explore.cost import SHORTAGE

DIGITS = FOLDER / "digits.onnx"
RECORDED = Path(__file__).parent / "upstream" / "through"
QUICK = CalibrationConfig("max", tune_samples=0)
CODEGEN = """
for word in "$@"; do case "$word" in --codegen=*) file=${word#--codegen=model_file=}; file=${file%% *};; esac; done
chip=$(sed -n 's/.*module.chip = "\\([a-z0-9]*\\)".*/\\1/p' final.mlir | head -1)
"""
"""The bmodel of a stand-in names the folder of its recorded results."""
DEPLOY = """
while [ $# -gt 0 ]; do case "$1" in --processor) chip=$2;; --model) file=$2;; esac; shift; done
"""
RUNNER = """
while [ $# -gt 0 ]; do case "$1" in --model) file=$2;; --output) out=$2;; esac; shift; done
"""
REFUSES = "echo \"codegen op: 'load_x'\"; echo \"codegen op: 'fc_Gemm'\"; echo 'ERROR: ASSERT no such conv'; exit 1"


def stand_in(folder: Path, **tools: str) -> Path:
    """An environment whose tools are shell scripts that play records; they note in `calls` that they ran."""
    made = {
        "tpuc-opt": f'{CODEGEN} cp "$here/$chip/2/compiler_profile_0.txt" . && echo "$here/$chip/2" > "$file"',
        "model_deploy": f'{DEPLOY} cp "$here/$chip/tpu-mlir/compiler_profile_0.txt" . && '
        'echo "$here/$chip/tpu-mlir" > "$file"',
        "model_runner": f'{RUNNER} cp "$(cat "$file")/simulator_out.npz" "$out"',
    } | {name.replace("tpuc_opt", "tpuc-opt"): text for name, text in tools.items()}
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    begin = f'here={shlex.quote(str(RECORDED))}\necho "$(basename $0)" >> {shlex.quote(str(folder / "calls"))}\n'
    for name, text in made.items():
        (folder / "bin" / (name if name == "tpuc-opt" else f"{name}.py")).write_text(f"{begin}{text}\n")
    (folder / "bin" / "python").write_text('#!/bin/sh\nexec sh "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    return folder


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().split()


def tiny(folder: Path) -> Path:
    """A product with ten results, as digits has."""
    weights = numpy_helper.from_array(np.ones((16, 10), np.float32), "w")
    given, made = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, s]) for n, s in (("x", 16), ("y", 10)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "tiny", [given], [made], [weights])
    path = folder / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def space(environment: Path, *strategies: str, **more: Any) -> Space:
    """The network in f32, which needs no table."""
    model = tiny(environment)
    return Space([model], modes=["f32"], strategies=strategies or ["2"], through_upstream=str(environment), **more)


def test_recorded_bmodels_of_digits_have_our_bits_and_nearly_our_cycles(tmp_path: Path) -> None:
    """What the real tools measured and computed: the results of flat inference, cycles within 1 %, the same bytes."""
    environment = stand_in(tmp_path / "env")
    given = Space(
        [DIGITS], ["bm1684x", "bm1688"], data="random:2", calibration=QUICK, through_upstream=str(environment)
    )
    found = explore(given, tmp_path / "out")
    for row in found.rows:
        assert row.upstream_cycles and row.cycles == pytest.approx(row.upstream_cycles, rel=0.01)
        assert row.moved_bytes == row.upstream_bytes == row.compiler_bytes
        assert (row.error, row.upstream_error, row.compiler_error, row.upstream_first) == ("",) * 4
        assert (row.upstream_differ, row.compiler_differ) == (0, 0)
        assert (tmp_path / "out" / row.upstream_file).is_file()
    assert [row.upstream_cycles for row in found.rows] == [5913, 7923]
    assert list(recommended(found.rows).values()) == list(found.rows)
    assert read_rows(tmp_path / "out" / "results.json") == list(found.rows)


def test_the_command_shows_both_clocks_and_recommends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results that differ are named with their place: the stand-in plays those of another network."""
    words = ["explore", str(tiny(tmp_path)), "--modes", "f32", "--through-upstream", str(stand_in(tmp_path / "env"))]
    assert main([*words, "--front", "real", "--best-under", "real=6000", "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "bm1684x f32 2" in said and "5,913" in said and "10 differ, equal to TPU-MLIR's" in said
    assert "y_MatMul" in said and "10 of 10 elements differ" in said and "the first at [0]: " in said
    assert "recommended: " in said and "2, 5,913 cycles, as many as with TPU-MLIR's cut: upstream/tiny_bm" in said
    assert "best under real=6000" in said and "real 5,913" in said
    assert main([*words, "--json", "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["upstream_cycles"] for row in found["recommended"]] == [5913] and found["rows"] == found["recommended"]


@pytest.mark.parametrize(
    ("tools", "field", "said"),
    [
        ({"tpuc_opt": REFUSES}, "upstream_error", r"tpuc-opt .* stopped \(1\): at op 'fc_Gemm': ERROR: ASSERT no"),
        ({"tpuc_opt": "exit 0"}, "upstream_error", r"a file tiny\.bmodel is required, its tool made none"),
        ({"model_runner": "exit 0"}, "upstream_error", "results are required, it wrote none"),
        ({"model_runner": "echo wrong >&2; exit 2"}, "upstream_error", r"model_runner\.py of .* stopped \(2\): wrong"),
        ({"model_runner": f"{RUNNER} echo junk > $out"}, "upstream_error", "an .npz or .npy of plain arrays"),
        ({"model_deploy": "echo 'fatal error: no chip'; exit 1"}, "compiler_error", "stopped .1.: fatal error: no"),
        ({"model_deploy": "exit 0"}, "compiler_error", r"a file tiny\.bmodel is required"),
    ],
)  # fmt: skip
def test_a_tool_that_fails_costs_its_fields_only(tmp_path: Path, tools: dict[str, str], field: str, said: str) -> None:
    environment = stand_in(tmp_path / "env", **tools)
    rows = explore(space(environment, "2", "off"), tmp_path / "out").rows
    for row in rows:
        assert row.cycles and not row.error
        assert re.search(said, getattr(row, field)), getattr(row, field)
        assert (row.compiler_cycles is None) == ("model_deploy" in tools)
        assert (row.upstream_cycles is None) == ("tpuc_opt" in tools)
    assert not list((tmp_path / "out" / "upstream").glob(".work-*"))
    assert explore(space(environment, "2", "off"), tmp_path / "out").computed == 0


def test_results_of_another_size_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "three.npz", logits=np.zeros(3, np.float32))
    environment = stand_in(tmp_path / "env", model_runner=f"{RUNNER} cp {tmp_path}/three.npz $out")
    (row,) = explore(space(environment), tmp_path / "out").rows
    assert "10 elements of 'y_MatMul' are required, got 3" in row.upstream_error
    assert row.upstream_cycles == 5913 and row.upstream_differ is None


def test_a_killed_tool_says_nothing_about_a_point(tmp_path: Path) -> None:
    found = explore(space(stand_in(tmp_path / "env", tpuc_opt="exit 137")), tmp_path / "out")
    assert len(found.short) == 1 and found.rows[0].error.startswith(SHORTAGE)
    (row,) = explore(space(stand_in(tmp_path / "env")), tmp_path / "out").rows
    assert row.upstream_cycles == 5913


def test_a_stopped_exploration_keeps_what_is_measured(tmp_path: Path) -> None:
    """Ctrl-C after the first of two cuts: the second run makes the other bmodel and asks the compiler no more."""
    environment = stand_in(tmp_path / "env")

    def interrupt(done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explore(space(environment, "2", "off"), tmp_path / "out", progress=interrupt)
    assert sorted(calls(environment)) == ["model_deploy.py", "model_runner.py", "model_runner.py", "tpuc-opt"]
    found = explore(space(environment, "2", "off"), tmp_path / "out")
    assert found.computed == 1 and [row.compiler_cycles for row in found.rows] == [5913, 5913]
    assert calls(environment)[4:] == ["tpuc-opt", "model_runner.py"]
    assert explore(Space([tiny(tmp_path)], modes=["f32"]), tmp_path / "out").rows[0].upstream_cycles is None


def test_a_file_of_groups_is_a_strategy(tmp_path: Path) -> None:
    """Its content counts: the same name with other groups is another point."""
    file, environment = tmp_path / "mine.toml", stand_in(tmp_path / "env")
    file.write_text("groups = []\n")
    (two, mine) = explore(space(environment, "2", str(file)), tmp_path / "out").rows
    assert mine.strategy == str(file) and replace(mine, strategy="2", upstream_file=two.upstream_file) == two
    assert "_mine_" in mine.upstream_file
    file.write_text('[[groups]]\nfirst = "none_such"\nlast = "none_such"\n')
    other = explore(space(environment, "2", str(file)), tmp_path / "out")
    assert other.computed == 1 and "none_such" in other.rows[1].error and other.rows[0] == two
    file.write_text("groups = 3\n")
    with pytest.raises(ConfigError, match="groups to force"):
        explore(space(environment, str(file)), tmp_path / "out")


def test_a_chip_with_other_figures_has_no_bmodel(tmp_path: Path) -> None:
    environment = stand_in(tmp_path / "env")
    (row,) = explore(space(environment, settings={"lmem_bytes": (65536,)}), tmp_path / "out").rows
    assert row.cycles and "bm1684x lmem_bytes=65536: TPU-MLIR knows bm1684, " in row.upstream_error


def test_absent_tools_are_refused_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that does not exist, and a folder without one of the tools."""
    environment = stand_in(tmp_path / "env")
    (environment / "bin" / "model_deploy.py").unlink()
    for folder, said in (
        (tmp_path / "none", "got no bin/python, bin/tpuc-opt"),
        (environment, "no bin/model_deploy.py"),
    ):
        assert (
            main(["explore", str(tiny(tmp_path)), "--through-upstream", str(folder), "--out", str(tmp_path / "out")])
            == 1
        )
        assert said in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ConfigError, match="through_upstream"):
        parse_bounds("real=1", verified=True)
    (environment / "bin" / "model_deploy.py").touch()
    (environment / "bin" / "python").chmod(0o644)
    (row,) = explore(space(environment), tmp_path / "out").rows
    assert "tpuc-opt of" in row.upstream_error and "cannot run" in row.upstream_error and row.cycles


BASE = Row("m.onnx", "bm1684x", "", "int8", "2", 0, 1, upstream_cycles=90, compiler_cycles=100, upstream_differ=0)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([BASE, replace(BASE, strategy="best", upstream_cycles=80)], "best"),
        ([BASE, replace(BASE, strategy="best", upstream_cycles=80, upstream_differ=3)], "2"),
        ([BASE, replace(BASE, strategy="best", upstream_cycles=80, upstream_differ=3, compiler_differ=0)], "best"),
        ([replace(BASE, upstream_cycles=100)], "2"),
        ([replace(BASE, upstream_cycles=101)], None),
    ],
)
def test_only_confirmed_cuts_that_are_no_slower_are_recommended(rows: list[Row], wanted: str | None) -> None:
    ((key, row),) = recommended(rows).items()
    assert key == ("m.onnx", 0, "bm1684x", "int8", 1) and (row and row.strategy) == wanted


def test_nothing_is_recommended_without_two_profiles() -> None:
    rows = [replace(BASE, upstream_cycles=None), replace(BASE, compiler_cycles=None), replace(BASE, upstream_differ=1)]
    assert recommended(rows) == {}
