"""The accuracy table: the page is the results, a measurement can stop and go on, a cell comes out the same again."""

from __future__ import annotations

from dataclasses import replace as with_fields
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.accuracy import __main__ as command
from benchmarks.accuracy.measure import NETWORKS, Network, keys, measure
from benchmarks.accuracy.page import accuracy_page
from benchmarks.accuracy.published import asked, models_of, rows
from benchmarks.accuracy.results import PAGE, Key, Local, Measured, Results, read, write
from tpusim import chips, zoo
from tpusim.errors import UnsupportedError
from tpusim.verify.compare import Tolerance

BM1684X = Key("digits", "bm1684x", "int8")


def cell(key: Key, **changes: object) -> Measured:
    plain = Measured(key, "0", 1.0, 5, 0.95, 0.71, "conv", True, 4, 0, 1)
    return msgspec.structs.replace(plain, **changes)


# ------------------------------------------------------------------------------------------------------------ the page


def test_page_is_the_results() -> None:
    results = read()
    assert len(results.cells) > 0
    assert PAGE.read_text(encoding="utf-8") == accuracy_page(results), "run `make accuracy`"


def test_results_are_of_cells_that_exist() -> None:
    results = read()
    existing = set(keys())
    assert {c.key for c in results.cells} <= existing
    assert not {str(c.key) for c in results.cells} & set(results.failed)
    assert [c.key for c in results.cells] == sorted(c.key for c in results.cells)


def test_keys_are_all_networks_chips_and_legal_modes() -> None:
    found = list(keys())
    assert {k.network for k in found} == {"digits", *zoo.ZOO} == set(NETWORKS)
    assert {k.chip for k in found} == set(chips.available())
    assert Key("squeezenet", "bm1684x", "int8-asym") in found
    assert Key("squeezenet", "bm1684", "f16") not in found
    assert Key("squeezenet", "bm1684", "int8-asym") not in found


def test_page_groups_equal_chips_and_judges_by_upstream() -> None:
    near = [cell(Key("resnet50", c, "int8")) for c in ("bm1684x", "bm1688")]
    far = cell(Key("resnet50", "bm1684", "int8"), cosine=None, passed=False, local=Local(3, True, True))
    text = accuracy_page(Results((*near, far), {"vgg19/bm1684/int8": "does not fit"}))
    assert (
        "| int8 | bm1684x, bm1688 | 0.9500 | 0.7100 | `conv` | pass | 0.96,0.72: **outside** | - | 4 / 0 / 1 |" in text
    )
    assert "| int8 | bm1684 | not a number | 0.7100 | `conv` | **fail** | - | bit-exact | 4 / 0 / 1 |" in text
    assert "resnet50_v1 (resnet50-v1-7.onnx)" in text and "seeded random weights" in text
    assert "* vgg19/bm1684/int8: does not fit" in text


# ------------------------------------------------------------------------------------------------ upstream's tolerances


def test_published_tolerances() -> None:
    assert asked(Key("resnet50", "bm1684x", "int8")) == Tolerance(0.96, 0.72)
    assert asked(Key("resnet50", "bm1688", "int8-asym")) == Tolerance(0.96, 0.73)
    assert asked(Key("resnet50", "bm1684", "int8")) is None
    assert asked(Key("resnet50", "bm1690", "int8")) is None
    assert asked(Key("resnet50", "bm1684x", "f16")) is None
    assert asked(Key("vgg19", "bm1684x", "int8")) is None
    assert models_of("vgg19") == ()


def test_published_rows_are_of_networks_of_the_zoo() -> None:
    assert {r["network"] for r in rows()} <= set(zoo.ZOO)
    for row in rows():
        for mode in ("int8", "int8-asym", "f16", "bf16"):
            assert not row[mode] or 0 < Tolerance.parse(row[mode]).cosine <= 1


# ------------------------------------------------------------------------------------------------------- stop and go on


class Stub:
    """Stands for a network; counts how often cells are measured."""

    def __init__(self) -> None:
        self.measured: list[tuple[str, bool]] = []

    def measure(self, network: object, key: Key, *, local: bool) -> Measured:
        del network
        self.measured.append((str(key), local))
        if key.mode == "f32":
            raise UnsupportedError("no f32 today")
        if len(self.measured) == 3:
            raise KeyboardInterrupt
        return cell(key, local=Local(1, True, True) if local else None)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Stub:
    found = Stub()
    monkeypatch.setattr(command, "measure", found.measure)
    monkeypatch.setattr(Network, "prepare", lambda name: name)
    return found


def test_an_interrupted_run_goes_on(stub: Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    wanted = command.Accuracy(only=("digits/bm1684x/*",), results=results, page=page)
    with pytest.raises(KeyboardInterrupt):
        wanted.execute()
    assert not page.exists()
    assert [c.key.mode for c in read(results).cells] == ["int8", "int8-asym"]
    assert stub.measured[2] == ("digits/bm1684x/f16", False)
    wanted.execute()
    assert [k for k, _ in stub.measured[3:]] == [f"digits/bm1684x/{m}" for m in ("f16", "bf16", "f32")]
    assert read(results).failed == {"digits/bm1684x/f32": "no f32 today"}
    assert "no f32 today" in page.read_text()
    wanted.execute()
    assert len(stub.measured) == 6
    with_local = with_fields(wanted, only=("digits/bm1684x/int8",), local=("*/int8",))
    with_local.execute()
    assert stub.measured[6:] == [("digits/bm1684x/int8", True)]
    with_fields(wanted, only=("digits/bm1684x/int8",), again=True).execute()
    assert stub.measured[7:] == [("digits/bm1684x/int8", True)], "a cell keeps what it had"
    assert "wrote" in capsys.readouterr().out.splitlines()[-1]


def test_results_survive_the_file(tmp_path: Path) -> None:
    results = Results().with_cell(cell(BM1684X)).with_failure(Key("digits", "bm1684", "f32"), "why")
    results = results.with_cell(cell(BM1684X, cosine=None, local=Local(2, True, False)))
    write(results, tmp_path / "r.json")
    assert read(tmp_path / "r.json") == results
    assert [c.cosine for c in results.cells] == [None]
    assert read(tmp_path / "none.json") == Results()


# ------------------------------------------------------------------------------------------------------------ measuring


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int8-asym"])
def test_a_cell_comes_out_the_same_again(mode: str) -> None:
    """Digits, trained: the figures of the results within the last places of f32 sums, top-1 exactly."""
    key = Key("digits", "bm1684x", mode)
    known, found = read().get(key), measure(Network.prepare("digits"), key, local=True)
    assert known is not None and known.cosine is not None and known.euclidean is not None
    assert np.allclose((found.cosine, found.euclidean), (known.cosine, known.euclidean), rtol=0, atol=1e-4)
    assert found.top1 == known.top1 and found.top1 is not None and found.top1.samples == 400
    assert found.local == Local(found.local.compared if found.local else 0, True, True)
    assert (found.exact, found.decision, found.fallback) == (known.exact, known.decision, known.fallback)
