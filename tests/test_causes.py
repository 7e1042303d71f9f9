"""`tpusim why` names a planted fault first, and the remedy that it measured gives the network back."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from end_to_end import DIGITS
from plain_names import import_onnx
from planted import IMAGE, TOKENS, detector, residual, vit
from rotation import marks

from tpusim import frontend
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate
from tpusim.calibration.table import CalibrationTable, read_table, write_table
from tpusim.canonicalize import canonicalize
from tpusim.cli import main
from tpusim.diagnosis import Remedies, causes, first_broken, losses, other_preprocessing
from tpusim.errors import ModeWarning
from tpusim.images import Preprocess, with_preprocess
from tpusim.inference import Gradual, run
from tpusim.ir.module import Model, save_model
from tpusim.lowering import LoweringConfig, lower
from tpusim.lowering.qtable import read_qtable
from tpusim.verify.compare import Tolerance

INT8 = LoweringConfig("bm1684x", "int8")
METHOD = CalibrationConfig("max", tune_samples=0)


def samples(shape: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]


@cache
def sound(name: str) -> Model:
    """The residual net or the ViT block without a fault, calibrated."""
    return planted(residual() if name == "residual" else vit(), IMAGE if name == "residual" else TOKENS)


def planted(
    model: onnx.ModelProto, shape: tuple[int, ...], factors: dict[str, float] | None = None, outlier: float = 1.0
) -> Model:
    """Calibrated, some thresholds multiplied; outlier: how many times too large one of the samples is."""
    top, given = canonicalize(import_onnx(model))[0], samples(shape)
    given[2]["x"] = given[2]["x"] * np.float32(outlier)
    entries = dict(calibrate(top, given, METHOD)[0].entries)
    for name, by in (factors or {}).items():
        entries[name] = replace(entries[name], threshold=entries[name].threshold * by)
    return apply_table(top, CalibrationTable(entries))


FAULTS = {
    "one channel": (lambda: planted(residual(50), IMAGE), "unlike channels", "wide"),
    "scores and boxes": (lambda: planted(detector(), IMAGE), "unlike operands", "y"),
    "threshold too small": (lambda: planted(residual(), IMAGE, {"narrow": 0.03}), "clipped range", "narrow"),
    "threshold too large": (lambda: planted(residual(), IMAGE, {"narrow": 100}), "wasted range", "narrow"),
    "too large in a ViT": (lambda: planted(vit(), TOKENS, {"hidden": 300}), "wasted range", "hidden"),
    "mask": (lambda: planted(vit(-1e9), TOKENS), "mask constant", "masked"),
    "outlier": (lambda: planted(residual(), IMAGE, outlier=40), "other data in calibration", "x"),
}
"""Fault -> (a network that has it, the kind of cause, where it is)."""


IN_TURNS = ("threshold too large", "too large in a ViT", "outlier")


@pytest.mark.every
@pytest.mark.filterwarnings("ignore:op 'masked'")
@pytest.mark.parametrize("fault", [pytest.param(fault, marks=marks(fault not in IN_TURNS)) for fault in FAULTS])
def test_the_planted_cause_is_first_and_its_remedy_works(fault: str) -> None:
    """What is lost is given back to 95 % at least, up to what a sound network loses anyway."""
    make, kind, tensor = FAULTS[fault]
    model = make()
    sample = samples(TOKENS if tensor in ("masked", "hidden") else IMAGE)[0]
    remedies = Remedies(model, INT8, sample)
    first = causes(remedies, losses(model, lower(model, INT8)[0], sample), 3)[0]
    assert (first.kind, first.tensor) == (kind, tensor), first
    before, after = remedies.cosine(), first.remedy.cosine
    assert 1 - after < 0.05 * (1 - before) + 0.002, (before, after)
    assert before < 0.9997 and after > 0.9965


@pytest.mark.parametrize("name", ["residual", "vit"])
def test_a_sound_network_has_no_cause_but_sensitive_ops(name: str) -> None:
    sample = samples(IMAGE if name == "residual" else TOKENS)[0]
    remedies = Remedies(sound(name), INT8, sample)
    found = causes(remedies, losses(sound(name), lower(sound(name), INT8)[0], sample), 3)
    assert {cause.kind for cause in found} <= {"sensitive op"}


@pytest.mark.parametrize(("fault", "at"), [("threshold too small", "narrow"), ("scores and boxes", "scores")])
def test_bisect_finds_the_planted_op(fault: str, at: str) -> None:
    model, sample = FAULTS[fault][0](), samples(IMAGE)[0]
    found = first_broken(model, lower(model, INT8)[0], sample, Tolerance(0.99, 0.8))
    assert found is not None and found.name == at


def test_a_mask_beyond_int32_is_told_and_its_op_may_be_float() -> None:
    """The real interpreter has -8 of 127 steps there; the closed simulator of BM1684X too, that of BM1688 8 in places.

    The op is a Conv between two views on the chip, called after it: the table names the op.
    """
    model, sample = FAULTS["mask"][0](), samples(TOKENS)[0]
    with pytest.warns(ModeWarning, match=r"'masked': its bias of 1e\+09 is .* more than int32 .* \(masked:F16\)"):
        integers = lower(model, INT8)[0]
    assert set(run(integers, sample)["masked"].reshape(8, 10)[6:].ravel().tolist()) == {-8}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixed = lower(model, replace(INT8, qtable="masked:F16"))[0]
    convs = [op for op in mixed.ops if op.name == "tpu.Conv2D"]
    assert [str(op.results[0].type) for op in convs] == ["tensor<1x8x1x10xf16>"]


# --- preprocessing


@cache
def colors() -> tuple[Model, list[dict[str, np.ndarray]], np.ndarray]:
    """A network, images of 0 to 1 for it, and what it says of them."""
    top = canonicalize(import_onnx(residual()))[0]
    rng = np.random.default_rng(4)
    given = [{"x": rng.uniform(-1, 1, IMAGE).astype(np.float32) * rng.uniform(0, 1, (1, 3, 1, 1)).astype(np.float32)}
             for _ in range(60)]  # fmt: skip
    given = [{"x": sample["x"] + rng.uniform(-1, 1, (1, 3, 1, 1)).astype(np.float32)} for sample in given]
    labels = np.array([found["y"].argmax() for _, found in Gradual(top).each(given)])
    return top, given, labels


def test_samples_that_were_prepared_otherwise() -> None:
    """A forgotten 1/255 on digits, blue for red; and nothing is said where nothing is wrong."""
    images, labels = labelled(24)
    before, better = other_preprocessing(as_run(), [{"image": x[None] * 255} for x in images], labels)
    assert before < 0.5 and (better[0].what, better[0].top1, better[0].options) == ("values divided by 255", 1, "")
    assert other_preprocessing(as_run(), [{"image": x[None]} for x in images], labels) == (1, [])
    top, given, classes = colors()
    before, better = other_preprocessing(top, [{"x": np.ascontiguousarray(s["x"][:, ::-1])} for s in given], classes)
    assert before < 0.9 and (better[0].what, better[0].top1) == ("channels in reverse order", 1)


def test_the_options_that_mend_a_swapped_mean() -> None:
    """The module says how its images were made: the other mean is an option of the import."""
    _, given, labels = colors()
    mean, scale = (123.675, 116.28, 13.53), (0.017, 0.0175, 0.0174)
    top = with_preprocess(canonicalize(import_onnx(residual()))[0], Preprocess(mean[::-1], scale, "rgb"))
    right, swapped, factor = (np.array(v, np.float32)[:, None, None] for v in (mean, mean[::-1], scale))
    fed = [{"x": ((s["x"] / factor + right) - swapped) * factor} for s in given]
    before, better = other_preprocessing(top, fed, labels)
    assert before <= 0.9 and (better[0].what, better[0].top1) == ("mean in reverse order", 1)
    assert better[0].options == "--mean 123.675,116.28,13.53 --scale 0.017,0.0175,0.0174"


# --- command


@pytest.mark.slow
def test_the_command_writes_tables_that_mend_the_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Digits with a broken threshold: named first, clocked, applied; top-1 is that of the float network again."""
    table = read_table(Path(__file__).resolve().parent / "upstream" / "names" / "digits_cali_table")
    known = table.entries["pointwise_Relu"]
    broken = CalibrationTable({**table.entries, "pointwise_Relu": replace(known, threshold=known.threshold * 0.02)})
    save_model(apply_table(as_run(), broken), tmp_path / "3_calibrated.mlir")
    write_table(tmp_path / "cali_table", broken, method="kl", samples=1, bins=2048, tune=0, module="x")
    images, labels = labelled(24)
    np.savez(tmp_path / "test.npz", image=images)
    np.savez(tmp_path / "inputs.npz", image=images[:1])
    np.save(tmp_path / "labels.npy", labels)
    asked = ["why", str(tmp_path / "3_calibrated.mlir"), "--top", "2", "--cycles", "1", "--expected-cos", "0.99"]
    given = ["--data", str(tmp_path / "test.npz"), "--labels", str(tmp_path / "labels.npy")]
    assert main([*asked, *given, "--apply"]) == 0
    shown = capsys.readouterr().out
    assert (
        "remedy: pointwise_Relu with threshold" in shown and "clipped range" in shown and "preprocessing" not in shown
    )
    line = shown.split("top-1 of 24 samples: ")[1].split("\n")[0]
    top1 = [float(part.split()[-1].rstrip("%")) for part in line.split(",")]
    assert top1[1] < top1[0] - 5 and top1[2] >= 0.95 * top1[0]
    assert read_qtable(tmp_path / "new_qtable") == {}
    assert read_table(tmp_path / "new_cali_table").entries["pointwise_Relu"].threshold > 2
    assert main([*asked, "--labels", str(tmp_path / "labels.npy")]) == 1
    assert "--labels: needs --data" in capsys.readouterr().err
    assert main([*asked, *given[:2], "--inputs", str(tmp_path / "inputs.npz")]) == 1
    assert "so is --inputs; give one" in capsys.readouterr().err
    (tmp_path / "inputs.npz").unlink()
    assert main([*asked, *given[:2]]) == 0, "the first sample of --data"


@cache
def as_run() -> Model:
    """Digits with the names that TPU-MLIR gives."""
    return canonicalize(frontend.import_onnx(DIGITS / "digits.onnx"))[0]


def labelled(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of digits and their classes."""
    with np.load(DIGITS / "test.npz") as test, np.load(DIGITS / "labels.npz") as known:
        return test["image"][:count], known[known.files[0]][:count]
