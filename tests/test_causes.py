"""Of what `tpusim why` finds: a mask that no INT8 holds, samples that were prepared otherwise, and the command."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiling import to_calibrated, to_canonical, to_tpu
from end_to_end import DIGITS
from faults import PHOTO, float_module, samples, table
from plain_names import import_onnx
from planted import IMAGE, PATCHES, residual, vit
from rotation import marks

from tpusim import frontend
from tpusim.calibration.table import CalibrationTable, read_table, write_table
from tpusim.cli import main
from tpusim.errors import ModeWarning
from tpusim.images import Preprocess, with_preprocess
from tpusim.inference import Gradual, input_specs, run
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model, save_model
from tpusim.ir.weights import WeightStore
from tpusim.lowering import LoweringConfig
from tpusim.lowering.qtable import read_qtable
from tpusim.ops.structure import TopWeight
from tpusim.studies.diagnosis import other_preprocessing, preprocessing

INT8 = LoweringConfig("bm1684x", "int8")


def test_a_mask_beyond_int32_is_told_and_its_op_may_be_float() -> None:
    """The real interpreter gives -8 of 127 steps; the closed simulator of BM1684X too, that of BM1688 8 in places.

    The op is a Conv between two views on the chip, called after it: the table names the op.
    """
    model, sample = to_calibrated(float_module("vit", "mask"), table("vit", "mask")), samples("vit")[0]
    with pytest.warns(
        ModeWarning, match=r"'masked': a bias within int32 is required, got 1e\+09, .*qtable=.*masked:F16"
    ):
        integers = to_tpu(model, INT8)
    assert set(run(integers, sample)["masked"].reshape(8, 10)[6:].ravel().tolist()) == {-8}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixed = to_tpu(model, replace(INT8, qtable="masked:F16"))
    convs = [op for op in mixed.ops if op.name == "tpu.Conv2D"]
    assert [str(op.results[0].type) for op in convs] == ["tensor<1x8x1x10xf16>"]


# --- preprocessing


@cache
def colors(name: str) -> tuple[Model, list[dict[str, np.ndarray]], np.ndarray]:
    """A network, images around 0 of other colours for it, and what it says of them."""
    top = to_canonical(import_onnx(vit(patches=True))) if name == "vit" else centred() if name == SEEDED else resnet()
    shape, count = (PATCHES, 60) if name == "vit" else (PHOTO, 12) if name == SEEDED else (IMAGE, 120)
    given = [{next(iter(input_specs(top))): image} for image in pictures(shape, count)]
    result = value_name(top.results[0])
    labels = np.array([found[result].argmax() for _, found in Gradual(top).each(given)])
    return top, given, labels


def pictures(shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    made = [rng.uniform(-1, 1, shape) * rng.uniform(0, 1, (1, 3, 1, 1)) for _ in range(count)]
    return [(image + rng.uniform(-1, 1, (1, 3, 1, 1))).astype(np.float32) for image in made]


SEEDED = "squeezenet"


def resnet() -> Model:
    return to_canonical(import_onnx(residual()))


def centred() -> Model:
    """Squeezenet with seeded filters, which see one class everywhere, less what every class has on average."""
    top = float_module(SEEDED).clone()
    found = [scores["r65"].ravel() for _, scores in Gradual(top).each({"data_0": x} for x in pictures(PHOTO, 12))]
    bias = next(op for op in top.ops if op_name(op) == "r64").operands[2].owner
    assert isinstance(bias, TopWeight)
    name = op_name(bias)
    return Model(top.module, WeightStore({**top.weights, name: top.weights[name] - np.mean(found, axis=0)}))


NAMES = [pytest.param(name, marks=marks(name == "residual")) for name in ("residual", "vit", SEEDED)]


def test_digits_that_were_prepared_otherwise() -> None:
    """A forgotten 1/255; and nothing is said where nothing is wrong."""
    images, labels = labelled(24)
    before, better = other_preprocessing(as_run(), [{"image": x[None] * 255} for x in images], labels)
    assert before < 0.5 and (better[0].what, better[0].top1, better[0].options) == ("values divided by 255", 1, "")
    assert other_preprocessing(as_run(), [{"image": x[None]} for x in images], labels) == (1, [])


@pytest.mark.every
@pytest.mark.parametrize("name", NAMES)
def test_samples_that_were_prepared_otherwise(name: str) -> None:
    """Blue for red, and a forgotten 1/255, which nets of ReLUs and small biases hardly feel."""
    top, given, labels = colors(name)
    mistakes = {"channels in reverse order": reverse, "values divided by 255": lambda x: x * 255}
    for what in list(mistakes)[: 1 if name == "residual" else 2]:
        fed = [{key: mistakes[what](x) for key, x in sample.items()} for sample in given]
        before, better = other_preprocessing(top, fed, labels)
        assert before < 0.9 and (better[0].what, better[0].top1) == (what, 1)


@pytest.mark.parametrize(
    ("gained", "lost", "count", "is_cause"),
    [
        (12, 6, 64, False),  # 9 points more, one and a half standard errors: chance
        (8, 0, 60, True),
        (8, 3, 64, False),
        (40, 20, 64, True),
        (26, 0, 1000, False),  # sure, but no more than 2.6 points
        (60, 0, 1000, True),
        (3, 0, 24, False),
        (0, 0, 24, False),
    ],
)
def test_a_few_samples_more_are_no_other_preprocessing(gained: int, lost: int, count: int, is_cause: bool) -> None:
    """Of labelled samples only those tell that are right in one of two preparations."""
    before, after = np.zeros(count, bool), np.zeros(count, bool)
    after[:gained] = before[gained : gained + lost] = True
    assert preprocessing._gains(before, after) is is_cause


def reverse(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image[:, ::-1])


@pytest.mark.every
@pytest.mark.parametrize("name", NAMES)
def test_the_options_that_mend_a_swapped_mean(name: str) -> None:
    """The module says how its images were made: the other mean is an option of the import."""
    plain, given, labels = colors(name)
    mean, scale = (123.675, 116.28, 13.53), (0.017, 0.0175, 0.0174)
    top = with_preprocess(plain, Preprocess(mean[::-1], scale, "rgb"))
    right, swapped, factor = (np.array(v, np.float32)[:, None, None] for v in (mean, mean[::-1], scale))
    fed = [{key: ((x / factor + right) - swapped) * factor for key, x in sample.items()} for sample in given]
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
    save_model(to_calibrated(as_run(), broken), tmp_path / "3_calibrated.mlir")
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
    assert "it names tensors at which the network begins; samples are --data" in capsys.readouterr().err
    (tmp_path / "inputs.npz").unlink()
    assert main([*asked, *given[:2]]) == 0, "the first sample of --data"


@cache
def as_run() -> Model:
    """Digits with the names that TPU-MLIR gives."""
    return to_canonical(frontend.import_onnx(DIGITS / "digits.onnx"))


def labelled(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of digits and their classes."""
    with np.load(DIGITS / "test.npz") as test, np.load(DIGITS / "labels.npz") as known:
        return test["image"][:count], known[known.files[0]][:count]
