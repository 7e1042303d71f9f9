"""The driver of rewrite patterns: applies them to a fix point, counts firings, and reports to a watcher."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Protocol

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from tpusim.errors import ConfigError, TpusimError
from tpusim.ir.module import Model
from tpusim.ir.pdl.automaton import Automaton
from tpusim.ir.pdl.patterns import Automata, DataPattern


class Watch(Protocol):
    """Who is told of patterns."""

    def tried(self, pattern: str, model: Model, seconds: float, *, fired: bool) -> None:
        """A pattern was tried on an op. The model, which must not be changed, is as the pattern left it."""
        ...


MOST_FIRINGS = 50
"""Firings for each op of a module, of all patterns together, after which they count as endless."""
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def without_notes() -> Generator[None]:
    """Remove from an error of ours the whole module, which xDSL's driver adds as a note."""
    try:
        yield
    except TpusimError as error:
        error.__notes__ = getattr(error, "__notes__", [])[:-1]
        raise


@contextmanager
def watching(watch: Watch | None) -> Generator[None]:
    """Inside, `watch` is told of every pattern that is tried; None: nobody is."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


class _Applier(RewritePattern):
    """Tries patterns on an op in order until one changes something; one automaton matches those that are data.

    Firings are counted under the pattern's class name, and reported to the watcher, if there is one.
    """

    def __init__(self, model: Model, patterns: Sequence[RewritePattern], stored: Automaton | None) -> None:
        self.firings = Counter[str]()
        self._model, self._watch = model, _watch.get()
        self._patterns = sorted(patterns, key=lambda pattern: -getattr(pattern, "benefit", 1))
        self._in_python = [pattern for pattern in self._patterns if not isinstance(pattern, DataPattern)]
        self._automata = Automata(patterns, model.weights, stored)
        self._left = MOST_FIRINGS * (100 + sum(1 for _ in model.module.walk()))

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Apply the first pattern that fires."""
        fitting = self._automata.fitting(op)
        for pattern in self._patterns if fitting or self._watch is not None else self._in_python:
            begin = perf_counter() if self._watch is not None else 0.0
            if isinstance(pattern, DataPattern):
                self._automata.apply(pattern, fitting, op, rewriter)
            else:
                pattern.match_and_rewrite(op, rewriter)
            fired = rewriter.has_done_action
            if self._watch is not None:
                self._watch.tried(type(pattern).__name__, self._model, perf_counter() - begin, fired=fired)
            if fired:
                self._count(type(pattern).__name__)
                return

    def _count(self, name: str) -> None:
        self.firings[name] += 1
        self._left -= 1
        if not self._left:
            (often, times), *_ = self.firings.most_common(1)
            raise ConfigError(
                f"patterns: a fix point is required, {often} has fired {times:,} times; let it make something that no "
                "pattern matches"
            )


def rewrite(
    model: Model, patterns: Sequence[RewritePattern], *, recursively: bool = True, stored: Automaton | None = None
) -> dict[str, int]:
    """Apply patterns to a module in place until none fires; how often each has fired, by class name.

    The first pattern that fires on an op wins. recursively: rewritten ops are visited again. stored: an automaton of
    some of the patterns that are data; the others are compiled. The model's store may gain weights.
    """
    applier = _Applier(model, patterns, stored)
    with without_notes():
        PatternRewriteWalker(applier, apply_recursively=recursively).rewrite_module(model.module)
    return {name: count for name, count in sorted(applier.firings.items()) if count}


def tell(name: str, model: Model) -> None:
    """Tell whoever watches of a rewriting that is no pattern."""
    watch = _watch.get()
    if watch is not None:
        watch.tried(name, model, 0.0, fired=True)
