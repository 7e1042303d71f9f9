"""Names for display: without characters that control a terminal, and shortened.

Long names lose what they have in common, so that they stay distinct.
"""

from collections.abc import Iterable
from os.path import commonprefix
from unicodedata import category

_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of characters that control a terminal, or hide or reverse others, line breaks included."""
_JOINERS = "\u200c\u200d"
"""Of words in Persian and Hindi, and of emojis."""


def one_line(text: str) -> str:
    """The text without control characters: escape sequences, line breaks and the like are spelled out."""
    return text if text.isprintable() else "".join(map(_spelled, text))


def printable(text: str) -> str:
    """As `one_line`, but its line breaks stay."""
    return text if text.isprintable() else "\n".join(map(one_line, text.split("\n")))


def _spelled(letter: str) -> str:
    return ascii(letter)[1:-1] if category(letter) in _OBEYED and letter not in _JOINERS else letter


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns; its middle is left out, because names differ at their ends."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def distinct(names: Iterable[str], width: int) -> dict[str, str]:
    """Each name in at most `width` letters, all distinct: names with equal ends are cut where they agree."""
    found: dict[str, str] = {}
    alike: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        alike.setdefault(cut(name, width), []).append(name)
    for short, those in alike.items():
        found |= {those[0]: short} if len(those) == 1 else _told_apart(those, width, set(alike))
    return found


def _told_apart(names: list[str], width: int, taken: set[str]) -> dict[str, str]:
    """Names whose heads and tails agree, from where they begin to differ; numbered if that is not enough."""
    first = len(commonprefix(names))
    shown = [f"…{name[max(0, first - width // 3) :]}" for name in names]
    short = [text if len(text) <= width else f"{text[: width - 1]}…" for text in shown]
    if len(set(short)) < len(names) or taken & set(short):
        marks = [f"#{i}" for i in range(1, len(names) + 1)]
        short = [cut(name, width - len(mark)) + mark for name, mark in zip(names, marks, strict=True)]
    return dict(zip(names, short, strict=True))
