"""Passes over a top module before it has ranges."""

from dataclasses import dataclass

from typing_extensions import override

from tpusim.canonicalize import canonicalize, require_patterns
from tpusim.compat import checked
from tpusim.ir.module import Model, State
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Simplify: the patterns of every op and fusions, to a fix point.

    also: patterns on request, which change INT8 numbers. quirks_off: quirks of TPU-MLIR not to reproduce.
    """

    name = "canonicalize"
    requires = frozenset({State.TOP})
    anchor = "func.func"
    also: tuple[str, ...] = ()
    quirks_off: tuple[str, ...] = ()

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_patterns(self.also)
        checked(self.quirks_off)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        found, patterns = canonicalize(model, self.also, self.quirks_off)
        ctx.patterns.update(patterns)
        return found
