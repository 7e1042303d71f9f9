"""Canonicalisation: the folders and patterns of all ops, constants at the head, and no dead code, to a fix point."""

from importlib import import_module

from typing_extensions import override
from xdsl.context import Context
from xdsl.ir import Operation, Region
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
)
from xdsl.transforms.canonicalize import CanonicalizationRewritePattern

from tpusim.ir.generic.constants import gather_constants, replacements
from tpusim.ir.generic.dce import erase_dead
from tpusim.ir.generic.effects import is_dead

MOST_ROUNDS = 10
"""As often as MLIR begins again before it gives up."""
PLACES = {
    "arith": "tpusim.ir.generic.algebra",
    "scf": "tpusim.ir.generic.structured",
    "cf": "tpusim.ir.generic.branches",
}
"""Rewrites of dialects beyond those of xDSL: modules with a function `rewrite`."""


def simplify(function: Operation, ctx: Context) -> None:
    """Canonicalise what is inside an isolated op."""
    for _ in range(MOST_ROUNDS):
        changed = any([gather_constants(region) for region in function.regions])
        changed = _rewrite(function, ctx) or changed
        changed = erase_dead(function) or changed
        if not changed:
            break


def _rewrite(function: Operation, ctx: Context) -> bool:
    patterns: list[RewritePattern] = [Fold(ctx), Rewrites(), CanonicalizationRewritePattern()]
    walker = _Round(GreedyRewritePatternApplier(patterns, dce_enabled=False))
    return any([walker.rewrite_region(region) for region in function.regions])


class _Round(PatternRewriteWalker):
    """Visits every op, and again what a rewrite has touched; xDSL's walker begins again until nothing changes.

    In MLIR too a round ends here, so that dead blocks are gone before the next one.
    """

    @override
    def rewrite_region(self, region: Region) -> bool:
        self._populate_worklist(region)
        return self._process_worklist(self._get_rewriter_listener())


class Fold(RewritePattern):
    """Erases a dead op, or replaces it by what it folds to."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Erase the op if it is dead, or replace it by what it folds to."""
        if is_dead(op):
            rewriter.erase(op)
            return
        found = replacements(op, self._ctx)
        if found is not None:
            rewriter.replace(op, *found)


class Rewrites(RewritePattern):
    """Rewrites of the dialects in PLACES."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Replace an op, or let its dialect change what is around it."""
        place = PLACES.get(op.dialect_name())
        if place is not None:
            import_module(place).rewrite(op, rewriter)
