"""The support table is what the code does, its page is the table, and every line of it can be looked up."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import support_rows
from compiling import to_addressed, to_calibrated, to_canonical, to_tpu, to_tpu_with_fallbacks
from end_to_end import DIGITS
from op_cases import BY_ID, CASES
from plain_names import import_onnx
from rows import calibrated, canonical, lowered, under_test
from support_rows import PAGE, ROOT, collect, measure, refusals

from tpusim import chips
from tpusim.cli import main
from tpusim.compat import Quirk
from tpusim.fidelity import DECISIONS, SECTIONS, card_of, fidelity_of
from tpusim.fidelity.page import support_page
from tpusim.fidelity.spec import EVERYWHERE
from tpusim.fidelity.support import MODES, Support, lines, load
from tpusim.ir.module import load_model, save_model, update_function_type
from tpusim.ops import Top, context
from tpusim.ops.framework.base import TopOp
from tpusim.verify.report import build_report

APART = {"top.PixelNorm": ("bm1684", "cv180x", "cv181x", "cv182x", "cv183x")}
"""Ops that some chips have as others, which the rows are then measured for: a LayerNorm between Permutes."""
SAMPLE = tuple(case for i, case in enumerate(CASES) if i % 68 == 3)
"""Rows whose cells the default run measures again; `slow` does all."""


def only(support: Support, rows: set[str]) -> dict[tuple[str, str, str], set[tuple[object, ...]]]:
    """(op, row, cell) -> outcomes of these rows."""
    found: dict[tuple[str, str, str], set[tuple[object, ...]]] = {}
    for entry in support.ops:
        for o in entry.outcomes:
            for row in rows & set(o.rows):
                for where in o.cells:
                    found.setdefault((entry.op, row, where), set()).add((o.status, o.number, o.decisions, o.reason))
    return found


# ------------------------------------------------------------------------------------------------- the specification


def test_every_op_names_its_sections() -> None:
    for c in Top.operations:
        if issubclass(c, TopOp):
            assert c.SPEC, f"{c.name} has no SPEC"
            assert set(c.SPEC) <= set(SECTIONS), c.name


def test_every_decision_in_the_code_has_a_line() -> None:
    text = "".join(p.read_text() for p in (ROOT / "tpusim").rglob("*.py"))
    called = set(re.findall(r'\.decision\([^)]*?"(DN-\d+[ \w]*)"', text))
    quirks = re.findall(r"\.(?:quirked|decision)\([^)]*?Quirk\.(\w+)", text)
    assert len(quirks) >= 5
    called |= {Quirk[quirk].decision for quirk in quirks}
    called |= {d for c in map(chips.load, chips.available()) for f in c.hardware.float_only for d in f.decisions}
    assert called >= {"DN-05", "DN-13", "DN-14", "DN-17", "DN-22"}
    assert called <= set(DECISIONS)
    assert not set(DECISIONS) & set(EVERYWHERE)
    assert {d for s in load().ops for o in s.outcomes for d in o.decisions} <= called


# -------------------------------------------------------------------------------------------------------- the table


def assert_table_is_what_the_code_does(cases: tuple[support_rows.OpCase, ...]) -> None:
    refused = refusals()
    measured = collect({case.id: measure(case, refused) for case in cases}, refused)
    rows = {case.id for case in cases}
    assert only(measured, rows) == only(load(), rows), "run `make support`"


def test_a_sample_of_the_table_is_what_the_code_does() -> None:
    assert_table_is_what_the_code_does(SAMPLE)


def test_the_ops_of_frames_are_what_the_code_does() -> None:
    found = support_rows.frames(refusals())
    assert found == load().frames, "run `make support`"
    assert tuple(entry.op for entry in found) == support_rows.FRAME_OPS


@pytest.mark.slow
def test_the_table_is_what_the_code_does() -> None:
    assert_table_is_what_the_code_does(CASES)


def test_table_covers_every_row_chip_and_mode() -> None:
    found = load()
    assert found.chips == chips.available()
    assert found.refused == refusals()
    assert found.tests == support_rows.executing_tests()
    assert {r for s in found.ops for o in s.outcomes for r in o.rows} == set(BY_ID), "run `make support`"
    classes = {c.name: c for c in Top.operations if issubclass(c, TopOp)}
    assert {s.op: s.spec for s in found.ops} == {s.op: classes[s.op].SPEC for s in found.ops}
    # all but the first are what chips make of rows: test_attention.py, rows roll-channels, quotient-by-root and others
    made = {"top.Input", "top.Attention", "top.SwapDimInner", "top.Rsqrt", "top.Flatten"}
    assert {s.op for s in found.ops} | set(found.rewritten) | made == set(classes)
    cells = {f"{c}/{m}" for c in found.chips for m in MODES}
    for entry in found.ops:
        apart = {cell for cell in cells if cell.partition("/")[0] in APART.get(entry.op, ())}
        measured = {w for o in entry.outcomes for w in o.cells}
        assert measured | set(found.refused) | apart == cells and not measured & apart, entry.op


def test_no_float_in_disguise() -> None:
    """What is stored in another float type than the mode's is a fallback with a reason; refusals have one too."""
    for entry in load().ops:
        for o in entry.outcomes:
            assert bool(o.reason) == (o.status in ("float", "refused")), entry.op
            assert (o.status == "decision") <= bool(o.decisions), entry.op
            for where in o.cells:
                asked = where.partition("/")[2].partition("-")[0]
                assert o.status == "float" or o.number == asked or o.number not in ("f32", "f16", "bf16"), entry.op


def test_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == support_page(load()), "run `make support`"


@pytest.mark.slow
def test_tests_that_prove_exist() -> None:
    """Node ids of the lines, against what pytest collects for the default and the slow tests.

    Lines that are only lowered (a float type that no executed cell has) name none; they are counted.
    """
    expected = [row.test for row in lines(load()) if row.status != "refused"]
    named = set(expected) - {""}
    files = sorted({test.partition("::")[0] for test in named})
    words = ["-q", "-p", "no:cacheprovider", "--collect-only", "-m", "", *files]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, cwd=ROOT, check=True
    )
    collected = set(done.stdout.splitlines())
    assert len(named) > 100
    assert named <= collected
    assert expected.count("") == 5


# ---------------------------------------------------------------------------------------------------------- the card


def test_card_survives_text_and_later_stages(tmp_path: Path) -> None:
    model = lowered("lrn", "bm1684x", "int8")[0]
    expected = card_of(model)
    assert [(o.status, o.number) for o in expected.ops if o.kind == "tpu.LRN"] == [("float", "f32")]
    assert expected.count("exact") + expected.count("float") == len(expected.ops)
    final = to_addressed(model)
    for i, stage in enumerate((model, final)):
        save_model(stage, tmp_path / f"{i}.mlir", weight_file=f"{i}.npz")
        assert card_of(load_model(tmp_path / f"{i}.mlir", context())) == expected


@pytest.mark.parametrize(
    ("row", "mode", "decisions"),
    [
        ("maxpool-3x3-s2", "int8", ("DN-17",)),
        ("maxpool-2x2", "int8", ()),
        ("abs", "int8", ("DN-14",)),
        ("abs", "f32", ()),
        ("sign", "f32", ("DN-18",)),
        ("log", "int8", ("DN-19",)),
        ("exp", "int8", ()),
        ("layernorm", "f16", ("DN-21",)),
        ("layernorm", "bf16", ()),
    ],
)
def test_decisions_stand_on_the_op(row: str, mode: str, decisions: tuple[str, ...]) -> None:
    top = calibrated(row) if mode == "int8" else canonical(row)
    tpu = to_tpu(top, "bm1684x", mode)
    assert fidelity_of(under_test(BY_ID[row], tpu)).decisions == decisions


def test_missing_scale_is_a_decision() -> None:
    """Without a range for its result an op falls back, and says that this is DN-05."""
    top = calibrated("add").clone()
    for op in top.ops:
        if op.name == "top.Add":
            plain = next(o for o in canonical("add").ops if o.name == "top.Add").results[0].type
            op.results[0]._type = plain  # type: ignore[attr-defined]
    update_function_type(top)
    tpu = to_tpu(top, "bm1684x")
    found = fidelity_of(under_test(BY_ID["add"], tpu))
    assert (found.status, found.number, found.decisions) == ("float", "f16", ("DN-05",))


@pytest.mark.parametrize(("weights", "decisions"), [("positive", ("DN-02 uint8_filter_zp_zero",)), ("no-bias", ())])
def test_unsigned_filter_with_a_zero_point_is_a_quirk(weights: str, decisions: tuple[str, ...]) -> None:
    row = "conv-positive-filter" if weights == "positive" else "conv-no-bias"
    case = dataclasses.replace(BY_ID[row], ranges={"x": (-0.2, 1.0)})
    model = to_canonical(import_onnx(case.model(), name="conv"))
    top = to_calibrated(model, [case.feeds()], asymmetric=True)
    tpu = to_tpu(top, "bm1684x", "int8", asymmetric=True)
    assert fidelity_of(under_test(case, tpu)).decisions == decisions


def test_wider_type_of_a_16_bit_mode_is_a_fallback() -> None:
    tpu, listed = to_tpu_with_fallbacks(canonical("tanh"), "bm1684x", "f16")
    found = fidelity_of(under_test(BY_ID["tanh"], tpu))
    assert listed == []
    assert (found.status, found.number) == ("float", "f32")
    assert "12.2" in found.reason


def test_report_and_page_show_the_card() -> None:
    card = card_of(lowered("lrn", "bm1684x", "int8")[0]).to_json()
    report = build_report(
        version="0", model="m", chip="c", mode="int8", asymmetric=False, stages=[], compare={}, fidelity=card
    )
    content = report.to_json()["fidelity"]
    assert content["ops"] == content["exact"] + content["decision"] + content["float"]
    assert [f["kind"] for f in content["fallbacks"]] == ["tpu.LRN"]
    from tpusim.page import report_page

    html = report_page(report.to_json())
    assert "<h2>Fidelity</h2>" in html and "LRN has no integer form" in html
    json.dumps(content)


# -------------------------------------------------------------------------------------------------------- the command


def test_command_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["support", "--op", "LRN", "--mode", "int8", "--chip", "bm1684x"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "float fallback" in shown and "f32" in shown and "LRN has no integer form" in shown and "12.1" in shown


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["support", "--op", "Conv", "--chip", "bm1684x", "--mode", "int8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    assert [(f["status"], f["number"]) for f in found] == [("float", "f32"), ("exact", "int8")]
    assert found[1]["test"] == "tests/test_ops.py::test_lowering_kernels_and_machine[conv-3x3-bm1684x-int8]"
    assert main(["support", "--chip", "bm1684", "--mode", "f16", "--op", "Add", "--json"]) == 0
    assert [f["status"] for f in json.loads(capsys.readouterr().out)["rows"]] == ["refused"]


def test_command_lists_ops_of_frames(capsys: pytest.CaptureFixture[str]) -> None:
    """By the name with or without the dialect, each with its test; an unknown op is refused."""
    for name in ("tpu.SwapChannel", "SwapChannel"):
        assert main(["support", "--op", name, "--chip", "bm1688", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["rows"]
        assert found and {f["op"] for f in found} == {"tpu.SwapChannel"}
        assert all(f["test"].startswith("tests/test_frames.py::") for f in found if f["status"] != "refused")
    assert main(["support", "--op", "SwapChannels"]) == 1
    assert "op 'SwapChannels' is not in the table" in capsys.readouterr().err


def test_command_shows_the_card_of_a_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = lowered("maxpool-3x3-s2", "bm1684x", "int8")[0]
    save_model(model, tmp_path / "4_tpu.mlir", weight_file="w.npz")
    assert main(["support", "--module", str(tmp_path / "4_tpu.mlir")]) == 0
    assert "DN-17" in capsys.readouterr().out
    assert main(["support", "--module", str(tmp_path / "4_tpu.mlir"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["card"]["decisions"][0]["decision"] == "DN-17"


@pytest.mark.parametrize("words", [("--chip", "bm9"), ("--mode", "int5"), ("--op", "Nothing")])
def test_command_names_what_is_there(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["support", *words]) == 1
    assert f"{words[1]}' is not in the table; there are" in capsys.readouterr().err


def test_command_has_the_card_of_one_lowered_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not lowered yet is lowered; options that choose from the table are refused, which a card is not."""
    save_model(lowered("maxpool-3x3-s2", "bm1684x", "int8")[0], tmp_path / "4_tpu.mlir", weight_file="w.npz")
    assert main(["import", str(DIGITS / "digits.onnx"), "--out", str(tmp_path / "1_top.mlir")]) == 0
    capsys.readouterr()
    for words, message in (
        (("4_tpu.mlir", "--op", "Conv", "--chip", "bm1684x"), "so --op would do nothing"),
        (("4_tpu.mlir", "--mode", "f16"), "--mode: 4_tpu.mlir is lowered already"),
        (("4_tpu.mlir", "--chip", "bm1688"), "--chip: 4_tpu.mlir is lowered already"),
    ):
        assert main(["support", "--module", str(tmp_path / words[0]), *words[1:]]) == 1
        assert message in capsys.readouterr().err.replace(f"{tmp_path}/", "").replace("\n", " ")
    assert main(["support", "--module", str(tmp_path / "1_top.mlir"), "--mode", "int8-asym", "--chip", "bm1688"]) == 0
    assert "Fidelity (15 ops" in capsys.readouterr().out


def test_run_ends_with_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(DIGITS / "digits.onnx")
    words = ["--mode", "f32", "--data", "random:1", "--out", str(tmp_path)]
    assert main(["run", model, *words]) == 0
    assert "exact to spec" in capsys.readouterr().out
    found = json.loads((tmp_path / "report.json").read_text())["fidelity"]
    assert found["exact"] == found["ops"] > 5
    assert found["numbers"] == {"f32": found["ops"]}
