"""What the tensors and numbers of a top op are."""

import numpy as np


class Joins:
    """The result is the elements of all operands, each unchanged."""


class Weighs:
    """A product with weights, the last that calibration looks for from a network's end."""

    def by_channel(self, weight: np.ndarray) -> np.ndarray | None:
        """The second operand's data as (output channels, others), where weights may have a scale for each channel."""
        del weight
        return None


class ScalarOperand:
    """An op of a tensor and a number (AddConst ...)."""

    def scalar_operand(self) -> float:
        """The number that the op combines with its tensor."""
        raise NotImplementedError


class Selects:
    """An op that selects (Where)."""

    def constant_branches(self) -> tuple[float, ...]:
        """The numbers that it may select."""
        raise NotImplementedError


def number_of(op: object) -> float | None:
    """The number of an op of a tensor and a number, None for any other op."""
    return op.scalar_operand() if isinstance(op, ScalarOperand) else None
