"""Reads untrusted TOML and JSON: what is too long or nested too deeply counts as malformed, like a missing quote.

Parsers recurse for nested values, and the TOML parser needs memory for the square of a key's parts. So depth, length
and parts have bounds that no chip, configuration or report comes near.
"""

import json
import re
import tomllib
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tpusim.host.files import opened

T = TypeVar("T")

LONGEST_TOML = 1 << 24
LONGEST_JSON = 1 << 30
"""Letters of a file that are read."""
MOST_PARTS = 32
"""Parts of a dotted key."""
_KEY_LIKE = re.compile(r"[=,{}\[\]\n]")
_TOO_DEEP = "it is nested too deeply"


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises OSError, and ValueError for a malformed file."""
    return parse_toml(_text(path, LONGEST_TOML))


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises OSError, and ValueError for a malformed file."""
    return parse_json(_text(path, LONGEST_JSON))


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text. Raises ValueError."""
    if any(part.count(".") >= MOST_PARTS for part in _KEY_LIKE.split(text)):
        raise ValueError(f"keys of at most {MOST_PARTS} parts are read")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_json(text: str | bytes) -> Any:
    """The content of a text. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def decode(data: str | bytes, kind: type[T]) -> T:
    """JSON as a value of a type. Raises msgspec's DecodeError, a ValueError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError(_TOO_DEEP) from None


def _text(path: Path, longest: int) -> str:
    """A file of at most so many letters. Raises OSError as `opened` does."""
    with TextIOWrapper(opened(path), encoding="utf-8") as file:
        text = file.read(longest + 1)
    if len(text) > longest:
        raise ValueError(f"at most {longest:,} letters are read, it has more")
    return text
