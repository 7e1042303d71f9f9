"""The what-if page: figures of the shipped group are those of report.json, refused alternatives name their rule."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from end_to_end import DIGITS as FOLDER

import tpusim
from tpusim.calibration.samples import load_samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.ir.module import save_model
from tpusim.layer_group import LayerGroupConfig
from tpusim.page.whatif import what_if_page, write_what_if
from tpusim.studies.explore.whatif import WhatIf, what_if
from tpusim.verify.report import Report

DIGITS = FOLDER / "digits.onnx"


@pytest.fixture(scope="module")
def found() -> tuple[Report, WhatIf, tpusim.Model]:
    samples = [dict(s) for s in load_samples("random:1", tpusim.inference.input_specs(tpusim.load(DIGITS)))]
    net = tpusim.compile(DIGITS, samples, chip="bm1684x", calibration=CalibrationConfig("max", tune_samples=0))
    return net.report(), what_if(net.tpu), net.tpu


def test_the_shipped_group_is_that_of_the_report(found: tuple[Report, WhatIf, tpusim.Model]) -> None:
    report, alternatives, _ = found[0].to_json(), found[1], found[2]
    shipped = alternatives.alternatives[0]
    assert shipped.shipped and shipped.view is not None
    for name in ("cycles", "milliseconds", "load_bytes", "store_bytes"):
        assert shipped.figures[name] == report["totals"][name]
    group = next(g for g in report["groups"] if g["ops"][0] == alternatives.ops[0])
    assert shipped.figures["group"] == {name: group[name] for name in shipped.figures["group"]}
    assert max((g for g in report["groups"] if not g["reason"]), key=lambda g: g["cycles"]) == group


def test_alternatives_are_compiled_or_refused_by_a_rule(found: tuple[Report, WhatIf, tpusim.Model]) -> None:
    _, alternatives, tpu = found
    others = alternatives.alternatives[1:]
    assert {one.knob for one in others} == {"end of the group", "sections h", "sections n", "type", "in place"}
    for one in others:
        assert bool(one.figures) != bool(one.why) and bool(one.why) == bool(one.change)
        assert not one.why or re.search(r"rule [\w-]+:", one.why), one.why
    shorter = next(one for one in others if one.value == "-1 op")
    assert shorter.view is not None and len(shorter.view.ops) == len(alternatives.ops) - 1
    longer = next(one for one in others if one.value == "+2 ops")
    assert "rule local: tpu.MatMul 'logits_Gemm'" in longer.why and longer.change == "end of the group +1 op works"
    with pytest.raises(ConfigError, match="group=7: the module has groups 0 to 2 only"):
        what_if(tpu, LayerGroupConfig(), 7)


def test_the_page_has_all_of_them(found: tuple[Report, WhatIf, tpusim.Model], tmp_path: Path) -> None:
    _, alternatives, tpu = found
    text = what_if_page(alternatives)
    assert text.count('class="alternative"') == len(alternatives.alternatives)
    assert f"{alternatives.alternatives[0].figures['cycles']:,}" in text and "http" not in text.replace("xmlns", "")
    save_model(tpu, tmp_path / "4_tpu.mlir")
    page = tmp_path / "page.html"
    assert main(["explore", "group", str(tmp_path / "4_tpu.mlir"), "--out", str(page)]) == 0
    assert page.read_text() == text


def test_the_slider_shows_another_alternative(found: tuple[Report, WhatIf, tpusim.Model], tmp_path: Path) -> None:
    """In Chromium, without an error on the console."""
    sync = pytest.importorskip("playwright.sync_api")
    chromium = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if chromium is None:
        pytest.skip("no chromium on the path")
    page = tmp_path / "page.html"
    write_what_if(page, found[1])
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        view = browser.new_page()
        errors: list[str] = []
        view.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        view.on("pageerror", lambda error: errors.append(str(error)))
        view.goto(page.as_uri())
        assert view.locator(".alternative:visible").count() == 1
        view.select_option("#knob", "sections h")
        view.fill("#value", "3")
        assert view.locator(".alternative:visible h2").inner_text().startswith("sections h 6")
        browser.close()
    assert not errors
