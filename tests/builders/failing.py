"""The n-th fault of a kind: a call that changes the disk fails, an array finds no memory, a child process is killed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np

from tpusim.host.workers import ProcessesExecutor

Kind = Literal["disk", "memory", "processes"]

POINTS: tuple[tuple[Any, str], ...] = (
    (Path, "write_text"),
    (Path, "write_bytes"),
    (Path, "open"),
    (Path, "replace"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (Path, "rmdir"),
    (Path, "touch"),
    (shutil, "copy2"),
    (os, "fsync"),
)
"""(where, function) of every call that changes the disk."""
ALLOCATIONS = ("empty", "zeros", "ones", "full", "array", "ascontiguousarray", "concatenate", "stack", "pad")
"""NumPy's functions that make arrays."""
LARGE = 1 << 12
"""Bytes from which an array counts: a system that has no more memory rarely refuses less."""


class Points:
    """Counts the calls; number `fails` raises, with half of the content written where it writes."""

    def __init__(self, fails: int, error: type[BaseException] = OSError) -> None:
        self.fails, self.count, self._error, self.name = fails, 0, error, ""

    def passed(self, name: str, half: Callable[[], object]) -> None:
        """One more call."""
        self.count += 1
        if self.count == self.fails:
            self.name = name
            half()
            raise self._error(errno.ENOSPC, "No space left on device") if self._error is OSError else self._error


@contextmanager
def failing(points: Points, kind: Kind = "disk") -> Generator[Points]:
    """Inside it, points of a kind are counted, and the chosen point fails."""
    with ExitStack() as stack:
        for place, name, call in _calls(kind, points):
            stack.enter_context(mock.patch.object(place, name, call))
        yield points


def _calls(kind: Kind, points: Points) -> list[tuple[Any, str, Callable[..., Any]]]:
    match kind:
        case "disk":
            return [(place, name, _counted(getattr(place, name), name, points)) for place, name in POINTS]
        case "memory":
            return [(np, name, _allocating(getattr(np, name), name, points)) for name in ALLOCATIONS]
        case "processes":
            return [(ProcessesExecutor, "submit", _submitting(ProcessesExecutor.submit, points))]


def _counted(real: Callable[..., Any], name: str, points: Points) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if name == "open" and not any(letter in str(args[1:]) + str(kwargs) for letter in "wxa+"):
            return real(*args, **kwargs)

        def half() -> None:
            if name in ("write_text", "write_bytes"):
                real(args[0], args[1][: len(args[1]) // 2], **kwargs)

        points.passed(name, half)
        return real(*args, **kwargs)

    return call


def _allocating(real: Callable[..., Any], name: str, points: Points) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        made = real(*args, **kwargs)
        if getattr(made, "nbytes", 0) >= LARGE:
            points.passed(name, lambda: None)
        return made

    return call


def _submitting(real: Callable[..., Any], points: Points) -> Callable[..., Any]:
    """The process that was begun first is killed after the n-th unit was submitted."""

    def submit(self: Any, *args: Any, **kwargs: Any) -> Any:
        future = real(self, *args, **kwargs)
        points.count += 1
        if points.count == points.fails:
            points.name = "submit"
            for process in self._begun[:1]:
                os.kill(process.pid, signal.SIGKILL)
        return future

    return submit
