"""A line on stderr about work that takes long, for commands that print nothing until it is done."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

SECONDS = 2.0
"""The longest time without output."""


@contextmanager
def told(doing: str, files: Callable[[], Iterable[Path]]) -> Generator[None]:
    """Print on stderr what a command is doing if it takes long. files: the files that are read, printed with sizes."""
    from tpusim.cli.output import stderr_console

    def say() -> None:
        size = 0
        for file in files():
            with suppress(OSError):
                size += os.stat(file).st_size
        much = f" ({size / 1e9:.1f} GB)" if size >= 1e8 else ""
        stderr_console().print(f"tpusim: {doing}{much} ...", markup=False)

    timer = Timer(SECONDS, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
