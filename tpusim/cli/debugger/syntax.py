"""The syntax of lines at the prompt."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tpusim.errors import ConfigError

if TYPE_CHECKING:
    from tpusim.simulator.debugger import Access

USAGE = {
    "step": "step [N]",
    "next": "next [N]",
    "continue": "continue",
    "finish": "finish",
    "back": "back [N]",
    "rcontinue": "rcontinue",
    "run": "run",
    "restart": "restart",
    "where": "where",
    "goto": "goto N",
    "break": "break [WHERE]",
    "delete": "delete [N]",
    "enable": "enable N",
    "disable": "disable N",
    "print": "print [WHAT]",
    "x": "x ADDRESS [COUNT] [lane L]",
    "info": "info [TOPIC]",
    "list": "list [N]",
    "check": "check",
    "help": "help [COMMAND]",
    "quit": "quit",
}
"""Command -> its usage, in the order of `help`."""

ALIASES = {
    "b": "break",
    "d": "delete",
    "s": "step",
    "n": "next",
    "c": "continue",
    "r": "run",
    "start": "restart",
    "bt": "where",
    "rs": "back",
    "rc": "rcontinue",
    "p": "print",
    "i": "info",
    "l": "list",
    "q": "quit",
    "h": "help",
    "?": "help",
    "EOF": "quit",
}


def beginning(text: str, names: Iterable[str]) -> list[str]:
    """The names that start with a text, each once."""
    return [name for name in dict.fromkeys(names) if name.startswith(text)]


def access(words: list[str]) -> "Access":
    """Remove `read` or `write` from the end of the words, and return the access."""
    if len(words) > 1 and words[-1] in ("read", "write"):
        return "read" if words.pop() == "read" else "write"
    return "any"


def is_address(word: str) -> bool:
    """Whether a word is a number, decimal or 0x."""
    return re.fullmatch(r"0[xX][0-9a-fA-F]+|\d+", word) is not None


def address(word: str) -> int:
    """The number of a word. Raises ConfigError."""
    if not is_address(word) or len(word) > 20:
        raise ConfigError(f"an address such as 0x500 or 1280 is required, got '{word[:40]}'")
    return int(word, 16 if word[:2].lower() == "0x" else 10)


def indexed(text: str) -> tuple[str, tuple[Any, ...] | None]:
    """`name[0, 3:5]` -> (name, index); without brackets (name, None). Raises ConfigError."""
    found = re.fullmatch(r"(.*?)\[([-\d:, ]*)\]", text)
    if found is None:
        return text, None
    parts: list[Any] = []
    for part in found[2].split(","):
        numbers = [int(n) if n.strip() else None for n in part.split(":")] if _is_index(part) else []
        if not numbers or len(numbers) > 3 or (len(numbers) == 1 and numbers[0] is None) or numbers[2:] == [0]:
            raise ConfigError(f"an index of numbers and ranges, such as [0, 3:5], is required, got '[{found[2]}]'")
        parts.append(numbers[0] if len(numbers) == 1 else slice(*numbers))
    return found[1].strip(), tuple(parts)


def _is_index(part: str) -> bool:
    return all(re.fullmatch(r"\s*(-?\d{1,9})?\s*", number) for number in part.split(":"))
