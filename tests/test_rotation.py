"""The default tests' share of rows and configurations: nobody is left out."""

from __future__ import annotations

import pytest
from op_cases import CASES
from rotation import is_first, marks, one_in, turn


@pytest.mark.parametrize("share", [2, 3, 4, 6, 8, 9, 16])
def test_turns_are_fair(share: int) -> None:
    """A row meets one of `share` configurations, a configuration about every `share`-th row."""
    assert all(sum(turn(case, number, share) for number in range(share)) == 1 for case in CASES)
    for number in range(share):
        assert 0.4 < share * sum(turn(case, number, share) for case in CASES) / len(CASES) < 1.7


def test_every_op_has_a_first_row() -> None:
    first = [case.result for case in CASES if is_first(case, 0)]
    assert sorted(first) == sorted({case.result for case in CASES})
    assert not any(is_first(case, 1) for case in CASES)


def test_what_is_left_is_slow() -> None:
    assert not marks(True)
    assert [mark.name for mark in marks(False)] == ["slow", "rotated"]
    found = one_in(3, [(n, "a") for n in range(7)])
    assert [line.id for line in found if not line.marks] == ["0-a", "3-a", "6-a"]  # type: ignore[attr-defined]
    assert len(found) == 7
