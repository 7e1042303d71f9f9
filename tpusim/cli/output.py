"""The output of a command: its result on stdout, as text or as JSON, and its progress on stderr.

A character that the terminal cannot show is replaced by a similar one; it never causes an error. Names come
from the author of a model: a character that a terminal would obey is spelled, and so is a line break in a text.
"""

import json
import math
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tpusim.host.labels import one_line, printable
from tpusim.host.tables import Table

if TYPE_CHECKING:
    from tpusim.cli.progress import LiveProgress

PIPED = 120
"""Columns of a file or a pipe, unless COLUMNS says otherwise."""
LEAST = 20
"""Columns of the narrowest terminal."""


def _width(console: Console) -> int | None:
    """The width for a file, a pipe or an almost zero width; None: use the terminal's."""
    if console.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
        return None if console.width >= LEAST else LEAST
    return PIPED


class Terminal(Console):
    """A console that no name can speak to: of what is rendered its styles alone have escape sequences."""

    def print(self, *parts: Any, **how: Any) -> None:
        """As a console of rich; a text is one line."""
        super().print(*(one_line(part) if isinstance(part, str) else part for part in parts), **how)

    def lines(self, text: str) -> None:
        """Print a text of several lines as it is."""
        super().print(text, end="", highlight=False, markup=False, soft_wrap=True)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments, with spelled letters in place of those that a terminal obeys."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def stderr_console() -> Terminal:
    """The console on stderr, where errors and progress go."""
    return Terminal(file=sys.stderr, highlight=False, soft_wrap=True)


class Output(Terminal):
    """The destination of a command's output.

    quiet: only results, no progress and no details. verbose: full names. as_json: only one JSON object with the fields
    that the command passes to `result`.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, as_json: bool = False) -> None:
        super().__init__(width=_width(Console()), quiet=as_json)
        self.brief, self.whole, self.as_json = quiet, verbose, as_json
        self.errors = Terminal(file=sys.stderr, highlight=False, quiet=quiet)
        self._begun = False
        self._result: dict[str, Any] = {}
        self._written: list[str] = []

    def print(self, *parts: Any, **how: Any) -> None:
        """Print as rich's console; a blank line separates a table from earlier output."""
        if self._begun and parts and isinstance(parts[0], Table):
            super().print()
        self._begun = True
        super().print(*parts, **how)

    def detail(self, *parts: RenderableType, **how: Any) -> None:
        """Print details, which --quiet leaves out."""
        if not self.brief:
            self.print(*parts, **how)

    def tell(self, text: str, style: str = "") -> None:
        """Print a line of the result literally: no markup, no colours except `style`, wrapped on a terminal only."""
        self.print(text, style=style, markup=False, highlight=False, soft_wrap=not self.is_terminal)

    def note(self, text: str, style: str = "") -> None:
        """Print a line that --quiet leaves out."""
        if not self.brief:
            self.tell(text, style)

    def wrote(self, path: Path | str, what: str = "") -> None:
        """Say that a file was written; JSON lists them."""
        self._written.append(str(path))
        self.note(f"wrote {path}" + (f": {what}" if what else ""))

    @contextmanager
    def doing(self, what: str) -> Generator["LiveProgress"]:
        """Show a running task on stderr; `update(TEXT)` of the yielded object shows its progress."""
        from tpusim.cli.progress import LiveProgress

        with LiveProgress(self) as progress, progress.stage(what):
            yield progress

    def result(self, **fields: Any) -> None:
        """Add fields to the JSON object of the result."""
        self._result.update(fields)

    def finish(self, command: str, *, passed: bool, error: str = "") -> None:
        """Print the JSON object if `as_json`."""
        if not self.as_json:
            return
        content = {"command": command, "passed": passed, **self._result}
        content |= {"wrote": self._written} if self._written else {}
        content |= {"error": error} if error else {}
        sys.stdout.write(json.dumps(_valid(content), indent=1, ensure_ascii=True) + "\n")
        sys.stdout.flush()


def _valid(value: Any) -> Any:
    """A value in types of JSON; NaN and infinities become null, unknown types become text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _valid(one) for name, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [_valid(one) for one in cast("Sequence[Any]", value)]
    scalar = getattr(value, "item", None)  # of NumPy
    return _valid(scalar()) if scalar is not None else str(value)
