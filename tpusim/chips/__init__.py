"""Chips as data: `load("bm1684x")` gives a frozen `ChipSpec`; one TOML file per chip (spec/hardware.md 1 to 3)."""

from tpusim.chips.spec import Bandwidth, Calibration, ChipSpec, Family, Mode, available, load, require_cores

__all__ = ["Bandwidth", "Calibration", "ChipSpec", "Family", "Mode", "available", "load", "require_cores"]
