"""Lowering without a sample, from any stage of a module."""

from tpusim.calibration.table import CalibrationTable
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig
from tpusim.passes import PassManager
from tpusim.passes.canonicalize import Canonicalize
from tpusim.passes.pipelines import lowered
from tpusim.studies.prospect.assumed import assumed_lowering


def lowered_without_samples(model: Model, config: LoweringConfig, table: CalibrationTable | None = None) -> Model:
    """A module lowered for the chip, with assumed ranges if no table is given; a lowered module is returned."""
    if model.state.startswith("TPU"):
        return model
    if model.state == "TOP_CALIBRATED":
        return PassManager(lowered(config)).run(model)
    return assumed_lowering(PassManager(Canonicalize()).run(model), config, table)
