"""`tpusim why`: planted faults are found in the op that has them, and the remedy works."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from compiling import Becomes, to_calibrated, to_canonical, to_tpu
from end_to_end import DIGITS
from faults import float_module, network, samples, table
from onnx import helper, numpy_helper
from op_row import network as small
from op_row import node
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.calibration.table import CalibrationTable, read_table, rewrite_thresholds
from tpusim.canonicalize import canonicalize
from tpusim.cli import main
from tpusim.errors import CalibrationError, ConfigError, ImportModelError
from tpusim.frontend import import_onnx
from tpusim.inference import run
from tpusim.ir.attrs import float_attr, op_name
from tpusim.ir.module import Model, save_model
from tpusim.ir.weights import WeightStore
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.relu import TopRelu, relu_limit_of
from tpusim.passes import PassManager
from tpusim.passes.instruments.numbers import NumbersChanged
from tpusim.registry import ENGINES
from tpusim.studies.diagnosis import Change, Loss, Remedies, losses, worst_elements
from tpusim.verify.channels import Channels
from tpusim.verify.schema import read_report

TABLE = Path(__file__).resolve().parent / "upstream" / "names" / "digits_cali_table"
INT8 = LoweringConfig("bm1684x", "int8")


def sample() -> dict[str, np.ndarray]:
    return {"image": np.load(DIGITS / "calibration.npz")["image"][:1]}


@cache
def digits() -> Model:
    return to_canonical(import_onnx(DIGITS / "digits.onnx"))


def calibrated(model: Model | None = None, **factors: float) -> Model:
    """Digits with its thresholds, some of them multiplied."""
    known = read_table(TABLE).entries
    changed = {name: replace(known[name], threshold=known[name].threshold * by) for name, by in factors.items()}
    return to_calibrated(model or digits(), CalibrationTable({**known, **changed}))


def lost(model: Model, config: LoweringConfig = INT8) -> dict[str, Loss]:
    return {loss.name: loss for loss in losses(model, to_tpu(model, config), [sample()])}


def test_a_sound_network_loses_little_everywhere() -> None:
    found = lost(calibrated())
    names = {op_name(op) for op in digits().ops if op.results} & set(found)
    assert set(found) == names and len(names) > 10
    assert all(loss.cosine > 0.99 and loss.alone > 0.999 and loss.dead == 0 for loss in found.values())
    assert all(loss.alone > loss.cosine - 1e-6 for loss in found.values())  # nothing is better than ideal operands


@pytest.mark.every
@pytest.mark.parametrize(("factor", "name"), [(0.1, "pointwise_Relu"), (40.0, "depthwise_Relu")])
def test_a_broken_threshold_is_found(factor: float, name: str) -> None:
    """Too small it cuts off, too large it leaves a few steps: only that op loses, and its range is the remedy."""
    model = calibrated(**{name: factor})
    found = lost(model)
    by_loss = sorted(found.values(), key=lambda loss: loss.sqnr_alone)
    assert by_loss[0].name == name and by_loss[0].sqnr_alone < 12 and by_loss[1].sqnr_alone > 30
    assert (found[name].ends > 0.1) == (factor < 1)
    assert found["mix_Relu"].cosine < found["mix_Relu"].alone
    remedies = Remedies(model, INT8, [sample()])
    assert remedies.mode == "f16"
    change, measured = remedies.single([name])[0]
    [best] = remedies.worth([(change,)])
    assert not change.mode and change.threshold == pytest.approx(float(np.abs(run(model, sample())[name]).max()))
    before, sound = (Remedies(one, INT8, [sample()]).before.last for one in (model, calibrated()))
    assert best.cosine - before.cosine > 0.95 * (sound.cosine - before.cosine)
    assert measured.error == best.error < 1.1 * sound.error
    assert remedies.fewest([best], 0.9995).changes == best.changes and remedies.fewest([best], 0.5).changes == ()


def test_the_worst_elements_and_what_they_are_made_of() -> None:
    """What lies outside the window of the input that is named does not matter; an operand as large is one element."""
    model = calibrated(pointwise_Relu=0.1)
    lowered = to_tpu(model, INT8)
    names = ["stem_Relu", "block_Relu", "pointwise_Relu", "logits_Gemm"]
    found = worst_elements(model, lowered, sample(), names, 2)
    assert [element.tensor for element in found] == [name for name in names for _ in range(2)]
    assert all(abs(a.found - a.wanted) >= abs(b.found - b.wanted) for a, b in zip(found[::2], found[1::2], strict=True))
    first, join, clipped, last = found[::2]
    assert clipped.found == pytest.approx(0.526, abs=0.01) and clipped.wanted > 3
    assert [len(element.sources) for element in (first, join, clipped, last)] == [1, 2, 1, 1]
    assert all(s.window == tuple((i, i + 1) for i in join.index) and s.low == s.high for s in join.sources)
    assert last.sources[0].window == ((0, 1), (0, 64)) and str(last).startswith(f"logits_Gemm{list(last.index)}: ")
    (source,) = first.sources
    inside = tuple(slice(*ends) for ends in source.window)
    image = np.zeros_like(sample()["image"])
    assert source.tensor == "image" and image[inside].size <= 9
    image[inside] = sample()["image"][inside]
    assert run(lowered, {"image": image})["stem_Relu"][first.index] == run(lowered, sample())["stem_Relu"][first.index]


def test_dead_channels_are_counted() -> None:
    """One filter a thousand times larger: its channel takes the whole range, the others are zeros."""
    model = digits().clone()
    name = next(n for n in model.weights if "stem" in n and model.weights[n].ndim == 4)
    filters = model.weights[name].copy()
    filters[0] *= 1000
    weights = WeightStore({**{n: model.weights[n] for n in model.weights}, name: filters})
    large = Model(model.module, weights)
    known = read_table(TABLE).entries
    wide = replace(known["stem_Relu"], threshold=4000.0, maximum=4000.0)
    found = lost(to_calibrated(large, CalibrationTable({**known, "stem_Relu": wide})))["stem_Relu"]
    assert found.dead > found.channels // 2
    assert found.alone > 0.99  # one channel carries the cosine


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ImportModelError, match="TOP_CALIBRATED"):
        Remedies(digits(), INT8, [sample()])
    with pytest.raises(ConfigError, match="float mode 'f16': one of bf16 is required"):
        Remedies(calibrated(), LoweringConfig("cv183x", "int8"), [sample()], "f16")


@pytest.mark.parametrize("columns", [64, 70, 5])  # all columns, some of them, less than the lanes
@pytest.mark.parametrize(
    ("chip", "mode", "table"),
    [
        ("bm1684x", "w4f16", None), ("bm1688", "w4bf16", None), ("bm1690", "w8f16", None),
        ("bm1684x", "int8", "r_Relu:W4F16 32"), ("bm1684x", "f16", "r_Relu:W4BF16 32"),
    ],
)  # fmt: skip
def test_weights_of_few_bits_are_suspected(chip: str, mode: str, table: str | None, columns: int) -> None:
    """The second product has rows of another length than the groups and stays in 16 bits."""
    rng = np.random.default_rng(3)
    weights = {"w": (96, columns), "b": (columns,), "v": (columns, 40)}
    constants = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in weights.items()}
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Relu", "a", "r"), node("MatMul", "r v", "y")]
    top = to_canonical(import_onnx(small(nodes, constants)({"x": (3, 96)})))
    given = [{"x": rng.standard_normal((3, 96)).astype(np.float32)} for _ in range(2)]
    config = LoweringConfig(chip, mode, qtable=table, q_group_size=96 if mode.startswith("w") else None)
    remedies = Remedies(to_calibrated(top, given) if config.calibrated else top, config, given)
    before, found = remedies.tried([()])[0], losses(remedies.model, remedies.lowered(), given)
    suspect = remedies.suspects(found, 1)[0].name
    change, best = remedies.single([suspect])[0]
    assert (suspect, change) == ("r_Relu", Change("r_Relu", remedies.mode))
    assert best.largest < before.largest / 3


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables that it writes mend the network: here the range, and nothing has to be float."""
    broken = calibrated(pointwise_Relu=0.1)
    save_model(broken, tmp_path / "3_calibrated.mlir")
    np.savez(tmp_path / "inputs.npz", image=sample()["image"])
    table = TABLE.read_text().replace("pointwise_Relu 5.26", "pointwise_Relu 0.526")
    assert table != TABLE.read_text()
    (tmp_path / "cali_table").write_text(table)
    asked = ["why", str(tmp_path / "3_calibrated.mlir"), "--top", "2", "--csv", str(tmp_path / "losses.csv")]
    files = ["--out-qtable", str(tmp_path / "qtable"), "--out-table", str(tmp_path / "new_table")]
    status = main([*asked, "--expected-cos", "0.999", *files])
    shown = capsys.readouterr().out
    assert status == 0 and "remedy: pointwise_Relu with threshold" in shown and "results as lowered: error" in shown
    assert "judged on 1 sample" in shown and "nothing was held out" in shown
    assert read_qtable(tmp_path / "qtable") == {}
    mended = lost(to_calibrated(digits(), read_table(tmp_path / "new_table")))
    assert mended["pointwise_Relu"].sqnr_alone > 30 and all(loss.cosine > 0.99 for loss in mended.values())
    changed = [a for a, b in zip((tmp_path / "new_table").read_text().splitlines(), table.splitlines(), strict=True)
               if a != b]  # fmt: skip
    assert len(changed) == 1 and changed[0].startswith("pointwise_Relu ")
    rows = list(csv.DictReader((tmp_path / "losses.csv").read_text().splitlines()))
    assert {row["name"] for row in rows} == set(mended)
    assert main([*asked, "--expected-cos", "2"]) == 1
    assert "--expected-cos 2.0: above 0 and at most 1 is required" in capsys.readouterr().err


def test_a_float_is_a_remedy_with_the_table_in_force() -> None:
    """CV18xx has bf16; the ops of --qtable stay what they are."""
    config = LoweringConfig("cv183x", "int8", qtable="stem_Relu:BF16")
    remedies = Remedies(calibrated(), config, [sample()])
    assert remedies.mode == "bf16"
    change = Change("block_a_Relu", "bf16")
    [more] = remedies.tried([(change,)])
    both = replace(config, qtable="stem_Relu:BF16,block_a_Relu:BF16")
    assert more.cosine == Remedies(calibrated(), both, [sample()]).before.last.cosine


def test_a_table_without_the_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="lines of nobody are required"):
        rewrite_thresholds(TABLE, tmp_path / "t", {"nobody": 1.0})
    assert not (tmp_path / "t").exists()


def test_bisect_cuts_out_the_op_that_is_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands that it writes show the same on the small network; an op before the broken one is left out."""
    save_model(calibrated(pointwise_Relu=0.02), tmp_path / "3_calibrated.mlir")
    np.savez(tmp_path / "inputs.npz", image=sample()["image"])
    asked = ["bisect", str(tmp_path / "3_calibrated.mlir"), "--tolerance", "0.99,0.9"]
    assert main(asked) == 1
    assert "pointwise_Relu is the first that breaks 0.99,0.90" in (shown := capsys.readouterr().out), shown
    assert "with --model MODEL.onnx" in shown
    assert main([*asked, "--model", str(DIGITS / "digits.onnx"), "--out", str(tmp_path / "small")]) == 1
    small = onnx.load(tmp_path / "small" / "op.onnx").graph
    assert [node.op_type for node in small.node] == ["Conv", "BatchNormalization", "Relu"]
    assert {c.name for c in small.initializer} == {name for node in small.node for name in node.input[1:]}
    lines = [line for line in (tmp_path / "small" / "cali_table").read_text().splitlines() if line[0] != "#"]
    assert [line.split()[0] for line in lines] == [small.input[0].name, "pointwise_Relu"]
    assert "WARNING" not in (shown := capsys.readouterr().out)
    commands = (tmp_path / "small" / "show.sh").read_text().splitlines()[2:]
    assert all(f"    {command}" in shown for command in commands)
    with contextlib.chdir(tmp_path / "small"):
        assert [main(shlex.split(command)[1:]) for command in commands] == [0, 1]
    shown = capsys.readouterr().out
    assert re.search(r"\[pointwise_Relu +\] +NOT_SIMLIAR \[FAILED\]", shown) and "1 failed" in shown


class Other:
    """An engine whose `pointwise_Relu` has one more in three elements, and whose logits differ in last bits."""

    def __init__(self, model: Model, keep: str) -> None:
        assert keep == "all"
        self.model = model

    def __call__(self, inputs: Any) -> dict[str, np.ndarray]:
        found = {name: array.copy() for name, array in run(self.model, inputs).items()}
        found["pointwise_Relu"].reshape(-1)[[0, 5, 9]] += 1
        found["logits_Gemm_f32"] *= np.float32(1 + 1e-6)
        return found


def test_another_engine_says_whether_it_is_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of integers each element counts, of floats the last bits do not."""
    save_model(calibrated(), tmp_path / "3_calibrated.mlir")
    np.savez(tmp_path / "inputs.npz", image=sample()["image"])
    asked = ["bisect", str(tmp_path / "3_calibrated.mlir"), "--engine", "iree"]
    monkeypatch.setattr(ENGINES, "get", lambda name: Other)
    main(asked)
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"WARNING: iree computes another pointwise_Relu: 3 of [\d,]+ elements, by at most 1, of \d+", shown
    )
    monkeypatch.setattr(Other, "__call__", lambda self, inputs: run(self.model, inputs))
    main([*asked, "--json"])
    said = json.loads(capsys.readouterr().out)["engine"]
    assert said["engine"] == "iree" and said["tensors"] > 10 and said["different"] == []
    assert main([*asked[:-1], "irre"]) == 1
    assert "--engine: one of iree, mlir, tosa, iree-tosa is required, got 'irre'" in capsys.readouterr().err


def test_bisect_takes_along_where_a_range_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Concat cut out with its operands alone keeps their range; its lines of the quantisation table go with it."""
    save_model(calibrated(pointwise_Relu=0.02), tmp_path / "3_calibrated.mlir")
    np.savez(tmp_path / "inputs.npz", image=sample()["image"])
    asked = ["bisect", str(tmp_path / "3_calibrated.mlir"), "--qtable", "pointwise_Relu:F16,logits_Gemm:F16"]
    assert main([*asked, "--tolerance", "0.99,0.9", "--model", str(DIGITS / "digits.onnx")]) == 1
    shown = capsys.readouterr().out
    assert "both_Concat is the first" in shown and "--qtable qtable" in shown and "WARNING" not in shown
    assert read_qtable(tmp_path / "bisect" / "qtable") == {"pointwise_Relu": "f16"}
    small = {node.op_type for node in onnx.load(tmp_path / "bisect" / "op.onnx").graph.node}
    assert "Concat" in small and "Gemm" not in small


def test_bisect_cuts_where_the_scale_comes_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores share the scale of boxes: the small network is the Concat, and is broken too."""
    case = ("detector", "operand")
    top = float_module(*case, onnx_names=False)
    save_model(to_calibrated(top, table(*case, onnx_names=False)), tmp_path / "3_calibrated.mlir")
    np.savez(tmp_path / "inputs.npz", **samples("detector")[0])
    onnx.save(network("detector"), tmp_path / "net.onnx")
    asked = ["bisect", str(tmp_path / "3_calibrated.mlir"), "--model", str(tmp_path / "net.onnx")]
    assert main(asked) == 1
    shown = capsys.readouterr().out
    assert "scores_Sigmoid is stored in the scale of y_Concat, which reads it" in shown and "WARNING" not in shown
    small = onnx.load(tmp_path / "bisect" / "op.onnx").graph
    assert [node.op_type for node in small.node] == ["Concat"]
    commands = (tmp_path / "bisect" / "show.sh").read_text().splitlines()[2:]
    with contextlib.chdir(tmp_path / "bisect"):
        assert [main(shlex.split(command)[1:]) for command in commands] == [0, 1]
    assert "by channel on average" in capsys.readouterr().out


def test_bisect_of_a_sound_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(calibrated(), tmp_path / "3_calibrated.mlir")
    data = str(DIGITS / "calibration.npz")
    assert main(["bisect", str(tmp_path / "3_calibrated.mlir"), "--data", data]) == 0
    assert "no op breaks 0.90,0.80 by itself on bm1684x in int8" in capsys.readouterr().out


class CapsRelu(RewritePattern):
    """A pattern that is wrong: every Relu without a bound gets one."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if isinstance(op, TopRelu) and relu_limit_of(op) <= 0:
            op.relu_limit = float_attr(0.125)
            rewriter.notify_op_modified(op)


@pytest.mark.slow
def test_a_pattern_that_changes_numbers_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(import_onnx(DIGITS / "digits.onnx"), tmp_path / "1_top.mlir")
    asked = ["canonicalize", str(tmp_path / "1_top.mlir"), "--data", str(DIGITS / "calibration.npz")]
    assert main(asked) == 1 and "needs --verify-passes" in capsys.readouterr().err
    assert main([*asked, "--verify-passes"]) == 0
    shown = capsys.readouterr().out
    fired = sum(int(line.split(": ")[1]) for line in shown.splitlines() if re.fullmatch(r"\w+: \d+", line))
    assert fired > 5 and f"verify-passes: {fired + 1} patterns and passes changed no numbers" in shown
    largest = float(run(digits(), sample())["stem_Relu"].max())
    own = TopRelu.canonicalization_patterns
    monkeypatch.setattr(TopRelu, "canonicalization_patterns", lambda weights: (CapsRelu(), *own(weights)))
    assert main([*asked, "--verify-passes"]) == 1
    said = capsys.readouterr().out
    pattern = r"verify-passes: CapsRelu \(rewriting \d+\) changed numbers: '(\w+)' by ([\d.]+), ([\d.]+) of"
    assert (match := re.search(pattern, said)), said
    tensor, moved, share = match.groups()
    assert tensor == "stem" and float(moved) == pytest.approx(largest - 0.125, rel=1e-4)
    assert float(share) == pytest.approx(1 - 0.125 / largest, rel=1e-2)


def test_a_pass_must_leave_integers_as_they_are() -> None:
    """One step of one integer tensor is too much, where the same share of a float tensor is rounding."""
    model = to_tpu(calibrated(), INT8)
    check = NumbersChanged(sample())

    def becomes(other: Model) -> None:
        PassManager([Becomes(other)], [check]).run(model)

    becomes(model)
    assert check.first is None and check.checked == 1
    becomes(to_tpu(calibrated(mix_Relu=1.00001), INT8))
    assert check.first is None  # the multiplier rounds to the same
    becomes(to_tpu(calibrated(mix_Relu=1.01), INT8))
    assert check.first is not None and (check.first.rewriting, check.first.firing) == ("becomes", 3)
    assert check.first.tensor == "mix_Relu" and check.first.moved == 1 and check.first.allowed == 0
    becomes(model)
    assert check.checked == 3


def test_run_verifies_its_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The patterns and the passes, before and after quantisation, which changes numbers on purpose."""
    asked = ["run", str(DIGITS / "digits.onnx"), "--table", str(TABLE), "--verify-passes", "--out", str(tmp_path)]
    assert main([*asked, "--to", "assign"]) == 0
    fired = sum(canonicalize(import_onnx(DIGITS / "digits.onnx"))[1].values())
    exact = ("canonicalize", "import-calibration-table", "processor-tpu-optimize", "weight-reorder", "layer-group",
             "search-groups", "combine-timesteps", "overlap-groups", "outline-host-functions",
             "address-assign")  # fmt: skip
    assert f"verify-passes: {fired + len(exact)} patterns and passes changed no numbers" in capsys.readouterr().out


def test_a_run_keeps_the_table_it_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`tpusim why --apply` starts from it; later stages carry it along, another table takes its place."""
    mine, out = tmp_path / "mine", tmp_path / "out"
    mine.write_text(f"# a comment of mine\n{TABLE.read_text()}")
    asked = ["run", str(DIGITS / "digits.onnx"), "--out", str(out), "--table"]
    assert main([*asked, str(mine), "--to", "calibrate"]) == 0
    assert (out / "cali_table").read_bytes() == mine.read_bytes()
    why = ["why", str(out / "3_calibrated.mlir"), "--top", "1", "--cycles", "1", "--expected-cos", "0.5", "--apply"]
    assert main(why) == 0
    assert (out / "new_cali_table").read_bytes() == mine.read_bytes()  # nothing needs a remedy
    assert main([*asked, str(mine), "--to", "lower", "--from", "lower"]) == 0
    assert main([*asked, str(out / "cali_table"), "--to", "lower", "--resume"]) == 0
    assert (out / "cali_table").read_bytes() == mine.read_bytes() and mine.is_file()
    assert main([*asked, str(TABLE), "--to", "lower", "--resume"]) == 0
    assert (out / "cali_table").read_bytes() == TABLE.read_bytes()
    assert main([*asked, str(TABLE), "--to", "lower", "--mode", "f32"]) == 0
    assert not (out / "cali_table").exists()  # float needs no thresholds
    capsys.readouterr()


def one_large_channel(path: Path) -> None:
    """Conv, Relu, Conv: the first filter of the first is a thousand times larger than the others."""
    rng = np.random.default_rng(5)
    first, last = (rng.standard_normal(s).astype(np.float32) for s in ((8, 3, 3, 3), (4, 8, 1, 1)))
    first[0] *= 1000
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 3, 8, 8]), ("y", [1, 4, 8, 8]))]
    weights = [numpy_helper.from_array(first, "w"), numpy_helper.from_array(last, "v")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_a_passing_verdict_does_not_hide_dead_channels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one_large_channel(tmp_path / "large.onnx")
    asked = ["--data", "random:1", "--method", "max", "--out", str(tmp_path / "out")]
    assert main(["run", str(tmp_path / "large.onnx"), *asked]) == 0
    shown = capsys.readouterr().out
    warning = "WARNING: 7 of 8 channels of r_Relu are zero in integers and not in float; its verdict is SIMILAR"
    assert warning in shown and shown.index(warning) < shown.index("PASSED  large")
    report = read_report(tmp_path / "out" / "report.json")
    found = {t.name: t for t in report.compare["tpu_vs_top"].tensors}
    assert found["r_Relu"].passed and found["r_Relu"].cosine is not None and found["r_Relu"].cosine > 0.999
    lost = found["r_Relu"].channels
    assert lost is not None and (lost.count, lost.dead, lost.least_cosine) == (8, 7, 0) and lost.worst_channel > 0
    stored = np.load(tmp_path / "out" / "tpu_outputs.npz")["r_Relu"]
    assert lost.saturated == pytest.approx(np.mean(stored == 255)) and lost.values == 64
    assert lost.saturated > 0 and stored.dtype == np.uint8
    assert all(t.channels is None for t in report.compare["top_vs_onnx"].tensors)


def test_classes_are_no_dead_channels() -> None:
    """A softmax has one value for each class: zeros are small probabilities."""
    assert Channels(1000, 931, 0.0, 3, 0.0, values=1).lost == 0
    assert Channels(8, 7, 0.0, 3, 0.0, values=64).lost == 7
