"""The functions that make the forms of commands, registered by class, also by plug-ins."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tpusim.chips import ChipSpec
from tpusim.isa.commands import (
    Command,
    Fn,
)
from tpusim.isa.commands.window import window_ranges
from tpusim.isa.functions import (
    Function,
)
from tpusim.isa.region import is_packed
from tpusim.kernel_library.forms.parts import Form

Make = Callable[[Any, ChipSpec], Iterator[Form]]
M = TypeVar("M", bound=Make)

_MAKES: dict[type[Command | Function], Make] = {}
_OF_WORDS: set[Make] = set()
_OF_HALVES: set[Make] = set()


def form_of(*kinds: type[Command | Function], words: bool = False, halves: bool = False) -> Callable[[M], M]:
    """Register a function from (command, chip) to the forms of commands or functions of these classes.

    words: the function also handles batch items that share words (4N). halves: it also handles elements of 4 bits.
    """

    def register(make: M) -> M:
        _MAKES.update(dict.fromkeys(kinds, make))
        if words:
            _OF_WORDS.add(make)
        if halves:
            _OF_HALVES.add(make)
        return make

    return register


def forms(body: Command, chip: ChipSpec) -> tuple[Form, ...]:
    """The forms of a command, which are computed in sequence (usually one); () if it has none."""
    make = _MAKES.get(type(body.function) if isinstance(body, Fn) else type(body))
    views = [view for _, view in body.operands()]
    if make is None or any(v.laned or 0 in v.shape for v in views) or window_ranges(body, chip):
        return ()
    if make not in _OF_HALVES and any(is_packed(v.dtype) for v in views):
        return ()
    if make not in _OF_WORDS and any(v.interleave > 1 for v in views):
        return ()
    return tuple(make(body, chip))
