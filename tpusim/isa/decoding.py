"""Structs from the fields of a text: of a known class, or of the class that a tag names in a table."""

from typing import Any, TypeVar

import msgspec

from tpusim.errors import ConfigError
from tpusim.registry import Table

T = TypeVar("T")
MALFORMED = (ValueError, OverflowError, RecursionError)
"""Errors of a converter for fields that fit no struct; msgspec's error is a ValueError."""


def convert(fields: Any, kind: type[T]) -> T:
    """A struct of these fields. Raises ValueError."""
    try:
        return msgspec.convert(fields, kind)
    except MALFORMED as error:
        raise ValueError(str(error)) from error


def kind_of(table: Table[type[T]], name: object) -> type[T]:
    """The class of that name in a table. Raises ValueError if there is none, or if its package cannot be imported."""
    if not isinstance(name, str) or name not in table:
        shown = name if isinstance(name, str) else type(name).__name__
        raise ValueError(f"Invalid value '{shown}': no {table.noun} of this name is registered")
    try:
        return table.get(name)
    except ConfigError as error:
        raise ValueError(str(error)) from error
