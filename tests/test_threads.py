"""Work on several threads: results in order, errors where they belong, no thread left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tpusim.host import threads
from tpusim.host.threads import abreast, background_thread, each, prefetched


@pytest.mark.parametrize("processors", [1, 3])
def test_results_come_in_the_order_of_the_items(monkeypatch: pytest.MonkeyPatch, processors: int):
    monkeypatch.setattr(threads, "processors", lambda: processors)
    assert list(each(lambda i: i * i, range(40))) == [i * i for i in range(40)]
    assert list(each(str, [])) == []


@pytest.mark.parametrize("processors", [1, 2])
def test_an_error_comes_where_its_result_would_have(monkeypatch: pytest.MonkeyPatch, processors: int):
    monkeypatch.setattr(threads, "processors", lambda: processors)
    begun: list[int] = []

    def inverse(i: int) -> float:
        begun.append(i)
        time.sleep(0.001 if i > 2 else 0)  # so that not all are done before the error is seen
        return 1 / (i - 2)

    found: list[float] = []
    with pytest.raises(ZeroDivisionError):
        found.extend(each(inverse, range(1000)))
    results = each(inverse, range(1000))
    assert [next(results), next(results)] == [-0.5, -1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert len(begun) < 1500
    assert not any(thread.name.startswith("each") for thread in threading.enumerate())


def test_the_next_item_is_made_while_the_caller_has_this_one():
    made: list[int] = []
    second = threading.Event()

    def items() -> Iterator[int]:
        for i in range(3):
            made.append(i)
            if i == 1:
                second.set()
            yield i
        raise ValueError("no more")

    left = prefetched(items())
    assert next(left) == 0 and second.wait(10)
    assert next(left) == 1 and next(left) == 2 and made == [0, 1, 2]
    with pytest.raises(ValueError, match="no more"):
        next(left)


@pytest.mark.parametrize("processors", [1, 2])
def test_two_are_made_abreast(monkeypatch: pytest.MonkeyPatch, processors: int):
    """Each waits until the other has begun; an error of an item, or of its result, comes in its place."""
    monkeypatch.setattr(threads, "processors", lambda: processors)
    both = threading.Barrier(processors)

    def square(i: int) -> int:
        both.wait(10)
        return i * i // (i != 7)

    def items(count: int) -> Iterator[int]:
        yield from range(count)
        raise ValueError("no more")

    assert list(abreast(square, range(6))) == [i * i for i in range(6)]
    assert list(abreast(str, [])) == []
    left, found = abreast(lambda i: i + 1, items(3)), list[int]()
    with pytest.raises(ValueError, match="no more"):
        found.extend(left)
    assert found == [1, 2, 3]
    left = abreast(square, range(6, 8))
    assert next(left) == 36
    with pytest.raises(ZeroDivisionError):
        next(left)
    assert not any(thread.name.startswith("abreast") for thread in threading.enumerate())


def test_what_has_not_begun_beside_a_failure_never_does():
    begun, failed = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        begun.set()
        assert failed.wait(10)
        done.append("slow")

    with pytest.raises(ValueError, match="no"), background_thread() as other:
        other.submit(slow)
        other.submit(done.append, "later")
        assert begun.wait(10)
        threading.Timer(0.05, failed.set).start()
        raise ValueError("no")
    assert done == ["slow"]
