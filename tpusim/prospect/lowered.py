"""Lowering without a sample, from any stage of a module."""

from tpusim.calibration.table import CalibrationTable
from tpusim.canonicalize import canonicalize
from tpusim.ir.module import Model
from tpusim.lowering import LoweringConfig, lower, optimize_for_chip
from tpusim.prospect.assumed import assumed_lowering


def lowered_without_samples(model: Model, config: LoweringConfig, table: CalibrationTable | None = None) -> Model:
    """A module lowered for the chip, with assumed ranges if no table is given; a lowered module is returned."""
    if model.state.startswith("TPU"):
        return model
    if model.state == "TOP_CALIBRATED":
        return optimize_for_chip(lower(model, config)[0])
    return assumed_lowering(canonicalize(model)[0], config, table)
