"""The pass of patterns that are data."""

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from tpusim.errors import ConfigError
from tpusim.ir.dialects import open_context
from tpusim.ir.module import Model
from tpusim.ir.pdl import read_patterns, rows_of
from tpusim.ir.rewriting import rewrite
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext
from tpusim.passes.generic import with_used_weights


@dataclass(frozen=True)
class ApplyPdl(Pass):
    """Apply the patterns of a file in MLIR's dialect pdl until none fires. pdl_file: the file."""

    name = "apply-pdl"
    pdl_file: str = ""

    @override
    def check_options(self, ctx: PassContext) -> None:
        if not self.pdl_file:
            raise ConfigError(f"pass {self.name}: pdl_file=FILE is required, a module with pdl.pattern ops")
        rows_of(read_patterns(Path(self.pdl_file), open_context()))

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        ctx.patterns.update(rewrite(model, read_patterns(Path(self.pdl_file), open_context())))
        return with_used_weights(model)
