"""What one step of the grammar is: a function that applies an op to a value of a network, and its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.conformance.fuzz.net import Net

Apply = Callable[[Net, str], Sequence[str] | str | None]
"""(network, value) -> the result or results; None if the op has no form for this value."""
ALL = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Production:
    """An op of the grammar. ranks: of the values that it takes; weight: how often it is drawn, 1 for most."""

    name: str
    apply: Apply
    ranks: tuple[int, ...] = ALL
    weight: float = 1.0


class Family(list[Production]):
    """The productions of one file, in its order."""

    def add(self, name: str = "", ranks: tuple[int, ...] = ALL, weight: float = 1.0) -> Callable[[Apply], Apply]:
        """A decorator that appends a function; without a name it has that of the function."""

        def keep(apply: Apply) -> Apply:
            self.append(Production(name or apply.__name__, apply, ranks, weight))
            return apply

        return keep
