"""The default tests' share of rows and configurations: nobody is left out."""

from __future__ import annotations

import pytest
from op_cases import CASES
from rotation import is_first, is_usual, marks, one_in, thin, turn


@pytest.mark.parametrize("share", [2, 3, 4, 6, 8, 12, 16])
def test_turns_are_fair(share: int) -> None:
    """A row meets one of `share` configurations, a configuration about every `share`-th row."""
    assert all(sum(turn(case, number, share) for number in range(share)) == 1 for case in CASES)
    for number in range(share):
        assert 0.4 < share * sum(turn(case, number, share) for case in CASES) / len(CASES) < 1.7


def test_every_op_has_a_first_row() -> None:
    first = [case.result for case in CASES if is_first(case, 0)]
    assert sorted(first) == sorted({case.result for case in CASES})
    assert not any(is_first(case, 1) for case in CASES)
    usual = [case.result for case in CASES if is_usual(case, 0)]
    assert set(usual) == set(first) and 0.2 < len(usual) / len(CASES) < 0.4


def test_what_is_left_is_slow() -> None:
    assert not marks(True)
    assert [mark.name for mark in marks(False)] == ["slow", "rotated"]
    found = one_in(3, [(n, "a") for n in range(7)])
    assert [line.id for line in found if not line.marks] == ["0-a", "3-a", "6-a"]  # type: ignore[attr-defined]
    assert len(found) == 7


class Named:
    """As much of an item as its turn asks for."""

    def __init__(self, nodeid: str, *names: str, share: int | None = None) -> None:
        self.nodeid, self.names, self.share = nodeid, list(names), share

    def get_closest_marker(self, name: str) -> object:
        mark = getattr(pytest.mark, name)
        return (mark(self.share) if self.share else mark).mark if name in self.names else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.names.append(mark.name)


def test_long_functions_are_thinned_out() -> None:
    """The first always, one in 18 of many, one in 12 of few; CI has a few of the others."""
    items = [Named(f"a.py::{name}[{i}]") for name, count in (("many", 600), ("few", 8)) for i in range(count)]
    whole = [Named(f"a.py::whole[{i}]", "every") for i in range(50)]
    half = [Named(f"a.py::half[{i}]", "every", share=2) for i in range(50)]
    thin([*items, *whole, *half, Named("a.py::single")])  # type: ignore[list-item]
    assert half[0].names == ["every"] and 15 < sum(item.names == ["every"] for item in half) < 35
    many, few = items[:600], items[600:]
    assert not many[0].names and not few[0].names and all(item.names == ["every"] for item in whole)
    assert 20 < sum(not item.names for item in many) < 50
    assert 1 <= sum(not item.names for item in few) < 6
    left = [item for item in many if item.names]
    assert all(item.names in (["slow"], ["slow", "rotated"]) for item in left)
    assert 5 < sum("rotated" not in item.names for item in left) < 70
