"""What every instrument is: hooks around passes, which do nothing unless a subclass says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tpusim.ir.module import Model

if TYPE_CHECKING:
    from tpusim.passes.base import Pass
    from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class Step:
    """A pass at work. path: it, after the passes that it is a step of; rest: the passes that follow in its pipeline.

    model: the module as it is now, which an instrument must not change. ctx: what travels with it.
    """

    path: tuple[Pass, ...]
    model: Model
    ctx: PassContext
    rest: tuple[Pass, ...] = ()

    @property
    def step(self) -> Pass:
        """The innermost pass, which is at work."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """The name of the innermost pass, or of the op that a nested pipeline works on."""
        return self.step.title


class Instrument:
    """Watches a run of passes. Instruments see `before` in their order, and `after` in the reverse order.

    watches_patterns: whether it is to be told of every pattern that is tried, which costs time. innermost: its place is
    after all others, so that it sees a pass alone.
    """

    watches_patterns: ClassVar[bool] = False
    innermost: ClassVar[bool] = False

    def before(self, step: Step) -> None:
        """A pass is about to begin."""

    def after(self, step: Step) -> None:
        """A pass has finished its work."""

    def failed(self, step: Step, error: Exception) -> None:
        """A pass raised; the module is as it left it."""

    def tried(self, pattern: str, step: Step, seconds: float, *, fired: bool) -> None:
        """A rewrite pattern was tried on an op inside the pass; the step's model is as the pattern left it."""

    def report(self) -> Iterator[str]:
        """Lines to print when all passes are done."""
        return iter(())
