"""Top ops in the form that a chip's lowering expects: each op's `chip_patterns`, applied until none fires."""

from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriteWalker

from tpusim.chips import ChipSpec
from tpusim.ir.module import Model
from tpusim.ops import Top
from tpusim.ops.base import TopOp


def rewrite_for_chip(model: Model, chip: ChipSpec) -> None:
    """Rewrite a top module in place; the names of tensors stay, the store gains weights."""
    patterns = [
        pattern
        for cls in Top.operations
        if issubclass(cls, TopOp)
        for pattern in cls.chip_patterns(model.weights, chip)
    ]
    PatternRewriteWalker(GreedyRewritePatternApplier(patterns, dce_enabled=False)).rewrite_module(model.module)
