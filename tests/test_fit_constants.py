"""The fitted constants: each is cited once, and has the value to which recorded profiles fit it."""

from __future__ import annotations

import pytest

from benchmarks.constants.networks import BUILDERS, CASES
from benchmarks.constants.points import is_fitted
from benchmarks.constants.ranges import Agreed, Range, agreed, centre, scanned, solved
from benchmarks.constants.recorded import recorded
from benchmarks.constants.trial import changed, home, used
from benchmarks.fit_constants import fits, main
from tpusim import chips
from tpusim.compat import FITTED, Fitted

ROWS = [row for row in FITTED.values() if is_fitted(row)]
DIFFERING = {"F-05", "F-12", "F-13", "F-14", "F-41", "F-45"}
"""Rows whose constant differs from its fit to the profiles. Never tune here: mend the model, or fit anew."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}-{row.name}")
def test_the_used_value_is_the_fitted_one(row: Fitted) -> None:
    for fit in fits(row):
        assert fit.agrees == (row.number not in DIFFERING), fit


def test_every_row_says_what_fits_it_or_what_that_takes() -> None:
    assert [row.number for row in FITTED.values()] == [f"F-{n:02}" for n in range(1, len(FITTED) + 1)]
    for row in FITTED.values():
        assert bool(row.profiles) == is_fitted(row), row.number
        assert row.profiles or row.needs, row.number
        assert bool(row.differs) == (row.number in DIFFERING), row.number


def test_every_row_has_a_value_that_is_used() -> None:
    """A variable whose text cites the row, or a field of the chips it names."""
    for row in FITTED.values():
        assert all(value is not None for value in used(row).values())
        assert row.chips or home(row).name == row.name.partition("[")[0]


def test_every_recorded_case_is_a_network_of_ours() -> None:
    assert set(recorded()) == set(CASES)
    assert {case.op for case in CASES} == set(BUILDERS)
    assert all(layers for layers in recorded().values())


def test_a_wrong_value_is_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A division of another length, and a step less on a chip."""
    at = home(FITTED["F-17"])
    with at.having(33):
        (fit,) = fits(FITTED["F-17"])
    assert not fit.agrees and fit.used == 33
    assert 1.9 < fit.residual <= 2 and fit.found.points == fit.found.of
    assert home(FITTED["F-17"]).value == 31
    wrong, load = changed("bm1688", "quantize_steps", 4), chips.load
    monkeypatch.setattr(chips, "load", lambda name: wrong if name == "bm1688" else load(name))
    assert [fit.agrees for fit in fits(FITTED["F-29"])] == [True, False]
    assert main(["F-17", "F-29"]) == 1
    assert capsys.readouterr().out.count("differs: why is not known") == 1
    assert main(["F-18", "F-41"]) == 0
    assert FITTED["F-41"].differs in capsys.readouterr().out


def test_values_of_a_monotone_model() -> None:
    """Rising, falling, stepwise, without an answer, and without the constant."""
    (rising,) = solved(lambda v: 3 * v + 1, 16, Range(0, 100), 0.5) or []
    assert rising == pytest.approx((14.5 / 3, 15.5 / 3), abs=1e-3)
    (falling,) = solved(lambda v: 90 / v, 30, Range(1, 100), 0.5) or []
    assert falling == pytest.approx((90 / 30.5, 90 / 29.5), abs=1e-3)
    (steps,) = solved(lambda v: v // 4, 3, Range(0, 100), 0.5) or []
    assert steps == pytest.approx((12, 16), abs=1e-3)
    assert solved(lambda v: v // 4 * 2, 3, Range(0, 100), 0.5) == []
    assert solved(lambda _: 7, 7, Range(0, 100), 0.5) is None
    assert scanned(lambda v: v % 2, 1, [0, 1, 2, 3, 5, 7, 8]) == [Range(1, 2), Range(3, 8)]


def test_what_most_points_accept() -> None:
    points = [[Range(1, 4)], [Range(3, 6)], [Range(3.5, 9), Range(20, 30)], []]
    assert agreed(points) == Agreed((Range(3.5, 4),), 3, 4)
    assert centre([*([Range(n, n + 0.5)] for n in range(5)), []]) == Agreed((Range(2.25, 2.25),), 0, 6)
    tied = agreed([[Range(1, 2)], [Range(5, 6)], [Range(1.5, 5.5)]])
    assert tied == Agreed((Range(1.5, 2), Range(5, 5.5)), 2, 3)
    assert tied is not None and [tied.distance(value) for value in (1.6, 3, 4.5, 9)] == [0, 1, 0.5, 3.5]
    assert agreed([]) is None and centre([[]]) is None


def test_another_value_is_in_the_model() -> None:
    """A nested field of a chip, and an entry of a table, which is as before after the block."""
    one = changed("bm1688", "bandwidth.s2l", 30.0)
    assert (one.bandwidth.s2l, one.bandwidth.l2s) == (30.0, chips.load("bm1688").bandwidth.l2s)
    at = home(FITTED["F-13"])
    with at.having(50):
        assert at.value == 50 and home(FITTED["F-12"]).value == 75
    assert at.value == 42
