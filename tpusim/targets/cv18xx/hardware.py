"""Requants of the hardware."""

from typing import ClassVar

from tpusim.ops.interfaces import Requants
from tpusim.targets.cv18xx.target import TARGET


@TARGET.provide(Requants)
class QdmAndSmallMultipliers(Requants):
    """32-bit multipliers of products, 8-bit ones of thresholds (numerics.md 5.3, 5.5)."""

    PRODUCTS: ClassVar[str] = "qdm"
    OTHERS: ClassVar[str] = "small_multiplier"
