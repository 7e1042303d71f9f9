"""Reading lines and printing answers."""

import cmd
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tpusim.cli.debugger.syntax import ALIASES, USAGE
from tpusim.cli.output import Terminal
from tpusim.errors import ConfigError, TpusimError, meant
from tpusim.host.labels import one_line

if TYPE_CHECKING:
    from tpusim.simulator.debugger import Debugger, Stop

WIDTH = 100
PROMPT = "(tpusim) "
SHOWN = 12
"""Mismatches, slices and pending commands that are printed at once."""
_REPEATED = ("step", "next", "continue", "back", "rcontinue", "list")
"""Commands that an empty line at a terminal repeats."""


class Base(cmd.Cmd):
    """A prompt without commands; answers are at most WIDTH columns wide."""

    def __init__(self, debugger: "Debugger", console: Console, stdin: IO[str] | None = None) -> None:
        self._piped = stdin is not None or not sys.stdin.isatty()
        super().__init__(stdin=stdin)
        self.debugger = debugger
        self.use_rawinput = not self._piped
        self.prompt = "" if self._piped else PROMPT
        self.console = Terminal(
            file=console.file,
            width=min(console.width, WIDTH),
            force_terminal=console.is_terminal,
            no_color=console.no_color,
            highlight=False,
        )

    def run(self, note: str = "") -> None:
        """Greet, then read commands until `quit` or the end of the input; errors are messages."""
        header = self.debugger.program.header
        count = len(self.debugger.order)
        self.say(f"{header.model} on {header.chip}, {header.mode}: {count:,} commands; {note or 'help lists all'}")
        self.show_place()
        with _history(enabled=not self._piped):
            while True:
                try:
                    self.cmdloop()
                    return
                except KeyboardInterrupt:
                    self.say("interrupted; quit leaves")

    def precmd(self, line: str) -> str:
        """Print a command that came through a pipe, so that the output reads like a session."""
        if self._piped and line != "EOF":
            self.say(f"{PROMPT}{line.rstrip()}")
        return line.split("#", 1)[0].strip() if self._piped else line.strip()

    def onecmd(self, line: str) -> bool:
        """Run one line; a TpusimError is a message."""
        word, _, rest = line.partition(" ")
        word = ALIASES.get(word, word)
        if word and not hasattr(self, f"do_{word}"):
            known = [*USAGE, *(name for name in ALIASES if len(name) > 2)]
            self.fail(f"unknown command '{word}'; help lists them{meant(word, known)}")
            return False
        try:
            return bool(super().onecmd(f"{word} {rest.strip()}".strip()))
        except TpusimError as error:
            self.fail(str(error))
            return False

    def emptyline(self) -> bool:
        """Repeat the last motion after an empty line."""
        if self.lastcmd.split(" ", 1)[0] in _REPEATED and not self._piped:
            return self.onecmd(self.lastcmd)
        return False

    def tensors(self) -> list[str]:
        """Every tensor that is in global or local memory at some time."""
        from tpusim.simulator.debugger.breakpoints import tensor_names

        return tensor_names(self.debugger.program)

    def say(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print one answer of a command, a line that is wrapped."""
        for line in Text(one_line(text), style).wrap(self.console, self.console.width - indent):
            line.rstrip()
            self.console.print(Text(" " * indent).append_text(line), soft_wrap=True)

    def say_lines(self, text: str, indent: int = 0) -> None:
        """Print an answer of several lines, such as a matrix."""
        for line in text.split("\n"):
            self.say(line, indent=indent)

    def fail(self, text: str) -> None:
        """Print an error and stay at the prompt."""
        self.say(text, "red")

    def show_place(self) -> None:
        """Print the next command."""
        place = self.debugger.where()
        if place is None:
            self.say(f"all {len(self.debugger.order):,} commands have run", "bold")
            return
        self.say(f"{place.position}/{place.total}  next: {place.label}", "bold")
        self.say(f"{place.stage}, group {place.group}, cycle {place.cycles:,}", "dim", indent=6)

    def show_stop(self, stop: "Stop") -> None:
        """Print why and where the machine stopped."""
        for one in stop.mismatches:
            self.fail(f"wrong: {one}")
        for one in stop.breakpoints:
            self.say(f"breakpoint {one!r}", "cyan")
        self.show_place()

    def number(self, text: str, default: int | None = 1, what: str = "a count") -> int:
        """A user's count or number, called `what` in errors; required without a default. Raises ConfigError."""
        if not text and default is not None:
            return default
        if not text.isdecimal() or len(text) > 12:
            raise ConfigError(f"{what} is required, got '{text[:40]}'" if text else f"{what} is required")
        return int(text)


@contextmanager
def _history(*, enabled: bool) -> Generator[None]:
    """Line editing and the history file during a terminal session; both are optional."""
    if not enabled:
        yield
        return
    try:
        import readline

        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except (ImportError, RuntimeError):  # no such library, or no home
        yield
        return
    path = Path(base) / "tpusim" / "debug_history"
    readline.set_completer_delims(" ")
    readline.set_history_length(1000)
    with suppress(OSError):
        readline.read_history_file(path)
    yield
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(path)
