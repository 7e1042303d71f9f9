"""The progress of a command on stderr: bars on a terminal, otherwise a line for each finished stage."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from tpusim.cli.output import Output
from tpusim.host.labels import one_line
from tpusim.running.pipeline import STAGES

EVERY = 10.0
"""Seconds between two lines of one stage without a terminal."""


class RateColumn(ProgressColumn):
    """A column with the recent items per second."""

    def render(self, task: Task) -> Text:
        """Nothing until two are done."""
        return Text(f"{task.speed:,.1f} per second" if task.speed and not task.finished else "")


class LiveProgress:
    """An observer that shows each stage with its time and, where known, items done."""

    def __init__(self, console: Output) -> None:
        self._console, self._name, self._began, self._said = console.errors, "", 0.0, 0.0
        spinner = "dots" if self._console.encoding.startswith("utf") else "line"
        self._progress = Progress(
            SpinnerColumn(spinner, finished_text=Text("✓", "green")),
            TextColumn("{task.description:<13}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            RateColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "LiveProgress":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """One line for the stage."""
        number = list(STAGES).index(name) + 1 if name in STAGES else 0
        self._name = f"{number:>2} {name}" if number else name
        self._began = self._said = time.monotonic()
        self._task = self._progress.add_task(self._name, total=None)
        yield
        total = self._progress.tasks[self._task].completed or 1
        self._progress.update(self._task, total=total, completed=total)
        self._line(f"{time.monotonic() - self._began:.2f} s")

    def progress(self, done: int, total: int | None = None) -> None:
        """Items of the current stage."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)
            self._now_and_then(f"{done:,} of {total:,}" if total else f"{done:,}")

    def update(self, what: str) -> None:
        """What the current stage is doing."""
        if self._task is not None:
            self._progress.update(self._task, description=one_line(what))
            self._now_and_then(what)

    def _now_and_then(self, text: str) -> None:
        if time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            self._line(text)

    def _line(self, text: str) -> None:
        """Print a line if bars are not shown."""
        if not self._console.is_terminal:
            self._console.print(f"{self._name:<15} {text}", markup=False, soft_wrap=True)
