"""The rows of a group's loop: ops and transfers that run at the same time (layer_group.md 8)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from xdsl.ir import SSAValue

from tpusim.ops.framework.base import TpuOp


@dataclass(frozen=True)
class Transferred:
    """One load or store in the schedule."""

    value: SSAValue
    kind: Literal["load", "store"]
    stage: int


Scheduled: TypeAlias = TpuOp | Transferred
"""An item of a row: the TIU computes ops, the GDMA moves tensors."""


def stage_of(item: Scheduled) -> int:
    """The pipeline stage of an item: ops compute in the middle one."""
    return item.stage if isinstance(item, Transferred) else 1


def tensor_of(item: Scheduled) -> SSAValue:
    """The tensor that an item makes or moves."""
    return item.value if isinstance(item, Transferred) else item.results[0]


@dataclass(frozen=True)
class Row:
    """One time step: ops, mostly one, and the transfers at the same time. A row ends in a barrier."""

    layers: tuple[TpuOp, ...] = ()
    transfers: tuple[Transferred, ...] = ()

    @property
    def items(self) -> tuple[Scheduled, ...]:
        """All items of the row, its ops before its transfers."""
        return (*self.layers, *self.transfers)

    @cached_property
    def used(self) -> frozenset[SSAValue]:
        """The tensors that the ops of the row read and write."""
        return frozenset(value for op in self.layers for value in (*op.operands, *op.results))

    def touches(self, value: SSAValue) -> bool:
        """Whether an op of the row reads or writes `value`."""
        return value in self.used

    def reads(self, value: SSAValue) -> bool:
        """Whether an op of the row reads `value`."""
        return any(value in op.operands for op in self.layers)

    def plus(self, *transfers: Transferred) -> "Row":
        """The row with more transfers after its present ones."""
        return Row(self.layers, (*self.transfers, *transfers))

    def without(self, *transfers: Transferred) -> "Row":
        """The row without some of its transfers."""
        return Row(self.layers, tuple(t for t in self.transfers if t not in transfers))
