"""Chips as data: `load("bm1684x")` gives a frozen `ChipSpec`; one TOML file per chip (spec/hardware.md 1 to 3)."""

from tpusim.chips.spec import Bandwidth, ChipSpec, Family, Mode, available, load

__all__ = ["Bandwidth", "ChipSpec", "Family", "Mode", "available", "load"]
