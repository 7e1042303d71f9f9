"""The nine classic networks from ONNX to the local-memory machine (slow; `make slow`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from rotation import marks

from tpusim import zoo
from tpusim.calibration.stage import CalibrationConfig
from tpusim.calibration.table import read_table
from tpusim.layer_group import LayerGroupConfig
from tpusim.lowering import LoweringConfig
from tpusim.running.pipeline import Artefacts, RunConfig, run
from tpusim.simulator import Simulator

pytestmark = pytest.mark.slow

BOTH_CHIPS = ("resnet50", "squeezenet", "densenet121", "shufflenet", "inception_v2")
OTHERS = tuple(name for name in zoo.ZOO if name not in BOTH_CHIPS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Networks and runs of this file, by name."""
    return tmp_path_factory.mktemp("zoo")


def network(folder: Path, name: str) -> Path:
    path = folder / f"{name}.onnx"
    if not path.exists():
        zoo.save(name, path)
    return path


def config(folder: Path, name: str, chip: str) -> RunConfig:
    """INT8 with eight random images; thresholds do not depend on the chip and are measured once.

    One image tunes them: what five do is compared with TPU-MLIR by test_upstream_names.py.
    """
    table = folder / f"{name}_bm1684x" / "cali_table"
    return RunConfig(
        model=network(folder, name),
        lowering=LoweringConfig(chip),
        calibration=CalibrationConfig(tune_samples=1),
        data="random:8",
        table=table if table.exists() else None,
        out=folder / f"{name}_{chip}",
    )


def verified(settings: RunConfig) -> Artefacts:
    """A run that passed, with nothing left out.

    One thing may miss 0.80: the probabilities of BM1684, whose multipliers are powers of two. Over random weights
    the logits differ by a few steps of 8 bits, a softmax of them follows every step, and a threshold's last digit or
    another processor's sums decide (inception_v2: 0.78 to 0.82). The logits themselves must pass.
    """
    found = run(settings)
    by_chance = {("tpu_vs_top", name) for name in probabilities(found)}
    failures = {(c.label, t.name): t for c in found.comparisons.values() for t in c.failures}
    assert failures.keys() <= by_chance, list(failures)[:5]
    assert all(t.cosine > 0.93 and t.euclidean > 0.5 for t in failures.values()), failures
    assert found.comparisons["local_vs_tpu"].missing == 0
    return found


def probabilities(found: Artefacts) -> list[str]:
    """Results of a last softmax on BM1684, by tensor name."""
    assert found.program is not None
    names = [entry.name for entry in found.program.outputs]
    return [name for name in names if "softmax" in name.lower()] if found.program.header.chip == "bm1684" else []


def assert_sound(found: Artefacts) -> None:
    """Exact where it must be, like ONNX Runtime where it is float."""
    assert found.comparisons["local_vs_tpu"].bit_exact
    assert all(t.cosine > 0.9999 for t in found.comparisons["top_vs_onnx"].tensors)
    assert found.comparisons["top_vs_onnx"].compared > 10


def together(names: Iterable[str]) -> list[object]:
    """One process runs a network on every chip, with one set of thresholds."""
    return [pytest.param(name, id=name, marks=pytest.mark.xdist_group(f"zoo-{name}")) for name in names]


LONG = ("densenet121", "inception_v2")
"""A minute or two each: CI has the second, on BM1684 alone."""


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        pytest.param(
            name, chip, id=f"{chip}-{name}",
            marks=[
                pytest.mark.xdist_group(f"zoo-{name}"),
                *marks(name not in LONG or (name, chip) == ("inception_v2", "bm1684")),
            ],
        )
        for chip in ("bm1684x", "bm1684")
        for name in BOTH_CHIPS
    ],
)  # fmt: skip
def test_int8(folder: Path, name: str, chip: str):
    found = verified(config(folder, name, chip))
    assert_sound(found)
    if name == "resnet50" and chip == "bm1684x":
        assert_groups_pay_off(found)


def assert_groups_pay_off(found: Artefacts) -> None:
    """Some group has several ops; together they move less than half of what single ops move."""
    assert found.report is not None
    groups = found.report.groups
    assert any(len(g.ops) > 1 for g in groups)
    assert all(g.lmem_peak_bytes <= g.lmem_bytes for g in groups)
    out = found.config.out
    table = out / "cali_table"
    assert len(read_table(table).entries) > 50
    off = replace(found.config, layer_group=LayerGroupConfig("off"), table=table, out=out / "off", to="codegen")
    single = run(off)
    assert single.program is not None
    alone, together = Simulator(single.program).timeline, found.report.totals
    assert together.load_bytes + together.store_bytes < 0.5 * (alone.load_bytes + alone.store_bytes)
    assert together.cycles < alone.cycles


@pytest.mark.parametrize("name", together(["squeezenet", "resnet50"]))
def test_f32(folder: Path, name: str):
    """Nothing is lost in lowering: the tpu module computes what the top module computes, bit for bit.

    But for the softmax at the end, of which the real interpreters of the two dialects have an exponential each.
    """
    settings = replace(
        config(folder, name, "bm1684x"),
        lowering=LoweringConfig("bm1684x", "f32"),
        data="random:1",
        table=None,
        out=folder / f"{name}_f32",
    )
    found = verified(settings)
    compared = found.comparisons["tpu_vs_top"].tensors
    assert [t.name for t in compared if not t.bit_exact] == [compared[-1].name]
    assert all(t.cosine > 0.9999 for t in found.comparisons["top_vs_onnx"].tensors)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=marks(name not in ("vgg19", "zfnet512"))) for name in OTHERS]
)
def test_other_networks(folder: Path, name: str):
    for chip in ("bm1684x", "bm1684"):
        assert_sound(verified(config(folder, name, chip)))
    network(folder, name).unlink()
