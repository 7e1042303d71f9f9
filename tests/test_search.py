"""`tpusim search-qtable`: the fewest cycles that reach a similarity, a metric or top-1, and TPU-MLIR's search.

tests/upstream/names has what TPU-MLIR 1.30.2 found for digits, with the thresholds of digits_search_cali_table and the
16 samples that are the first of examples/digits/calibration.npz, on bm1684x:

    run_calibration.py m.mlir --dataset data --input_num 16 -o digits_search_cali_table
    run_calibration.py m.mlir --dataset data --input_num 16 --inference_num 16 --search search_qtable \\
        --expected_cos 0.9999 --quantize_table digits_search_qtable -o digits_search_cali_table

Its cosine is (1 + c) / 2 of the usual one. digits_search_mse_table is what `--search search_threshold` wrote for mse
with the same samples, and SCORES what it printed.
"""

from __future__ import annotations

import csv
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import planted
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from end_to_end import DIGITS
from upstream import networks

from tpusim.calibration.samples import Samples
from tpusim.calibration.table import read_table, write_table
from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.frontend import import_onnx
from tpusim.inference import dequantised, input_specs, run
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, save_model
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.studies.search import (
    Cosine,
    TopOne,
    Trials,
    UserMetric,
    known_floats,
    search,
    search_by_loss,
    search_threshold,
    write_qtable,
)
from tpusim.studies.search.fewest import _Search  # pyright: ignore[reportPrivateUsage]
from tpusim.studies.search.goal import cosine

RECORDED = Path(__file__).resolve().parent / "upstream" / "names"
SCORES = {
    "kl": 0.9998647190599885,
    "max": 0.9998543257646446,
    "percentile9999": 0.9998811185611095,
    "mse": 0.9998552583538323,
}
INT8 = LoweringConfig("bm1684x", "int8")
THEIRS = frozenset(read_qtable(RECORDED / "digits_search_qtable"))


@cache
def calibrated() -> Model:
    model = to_canonical(import_onnx(DIGITS / "digits.onnx"))
    return to_calibrated(model, read_table(RECORDED / "digits_search_cali_table"))


def samples(count: int) -> list[dict[str, np.ndarray]]:
    return [{"image": image[None]} for image in np.load(DIGITS / "calibration.npz")["image"][:count]]


@cache
def trials() -> Trials:
    return Trials(calibrated(), INT8, samples(4), Cosine(0.99985))


def test_without_integers_there_is_nothing_to_search() -> None:
    for mode in ("w4f16", "f16"):
        with pytest.raises(ConfigError, match=f"needs --mode int8, or a --qtable with INT8 ops; got --mode {mode}"):
            Trials(calibrated(), LoweringConfig("bm1684x", mode), samples(1), Cosine(1))


@pytest.mark.parametrize(("chip", "made"), [("bm1684x", {"root_inv"}), ("bm1684", set())])
def test_ops_that_the_chip_makes_are_candidates(chip: str, made: set[str]) -> None:
    """A quotient by a root, of which BM1684X makes a product with a reciprocal root: its number format has a line."""
    g = planted.Graph(3)
    root = g.add("Sqrt", [g.add("Abs", ["x"], "size")], "root")
    proto = g.finish((1, 4, 6, 6), g.add("Div", [g.conv("x", g.weight(4, 4, 1, 1)), root], "y"))
    given = [{"x": g.weight(1, 4, 6, 6) + np.float32(3)} for _ in range(2)]
    model = to_calibrated(to_canonical(import_onnx(proto, onnx_names=True)), given)
    asked = Trials(model, LoweringConfig(chip, "int8"), given, Cosine(1))
    assert set(asked.candidates) - {op_name(op) for op in model.ops} == made
    every = frozenset(asked.candidates)
    assert asked.modes(every).keys() == every
    assert asked.score(every).cosine > 0.99999
    assert (asked.score(every - made).cosine < asked.score(every).cosine - 1e-6) == bool(made)


def test_a_set_has_the_similarity_of_the_module_that_it_gives(tmp_path: Path) -> None:
    """What is not run again is as it was: bit for bit what the module lowered with the table gives."""
    for floats in (frozenset[str](), frozenset({"mix_Relu"}), frozenset({"stem_Relu", "mix_Relu"}), frozenset[str]()):
        write_qtable(tmp_path / "qtable", dict.fromkeys(floats, "f16"))
        model = to_tpu(calibrated(), "bm1684x", "int8", qtable=str(tmp_path / "qtable"))
        name = value_name(model.results[0])
        found = [{name: dequantised(model, run(model, one))[name]} for one in samples(4)]
        assert trials().score(floats).cosine == cosine(found, [{name: r["logits_Gemm"]} for r in trials().wanted])


def test_a_few_samples_tell_what_all_say() -> None:
    """A set run on all samples counts by these; before, it counts as if it lost as much more as the one before it."""
    asked = Trials(calibrated(), INT8, samples(12), Cosine(1))
    none, stem, mix = frozenset[str](), frozenset({"stem_Relu"}), frozenset({"mix_Relu"})
    beyond = (1 - asked.score(none).cosine) / (1 - asked.cosine(none))
    assert asked.cosine(none) == Trials(calibrated(), INT8, samples(4), Cosine(1)).score(none).cosine
    better, worse = sorted((stem, mix), key=asked.cosine, reverse=True)
    for by, expected in ((0.99, {better: True, worse: False}), (1.01, {better: False, worse: False})):
        asked.goal = Cosine(1 - (1 - asked.cosine(better)) * beyond / by)
        assert {one: asked.likely(one) for one in (better, worse)} == expected
    assert asked.tried == (3, 0)
    assert asked.score(stem).cosine != asked.cosine(stem) and asked.likely(stem) == asked.reached(stem)
    every = Trials(calibrated(), INT8, samples(12), TopOne(np.zeros(12, int), 0.5))
    assert every.likely(stem) == every.reached(stem) == (every.score(stem).value >= 0.5)


def test_estimates_go_with_the_clock() -> None:
    """What an op costs more in float, casts included: near to the clock's difference, on which groups have a say."""
    base, measured = trials().estimate(frozenset()), list[tuple[float, int]]()
    for name in trials().candidates:
        one = frozenset({name})
        measured.append((trials().estimate(one) - base, trials().cycles(one) - trials().cycles(frozenset())))
    assert max(real for _, real in measured) > 1000
    assert all(abs(guess - real) < 60 for guess, real in measured), measured
    assert trials().estimates(frozenset({"mix_Relu"}))["mix_Relu"] > 2 * trials().estimates(frozenset())["mix_Relu"]


def test_ops_outside_groups_have_estimates() -> None:
    """The ViT block has permutations that no group takes."""
    canonical = to_canonical(import_onnx(networks.build("vit")))
    data = networks.samples(networks.build("vit"), 1)
    model = to_calibrated(canonical, iter(data))
    asked = Trials(model, INT8, data, Cosine(0.9))
    assert asked.estimates(frozenset()).keys() <= {op_name(op) for op in to_tpu(model, INT8).ops}
    assert 0 < asked.estimate(frozenset()) < asked.cycles(frozenset())


@pytest.mark.slow
def test_the_search_needs_fewer_cycles_than_upstreams() -> None:
    """Asked for the same as theirs, which took the float that splits the groups; so does who goes by loss alone."""
    asked = Trials(calibrated(), INT8, samples(4), Cosine(0.9999))
    found = search(asked, clocked=14)
    assert found.reached and found.score.cosine >= 0.9999 > found.base.cosine and asked.reached(THEIRS)
    assert asked.tried[1] <= 14 + 2 and found.cycles < asked.cycles(THEIRS)
    assert set(found.losses) == set(asked.candidates) and "flat_Flatten" in asked.candidates
    by_loss = (frozenset(list(found.losses)[:n]) for n in range(len(found.losses) + 1))
    assert found.cycles < asked.cycles(next(floats for floats in by_loss if asked.reached(floats)))


def test_joint_search_beats_accuracy_first_and_grouping_later() -> None:
    """Both reach the goal; the op with the largest error splits the layer group, and more ops in float cost less."""
    canonical = to_canonical(import_onnx(planted.twice()))
    rng = np.random.default_rng(0)
    data = [{"x": rng.standard_normal((1, 3, 24, 24)).astype(np.float32)} for _ in range(2)]
    model = to_calibrated(canonical, iter(data))
    asked = Trials(model, INT8, data, Cosine(0.99983))
    joint, by_loss = search(asked, clocked=20), search_by_loss(asked)
    assert joint.base.value < 0.9993 and joint.reached and by_loss.reached
    assert len(by_loss.floats) == 2 and joint.floats != by_loss.floats
    assert joint.cycles < 0.95 * by_loss.cycles
    assert by_loss.floats == frozenset(list(by_loss.losses)[:2])
    front = asked.front()
    assert joint.floats in front and by_loss.floats not in front
    for one, next_one in pairwise(front):
        assert asked.cycles(one) < asked.cycles(next_one) and asked.score(one).value < asked.score(next_one).value


def test_only_what_groups_may_make_cheaper_goes_on_the_clock() -> None:
    """Of sets that are estimated to take longer than the best one, whose groups cost no more than those of integers."""
    asked = Trials(calibrated(), INT8, samples(2), Cosine(0.9))
    none, dear = frozenset[str](), frozenset({"mix_Relu"})
    tried = _Search(asked, none, 10, lambda _: None)
    assert asked.estimate(dear) > asked.estimate(none) and asked.reached(dear)
    assert not tried._is_cheaper(dear, none) and asked.tried[1] == 1  # pyright: ignore[reportPrivateUsage]
    asked._cycles[none] += 10_000  # pyright: ignore[reportPrivateUsage]
    assert tried._returned(none) == 0  # pyright: ignore[reportPrivateUsage]  the integers' own groups
    asked._cycles[dear] = asked.cycles(none) + 20_000  # pyright: ignore[reportPrivateUsage]
    assert 0 < tried._returned(dear) <= 0.01 * asked.estimate(dear)  # pyright: ignore[reportPrivateUsage]


def test_what_is_good_enough_stays_and_what_is_out_of_reach_is_told() -> None:
    asked = Trials(calibrated(), INT8, samples(2), Cosine(0.9))
    assert search(asked).floats == frozenset() and asked.tried == (1, 1)
    hopeless = search(Trials(calibrated(), INT8, samples(2), Cosine(1.0)))
    assert not hopeless.reached and len(hopeless.floats) == 13


def test_goals(tmp_path: Path) -> None:
    """Top-1 counts images, a sample may have several; a function gets results and float results."""
    found = [{"y": np.eye(3)[[0, 2]]}, {"y": np.eye(3)[[1, 1]]}]
    assert TopOne(np.array([0, 1, 1, 1]), 0.5).value(found, found) == 0.75
    (tmp_path / "m.py").write_text("def best(found, wanted):\n    return -abs(found[0]['y'] - wanted[0]['y']).max()\n")
    metric = UserMetric.read(f"{tmp_path}/m.py:best", -0.5)
    assert metric.value(found, found) == 0 and metric.value(found, found[::-1]) == -1
    (tmp_path / "bad.py").write_text("def nothing(found, wanted):\n    return None\n\nworst = 3\n")
    for text, said in ((f"{tmp_path}/bad.py:worst", "must have a function 'worst'"), ("best", "file.py:function")):
        with pytest.raises(ConfigError, match=said):
            UserMetric.read(text, 0)
    with pytest.raises(ConfigError, match="metric 'nothing': one number is required"):
        UserMetric.read(f"{tmp_path}/bad.py:nothing", 0).value(found, found)
    assert cosine([{"y": np.zeros(3)}], [{"y": np.ones(3)}]) == 0 and cosine(found, found) == 1


def entries(path: Path) -> list[str]:
    return [s.replace("-0.0000000", "0.0000000") for s in path.read_text().splitlines() if not s.startswith("#")]


def test_methods_score_as_upstreams_search_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores to 1e-7, for theirs are of f32 results; tables of kl, and of mse as only a search tunes it, as printed."""
    model = to_canonical(import_onnx(DIGITS / "digits.onnx"))
    (tmp_path / "data").mkdir()
    for number, sample in enumerate(samples(16)):
        np.savez(tmp_path / "data" / f"{number:03}.npz", image=sample["image"])
    save_model(model, tmp_path / "2_canonical.mlir")
    data = Samples(tmp_path / "data", input_specs(model), shuffled=True)
    found = search_threshold(model, data, INT8)
    assert found.scores == pytest.approx(SCORES, abs=1e-7) and found.best == "percentile9999"
    for method, name in (("kl", "digits_search_cali_table"), ("mse", "digits_search_mse_table")):
        write_table(tmp_path / method, found.tables[method], method=method, samples=16, bins=2048, tune=5)
        assert entries(tmp_path / method) == entries(RECORDED / name)
    asked = ["search-threshold", str(tmp_path / "2_canonical.mlir"), "--data", str(tmp_path / "data")]
    assert main([*asked, "--samples", "4", "--inference-num", "2", "--tune-num", "0"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("0.99") >= 3 and "  best" in shown
    [best] = [line.split()[0] for line in shown.splitlines() if line.endswith("  best")]
    assert f"calculation method: {best}\n" in (tmp_path / "cali_table").read_text()
    assert main([*asked, "--mode", "f16"]) == 1 and "a mode with thresholds is required" in capsys.readouterr().err


def test_known_floats() -> None:
    assert known_floats(calibrated()) == {}
    model = to_canonical(import_onnx(networks.build("vit")))
    kinds = {op_name(op): op.name for op in model.ops if op.results}
    found = known_floats(model)
    assert sorted(kinds[name] for name in found) == [
        *["top.Add"] * 3, "top.GELU", *["top.LayerNorm"] * 3, "top.Softmax"
    ]  # fmt: skip
    detector = to_canonical(import_onnx(networks.build("detector")))
    heads = known_floats(detector)
    kinds = {op_name(op): op.name for op in detector.ops if op.results}
    assert set(heads.values()) == {"head of a detector"} and len(heads) < len(kinds) / 2
    assert all(name in heads for name in [op_name(v.owner) for v in detector.results])  # type: ignore[arg-type]


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tpusim run` accepts the table; goals exclude each other; labels are one per image."""
    save_model(calibrated(), tmp_path / "3_calibrated.mlir")
    data = str(DIGITS / "calibration.npz")
    asked = ["search-qtable", str(tmp_path / "3_calibrated.mlir"), "--data", data, "--samples", "2"]
    front = tmp_path / "front.csv"
    assert main([*asked, "--expected-cos", "0.9998", "--clocked", "1", "--front", str(front)]) == 0
    shown = capsys.readouterr().out
    rows = list(csv.DictReader(front.read_text().splitlines()))
    assert "Sets on the front" in shown and list(rows[0]) == ["cosine", "cycles", "milliseconds", "floats"]
    assert sorted(float(row["cosine"]) for row in rows) == [float(row["cosine"]) for row in rows]
    assert all(f"{int(row['cycles']):,}" in shown for row in rows)
    assert "ops in float" in shown and "takes " in shown and "of the cosine by itself" in shown
    table = read_qtable(tmp_path / "qtable")
    assert table and set(table.values()) == {"f16"}
    assert Trials(calibrated(), INT8, samples(2), Cosine(0.9998)).reached(frozenset(table))
    assert "cycles on the clock" in (tmp_path / "qtable").read_text()
    np.save(tmp_path / "labels.npy", np.zeros(2, int))
    refused = [
        (["--labels", str(tmp_path / "labels.npy")], "--expected VALUE: needs --labels or --metric"),
        (["--labels", str(tmp_path / "labels.npy"), "--expected", "1", "--samples", "3"], "one array of 3 class"),
        (["--expected-cos", "2"], "above 0 and at most 1"),
        (["--table", "t"], "has its thresholds already; leave it out"),
        (["--float-mode", "bf16", "--chip", "bm1684"], "one of f32 is required on this chip"),
    ]
    for more, said in refused:
        assert main([*asked, *more]) == 1
        assert said in " ".join(capsys.readouterr().err.split())
    assert main([*asked, "--expected-cos", "1"]) == 1 and "nothing is written" in capsys.readouterr().out
