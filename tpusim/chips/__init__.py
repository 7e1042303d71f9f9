"""Chips as data: `load("bm1684x")` or `load("my_chip.toml")` gives a frozen `ChipSpec` (docs/spec/hardware.md 1 to 3).

This folder has one TOML file per shipped chip. `of(module)` is the chip that a lowered module is for. `define` and
`resolve` let a chip that is not shipped travel with the modules and programs compiled for it.
"""

from tpusim.chips.families import Hardware
from tpusim.chips.fields import described, differences, flattened
from tpusim.chips.files import as_stated, available, define, load, loadable, names, of, resolve
from tpusim.chips.spec import Bandwidth, Calibration, ChipSpec, require_cores

__all__ = [
    "Bandwidth",
    "Calibration",
    "ChipSpec",
    "Hardware",
    "as_stated",
    "available",
    "define",
    "described",
    "differences",
    "flattened",
    "load",
    "loadable",
    "names",
    "of",
    "require_cores",
    "resolve",
]
