"""Code generation as a pass."""

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from tpusim.codegen import generate
from tpusim.host.files import require_file
from tpusim.ir.module import Model, State
from tpusim.isa.stream import save
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext


@dataclass(frozen=True)
class Codegen(Pass):
    """Generate the commands of an addressed module; the module stays as it is.

    model_file: the program to write, "": none. cores: how many share the steps of every group, 0: as the module says.
    """

    name = "codegen"
    requires = frozenset({State.ADDRESSED})
    reads_only = True
    model_file: str = ""
    cores: int = 0

    @override
    def check_options(self, ctx: PassContext) -> None:
        self.require_count("cores")
        if self.model_file:
            require_file(Path(self.model_file))

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        ctx.program = generate(model, self.cores)
        if self.model_file:
            save(ctx.program, Path(self.model_file))
        return model
