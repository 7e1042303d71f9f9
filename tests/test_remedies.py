"""What is recommended holds on samples that did not choose it, and is what an independent sum of squares says.

Expected figures are NumPy's, of the float network's results and of those of the lowered module, sample by sample.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from end_to_end import DIGITS
from faults import float_module, samples
from plain_names import import_onnx
from planted import IMAGE, Graph, residual

from tpusim.cli import main
from tpusim.images import Preprocess, with_preprocess
from tpusim.inference import dequantised, run
from tpusim.inference.reuse import Reuse, parts_of
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model, save_model
from tpusim.lowering import LoweringConfig
from tpusim.studies.commands.judging import rests_on, scoring
from tpusim.studies.diagnosis import (
    Change,
    Judge,
    Judged,
    Measured,
    Remedies,
    causes,
    first_broken,
    losses,
    mistaken_scales,
    other_preprocessing,
)
from tpusim.studies.diagnosis.magnitudes import Magnitudes
from tpusim.studies.search import Tables
from tpusim.verify.compare import Tolerance

INT8 = LoweringConfig("bm1684x", "int8")
Array = np.ndarray
Sample = dict[str, Array]


def errors(top: Model, tpu: Model, given: Sequence[Sample]) -> Array:
    """(samples,) squared errors as shares of the mean squares of the float results, of the only result."""
    wanted = [run(top, one)[value_name(top.results[0])].astype(np.float64) for one in given]
    name = value_name(tpu.results[0])
    found = [dequantised(tpu, run(tpu, one))[name].astype(np.float64) for one in given]
    squares = np.mean([np.sum(one * one) for one in wanted])
    return np.array([np.sum((f.reshape(w.shape) - w) ** 2) for f, w in zip(found, wanted, strict=True)]) / squares


def dim_first(name: str, count: int = 8) -> list[Sample]:
    """Samples whose first is a fifth as bright: ranges that fit it cut the others."""
    given = [dict(one) for one in samples(name, count)]
    return [{key: x * np.float32(0.2) for key, x in given[0].items()}, *given[1:]]


@cache
def dimmed(name: str) -> tuple[Model, list[Sample]]:
    given = dim_first(name)
    top = float_module(name)
    return to_calibrated(top, given), given


NAMES = ["digits", "residual", "vit", "detector", pytest.param("squeezenet", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", NAMES)
def test_what_fits_one_sample_is_no_remedy(name: str) -> None:
    """Every remedy lowers the error of both halves, by as much as is said; no range is below what samples reach."""
    model, given = dimmed(name)
    remedies = Remedies(model, INT8, given)
    assert remedies.judge.halves == (4, 4)
    found, _ = causes(remedies, losses(model, remedies.lowered(), given[:1]), 3)
    before = errors(model, remedies.lowered(), given)
    assert remedies.before.judged.error == pytest.approx(before[::2].mean(), rel=0.05)
    for cause in found[:3]:
        after = errors(model, remedies.lowered(cause.remedy.changes), given)
        judged, held_out = cause.remedy.judged.judged, cause.remedy.judged.held_out
        assert held_out is not None
        assert (judged.error, held_out.error) == pytest.approx((after[::2].mean(), after[1::2].mean()), rel=0.05)
        assert after[::2].mean() < before[::2].mean() and after[1::2].mean() < before[1::2].mean()
        assert all(
            change.threshold >= 0.99 * remedies.reach(change.name) for change in cause.remedy.changes if not change.mode
        )
    alone = Remedies(model, INT8, given[:1])
    kinds = {c.kind for c in causes(alone, losses(model, alone.lowered(), given[:1]), 3)[0]}
    if name not in ("vit", "detector"):  # a LayerNorm and Sigmoids hide what is dim
        assert {"other data in calibration", "wasted range"} & kinds, "what one sample says"


def test_a_large_network_is_seen_tensor_by_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen of its tensors, its float results and its errors are those of a small network."""
    model, given = dimmed("residual")
    small = Judge(model, given)
    monkeypatch.setattr("tpusim.studies.diagnosis.judge.fits_alone", lambda model: True)
    large = Judge(model, given)
    assert (small.large, large.large, len(large.shown)) == (False, True, 1)
    assert large.seen.keys() == small.seen.keys()
    for name, seen in small.seen.items():
        assert (large.seen[name].reach, large.seen[name].count) == (seen.reach, seen.count)
        np.testing.assert_array_equal(large.seen[name].bins, seen.bins)
    lowered = to_tpu(model, INT8)
    [ours], [theirs] = large.judged([lowered]), small.judged([lowered])
    np.testing.assert_array_equal(ours.judged.errors, theirs.judged.errors)


@pytest.mark.parametrize("name", ["residual", "vit"])
def test_what_is_left_out_of_a_large_network_gives_nothing_back(name: str) -> None:
    """Every remedy that is better alone is still reported when sets of ops are first tried together."""
    model, given = dimmed(name)
    remedies = Remedies(model, INT8, given)
    sets = [(Change(one, remedies.mode),) for one in list(remedies.limits)[1:]]
    every = remedies.worth(sets)
    assert every
    large = Remedies(model, INT8, given)
    large.few = 3
    kept = large.worth(sets)
    assert [one.changes for one in kept[:3]] == [one.changes for one in every[:3]]


def measured(*errors: float) -> Measured:
    """Of one result without slices."""
    return Measured(np.array(errors)[:, None], np.ones(len(errors)), 1)


BEFORE = (1.0, 1.2, 0.8, 1.0, 1.1, 0.9)


@pytest.mark.parametrize(
    ("after", "better"),
    [
        ((0.5, 0.6, 0.4, 0.5, 0.5, 0.4), True),
        ((0.999, 1.199, 0.799, 0.999, 1.099, 0.899), False),  # a tenth of a percent is no gain
        ((0.1, 1.3, 0.9, 1.1, 1.2, 1.0), False),  # one sample gains, the others lose
        ((1.1, 1.0, 0.9, 0.7, 1.2, 0.95), False),  # noise
        ((1.0, 1.2, 0.8, 1.0, 1.1, 0.9), False),
        ((0.9, 1.1, 0.7, 0.9, 1.0, 0.8), True),  # little, but everywhere
        ((2.0, 2.4, 1.6, 2.0, 2.2, 1.8), False),
    ],
)
def test_better_is_better_in_most_samples(after: tuple[float, ...], *, better: bool) -> None:
    assert measured(*after).is_better_than(measured(*BEFORE)) == better


def test_no_other_error_may_rise() -> None:
    """Of two results, and of slices of one: what mends the worse one does not take from the other."""
    two = Measured(np.array([[1.0, 0.1]] * 4), np.ones(4), 2)
    assert Measured(np.array([[0.5, 0.1]] * 4), np.ones(4), 2).is_better_than(two)
    assert not Measured(np.array([[0.5, 0.2]] * 4), np.ones(4), 2).is_better_than(two)
    sliced = Measured(np.array([[0.01, 0.9]] * 4), np.ones(4), 1)
    assert Measured(np.array([[0.01, 0.1]] * 4), np.ones(4), 1).is_better_than(sliced)
    assert not Measured(np.array([[0.011, 0.1]] * 4), np.ones(4), 1).is_better_than(sliced)
    held = Judged(measured(0.5), measured(1.1))
    assert not held.holds_against(Judged(measured(1.0), measured(1.0))) and held.raises(
        Judged(measured(1.0), measured(1.0))
    )


@pytest.mark.parametrize(
    ("scores", "classes", "better"),
    [
        (0.2, 1, True),  # one sample's class is another before; the scores are better in all of them
        (0.2, 4, True),
        (0.2, 0, True),
        (1.0, 1, False),  # the class of one sample alone may be chance
        (0.999, 1, False),
        (1.1, 1, False),  # the scores are worse
        (0.2, -1, False),  # a class is another afterwards
    ],
)
def test_a_class_of_one_sample_does_not_hide_better_scores(scores: float, classes: int, *, better: bool) -> None:
    """Two results: scores, whose errors are between 0.001 and 0.003 as lowered, and a class, whose error is 0 or 2."""
    count = 32
    was = np.stack([np.linspace(0.001, 0.003, count), 2.0 * (np.arange(count) < classes)], axis=1)
    now = np.stack([was[:, 0] * scores, 2.0 * (np.arange(count) < -classes)], axis=1)
    assert Measured(now, np.ones(count), 2).is_better_than(Measured(was, np.ones(count), 2)) is better


def test_a_batch_has_the_bits_of_single_samples() -> None:
    """More than eight small samples are run together; an op that was run is not run again."""
    model = to_calibrated(float_module("residual"), samples("residual"))
    tpu, given = to_tpu(model, INT8), samples("residual", 12)
    parts, reuse = list(parts_of(given, model)), Reuse()
    assert [len(part.samples) for part in parts] == [12] and [len(p.samples) for p in parts_of(given[:8], model)] == [
        1
    ] * 8
    names = [value_name(op.results[0]) for op in tpu.ops if op.name.startswith("tpu.")]
    for _ in range(2):
        found = reuse.of_part(tpu, parts[0], names)
        for one, sample in zip(found, given, strict=True):
            wanted = dequantised(tpu, run(tpu, sample))
            assert all(np.array_equal(one[name], wanted[name]) for name in names)


def test_what_is_seen_of_tensors() -> None:
    """Shares and gaps to a bin, extremes exactly; channels of images and of tokens."""
    rng, seen = np.random.default_rng(0), Magnitudes()
    parts = [rng.standard_normal((1, 5, 40, 40)).astype(np.float32) for _ in range(3)]
    parts[1][0, 3] *= 50
    parts[2][0, 0, 0, 0] = np.inf
    for part in parts:
        seen.add(part)
    values = np.abs(np.where(np.isfinite(parts), parts, 0))
    assert seen.reach == values.max() and np.array_equal(seen.channels[1], values.max(axis=(0, 1, 3, 4)))
    for limit in (0.5, 2.0, 40.0):
        assert seen.above(limit) == pytest.approx(float(np.mean(values > limit)), rel=0.1, abs=1e-3)
    masked = Magnitudes()
    masked.add(
        np.where(np.arange(96).reshape(1, 8, 12) % 12 > 8, np.float32(-1e9), parts[0].ravel()[:96].reshape(1, 8, 12))
    )
    bulk, largest = masked.bulk(0.9)
    assert largest == np.float32(1e9) and 1 < bulk < 5 and set(masked.channels) == {1, 2}


def test_samples_that_are_held_out_are_said() -> None:
    assert "nothing was held out" in rests_on((1, 0), "of x") and "32 samples, 31 held out" in rests_on(
        (32, 31), "of x"
    )
    assert [scoring(count) for count in (1, 2, 7, 16, 64)] == [1, 1, 4, 8, 30]


def test_the_method_that_raises_an_error_is_not_the_best() -> None:
    """The highest score is not enough, and nothing is better than a table that all methods make worse."""
    errors = {
        m: Judged(measured(e), measured(h)) for m, e, h in (("kl", 1.0, 1.0), ("max", 0.5, 1.2), ("mse", 0.9, 0.9))
    }
    tables = Tables({}, 4, {"kl": 0.8, "max": 0.99, "mse": 0.9}, errors, None, (2, 2))
    assert tables.best == "mse"
    assert replace(tables, now=Judged(measured(0.95), measured(0.95))).best == "mse"
    assert replace(tables, now=Judged(measured(0.1), measured(0.1))).best is None


@cache
def run_folder(tmp: Path) -> Path:
    """A run of the residual net on a file of samples."""
    import onnx  # noqa: PLC0415  the file is needed here alone

    onnx.save(residual(), tmp / "net.onnx")
    np.savez(tmp / "data.npz", x=np.concatenate([one["x"] for one in samples("residual", 8)]))
    asked = ["--data", str(tmp / "data.npz"), "--method", "max", "--out", str(tmp / "out"), "--to", "calibrate"]
    assert main(["run", str(tmp / "net.onnx"), *asked]) == 0
    return tmp / "out"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folder(tmp_path_factory.mktemp("run"))


def test_commands_rest_on_the_calibration_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in the run, half held out; --data and --samples override them; if they are gone, a message says so."""
    module = str(folder / "3_calibrated.mlir")
    few = ["--top", "1", "--cycles", "0", "--worst", "0", "--expected-cos", "0.5"]
    assert main(["why", module, *few]) == 0
    assert "judged on 4 samples, 4 held out, of the run's calibration" in (shown := capsys.readouterr().out)
    assert "results as lowered, judged: error" in shown and "results as lowered, held out: error" in shown
    assert main(["why", module, *few, "--samples", "3"]) == 0
    assert "judged on 2 samples, 1 held out" in capsys.readouterr().out
    assert main(["search-qtable", module, "--expected-cos", "0.5", "--clocked", "1"]) == 0
    assert (
        "judged on 4 samples, 4 held out" in (shown := capsys.readouterr().out) and "on the samples held out" in shown
    )
    assert "4, 4 held out" in (folder / "qtable").read_text()
    assert main(["bisect", module]) == 0
    assert "every op is tried on 4 samples of the run's calibration" in capsys.readouterr().out
    assert main(["why", module, *few, "--data", str(folder / "inputs.npz")]) == 0
    assert "judged on 1 sample" in capsys.readouterr().out


def test_bisect_counts_the_samples_that_break(folder: Path) -> None:
    """An op whose range only one bright sample exceeds is broken on that sample alone."""
    del folder
    top = float_module("residual")
    given = [dict(one) for one in samples("residual", 4)]
    model = to_calibrated(top, given)
    given[2] = {"x": given[2]["x"] * np.float32(20)}
    broken = first_broken(model, to_tpu(model, INT8), given, Tolerance(0.99, 0.9))
    assert broken is not None and (broken.broken, broken.samples) == (1, 4) and broken.sample is given[2]


# --------------------------------------------------------------------------------------------------- causes by name


def squared(kind: str, size: float = 300.0) -> Model:
    """A norm by squares of large numbers, as T5 and LLaMA have it."""
    g = Graph(6)
    x = g.add("Mul", [g.conv("x", g.weight(8, 3, 3, 3) * size), g.constant(np.float32(1))], "wide")
    two = g.constant(np.float32(2))
    square = {
        "Mul": ["Mul", x, x],
        "Pow": ["Pow", x, two],
        "Exp": ["Mul", x, x],
        "scaled": ["Mul", x, g.constant(np.float32(900))],
    }
    op, *inputs = square.get(kind, square["Mul"])
    q = g.add(op, inputs, "square")
    if kind == "sum":
        q = g.add("ReduceSum", [q, g.constant(np.array([1]))], "sum", keepdims=1)
    m = g.add("ReduceMean", [g.add("Abs", [q])], "mean", axes=[1], keepdims=1)
    n = g.add("Div", [x, g.add("Sqrt", [g.add("Add", [m, g.constant(np.float32(1e-3))])])], "normed")
    return to_canonical(import_onnx(g.finish(IMAGE, g.conv(n, g.weight(4, 8, 1, 1), "y"))))


@pytest.mark.parametrize("kind", ["Mul", "Pow", "sum", "scaled"])
def test_an_overflow_of_f16_is_named(kind: str) -> None:
    """Where it begins, how far values reach, and the ops that have to be wider, measured."""
    given = [dict(one) for one in samples("residual")]
    top = squared(kind)
    model = to_calibrated(top, given)
    remedies = Remedies(model, LoweringConfig("bm1684x", "f16"), given)
    found = losses(model, remedies.lowered(), given[:1])
    first = causes(remedies, found, 2)[0][0]
    floats = [run(model, one)[first.tensor] for one in given]
    assert first.kind == "overflow" and first.tensor.startswith("square")
    assert max(np.abs(one).max() for one in floats) > 65504 and "float16 ends at 65,504" in first.evidence
    assert first.remedy.judged.judged.error < 1e-3 < remedies.before.judged.error
    after = errors(model, remedies.lowered(first.remedy.changes), given)
    assert after[1::2].mean() == pytest.approx(first.remedy.judged.last.error, rel=0.05)


def test_search_qtable_names_the_overflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, top = samples("residual"), squared("Mul")
    save_model(to_calibrated(top, given), tmp_path / "3_calibrated.mlir")
    np.savez(tmp_path / "data.npz", x=np.concatenate([one["x"] for one in given]))
    asked = [
        "search-qtable",
        str(tmp_path / "3_calibrated.mlir"),
        "--data",
        str(tmp_path / "data.npz"),
        "--clocked",
        "1",
    ]
    assert main([*asked, "--expected-cos", "0.9999"]) == 1
    shown = capsys.readouterr().out
    assert "0.9999 is not reached with all ops in f16" in shown and "overflow at square" in shown
    assert "float16 ends at 65,504" in shown and re.search(
        r"cosine (1\.0000|0\.9999)\d\d with all ops in float by --float-mode f32 --qtable .*:F32", shown
    )


def masked(kind: str, mask: float) -> Model:
    """Logits, two of which are masked, into a function that CV18xx has as a table of BF16."""
    g = Graph(6)
    hide = np.where(np.arange(8) > 5, mask, 0).astype(np.float32).reshape(1, 8, 1, 1)
    x = g.add("Add", [g.conv("x", g.weight(8, 3, 3, 3)), g.constant(hide)], "hidden")
    return to_canonical(import_onnx(g.finish(IMAGE, g.add(kind, [x], "y"))))


@pytest.mark.parametrize(
    ("kind", "mask"), [("Sigmoid", -3e38), ("Sigmoid", -1e30), ("Sigmoid", 1e30), ("Tanh", -1e30), ("Sigmoid", -1e20)]
)
def test_a_table_that_is_extrapolated_is_named(kind: str, mask: float) -> None:
    given, top = [dict(one) for one in samples("residual")], masked(kind, mask)
    model = to_calibrated(top, given)
    remedies = Remedies(model, LoweringConfig("cv183x", "bf16"), given)
    assert remedies.before.judged.error > 100  # of values from -1 to 1
    first = causes(remedies, losses(model, remedies.lowered(), given[:1]), 2)[0][0]
    assert first.kind == "wrong float" and first.tensor.startswith("y") and "hidden" in first.evidence
    assert first.remedy.judged.last.error < 0.01


PIXELS = [np.random.default_rng(i).integers(0, 256, IMAGE).astype(np.float32) for i in range(4)]


@pytest.mark.parametrize(
    ("scale", "named"),
    [
        (None, "255 x 255 is 65,025"),
        ((255.0,) * 3, "0.00392157,0.00392157,0.00392157"),
        ((58.395, 57.12, 57.375), "0.0171248,0.017507,0.0174292"),
        ((127.5,) * 3, "0.00784314,0.00784314,0.00784314"),
        ((256.0,) * 3, "0.00390625,0.00390625,0.00390625"),
        ((1 / 255,) * 3, ""),
        ((0.0171, 0.0175, 0.0174), ""),
        ((1.0,) * 3, ""),
    ],
)
def test_a_scale_that_is_upside_down_is_named(scale: tuple[float, ...] | None, named: str) -> None:
    """What no preparation of an image gives; with what was meant the integers are measured, and are fine."""
    plain = to_canonical(import_onnx(residual()))
    top = plain if scale is None else with_preprocess(plain, Preprocess((0.0,) * 3, scale, "rgb"))
    factor = np.float32(255) if scale is None else np.array(scale, np.float32).reshape(-1, 1, 1)
    given = [{"x": image * factor} for image in PIXELS]
    model = to_calibrated(top, given)
    found = list(mistaken_scales(Remedies(model, INT8, given), given))
    if not named:
        assert found == []
        return
    assert named in f"{found[0].evidence} {found[0].options}" and found[0].judged.last.error < 0.001


def test_labels_name_a_scale_that_was_squared() -> None:
    with np.load(DIGITS / "test.npz") as test, np.load(DIGITS / "labels.npz") as known:
        images, labels = test["image"][:24], known[known.files[0]][:24]
    before, better = other_preprocessing(float_module("digits"), [{"image": x[None] * 65025} for x in images], labels)
    assert before < 0.5 and better[0].what.startswith("values divided by 65,025") and better[0].top1 == 1


def test_correct_bias_and_search_threshold_count_samples(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [str(folder / "2_canonical.mlir"), "--data", str(folder.parent / "data.npz"), "--tune-num", "0"]
    out = ["--out-table", str(tmp_path / "t"), "--out", str(tmp_path / "m.mlir")]
    assert main(["search-threshold", *asked, *out]) == 0
    shown = capsys.readouterr().out
    assert "judged on 4 samples, 4 held out" in shown and shown.count(" judged, ") == 4 and "  best" in shown
    assert main(["correct-bias", *asked, *out, "--expected-cos", "1", "--min-layer-cos", "1", "--in-turn"]) == 0
    assert "judged on 4 samples, 4 held out" in capsys.readouterr().out
