"""The pass manager: runs a pipeline on a copy of a module, watched by instruments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from tpusim.errors import ConfigError
from tpusim.ir.module import Model
from tpusim.passes.base import Pass, Pipeline
from tpusim.passes.context import PassContext
from tpusim.passes.instruments import Instrument, Verify
from tpusim.passes.text import parse_pipeline, print_pipeline

if TYPE_CHECKING:
    from tpusim.isa.stream import Program


class PassManager:
    """Runs a pipeline: a `Pipeline`, passes in order, or their text. verify: the module, after every pass."""

    def __init__(
        self, pipeline: Pass | Iterable[Pass] | str, instruments: Iterable[Instrument] = (), *, verify: bool = True
    ) -> None:
        if isinstance(pipeline, str):
            pipeline = parse_pipeline(pipeline)
        elif isinstance(pipeline, Pass):
            pipeline = pipeline if isinstance(pipeline, Pipeline) else Pipeline((pipeline,))
        else:
            pipeline = Pipeline(tuple(pipeline))
        self.pipeline: Pipeline = pipeline
        watching = (*instruments, Verify()) if verify else tuple(instruments)
        self.instruments = tuple(sorted(watching, key=lambda one: one.innermost))

    def run(self, model: Model, ctx: PassContext | None = None) -> Model:
        """What the pipeline makes of a copy of the module. ctx: what is given to passes, and gets what they make."""
        ctx = ctx or PassContext()
        ctx.weights = model.weights.copy()
        reads_only = all(step.reads_only for step in self.pipeline.flat())
        module = model.module if reads_only else model.module.clone()
        self.apply(ctx, module)
        return ctx.model(module)

    def program(self, model: Model) -> Program:
        """The commands that the pipeline generates for a module. Raises ConfigError for a pipeline without codegen."""
        ctx = PassContext()
        self.run(model, ctx)
        if ctx.program is None:
            raise ConfigError(f"pipeline {print_pipeline(self.pipeline)}: it generates no program; end it with codegen")
        return ctx.program

    def apply(self, ctx: PassContext, module: ModuleOp) -> None:
        """Rewrite a module in place; its weights are in the context. Raises TpusimError of a pass.

        The options of all passes are checked before the first one runs.
        """
        self.pipeline.check_options(ctx)
        ctx.instruments = self.instruments
        given = ctx.workers
        try:
            with given.kept() if given else nullcontext() as ctx.workers:
                ctx.run(self.pipeline.steps, module)
        finally:
            ctx.workers = given

    def report(self) -> Iterator[str]:
        """What the instruments have to say after a run, line by line."""
        for instrument in self.instruments:
            yield from instrument.report()
