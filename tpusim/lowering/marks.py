"""Automatic float marks: ops that integers would ruin, found before propagation (spec/numerics.md 3.4)."""

from xdsl.ir import Operation

from tpusim.ir.module import Model
from tpusim.ir.types import calibrated_range, is_tensor
from tpusim.ops.base import TopOp

MAX_THRESHOLD_RATIO = 64.0
"""An Add of operands whose thresholds differ by more than this runs in float."""
MIN_THRESHOLD = 1e-8


def float_marks(model: Model) -> dict[Operation, str]:
    """Ops to lower in float, with the reason."""
    marks: dict[Operation, str] = {}
    for op in model.ops:
        if isinstance(op, TopOp) and op.RANGE.sum_sign:
            why = _unbalanced(op)
            if why:
                marks[op] = why
    return marks


def _unbalanced(op: TopOp) -> str | None:
    ranges = [calibrated_range(v) for v in op.operands if is_tensor(v)]
    if len(ranges) != 2 or None in ranges:
        return None
    first, second = (max(abs(r[0]), abs(r[1])) for r in ranges if r is not None)
    if min(first, second) < MIN_THRESHOLD:
        return None
    ratio = max(first / second, second / first)
    return f"operand thresholds differ {ratio:.0f} times, more than 64" if ratio > MAX_THRESHOLD_RATIO else None
