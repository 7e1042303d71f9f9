"""The roofline: figures are those of the clock and of report.json, limits follow from the model asked another way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from end_to_end import DIGITS as FOLDER
from onnx import TensorProto, helper, numpy_helper

import tpusim
from tpusim import chips
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.cli import main
from tpusim.ir.module import save_model
from tpusim.lowering import LoweringConfig
from tpusim.page.roofs import roofs
from tpusim.simulator import timeline
from tpusim.simulator.roofline import BANDWIDTH, LANES, START_UP, changes
from tpusim.studies.explore.roofline import MEMORY, Found, under_roofs
from tpusim.studies.prospect.fit import assumed
from tpusim.verify.report import Report
from tpusim.verify.schema import ReportFile, read_report

DIGITS = FOLDER / "digits.onnx"


@pytest.fixture(scope="module")
def compiled() -> tuple[tpusim.Compiled, Report, Found]:
    samples = [dict(s) for s in load_samples("random:1", tpusim.inference.input_specs(tpusim.load(DIGITS)))]
    net = tpusim.compile(DIGITS, samples, chip="bm1688", calibration=CalibrationConfig("max", tune_samples=0))
    return net, net.report(), under_roofs(net.tpu)


def test_figures_are_those_of_the_report(compiled: tuple[tpusim.Compiled, Report, Found]) -> None:
    report, found = compiled[1].to_json(), compiled[2].roofs
    assert json.loads(json.dumps(report["roofline"])) == json.loads(json.dumps(found.to_json()))
    assert found.cycles == report["totals"]["cycles"]
    for place, group in zip(found.groups, report["groups"], strict=True):
        own = (place.cycles, place.load_bytes, place.store_bytes, place.name, place.ops)
        assert own == (
            group["cycles"],
            group["load_bytes"],
            group["store_bytes"],
            group["ops"][0],
            len(group["ops"]),
        )
    for places in (found.groups, found.ops):
        assert sum(place.macs for place in places) == report["totals"]["macs"]
        for figure in ("load_bytes", "store_bytes"):
            assert sum(getattr(place, figure) for place in places) == report["totals"][figure]
    for place in found.ops:
        works = [op for op in report["engines"]["ops"] if op["op"] == place.name]
        taken = max(sum(op[f"{engine}_cycles"] for op in works) for engine in ("tiu", "gdma"))
        assert abs(place.cycles - taken) <= len(works)
        assert place.macs <= place.cycles * found.peak_macs


def test_what_would_change_it_is_asked_of_the_clock(compiled: tuple[tpusim.Compiled, Report, Found]) -> None:
    net, _, found = compiled
    others, program = changes(chips.load("bm1688")), net.program
    assert set(others) == {BANDWIDTH, LANES, START_UP} and START_UP not in changes(chips.load("bm1684x"))
    for name, chip in others.items():
        clock = timeline(program, chip)
        assert found.roofs.changed[name] == clock.cycles
        assert [place.changed[name] for place in found.roofs.groups] == [
            clock.groups[g.id].cycles for g in program.groups
        ]
    (again,) = found.regrouped
    spec = chips.load("bm1688").replace("twice the memory", lmem_bytes=2 * chips.load("bm1688").lmem_bytes)
    other = tpusim.compile(DIGITS, chip=spec, table=net.table)
    assert again.name == MEMORY and again.cycles == timeline(other.program, spec).cycles
    assert sum(part.sums("cycles")[0] for part in again.parts) == found.roofs.cycles


def layers(*channels: int, size: int) -> onnx.ModelProto:
    """3x3 convolutions from each number of channels to the next, of size x size pixels."""
    count = len(channels) - 1
    weights = [
        numpy_helper.from_array(np.full((channels[i + 1], channels[i], 3, 3), 0.01, np.float32), f"w{i}")
        for i in range(count)
    ]
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4) for i in range(count)]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, size, size])
        for name, c in (("x0", channels[0]), (f"x{count}", channels[-1]))
    )
    return helper.make_model(helper.make_graph(nodes, "layers", [x], [y], weights))


@pytest.mark.parametrize(
    ("channels", "size", "limit"),
    [((128, 128, 128), 32, "tiu"), ((8, 8, 8), 96, "lanes"), ((512, 512, 512), 4, "load")],
    ids=["full", "few channels", "large filters"],
)
def test_limits(channels: tuple[int, ...], size: int, limit: str, tmp_path: Path) -> None:
    """A convolution of 128 channels fills 64 lanes, one of 8 does not; 2 MiB of filters serve 16 pixels."""
    onnx.save(layers(*channels, size=size), tmp_path / "layers.onnx")
    found = under_roofs(assumed(tmp_path / "layers.onnx", LoweringConfig("bm1684x", "int8"))).roofs
    last = max((place for place in found.ops if place.macs), key=lambda place: place.cycles)
    assert last.limit == limit
    least = {"tiu": LANES, "load": BANDWIDTH}.get(limit)
    if least:
        assert last.best[0] == least and 0.45 <= last.best[1] <= 0.55
    else:
        assert last.changed[LANES] == last.cycles


def test_the_command_and_the_page(
    compiled: tuple[tpusim.Compiled, Report, Found], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net, report, found = compiled
    save_model(net.tpu, tmp_path / "4_tpu.mlir")
    words = ["explore", "roofline", str(tmp_path / "4_tpu.mlir"), "--out", str(tmp_path / "roof.json"), "--ops", "3"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert f"{found.roofs.cycles:,} cycles; roofs 4,096 MAC" in shown and "Ops, 3 of" in shown
    assert json.loads((tmp_path / "roof.json").read_text()) == json.loads(json.dumps(found.to_json()))
    picture = roofs(report.to_json()["roofline"])
    assert picture is not None and len(picture.dots) == sum(
        bool(p.macs and p.intensity) for p in (*found.roofs.groups, *found.roofs.ops)
    )
    assert all(0 < dot.x < picture.width and 0 < dot.y < picture.height for dot in picture.dots)
    path = tpusim.verify.report.write_report(tmp_path, report)
    assert isinstance(read_report(path), ReportFile)
    assert main([*words, "--plot", str(tmp_path / "roof.svg")]) == 0
    drawn = (tmp_path / "roof.svg").read_text()
    assert drawn.count("<circle") == len(picture.dots) and all(says in drawn for says in picture.legend.values())
    assert main([*words, "--plot", str(tmp_path / "roof.png")]) == 1
    assert "a name that ends in .svg is required" in capsys.readouterr().err


def test_options_without_effect_are_refused(
    compiled: tuple[tpusim.Compiled, Report, Found], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lowered module has its chip and mode; what is cut by `best` already is not cut so again."""
    path = tmp_path / "4_tpu.mlir"
    save_model(compiled[0].tpu, path)
    for command in ("roofline", "group"):
        assert main(["explore", command, str(path), "--chip", "cv183x", "--mode", "f16"]) == 1
        assert f"--chip, --mode: {path} is lowered already" in "".join(capsys.readouterr().err.splitlines())
    assert main(["explore", "roofline", str(path), "--best", "--layer-group", "best"]) == 1
    assert "--best: --layer-group best cuts" in capsys.readouterr().err
