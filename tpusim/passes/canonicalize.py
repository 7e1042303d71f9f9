"""Canonicalisation: of a top module before it has ranges by the patterns of its ops, of other ops by `simplify`."""

from dataclasses import dataclass

from typing_extensions import override

from tpusim.ir.module import Model, State
from tpusim.ir.text import is_network, only_network
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext
from tpusim.passes.generic import Simplify


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Simplify: the patterns of every op, folders and fusions, to a fix point.

    also: patterns on request, which change INT8 numbers. quirks_off: quirks of TPU-MLIR not to reproduce.
    """

    name = "canonicalize"
    requires = frozenset({State.TOP})
    anchor = "func.func"
    also: tuple[str, ...] = ()
    quirks_off: tuple[str, ...] = ()

    @override
    def check_options(self, ctx: PassContext) -> None:
        if self.also or self.quirks_off:
            from tpusim.canonicalize import require_patterns
            from tpusim.compat import checked

            require_patterns(self.also)
            checked(self.quirks_off)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        if is_network(model.module):
            from tpusim.canonicalize import canonicalize

            model, patterns = canonicalize(model, self.also, self.quirks_off)
            ctx.patterns.update(patterns)
        return model if only_network(model.module) else Simplify().rewrite(model, ctx)
