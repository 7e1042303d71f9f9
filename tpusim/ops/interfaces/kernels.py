"""What the flat executor may do with an op's constants and results."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpusim.ops.framework.contexts import Array


class KernelConstants:
    """Constant operands that have another form for the op's kernel."""

    def for_kernel(self, index: int, constant: Array) -> Any:
        """Constant operand `index` in the form that the kernel reads fastest: made on the host, once for many runs.

        `inference` takes either form; a packed constant stays packed.
        """
        raise NotImplementedError


class ChannelOrder:
    """An op whose constants may give its channels in another order."""

    def in_channel_order(self, constants: Mapping[int, np.ndarray], order: np.ndarray) -> Mapping[int, Any] | None:
        """Operands for `inference` that give channel order[i] of the result as channel i; None: it cannot.

        constants: the constant operands by number. Operands missing from the mapping are passed unchanged.
        """
        raise NotImplementedError


class Rearranges:
    """The result has all stored elements of the one operand, and these alone, in some order."""


class FilledUp:
    """A result whose extents do not depend on data, filled up where the data give less."""

    def without_padding(self, result: np.ndarray) -> np.ndarray:
        """The part of a result that the network gives."""
        raise NotImplementedError
