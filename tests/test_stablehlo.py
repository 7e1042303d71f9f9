"""Modules as StableHLO: JAX computes the exported function, and gets the bits of flat inference.

Another compiler, IREE, is asked by benchmarks/engines.py, whose figures are in docs/engines.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import export
from op_cases import BY_ID
from rows import canonical, lowered

from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.inference import Graph, StableHlo, run, to_stablehlo
from tpusim.inference.executor import check_inputs
from tpusim.inference.iree import Iree
from tpusim.ir.module import Model

DIGITS = Path(__file__).resolve().parent.parent / "examples" / "digits"
CELLS = [
    ("conv-relu", "bm1684x", "int8"), ("conv-relu", "cv183x", "int8"), ("conv-depthwise", "bm1684", "int8"),
    ("matmul-3d", "bm1688", "int8"), ("softmax-last", "bm1684x", "f16"), ("layernorm", "bm1684x", "bf16"),
    ("avgpool-global-large", "bm1684x", "int8"), ("gelu", "cv183x", "bf16"), ("argmax", "bm1690", "int8"),
]  # fmt: skip
"""Products in bytes and floats, requants of three families, tables, sums in order, an index."""


def called(found: StableHlo, *arguments: np.ndarray) -> list[np.ndarray]:
    """The results as JAX computes them from the exported file."""
    with jax.enable_x64(True):
        return [np.asarray(y) for y in export.deserialize(bytearray(found.for_jax)).call(*arguments)]


def inputs_of(case: str, model: Model, seed: int = 0) -> list[np.ndarray]:
    return check_inputs(model, BY_ID[case].feeds(seed))


@pytest.mark.parametrize(("case", "chip", "mode"), CELLS)
def test_an_exported_lowered_op_has_the_bits_of_flat_inference(case: str, chip: str, mode: str) -> None:
    model = lowered(case, chip, mode)[0]
    found = to_stablehlo(model)
    expected = Graph(model)(BY_ID[case].feeds())
    results = called(found, *inputs_of(case, model))
    assert [r.name for r in found.results] == list(expected)
    for got, wanted in zip(results, expected.values(), strict=True):
        assert got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes()
    assert "custom_call" not in found.text


def test_a_float_network_is_exported_with_sums_in_any_order() -> None:
    model = canonical("matmul-3d")
    (got,) = called(to_stablehlo(model), *inputs_of("matmul-3d", model))
    (wanted,) = Graph(model)(BY_ID["matmul-3d"].feeds()).values()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())  # f32 sums of 64 terms at most


def test_weights_become_arguments_after_the_inputs() -> None:
    model = lowered("conv-relu", "bm1684x", "int8")[0]
    inside, outside = to_stablehlo(model), to_stablehlo(model, arguments=True)
    assert not inside.weights and len(outside.weights) > 1
    assert len(re.findall(r"%arg\d+:", _head(outside.text))) == len(outside.inputs) + len(outside.weights)
    inputs = inputs_of("conv-relu", model)
    (expected,), (got,) = called(inside, *inputs), called(outside, *inputs, *outside.weights.values())
    assert got.tobytes() == expected.tobytes()
    others = [np.zeros_like(w) if w.ndim == 4 else w for w in outside.weights.values()]
    assert called(outside, *inputs, *others)[0].tobytes() != expected.tobytes()


def test_an_open_batch_takes_any_number_of_samples() -> None:
    model = lowered("conv-relu", "bm1684x", "int8")[0]
    found = to_stablehlo(model, open_batch=True)
    assert all(isinstance(a.shape[0], str) for a in (*found.inputs, *found.results))
    samples = [inputs_of("conv-relu", model, seed)[0] for seed in (1, 2, 3)]
    (got,) = called(found, np.concatenate(samples))
    one = to_stablehlo(model)
    assert got.tobytes() == b"".join(called(one, sample)[0].tobytes() for sample in samples)


def test_kept_tensors_are_results_by_name() -> None:
    model, feeds = lowered("conv-relu", "bm1684x", "int8")[0], BY_ID["conv-relu"].feeds()
    found, expected = to_stablehlo(model, "all"), run(model, feeds)
    results = dict(zip((r.name for r in found.results), called(found, *inputs_of("conv-relu", model)), strict=True))
    assert results.keys() == expected.keys() and len(results) > 2
    assert all(results[name].tobytes() == expected[name].tobytes() for name in expected)


def test_instructions_have_the_names_of_their_ops_and_no_paths() -> None:
    found = to_stablehlo(lowered("conv-relu", "bm1684x", "int8")[0], "all")
    named = {result.name for result in found.results} - {given.name for given in found.inputs}
    assert len(named) > 2 and all(f"({name})" in found.text for name in named)
    assert ".py" not in found.text


# ------------------------------------------------------------------------------------------------------- command line


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages") / "digits"
    words = ["run", f"{DIGITS / 'digits.onnx'}", "--data", f"{DIGITS / 'calibration.npz'}", "--samples", "4"]
    assert main([*words, "--to", "assign", "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("stage", ["2_canonical", "4_tpu", "5_grouped", "6_final"])
def test_every_stage_is_exported_by_the_command(stage: str, stages: Path, tmp_path: Path) -> None:
    out = tmp_path / "digits.jax"
    assert main(["export", str(stages / f"{stage}.mlir"), "--to", "stablehlo", "--out", str(out)]) == 0
    image = np.load(DIGITS / "test.npz")["image"][:1].reshape(1, 1, 8, 8).astype(np.float32)
    with jax.enable_x64(True):
        (got,) = export.deserialize(bytearray(out.read_bytes())).call(image)
    assert (
        main(["infer", str(stages / f"{stage}.mlir"), "--input", _saved(tmp_path, image), "--out", f"{out}.npz"]) == 0
    )
    (wanted,) = np.load(f"{out}.npz").values()
    tolerance = 1e-5 * np.abs(wanted).max() if stage == "2_canonical" else 0  # a top module adds in any order
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=0, atol=tolerance)


def test_the_end_of_the_name_says_what_is_written(stages: Path, tmp_path: Path) -> None:
    module = str(stages / "4_tpu.mlir")
    contents: dict[str, bytes] = {}
    for end in (".mlir", ".mlirbc", ".jax"):
        out = tmp_path / f"digits{end}"
        assert main(["export", module, "--to", "stablehlo", "--out", str(out)]) == 0
        contents[end] = out.read_bytes()
    assert b"\nmodule @" in contents[".mlir"][:2000]
    assert contents[".mlirbc"].startswith(b"ML\xefR")
    assert contents[".mlirbc"] in contents[".jax"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--to", "stablehlo", "--out", "x.onnx"], "one of .mlir, .mlirbc, .jax is required as its end"),
        (["--weights", "arguments"], "--weights: needs --to stablehlo, got --to qdq; leave it out"),
        (["--open-batch", "--weights", "arguments"], "--weights and --open-batch: needs --to stablehlo"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: Sequence[str], wanted: str, stages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(stages / "4_tpu.mlir"), *words]) == 1
    assert wanted in capsys.readouterr().err


def test_an_engine_that_is_not_installed_is_named(
    stages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "iree.compiler", None)  # as if it could not be imported
    sample = _saved(tmp_path, np.zeros((1, 1, 8, 8), np.float32))
    assert main(["infer", str(stages / "4_tpu.mlir"), "--input", sample, "--engine", "iree"]) == 1
    assert "--engine iree: needs IREE, extra 'iree': pip install 'tpusim[iree]'" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="engine='iree': needs IREE"):
        Iree(lowered("conv-relu", "bm1684x", "int8")[0])
    assert main(["infer", str(DIGITS / "digits.onnx"), "--input", sample, "--engine", "iree"]) == 1
    assert "--engine iree: needs a .mlir alone, got" in capsys.readouterr().err


def _saved(folder: Path, image: np.ndarray) -> str:
    np.savez(folder / "image.npz", image=image)
    return str(folder / "image.npz")


def _head(text: str) -> str:
    return next(line for line in text.splitlines() if "@main" in line)
