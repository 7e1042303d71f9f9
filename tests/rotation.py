"""Which configurations of a row belong to the default tests, which to CI, and which to `make slow` alone.

Every op meets its first configuration in every run, with its first row and a twelfth of the others. Secondary
configurations take turns by a hash of the row's name, the same everywhere: every one is met by its share of the rows,
and every row by its share of them.
Of what is slow in every configuration, CI (`make models`) has one in 16 by the same hash. `make slow` has all.

What is not about a row takes turns by the hash of the item's name (`thin`): a function of several items has its
first and of the others every twelfth or eighteenth in the default tests, unless it is marked `every`: then all, or
every n-th if the mark has that number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from zlib import crc32

import pytest
from op_cases import CASES, OpCase

_FIRST = {case.result: case.id for case in reversed(CASES)}
"""What the op under test becomes -> its first row."""


def turn(case: OpCase, number: int, share: int) -> bool:
    """Whether it is the row's turn to meet configuration `number`; of `share` that follow each other it meets one."""
    return (crc32(case.id.encode()) + number) % share == 0


def is_first(case: OpCase, number: int) -> bool:
    """Whether this is the first configuration of the first row of an op, so that no op is without."""
    return number == 0 and _FIRST[case.result] == case.id


def is_usual(case: OpCase, number: int) -> bool:
    """Whether this is the first configuration of a row that always meets it: an op's first, one in 12 of others."""
    return is_first(case, number) or (number == 0 and turn(case, number, 12))


def some_first(case: OpCase, number: int) -> bool:
    """Whether this is that of an op that is one in six, by the hash of its first row."""
    return is_first(case, number) and turn(case, 0, 6)


def marks(usual: bool) -> Collection[pytest.MarkDecorator]:
    """Of an item that the default tests have, or leave to `make slow`."""
    return () if usual else (pytest.mark.slow, pytest.mark.rotated)


IN_CI = 16
"""CI has one in so many of the slow items of the rows."""


def slow_marks(case: OpCase, number: int) -> Collection[pytest.MarkDecorator]:
    """Of an item that the default tests do not have; `number` is that of its configuration."""
    return (pytest.mark.slow,) if turn(case, number, IN_CI) else marks(usual=False)


def first_of(values: Iterable[object]) -> list[object]:
    """Values of one parameter, of which the default tests have the first, and CI the others too."""
    return [pytest.param(v, marks=(pytest.mark.slow,) if number else ()) for number, v in enumerate(values)]


def one_in(share: int, table: Iterable[tuple[object, ...]]) -> list[object]:
    """Lines of parameters, of which the default tests have the first of every `share`."""
    lines = list(table)
    return [
        pytest.param(*line, id="-".join(str(value) for value in line), marks=marks(number % share == 0))
        for number, line in enumerate(lines)
    ]


def a_turn_each(table: Iterable[tuple[object, ...]], share: int) -> list[object]:
    """Lines of parameters, of which the default tests have one in `share` by a hash, and CI one in 16 of the others."""
    found = list[object]()
    for line in table:
        name = "-".join(map(str, line))
        value = crc32(name.encode())
        chosen = (pytest.mark.slow,) if value % share and value // share % IN_CI == 0 else marks(value % share == 0)
        found.append(pytest.param(*line, id=name, marks=chosen))
    return found


LONG = 9
"""A function with as many items or more has its first and one in 18 in the default tests, others one in 12."""


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark what the default tests leave to others, of these items of all functions: `slow`, 15 in 16 `rotated` too."""
    functions = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    for found in functions.values():
        share = _share(found)
        for item in found[1:] if share > 1 else ():
            _take_turns(item, share)


def _share(items: Sequence[pytest.Item]) -> int:
    """Of how many items of a function the default tests have one."""
    every = items[0].get_closest_marker("every")
    if every is not None:
        return every.args[0] if every.args else 1
    return 18 if len(items) >= LONG else 12


def _take_turns(item: pytest.Item, share: int) -> None:
    value = crc32(item.nodeid.encode())
    if value % share:
        for mark in (pytest.mark.slow,) if value // share % IN_CI == 0 else marks(usual=False):
            item.add_marker(mark)
