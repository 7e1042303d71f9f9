"""The tables of `tpusim why --apply`, unedited in the real compiler: its interpreter gains what we say.

tests/upstream/names/why_*_table are what the real run_calibration.py wrote of two planted networks (one threshold is
broken by hand), why_*_new_* what `tpusim why 3_calibrated.mlir --apply --expected-cos 0.999` made of them, and
why_outputs.npz the results of the real interpreter on bm1684x with the old tables and with the new ones, after

    model_deploy.py --mlir net.mlir --quantize INT8 --calibration_table new_cali_table --quantize_table new_qtable ...
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from planted import detector, residual

from tpusim.calibration.stage import apply_table
from tpusim.calibration.table import read_table
from tpusim.canonicalize import canonicalize
from tpusim.frontend import import_onnx
from tpusim.inference import dequantised, run
from tpusim.ir.attrs import value_name
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig, lower

NAMES = Path(__file__).resolve().parent / "upstream" / "names"
RECORDED = np.load(NAMES / "why_outputs.npz")
NETWORKS = {"broken": residual, "concat": detector}
Array = np.ndarray


@cache
def top(fault: str) -> Model:
    return canonicalize(import_onnx(NETWORKS[fault]()))[0]


def flat(fault: str, table: str, qtable: str | None) -> Array:
    """Our results for the recorded inputs."""
    calibrated = apply_table(top(fault), read_table(NAMES / table))
    config = LoweringConfig("bm1684x", "int8", qtable=None if qtable is None else str(NAMES / qtable))
    tpu = lower(calibrated, config)[0]
    (result,) = map(value_name, tpu.results)
    return np.stack([dequantised(tpu, run(tpu, {"x": x}))[result] for x in RECORDED[f"{fault}_x"]])


def similarity(found: Array, fault: str) -> float:
    """Cosine with the float network; of scores beside boxes the scores', which the boxes would hide."""
    result = value_name(top(fault).results[0])
    real = np.stack([run(top(fault), {"x": x})[result] for x in RECORDED[f"{fault}_x"]])
    found = found.reshape(real.shape)
    if fault == "concat":
        found, real = found[:, :, 4:], real[:, :, 4:]
    norms = np.linalg.norm(found) * np.linalg.norm(real)
    return float(np.sum(found * real) / norms) if norms else 0.0


@pytest.mark.every
@pytest.mark.parametrize(("fault", "before", "after"), [("broken", 0.95, 0.999), ("concat", 0.8, 0.999)])
def test_the_real_interpreter_gains_what_ours_does(fault: str, before: float, after: float) -> None:
    ours = [
        flat(fault, f"why_{fault}_table", None),
        flat(fault, f"why_{fault}_new_table", f"why_{fault}_new_qtable"),
    ]
    theirs = [RECORDED[f"{fault}_{when}"] for when in ("before", "after")]
    gained = [[similarity(found, fault) for found in side] for side in (ours, theirs)]
    for low, high in gained:
        assert low < before and high > after
    np.testing.assert_allclose(gained[0], gained[1], atol=1e-4)
    assert np.array_equal(ours[0].reshape(-1), theirs[0].reshape(-1))  # integers all the way
