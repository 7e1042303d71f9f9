"""`tpusim bench`: who takes turns, what a row says, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tpusim.cli import main
from tpusim.studies.bench import Contestant, Unavailable, measure

DIGITS = Path(__file__).resolve().parent.parent / "examples/digits/digits.onnx"


def test_contestants_take_turns() -> None:
    calls: list[str] = []

    def contestant(name: str) -> Contestant:
        return Contestant(name, lambda: lambda: calls.append(name), at_once=True)

    def refuse() -> None:
        raise Unavailable("no such form")

    one, two, none = measure([contestant("one"), Contestant("none", refuse, False), contestant("two")], 8, rounds=3)  # type: ignore[arg-type]
    assert calls == ["one", "two"] * 4, "a run to prepare, then three"
    assert none.error == "no such form" and not one.error
    assert one.ratio == 1 and two.ratio == pytest.approx(two.milliseconds / one.milliseconds)
    assert one.fastest <= one.milliseconds <= one.slowest
    assert one.images_per_second == pytest.approx(8000 / one.milliseconds)


def test_no_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(DIGITS), "--rounds", "0"]) == 1
    assert "--rounds 0: 1 or more is required" in capsys.readouterr().err


@pytest.mark.slow
def test_a_network_beside_onnx_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures.json"
    assert main(["bench", str(DIGITS), "--batch", "2", "--rounds", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    names = [row["name"] for row in found["rows"]]
    assert names == [
        "ONNX Runtime F32", "ONNX Runtime INT8", "tpusim flat F32", "tpusim fast F32",
        "tpusim flat INT8", "tpusim machine, checked", "tpusim machine, bare",
    ]  # fmt: skip
    assert all(row["images_per_second"] > 0 and not row["error"] for row in found["rows"])
    assert "prepare CPU s" in capsys.readouterr().out
