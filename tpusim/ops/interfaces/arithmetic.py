"""Questions of executors, costs and overflow checks to tpu ops that multiply or whose results depend on the chip."""

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Operation

from tpusim.chips import ChipSpec
from tpusim.interfaces import Rules
from tpusim.ops.framework.contexts import Array


class ChipInference:
    """An op whose arithmetic differs between chips for equal attributes and types."""

    def inference_on(self, operands: Sequence[Array], chip: ChipSpec) -> tuple[Array, ...]:
        """The results of `inference` as this chip computes them."""
        raise NotImplementedError


class Accumulates:
    """An op that adds up products in int32 accumulators."""

    def limits_of_sums(self, constants: Sequence[np.ndarray | None]) -> tuple[int, int]:
        """The smallest and the largest sum that an accumulator can reach, for any values of the other operands.

        constants: the constant operands before weights are reordered, None for others. (0, 0): no integers are summed.
        """
        raise NotImplementedError

    def sums(self, operands: Sequence[Array]) -> np.ndarray:
        """The contents of the accumulators before the requant, exact in int64.

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
    """An op whose multiply-accumulates are counted."""

    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        raise NotImplementedError


def macs_of(op: Operation) -> int:
    """Multiply-accumulates of one run of an op."""
    return op.macs() if isinstance(op, Macs) else 0
