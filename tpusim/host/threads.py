"""Threads of this process, for work that leaves Python's lock most of the time: XLA, NumPy, hashes and files.

All of them are waited for, and an error in one is raised in place of its result.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
MOST = 4
"""Threads from which on more of them wait for Python's lock."""


def processors() -> int:
    """How many processors this process may use, where the system says it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """function(item) of every item in their order, several at a time; after a failure no other item is begun."""
    wanted = list(items)
    threads = min(processors(), MOST, len(wanted))
    if threads < 2:
        yield from map(function, wanted)
        return
    with ThreadPoolExecutor(threads, "each") as pool:
        yield from pool.map(function, wanted)


def abreast(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """function(item) of every item in their order; the next begins, in a second thread, before one is waited for.

    At most two results are kept. On one processor they are made one after the other.
    """
    if processors() < 2:
        yield from map(function, items)
        return
    left, coming = iter(items), deque[Future[R]]()
    with ThreadPoolExecutor(2, "abreast") as pool:

        def begin() -> None:
            try:
                coming.extend(pool.submit(function, item) for item in islice(left, 1))
            except Exception as error:  # noqa: BLE001  raised where the item's result would have been
                coming.append(Future())
                coming[-1].set_exception(error)

        begin()
        while coming:
            begin()
            yield coming.popleft().result()


@contextmanager
def background_thread() -> Generator[ThreadPoolExecutor]:
    """A background thread. On leaving the context, work that has begun is finished, the rest is dropped."""
    pool = ThreadPoolExecutor(1, "background")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """The items; the next item is made while the caller uses this one."""
    left = iter(items)
    with ThreadPoolExecutor(1, "prefetch") as pool:
        coming = pool.submit(lambda: list(islice(left, 1)))
        while item := coming.result():
            coming = pool.submit(lambda: list(islice(left, 1)))
            yield item[0]
