"""Default values of options that can be distinguished from given values, even if both are equal.

An option that was not given on the command line has the value of the folder's run; a given option overrides it. So a
field's default is `usual(value)`: equal to the value and printed like it, but of a special type that no parsed value
has. None needs no mark.
"""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


class _Usual:
    """The type of a value that was not given."""


class _Text(str, _Usual):
    __slots__ = ()


class _Number(int, _Usual):
    __slots__ = ()


class _Switch(int, _Usual):
    """A truth value, because bool cannot be subclassed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(bool(self))

    __str__ = __repr__


class _Words(tuple[Any, ...], _Usual):
    __slots__ = ()


_KINDS: dict[type[Any], Callable[[Any], Any]] = {str: _Text, bool: _Switch, int: _Number, tuple: _Words}
_PLAIN: dict[type[Any], Callable[[Any], Any]] = {_Text: str, _Switch: bool, _Number: int, _Words: tuple}


def usual(value: T) -> T:
    """The value as the default of an option."""
    return _KINDS[type(value)](value)


def plain(value: T) -> T:
    """The value without the mark."""
    return _PLAIN.get(type(value), _same)(value)


def _same(value: Any) -> Any:
    return value


def given(options: Any) -> dict[str, Any]:
    """The fields of a dataclass of options that were given."""
    found = {f.name: getattr(options, f.name) for f in fields(options)}
    return {name: value for name, value in found.items() if value is not None and not isinstance(value, _Usual)}


def values(options: Any) -> dict[str, Any]:
    """All its fields as plain values."""
    return {f.name: plain(getattr(options, f.name)) for f in fields(options)}


def flags(names: Iterable[str]) -> list[str]:
    """Names of fields as options of the command line."""
    return [f"--{name.replace('_', '-')}" for name in names]
