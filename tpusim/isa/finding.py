"""What a legality rule reports."""

from collections.abc import Iterator
from typing import NamedTuple


class Finding(NamedTuple):
    """A broken rule: what it requires, what it got, and what to do about it."""

    requirement: str
    got: str
    advice: str


def first(findings: Iterator[Finding]) -> Finding | None:
    """The first finding, if there is one."""
    return next(findings, None)
