"""The n-th call of the system that changes a disk fails: a write, a rename, a removal, a new folder, a copy."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

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
"""(where, function) of every such call that tpusim makes."""


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
def failing(points: Points) -> Generator[Points]:
    """Within it the calls are counted, and the one that fails does."""
    with ExitStack() as stack:
        for place, name in POINTS:
            stack.enter_context(mock.patch.object(place, name, _counted(getattr(place, name), name, points)))
        yield points


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
