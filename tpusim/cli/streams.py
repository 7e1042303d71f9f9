"""The standard streams: any character can be printed, and a closed stream is none of a command's errors."""

import codecs
import os
import sys
import unicodedata
from contextlib import suppress
from typing import Any, cast

PLAIN = {
    "…": "~", "×": "x", "·": ".", "→": ">", "←": "<", "≥": ">", "≤": "<", "✓": "+", "✗": "x", "µ": "u", "–": "-",
    "—": "-",
    "“": '"', "”": '"', "‘": "'", "’": "'", "•": "*", "≈": "~", "±": "+", "√": "v", "²": "2", "°": "o", "\xa0": " ",
}  # fmt: skip
"""Replacements of one column each, so that tables stay aligned."""


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Similar characters of the same width, for an encoding that lacks some; what is read is replaced as usual."""
    if not isinstance(error, UnicodeEncodeError):
        return cast("tuple[str, int]", codecs.replace_errors(error))
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(letter: str) -> str:
    if letter in PLAIN:
        return PLAIN[letter]
    if "─" <= letter <= "╿":  # lines and corners of boxes
        return "-" if letter in "─━═╌╍┄┅╴╶╸╺╼╾" else "|" if letter in "│┃║╎╏┆┇" else "+"
    base = unicodedata.normalize("NFKD", letter)[0]
    return base if base.isascii() else "?"


codecs.register_error("tpusim.nearest", _nearest)


def make_safe() -> None:
    """Let the standard streams print any character, and each line when it is complete; replace closed streams."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  as long as the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with suppress(ValueError, OSError):
                cast("Any", stream).reconfigure(errors="tpusim.nearest", line_buffering=True)
