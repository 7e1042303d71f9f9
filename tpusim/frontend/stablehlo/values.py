"""Values during the conversion of a StableHLO module: constants as arrays, computed tensors by their ONNX name.

A computed value may be a *view* of its tensor: the axes in another order, and axes of extent 1 that are repeated. Ops
for which the order of axes does not matter take the view as it is. So a network of NHWC images has no transpositions
between its layers, and the broadcast of a bias takes no node.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """A value that is known when the network is converted. of: the weight's name, if it is one."""

    array: np.ndarray
    of: str = ""

    @property
    def shape(self) -> Shape:
        """The extents of the array."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        """The element type of the array."""
        return self.array.dtype


@dataclass(frozen=True)
class Computed:
    """A value that the network computes.

    name: the ONNX tensor. stored: the tensor's shape, whose axes are in the order in which they are stored. order:
    axis i of the value is axis order[i] of the tensor; other axes of the tensor have extent 1. shape: the value's
    extents; an axis that is longer than in the tensor repeats its one element.
    """

    name: str
    stored: Shape
    dtype: np.dtype
    order: tuple[int, ...]
    shape: Shape

    @classmethod
    def plain(cls, name: str, shape: Sequence[int], dtype: np.dtype) -> "Computed":
        """A tensor as it is stored."""
        return cls(name, tuple(shape), dtype, tuple(range(len(shape))), tuple(shape))

    @property
    def inner(self) -> Shape:
        """The tensor's extents in the order of the value's axes."""
        return tuple(self.stored[axis] for axis in self.order)

    @property
    def repeats(self) -> bool:
        """Whether an axis is longer than in the tensor."""
        return self.inner != self.shape

    @property
    def spare(self) -> tuple[int, ...]:
        """Axes of the tensor, of extent 1, that are none of the value."""
        return tuple(axis for axis in range(len(self.stored)) if axis not in self.order)

    def transposed(self, order: Sequence[int]) -> "Computed":
        """The value with axis i from axis order[i]."""
        return replace(self, order=tuple(self.order[a] for a in order), shape=tuple(self.shape[a] for a in order))


Value: TypeAlias = Constant | Computed
