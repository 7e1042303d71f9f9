"""Right programs of every kind pass every check, in every order, and compute what flat inference computes."""

from __future__ import annotations

import pytest
from right_programs import drawn, wrong
from rotation import one_in


@pytest.mark.parametrize("seed", [9, 25, 3])
def test_right_programs_pass(seed: int) -> None:
    right = drawn(seed)
    assert any(command.core for command in right.program.commands)
    assert wrong(right, 2, flat=False) == "", right.name


@pytest.mark.slow
@pytest.mark.parametrize("first", one_in(10, ((first,) for first in range(0, 200, 20))))
def test_many_right_programs_pass(first: int) -> None:
    found = {right.name: wrong(right, 20, flat=True) for right in map(drawn, range(first, first + 20))}
    assert not any(found.values()), found
