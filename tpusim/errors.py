"""The errors tpusim raises: one class per origin, one message that a person can act on.

A message names the op or tensor, the requirement, what was got and the next step. The command line prints the message
and exits 1; everything that is not a `TpusimError` is a defect of tpusim itself.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

_VOICE = {"options": False}
"""Who reads the messages: whoever typed options, or whoever wrote a call."""
_TYPED = {
    "start": "from", "opt": "layer-group", "max_samples": "samples", "tune_samples": "tune-num", "most": "tokens",
}  # fmt: skip
"""Fields whose option has another name."""


@contextmanager
def spelled_as_options() -> Generator[None]:
    """Messages name settings as the command line does, `--input-shapes`; elsewhere as Python does, `input_shapes`."""
    before, _VOICE["options"] = _VOICE["options"], True
    try:
        yield
    finally:
        _VOICE["options"] = before


def option(name: str, value: object = None, *, typed: str = "", written: str = "") -> str:
    """How the reader of a message spells a setting: `--table x.txt`, or `table='x.txt'`; True is a switch's value.

    typed, written: the value as it is typed on the command line and written in Python, where that is not its text.
    """
    if _VOICE["options"]:
        flag = f"--{_TYPED.get(name, name).replace('_', '-')}"
        return f"{flag} {typed}" if typed else flag if value is None or value is True else f"{flag} {value}"
    return f"{name}={written or ('...' if value is None else repr(value) if isinstance(value, str) else value)}"


class TpusimError(Exception):
    """Base of every error that is the user's to read. Its arguments are the lines of its message.

    Names in a message are of whoever made the model: they begin no line and say nothing to a terminal.
    """

    def __str__(self) -> str:
        """The lines of the message."""
        from tpusim.host.labels import one_line

        return "\n".join(one_line(str(line)) for line in self.args)


class ImportModelError(TpusimError):
    """A model, a module text or a weight file cannot be read."""


class UnsupportedError(TpusimError):
    """An op, an attribute, or the combination of op, chip and mode has no implementation."""


class CalibrationError(TpusimError):
    """Calibration samples or the calibration table do not fit the model."""


class CapacityError(TpusimError):
    """Something does not fit a memory."""


class CommandError(TpusimError):
    """A command breaks a legality rule of the chip."""


class SimulationError(TpusimError):
    """The machine refused a command stream: bounds, uninitialised bytes, a hazard, a deadlock."""


class WorkerError(TpusimError):
    """A unit of work failed again and again where it was sent."""


def lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that this computer had too little memory: later it may be another."""
    while error is not None:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):  # the latter is XLA's
            return True
        error = error.__cause__ or error.__context__
    return False


def first_line(error: Exception) -> str:
    """What an error of a library says, shortened, for a message of ours."""
    return str(error).split("\n", 1)[0][:200] or type(error).__name__


def meant(word: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` for a word that resembles names, else nothing; for the end of a message."""
    from difflib import get_close_matches

    known = {name.lower().lstrip("-"): name for name in names if name}
    found = [known[name] for name in get_close_matches(word.lower().lstrip("-"), known, n=3, cutoff=0.65)]
    return f"; did you mean {' or '.join(found)}?" if found else ""


class TpusimWarning(UserWarning):
    """Base of every warning that is the user's to read."""


class ModeWarning(TpusimWarning):
    """A number format the chip does not have was replaced by the one it has."""


class TableWarning(TpusimWarning):
    """A value of a calibration table was replaced, or its samples are odd."""


class ChangedWarning(TableWarning):
    """A file that a run read is not what it was, and the run is repeated with it."""


class ConfigError(TpusimError):
    """An option, a chip file, a table or another input of the user is malformed."""


def extra_required(asked: str, package: str, extra: str, error: Exception) -> ConfigError:
    """The error of an option whose package is not installed. extra: of tpusim, which installs it."""
    return ConfigError(f"{asked}: needs {package}, extra '{extra}': pip install 'tpusim[{extra}]' ({error})")


class WriteError(ConfigError):
    """A file cannot be written: the disk is full, or the folder is not the user's."""
