"""The registry: lazy entries, callbacks that wait for a thing to load, and entry points that fail."""

import pytest

from tpusim.errors import ConfigError
from tpusim.registry import Table


def table(**shipped: object) -> Table[object]:
    return Table("thing", "tpusim.no_such_group", shipped)


def test_a_callback_waits_for_the_thing_to_load():
    things, calls = table(one="math:pi"), list[tuple[str, object]]()
    things.when_loaded("one", lambda thing: calls.append(("first", thing)))
    things.when_loaded("one", lambda thing: calls.append(("second", thing)))
    assert calls == [] and not things.is_loaded("one")
    assert things.get("one") == pytest.approx(3.14159, abs=1e-5)
    assert [name for name, _ in calls] == ["first", "second"]
    things.get("one")
    things.when_loaded("one", lambda thing: calls.append(("late", thing)))
    assert [name for name, _ in calls] == ["first", "second", "late"]


def test_a_callback_may_come_before_the_registration():
    things, calls = table(), list[object]()
    things.when_loaded("later", calls.append)
    things.add("later", marker := object())
    assert calls == [] and things.get("later") is marker and calls == [marker]


def test_one_name_stands_for_one_thing():
    things = table(one="math:pi")
    things.add("one", "math:pi")
    things.add("one", things.get("one"))
    with pytest.raises(ConfigError, match=r"'one' is registered already, as 3\.14.*; choose another name"):
        things.add("one", "math:e")
