"""`tpusim compare` against 330 recorded verdicts of the real `npz_tool.py`, and against interface.md 6.2."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from npz_pairs import TOLERANCE, pairs

from tpusim.cli import main
from tpusim.verify.compare import Tolerance, compare

RECORDED = json.loads((Path(__file__).parent / "npz_verdicts.json").read_text())["pairs"]
LIMITS = Tolerance.parse(TOLERANCE)


def compared(found):
    return compare({n: t for n, t, _ in found}, {n: r for n, _, r in found}, LIMITS)


def test_every_verdict_and_csv_line_is_the_real_tool_s():
    """Similarities to 1e-5: f32 sums of another NumPy."""
    found = compared(list(pairs(len(RECORDED))))
    assert [[t.name, t.verdict] for t in found.tensors] == [row[:2] for row in RECORDED]
    lines = [line.split(", ")[4:] for line in found.to_csv().splitlines()[1:]]
    for row, line in zip(RECORDED, lines, strict=True):
        theirs, ours = ([float(v) for v in values] for values in (row[2:], line))
        assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5, nan_ok=True), row[0]


def restated(target: np.ndarray, reference: np.ndarray, name: str) -> str:
    """The specification from its sentences, in double."""
    t, r = target, reference
    if name.startswith("NonMaxSuppression"):
        t, r = t[: len(r)], r[: len(t)]
    if t.size != r.size:
        if t.ndim != r.ndim or (any(np.subtract(t.shape, r.shape) > 0) and any(np.subtract(t.shape, r.shape) < 0)):
            return "NOT_MATCH"
        corner = tuple(map(slice, np.minimum(t.shape, r.shape)))
        t, r = t[corner], r[corner]
    t, r = (_values(v) for v in (t, r.reshape(t.shape)))
    kind = next((d for d in (np.int8, np.int32) if d in (target.dtype, reference.dtype)), np.float32)
    t, r = (v.astype(kind).ravel() for v in (t, r))
    if all(t == r):
        return "EQUAL"
    if kind is np.int8:
        return "NOT_EQUAL"
    t, r = t.astype(np.float64), r.astype(np.float64)
    near = [_is_close(t, r, 10.0**-k) for k in (5, 4, 3)]
    if any(near):
        return "CLOSE"
    return "SIMILAR" if _is_similar(*(np.nan_to_num(v, nan=0, posinf=1e4, neginf=-1e4) for v in (t, r))) else NOT


NOT = "NOT_SIMLIAR"


def _values(stored: np.ndarray) -> np.ndarray:
    return (stored.astype(np.uint32) << 16).view(np.float32) if stored.dtype == np.uint16 else stored


def _is_close(t: np.ndarray, r: np.ndarray, relative: float) -> bool:
    pairs = zip(t.tolist(), r.tolist(), strict=True)
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) or (math.isfinite(b) and abs(a - b) <= 1e-8 + relative * abs(b))
        for a, b in pairs
    )


def _is_similar(t: np.ndarray, r: np.ndarray) -> bool:
    if not t.any() or not r.any():
        return False
    cosine = float(t @ r) / math.sqrt(float(t @ t) * float(r @ r))
    euclidean = 1 - math.dist(t, r) / (math.hypot(*((t + r) / 2)) + 1e-7)
    return cosine > LIMITS.cosine and euclidean > LIMITS.euclidean


def test_a_thousand_pairs_beside_the_specification_said_again():
    found = list(pairs(1000, seed=1))
    wanted = [restated(t, r, n) for n, t, r in found]
    got = [t.verdict for t in compared(found).tensors]
    unlike = [(n, w, g) for (n, _, _), w, g in zip(found, wanted, got, strict=True) if w != g]
    assert not unlike
    assert set(wanted) == {"EQUAL", "CLOSE", "SIMILAR", NOT, "NOT_EQUAL", "NOT_MATCH"}


def test_results_as_json_and_junit(tmp_path):
    """The files for CI contain every tensor, also the missing and the excepted one."""
    for name, keep in (("t", ("a", "b", "only")), ("r", ("a", "b", "missing", "left"))):
        np.savez(tmp_path / f"{name}.npz", **{k: np.float32([1, 2 + (name == "t" and k == "b")]) for k in keep}, x=1.0)
    for suffix in ("json", "xml"):
        files = [str(tmp_path / name) for name in ("t.npz", "r.npz")]
        assert main(["compare", *files, "--excepts", "x", "--save", str(tmp_path / f"out.{suffix}")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert [t["verdict"] for t in found["tensors"]] == ["EQUAL", NOT]
    assert found["only_in_reference"] == ["missing", "left"]
    suite = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert {k: suite.get(k) for k in ("tests", "failures", "skipped")} == {
        "tests": "5",
        "failures": "1",
        "skipped": "3",
    }
    assert [case.get("name") for case in suite] == ["a", "b", "missing", "left", "x"]
    assert suite[1].find("failure").get("type") == NOT
