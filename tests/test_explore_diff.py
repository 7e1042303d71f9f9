"""`tpusim explore diff`: groups that hold the same ops stand side by side, and the sums are those of the reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tpusim.cli import main
from tpusim.errors import ConfigError
from tpusim.studies.explore.diff import parts, read_report


def group(ops: str, cycles: int, h: int = 1, reason: str = "") -> dict[str, Any]:
    secs = {"n": 1, "c": 1, "d": 1, "h": h, "w": 1}
    return {"ops": list(ops), "secs": secs, "cycles": cycles, "load_bytes": 10, "store_bytes": 1, "reason": reason}


def report(*groups: dict[str, Any]) -> dict[str, Any]:
    cycles = sum(one["cycles"] for one in groups)
    totals = {"milliseconds": cycles / 1e6, "cycles": cycles, "load_bytes": 5, "store_bytes": 0, "commands": 7}
    return {"model": "net", "chip": "bm1684x", "mode": "int8", "groups": list(groups), "totals": totals}


BEFORE = report(group("abc", 90), group("d", 5, reason="too large"), group("ef", 20), group("g", 1))
AFTER = report(group("ab", 60), group("c", 40), group("xd", 5), group("ef", 30, h=2), group("g", 1))


def test_the_fewest_groups_with_the_same_ops() -> None:
    found = parts(BEFORE, AFTER)
    sides = [tuple("|".join("".join(g["ops"]) for g in side) for side in (p.before, p.after)) for p in found]
    assert sides == [("abc", "ab|c"), ("d", "xd"), ("ef", "ef"), ("g", "g")]
    assert [part.changed for part in found] == [True, True, True, False]
    assert found[0].sums("cycles") == (90, 100) and found[2].sums("cycles") == (20, 30)
    assert [p.changed for p in parts(AFTER, AFTER)] == [False] * 5


def test_nothing_is_lost_where_ops_have_nothing_in_common() -> None:
    found = parts(report(group("ab", 1), group("c", 2)), report(group("xy", 3)))
    assert [sum(part.sums("cycles")[i] for part in found) for i in (0, 1)] == [3, 3]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("one", BEFORE), ("two", AFTER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(content))
    assert main(["explore", "diff", str(tmp_path / "one"), str(tmp_path / "two" / "report.json")]) == 0
    text = capsys.readouterr().out
    assert "cycles: 116 -> 136 (+17.2%)" in text and "1 of 4 parts" in text and "1×1×1×2×1" in text
    assert main(["explore", "diff", str(tmp_path), str(tmp_path / "two")]) == 1
    assert "a report.json of `tpusim run` is required" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ('"ops": ["a", "b", "c"]', '"ops": []', r"length >= 1 - at `\$\.groups\[0\]\.ops`"),
        ('"h": 1', '"y": 1', r"required field `h` - at `\$\.groups\[0\]\.secs`"),
        ('"secs": {', '"secs": [], "sec": {', r"got `array` - at `\$\.groups\[0\]\.secs`"),
        ('"cycles": 90', '"cycles": "90"', r"got `str` - at `\$\.groups\[0\]\.cycles`"),
        ('"commands": 7', '"command": 7', r"required field `commands` - at `\$\.totals`"),
        ('"model": "net"', '"model": 3', r"got `int` - at `\$\.model`"),
    ],
)
def test_a_report_that_somebody_edited_is_refused(tmp_path: Path, old: str, new: str, wanted: str) -> None:
    (content := json.dumps(BEFORE)).index(old)
    (tmp_path / "report.json").write_text(content.replace(old, new, 1))
    with pytest.raises(ConfigError, match=rf"report .*report\.json: .*{wanted}"):
        read_report(tmp_path)
