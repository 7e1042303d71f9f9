"""Relations and selections (numerics.md 9.0, 12.1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tpusim.field import Elements, Field
from tpusim.field.selected import chosen, related
from tpusim.ir.types import shape_of, uniform_of
from tpusim.ops.compare import TpuCompare, TpuCompareConst
from tpusim.ops.framework.families import is_set
from tpusim.ops.where import TpuWhere


def compare(op: TpuCompare, operands: Sequence[Any], field: Field) -> Elements | None:
    """Whether the first is in this relation to the second."""
    a, b = np.broadcast_arrays(*operands)
    return related(field, op.mode.data, a, b)


def compare_const(op: TpuCompareConst, operands: Sequence[Any], field: Field) -> Elements | None:
    """Whether the element is in this relation to the number, or the number to it."""
    number = op.const_val.value.data
    other = np.array(field.constant(int(number) if uniform_of(op.output) is not None else number))
    a, b = (other, operands[0]) if is_set(op.inversed) else (operands[0], other)
    return related(field, op.mode.data, a, b)


def where(op: TpuWhere, operands: Sequence[Any], field: Field) -> Elements | None:
    """The first branch where the condition is true, else the second; an absent branch is its number."""
    condition, *branches = operands
    true, false = (
        np.array(field.constant(number)) if x is None else x for x, number in zip(branches, op.numbers, strict=True)
    )
    return np.broadcast_to(chosen(field, condition, true, false), shape_of(op.output))
