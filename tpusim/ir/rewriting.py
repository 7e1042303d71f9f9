"""The driver of rewrite patterns: applies them to a fix point, counts firings, and reports to a watcher."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from xdsl.ir import Operation
from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriter, PatternRewriteWalker, RewritePattern

from tpusim.ir.module import Model


class Watch(Protocol):
    """Who is told of patterns."""

    def tried(self, pattern: str, model: Model, seconds: float, *, fired: bool) -> None:
        """A pattern was tried on an op. The model, which must not be changed, is as the pattern left it."""
        ...


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(watch: Watch | None) -> Generator[None]:
    """Inside, `watch` is told of every pattern that is tried; None: nobody is."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


@dataclass
class _Counted(RewritePattern):
    """A pattern whose firings are counted under its class name, and reported to the watcher, if there is one."""

    pattern: RewritePattern
    model: Model = field(repr=False)
    firings: Counter[str] = field(repr=False)
    watch: Watch | None = field(repr=False)

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Apply the pattern; it fired if it changed anything."""
        begin = perf_counter() if self.watch is not None else 0.0
        self.pattern.match_and_rewrite(op, rewriter)
        name, fired = type(self.pattern).__name__, rewriter.has_done_action
        self.firings[name] += fired
        if self.watch is not None:
            self.watch.tried(name, self.model, perf_counter() - begin, fired=fired)


def rewrite(model: Model, patterns: Sequence[RewritePattern], *, recursively: bool = True) -> dict[str, int]:
    """Apply patterns to a module in place until none fires; how often each has fired, by class name.

    The first pattern that fires on an op wins. recursively: rewritten ops are visited again. The model's store may
    gain weights.
    """
    firings, watch = Counter[str](), _watch.get()
    counted: list[RewritePattern] = [_Counted(pattern, model, firings, watch) for pattern in patterns]
    applier = GreedyRewritePatternApplier(counted, dce_enabled=False)
    PatternRewriteWalker(applier, apply_recursively=recursively).rewrite_module(model.module)
    return {name: count for name, count in sorted(firings.items()) if count}


def tell(name: str, model: Model) -> None:
    """Tell whoever watches of a rewriting that is no pattern."""
    watch = _watch.get()
    if watch is not None:
        watch.tried(name, model, 0.0, fired=True)
