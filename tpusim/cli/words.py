"""Parsing of command-line values: case-insensitive choices, no empty values, suggestions for mistyped words."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast, get_args, get_origin

from tpusim.errors import ConfigError, meant
from tpusim.ir.formats import elsewhere

if TYPE_CHECKING:
    import tyro

    Made = tyro.constructors.PrimitiveConstructorSpec[Any]

NUMBERS: dict[type, str] = {int: "a whole number", float: "a number"}


class WordError(Exception):
    """A word that is no value of its option. word: as given; wanted: the requirement."""

    def __init__(self, word: str, wanted: str) -> None:
        super().__init__(wanted)
        self.word, self.wanted = word, wanted


def from_docstrings() -> tuple[Any, ...]:
    """For `tyro.cli`: options are described in docstrings, so it need not read the source of commands for comments."""
    import tyro

    return (tyro.conf.HelptextFromCommentsOff,)


def registry() -> "tyro.constructors.ConstructorRegistry":
    """The conversions from words to values, for `tyro.cli`."""
    import tyro  # `opt` reads its options without it

    rules = tyro.constructors.ConstructorRegistry()
    cast("Any", rules).primitive_rule(_value)
    return rules


def _value(info: "tyro.constructors.PrimitiveTypeInfo") -> "Made | None":
    """Conversions for choices in any case, numbers, and non-empty paths and texts; tyro does the rest."""
    kind: Any = cast("Any", info).type
    names = get_args(kind)
    if get_origin(kind) is Literal and all(isinstance(name, str) for name in names):
        return _spec(f"{{{','.join(names)}}}", lambda word: _choice(word, names), lambda value: value in names)
    if kind is Path:
        return _spec("PATH", lambda word: Path(_given(word, "a path")), lambda value: isinstance(value, Path))
    if kind in NUMBERS:
        return _spec(kind.__name__.upper(), lambda word: _number(word, kind), lambda value: isinstance(value, kind))
    if kind is str:
        return _spec("STR", lambda word: _given(word, "a value"), lambda value: isinstance(value, str))
    return None


def _spec(metavar: str, made: Callable[[str], Any], is_one: Callable[[Any], bool]) -> "Made":
    import tyro

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1, metavar=metavar, instance_from_str=lambda words: made(words[0]), is_instance=is_one,
        str_from_instance=lambda value: [str(value)],
    )  # fmt: skip


def _choice(word: str, names: Sequence[str]) -> str:
    found = next((name for name in names if name.lower() == word.lower()), None)
    if found is None:
        raise WordError(
            word, f"one of {', '.join(filter(None, names))} is required{elsewhere(word) or meant(word, names)}"
        )
    return found


def _number(word: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(word)
    except ValueError:
        raise WordError(word, f"{NUMBERS[kind]} is required") from None


def _given(word: str, what: str) -> str:
    if not word:
        raise WordError(word, f"{what} is required, got an empty word; leave the option out, or set the shell variable")
    return word


def option_of(words: Sequence[str], word: str) -> str:
    """The option whose value a word is, as typed; "" for a positional one."""
    last = ""
    for one in words:
        if one.startswith("--"):
            last, equals, value = one.partition("=")
            if equals and value == word:
                return last
        elif one == word:
            return last
    return ""


def unknown(words: Sequence[str], options: Iterable[str]) -> list[str]:
    """Words that look like options but are unknown."""
    known = set(options)
    found: list[str] = []
    for word in words:
        if word == "--":
            break
        name = word.partition("=")[0]
        name = name.replace("_", "-") if name.startswith("--") else name
        looks = name.startswith("--") and len(name) > 2 or name[:1] == "-" and name[1:].isalpha()
        if looks and name not in known and not _cluster(name, known):
            found.append(word.partition("=")[0])
    return found


def _cluster(name: str, known: set[str]) -> bool:
    """Whether a word is a cluster of short options, as -vv."""
    return not name.startswith("--") and all(f"-{letter}" in known for letter in name[1:])


def refuse(prog: str, text: str) -> NoReturn:
    """Exit with status 2, as for every command line that cannot be parsed."""
    more = "" if text.endswith("?") else f"; `{prog} --help` lists what there is"
    raise UsageError(f"{prog}: {text}{more}")


class UsageError(ConfigError):
    """A command line that cannot be parsed."""
