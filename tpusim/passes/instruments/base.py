"""What every instrument is: hooks around passes, which do nothing unless a subclass says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpusim.ir.module import Model

if TYPE_CHECKING:
    from tpusim.passes.base import Pass


@dataclass(frozen=True)
class Step:
    """A pass at work. path: it, after the passes that it is a step of; rest: the passes that follow in its pipeline.

    model: the module as it is now, which an instrument must not change.
    """

    path: tuple[Pass, ...]
    model: Model
    rest: tuple[Pass, ...] = ()

    @property
    def step(self) -> Pass:
        """The innermost pass, which is at work."""
        return self.path[-1]

    @property
    def name(self) -> str:
        """The name of the innermost pass."""
        return self.step.name


class Instrument:
    """Watches a run of passes. Instruments see `before` in their order, and `after` in the reverse order."""

    def before(self, step: Step) -> None:
        """A pass is about to begin."""

    def after(self, step: Step) -> None:
        """A pass has finished its work."""

    def failed(self, step: Step, error: Exception) -> None:
        """A pass raised; the module is as it left it."""

    def fired(self, pattern: str, step: Step, seconds: float) -> None:
        """A rewrite pattern changed the module inside the pass."""
