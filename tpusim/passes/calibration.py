"""Passes that give a top module its ranges, and those that read samples for it."""

from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from tpusim.calibration.quantised import completed_table
from tpusim.calibration.samples import Samples, require_source
from tpusim.calibration.smooth import rewritten
from tpusim.calibration.stage import CalibrationConfig, apply_table, calibrate, require_method, save_table
from tpusim.calibration.table import read_table
from tpusim.images import images_of
from tpusim.inference import input_specs
from tpusim.ir.module import Model, State
from tpusim.passes.base import Pass
from tpusim.passes.context import PassContext, Tensors

DATA = "random:8"
"""Samples where no others are named."""
MOST_BINS = 1 << 20
"""Of a histogram: there is one for every tensor, of 8 bytes a bin."""
TABLE = "cali_table"
"""The table where no other is named."""


def samples_of(model: Model, data: str, limit: int, ctx: PassContext) -> Tensors:
    """The samples of the context, or those that `data` names, in the order of TPU-MLIR's calibration."""
    if ctx.samples is not None:
        return ctx.samples
    return Samples(data, input_specs(model), limit, shuffled=True, images=images_of(model))


@dataclass(frozen=True)
class Calibrate(CalibrationConfig, Pass):
    """Measure the ranges of all tensors into the context's table; the module stays as it is.

    data: the samples, npz, folder or random:N, unless the context has some. The other options are those of calibration.
    """

    name = "calibrate"
    requires = frozenset({State.TOP})
    reads_only = True
    data: str = DATA

    @override
    def check_options(self, ctx: PassContext) -> None:
        require_method(self.method)
        self.require_count("bins", 1, MOST_BINS)
        self.require_count("max_samples")
        self.require_count("tune_samples")
        if ctx.samples is None:
            require_source(self.data)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        samples = samples_of(model, self.data, self.max_samples, ctx)
        ctx.table, ctx.measured = completed_table(
            model,
            lambda: calibrate(model, samples, self, ctx.progress, state=ctx.calibration_state, workers=ctx.workers),
        )
        return model


@dataclass(frozen=True)
class ImportCalibrationTable(Pass):
    """Put the ranges of a calibration table into the module's types.

    file: the table; "": the one in the context, or else cali_table. asymmetric: types carry the measured (min, max).
    """

    name = "import-calibration-table"
    requires = frozenset({State.TOP})
    produces = State.CALIBRATED
    file: str = ""
    asymmetric: bool = False

    @override
    def check_options(self, ctx: PassContext) -> None:
        if self.file:
            read_table(Path(self.file))

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        if self.file or ctx.table is None:
            ctx.table = read_table(Path(self.file or TABLE))
        return apply_table(model, ctx.table, asymmetric=self.asymmetric)

    @override
    def alone(self, ctx: PassContext, path: Path) -> Pass:
        if self.file or ctx.table is None:
            return self
        table = path.with_name(f"{path.stem}_cali_table")
        save_table(table, ctx.table, CalibrationConfig(), ctx.measured, module=path.name)
        return replace(self, file=str(table))


@dataclass(frozen=True)
class _BySamples(Pass):
    """A rewriting with factors that samples decide. data: as of `Calibrate`; max_samples: how many of them, 0: all."""

    requires = frozenset({State.TOP})
    data: str = DATA
    max_samples: int = 0

    @override
    def check_options(self, ctx: PassContext) -> None:
        self.require_count("max_samples")
        if ctx.samples is None:
            require_source(self.data)

    @override
    def rewrite(self, model: Model, ctx: PassContext) -> Model:
        found, counts = rewritten(model, (self.name,), samples_of(model, self.data, self.max_samples, ctx))
        ctx.patterns.update(counts)
        return found


@dataclass(frozen=True)
class Smoothquant(_BySamples):
    """Divide channels by factors, so that the products that read them lose less in 8 bits."""

    name = "smoothquant"
    exact = False


@dataclass(frozen=True)
class SoftmaxCorrection(_BySamples):
    """Divide the softmaxes of attentions by the mean of their largest values, and multiply the products after them."""

    name = "softmax_correction"
