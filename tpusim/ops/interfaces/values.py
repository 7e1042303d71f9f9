"""Properties of the tensors and numbers of a top op."""

from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import BoolAttr
from xdsl.irdl import opt_attr_def


class Joins:
    """An op whose result consists of the elements of all operands, unchanged."""


class Weighs:
    """A product with weights: Conv, MatMul, Attention."""

    def by_channel(self, weight: np.ndarray) -> np.ndarray | None:
        """The weight as (output channels, others) if each channel may have its scale; None if not."""
        del weight
        return None


class ScalarOperand:
    """An op of a tensor and a number (AddConst ...)."""

    def scalar_operand(self) -> float:
        """The number that the op combines with its tensor."""
        raise NotImplementedError


class Selects:
    """An op that selects elements from branches (Where)."""

    def constant_branches(self) -> tuple[float, ...]:
        """The numbers among its branches."""
        raise NotImplementedError


class DefaultAlpha:
    """An op with an attribute `alpha` whose default in TPU-MLIR's front end is not ONNX's (U-102)."""

    UPSTREAM_ALPHA: ClassVar[float]

    default_alpha = opt_attr_def(BoolAttr)
    """Whether the node left alpha out."""


def number_of(op: object) -> float | None:
    """The number of an op that combines a tensor with a number; None for any other op."""
    return op.scalar_operand() if isinstance(op, ScalarOperand) else None
