"""The `tpusim` command: dispatch to subcommands, and handling of errors, warnings and Ctrl-C."""

import _thread
import atexit
import errno
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

from tpusim.cli.streams import make_safe
from tpusim.cli.words import (
    UsageError,
    WordError,
    from_docstrings,
    option_of,
    refuse,
    registry,
    unknown,
)
from tpusim.errors import ConfigError, TpusimError, TpusimWarning, meant, spelled_as_options
from tpusim.host.labels import one_line
from tpusim.registry import CLI, without_plugins
from tpusim.version import __version__

COLLECT_AFTER = 400_000, 2, 10
"""Thresholds of the garbage collector: importing all libraries makes 320,000 objects, which stay to the end."""
atexit.register(gc.freeze)  # at the end Python looks for circles among all objects, a third of a short command's time
INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells: 128 plus the number of the signal."""
UNREADABLE = 2
"""Exit status for a command line that cannot be read."""
OURS = str(Path(__file__).parent.parent)
LATER = 0.05
"""Seconds until an interrupt that could not be handled is raised again."""
MOST_WORDS = 3
"""More words than the positional arguments of any command."""
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a system that cannot write any more."""
PATH = (
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
)
"""Errors of a path that the system does not follow, wherever it was to be looked at."""


def _shown_once() -> Callable[..., None]:
    """Shows a warning for the user as one line, equal ones of a command once; any other as Python shows it."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, TpusimWarning) and not category.__module__.startswith("tpusim_kernels"):
            _PYTHONS(message, category, *where, **more)
        elif (line := one_line(f"warning: {message}")) not in shown:
            shown.add(line)
            _say(line)

    return show


_PYTHONS = warnings.showwarning


def _say(text: str) -> None:
    _complain(f"tpusim: {text}")


def _complain(text: str) -> None:
    from tpusim.cli.output import stderr_console

    with suppress(OSError):  # stderr may be closed
        for line in text.split("\n"):
            stderr_console().print(line, markup=False)


@contextmanager
def _interrupts() -> Generator[None]:
    """Delay Ctrl-C while a library is imported, and raise it again after a callback that lost it."""

    def came(number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            _interrupt_later()
        else:
            signal.default_int_handler(number, frame)

    def lost(what: Any) -> None:
        if issubclass(what.exc_type, KeyboardInterrupt):
            _interrupt_later()
        else:
            hook(what)

    hook, handler = sys.unraisablehook, signal.getsignal(signal.SIGINT)
    mine = handler is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    sys.unraisablehook = lost
    if mine:
        signal.signal(signal.SIGINT, came)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if mine:
            signal.signal(signal.SIGINT, handler)


def _importing(frame: FrameType | None) -> bool:
    """Whether a library is being imported, which may crash if interrupted; tpusim's modules may be interrupted."""
    while frame is not None and not frame.f_code.co_filename.startswith(OURS):
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _interrupt() -> None:
    """Interrupt the main thread as Ctrl-C does; if the system can, also end a blocking call of it."""
    kill, main = getattr(signal, "pthread_kill", None), threading.main_thread().ident
    if kill is None or main is None:
        _thread.interrupt_main()
    else:
        kill(main, signal.SIGINT)


def _interrupt_later() -> None:
    timer = threading.Timer(LATER, _interrupt)
    timer.daemon = True
    timer.start()


def enter(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand, as `tpusim.cli.main` does; the exit status."""
    gc.set_threshold(*COLLECT_AFTER)
    make_safe()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    plugins = without_plugins() if "--no-plugins" in words else nullcontext()
    words = [w for w in words if w not in ("--debug", "--no-plugins")]
    with warnings.catch_warnings(), _interrupts(), spelled_as_options(), plugins:
        warnings.showwarning = _shown_once()
        return _run(words, debug=debug)


def _run(words: list[str], *, debug: bool) -> int:
    try:
        return _execute(words)
    except UsageError as error:
        _complain(str(error))
        raise SystemExit(UNREADABLE) from None
    except BrokenPipeError:
        _drop_output()
        return 1
    except (TpusimError, KeyboardInterrupt, MemoryError, RecursionError, ImportError, OSError) as error:
        text = _explained(error)
        if debug or text is None:
            raise
        if isinstance(error, OSError):
            _drop_output()
        _say("; ".join((text, *getattr(error, "__notes__", ()))))
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _explained(error: BaseException) -> str | None:
    """Advice about an error of the user or the system; None for a defect of tpusim."""
    match error:
        case KeyboardInterrupt():
            return "interrupted"
        case MemoryError():
            return "there is not enough memory; take a smaller batch, or fewer samples or --jobs"
        case RecursionError():
            return "what is read nests too deeply for this Python; write it with fewer levels"
        case ImportError():
            return f"a library cannot be loaded, {error}; install it again, or give the process more memory"
        case OSError():
            where = error.filename or "standard output, or a temporary file"
            if error.errno in PATH and error.filename:
                return f"{where}: cannot be used, {error.strerror}; give another path"
            full = f"{where}: cannot be written, {error.strerror}; make room, or write elsewhere"
            return full if error.errno in DISK else None
        case _:
            return str(error)


def _drop_output() -> None:
    """Redirect remaining output to nowhere: otherwise Python would fail to print it again when it exits."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _execute(words: list[str]) -> int:
    first = words[0] if words else ""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            refuse("tpusim", f"{word!a}: text is required, got bytes that are none in UTF-8; rename the file")
    if first == "opt":
        from tpusim.cli.opt import optimise

        return optimise(words[1:])
    from tpusim.cli.help import show_commands, show_options  # `opt` starts without libraries for tables and options
    from tpusim.cli.output import Output

    if first in ("--version", "-V"):
        Output().tell(f"tpusim {__version__}")
        return 0
    if first in ("--help", "-h") or words == ["help"]:
        show_commands(Output())
        raise SystemExit(0)
    _require_folder()
    if first.startswith("--tyro-"):  # completion
        import tyro

        kinds = dict(_loadable_commands())
        tyro.extras.subcommand_cli_from_dict(kinds, args=words, prog="tpusim", registry=registry())
    if first == "help":
        words, first = [words[1], "--help"], words[1]
    if first == "explore" and f"explore-{''.join(words[1:2])}" in CLI:
        words = [f"explore-{words[1]}", *words[2:]]
    name = words[0] if words else ""
    if name not in CLI:
        refuse("tpusim", _no_command(name, list(CLI)))
    if any(word in ("--help", "-h") for word in words):
        show_options(Output(), name, _command(name))
        raise SystemExit(0)
    command = _parsed(name, _command(name), words[1:])
    output = Output(
        quiet=getattr(command, "quiet", False),
        verbose=bool(getattr(command, "verbose", 0)),
        as_json=getattr(command, "json", False),
    )
    try:
        passed = bool(command.execute(output))
    except TpusimError as error:
        output.finish(name, passed=False, error=str(error))
        raise
    output.finish(name, passed=passed)
    return 0 if passed else 1


def _loadable_commands() -> Iterator[tuple[str, type]]:
    """All subcommands but those of faulty packages, which `tpusim NAME` refuses."""
    for name in CLI:
        try:
            yield name, _command(name)
        except ConfigError as error:
            sys.stderr.write(f"tpusim: warning: {error}\n")


def _command(name: str) -> type:
    """The class of a subcommand. Raises ConfigError for an installed package's that is none."""
    kind = CLI.get(name)
    if isinstance(kind, type) and is_dataclass(kind) and hasattr(kind, "execute"):
        return kind
    raise ConfigError(f"subcommand '{name}': a dataclass with a method `execute` is required, got {kind!r}")


def _require_folder() -> None:
    """Raise ConfigError if the working directory does not exist: libraries need one to import themselves."""
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError("the working directory is gone; cd to a folder that exists") from error


def _no_command(name: str, known: Sequence[str]) -> str:
    if not name:
        return "a command is required, such as `tpusim run MODEL.onnx`"
    what = "option before the command" if name.startswith("-") else "command"
    names = ["--version", "--help"] if name.startswith("-") else [*known, "opt"]
    return f"no {what} '{name}'{meant(name, names)}"


def _parsed(name: str, command: type, words: Sequence[str]) -> Any:
    """The command with its options. Raises UsageError, or exits with tyro's message and status 2."""
    import tyro

    from tpusim.cli.help import flags_of, positionals_of

    prog, read = f"tpusim {name}", partial(cast("Any", tyro.cli), command, config=from_docstrings())
    for missing in range(MOST_WORDS):  # report a wrong value even if the model is missing, too
        try:
            found = read(args=[*["MODEL"] * missing, *words], prog=prog, registry=registry(), console_outputs=False)
        except WordError as error:
            option = option_of(words, error.word)
            refuse(prog, f"{option} {error.word or chr(39) * 2}: {error.wanted}".strip())
        except SystemExit:
            flags = flags_of(command)
            wrong = unknown(words, flags)
            if wrong:
                long = [flag for flag in flags if flag.startswith("--")]
                refuse(prog, "; ".join(f"no option {one}{meant(one, long)}" for one in wrong))
        else:
            if not missing:
                return found
            required = [one for one in positionals_of(command) if not one.startswith("[")]
            refuse(prog, f"{' and '.join(required[-missing:])} must be given")
    return read(args=words, prog=prog, registry=registry())
