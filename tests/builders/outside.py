"""What is opened for writing, removed, moved or made outside the folders where that is allowed."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Outside:
    """Python's audit events of files. An audit hook stays until the process ends, so there is one of it.

    found: what was done outside, since `watching` began. secret: a folder in which nothing may be read either.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._allowed: Sequence[Path] | None = None
        self._secret: Path | None = None
        sys.addaudithook(self._hook)

    @contextmanager
    def watching(self, allowed: Sequence[Path], secret: Path | None) -> Generator[list[str]]:
        """Note what touches files that lie in none of these folders."""
        self.found, self._allowed, self._secret = [], [path.resolve() for path in allowed], secret
        try:
            yield self.found
        finally:
            self._allowed = None

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._allowed is None:
            return
        if event == "open":
            path, _, flags = args
            writes = bool(flags & _WRITES)
            self._note("writes" if writes else "reads", path, writes=writes)
        elif event in _CHANGES:
            for path in args[:2] if event in ("os.rename", "os.link") else args[:1]:
                inside = args[-1] if event in ("os.remove", "os.rmdir") else -1
                self._note(event, path if inside == -1 else f"/proc/self/fd/{inside}/{path}", writes=True, follow=False)

    def _note(self, what: str, path: object, *, writes: bool, follow: bool = True) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a file descriptor
        named, allowed, self._allowed = Path(os.fsdecode(path)), self._allowed, None  # what it asks for is no event
        try:
            real = Path(os.path.realpath(named if follow else named.parent)) / ("" if follow else named.name)
            secret = self._secret is not None and real.is_relative_to(self._secret)
            outside = writes and not any(real.is_relative_to(place) for place in allowed or ())
            if secret or (outside and real != Path(os.devnull)):
                self.found.append(f"{what} {real}")
        finally:
            self._allowed = allowed
