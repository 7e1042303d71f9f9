"""Ops of a lowered module whose int32 accumulators could overflow (`tpusim.ops.framework.accumulator`)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from warnings import warn

import numpy as np
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from tpusim.errors import ModeWarning, option
from tpusim.ir.attrs import op_name, value_name
from tpusim.ir.module import Model
from tpusim.ir.types import element_of
from tpusim.ops.framework.base import TpuOp
from tpusim.ops.interfaces import Accumulates
from tpusim.ops.structure import TopWeight

INT32 = np.iinfo(np.int32)
Limits = tuple[int, int]
"""The smallest and the largest sum."""
MOST = 4
"""Most ops that the warning names."""


@dataclass(frozen=True)
class Overflow:
    """An op whose accumulator can leave int32. name: in the quantisation table. limits: the sums that it can reach.

    told: its bias alone exceeds int32, which already gave a warning.
    """

    op: TpuOp
    name: str
    limits: Limits
    told: bool

    @property
    def reach(self) -> int:
        """The largest magnitude that a sum can have."""
        return max(-self.limits[0], self.limits[1])


def possible_overflows(names: Collection[str], lowered: Model) -> Iterator[Overflow]:
    """The possible overflows in program order. top: the module before lowering; lowered: before weight reorder."""
    for op in lowered.ops:
        if not isinstance(op, TpuOp) or not isinstance(op, Accumulates):
            continue
        constants = [_constant(value, lowered) for value in op.operands]
        limits = op.limits_of_sums(constants)
        if overflows(limits):
            yield Overflow(
                op, _listed(op, names), limits, any(array is not None and _saturated(array) for array in constants)
            )


def warn_of_overflow(names: Collection[str], lowered: Model) -> None:
    """A ModeWarning about all of these ops; it names the first with the sums that they can reach."""
    found = [one for one in possible_overflows(names, lowered) if not one.told]
    if not found:
        return
    shown = ", ".join(f"'{one.name}' ({one.reach:,})" for one in found[:MOST]) + " ..." * (len(found) > MOST)
    several = "accumulators" if len(found) > 1 else "accumulator"
    told = (
        f"the {several} of {shown} can leave int32, which ends at {INT32.max:,}: bias and products of the largest "
        "operands add up to more. The machine refuses a sample that does so, chips give other numbers. `tpusim why` "
        f"says whether samples do; {option('qtable', f'{found[0].name}:F16')} computes the op in float"
    )
    warn(ModeWarning(told), stacklevel=3)


def overflows(limits: Limits) -> bool:
    """Whether one of these sums exceeds int32."""
    return limits[0] < INT32.min or limits[1] > INT32.max


def _constant(value: SSAValue, model: Model) -> np.ndarray | None:
    return model.weights.get(op_name(value.owner)) if isinstance(value.owner, TopWeight) else None


def _listed(op: TpuOp, names: Collection[str]) -> str:
    """The op's name in a quantisation table: that of a separate requant, else its name without a view's suffix.

    names: those of the module before lowering; names of ops between views are derived from the op's name.
    """
    result = op.results[0]
    while element_of(result) == i32 and (users := list(result.uses)) and users[0].operation.results:
        result = users[0].operation.results[0]
    name = stem = value_name(result)
    while stem and stem not in names:
        stem = stem.rpartition("_")[0]
    return stem or name


def _saturated(array: np.ndarray) -> bool:
    ends = array.dtype == np.int32 and array.size > 0
    return bool(ends and (array.max() == INT32.max or array.min() == INT32.min))
