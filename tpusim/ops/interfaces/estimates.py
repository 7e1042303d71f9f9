"""Float ops as searches compute them: quickly, with sums in any order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tpusim.ops.framework.contexts import Array

Squares = Callable[[Sequence[Array], Array], Array]
"""Sums of squares f32 (m,): how much a float result changes when the operands are rounded, for each of m scales.

Arguments: the values of the operands that are not constant, and the scales f32 (m,).
"""


@dataclass(frozen=True)
class Estimate:
    """A float op as searches compute it: the same values up to rounding, with axes stored in the fastest order.

    compute: as `inference`, with sums in any order. operands: the order of axes in which an operand is stored, by its
    number; the others keep their order. result: the order of the result's axes, () if unchanged. trial: makes a faster
    `Squares` from the operands in unchanged order, with None for those that are not constant; it returns None for
    constants that it does not support. With the `Squares` it returns the relative error (2-norm) that it makes in a
    constant, 0 if it rounds none.
    """

    compute: Callable[[Sequence[Array]], tuple[Array, ...]]
    operands: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    result: tuple[int, ...] = ()
    trial: Callable[[Sequence[Array]], tuple[Squares, float] | None] | None = None


class Estimated:
    """An op that searches compute faster than by its `inference`."""

    def estimate(self) -> Estimate:
        """The op as searches compute it, inside `tpusim_kernels.prim.forms.estimates`."""
        raise NotImplementedError


class _Computes(Protocol):
    def inference(self, operands: Sequence[Array]) -> tuple[Array, ...]: ...


def estimate_of(op: _Computes) -> Estimate:
    """How searches compute an op: by its `estimate`, else by its `inference`."""
    return op.estimate() if isinstance(op, Estimated) else Estimate(op.inference)
