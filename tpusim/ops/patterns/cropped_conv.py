"""Convolutions whose results are cropped by a Slice (interface.md 7.3, ConvSlice)."""

from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.ir.attrs import copy_name, ints_attr
from tpusim.ir.types import shape_of
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import relu_of
from tpusim.ops.framework.rewriting import made_by, numbers_of
from tpusim.ops.patterns.slices import SLICE, part_of_slice


@dataclass
class ConvSlice(RewritePattern):
    """Conv with stride 1 -> Slice that cuts off rows or columns which the padding adds: a Conv with less padding."""

    conv: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """`op` is the Slice; the new Conv takes its name."""
        conv = made_by(op.operands[0], self.conv.name) if op.name == SLICE else None
        if conv is None or relu_of(conv) or len(shape_of(op.results[0])) != 4:
            return
        strides, pads = numbers_of(conv, "strides"), numbers_of(conv, "pads")
        left = _remaining(op, pads) if set(strides) == {1} else None
        if left is None:
            return
        attributes = {**conv.attributes, "pads": ints_attr(left)}
        cropped = self.conv.create(operands=conv.operands, result_types=[op.results[0].type], attributes=attributes)
        copy_name(cropped, op)
        rewriter.replace(op, cropped)
        rewriter.erase(conv)


def _remaining(op: Operation, pads: tuple[int, ...]) -> tuple[int, ...] | None:
    """The pads less what the Slice cuts off; None if it cuts more than the pads or has a step or other axes."""
    whole, part = shape_of(op.operands[0]), part_of_slice(op)
    if any(step != 1 for _, step, _ in part) or any(p != (0, 1, n) for p, n in zip(part[:2], whole[:2], strict=True)):
        return None
    before = [pads[i] - part[i + 2][0] for i in range(2)]
    after = [pads[i + 2] - (whole[i + 2] - part[i + 2][2]) for i in range(2)]
    return (*before, *after) if min(*before, *after) >= 0 else None
