"""What the flat executor may do with an op's constants and results."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpusim.ops.framework.contexts import Array


class KernelConstants:
    """An op whose kernel reads a constant operand faster in another form."""

    def for_kernel(self, index: int, constant: Array) -> Any:
        """Constant operand `index` in the form that the kernel reads fastest, computed on the host once for many runs.

        `inference` accepts both forms; a packed constant is returned unchanged.
        """
        raise NotImplementedError


class ChannelOrder:
    """An op that can compute its output channels in another order, if its constants are permuted."""

    def in_channel_order(self, constants: Mapping[int, np.ndarray], order: np.ndarray) -> Mapping[int, Any] | None:
        """Constants with which `inference` computes channel order[i] of the result as channel i; None if it cannot.

        constants: the constant operands by number. Operands missing from the mapping are passed unchanged.
        """
        raise NotImplementedError


class Rearranges:
    """An op whose result is a permutation of the stored elements of its only operand."""


class FilledUp:
    """An op with a result of fixed extents, padded if the data give fewer elements."""

    def without_padding(self, result: np.ndarray) -> np.ndarray:
        """The result without the padding, as the network gives it."""
        raise NotImplementedError
