"""What a run's verdict rests on: several samples, every part of a result, and a quantised file's own results."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from rich.console import Console
from verdict_networks import CHANNELS, SIZE, detector, images, lone, model_of, saturating

import tpusim
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.frontend import OnnxReference
from tpusim.verify.compare import Tolerance, compare, compare_tensors, worst_of
from tpusim.verify.lost import Watch
from tpusim.verify.over_samples import Collected, OverSamples
from tpusim.verify.render import summary_table
from tpusim.verify.schema import read_report

TIGHT = Tolerance(0.99, 0.9)


def run(*words: str | Path) -> int:
    return main(["run", *map(str, words), "--chip", "bm1688"])


# ------------------------------------------------------------------------------------------------------ several samples


def test_a_result_on_every_sample_is_what_numpy_says() -> None:
    """Minimum, median and the worst sample's number, from cosines computed here in f64."""
    generator = np.random.default_rng(2)
    wanted = [generator.normal(size=(1, 40)).astype(np.float32) for _ in range(9)]
    noise = [0.1] * 5 + [0.4, 0.2, 0.1, 0.1]
    found = [w + s * generator.normal(size=w.shape).astype(np.float32) for s, w in zip(noise, wanted, strict=True)]
    collected = Collected(Tolerance(0.9, 0.5), ["y"])
    for target, reference in zip(found, wanted, strict=True):
        collected.add({"y": target}, {"y": reference})
    judged = collected.judged(compare({"y": found[0]}, {"y": wanted[0]}, Tolerance(0.9, 0.5)))
    exact = [(f.astype(np.float64), w.astype(np.float64)) for f, w in zip(found, wanted, strict=True)]
    cosines = [float(np.sum(f * w) / np.sqrt(np.sum(f * f) * np.sum(w * w))) for f, w in exact]
    (over,) = judged.over_samples
    assert judged.samples == 9 and over.is_result and over.worst == int(np.argmin(cosines)) == 5
    assert over.least_cosine == pytest.approx(min(cosines), abs=1e-6)
    assert over.median_cosine == pytest.approx(float(np.median(cosines)), abs=1e-6)
    assert over.to_json()["cosines"] == pytest.approx(cosines, abs=1e-6)


@pytest.mark.every
@pytest.mark.parametrize(
    ("sizes", "bad", "passed"),
    [
        ([1, 1, 1, 1], [], True),
        ([1, 1, 1, 1], [2], False),  # the worst sample decides
        ([1, 1, 1, 1], [0], False),
        ([1, 1, 1e-4, 1], [2], True),  # a black image has nothing to be similar to
        ([1e-4, 1, 1, 1], [0], True),  # also where it is the first
        ([0, 1, 1, 1], [], True),
        ([1, 1, 1, 100], [3], False),
        ([1, 1, 1, 0.2], [3], False),  # small, but not dead
        ([0, 0, 0, 0], [], True),
        ([1e-4], [0], False),  # alone it counts
        ([np.nan, np.nan], [], True),  # a root of negative numbers
        ([np.nan, 1, 1], [2], False),
        ([1, 1, np.nan], [0], False),
        ([np.nan, np.nan, np.nan, 1], [3], False),
        ([np.inf, 1, 1], [2], False),  # it does not make the others small
        ([np.inf, np.inf], [], True),
    ],
)
def test_which_samples_decide(sizes: list[float], bad: list[int], passed: bool) -> None:
    generator = np.random.default_rng(3)
    wanted = [s * generator.normal(size=(1, 20)).astype(np.float32) for s in sizes]
    found = [w[:, ::-1] if i in bad else w for i, w in enumerate(wanted)]
    collected = Collected(TIGHT, ["y"])
    for target, reference in zip(found, wanted, strict=True):
        collected.add({"y": target}, {"y": reference})
    judged = collected.judged(compare({"y": found[0]}, {"y": wanted[0]}, TIGHT))
    assert judged.passed is passed


@pytest.mark.every
@pytest.mark.parametrize(
    "values", [(1e30, 2e30), (np.inf, 1), (np.nan, 1), (-3.4e38, 1), (0, 0), (1e-30, 1e-30)], ids=str
)
def test_quick_measures_are_those_of_the_tool(values: tuple[float, float]) -> None:
    """What overflows f32 is measured as `compare` does; the rest within 1e-5 of it."""
    wanted = np.array([[*values, 1, 2, 3, -4]], np.float32)
    found = wanted + np.array([[0, 0, 0.1, 0.2, -0.1, 0.1]], np.float32)
    collected = Collected(TIGHT, [])
    collected.add({"y": found}, {"y": wanted})
    (over,) = collected.judged(compare({"y": found}, {"y": wanted}, TIGHT)).over_samples
    exact = compare_tensors(found, wanted, Tolerance(2, 2))
    assert over.cosines[0] == pytest.approx(exact.cosine, abs=1e-5)
    assert over.euclideans[0] == pytest.approx(exact.euclidean, abs=1e-5)


def test_a_run_names_the_worst_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sample 3 is 30 times as large as the table's range: of 5 samples it is the worst, and the run fails by it."""
    model, data = lone(tmp_path / "lone.onnx"), tmp_path / "x.npz"
    np.savez(data, x=images(5, [1, 1, 1, 30, 1]))
    table = tmp_path / "table"
    table.write_text("x 3 -3 3\ny_Conv 6 -6 6\n")
    out = tmp_path / "out"
    assert run(model, "--data", data, "--table", table, "--out", out) == 1
    said = capsys.readouterr().out
    assert "y_Conv fails on sample 3 of 5" in said and "FAILED" in said
    compared = read_report(out / "report.json").compare
    assert {name: c.samples for name, c in compared.items()} == {"top_vs_onnx": 5, "tpu_vs_top": 5, "local_vs_tpu": 1}
    (over,) = [found for found in compared["tpu_vs_top"].over_samples if found.name == "y_Conv"]
    assert over.worst_sample == 3 and not over.passed and len(over.cosines) == 5 and compared["top_vs_onnx"].passed
    assert compared["local_vs_tpu"].bit_exact
    page = (out / "report.html").read_text()
    assert "Results over samples" in page and "sample 3, the worst" in page
    assert run(model, "--data", data, "--table", table, "--out", out, "--compare-samples", "3") == 0
    assert read_report(out / "report.json").compare["tpu_vs_top"].samples == 3
    assert run(model, "--data", data, "--compare-samples", "0") == 1
    assert "--compare-samples 0" in capsys.readouterr().err


def test_python_verifies_several_samples(tmp_path: Path) -> None:
    samples = [{"x": x[None]} for x in images(3)]
    compiled = tpusim.compile(lone(tmp_path / "lone.onnx"), chip="bm1688", samples=samples)
    assert {c.samples for c in compiled.verify(samples[0]).comparisons.values()} == {1}
    several = compiled.verify(samples)
    assert several.passed and several.comparisons["tpu_vs_top"].samples == 3
    assert several.comparisons["local_vs_tpu"].samples == 1
    with pytest.raises(ConfigError, match="a sample or several are required"):
        compiled.verify([])


# -------------------------------------------------------------------------------------------------------- dead results


@pytest.mark.every
@pytest.mark.parametrize(
    ("form", "place"),
    [
        ({}, "all 36 values of channel 4 of y_Reshape (scores_Sigmoid) are 0"),
        ({"scores": 3}, "all 108 values of channels 4 to 6 of y_Reshape (scores_Sigmoid) are 0"),
        ({"moved": True}, "all 36 values of index 4 along axis 2 of y_Transpose (scores_Sigmoid) are 0"),
        ({"twice": True}, "all 72 values of channel 4 of y_Concat (scores_Sigmoid) are 0"),
        ({"moved": True, "twice": True, "scores": 2}, "all 144 values of indices 4 to 5 along axis 2 of y_Concat"),
    ],
    ids=str,
)
def test_dead_scores_of_a_detector_are_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: dict[str, Any], place: str
) -> None:
    """As reported: boxes in pixels and scores up to 1 in one tensor, a cosine of 0.9999, PASSED."""
    model, out = detector(tmp_path / "d.onnx", **form), tmp_path / "out"
    assert run(model, "--out", out, "--data", "random:2") == 1
    lines = capsys.readouterr().out.replace("\n", " ")
    assert place in lines and "are 0 in all 2 samples; in float they reach" in lines and "FAILED" in lines
    assert f"`tpusim why {out}` says where integers lose" in lines
    compared = read_report(out / "report.json").compare["tpu_vs_top"]
    assert not compared.passed and compared.min_cosine is not None and compared.min_cosine > 0.999
    assert compared.lost[0].startswith(place)


def test_the_same_detector_in_f16_passes(tmp_path: Path) -> None:
    assert run(detector(tmp_path / "d.onnx"), "--out", tmp_path / "out", "--data", "random:2", "--mode", "f16") == 0


FOURTH = np.arange(6)[None, :, None] == 4
ROWS = np.linspace(0.5, 1.5, 8)[None, None] * np.ones((1, 6, 8))


@pytest.mark.every
@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        (ROWS, ROWS, ""),
        (np.where(FOURTH, 0, ROWS), ROWS, "all 8 values of channel 4 of y are 0"),
        (np.where(FOURTH, 1.5, ROWS), ROWS, "all 8 values of channel 4 of y are 1.5"),
        (np.zeros_like(ROWS), ROWS, "all 48 values of y are 0"),
        (np.where(np.arange(8) == 7, np.inf, ROWS), ROWS, "6 values of y are infinite or no numbers"),
        (np.where(np.arange(8) == 7, -np.inf, ROWS), np.where(np.arange(8) == 7, -3e38, ROWS), ""),  # a mask
        (np.zeros_like(ROWS), np.zeros_like(ROWS), ""),  # dead in float, too
        (np.ones_like(ROWS), np.full_like(ROWS, 1.001), ""),  # constant in float, too
        (np.where(FOURTH, 0, ROWS), np.where(FOURTH, 1e-3, 1) * ROWS, ""),  # a class that no image shows
        (np.zeros((1, 3)), np.full((1, 3), 0.1), ""),  # too few values to tell
    ],
)  # fmt: skip
def test_what_counts_as_lost(found: np.ndarray, wanted: np.ndarray, says: str) -> None:
    watch = Watch("y", None)
    watch.add(found, wanted)
    lines = list(watch.lost())
    assert (lines[0].startswith(says) and len(lines) == 1) if says else lines == []


def test_what_lives_on_one_sample_is_not_lost() -> None:
    watch = Watch("y", None)
    dead = np.where(FOURTH, 0, ROWS)
    for found in (dead, ROWS, dead):
        watch.add(found, ROWS)
    assert list(watch.lost()) == []


# ------------------------------------------------------------------------------------------------- masks, and QDQ files


@pytest.mark.parametrize("mode", ["f16", "bf16"])
@pytest.mark.parametrize("mask", [float(np.finfo(np.float32).min), -1e9])
def test_masked_attention_is_right(tmp_path: Path, mode: str, mask: float) -> None:
    """A mask beyond the float type is its infinity: no reason to fail."""
    above = np.where(np.triu(np.ones((SIZE, SIZE)), 1) > 0, mask, 0).astype(np.float32)[None, None]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Add", ["s", "m"], ["sm"]),
        helper.make_node("Softmax", ["sm"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    shape = [1, CHANNELS, SIZE, SIZE]
    model = model_of(nodes, {"m": above}, {"x": shape}, {"y": shape}, tmp_path / "attention.onnx")
    verified = tpusim.compile(model, chip="bm1688", mode=mode).verify({"x": images(1)})
    assert verified.passed, verified


@pytest.mark.every
@pytest.mark.parametrize("scale", [0.1, 0.02, 0.01])
def test_a_quantised_file_is_judged_by_its_own_result(tmp_path: Path, scale: float) -> None:
    """ONNX Runtime computes the file's Q and DQ; against the float network a saturating one may differ by anything."""
    model, out = saturating(tmp_path / "q.onnx", scale), tmp_path / "out"
    assert run(model, "--out", out, "--data", "random:3") == 0
    compared = read_report(out / "report.json").compare
    assert compared["tpu_vs_file"].passed and compared["tpu_vs_file"].decides and not compared["tpu_vs_top"].decides
    assert compared["tpu_vs_top"].passed is (scale > 0.05)
    ours = np.load(out / "tpu_outputs.npz")["y_Conv"].astype(np.float32) * np.float32(scale)
    theirs = OnnxReference(model).run({"x": np.load(out / "inputs.npz")["x"]})["y"]
    assert np.mean(ours == theirs) > 0.99 and np.abs(ours - theirs).max() <= scale * 1.001  # a tie of rounding in f32


def test_a_quantised_file_in_floats_is_judged_as_any(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(saturating(tmp_path / "q.onnx", 0.02), "--out", out, "--data", "random:1", "--mode", "f16") == 0
    assert "tpu_vs_file" not in read_report(out / "report.json").compare


def test_a_comparison_says_the_worst_sample_in_python_and_in_the_table() -> None:
    """A similarity that is no number is the worst."""
    found = OverSamples("b", (0.9, float("nan"), 0.95), (0.5, 0.6, 0.7), (1, 1, 1), is_result=True)
    better = OverSamples("a", (0.8, 0.85, 0.9), (0.5, 0.6, 0.7), (1, 1, 1))
    first = compare({"a": np.ones(4)}, {"a": np.ones(4)}, TIGHT, label="tpu_vs_top")
    several = replace(first, samples=3, over_samples=(better, found))
    assert worst_of(several.over_samples) is found and found.worst == 1
    assert "worst b (sample 1 of 3" in repr(several)
    only = replace(several, over_samples=(better, OverSamples("c", (1, 1, 1), (1, 1, 1), (1, 1, 1), is_result=True)))
    console = Console(file=io.StringIO(), width=160)
    console.print(summary_table([only]))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    row = next(line for line in said.splitlines() if "0.8000 / 0.8500" in line).split()
    assert row[row.index("a") :][:2] == ["a", "0"] and "its results" in said
