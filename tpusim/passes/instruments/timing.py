"""How long passes took, as a tree: pipelines, passes, steps of passes, and patterns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter

from typing_extensions import override

from tpusim.passes.instruments.base import Instrument, Step


@dataclass(eq=False)
class Node:
    """Seconds of wall time, and what they are made of, by name in the order of the first run."""

    seconds: float = 0.0
    parts: dict[str, "Node"] = field(default_factory=dict[str, "Node"])

    def part(self, name: str) -> "Node":
        """The part of that name, new if it has not run yet."""
        return self.parts.setdefault(name, Node())


PATTERN = "pattern "
"""What the names of patterns begin with."""
LEAST = 0.001
"""The share of all time below which patterns are added up to one row."""


class Timing(Instrument):
    """Measures passes and patterns. A pattern's time is that of all its tries, whether it fired or not."""

    watches_patterns = True
    innermost = True

    def __init__(self) -> None:
        self.total = Node()
        self._begun: list[float] = []

    def _node(self, step: Step) -> Node:
        node = self.total
        for one in step.path:
            node = node.part(one.title)
        return node

    @override
    def before(self, step: Step) -> None:
        self._begun.append(perf_counter())

    @override
    def after(self, step: Step) -> None:
        seconds = perf_counter() - self._begun.pop()
        self._node(step).seconds += seconds
        if len(step.path) == 1:
            self.total.seconds += seconds

    @override
    def failed(self, step: Step, error: Exception) -> None:
        if self._begun:
            self.after(step)

    @override
    def tried(self, pattern: str, step: Step, seconds: float, *, fired: bool) -> None:
        self._node(step).part(PATTERN + pattern).seconds += seconds

    @override
    def report(self) -> Iterator[str]:
        yield "seconds  share  pass"
        for node, name, depth in self._rows(self.total, "total", 0):
            share = node.seconds / self.total.seconds if self.total.seconds else 0.0
            yield f"{node.seconds:7.3f} {share:5.1%}  {'  ' * depth}{name}"

    def _rows(self, node: Node, name: str, depth: int) -> Iterator[tuple[Node, str, int]]:
        """(node, name, depth) of a node and all below it."""
        yield node, name, depth
        short = [part for what, part in node.parts.items() if what.startswith(PATTERN) and self._is_short(part)]
        for part, inner in node.parts.items():
            if inner not in short:
                yield from self._rows(inner, part, depth + 1)
        if short:
            yield Node(sum(part.seconds for part in short)), f"{len(short)} other patterns", depth + 1

    def _is_short(self, node: Node) -> bool:
        return node.seconds < LEAST * self.total.seconds
