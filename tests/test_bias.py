"""`tpusim correct-bias`: biases, tables and printed similarities of the real `run_calibration.py --bc`.

tests/upstream/names/bias_correction.json has what TPU-MLIR 1.30.2 printed and the table that it wrote, the npz the
biases that it changed in its weight file, for digits with the first 16 calibration images and `planted.residual(50)`
with eight samples:

    run_calibration.py m.mlir --dataset npz --input_num 16 --bc --chip bm1684x --expected_cos 0.99999
        --min_layer_cos 0.9999 --bc_inference_num 8 -o table          (residual: 8, 0.9999, 0.9999 and 6)
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiling import to_canonical
from end_to_end import DIGITS
from op_row import network, node
from planted import IMAGE, residual
from rotation import marks

from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import CalibrationConfig, calibrate
from tpusim.calibration.table import CalibrationTable, read_table
from tpusim.cli import main
from tpusim.errors import CalibrationError, ConfigError
from tpusim.frontend import import_onnx
from tpusim.inference import input_specs
from tpusim.ir.attrs import op_name
from tpusim.ir.module import Model, load_model, save_model
from tpusim.lowering import LoweringConfig
from tpusim.ops import context
from tpusim.ops.framework.families import constant_of
from tpusim.studies.search import Corrected, CorrectionConfig, correct_biases

NAMES = Path(__file__).resolve().parent / "upstream" / "names"
RECORDED = json.loads((NAMES / "bias_correction.json").read_text())
ASKED = {"digits": CorrectionConfig(0.99999, 0.9999, 8), "residual": CorrectionConfig(0.9999, 0.9999, 6)}
PRINTED = 1e-6
"""Six digits are printed; sums of f32 in another order move the last one by less than one."""


@cache
def top(name: str) -> Model:
    return to_canonical(import_onnx(DIGITS / "digits.onnx" if name == "digits" else residual(50)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The samples as files, in the order of their names."""
    found = {name: tmp_path_factory.mktemp(name) for name in ASKED}
    for number, image in enumerate(np.load(DIGITS / "calibration.npz")["image"][:16]):
        np.savez(found["digits"] / f"{number:02}.npz", image=image[None])
    rng = np.random.default_rng(0)
    for number in range(8):
        np.savez(found["residual"] / f"{number}.npz", x=rng.standard_normal(IMAGE).astype(np.float32))
    return found


def data(name: str, folder: Path, count: int = 0) -> Samples:
    return Samples(str(folder), input_specs(top(name)), count, shuffled=True)


@cache
def table_of(name: str, folder: Path) -> CalibrationTable:
    return calibrate(top(name), data(name, folder), CalibrationConfig("kl"))[0]


def corrected(name: str, folder: Path, chip: str, asked: CorrectionConfig) -> Corrected:
    samples = data(name, folder, asked.samples)
    return correct_biases(top(name), table_of(name, folder), samples, LoweringConfig(chip), asked)


def biases(model: Model) -> dict[str, np.ndarray]:
    found = {op_name(op): constant_of(op.operands[2], model.weights) for op in model.ops if op.name == "top.Conv"}
    return {name: array for name, array in found.items() if array is not None}


CASES = [pytest.param(case, marks=marks(case in ("digits_bm1684", "residual_cv183x"))) for case in RECORDED]


@pytest.mark.every
@pytest.mark.parametrize("case", CASES)
def test_the_real_tools_biases_table_and_digits(case: str, folders: dict[str, Path]) -> None:
    name, chip = case.split("_")
    found, real = corrected(name, folders[name], chip, ASKED[name]), RECORDED[case]
    assert found.before == pytest.approx(real["before"], abs=PRINTED)
    assert [one.name for one in found.tried] == [line[0] for line in real["tried"]]
    for one, (_, *digits) in zip(found.tried, real["tried"], strict=True):
        assert [one.before, one.after, one.results] == pytest.approx(digits, abs=PRINTED)
    before, after = biases(top(name)), biases(found.model)
    changed = [after[key] for key in after if not np.array_equal(before[key], after[key])]
    with np.load(NAMES / "bias_correction.npz") as recorded:
        wanted = list(recorded[case]) if case in recorded else []
    assert len(changed) == len(wanted) == sum(one.kept for one in found.tried)
    for ours, theirs in zip(changed, wanted, strict=True):
        assert np.array_equal(ours, theirs)
    again, _ = calibrate(found.model, data(name, folders[name]), CalibrationConfig("kl"))
    entries = {key: [entry.threshold, entry.minimum, entry.maximum] for key, entry in again.entries.items()}
    assert entries == real["table"]


def test_in_turn_more_is_kept_and_the_results_gain(folders: dict[str, Path]) -> None:
    """What the real tool revokes here, for the Conv before is better, is what helps."""
    asked = replace(ASKED["residual"], expected=1.0, in_turn=True)
    found = corrected("residual", folders["residual"], "cv183x", asked)
    assert "conv4_Conv" in [one.name for one in found.tried if one.kept]
    kept = [one.results for one in found.tried if one.kept]
    assert kept == sorted(kept) and 1 - kept[-1] < 0.5 * (1 - found.before)


def test_what_cannot_be_corrected_is_said(folders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="correct-bias: a mode of integers is required, got f16"):
        correct_biases(top("residual"), CalibrationTable({}), [], LoweringConfig("bm1684x", "f16"))
    with pytest.raises(CalibrationError, match="correct-bias: at least one sample is required"):
        correct_biases(top("residual"), CalibrationTable({}), [], LoweringConfig("bm1684x"))
    plain = to_canonical(import_onnx(network([node("Relu", "x")], {})({"x": (1, 4, 8, 8)})))
    with pytest.raises(ConfigError, match="correct-bias: a Conv with a bias is required, the network has none"):
        correct_biases(plain, CalibrationTable({}), [], LoweringConfig("bm1684x"))


def written(folder: Path) -> dict[str, np.ndarray]:
    """The biases of the module that the command wrote."""
    return biases(load_model(folder / "3_calibrated.mlir", context()))


def test_the_command(tmp_path: Path, folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Table and calibrated module are written next to the canonical one, which does not change.

    What the real tool keeps here raises the error of the samples that it was kept for: it is left out.
    """
    save_model(top("residual"), tmp_path / "2_canonical.mlir", weight_file="canonical_weights.npz")
    asked = ["correct-bias", str(tmp_path / "2_canonical.mlir"), "--data", str(folders["residual"])]
    chosen = ["--chip", "cv183x", "--min-layer-cos", "0.9999", "--bc-inference-num", "6"]
    assert main([*asked, *chosen, "--expected-cos", "0.9999"]) == 0
    shown = capsys.readouterr().out
    assert "results before: 0.999458" in shown
    assert "wide_Relu: 0.999428 to 0.999420, results 0.999533, kept" in shown
    assert "conv4_Conv: 0.977811 to 0.979189, results 0.999843, revoked" in shown
    assert "judged on 6 samples, 2 held out" in shown and "the corrections raise the error: none is made" in shown
    before = biases(top("residual"))
    assert all(np.array_equal(before[name], bias) for name, bias in written(tmp_path).items())
    wanted = table_of("residual", folders["residual"]).entries["y_Gemm"]
    assert read_table(tmp_path / "cali_table").entries["y_Gemm"].threshold == wanted.threshold
    assert main([*asked, *chosen, "--expected-cos", "0.9999", "--in-turn"]) == 0
    assert "none is made" not in (shown := capsys.readouterr().out)
    errors = [float(line.split("error ")[1].split()[0]) for line in shown.splitlines() if ": error " in line]
    assert errors[2] < errors[0] / 4 and errors[3] < errors[1] / 2  # judged and held out
    changed = written(tmp_path)
    assert [name for name in before if not np.array_equal(before[name], changed[name])] == ["conv4_Conv"]
    assert biases(load_model(tmp_path / "2_canonical.mlir", context())).keys() == before.keys()
    assert main([*asked, *chosen]) == 0
    assert "nothing to correct: results are above --expected-cos 0.99" in capsys.readouterr().out
    assert main([*asked, "--expected-cos", "2"]) == 1
    assert "--expected-cos 2.0: a similarity from 0 to 1 is required" in capsys.readouterr().err
    asked = ["canonicalize", str(tmp_path / "2_canonical.mlir"), "--also", "bias_correction"]
    assert main(asked) == 1
    assert "run `tpusim correct-bias` on 2_canonical.mlir" in capsys.readouterr().err
