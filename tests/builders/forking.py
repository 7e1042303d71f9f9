"""Faults at every point of one run: at each, a forked process meets the fault, and the process that forked goes on.

A command of thousands of points is executed once, in one thread (`Serial`), because a forked process has no other. It
must not compute with JAX again: it says what became of its command, keeps the folder, and ends. Whether the command
can be repeated depends on the folder, so the caller tries that once for each of the different folders.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from builders.failing import Points

SECONDS = 10
"""Time of a forked process until it is ended."""


class Serial(Executor):
    """In place of threads: what is submitted is done at once."""

    def __init__(self, *_: object) -> None:
        super().__init__()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = Future[Any]()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  the caller of `result` has it
            done.set_exception(error)
        return done


class Forks(Points):
    """At every call a forked process raises; then `out` is restored. folders: gets every `out` that faults leave."""

    def __init__(self, error: type[BaseException], out: Path, folders: Path) -> None:
        super().__init__(0, error)
        self.out, self.folders, self.forked = out, folders, False
        self.seen, self.late = Counter[str](), list[int]()
        self._ends, self._says = os.pipe()

    def passed(self, name: str, half: Callable[[], object]) -> None:
        """One more call, in two processes."""
        self.count += 1
        if self.forked:
            return
        self.seen[name] += 1
        before = files_of(self.out)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which a forked process has no more
            child = os.fork()
        if child == 0:
            self.forked, self.name = True, name
            signal.alarm(SECONDS)
            raise self._error
        if os.waitpid(child, 0)[1] != 0:
            self.late.append(self.count)
        if files_of(self.out) != before:
            restored(self.out, before)

    def end(self, finding: str) -> None:
        """In a forked process: keep the folder, say what is wrong (empty if nothing is), and end."""
        state = hashlib.sha256(repr(sorted(files_of(self.out).items())).encode()).hexdigest()
        if not (self.folders / state).exists():
            shutil.copytree(self.out, self.folders / state, symlinks=True)
        if finding:
            os.write(self._says, f"point {self.count} ({self.name}): {finding}\n".encode())
        os._exit(0)

    def findings(self) -> list[str]:
        """What forked processes said."""
        os.close(self._says)
        with os.fdopen(self._ends) as said:
            return said.read().splitlines()


def files_of(folder: Path) -> dict[str, bytes]:
    """Name -> content of every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def restored(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder have these files, and no others."""
    for path in list(folder.rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, data in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists() or place.read_bytes() != data:
            place.write_bytes(data)
