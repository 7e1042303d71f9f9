"""Spaces of designs: every point is a row, computed once; the front; what is refused. Digits, few points."""

from __future__ import annotations

import csv
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import numpy as np
import onnx
import pytest
from end_to_end import DIGITS as FOLDER
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.chips import ChipSpec, differences
from tpusim.cli import main
from tpusim.errors import ConfigError, WorkerError
from tpusim.host.workers import Workers
from tpusim.layer_group import LayerGroupConfig, products
from tpusim.running.artefacts import RunConfig
from tpusim.studies.commands.explore_plot import draw, least_over
from tpusim.studies.explore import Row, Space, best_under, explore, front, parse_bounds, parse_setting, read_rows
from tpusim.studies.explore.cost import Bench, _Lowered
from tpusim.studies.explore.front import Bound, cost, undominated

DIGITS = FOLDER / "digits.onnx"
QUICK = CalibrationConfig("max", tune_samples=0)
MEMORY = {"lmem_bytes": (16384, 1000)}


def test_a_point_has_the_figures_of_the_compiled_network(tmp_path: Path) -> None:
    (row,) = explore(Space([DIGITS], data="random:2", calibration=QUICK, verify=True), tmp_path).rows
    top = tpusim.load(DIGITS)
    samples = [dict(s) for s in load_samples("random:2", tpusim.inference.input_specs(top))]
    compiled = tpusim.compile(DIGITS, samples, calibration=QUICK, layer_group=LayerGroupConfig("2"))
    report = compiled.report()
    totals, local = report.totals, [group for group in report.groups if not group.reason]
    assert (row.milliseconds, row.cycles) == (totals.milliseconds, totals.cycles)
    assert row.moved_bytes == totals.load_bytes + totals.store_bytes
    assert (row.groups, row.global_layers) == (len(local), len(report.groups) - len(local))
    assert row.lmem_bytes == max(group.lmem_peak_bytes for group in local)
    assert row.weight_bytes == report.memory.coeff_bytes
    assert row.neuron_bytes == report.memory.neuron_bytes
    expected, found = (
        np.concatenate([tpusim.infer(m, sample)["logits_Gemm"].ravel() for sample in samples])
        for m in (compiled.top, compiled.tpu)
    )
    cosine = np.dot(expected, found) / np.linalg.norm(expected) / np.linalg.norm(found)
    assert row.cosine == pytest.approx(cosine, abs=1e-6) and 0.9 < cosine < 1


def test_one_result_near_zero_does_not_make_a_network_bad(tmp_path: Path) -> None:
    """A network of one result, which the first sample has at zero: what counts is all samples together."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((16, 1)).astype(np.float32)
    rows = rng.standard_normal((8, 16)).astype(np.float32)
    rows[0] -= (rows[0] @ weights) @ np.linalg.pinv(weights)
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])], "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])], [numpy_helper.from_array(weights, "w")],
        ), opset_imports=[helper.make_opsetid("", 13)], ir_version=8,
    )  # fmt: skip
    onnx.save(model, tmp_path / "one.onnx")
    np.savez(tmp_path / "data.npz", x=rows)
    assert abs(float((rows[0] @ weights)[0])) < 1e-5
    space = Space([tmp_path / "one.onnx"], data=str(tmp_path / "data.npz"), calibration=QUICK, verify=True)
    (row,) = explore(space, tmp_path / "out").rows
    assert row.error == "" and row.cosine is not None and row.cosine > 0.999


def test_more_memory_and_bandwidth_are_never_slower(tmp_path: Path) -> None:
    """The best of all strategies; drawn over the memory, one line for each bandwidth."""
    settings = {"lmem_bytes": (2048, 4096, 16384), "bandwidth.s2l": (4.0, 12.0)}
    rows = explore(Space([DIGITS], ["bm1684"], ["f32"], ["1", "2"], settings=settings), tmp_path).rows
    assert len(rows) == 12 and not any(row.error for row in rows)
    found = least_over(rows, "lmem_bytes")
    assert list(found) == ["bm1684 f32 bandwidth.s2l=4.0", "bm1684 f32 bandwidth.s2l=12.0"]
    slow, quick = ([ms for _, ms in line] for line in found.values())
    assert slow == sorted(slow, reverse=True) and quick == sorted(quick, reverse=True) and slow[0] > slow[-1]
    assert all(a > b for a, b in zip(slow, quick, strict=True))
    pytest.importorskip("matplotlib")
    draw(rows, tmp_path / "sweep.svg", over="lmem_bytes")
    assert (tmp_path / "sweep.svg").read_text().count("<use") >= len(rows) / 2


def test_a_larger_batch_moves_weights_once(tmp_path: Path) -> None:
    one, three = explore(Space([DIGITS], modes=["f32"], batches=(0, 3)), tmp_path).rows
    assert one.cycles and three.cycles and one.cycles < three.cycles < 3 * one.cycles
    assert one.weight_bytes == three.weight_bytes and one.front and three.front


def test_killed_and_started_again_gives_the_same_files(tmp_path: Path) -> None:
    space = Space([DIGITS], ["bm1684x", "cv183x"], ["f32"], ["1", "off"], settings=MEMORY)
    whole = explore(space, tmp_path / "whole")
    assert whole.computed == len(whole.rows) == 8 and sum(bool(row.error) for row in whole.rows) == 4
    for stop in (3, 5):

        def interrupt(done: int, total: int, stop: int = stop) -> None:
            if done == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            explore(space, tmp_path / "parts", progress=interrupt)
    (tmp_path / "parts" / "points" / ".half.json.1.tmp").write_text("{")
    rest = explore(space, tmp_path / "parts")
    assert rest.computed == 3 and explore(space, tmp_path / "parts").computed == 0
    for name in ("results.csv", "results.json"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert read_rows(tmp_path / "whole" / "results.json") == list(whole.rows)


def test_others_compute_the_same_rows(tmp_path: Path) -> None:
    """One after the other, in a thread: what they are sent and send back, not how processes begin."""
    space = Space([DIGITS], modes=["f32"], batches=(0, 3), strategies=["1", "off"], settings=MEMORY)
    workers = Workers("a thread", lambda: ThreadPoolExecutor(1), ahead=2)
    found = explore(space, tmp_path / "theirs", workers=workers)
    assert found.rows == explore(space, tmp_path / "own").rows and found.computed == 8
    assert explore(space, tmp_path / "theirs").computed == 0


def test_an_impossible_chip_is_a_row_with_its_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"explore {DIGITS} --chips bm1684 --modes f32,bf16 --cores 1,2 --out {tmp_path}/a"
    words += " --set lmem_bytes=1000,16384"
    assert main([*words.split(), "--best-under", "ms=5,bytes=1e6"]) == 0
    with (tmp_path / "a" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    errors = {(row["settings"], row["mode"], row["cores"]): row["error"] for row in rows}
    assert "multiple of lmem_banks x eu_bytes" in errors["lmem_bytes=1000", "f32", "1"]
    assert "bm1684 lmem_bytes=16384 has 1 core" in errors["lmem_bytes=16384", "f32", "2"]
    assert "supported are f32, int8" in errors["lmem_bytes=16384", "bf16", "1"]
    assert len(rows) == 8 and [key for key, error in errors.items() if not error] == [("lmem_bytes=16384", "f32", "1")]
    shown = " ".join(capsys.readouterr().out.split())
    assert "not possible: " in shown and "best under ms=5,bytes=1e+06: " in shown
    assert main([*words.split(), "--best-under", "ms=1e-9"]) == 1
    assert "0 of 8 points computed" in (shown := capsys.readouterr().out) and "no point under ms=1e-09" in shown


def test_a_defect_is_a_row_that_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space([DIGITS], modes=["f32"], strategies=["off"])
    with monkeypatch.context() as patch:
        patch.setattr("tpusim.studies.explore.cost.timeline", lambda *_: [][1])
        broken = explore(space, tmp_path).rows[0]
    assert broken.error == "defect of tpusim: IndexError: list index out of range" and not broken.front
    assert not explore(space, tmp_path).rows[0].error


SHORT = {
    "at import": ("tpusim.frontend.onnx.importer.Reader._read", MemoryError("no room")),
    "of a constant": ("tpusim.frontend.onnx.folding.Session", MemoryError("no room")),
    "of a module": ("tpusim.studies.explore.network.Canonicalize.rewrite", MemoryError("no room")),
    "of samples": ("tpusim.calibration.samples.arrays.load", MemoryError("no room")),
    "at lowering": ("tpusim.studies.explore.cost.WeightReorder.rewrite", MemoryError("no room")),
    "of a point": ("tpusim.studies.explore.cost.timeline", MemoryError("no room")),
    "of XLA": ("tpusim.studies.explore.cost.timeline", RuntimeError("RESOURCE_EXHAUSTED: Out of memory")),
}


@pytest.mark.parametrize("where", SHORT)
def test_too_little_memory_says_nothing_about_a_point(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no answer: the call fails, nothing is kept, and the next one computes the point."""
    node = [helper.make_node("Add", ["c", "c"], ["d"]), helper.make_node("Add", ["x", "d"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    constant = numpy_helper.from_array(np.ones(4, np.float32), "c")
    graph = helper.make_graph(node, "sum", ends[:1], ends[1:], [constant])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "sum.onnx"
    )
    np.savez(tmp_path / "data.npz", x=np.ones((1, 4), np.float32))
    place, error = SHORT[where]
    words = [
        "explore",
        str(tmp_path / "sum.onnx"),
        "--data",
        str(tmp_path / "data.npz"),
        "--out",
        str(tmp_path / "out"),
    ]
    words += ["--modes", "int8" if where == "of samples" else "f32", "--strategies", "off"]
    with monkeypatch.context() as patch:
        patch.setattr(place, Mock(side_effect=error))
        assert main(words) == 1
    shown = capsys.readouterr()
    assert "not enough memory on this computer: " in shown.out and "1 of 1 points found too little" in shown.err
    assert not list((tmp_path / "out" / "points").iterdir())
    assert main(words) == 0 and "1 of 1 points computed" in capsys.readouterr().out


def test_a_worker_that_dies_says_nothing_about_a_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space([DIGITS], modes=["f32"], strategies=["off"])
    with monkeypatch.context() as patch:
        patch.setattr("tpusim.studies.explore.run._material", Mock(side_effect=WorkerError("it was killed")))
        with pytest.raises(WorkerError):
            explore(space, tmp_path)
    assert not list((tmp_path / "points").iterdir())


def test_a_batch_that_a_network_does_not_take_is_a_row(tmp_path: Path) -> None:
    """Its Reshape puts the batch into another axis."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("shape", TensorProto.INT64, [2], [4, -1])],
    )
    path = tmp_path / "mixed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    (row,) = explore(Space([path], modes=["f32"], batches=[2]), tmp_path / "out").rows
    assert "batch 2: a result of shape (8, 6) is required, got (4, 12)" in row.error


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=12))
def test_the_front_is_what_no_other_point_beats(costs: list[tuple[int, int, int]]) -> None:
    def beats(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))

    found = undominated([tuple(map(float, one)) for one in costs])
    assert found == [not any(beats(other, one) for other in costs) for one in costs]


def row(ms: float, moved: int, cosine: float | None = None, **more: object) -> Row:
    usual = Row("m", "c", "", "int8", "2", 0, 1, milliseconds=ms, moved_bytes=moved, lmem_bytes=1, cosine=cosine)
    return msgspec.structs.replace(usual, **more)


def test_fronts_and_bounds_are_of_one_model_and_batch() -> None:
    rows = [row(3, 5, 0.9), row(2, 9, 0.99), row(4, 6, 0.999), row(9, 9, batch=4), row(1, 1, error="no")]
    assert [one.front for one in front(rows)] == [True, True, False, True, False]
    assert [one.front for one in front(rows, ("ms", "cos"))] == [False, True, True, True, False]
    assert cost(rows[1], "cos") == -0.99
    bounds = parse_bounds("ms=5, cos=0.99", verified=True)
    assert bounds == (Bound("ms", 5.0), Bound("cos", 0.99))
    assert best_under(rows, bounds) == {("m", 0): rows[1], ("m", 4): None}


@pytest.mark.every
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set lmem_byte=1024", "no such field that can be varied; did you mean lmem_bytes"),
        ("--set bandwidth=3", "did you mean bandwidth."),
        ("--set lmem_bytes=many", "a value like 262144 is required, got 'many'"),
        ("--set name=x", "no such field"),
        ("--set lmem_bytes", "FIELD=VALUE,VALUE is required"),
        ("--set cores=1 --set cores=2", "a field is given twice"),
        ("--chips bm1", "unknown chip 'bm1'"),
        ("--modes int9", "int9"),
        ("--strategies 3", "--strategies 3: expected one of 1, 2, off, best"),
        ("--batches x", "--batches x: numbers are required"),
        ("--cores 0", "--cores 0: 1 or more is required"),
        ("--modes ,", "modes: at least one value is required"),
        ("--front cos", "--front cos: similarities are measured with --verify"),
        ("--best-under mb=3", "--best-under 'mb': expected one of ms, cycles"),
        ("--best-under ms=soon", "MEASURE=NUMBER is required"),
        ("--plot a.gif", "a name that ends in .png or .svg"),
        ("--plot-over lmem_bytes --set lmem_bytes=1024", "--plot FILE is required, where it is drawn"),
        ("--plot a.png --plot-over lmem_bytes", "a field of numbers that --set varies is required"),
    ],
)
def test_what_no_point_could_have_is_refused_at_once(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    assert main(["explore", str(DIGITS), "--out", str(tmp_path / "out"), *words.split()]) == 1
    assert said in " ".join(capsys.readouterr().err.split()) and not (tmp_path / "out").exists()


def test_settings_are_typed_and_make_a_chip() -> None:
    assert parse_setting("chip.bandwidth.s2l=16,32.5") == ("bandwidth.s2l", (16, 32.5))
    settings = dict([parse_setting("bandwidth.s2l=16"), parse_setting("bias_rounded=false"), parse_setting("cores=1")])
    (point,) = Space([DIGITS], settings=settings).points()
    base = ChipSpec.load("bm1684x")
    assert differences(base, point.spec()) == {
        "bandwidth.s2l": (base.bandwidth.s2l, 16.0),
        "bias_rounded": (True, False),
    }
    usual = Space([DIGITS], settings={"cores": [1]}).points()[0]
    assert usual.spec() is base
    still = Space([DIGITS], settings={"bandwidth.l2s": [0.0]}).points()[0]
    with pytest.raises(ConfigError, match=r"bandwidth.l2s: above 0 and at most 1e\+06 is required, got 0.0"):
        still.spec()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("mine")
    with pytest.raises(ConfigError, match="was not written by an exploration"):
        explore(Space([DIGITS]), tmp_path)
    assert (tmp_path / "results.csv").read_text() == "mine"


def test_parquet_has_the_rows_in_typed_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a stand-in for pyarrow, which the tests do not need."""
    from tpusim.studies.explore import results

    kinds = {name: (lambda name=name: name) for name in ("string", "bool_", "int64", "float64")}
    made = SimpleNamespace(from_pylist=lambda rows, schema: json.dumps([rows, schema]))
    arrow = SimpleNamespace(**kinds, schema=lambda fields: fields, Table=made)
    parquet = SimpleNamespace(write_table=lambda table, path: Path(path).write_text(table))
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    monkeypatch.setattr(results, "has_parquet", lambda: True)
    written = results.write_results([row(1.0, 2)], tmp_path)
    rows, schema = json.loads(written[-1].read_text())
    assert written[-1].name == "results.parquet" and rows[0]["milliseconds"] == 1.0
    assert {"milliseconds": "float64", "cycles": "int64", "front": "bool_", "chip": "string"}.items() <= dict(
        schema
    ).items()


def test_chips_show_and_diff(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chips", "diff", "cv182x", "cv183x"]) == 0
    assert "lmem_bytes: 32768 | 32768" not in (shown := capsys.readouterr().out) and "lanes: 8 | 32" in shown
    assert main(["chips", "diff", "cv182x", "cv182x"]) == 0 and not capsys.readouterr().out
    assert main(["chips", "show", "cv182x"]) == 0 and "bandwidth.s2l = " in capsys.readouterr().out
    assert main(["chips", "diff", "cv182x"]) == 1
    assert "show CHIP, diff CHIP CHIP, or no word at all is required" in capsys.readouterr().err


ENERGIES = {"energy_pj_per_byte": (20.0,), "energy_pj_per_mac": (0.5,)}


def test_energy_is_counted_where_the_chip_gives_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes and products times what each takes; blank without, refused where nothing gives it or one half only."""
    rows = explore(Space([DIGITS], modes=["f32"], settings={**ENERGIES, "lmem_bytes": (16384, 131072)}), tmp_path).rows
    model = tpusim.compile(DIGITS, mode="f32").tpu
    macs = sum(products(model)[0].values())
    assert macs and [row.energy_uj for row in rows] == [
        pytest.approx((20 * (row.moved_bytes or 0) + 0.5 * macs) / 1e6) for row in rows
    ]
    found = front(rows, ["energy"])
    assert {row.energy_uj for row in found if row.front} == {min(row.energy_uj or 0 for row in rows)}
    (blank,) = explore(Space([DIGITS], modes=["f32"]), tmp_path).rows
    assert blank.energy_uj is None and not Bound("energy", 1e9).holds(blank)
    words = ["explore", str(DIGITS), "--modes", "f32", "--out", str(tmp_path)]
    for more in (["--front", "energy"], ["--best-under", "energy=1"]):
        assert main([*words, *more]) == 1
        assert "energy_pj_per_mac are required" in " ".join(capsys.readouterr().err.split())
    half = explore(Space([DIGITS], modes=["f32"], settings={"energy_pj_per_mac": (0.5,)}), tmp_path).rows
    assert "both above 0, or none of them" in half[0].error


@pytest.mark.parametrize("chip", ["bm1684", "bm1684x", "bm1688", "cv183x"])
def test_no_point_is_below_its_bounds(tmp_path: Path, chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes and cycles; on chips whose engines take turns, of both engines together. The table has the distances."""
    space = Space([DIGITS], [chip], ["int8"], ["1", "off"], (1, 4), data="random:1", calibration=QUICK)
    rows = explore(space, tmp_path).rows
    for row in rows:
        assert row.cycles and row.moved_bytes and row.least_cycles and row.least_bytes
        assert row.least_bytes <= row.moved_bytes and row.least_cycles <= row.cycles
    words = ["explore", str(DIGITS), "--chips", chip, "--strategies", "1,off", "--batches", "1,4", "--data", "random:1"]
    assert main([*words, "--method", "max", "--tune-num", "0", "--out", str(tmp_path)]) == 0
    row, shown = rows[0], " ".join(capsys.readouterr().out.split())
    assert f"{row.moved_bytes / row.least_bytes:.2f}, {row.cycles / row.least_cycles:.2f}" in shown  # type: ignore[operator]


def test_strategies_that_a_chip_searches_alike_share_their_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CV18xx 2 is 1, and F16 and F32 are BF16: six points, two compilations; notes stay with their points."""
    made: list[str] = []

    def counted(config: RunConfig, lowered: _Lowered, chip: ChipSpec) -> dict[str, object]:
        made.append(config.layer_group.opt)
        return costs(config, lowered, chip)

    costs = Bench._costs
    monkeypatch.setattr(Bench, "_costs", staticmethod(counted))
    rows = explore(Space([DIGITS], ["cv183x"], ["f16", "f32"], ["1", "2", "off"]), tmp_path).rows
    assert made == ["1", "off"] and len(rows) == 6
    assert [f"mode {row.mode} on cv183x" in row.note for row in rows] == [True] * 6
    figures = [replace(row, mode="", strategy="", note="", front=False) for row in rows]
    assert figures[0] == figures[1] == figures[3] == figures[4] and figures[2] == figures[5] != figures[0]
