"""Requants of the hardware."""

from typing import ClassVar

from tpusim.ops.interfaces import Requants
from tpusim.targets.bm1684.target import TARGET


@TARGET.provide(Requants)
class ShiftsAlone(Requants):
    """One right shift per tensor, and multipliers of 7 bits (numerics.md 5.4)."""

    PRODUCTS: ClassVar[str] = "shift"
    OTHERS: ClassVar[str] = "right_shift"
