"""What a legality rule is, and what it reports."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from tpusim.chips import ChipSpec


class Finding(NamedTuple):
    """A broken rule: what it requires, what it got, and what to do about it."""

    requirement: str
    got: str
    advice: str


Rule: TypeAlias = Callable[[Any, ChipSpec], Finding | None]
"""A function of a command and a chip; its name is the rule's, its docstring says what is required."""


def first(findings: Iterator[Finding]) -> Finding | None:
    """The first finding, if there is one."""
    return next(findings, None)
