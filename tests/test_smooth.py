"""`--also smoothquant` and `softmax_correction`: tables of the real `run_calibration.py --sq`, `--smc`; functions stay.

tests/upstream/names/block_*_table are what TPU-MLIR 1.30.2 wrote for `transformer_block.block()` and its four samples:

    run_calibration.py block.mlir --dataset cal --input_num 4 --tune_num 0 --sq -o block_sq_table
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import to_canonical, to_table
from op_row import network, node
from plain_names import import_onnx as plain
from transformer_block import WIDTH, block, samples

import tpusim
from tpusim.calibration.samples import Samples
from tpusim.calibration.smooth import REWRITES, rewritten
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import read_table
from tpusim.cli import main
from tpusim.errors import CalibrationError, ConfigError
from tpusim.frontend import import_onnx
from tpusim.inference import dequantised, input_specs, run
from tpusim.ir.attrs import framework_name, op_name
from tpusim.ir.module import Model, load_model
from tpusim.ops import context

RECORDED = Path(__file__).resolve().parent / "upstream" / "names"
SMOOTH, SOFTMAX = "smoothquant", "softmax_correction"
ULPS = 8 * 2.0**-24
"""Sums of f32 differ from the real interpreter's by their order, also where nothing is rewritten (2 to 5 ulp here)."""


@pytest.fixture(scope="module")
def top() -> Model:
    return to_canonical(import_onnx(block()))


def written(folder: Path) -> Path:
    """The samples as files."""
    for number, sample in enumerate(samples()):
        np.savez(folder / f"{number}.npz", **sample)  # type: ignore[arg-type]
    return folder


@pytest.mark.every
@pytest.mark.parametrize(
    ("also", "recorded", "counts"),
    [
        ((SMOOTH,), "sq", {SMOOTH: 3}),
        ((SOFTMAX,), "smc", {SOFTMAX: 1}),
        ((SOFTMAX, SMOOTH), "sq_smc", {SMOOTH: 3, SOFTMAX: 1}),
    ],
)
def test_the_table_is_that_of_the_real_tool(
    top: Model, tmp_path: Path, also: tuple[str, ...], recorded: str, counts: dict[str, int]
) -> None:
    in_folder = Samples(written(tmp_path), input_specs(top), shuffled=True)
    table, found = to_table(top, in_folder, CalibrationConfig("kl", tune_samples=0), also)
    assert found == counts
    real = read_table(RECORDED / f"block_{recorded}_table").entries
    assert list(table.entries) == list(real)
    for name, entry in real.items():
        ours = table.entries[name]
        for wanted, got in zip(
            (entry.threshold, entry.minimum, entry.maximum), (ours.threshold, ours.minimum, ours.maximum), strict=True
        ):
            assert got == pytest.approx(wanted, rel=ULPS), name


def test_what_the_network_computes_stays_and_changed_tensors_lose_their_name(top: Model) -> None:
    both, _ = rewritten(top, (SMOOTH, SOFTMAX), samples())
    x = samples()[0]
    before, after = run(top, x), run(both, x)
    np.testing.assert_allclose(after["y_Add"], before["y_Add"], rtol=0, atol=2e-5 * np.abs(before["y_Add"]).max())
    named = {op_name(op): framework_name(op) for op in both.ops if op.results and op_name(op) in before}
    kept = [name for name, framework in named.items() if framework != name]
    assert {"q3_Transpose", "p_Softmax", "n2_LayerNormalization"} <= set(kept)
    assert not {"n1_LayerNormalization", "v1_Add", "v3_Transpose", "a_Reshape"} & set(kept)
    for name in kept:
        np.testing.assert_allclose(after[name], before[name], atol=2e-5 * np.abs(before[name]).max(), err_msg=name)


def test_int8_gains_by_smoothing(top: Model) -> None:
    """On data that the calibration has not seen; docs/howto/bad_int8.md has the table of all."""
    random = np.random.RandomState(100)
    unseen = [{"x": random.randn(*samples()[0]["x"].shape).astype(np.float32)} for _ in range(8)]

    def lost(also: tuple[str, ...]) -> float:
        made = tpusim.compile(
            top, samples(), chip="bm1684x", calibration=CalibrationConfig("kl", tune_samples=0), also=also
        )
        found = 0.0
        for sample in unseen:
            real = run(top, sample)["y_Add"]
            names = dequantised(made.tpu, run(made.tpu, sample))
            found += float(np.linalg.norm(names["y_Add"] - real) / np.linalg.norm(real))
        return found / len(unseen)

    assert lost((SMOOTH,)) < 0.65 * lost(())


def attention(nodes: list[onnx.NodeProto], **constants: np.ndarray) -> Model:
    return to_canonical(plain(network(nodes, constants)({"x": (1, 4, 8)})))


def test_what_does_not_apply_is_named(top: Model) -> None:
    w = np.eye(8, dtype=np.float32)
    read_twice = attention([node("MatMul", "x w", "a"), node("Abs", "x", "b"), node("Add", "a b")], w=w)
    for name in REWRITES:
        with pytest.raises(ConfigError, match=f"also='{name}': the network has no tensor that it applies to"):
            rewritten(read_twice, (name,), [{"x": np.ones((1, 4, 8), np.float32)}])
    for name in REWRITES:
        with pytest.raises(CalibrationError, match=f"{name}: at least one sample is required"):
            rewritten(top, (name,), [])


def test_a_channel_that_is_always_zero_keeps_its_matrix() -> None:
    """No factor: 0 / 0 is none."""
    scale = np.ones(WIDTH, np.float32)
    scale[2] = 0
    constants = {"s": scale, "b": np.zeros(WIDTH, np.float32), "w": np.ones((WIDTH, 4), np.float32)}
    nodes = [node("LayerNormalization", "x s b", "n", axis=-1), node("MatMul", "n w")]
    top = to_canonical(plain(network(nodes, constants)({"x": (1, 12, WIDTH)})))
    model, _ = rewritten(top, (SMOOTH,), samples())
    before, after = run(top, samples()[0]), run(model, samples()[0])
    assert np.isfinite(after["y"]).all()
    np.testing.assert_allclose(after["y"], before["y"], atol=1e-5)


def test_commands_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "block.onnx", tmp_path / "out"
    path.write_bytes(block().SerializeToString())
    (data := tmp_path / "data").mkdir()
    command = [
        "run",
        str(path),
        "--data",
        str(written(data)),
        "--tune-num",
        "0",
        "--out",
        str(out),
        "--to",
        "calibrate",
    ]
    assert main([*command, "--also", SMOOTH]) == 0
    again = tmp_path / "2.mlir"
    asked = ["canonicalize", str(out / "1_top.mlir"), "--out", str(again), "--also", SMOOTH]
    assert main([*asked, "--data", str(data)]) == 0
    assert "smoothquant: 3" in capsys.readouterr().out
    first, second = load_model(out / "2_canonical.mlir", context()), load_model(again, context())
    assert all(np.array_equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert main(asked) == 1
    assert "--also smoothquant: needs --data, the samples that decide" in capsys.readouterr().err
