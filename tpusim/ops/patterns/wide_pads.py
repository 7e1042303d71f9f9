"""Convolutions with more padding than a command can do: the excess becomes a Pad."""

from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from tpusim.chips import ChipSpec
from tpusim.ir.attrs import float_attr, ints_attr, op_name, set_op_name, text
from tpusim.ir.types import element_of, shape_of
from tpusim.isa.commands.window import MOST_STEPS
from tpusim.ops.conv import TopConv, TpuConv2D
from tpusim.ops.framework.base import OpT
from tpusim.ops.framework.families import zero_point

Pads = tuple[int, int, int, int]
"""(top, left, bottom, right)."""


@dataclass
class PadsOfSides(RewritePattern):
    """Conv with sides padded by more than 15 -> Pad of all padding of these sides -> Conv."""

    pad: OpT

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """The Pad has the convolution's name with "_pad"."""
        if not isinstance(op, TopConv) or op.volume or op.inserts is not None:
            return
        top, left, bottom, right = (pad * (pad > MOST_STEPS) for pad in _pads_of(op))
        if any((top, left, bottom, right)):
            _take(op, self.pad, (top, left, bottom, right), "_pad", 0.0, rewriter)


@dataclass
class PadsInSteps(RewritePattern):
    """Conv2D with a side padded by more than 15 -> Pads of up to 15 per side -> Conv2D with at most 15.

    Convolutions that gather their windows need no Pad (codegen.md DC-09).
    """

    pad: OpT
    chip: ChipSpec

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        """Each Pad has the convolution's name with "$pad" and a number."""
        if not isinstance(op, TpuConv2D) or op.packed or op.inserts is not None or op.is_gathered(self.chip):
            return
        number = 0
        while max(pads := _pads_of(op)) > MOST_STEPS:
            top, left, bottom, right = (min(pad, MOST_STEPS) for pad in pads)
            _take(op, self.pad, (top, left, bottom, right), f"$pad{number}", zero_point(op.input), rewriter)
            number += 1


def _pads_of(op: TopConv | TpuConv2D) -> Pads:
    return op.geometry["pads"]  # type: ignore[return-value]


def _take(op: TopConv | TpuConv2D, cls: OpT, taken: Pads, end: str, value: float, rewriter: PatternRewriter) -> None:
    """Move `taken` of a convolution's padding into a Pad before it."""
    (top, left, bottom, right), (n, c, h, w) = taken, shape_of(op.input)
    attributes = {
        "paddings": ints_attr((0, 0, top, left, 0, 0, bottom, right)),
        "mode": text("constant"),
        "val": float_attr(value),
    }
    padded = TensorType(element_of(op.input), (n, c, h + top + bottom, w + left + right))
    pad = cls.create(operands=[op.input], result_types=[padded], attributes=attributes)
    set_op_name(pad, op_name(op) + end)
    rewriter.insert(pad)
    op.operands[0] = pad.results[0]
    op.attributes["pads"] = ints_attr([pads - less for pads, less in zip(_pads_of(op), taken, strict=True)])
    rewriter.notify_op_modified(op)
