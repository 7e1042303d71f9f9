"""`--also weight_equalization`: filters of neighbouring convolutions get equal ranges, as `run_calibration.py --we`.

tests/upstream/names/digits_we_table is what TPU-MLIR 1.30.2 wrote for digits with the first 16 samples of
examples/digits/calibration.npz as `data/000.npz` ...; its weight file then had our filters and biases, bit for bit:

    run_calibration.py m.mlir --dataset data --input_num 16 --we --chip bm1684x -o digits_we_table
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiling import to_canonical, to_table
from end_to_end import DIGITS
from op_row import network, node
from plain_names import import_onnx as plain

from tpusim.calibration.samples import Samples
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import read_table
from tpusim.canonicalize import canonicalize
from tpusim.cli import main
from tpusim.frontend import import_onnx
from tpusim.inference import input_specs, run
from tpusim.ir.module import Model
from tpusim.ops.patterns.equalise import equalised

RECORDED = Path(__file__).resolve().parent / "upstream" / "names"
RNG = np.random.default_rng(3)


def test_digits_have_upstreams_table(tmp_path: Path) -> None:
    model = import_onnx(DIGITS / "digits.onnx")
    for number, image in enumerate(np.load(DIGITS / "calibration.npz")["image"][:16]):
        np.savez(tmp_path / f"{number:03}.npz", image=image[None])
    in_folder = Samples(tmp_path, input_specs(model), shuffled=True)
    table, fired = to_table(model, in_folder, CalibrationConfig("kl"), ["weight_equalization"])
    assert fired["EqualiseConvs"] == 2
    assert table.entries == read_table(RECORDED / "digits_we_table").entries


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_ranges_are_equal_and_the_function_stays(groups: int) -> None:
    """Channel c of the first filter is read by the c-th of its group in the second; a zero channel is left alone."""
    first, bias = RNG.normal(size=(4, 3, 2)).astype(np.float32), RNG.normal(size=4).astype(np.float32)
    second = RNG.normal(size=(8, 4 // groups, 2)).astype(np.float32)
    first *= np.array([50, 1, 0.01, 0], np.float32).reshape(4, 1, 1)
    found = equalised(first, bias, second)
    assert found is not None and found[1] is not None
    made = np.abs(found[0]).reshape(4, -1).max(axis=1)
    read = np.abs(found[2].reshape(groups, 8 // groups, 4 // groups, 2)).max(axis=(1, 3)).reshape(4)
    np.testing.assert_allclose(made[:3], read[:3], rtol=1e-6)
    assert made[3] == 0 and found[1][3] == bias[3]
    share = (first[:3, 0, 0] / found[0][:3, 0, 0]).reshape(-1)
    np.testing.assert_allclose(bias[:3] / found[1][:3], share, rtol=1e-6)
    assert equalised(*found) is None


def pair(**relu: object) -> tuple[Model, dict[str, int]]:
    """Conv -> the node -> Conv, with filters of unlike ranges."""
    filters = {n: RNG.normal(size=(4, 4, 1, 1)).astype(np.float32) for n in ("w", "v")}
    filters["w"][0] *= 30
    kind = str(relu.pop("kind"))
    bounds = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)} if kind == "Clip" else {}
    inputs = ["a", *bounds]
    nodes = [node("Conv", "x w", "a"), node(kind, " ".join(inputs), "b", **relu), node("Conv", "b v", "y")]
    return canonicalize(plain(network(nodes, {**filters, **bounds})({"x": (1, 4, 5, 5)})), ["weight_equalization"])


def test_positive_factors_go_through_leaky_relus_and_not_through_an_upper_limit() -> None:
    assert pair(kind="LeakyRelu", alpha=0.1)[1]["EqualiseConvs"] == 1
    assert pair(kind="Relu")[1]["EqualiseConvs"] == 1
    assert "EqualiseConvs" not in pair(kind="Clip")[1]
    assert "EqualiseConvs" not in pair(kind="Sigmoid")[1]


def test_a_run_compares_what_is_still_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tensor between is no ONNX tensor any more; all others are."""
    asked = ["run", str(DIGITS / "digits.onnx"), "--data", str(DIGITS / "calibration.npz"), "--samples", "4"]
    assert main([*asked, "--also", "weight_equalization", "--tune-num", "0", "--out", str(tmp_path)]) == 0
    assert "PASSED" in capsys.readouterr().out
    x = {"image": np.load(DIGITS / "calibration.npz")["image"][:1]}
    before, after = (
        run(to_canonical(import_onnx(DIGITS / "digits.onnx"), *a), x) for a in ([], ["weight_equalization"])
    )
    changed = [name for name in before if not np.allclose(before[name], after[name], atol=1e-5)]
    assert changed == ["block_a_Relu", "depthwise_Relu"]
