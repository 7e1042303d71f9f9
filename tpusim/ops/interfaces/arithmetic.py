"""What executors, costs and checks of overflow ask of tpu ops that multiply, or whose numbers depend on the chip."""

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation

from tpusim.chips import ChipSpec
from tpusim.interfaces import Rules
from tpusim.ops.framework.contexts import Array


class ChipInference:
    """An op whose attributes and types do not say all about the chip's arithmetic."""

    def inference_on(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        """`inference` on this chip."""
        raise NotImplementedError


class Accumulates:
    """An op that adds up products in int32 accumulators."""

    def limits_of_sums(self, constants: Sequence[np.ndarray | None]) -> tuple[int, int]:
        """The smallest and the largest sum that an accumulator can reach, of any other operands.

        constants: the operands that are constants, before weights are reordered. (0, 0): it adds up no integers.
        """
        raise NotImplementedError

    def sums(self, operands: Sequence[Array]) -> np.ndarray:
        """What the accumulators hold before the requant, exact in int64.

        The channels are axis 1 of an image, the last axis of a matrix.
        """
        raise NotImplementedError


class ProductRules(Rules):
    """Which forms integer products have."""

    WIDE_RESULTS = True
    """Products before a float op have 16-bit results (numerics.md 2.2, 3.4)."""
    COLUMN_MULTIPLIERS = True
    """A matrix product may have a multiplier per column (numerics.md 5.1)."""


class Macs:
    """An op that multiplies and adds up."""

    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        raise NotImplementedError


def macs_of(op: Operation) -> int:
    """Multiply-accumulates of one run of an op."""
    return op.macs() if isinstance(op, Macs) else 0
