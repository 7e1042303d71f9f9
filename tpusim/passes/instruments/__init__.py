"""Instruments watch a run of passes. One small class each, with hooks around passes (`Instrument`)."""

from tpusim.passes.instruments.base import Instrument, Step
from tpusim.passes.instruments.verify import Verify

__all__ = ["Instrument", "Step", "Verify"]
