"""Convolutions with dilations above the limit of a command: filters with zeros between their taps."""

from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from tpusim.ir.attrs import ints, ints_attr, op_name
from tpusim.ir.types import shape_of
from tpusim.ir.weights import WeightStore
from tpusim.isa.commands.window import MOST_STEPS
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import constant_of
from tpusim.ops.structure import make_weight


@dataclass
class ZerosBetweenTaps(RewritePattern):
    """Conv with a dilation above 15 and a constant filter -> Conv with a larger kernel and a smaller dilation.

    The dilation becomes its largest divisor below 15 (U-30).
    """

    weights: WeightStore
    conv: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The new filter has the name of the convolution with "_dilation" appended."""
        if not isinstance(op, self.conv):
            return
        filter: SSAValue = op.operands[1]
        dilations, data = op.attributes.get("dilations"), constant_of(filter, self.weights)
        before = ints(cast("ArrayAttr[Attribute]", dilations)) if isinstance(dilations, ArrayAttr) else (1, 1)
        if len(shape_of(filter)) != 4 or data is None or max(before) <= MOST_STEPS:  # noqa: PLR2004  a 2-D filter
            return
        after = tuple(_largest_divisor(d) if d > MOST_STEPS else d for d in before)
        rows, columns = (d // less for d, less in zip(before, after, strict=True))
        wider = widened_taps(data, (rows, columns))
        weight = make_weight(self.weights, f"{op_name(op)}_dilation", wider)
        rewriter.insert(weight, InsertPoint.before(op))
        op.operands[1] = weight.output
        op.attributes |= {"kernel_shape": ints_attr(wider.shape[2:]), "dilations": ints_attr(after)}
        rewriter.notify_op_modified(op)


def _largest_divisor(number: int) -> int:
    """The largest divisor below 15."""
    return max(d for d in range(1, MOST_STEPS) if number % d == 0)


def widened_taps(filter: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
    """(oc, ic, kh, kw) with `steps` - 1 zeros between the rows, and between the columns."""
    (kh, kw), (rows, columns) = filter.shape[2:], steps
    wider = np.zeros((*filter.shape[:2], (kh - 1) * rows + 1, (kw - 1) * columns + 1), filter.dtype)
    wider[:, :, ::rows, ::columns] = filter
    return wider
