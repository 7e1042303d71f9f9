"""Masks: numbers such as minus infinity, the lowest float or -1e9, next to which other numbers vanish (DN-31)."""

from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import float_attr, op_name, set_op_name
from tpusim.ir.once import once
from tpusim.ir.types import calibrated_range
from tpusim.ir.weights import WeightStore
from tpusim.ops.const_binary import TopMaxConst
from tpusim.ops.framework.base import TopOp
from tpusim.ops.interfaces import Selects, Weighs
from tpusim.ops.structure import TopInput, TopWeight

MASK = 6e4
"""The least magnitude of a mask; calibration counts infinity as 65000."""
LOWEST = -64.0
"""A mask before tables of the exponential: below -15 they continue as a line of slope 1e-8."""
DEEPEST = 12
"""The largest number of ops between a mask and its reader."""


def has_mask(op: TopOp, weights: WeightStore) -> bool:
    """Whether a constant of the op has the size of a mask, or the op is a network input with such a range."""
    if isinstance(op, TopInput):
        found = calibrated_range(op.output)
        return found is not None and found[0] <= -MASK and found[1] < MASK
    arrays = (weights[op_name(v.owner)] for v in op.operands if isinstance(v.owner, TopWeight))
    if any(w.size and w.dtype.kind == "f" and _largest(w) >= MASK for w in arrays):
        return True
    scalar = op.attributes.get("const_val")
    branches = op.constant_branches() if isinstance(op, Selects) else ()
    numbers = (*branches, *((scalar.value.data,) if isinstance(scalar, FloatAttr) else ()))
    return any(abs(number) >= MASK for number in numbers)


@once
def _largest(weights: np.ndarray) -> float:
    return float(max(weights.max(), -weights.min()))


def is_masked(value: SSAValue, weights: WeightStore, depth: int = 0) -> bool:
    """Whether a value may contain a mask: a mask reaches it through ops without weights."""
    op = value.owner
    if not isinstance(op, TopOp) or op.RANGE.fixed is not None or depth > DEEPEST:
        return False
    if has_mask(op, weights):
        return True
    return not isinstance(op, Weighs) and any(is_masked(v, weights, depth + 1) for v in op.operands)


@dataclass
class LimitMask(RewritePattern):
    """Softmax of masked numbers -> Softmax of max(x, LOWEST), for chips that compute the exponential by table."""

    weights: WeightStore
    softmax: type[TopOp]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Softmax; a Softmax with a limit stays."""
        if not isinstance(op, self.softmax):
            return
        x = op.operands[0]
        limited = isinstance(x.owner, TopMaxConst) and x.owner.number >= LOWEST
        if limited or not is_masked(x, self.weights):
            return
        limit = TopMaxConst.create(operands=[x], result_types=[x.type], attributes={"const_val": float_attr(LOWEST)})
        set_op_name(limit, f"{op_name(op)}_limited")
        rewriter.insert(limit, InsertPoint.before(op))
        op.operands[0] = limit.results[0]
        rewriter.notify_op_modified(op)
