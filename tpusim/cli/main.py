"""Entry point of the `tpusim` command."""

import gc
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import tyro
from rich.console import Console

from tpusim.cli.commands import COMMANDS
from tpusim.cli.options import stderr_console
from tpusim.errors import ModeWarning, TableWarning, TpusimError, spelled_as_options
from tpusim.version import __version__

DESCRIPTION = (
    "Numerical simulator of the SOPHGO TPU and its compiler. `tpusim opt IN.mlir -p 'pass{option=..},pass'` runs "
    "single passes through xDSL's driver (`tpusim opt --help`). --debug shows where an error comes from, --version the "
    "version."
)

COLLECT_AFTER = 20_000
"""New objects between two collections of garbage: modules are many objects that live long."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 and the number of the signal."""


def _console() -> Console:
    """A terminal as wide as it is; a file or pipe gets lines wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """A warning of tpusim as one line; any other as Python shows it."""
    if issubclass(category, (ModeWarning, TableWarning)):
        stderr_console().print(f"tpusim: warning: {message}", markup=False)
    else:
        _PYTHONS(message, category, *where, **more)


_PYTHONS = warnings.showwarning


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; exit status 0 for success, 1 for a failed comparison or a TpusimError, 130 for Ctrl-C."""
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [w for w in words if w != "--debug"]
    with warnings.catch_warnings(), spelled_as_options():
        warnings.showwarning = _show_warning
        return _run(words, debug=debug)


def _run(words: list[str], *, debug: bool) -> int:
    try:
        if words[:1] == ["--version"]:
            _console().print(f"tpusim {__version__}", highlight=False)
            return 0
        if words[:1] == ["opt"]:
            from tpusim.cli.opt import optimise

            return optimise(words[1:])
        if words[:1] == ["explore"] and f"explore-{''.join(words[1:2])}" in COMMANDS:
            words = [f"explore-{words[1]}", *words[2:]]
        command = tyro.extras.subcommand_cli_from_dict(COMMANDS, args=words, prog="tpusim", description=DESCRIPTION)
        return 0 if command.execute(_console()) else 1  # type: ignore[attr-defined]
    except TpusimError as error:
        if debug:
            raise
        stderr_console().print(f"tpusim: {_with_notes(str(error), error)}", markup=False)
        return 1
    except KeyboardInterrupt as error:
        if debug:
            raise
        stderr_console().print(f"tpusim: {_with_notes('interrupted', error)}", markup=False)
        return INTERRUPTED
    except BrokenPipeError:
        return 1


def _with_notes(text: str, error: BaseException) -> str:
    """The message, and what was said of where things are."""
    return "; ".join((text, *getattr(error, "__notes__", ())))


if __name__ == "__main__":
    sys.exit(main())
