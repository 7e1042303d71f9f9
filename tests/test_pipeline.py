"""The digits network from ONNX to the machine: in one run, stage by stage, and resumed from edited text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end import (
    DIGITS,
    LABELLED,
    MODULES,
    SAMPLES,
    assert_equal,
    digits_run,
    floats,
    hashes,
    report_of,
    small_convnet,
    tensors,
)
from rich.pretty import pretty_repr

import tpusim
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import read_table
from tpusim.cli import main
from tpusim.errors import ConfigError, TpusimError
from tpusim.inference import float_upstream
from tpusim.ir.module import load_model
from tpusim.ir.text import print_module
from tpusim.isa.stream import load
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.ops import context
from tpusim.running.persistence import stage_keys
from tpusim.running.pipeline import ARTEFACTS, STAGES, Artefacts, RunConfig, run
from tpusim.running.store import Store
from tpusim.simulator import Simulator, SimulatorOptions
from tpusim.studies.export import MEASURES
from tpusim.verify.schema import read_report
from tpusim.version import __version__

CHIPS = ("bm1684x", "bm1684")
CASES = [(chip, mode) for chip in CHIPS for mode in ("int8", "f32")]

REPORT = {
    "tpusim",
    "model",
    "chip",
    "mode",
    "asymmetric",
    "stages",
    "compare",
    "groups",
    "memory",
    "totals",
    "accuracy",
}
COMPARISON = {"passed", "bit_exact", "compared", "missing", "min_cosine", "min_euclidean", "tensors"}
TENSOR = {"name", "verdict", "cosine", "euclidean", "sqnr_db", "bit_exact"}
GROUP = {"id", "ops", "secs", "lmem_peak_bytes", "lmem_bytes", "load_bytes", "store_bytes", "cycles"}
TOTALS = {"commands", "load_bytes", "store_bytes", "cycles", "milliseconds", "macs"}
ACCURACY = {"samples", "float_top1", "int8_top1"}
ADDED = {
    "totals": {
        "compulsory_bytes",
        "mac_cycles",
        "traffic_ratio",
        "cycle_ratio",
        "clock_milliseconds",
        "time_factor",
        "time_residual",
    },
    "report": {"schema", "passed", "fidelity", "engines", "cores", "roofline", "run", "warnings"},
    "comparison": {
        *("worst", "tolerance", "only_in_target", "only_in_reference", "excepted", "not_sampled"),
        *("decides", "lost", "samples", "over_samples"),
    },
    "tensor": {"passed", "close_order", "shape", "dtype", "note"},
    "group": {"reason", "tiu_cycles", "gdma_cycles", "dependency_cycles", "sync_cycles", "bound"},
    "accuracy": {
        "local_top1",
        "local_samples",
        "local_bit_exact_samples",
        "local_exact_tensors",
        "lost",
        "gained",
        "max_drop",
    },
}
"""Keys beyond architecture section 8; extend when a key is added, never take one away."""


@pytest.fixture(params=CASES, ids=["-".join(c) for c in CASES])
def artefacts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run of every chip and mode."""
    return digits_run(tmp_path_factory, *request.param)


@pytest.fixture
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_run(tmp_path_factory, "bm1684x", "int8")


def config(out: Path, **more: Any) -> RunConfig:
    """The configuration of the shared bm1684x int8 run, without labels."""
    base = RunConfig(
        model=DIGITS / "digits.onnx",
        calibration=CalibrationConfig(max_samples=SAMPLES),
        data=str(DIGITS / "calibration.npz"),
        out=out,
    )
    return replace(base, **more)


def command(*words: str | Path) -> None:
    assert main([str(w) for w in words]) == 0


# --- the run


def test_files(artefacts: Path):
    int8_only = {"3_calibrated.mlir", "cali_table"} if artefacts.parent.name.count("int8") else set[str]()
    expected = {*MODULES} - {"3_calibrated.mlir"} | int8_only
    expected |= {"weights.npz", "canonical_weights.npz", "tpu_weights.npz", "chip_weights.npz", "inputs.npz"}
    expected |= {f"{level}_outputs.npz" for level in ("onnx", "top", "tpu", "local")}
    expected |= {"7_model.tpusim", "trace.json", "accuracy.json", "report.json", "report.html"}
    expected |= {"graph.json", *(f"graph_{measure}.json" for measure in MEASURES)}
    assert {path.name for path in artefacts.iterdir()} == expected | {"manifest.json"}
    assert expected == set(ARTEFACTS) - ({"3_calibrated.mlir", "cali_table"} - int8_only)


@pytest.fixture
def used(tmp_path: Path, int8: Path) -> Path:
    """A folder with the artefacts of an earlier run, and a file and a folder of somebody's."""
    folder = tmp_path / "used"
    shutil.copytree(int8, folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "5_grouped_weights.npz").write_bytes(b"of tpusim group")
    (folder / "pictures").mkdir()
    return folder


OTHERS = {"notes.txt", "5_grouped_weights.npz", "pictures", "manifest.json"}


def failing(a: Artefacts) -> None:
    raise ConfigError("this stage fails")


def test_a_run_that_fails_leaves_the_run_before_and_what_it_finished(used: Path, monkeypatch: pytest.MonkeyPatch):
    before = hashes(used)
    monkeypatch.setitem(STAGES, "lower", failing)
    with pytest.raises(ConfigError) as caught:
        run(config(used, data="random:2"))
    assert f"finished up to 'calibrate', see {used / 'unfinished'}" in caught.value.__notes__[0]
    finished = {f"unfinished/{name}" for name in ("manifest.json", "cali_table", "inputs.npz")}
    finished |= {f"unfinished/{name}" for name in ("weights.npz", "canonical_weights.npz", *MODULES[:3])}
    after = hashes(used)
    assert set(after) - set(before) == finished and {name: after[name] for name in before} == before


def test_resume_runs_what_is_not_complete(tmp_path: Path, int8: Path, monkeypatch: pytest.MonkeyPatch):
    """With the same options nothing runs twice, and the result is that of a run in one go."""
    with monkeypatch.context() as patch, pytest.raises(ConfigError):
        patch.setitem(STAGES, "infer", failing)
        run(config(tmp_path))
    ran: list[str] = []
    for name, stage in STAGES.items():
        monkeypatch.setitem(STAGES, name, lambda a, name=name, stage=stage: (ran.append(name), stage(a))[1])
    found = run(config(tmp_path, resume=True))
    assert ran == ["infer", "simulate", "verify"] and [name for name, _ in found.stages] == list(STAGES)
    assert found.report is not None and found.report.passed and not (tmp_path / "unfinished").exists()
    assert_equal(tensors(tmp_path / "local_outputs.npz"), tensors(int8 / "local_outputs.npz"))
    ran.clear()
    assert run(config(tmp_path, resume=True)).report is not None
    assert ran == ["verify"]
    ran.clear()
    run(config(tmp_path, resume=True, lowering=LoweringConfig("bm1688"), to="lower"))
    assert ran == ["lower"]


def test_a_run_without_test_data_depends_on_no_file_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The working directory holds other things, the results of a run among them."""
    monkeypatch.chdir(tmp_path)
    before, tested = (stage_keys(config(tmp_path, test_data=data)) for data in (None, str(tmp_path)))
    (tmp_path / "note.txt").write_text("new")
    after, retested = (stage_keys(config(tmp_path, test_data=data)) for data in (None, str(tmp_path)))
    assert before == after and tested["simulate"] != retested["simulate"]


def test_from_a_stage_goes_on_with_what_a_person_edited(used: Path):
    source = (used / "4_tpu.mlir").read_text()
    line = next(s for s in source.splitlines() if "tpu.Conv2D" in s)
    first = line.split("multiplier = [")[1].split(" ")[0]
    edited = source.replace(line, line.replace(f"multiplier = [{first} ", f"multiplier = [{int(first) // 2} ", 1))
    (used / "4_tpu.mlir").write_text(edited)
    before = tensors(used / "chip_weights.npz")
    run(config(used, start="group", to="codegen"))
    assert (used / "4_tpu.mlir").read_text() == edited
    after = tensors(used / "chip_weights.npz")
    assert any(not np.array_equal(after[name], before[name]) for name in before)
    with pytest.raises(ConfigError, match="start='group': 'calibrate' must be complete in .* with the same options"):
        run(config(used, start="group", data="random:2"))
    with pytest.raises(ConfigError, match="start='verify': a stage up to to='lower'"):
        run(config(used, start="verify", to="lower"))


def test_interrupted_ends_in_one_line(used: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def interrupted(a: Artefacts) -> None:
        raise KeyboardInterrupt

    before = hashes(used)
    monkeypatch.setitem(STAGES, "lower", interrupted)
    assert main(["run", str(DIGITS / "digits.onnx"), "--data", "random:1", "--out", str(used)]) == 130
    err = capsys.readouterr().err
    last = err.splitlines()[-1]  # after the lines of the stages
    assert last.startswith("tpusim: interrupted; finished up to 'calibrate', see ") and "Traceback" not in err
    assert {name: found for name, found in hashes(used).items() if not name.startswith("unfinished")} == before


def test_somebodys_files_are_never_replaced(used: Path):
    (used / "inputs.npz").write_bytes(b"mine")
    before = hashes(used)
    with pytest.raises(ConfigError, match="inputs.npz was changed since a run wrote it and would be lost"):
        run(config(used))
    assert hashes(used) == before


def test_a_run_to_a_stage_leaves_no_later_ones_of_the_run_before(used: Path):
    run(config(used, to="import"))
    assert {path.name for path in used.iterdir()} == OTHERS | {"1_top.mlir", "weights.npz"}


@pytest.mark.parametrize("data", ["inputs.npz", "link.npz", ""])
def test_a_run_keeps_what_it_reads(used: Path, data: str):
    """Given by its name, through a link, or as a folder of samples."""
    (used / "link.npz").symlink_to(used / "inputs.npz")
    table = (used / "cali_table").read_text()
    run(config(used, table=used / "cali_table", data=str(used / data), to="import"))
    left = {path.name for path in used.iterdir()} - OTHERS - {"link.npz", "1_top.mlir", "weights.npz"}
    samples = {"inputs.npz"} if data else {name for name in ARTEFACTS if name.endswith(".npz")} - {"weights.npz"}
    assert left == samples | {"cali_table"}
    assert (used / "cali_table").read_text() == table


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": Path("no.onnx")},
        {"data": "no-samples.npz"},
        {"labels": Path("no-labels.npz")},
        {"start": "nowhere"},
        {"table": Path("no-table"), "lowering": LoweringConfig(mode="f32")},
        {"to": "lowerr"},
        {"lowering": LoweringConfig("bm1")},
        {"layer_group": LayerGroupConfig(cores=3)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_run_refused_at_once_removes_nothing(used: Path, wrong: dict[str, Any]):
    before = hashes(used)
    with pytest.raises(TpusimError):
        run(config(used, **wrong))
    assert hashes(used) == before and not (used / "unfinished").exists()


def test_report_has_exactly_the_documented_keys(artefacts: Path):
    assert read_report(artefacts / "report.json").fidelity is not None
    report = report_of(artefacts)
    assert set(report) == REPORT | ADDED["report"]
    assert set(report["compare"]) == {"top_vs_onnx", "tpu_vs_top", "local_vs_tpu"}
    integers = any("channels" in tensor for tensor in report["compare"]["tpu_vs_top"]["tensors"])
    assert integers == (report["mode"] == "int8")
    for comparison in report["compare"].values():
        assert set(comparison) == COMPARISON | ADDED["comparison"]
        assert comparison["tensors"]
        assert all(set(tensor) - {"channels"} == TENSOR | ADDED["tensor"] for tensor in comparison["tensors"])
    assert report["groups"] and all(set(group) == GROUP | ADDED["group"] for group in report["groups"])
    assert all(set(group["secs"]) == set("ncdhw") for group in report["groups"])
    assert set(report["memory"]) == {"coeff_bytes", "neuron_bytes"}
    assert set(report["totals"]) == TOTALS | ADDED["totals"]
    assert set(report["accuracy"]) == ACCURACY | ADDED["accuracy"]
    assert [stage["name"] for stage in report["stages"]] == list(STAGES)
    assert all(set(stage) == {"name", "seconds"} for stage in report["stages"])


def test_report_values(artefacts: Path):
    report, program = report_of(artefacts), load(artefacts / "7_model.tpusim")
    assert (report["tpusim"], report["model"]) == (__version__, "digits")
    assert artefacts.parent.name.startswith(f"digits_{report['chip']}_{report['mode']}")
    assert report["asymmetric"] is False and report["passed"] is True
    totals, groups = report["totals"], report["groups"]
    assert totals["commands"] == len(program.commands)
    assert [g["id"] for g in groups] == [g.id for g in program.groups]
    for key in ("load_bytes", "store_bytes"):
        assert totals[key] == sum(g[key] for g in groups) > 0
    assert all(0 <= g["lmem_peak_bytes"] <= g["lmem_bytes"] for g in groups)
    assert 0 < max(g["cycles"] for g in groups) <= totals["cycles"]
    # six convolutions and the Gemm: outputs x products per output
    # on BM1684X the depthwise convolution of 32 channels is one of a single group, zeros included, but not in f32
    each = 32 if report["chip"] == "bm1684x" and report["mode"] != "f32" else 1
    macs = 64 * 32 * 9 + 2 * 64 * 32 * 32 * 9 + 16 * 32 * each * 9 + 16 * 32 * 32 + 16 * 64 * 64 + 64 * 10
    assert totals["macs"] == macs
    # 64 lanes x 256 products of a byte per cycle on BM1684X; the vector units' share of f32 on BM1684 is smaller
    assert macs / 2**18 < totals["mac_cycles"] < totals["cycles"]
    assert 64 * 32 * 9 < totals["compulsory_bytes"] <= totals["load_bytes"] + totals["store_bytes"]
    assert totals["traffic_ratio"] * totals["compulsory_bytes"] == pytest.approx(
        totals["load_bytes"] + totals["store_bytes"]
    )
    assert totals["cycle_ratio"] * totals["mac_cycles"] == pytest.approx(totals["cycles"])


def test_comparisons_pass(artefacts: Path):
    compare = report_of(artefacts)["compare"]
    assert all(c["passed"] and c["missing"] >= 0 and c["compared"] > 10 for c in compare.values())
    assert compare["top_vs_onnx"]["min_cosine"] > 0.99999
    assert compare["local_vs_tpu"]["missing"] == 0
    if "int8" in artefacts.parent.name:
        assert compare["local_vs_tpu"]["bit_exact"]
        assert compare["tpu_vs_top"]["min_cosine"] > 0.99
    else:
        assert compare["tpu_vs_top"]["bit_exact"]
        assert compare["local_vs_tpu"]["min_cosine"] > 0.999999


def test_machine_equals_flat(artefacts: Path):
    """Not as the report says it, but byte for byte from the two files."""
    flat, machine = tensors(artefacts / "tpu_outputs.npz"), tensors(artefacts / "local_outputs.npz")
    assert set(flat) - {"image"} <= set(machine) | {"flat_Flatten"}
    upstream = float_upstream(load_model(artefacts / "4_tpu.mlir", context()))
    exact = [n for n in machine if n in flat and flat[n].dtype.kind in "iu" and n not in upstream]
    assert len(exact) == (13 if "int8" in artefacts.parent.name else 0) or len(exact) > 10
    assert all(np.array_equal(machine[n], flat[n]) for n in exact)


def test_accuracy(artefacts: Path):
    found = report_of(artefacts)["accuracy"]
    assert found["samples"] == found["local_samples"] == LABELLED
    integers = "int8" in artefacts.parent.name
    assert (found["local_exact_tensors"] > 0) == integers  # a float mode has none to call exact
    assert found["local_bit_exact_samples"] == (LABELLED if integers else 0)
    assert found["float_top1"] >= 0.97
    assert abs(found["int8_top1"] - found["float_top1"]) <= 0.01
    assert found["local_top1"] == found["int8_top1"]


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_accuracy_on_all_labelled_samples(tmp_path: Path, chip: str):
    settings = config(
        tmp_path,
        lowering=LoweringConfig(chip),
        test_data=str(DIGITS / "test.npz"),
        labels=DIGITS / "labels.npz",
        calibration=CalibrationConfig(),
    )
    accuracy = run(settings).accuracy
    assert accuracy is not None
    assert accuracy["samples"] == accuracy["local_samples"] == accuracy["local_bit_exact_samples"] == 400
    assert accuracy["float_top1"] >= 0.97 and abs(accuracy["int8_top1"] - accuracy["float_top1"]) <= 0.01
    assert accuracy["local_top1"] == accuracy["int8_top1"]


def test_local_samples_limits_the_machine(tmp_path: Path, int8: Path):
    data = int8.parent / "data"
    settings = config(
        tmp_path,
        test_data=str(data / "test.npz"),
        labels=data / "labels.npz",
        local_samples=3,
        table=int8 / "cali_table",
    )
    accuracy = run(settings).accuracy
    assert accuracy is not None and (accuracy["samples"], accuracy["local_samples"]) == (LABELLED, 3)


# --- the same thing in other ways


@pytest.mark.parametrize(("chip", "mode"), CASES)
def test_early_and_late_dma(tmp_path_factory: pytest.TempPathFactory, chip: str, mode: str):
    folder = digits_run(tmp_path_factory, chip, mode)
    program, inputs = load(folder / "7_model.tpusim"), tensors(folder / "inputs.npz")
    found = {
        dma: tpusim.simulate(program, inputs, SimulatorOptions(dma=dma)).tensors  # type: ignore[arg-type]
        for dma in ("early", "late")
    }
    assert_equal(found["early"], found["late"])
    watched = tensors(folder / "local_outputs.npz")
    assert_equal(found["early"], {name: watched[name] for name in found["early"]})


@pytest.mark.parametrize(("chip", "mode"), CASES)
def test_stage_by_stage(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, chip: str, mode: str):
    """The subcommands one after the other make what `run` makes."""
    whole = digits_run(tmp_path_factory, chip, mode)
    target = ("--chip", chip, "--mode", mode)
    command("import", DIGITS / "digits.onnx", "--out", tmp_path / "1_top.mlir")
    command("canonicalize", tmp_path / "1_top.mlir")
    data = ("--data", DIGITS / "calibration.npz", "--samples", SAMPLES)
    before_lowering = "2_canonical.mlir"
    if mode == "int8":
        command("calibrate", tmp_path / "2_canonical.mlir", *data)
        before_lowering = "3_calibrated.mlir"
        ours, theirs = ((p / "cali_table").read_text().splitlines() for p in (tmp_path, whole))
        assert [x for x in ours if not x.startswith("#")] == [x for x in theirs if not x.startswith("#")]
    command("lower", tmp_path / before_lowering, *target)
    command("group", tmp_path / "4_tpu.mlir")
    command("assign", tmp_path / "5_grouped.mlir")
    command("codegen", tmp_path / "6_final.mlir")
    shutil.copy(whole / "inputs.npz", tmp_path)
    inputs = ("--input", tmp_path / "inputs.npz")
    command("infer", DIGITS / "digits.onnx", *inputs, "--all-tensors", "--out", tmp_path / "onnx_outputs.npz")
    command("infer", tmp_path / "2_canonical.mlir", *inputs, "--all-tensors", "--out", tmp_path / "top_outputs.npz")
    command("infer", tmp_path / "4_tpu.mlir", *inputs, "--all-tensors", "--out", tmp_path / "tpu_outputs.npz")
    command("simulate", tmp_path / "7_model.tpusim", *inputs)
    for level in ("onnx", "top", "tpu"):
        assert_equal(tensors(tmp_path / f"{level}_outputs.npz"), tensors(whole / f"{level}_outputs.npz"))
    ours, theirs = tensors(tmp_path / "local_outputs.npz"), tensors(whole / "local_outputs.npz")
    assert_equal(ours, {name: theirs[name] for name in ours})
    one, other = load(tmp_path / "7_model.tpusim"), load(whole / "7_model.tpusim")
    assert (one.commands, one.tensors, one.groups) == (other.commands, other.tensors, other.groups)
    assert np.array_equal(one.coefficients, other.coefficients)
    command("compare", tmp_path / "local_outputs.npz", tmp_path / "tpu_outputs.npz")
    command("compare", tmp_path / "top_outputs.npz", tmp_path / "onnx_outputs.npz", "--tolerance", "0.99,0.99")


@pytest.mark.parametrize("name", MODULES)
def test_modules_do_not_depend_on_when_they_are_made(tmp_path: Path, int8: Path, name: str):
    """A second run gives the same text; artefacts can be compared with diff."""
    if not (tmp_path.parent / "again").exists():
        run(config(tmp_path.parent / "again", to="assign"))
    assert (tmp_path.parent / "again" / name).read_text() == (int8 / name).read_text()


def test_no_stage_changes_what_is_still_being_written(tmp_path: Path, int8: Path, monkeypatch: pytest.MonkeyPatch):
    """Files written after the last stage equal those written during the next stage."""
    held: list[Callable[[], None]] = []
    keep, publish = Store.keep, Store.publish
    monkeypatch.setattr(Store, "keep", lambda *arguments: held.append(lambda: keep(*arguments)))
    monkeypatch.setattr(Store, "publish", lambda *arguments: [write() for write in held] and publish(*arguments))
    run(config(tmp_path / "late"))
    late, wanted = hashes(tmp_path / "late"), hashes(int8)
    same = [name for name in wanted if name.endswith((".mlir", "_weights.npz", "trace.json", ".tpusim"))]
    assert len(same) > 8 and {name: late[name] for name in same} == {name: wanted[name] for name in same}


def test_a_run_and_its_own_table_give_one_program(tmp_path: Path, int8: Path):
    """With a table nothing is measured; constants come from the decimals printed, so the bytes are those of the run."""
    found = run(config(tmp_path, table=int8 / "cali_table", data="random:1", to="codegen"))
    assert found.table is not None
    for name in ("cali_table", "4_tpu.mlir", "7_model.tpusim"):
        assert (tmp_path / name).read_bytes() == (int8 / name).read_bytes()


@pytest.mark.parametrize("chip", CHIPS)
def test_layer_group_changes_no_bit(tmp_path: Path, int8: Path, chip: str):
    def grouped(opt: str) -> Artefacts:
        settings = config(
            tmp_path / opt,
            lowering=LoweringConfig(chip),
            layer_group=LayerGroupConfig(opt),  # type: ignore[arg-type]
            table=int8 / "cali_table",
        )
        return run(settings)

    on, off = grouped("1"), grouped("off")
    assert on.report is not None and off.report is not None and on.report.passed and off.report.passed
    alike = on.tensors["local"].keys() & off.tensors["local"].keys()
    assert on.tensors["local"].keys() - alike <= {"flat_Flatten"}  # a view: global memory has no separate tensor
    assert_equal(*({n: tensors["local"][n] for n in alike} for tensors in (off.tensors, on.tensors)))
    assert all(len(g.ops) == 1 for g in off.report.groups)
    assert max(len(g.ops) for g in on.report.groups) > 5
    assert on.report.totals.store_bytes < off.report.totals.store_bytes


def test_opt_pipeline(tmp_path: Path, int8: Path):
    """The driver of xDSL with named passes: 1_top.mlir to 6_final.mlir in one command, the same module."""
    passes = ",".join(
        [
            "canonicalize",
            f'import-calibration-table{{file="{int8 / "cali_table"}"}}',
            "convert-top-to-tpu{chip=bm1684x mode=int8}",
            "weight-reorder",
            "layer-group{opt=2}",
            "address-assign",
        ]
    )
    command("opt", int8 / "1_top.mlir", "-p", passes, "-o", tmp_path / "all.mlir")
    command("run", *run_words(tmp_path / "run", int8), "--to", "assign")
    ours = (tmp_path / "all.mlir").read_text().replace("all_weights.npz", "chip_weights.npz")
    assert sorted(ours.splitlines()[1:]) == sorted((tmp_path / "run" / "6_final.mlir").read_text().splitlines()[1:])
    assert_equal(tensors(tmp_path / "all_weights.npz"), tensors(tmp_path / "run" / "chip_weights.npz"))


def run_words(out: Path, reference: Path) -> tuple[str | Path, ...]:
    return (DIGITS / "digits.onnx", "--data", "random:1", "--table", reference / "cali_table", "--out", out)


def test_opt_one_pass_to_stdout(int8: Path, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    command("opt", int8 / "1_top.mlir", "-p", "canonicalize")
    out = capsys.readouterr().out
    assert out.count('"top.Conv"') == 6 and "top.BatchNorm" not in out and 'tpusim.framework = "logits"' in out


def test_opt_prints_the_form_that_was_asked_for(tmp_path: Path, int8: Path, capsys: pytest.CaptureFixture[str]):
    """Generic and plain form are the same module; a target that the driver does not have is a usage error."""
    source, generic = int8 / "1_top.mlir", tmp_path / "generic.mlir"
    command("opt", source, "-p", "canonicalize", "-o", tmp_path / "plain.mlir")
    command("opt", source, "-p", "canonicalize", "--print-op-generic", "-o", generic)
    begin = '"builtin.module"() <{sym_name = "digits"}> ({'
    assert generic.read_text().startswith(begin) and '"func.func"() <{' in generic.read_text()
    plain, same = (load_model(tmp_path / f"{name}.mlir", context()) for name in ("plain", "generic"))
    assert_equal(plain.weights, same.weights)
    same.set(weight_file=plain.attribute("module.weight_file"))
    assert print_module(same.module) == print_module(plain.module)
    capsys.readouterr()
    command("opt", source, "-t", "mlir", "--print-op-generic")
    assert capsys.readouterr().out.startswith(begin)
    with pytest.raises(SystemExit) as caught:
        main(["opt", str(source), "-t", "llvm"])
    assert caught.value.code == 2 and "choose from mlir" in capsys.readouterr().err


# --- resume from edited text


def resume(folder: Path, name: str, source: str, *stages: str) -> dict[str, np.ndarray]:
    """Write an edited module, run the later stages on it, return the machine's tensors."""
    (folder / name).write_text(source)
    files = {"group": "4_tpu.mlir", "assign": "5_grouped.mlir", "codegen": "6_final.mlir"}
    for stage in stages:
        command(stage, folder / files[stage])
    command("simulate", folder / "7_model.tpusim", "--input", folder / "inputs.npz")
    command("infer", folder / "4_tpu.mlir", "--input", folder / "inputs.npz", "--all-tensors")
    return tensors(folder / "local_outputs.npz")


def test_resume_from_an_edited_multiplier(tmp_path: Path, int8: Path):
    """Half the multiplier of one requant: its output halves, what lies before it stays, the machine follows."""
    folder = tmp_path / "edited"
    shutil.copytree(int8, folder)
    source = (folder / "4_tpu.mlir").read_text()
    pattern = r'("tpu\.MatMul".*?multipliers = \[)(\d+)( : i64\])'
    found = re.search(pattern, source)
    assert found is not None
    edited = re.sub(pattern, lambda m: f"{m[1]}{int(m[2]) // 2}{m[3]}", source)
    local = resume(folder, "4_tpu.mlir", edited, "group", "assign", "codegen")
    flat, before = tensors(folder / "4_tpu_outputs.npz"), tensors(int8 / "tpu_outputs.npz")
    assert not np.array_equal(flat["logits_Gemm"], before["logits_Gemm"])
    assert np.abs(flat["logits_Gemm"].astype(int) * 2 - before["logits_Gemm"]).max() <= 2
    assert np.array_equal(flat["global_GlobalAveragePool"], before["global_GlobalAveragePool"])
    assert all(
        np.array_equal(local[n], flat[n]) for n in ("logits_Gemm", "logits_Gemm_f32", "global_GlobalAveragePool")
    )


def moved(source: str, op: str, address: int) -> str:
    """The grouped module with an op's result at another local-memory address."""
    pattern = rf'(#tpu\.lg<out_addr = )\d+([^>]*>[^\n]*loc\("{op}"\))'
    changed, count = re.subn(pattern, rf"\g<1>{address}\g<2>", source)
    assert count == 1
    return changed


def test_resume_with_another_address(tmp_path: Path, int8: Path):
    """Local-memory addresses in the text are obeyed: a tensor moved by hand is found at its new place."""
    folder = tmp_path / "edited"
    shutil.copytree(int8, folder)
    source = (folder / "5_grouped.mlir").read_text()
    pooled = "global_GlobalAveragePool"
    edited = moved(moved(source, pooled, 65536), f"store_{pooled}", 65536)
    local = resume(folder, "5_grouped.mlir", edited, "assign", "codegen")
    before = tensors(int8 / "local_outputs.npz")
    assert_equal(local, {name: before[name] for name in local})
    assert "65536" in (folder / "6_final.mlir").read_text()


def test_resume_with_a_wrong_address(tmp_path: Path, int8: Path, capsys: pytest.CaptureFixture[str]):
    """A tensor moved onto a tensor that is still needed: the machine refuses it and names both."""
    folder = tmp_path / "edited"
    shutil.copytree(int8, folder)
    source = (folder / "5_grouped.mlir").read_text()
    first = re.search(
        r'"tpu\.Load"[^\n]*out_addr = (\d+)[^\n]*loc\("load_block_b_conv_Conv_filter_int8_merged"\)', source
    )
    assert first is not None
    (folder / "5_grouped.mlir").write_text(moved(source, "stem_Relu", int(first[1])))
    command("assign", folder / "5_grouped.mlir")
    statuses = [main(["codegen", str(folder / "6_final.mlir")])]
    statuses.append(main(["simulate", str(folder / "7_model.tpusim"), "--input", str(folder / "inputs.npz")]))
    assert 1 in statuses
    assert re.search(r"tpusim: .*(stem|block_b)", capsys.readouterr().err)


# --- batches


@pytest.mark.parametrize(("chip", "batch"), [("bm1684x", 4), pytest.param("bm1684", 8, marks=pytest.mark.slow)])
def test_batches_are_cut(tmp_path: Path, chip: str, batch: int):
    """A batch is cut into n sections when it does not fit at once (on bm1684 by four, as it packs); the bits stay."""
    model = small_convnet(tmp_path / "batch.onnx", batch=batch, size=160)
    largest = CalibrationConfig("max")
    settings = RunConfig(model, LoweringConfig(chip), largest, data="random:1", out=tmp_path / "out")
    found = run(settings)
    assert found.report is not None and found.report.passed
    assert found.comparisons["local_vs_tpu"].bit_exact
    secs = [g.secs for g in found.report.groups if len(g.ops) > 1]
    assert any(s["n"] > 1 for s in secs)
    single = run(replace(settings, layer_group=LayerGroupConfig("off"), out=tmp_path / "off", to="codegen"))
    assert single.program is not None
    alone = Simulator(single.program).run(tensors(tmp_path / "out" / "inputs.npz"), watch=True).tensors
    together = found.tensors["local"]
    assert together.keys() - alone.keys() <= {"flat_Flatten"}  # a view
    assert_equal(alone, {name: together[name] for name in alone})


@pytest.mark.slow
def test_batch_size_does_not_change_an_image(tmp_path: Path):
    """Four images in one batch give what each gives alone."""
    one = small_convnet(tmp_path / "one.onnx", batch=1)
    four = small_convnet(tmp_path / "four.onnx", batch=4)
    images = floats(8, 3, 16, 16)
    np.savez(tmp_path / "data.npz", x=images)
    common = {"data": str(tmp_path / "data.npz"), "lowering": LoweringConfig("bm1684x")}
    first = run(RunConfig(model=one, out=tmp_path / "1", **common))  # type: ignore[arg-type]
    table = tmp_path / "1" / "cali_table"
    batch = run(RunConfig(model=four, out=tmp_path / "4", table=table, **common))  # type: ignore[arg-type]
    again = run(RunConfig(model=one, out=tmp_path / "1t", table=table, **common))  # type: ignore[arg-type]
    assert first.machine is not None and batch.machine is not None and again.machine is not None
    whole = batch.machine.run({"x": images[:4]}).tensors["y_Gemm_f32"]
    alone = [again.machine.run({"x": images[i : i + 1]}).tensors["y_Gemm_f32"] for i in range(4)]
    assert np.array_equal(whole, np.concatenate(alone))


# --- the Python interface


def test_public_api(int8: Path):
    """load, compile, infer, simulate, compare, as in the package's docstring."""
    model = tpusim.load(DIGITS / "digits.onnx")
    images = np.load(DIGITS / "calibration.npz")["image"][:4]
    program = tpusim.compile(model, [{"image": image[None]} for image in images]).program
    sample = {"image": images[:1]}
    local = tpusim.simulate(program, sample).tensors["logits_Gemm_f32"]
    reference = tpusim.infer(model, sample)["logits_Gemm"]
    found = tpusim.compare({"logits": local}, {"logits": reference}, "0.95,0.8")
    assert found.passed and found.compared == 1
    assert tpusim.load(int8 / "4_tpu.mlir").state == "TPU_LOWERED"


def test_reprs_are_short_and_say_what_it_is(int8: Path, tmp_path: Path):
    """One line each in a notebook, where the fields would be tens of kilobytes."""
    program, sample = load(int8 / "7_model.tpusim"), tensors(int8 / "inputs.npz")
    result, module = tpusim.simulate(program, sample), load_model(int8 / "4_tpu.mlir", context())
    compared = tpusim.compare(result.tensors, {n: t + 1 for n, t in result.tensors.items()})
    said = {
        repr(program): f"<Program digits for bm1684x in int8: {len(program.commands):,} commands",
        repr(module): "<Model digits for bm1684x in int8: TPU_LOWERED, ",
        repr(module.weights): f"<WeightStore: {len(module.weights)} arrays, ",
        repr(read_table(int8 / "cali_table")): "<CalibrationTable: 14 entries, ",
        repr(result): f"<SimulationResult: {len(result.tensors)} tensors; {len(program.commands)} commands, ",
        repr(result.timeline): f"<Timeline: {len(program.commands)} commands, {result.timeline.cycles:,} cycles",
        repr(compared): "<Comparison: FAILED, ",
        repr(run(config(tmp_path, to="import"))): "<Artefacts of digits.onnx in ",
        pretty_repr(program): "Program(model='digits'",
    }
    assert all(text.startswith(begin) and len(text) < 300 for text, begin in said.items()), list(said)


def test_stop_after_a_stage(tmp_path: Path):
    found = run(config(tmp_path, to="canonicalize"))
    assert [name for name, _ in found.stages] == ["import", "canonicalize"]
    assert found.report is None and not (tmp_path / "report.json").exists()
    with pytest.raises(ConfigError, match="to='nowhere'"):
        run(config(tmp_path, to="nowhere"))
